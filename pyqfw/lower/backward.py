"""The loss and the backward of a tape: one rule for each kind of layer."""

from __future__ import annotations

from math import prod

from .. import nn
from ..formats import Float32
from .forward import BACK, FOLDED_B, Tape, Taped
from .headroom import largest, prove
from .ir import ACCUMULATOR, Op, Tensor
from .operands import (
    BY_COLUMN,
    LOGITS,
    accumulator,
    by_matrix_row,
    convert,
    folded_extra,
    is_plain,
    per_tensor,
    signed_bits,
    store,
    weight_scales,
)
from .update import Gradients

ABOVE_ZERO, INSIDE = 0, 1


def backward(tape: Tape, gradients: Gradients) -> tuple[list[Op], Tensor, Tensor]:
    """The operations, the labels and the loss."""
    ops: list[Op] = []
    tape.operands.emit = ops.append
    labels = Tensor("labels", (), "wire", None, rows=True, space="io", slot=1)
    loss = Tensor("loss", (), "scratch", Float32())
    error: Tensor = _cross_entropy(tape, ops, labels, loss)
    deepest = min(i for i, t in enumerate(tape.taped) if t.kind == "linear" and t.node.learns)
    for i in range(len(tape.taped) - 1, deepest - 1, -1):
        taped = tape.taped[i]
        if taped.kind == "relu":
            _mask(tape, ops, error, tape.kept(taped.y), taped.node.path)
        elif taped.kind == "quant":
            if not isinstance(taped.y.fmt, Float32) and not isinstance(taped.y.fmt.range, str):  # type: ignore[union-attr]
                ops.append(Op("mask", taped.node.path, (error, taped.y), {0: INSIDE}))
        else:
            stored = _stored_error(ops, taped, error)
            if i > deepest:
                error = _propagate(tape, ops, taped, stored)
            gradients.lower(tape, ops, taped, stored)
    return ops, labels, loss


def _cross_entropy(tape: Tape, ops: list[Op], labels: Tensor, loss: Tensor) -> Tensor:
    """From logits, integer or float as the layer that made them."""
    z = tape.output
    last = [t for t in tape.taped if t.kind == "linear"][-1].node
    if last.policy.forward == "float32":
        logits = tape.operands.floats(z, "loss")
        error = Tensor("loss:error", z.shape, "scratch", Float32(), rows=True)
        ops.append(Op("cross_entropy_f32", "loss", (error, logits, labels, loss), writes=(0, 3)))
        return error
    logits = Tensor("logits", z.shape, "scratch", LOGITS, rows=True)
    ops.append(convert(z, logits, "loss"))
    error = Tensor("loss:error", z.shape, "scratch", ACCUMULATOR, rows=True, spread="tensor")
    ops.append(Op("cross_entropy_s16", "loss", (error, logits, labels, loss), writes=(0, 3)))
    return error


def _mask(tape: Tape, ops: list[Op], error: Tensor, wire: Tensor, path: str) -> None:
    """ReLU passes an error where its stored output is above zero."""
    if not (is_plain(wire) or isinstance(wire.fmt, Float32) or wire.fmt is ACCUMULATOR):
        wire = tape.operands.codes(wire, path)
    maker = next(op for op in reversed(ops) if op.places[0] is error)
    at_hand = not any(wire in op.written for op in ops)  # before the product ran
    if maker.kernel.startswith("product") and maker.places[4] is None and at_hand:
        maker.places = (*maker.places[:4], wire, *maker.places[5:])
    else:
        ops.append(Op("mask", path, (error, wire), {0: ABOVE_ZERO}))


def _stored_error(ops: list[Op], taped: Taped, error: Tensor) -> Tensor:
    """The error of a layer's output in the policy's format."""
    fmt = taped.node.policy.errors
    stored = store(error, taped.node.out_shape, fmt, taped.node.path, "error")
    if isinstance(fmt, Float32) and isinstance(error.fmt, Float32):
        error.role, error.name = "error", stored.name
        return error
    ops.append(convert(error, stored, taped.node.path))
    return stored


def _propagate(tape: Tape, ops: list[Op], taped: Taped, error: Tensor) -> Tensor:
    """dX = e W."""
    node, weight = taped.node, taped.weight
    layer, path = node.layer, node.path
    assert isinstance(layer, nn.Linear)
    assert weight is not None
    positions = prod(node.out_shape) // layer.out_features
    macs = layer.in_features * layer.out_features * positions
    name = f"{path}:dX"
    if node.policy.prop == "float32":
        dx = Tensor(name, node.in_shape, "scratch", Float32(), rows=True)
        e, w = tape.operands.floats(error, path), tape.operands.floats(weight, path)
        op = Op("product_f32", path, (dx, e, w, None, None), {0: BACK, 3: positions}, macs=macs)
        ops.append(op)
        return dx
    a, b, flags = _factors(tape, layer, path, error, weight)
    assert a.fmt is not None
    assert b.fmt is not None
    by_column = not flags and b.layout(1).n_scales > 1
    dx = accumulator(name, node.in_shape, not per_tensor(a.fmt), by_column, positions)
    proof = prove(layer.out_features, largest(signed_bits(a.fmt)), largest(signed_bits(b.fmt)))
    params: dict[int, int | float] = {0: BACK, 1: proof.chunk, 2: proof.shift, 3: positions}
    op = Op("product_s32", path, (dx, a, b, None, None, None), params, flags, macs=macs)
    op.note = str(proof)
    ops.append(op)
    return dx


def _factors(
    tape: Tape, layer: nn.Linear, path: str, error: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, int]:
    """Operands of dX: scales that lie along the outputs are folded in."""
    make, terms = tape.operands, layer.out_features
    scales, by_row = weight_scales(weight), by_matrix_row(error, terms)
    folds = scales == "out"
    a = make.codes(error, path) if by_row and not folds else make.source(error, path)
    b = make.source(weight, path) if scales == "mixed" else make.codes(weight, path)
    extra = folded_extra(terms, a, b)
    if folds:
        rows = by_row and not per_tensor(error.fmt)
        a = make.widened(a, path, by=b, mode=BY_COLUMN, keep_rows=rows, extra=extra, columns=terms)
        return a, b, FOLDED_B
    if not by_row:
        a = make.widened(a, path, extra=extra, columns=terms)
    if scales == "mixed":
        b = make.widened(b, path, extra=folded_extra(terms, b, a), columns=layer.in_features)
    return a, b, 0
