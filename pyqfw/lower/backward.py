"""The loss and the backward of a tape."""

from __future__ import annotations

from .. import nn
from .context import Backward
from .ir import Op, Tensor
from .losses import lower_loss
from .rules import rule_of
from .tape import Tape
from .update import Gradients


def backward(tape: Tape, gradients: Gradients, loss: nn.Loss) -> tuple[list[Op], Tensor, Tensor]:
    """The operations, the labels and the loss; nothing below the deepest layer that learns."""
    back = Backward(tape, gradients)
    tape.operands.emit = back.ops.append
    error, labels, value = lower_loss(back, loss)
    back.loss_error = error
    deepest = min(i for i, taped in enumerate(tape.taped) if taped.learns)
    for i in range(len(tape.taped) - 1, deepest - 1, -1):
        taped = tape.taped[i]
        error = rule_of(taped.node).backward(back, taped, error, i > deepest)
    return back.ops, labels, value
