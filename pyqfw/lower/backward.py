"""The loss and the backward of a tape."""

from __future__ import annotations

from ..formats import Float32
from .context import Backward
from .ir import ACCUMULATOR, Op, Tensor
from .operands import LOGITS, convert
from .rules import rule_of
from .tape import Tape
from .update import Gradients


def backward(tape: Tape, gradients: Gradients) -> tuple[list[Op], Tensor, Tensor]:
    """The operations, the labels and the loss; nothing below the deepest layer that learns."""
    back = Backward(tape, gradients)
    tape.operands.emit = back.ops.append
    labels = Tensor("labels", (), "wire", None, rows=True, space="io", slot=1)
    loss = Tensor("loss", (), "scratch", Float32())
    error = back.loss_error = _cross_entropy(back, labels, loss)
    deepest = min(i for i, taped in enumerate(tape.taped) if taped.learns)
    for i in range(len(tape.taped) - 1, deepest - 1, -1):
        taped = tape.taped[i]
        error = rule_of(taped.node).backward(back, taped, error, i > deepest)
    return back.ops, labels, loss


def _cross_entropy(back: Backward, labels: Tensor, loss: Tensor) -> Tensor:
    """From logits, integer or float as the layer that made them."""
    tape, ops = back.tape, back.ops
    z, last = tape.output, tape.last_maker
    if last is None or last.policy.forward == "float32":
        logits = tape.operands.floats(z, "loss")
        error = Tensor("loss:error", z.shape, "scratch", Float32(), rows=True)
        ops.append(Op("cross_entropy_f32", "loss", (error, logits, labels, loss), writes=(0, 3)))
        return error
    logits = Tensor("logits", z.shape, "scratch", LOGITS, rows=True)
    ops.append(convert(z, logits, "loss"))
    error = Tensor("loss:error", z.shape, "scratch", ACCUMULATOR, rows=True, spread="tensor")
    ops.append(Op("cross_entropy_s16", "loss", (error, logits, labels, loss), writes=(0, 3)))
    return error
