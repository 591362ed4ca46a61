"""Linear: y = x W^T + b, dX = e W, dW = e^T x."""

from __future__ import annotations

from math import prod

from .. import nn
from ..formats import Float32
from .context import Backward
from .headroom import largest, prove
from .ir import Op, Tensor
from .operands import (
    BY_COLUMN,
    accumulator,
    by_matrix_row,
    folded_extra,
    per_tensor,
    signed_bits,
    weight_scales,
)
from .tape import Tape, Taped
from .trace import Node
from .update import Sums

FORWARD, BACK = 0, 1
FOLDED_B = 2


class _Linear:
    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        layer = node.layer
        assert isinstance(layer, nn.Linear)
        wire = tape.as_wire(x, node.in_shape)
        names = ("weight", "bias") if layer.bias else ("weight",)
        parameters = {name: tape.parameter(node, name) for name in names}
        weight, bias = parameters["weight"], parameters.get("bias")
        product = _product_s32 if node.policy.forward == "sym" else _product_f32
        op = product(tape, node, wire, weight, bias)
        op.macs = _macs(node)
        tape.ops.append(op)
        y = op.used[0]
        tape.taped.append(Taped(node, wire, y, parameters))
        return tape.made(node, y)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """The error is propagated before the weights are updated."""
        node, layer = taped.node, taped.node.layer
        assert isinstance(layer, nn.Linear)
        stored = back.stored(taped, error)
        dx = _propagate(back, taped, stored) if deeper else error
        if taped.learns:
            sums = Sums(layer.out_features, layer.in_features, _positions(node))
            for p, x in (
                (taped.parameters["weight"], taped.x),
                (taped.parameters.get("bias"), None),
            ):
                if p is not None:
                    back.gradients.lower(back.tape, back.ops, node, p, stored, x, sums)
        return dx


LINEAR = _Linear()


def _positions(node: Node) -> int:
    return prod(node.out_shape[:-1])


def _macs(node: Node) -> int:
    return node.in_shape[-1] * prod(node.out_shape)


def _product_f32(tape: Tape, node: Node, x: Tensor, weight: Tensor, bias: Tensor | None) -> Op:
    path, make = node.path, tape.operands
    y = Tensor(f"{path}:sums", node.out_shape, "scratch", Float32(), rows=True)
    b = None if bias is None else make.floats(bias, path)
    places = (y, make.floats(x, path), make.floats(weight, path), b, None)
    return Op("product_f32", path, places, {0: FORWARD, 3: _positions(node)})


def _product_s32(tape: Tape, node: Node, x: Tensor, weight: Tensor, bias: Tensor | None) -> Op:
    path, make = node.path, tape.operands
    terms, positions, outputs = node.in_shape[-1], _positions(node), node.out_shape[-1]
    widen_a, widen_b = not by_matrix_row(x, terms), weight_scales(weight) in ("in", "mixed")
    a = make.source(x, path) if widen_a else make.codes(x, path)
    b = make.source(weight, path) if widen_b else make.codes(weight, path)
    biased = bias is not None
    if widen_a:
        a = make.widened(a, path, extra=folded_extra(terms, a, b, biased), columns=terms)
    if widen_b:
        b = make.widened(b, path, extra=folded_extra(terms, b, a, biased), columns=terms)
    assert a.fmt is not None
    assert b.fmt is not None
    by_column = biased or b.layout(1).n_scales > 1
    y = accumulator(f"{path}:sums", node.out_shape, not per_tensor(a.fmt), by_column, positions)
    proof = prove(terms, largest(signed_bits(a.fmt)), largest(signed_bits(b.fmt)), bias=biased)
    scratch = Tensor(f"{path} seeds", (5 * outputs,), "scratch") if biased else None
    params: dict[int, int | float] = {0: FORWARD, 1: proof.chunk, 2: proof.shift, 3: positions}
    op = Op("product_s32", path, (y, a, b, bias, None, scratch), params, writes=(0, 5))
    op.note = str(proof)
    return op


def _propagate(back: Backward, taped: Taped, error: Tensor) -> Tensor:
    """dX = e W."""
    node, weight = taped.node, taped.parameters["weight"]
    path, positions, name = node.path, _positions(node), f"{node.path}:dX"
    if node.policy.prop == "float32":
        dx = Tensor(name, node.in_shape, "scratch", Float32(), rows=True)
        e, w = back.operands.floats(error, path), back.operands.floats(weight, path)
        op = Op("product_f32", path, (dx, e, w, None, None), {0: BACK, 3: positions})
    else:
        a, b, flags = _factors(back, node, error, weight)
        assert a.fmt is not None
        assert b.fmt is not None
        by_column = not flags and b.layout(1).n_scales > 1
        dx = accumulator(name, node.in_shape, not per_tensor(a.fmt), by_column, positions)
        outputs = node.out_shape[-1]
        proof = prove(outputs, largest(signed_bits(a.fmt)), largest(signed_bits(b.fmt)))
        params: dict[int, int | float] = {0: BACK, 1: proof.chunk, 2: proof.shift, 3: positions}
        op = Op("product_s32", path, (dx, a, b, None, None, None), params, flags)
        op.note = str(proof)
    op.macs = _macs(node)
    back.ops.append(op)
    return dx


def _factors(
    back: Backward, node: Node, error: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, int]:
    """Operands of dX: scales that lie along the outputs are folded in."""
    make, path, terms = back.operands, node.path, node.out_shape[-1]
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
        b = make.widened(b, path, extra=folded_extra(terms, b, a), columns=node.in_shape[-1])
    return a, b, 0
