"""Softmax over the last axis: p = exp(x) / sum exp(x), dx = p (e - sum p e)."""

from __future__ import annotations

from ..formats import Float32
from .context import Backward
from .ir import ACCUMULATOR, Op, Tensor
from .operands import LOGITS, convert
from .tape import Tape, Taped
from .trace import Node


class _Softmax:
    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        path, columns = node.path, node.in_shape[-1]
        if len(node.in_shape) > 1 and x.channels:
            x = tape.arranged(x, node.in_shape, 0, path)
        y = sums(f"{path}:sums", node, node.policy.forward, x.channels)
        if node.policy.forward == "float32":
            logits, kernel = tape.operands.floats(x, path), "softmax_f32"
        else:
            logits, kernel = (
                Tensor(f"{path} logits", x.shape, "scratch", LOGITS, True),
                "softmax_s16",
            )
            logits.channels = x.channels
            tape.ops.append(convert(x, logits, path))
        tape.ops.append(Op(kernel, path, (y, logits), {0: columns}))
        tape.taped.append(Taped(node, x, y))
        tape.needed.add(y)
        return tape.made(node, y)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        node, make = taped.node, back.operands
        path, columns = node.path, node.in_shape[-1]
        stored, p = back.stored(taped, error), back.tape.kept(taped.y)
        dx = sums(f"{path}:dX", node, node.policy.prop, taped.x.channels)
        if node.policy.prop == "float32":
            kernel, places = "softmax_back_f32", (make.floats(stored, path), make.floats(p, path))
        else:
            kernel, places = "softmax_back_s32", (_codes(back, stored, path), _codes(back, p, path))
        back.ops.append(Op(kernel, path, (dx, *places), {0: columns}))
        return dx


SOFTMAX = _Softmax()


def sums(name: str, node: Node, arithmetic: str, channels: int) -> Tensor:
    """What a layer makes that is no product: floats, or int32 with one scale."""
    t = Tensor(name, node.in_shape, "scratch", Float32(), rows=True, channels=channels)
    if arithmetic != "float32":
        t.fmt, t.spread = ACCUMULATOR, "tensor"
    return t


def _codes(back: Backward, t: Tensor, path: str) -> Tensor:
    """Codes with one scale: an accumulator in 16 bits, what has several scales widened."""
    make = back.operands
    if t.fmt is ACCUMULATOR:
        codes = Tensor(f"{t.name} as int16", t.shape, "scratch", LOGITS, rows=True)
        back.ops.append(convert(t, codes, path))
        return codes
    return make.single(t, path)
