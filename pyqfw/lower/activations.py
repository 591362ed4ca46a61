"""ReLU6, Sigmoid and Tanh: docs/numerics.md section 34."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .context import ABOVE_ZERO, Backward
from .ir import Op, Tensor
from .pointwise import like
from .softmax import sums
from .tape import Tape, Taped
from .trace import Node

SLOPE, TOP = 0, 1  # params of relu
MASKED_TOP = 2  # of mask
SIX = 6.0


class _ReLU6:
    """ReLU with an end. Errors pass where the stored code is above 0 and below that of 6."""

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        y = x if x.raw else like(node, x)
        op = Op("relu", node.path, (y, x), {SLOPE: 0.0, TOP: SIX}, note=f"at most {SIX:g}")
        tape.ops.append(op)
        tape.taped.append(Taped(node, x, y))
        if y.raw:
            tape.needed.add(y)  # another scale would be another 6
        return y

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        wire, path = back.tape.kept(taped.y), taped.node.path
        params: dict[int, int | float] = {0: ABOVE_ZERO, MASKED_TOP: SIX}
        error = back.own(error, path)
        back.ops.append(Op("mask", path, (error, wire), params, note=f"below {SIX:g}"))
        return error


@dataclass(frozen=True)
class _Squash:
    """A function of what enters, as it is; errors are multiplied by a function of what left, as it
    was kept."""

    name: Literal["sigmoid", "tanh"]

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        path, arithmetic = node.path, node.policy.forward
        y = sums(f"{path}:sums", node, arithmetic, x.channels)
        if arithmetic == "float32":
            op = Op(f"{self.name}_f32", path, (y, tape.operands.floats(x, path)))
        else:
            op = Op(f"{self.name}_s32", path, (y, x))
        tape.ops.append(op)
        tape.taped.append(Taped(node, x, y))
        tape.needed.add(y)
        return tape.made(node, y)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        error = back.sums(error, taped.node.path)
        places = (error, back.tape.kept(taped.y))
        back.ops.append(Op(f"{self.name}_back", taped.node.path, places))
        return error


RELU6, SIGMOID, TANH = _ReLU6(), _Squash("sigmoid"), _Squash("tanh")
