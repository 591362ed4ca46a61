"""Losses: integer or float as the layer that made the output."""

from __future__ import annotations

from math import floor

import numpy as np

from .. import nn
from ..formats import Float32
from .context import Backward
from .ir import ACCUMULATOR, LABELS, Op, Tensor
from .operands import LOGITS, convert


def lower_loss(back: Backward, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """The error of the output, what the caller compares it with, and the loss; `shape` is that of
    the output as the caller has it."""
    loss, value = back.loss, Tensor("loss", (), "scratch", Float32())
    if isinstance(loss, nn.MSELoss):
        targets = Tensor("targets", shape, "wire", Float32(), rows=True)
        targets.space, targets.slot = "io", 1
        targets.channels = back.tape.output.channels
        return _mse(back, targets, value), targets, value
    labels = Tensor("labels", (), "wire", None, rows=True, space="io", slot=1, numbers=LABELS)
    assert isinstance(loss, nn.CrossEntropyLoss)
    lowered = _cross_entropy if loss.is_plain else _weighted
    return lowered(back, loss, labels, value), labels, value


def _in_floats(back: Backward) -> bool:
    last = back.tape.last_maker
    return last is None or last.policy.forward == "float32"


def _output(back: Backward, name: str) -> Tensor:
    """The output as the loss reads it: in float32, or in 16 bits with one scale."""
    z = back.tape.output
    if _in_floats(back):
        read = back.operands.floats(z, "loss")
    else:
        read = Tensor(name, z.shape, "scratch", LOGITS, rows=True, channels=z.channels)
        back.ops.append(convert(z, read, "loss"))
    if z.channels and isinstance(back.loss, nn.CrossEntropyLoss):  # classes in their order
        return back.operands.transposed(read, 0, "loss")
    return read


def _error(back: Backward) -> Tensor:
    """Of the output: floats, or sums with one scale."""
    fmt = Float32() if _in_floats(back) else ACCUMULATOR
    error = Tensor("loss:error", back.tape.output.shape, "scratch", fmt, rows=True)
    error.spread = "format" if _in_floats(back) else "tensor"
    if isinstance(back.loss, nn.MSELoss):
        error.channels = back.tape.output.channels
    return error


def _cross_entropy(
    back: Backward, spec: nn.CrossEntropyLoss, labels: Tensor, loss: Tensor
) -> Tensor:
    logits, error = _output(back, "logits"), _error(back)
    kernel = "cross_entropy_f32" if _in_floats(back) else "cross_entropy_s16"
    back.ops.append(Op(kernel, "loss", (error, logits, labels, loss), writes=(0, 3)))
    return error


def _weighted(back: Backward, spec: nn.CrossEntropyLoss, labels: Tensor, loss: Tensor) -> Tensor:
    """With weights of classes, label smoothing or another label that does not count."""
    logits, error, floats = _output(back, "logits"), _error(back), _in_floats(back)
    table = None
    if spec.weight is not None:
        fmt = Float32() if floats else LOGITS
        table = back.tape.constant("loss.weight", np.array(spec.weight, np.float32), fmt)
    shares = (1.0 - spec.label_smoothing, spec.label_smoothing / logits.size)
    params: dict[int, int | float] = {2: spec.ignore_index % 2**32}
    if floats:
        kernel = "weighted_cross_entropy_f32"
        params |= {i: _normal(share) for i, share in enumerate(shares)}
    else:
        kernel = "weighted_cross_entropy_s16"
        params |= {i: floor(share * 2.0**30 + 0.5) for i, share in enumerate(shares)}
    places = (error, logits, labels, loss, table)
    back.ops.append(Op(kernel, "loss", places, params, writes=(0, 3)))
    return error


def _normal(share: float) -> float:
    """As a float32; below the normal numbers it is 0."""
    narrow = np.float32(share)
    return float(narrow) if narrow >= np.finfo(np.float32).tiny else 0.0


def _mse(back: Backward, targets: Tensor, loss: Tensor) -> Tensor:
    output, error = _output(back, "output as int16"), _error(back)
    kernel = "mse_f32"
    if not _in_floats(back):
        kernel = "mse_s16"
        codes = Tensor("targets as int16", targets.shape, "scratch", LOGITS, rows=True)
        codes.channels = targets.channels
        back.ops.append(convert(targets, codes, "loss"))
        targets = codes
    back.ops.append(Op(kernel, "loss", (error, output, targets, loss), writes=(0, 3)))
    return error
