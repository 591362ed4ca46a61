"""LayerNorm: docs/numerics.md section 20."""

from __future__ import annotations

from math import isqrt, prod

from .. import nn
from ..formats import Float32, Sym
from .context import Backward
from .headroom import largest
from .ir import Op, Tensor
from .operands import accumulator, by_matrix_row, convert, per_tensor, signed_bits
from .tape import Tape, Taped
from .trace import Node
from .update import Sums

NORMAL = Sym(16)  # of x^ and of an error times gamma
EPS, POSITIONS = 1, 3


class _LayerNorm:
    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        wire = tape.as_wire(x, node.in_shape)
        parameters = {p.name: tape.parameter(node, p.name) for p in node.layer.parameters()}
        weight, bias = parameters.get("weight"), parameters.get("bias")
        if node.policy.forward == "sym":
            op = _normalize_s32(tape, node, wire, weight, bias, f"{node.path}:sums")
        else:
            op = _normalize_f32(tape, node, wire, weight, bias, f"{node.path}:sums")
        tape.ops.append(op)
        y = op.used[0]
        tape.taped.append(Taped(node, wire, y, parameters))
        return tape.made(node, y)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """The error is propagated before gamma is updated."""
        node = taped.node
        stored = back.stored(taped, error)
        dx = error
        if deeper:
            sym = node.policy.prop == "sym"
            dx = _back_s32(back, taped, stored) if sym else _back_f32(back, taped, stored)
        if taped.learns:
            normal = _normal(back, taped)
            sums = Sums(_length(node), 1, _positions(node), diagonal=True)
            for name, x in (("weight", normal), ("bias", None)):
                if name in taped.parameters:
                    p = taped.parameters[name]
                    back.gradients.lower(back.tape, back.ops, node, p, stored, x, sums)
        return dx


LAYER_NORM = _LayerNorm()


def _layer(node: Node) -> nn.LayerNorm:
    assert isinstance(node.layer, nn.LayerNorm)
    return node.layer


def _length(node: Node) -> int:
    return prod(_layer(node).shape)


def _positions(node: Node) -> int:
    return prod(node.in_shape) // _length(node)


def _params(node: Node, **more: int) -> dict[int, int | float]:
    """F and k, eps and positions."""
    names = {"fraction": 0, "down": 2}
    return {
        **{names[name]: value for name, value in more.items()},
        EPS: float(_layer(node).eps),
        POSITIONS: _positions(node),
    }


def fraction(n: int, most: int, at_most: int) -> int:
    """F: bits after the point of x^ in a row of n, for products with codes of at most `most`."""
    root = _ceil_sqrt(n - 1)
    return max(f for f in range(at_most + 1) if (root * 2**f + 1) * most <= 2**29)


def _ceil_sqrt(n: int) -> int:
    return isqrt(n - 1) + 1 if n > 0 else 0


def _row_codes(tape: Tape, node: Node, t: Tensor) -> Tensor:
    """Codes with one scale a normalised row, or one in all."""
    n, path = _length(node), node.path
    if by_matrix_row(t, n):
        return tape.operands.codes(t, path)
    t = tape.operands.source(t, path)
    assert t.fmt is not None
    extra = max(0, min(7, 16 - signed_bits(t.fmt)))
    return tape.operands.widened(t, path, extra=extra, columns=n)


def _normalize_s32(
    tape: Tape, node: Node, x: Tensor, weight: Tensor | None, bias: Tensor | None, name: str
) -> Op:
    n, path = _length(node), node.path
    codes = _row_codes(tape, node, x)
    gamma = None if weight is None else tape.operands.codes(weight, path)
    most = 1 if gamma is None or gamma.fmt is None else largest(gamma.fmt.bits)
    f = fraction(n, most, 24)
    by_column = bias is not None or (gamma is not None and gamma.layout(1).n_scales > 1)
    y = accumulator(name, node.out_shape, False, by_column, _positions(node))
    scratch = Tensor(f"{path} seeds", (5 * n,), "scratch") if bias is not None else None
    places = (y, codes, gamma, bias, scratch)
    op = Op("normalize_s32", path, places, _params(node, fraction=f), writes=(0, 4))
    op.note = f"{f} bits of fraction"
    return op


def _normalize_f32(
    tape: Tape, node: Node, x: Tensor, weight: Tensor | None, bias: Tensor | None, name: str
) -> Op:
    make, path = tape.operands, node.path
    y = Tensor(name, node.out_shape, "scratch", Float32(), rows=True)
    gamma, beta = (None if t is None else make.floats(t, path) for t in (weight, bias))
    return Op("normalize_f32", path, (y, make.floats(x, path), gamma, beta), _params(node))


def _normal(back: Backward, taped: Taped) -> Tensor | None:
    """x^ again, for the gradient of gamma: nothing is kept from forward but the wire."""
    node = taped.node
    if "weight" not in taped.parameters:
        return None
    name = f"{node.path}:normal"
    if node.policy.weight_grad == "float32":
        op = _normalize_f32(back.tape, node, taped.x, None, None, name)
        back.ops.append(op)
        return op.used[0]
    op = _normalize_s32(back.tape, node, taped.x, None, None, f"{name} sums")
    normal = Tensor(name, node.out_shape, "scratch", NORMAL, rows=True)
    back.ops += [op, convert(op.used[0], normal, node.path)]
    return normal


def _back_f32(back: Backward, taped: Taped, error: Tensor) -> Tensor:
    node, make, path = taped.node, back.operands, taped.node.path
    dx = Tensor(f"{path}:dX", node.in_shape, "scratch", Float32(), rows=True)
    weight = taped.parameters.get("weight")
    gamma = None if weight is None else make.floats(weight, path)
    places = (dx, make.floats(error, path), make.floats(taped.x, path), gamma)
    back.ops.append(Op("normalize_back_f32", path, places, _params(node)))
    return dx


def _back_s32(back: Backward, taped: Taped, error: Tensor) -> Tensor:
    node, n = taped.node, _length(taped.node)
    g = _times_gamma(back, taped, _row_codes(back.tape, node, error))
    x = _row_codes(back.tape, node, taped.x)
    assert g.fmt is not None
    f = fraction(n, 1, 16)
    most = 128 * n * _ceil_sqrt(n) * largest(g.fmt.bits)
    down = max(0, (most - 1).bit_length() - 30)
    dx = accumulator(f"{node.path}:dX", node.in_shape, True, False, _positions(node))
    params = _params(node, fraction=f, down=down)
    back.ops.append(Op("normalize_back_s32", node.path, (dx, g, x), params))
    return dx


def _times_gamma(back: Backward, taped: Taped, error: Tensor) -> Tensor:
    """e gamma, as 16-bit codes with one scale."""
    node, path, weight = taped.node, taped.node.path, taped.parameters.get("weight")
    if weight is None:
        return error
    gamma = back.operands.codes(weight, path)
    positions, by_column = _positions(node), gamma.layout(1).n_scales > 1
    name = f"{path}:error times gamma"
    sums = accumulator(name, node.out_shape, not per_tensor(error.fmt), by_column, positions)
    g = Tensor(f"{name} as int16", node.out_shape, "scratch", NORMAL, rows=True)
    params: dict[int, int | float] = {POSITIONS: positions}
    back.ops += [Op("columns_s32", path, (sums, error, gamma), params), convert(sums, g, path)]
    return g
