"""LayerNorm and GroupNorm (docs/numerics.md sections 20 and 36), and what BatchNorm shares."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod

from .. import nn
from ..errors import QfwError
from ..formats import Float32, Sym
from .context import Backward
from .headroom import INT32_MAX, largest
from .ir import Op, Tensor
from .operands import (
    MOST_EXTRA,
    Operands,
    accumulator,
    by_matrix_row,
    convert,
    per_tensor,
    signed_bits,
)
from .tape import Tape, Taped
from .trace import Node
from .update import Sums

NORMAL = Sym(16)  # of x^
FRACTION, EPS, DOWN, POSITIONS, GROUPS = range(5)  # params


@dataclass(frozen=True)
class Form:
    """Of a row of the step: columns at positions. Rows are normalised each position by itself or,
    with groups, over the positions, some columns together."""

    columns: int
    positions: int
    groups: int = 0

    @property
    def length(self) -> int:
        """Elements that are normalised together."""
        if not self.groups:
            return self.columns
        return self.positions * self.columns // self.groups


def form_of(node: Node) -> Form:
    layer, shape = node.layer, node.in_shape
    if isinstance(layer, nn.GroupNorm):
        return Form(shape[0], prod(shape[1:]), layer.num_groups)
    assert isinstance(layer, nn.LayerNorm)
    return Form(prod(layer.shape), prod(shape) // prod(layer.shape))


class Normalization:
    """What LayerNorm, GroupNorm and BatchNorm share: each has operations of its own, `kernel`_s32,
    `kernel`_f32 and, for the way back, `kernel`_back_s32 and `kernel`_back_f32."""

    kernel: str

    def params(self, node: Node) -> dict[int, int | float]:
        """Of each of these operations."""
        raise NotImplementedError

    def sums(
        self, tape: Tape, node: Node, x: Tensor, affine: tuple[Tensor | None, ...], name: str
    ) -> Op:
        """The forward in integers; affine: gamma and beta."""
        raise NotImplementedError

    def error_s32(self, back: Backward, taped: Taped, error: Tensor) -> Tensor:
        """The error of the input, in integers."""
        raise NotImplementedError

    def across(self, node: Node) -> Sums:
        """What the gradients of gamma and beta are summed over."""
        raise NotImplementedError

    def made(
        self, tape: Tape, node: Node, x: Tensor, affine: tuple[Tensor | None, ...], name: str
    ) -> Op:
        """The forward in the policy's arithmetic."""
        lowered = self.sums if node.policy.forward == "sym" else self._floats
        return lowered(tape, node, x, affine, name)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """The error is propagated before gamma is updated."""
        node = taped.node
        stored = back.stored(taped, error)
        dx = error
        if deeper:
            lowered = self.error_s32 if node.policy.prop == "sym" else self._error_f32
            dx = lowered(back, taped, stored)
            dx.channels = taped.x.channels
        if taped.learns:
            normal = self._normal(back, taped)
            for name, x in (("weight", normal), ("bias", None)):
                if name in taped.parameters:
                    p, sums = taped.parameters[name], self.across(node)
                    back.gradients.lower(back.tape, back.ops, node, p, stored, x, sums)
        return dx

    def _floats(
        self, tape: Tape, node: Node, x: Tensor, affine: tuple[Tensor | None, ...], name: str
    ) -> Op:
        make, path = tape.operands, node.path
        y = Tensor(name, node.out_shape, "scratch", Float32(), rows=True)
        gamma, beta = (None if t is None else make.floats(t, path) for t in affine)
        places = (y, make.floats(x, path), gamma, beta)
        return Op(f"{self.kernel}_f32", path, places, self.params(node))

    def _normal(self, back: Backward, taped: Taped) -> Tensor | None:
        """x^ again, for the gradient of gamma: nothing is kept from forward but the wire."""
        node = taped.node
        if "weight" not in taped.parameters:
            return None
        sym = node.policy.weight_grad == "sym"
        name = f"{node.path}:normal" + (" sums" if sym else "")
        lowered = self.sums if sym else self._floats
        op = lowered(back.tape, node, taped.x, (None, None), name)
        sums = op.used[0]
        sums.channels = taped.x.channels
        back.ops.append(op)
        if not sym:
            return sums
        normal = Tensor(f"{node.path}:normal", node.out_shape, "scratch", NORMAL, rows=True)
        normal.channels = sums.channels
        back.ops.append(convert(sums, normal, node.path))
        return normal

    def _error_f32(self, back: Backward, taped: Taped, error: Tensor) -> Tensor:
        node, make, path = taped.node, back.operands, taped.node.path
        dx = Tensor(f"{path}:dX", node.in_shape, "scratch", Float32(), rows=True)
        weight = taped.parameters.get("weight")
        gamma = None if weight is None else make.floats(weight, path)
        places = (dx, make.floats(error, path), make.floats(taped.x, path), gamma)
        back.ops.append(Op(f"{self.kernel}_back_f32", path, places, self.params(node)))
        return dx


class _Norm(Normalization):
    kernel = "normalize"

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        form = form_of(node)
        channels = 0
        if form.groups:
            channels = form.columns if len(node.in_shape) > 1 else 0
        elif form.positions == 1:  # gamma and beta can follow any order
            channels = x.channels
        wire = tape.arranged(x, node.in_shape, channels, node.path)
        inner = 0 if form.groups else wire.channels
        parameters = {p.name: tape.parameter(node, p.name, inner) for p in node.layer.parameters()}
        affine = parameters.get("weight"), parameters.get("bias")
        op = self.made(tape, node, wire, affine, f"{node.path}:sums")
        tape.ops.append(op)
        y = op.used[0]
        y.channels = wire.channels
        tape.taped.append(Taped(node, wire, y, parameters))
        return tape.made(node, y)

    def params(self, node: Node) -> dict[int, int | float]:
        form = form_of(node)
        groups = {GROUPS: form.groups} if form.groups else {}
        return {EPS: eps_of(node), POSITIONS: form.positions, **groups}

    def across(self, node: Node) -> Sums:
        form = form_of(node)
        return Sums(form.columns, 1, form.positions, diagonal=True)

    def sums(
        self, tape: Tape, node: Node, x: Tensor, affine: tuple[Tensor | None, ...], name: str
    ) -> Op:
        (weight, bias), form, path = affine, form_of(node), node.path
        codes = _row_codes(tape, node, x)
        gamma = None if weight is None else tape.operands.codes(weight, path)
        most = 1 if gamma is None or gamma.fmt is None else largest(gamma.fmt.bits)
        f = fraction(form.length, most)
        by_column = bias is not None or (gamma is not None and gamma.layout(1).n_scales > 1)
        y = accumulator(name, node.out_shape, False, by_column, form.positions)
        places = (y, codes, gamma, bias, seeds_for(bias, path, form.columns))
        params = {FRACTION: f, **self.params(node)}
        op = Op("normalize_s32", path, places, params, writes=(0, 4))
        op.note = f"{f} bits of fraction"
        return op

    def error_s32(self, back: Backward, taped: Taped, error: Tensor) -> Tensor:
        node, form = taped.node, form_of(taped.node)
        g = _times_gamma(back, taped, _row_codes(back.tape, node, error))
        x = _row_codes(back.tape, node, taped.x)
        assert g.fmt is not None
        positions = 1 if form.groups else form.positions
        dx = accumulator(f"{node.path}:dX", node.in_shape, True, False, positions)
        params = {**back_steps(form.length, g.fmt.bits), **self.params(node)}
        back.ops.append(Op("normalize_back_s32", node.path, (dx, g, x), params))
        return dx


NORM = _Norm()


def eps_of(node: Node) -> float:
    assert isinstance(node.layer, (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d))
    return float(node.layer.eps)


# --- headroom: N elements together, codes of at most A --------------------------------------------


def fraction(n: int, most: int) -> int:
    """F of a forward: bits after the point of x^, for products with codes of at most `most`."""
    root = _ceil_sqrt(n - 1)
    return max(f for f in range(25) if (root * 2**f + 1) * most <= 2**29)


def back_steps(n: int, bits: int) -> dict[int, int | float]:
    """F and k of a backward, g having so many bits."""
    root = _ceil_sqrt(n - 1)
    f = max(f for f in range(6, 17) if root * 2**f + 1 <= 2**25)
    most = 128 * n * _ceil_sqrt(n) * largest(bits)
    return {FRACTION: f, DOWN: max(0, (most - 1).bit_length() - 30)}


def _ceil_sqrt(n: int) -> int:
    return isqrt(n - 1) + 1 if n > 0 else 0


def fits(n: int, bits: int) -> bool:
    """Whether so many codes can be normalised together."""
    return n * largest(bits) <= INT32_MAX


def widest(n: int) -> int:
    """The most bits of which that is true; 1: of none."""
    return max(bits for bits in range(1, 17) if fits(n, bits))


def one_scale(make: Operands, t: Tensor, path: str, n: int, columns: int) -> Tensor:
    """The tensor widened to one scale, with as many bits more as fit."""
    t = make.source(t, path)
    assert t.fmt is not None
    bits = signed_bits(t.fmt)
    extra = [f for f in range(MOST_EXTRA + 1) if bits + f <= 16 and fits(n, bits + f)]
    return make.widened(t, path, extra=max(extra, default=0), columns=columns)


# --- operations -----------------------------------------------------------------------------------


def _row_codes(tape: Tape, node: Node, t: Tensor) -> Tensor:
    """Codes with one scale for what is normalised together, or one in all."""
    form, path = form_of(node), node.path
    alone = not form.groups or form.positions == 1
    if per_tensor(t.fmt) or (alone and by_matrix_row(t, form.columns)):
        codes = tape.operands.codes(t, path)
    else:
        codes = one_scale(tape.operands, t, path, form.length, form.columns)
    assert codes.fmt is not None
    if not fits(form.length, codes.fmt.bits):
        raise QfwError(
            f"layer '{path}', {node.layer}: {form.length} codes of {codes.fmt.bits} bits are too "
            f"many to be normalised together: choose more groups, or {widest(form.length)} bits "
            f"for wires and errors"
        )
    return codes


def seeds_for(bias: Tensor | None, path: str, columns: int) -> Tensor | None:
    """Room for what beta becomes in the forward's integers."""
    return None if bias is None else Tensor(f"{path} seeds", (5 * columns,), "scratch")


def _times_gamma(back: Backward, taped: Taped, error: Tensor) -> Tensor:
    """e gamma, as codes of 16 bits, or as many as fit, with one scale."""
    node, path, weight = taped.node, taped.node.path, taped.parameters.get("weight")
    if weight is None:
        return error
    gamma, form = back.operands.codes(weight, path), form_of(node)
    by_column = gamma.layout(1).n_scales > 1
    name, bits = f"{path}:error times gamma", widest(form.length)
    sums = accumulator(name, node.out_shape, not per_tensor(error.fmt), by_column, form.positions)
    fmt = Sym(bits, container=16)
    g = Tensor(f"{name} as int{bits}", node.out_shape, "scratch", fmt, rows=True)
    g.channels = sums.channels = taped.x.channels
    params: dict[int, int | float] = {POSITIONS: form.positions}
    back.ops += [Op("columns_s32", path, (sums, error, gamma), params), convert(sums, g, path)]
    return g
