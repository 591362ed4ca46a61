"""Softmax over the last axis: p = exp(x) / sum exp(x), dx = p (e - sum p e)."""

from __future__ import annotations

from ..formats import Float32
from .context import Backward
from .ir import ACCUMULATOR, Op, Tensor
from .operands import LOGITS, convert, per_tensor, signed_bits
from .tape import Tape, Taped
from .trace import Node

MOST_EXTRA = 7  # F of docs/numerics.md section 14


class _Softmax:
    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        path, columns = node.path, node.in_shape[-1]
        y = _sums(f"{path}:sums", node, node.policy.forward)
        if node.policy.forward == "float32":
            logits, kernel = tape.operands.floats(x, path), "softmax_f32"
        else:
            logits, kernel = (
                Tensor(f"{path} logits", x.shape, "scratch", LOGITS, True),
                "softmax_s16",
            )
            tape.ops.append(convert(x, logits, path))
        tape.ops.append(Op(kernel, path, (y, logits), {0: columns}))
        tape.taped.append(Taped(node, x, y))
        tape.needed.add(id(y))
        return tape.made(node, y)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        node, make = taped.node, back.operands
        path, columns = node.path, node.in_shape[-1]
        stored, p = back.stored(taped, error), back.tape.kept(taped.y)
        dx = _sums(f"{path}:dX", node, node.policy.prop)
        if node.policy.prop == "float32":
            kernel, places = "softmax_back_f32", (make.floats(stored, path), make.floats(p, path))
        else:
            kernel, places = "softmax_back_s32", (_codes(back, stored, path), _codes(back, p, path))
        back.ops.append(Op(kernel, path, (dx, *places), {0: columns}))
        return dx


SOFTMAX = _Softmax()


def _sums(name: str, node: Node, arithmetic: str) -> Tensor:
    if arithmetic == "float32":
        return Tensor(name, node.in_shape, "scratch", Float32(), rows=True)
    return Tensor(name, node.in_shape, "scratch", ACCUMULATOR, rows=True, spread="tensor")


def _codes(back: Backward, t: Tensor, path: str) -> Tensor:
    """Codes with one scale: an accumulator in 16 bits, what has several scales widened."""
    make = back.operands
    if t.fmt is ACCUMULATOR:
        codes = Tensor(f"{t.name} as int16", t.shape, "scratch", LOGITS, rows=True)
        back.ops.append(convert(t, codes, path))
        return codes
    if per_tensor(t.fmt):
        return make.codes(t, path)
    source = make.source(t, path)
    assert source.fmt is not None
    extra = max(0, min(MOST_EXTRA, 16 - signed_bits(source.fmt)))
    return make.widened(source, path, extra=extra)
