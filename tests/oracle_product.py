"""The second opinion on products: docs/numerics.md sections 12 to 14 and 16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import oracle as o
from oracle_tensor import (
    FLT_MAX,
    FLT_MIN,
    Acc,
    Array,
    Tensor,
    divided,
    encode,
    is_float,
    quiet,
    rescaled,
)

# ---- scales that meet ----------------------------------------------------------------------------


def mul(a: Array, b: Array) -> Array:
    """a * b in float32, clamped to what a scale may be."""
    with quiet():
        return np.clip(np.multiply(a, b, dtype=np.float32), FLT_MIN, FLT_MAX)


def quot(a: Array, b: Array) -> Array:
    """a / b in float32, clamped to what a scale may be."""
    with quiet():
        return np.clip(np.divide(a, b, dtype=np.float32), FLT_MIN, FLT_MAX)


def lift(s: Array, h: Array | int) -> Array:
    """s * 2^h, clamped to what a scale may be; exact in float64."""
    wide = np.ldexp(np.asarray(s, np.float64), h)
    return np.clip(wide, float(FLT_MIN), float(FLT_MAX)).astype(np.float32)


# ---- products ------------------------------------------------------------------------------------


def headroom(k: int, a: int, b: int, bias: bool) -> tuple[int, int]:
    """(chunk, h) of a sum of k products, the bounds being a and b; (0, 0) if it is an int32."""
    limit = (2**30 if bias else 2**31) - 1
    if k * a * b <= limit:
        return 0, 0
    h = 0
    while -(-k * a * b // 2**h) > limit:
        h += 1
    return o.INT32_MAX // (a * b), h


@dataclass(frozen=True)
class Operand:
    """Integers of so many bits with a scale for each element, and where that has no range yet."""

    m: Array
    scale: Array
    bits: int
    rangeless: Array

    @property
    def bound(self) -> int:
        """Q of the bits, of 16 at most: 17 are yet to be widened."""
        return o.top_code(min(self.bits, 16))

    @property
    def T(self) -> Operand:  # noqa: N802  # as numpy has it
        """Transposed."""
        return Operand(self.m.T, self.scale.T, self.bits, self.rangeless.T)


def product(a: Operand, b: Operand, k: int, bias: bool = False) -> Acc:
    """acc(i, j) and sigma(i, j): a [i, k] has a scale for each i, b [k, j] for each j.

    k is the longest reduction. Whole sums are below 2^15 * 2^15 * 2^32 and fit int64.
    """
    assert (a.scale == a.scale[:, :1]).all()
    assert (b.scale == b.scale[:1]).all()
    return product_at(a, b, k, mul(a.scale[:, :1], b.scale[:1]), bias)


def product_at(a: Operand, b: Operand, k: int, sigma: Array, bias: bool = False) -> Acc:
    """acc(i, j) at a scale that is known."""
    assert np.abs(a.m).max(initial=0) <= a.bound
    assert np.abs(b.m).max(initial=0) <= b.bound
    assert a.m.shape[1] <= k
    total = a.m @ b.m
    chunk, h = headroom(k, a.bound, b.bound, bias)
    assert chunk * a.bound * b.bound <= o.INT32_MAX
    acc = divided(total, h, "half_away")
    assert np.abs(acc).max(initial=0) < 2 ** (30 if bias else 31)
    one = a.scale[0, 0] if (a.scale == a.scale[0, 0]).all() else None
    return Acc(acc, np.broadcast_to(lift(sigma, h), acc.shape), one)


def seed_of(beta: Fraction, sigma: Fraction) -> tuple[int, int]:
    """(seed, g) of a bias at the scale of its accumulator."""

    def seed(g: int) -> int:
        return o.half_away(beta / (sigma * 2**g))

    g = next((g for g in range(32) if abs(seed(g)) < 2**30), 31)
    return max(1 - 2**30, min(2**30 - 1, seed(g))), g


def add_bias(acc: Acc, bias: Tensor) -> Acc:
    """(acc >> g) + seed at lift(sigma, g), for each row and column."""
    values, sigma = acc.pairs()
    if is_float(bias.format):
        beta = [Fraction(float(v)) for v in bias.codes]
    else:
        m, s = bias.pairs()
        beta = [int(c) * Fraction(float(t)) for c, t in zip(m, s, strict=True)]
    seeds, shifts = np.zeros_like(values), np.zeros_like(values)
    for j in range(values.shape[1]):
        known = {s: seed_of(beta[j], Fraction(s)) for s in set(sigma[:, j].tolist())}
        seeds[:, j], shifts[:, j] = zip(*(known[s] for s in sigma[:, j].tolist()), strict=True)
    return Acc((values >> shifts) + seeds, lift(sigma, shifts), acc.incoming)


def float_product(a: Array, b: Array, bias: Array | None = None) -> Array:
    """Sums from +0 in ascending k, each product and each sum rounded, then the bias."""
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(under="ignore"):
        for k in range(a.shape[1]):
            acc = acc + a[:, k, None] * b[k]
        return acc if bias is None else acc + bias


# ---- operands ------------------------------------------------------------------------------------


class Sym12:
    """What Float32 is quantized to for a product: Sym(12)."""

    bits, asymmetric, axis, group = 12, False, None, None
    scale, pow2, range, rounding, container = "float", False, "dynamic", "half_away", "packed"


def varies(t: Tensor) -> tuple[bool, bool]:
    """Of a matrix: has the format a scale for each row, has it several along a row?

    Groups and rows are those of the shape that the tensor was encoded in.
    """
    f, columns = t.format, t.shape[1]
    if is_float(f) or (f.axis is None and f.group is None):
        return False, False
    if f.group is not None:
        whole = int(np.prod(t.origin[1:])) == columns
        return True, not whole or f.group < columns
    if f.axis == "row":
        return True, t.origin[-1] != columns
    k = range(len(t.origin))[f.axis]
    return k == 0, k > 0


def operand(t: Tensor) -> Operand:
    """A stored tensor as integers: Float32 quantized, a zero point removed (F = 0 or -1)."""
    if is_float(t.format):
        t = encode(t, Sym12())
    m, s = t.pairs()
    if not t.format.asymmetric:
        return Operand(m, s, t.format.bits, t.rangeless()[t.index])
    op = Operand(m, s, t.format.bits + 1, t.rangeless()[t.index])
    return widen(op, min(0, 16 - op.bits), t.index)


def raw_operand(t: Tensor) -> Operand:
    """A stored tensor that is about to be widened: its zero point goes with that one rounding."""
    if is_float(t.format) or not t.format.asymmetric:
        return operand(t)
    return Operand(*t.pairs(), t.format.bits + 1, t.rangeless()[t.index])


def widen(op: Operand, f: int, runs: Array | None = None, fold: Operand | None = None) -> Operand:
    """F more bits and fewer scales: one for each of the runs, or one in all.

    `fold` has a scale for each element, which is multiplied in.
    """
    sigma = op.scale if fold is None else mul(op.scale, fold.scale)
    counts = ~op.rangeless if fold is None else ~(op.rangeless | fold.rangeless)
    index = np.zeros(op.m.shape, np.int64) if runs is None else runs
    top = np.zeros(int(index.max(initial=0)) + 1, np.float32)
    np.maximum.at(top, index[counts], sigma[counts])
    s_out = np.where(top > 0, lift(np.where(top > 0, top, np.float32(1)), -f), np.float32(1))[index]
    bits = op.bits + f
    code = rescaled(op.m, sigma, s_out, bits, "half_away", np.zeros_like(op.m))
    q = o.top_code(bits)
    used = np.zeros(top.shape, bool)
    used[index[code != 0]] = True
    return Operand(np.clip(code, -q, q), s_out, bits, (s_out == 1) & ~used[index])


def spare_bits(bits: int, fits: Callable[[int], bool]) -> int:
    """F: the largest of 0..7 with at most 16 bits whose bound fits, 0 if none (17 bits: -1)."""
    if bits > 16:
        return 16 - bits
    wide = [f for f in range(8) if bits + f <= 16 and fits(o.top_code(bits + f))]
    return max(wide, default=0)


def free_bits(bits: int, k: int, other: int, bias: bool = False) -> int:
    """F for a product of this length with the other operand's bound."""
    return spare_bits(bits, lambda q: headroom(k, q, other, bias)[1] == 0)


# ---- the three products and the sum of a Linear layer, in integers -------------------------------


def forward(wire: Tensor, weight: Tensor, bias: Tensor | None) -> Acc:
    """wire [row, input] times weight [output, input] transposed."""
    k, biased = weight.shape[1], bias is not None
    a, b = _along(wire, 1), _along(weight, 1)
    if varies(wire)[1]:
        a = widen(a, free_bits(a.bits, k, b.bound, biased))
    if varies(weight)[1]:
        b = widen(b, free_bits(b.bits, k, a.bound, biased))
    acc = product(a, b.T, k, biased)
    return acc if bias is None else add_bias(acc, bias)


def propagated(error: Tensor, weight: Tensor) -> Acc:
    """dX: error [row, output] times weight [output, input]."""
    k = weight.shape[0]
    by_output, by_input = varies(weight)
    fold = by_output and not by_input
    inside = varies(error)[1]
    a = raw_operand(error) if fold or inside else operand(error)
    b = raw_operand(weight) if by_output and by_input else operand(weight)
    if fold:
        rows = np.arange(a.m.shape[0])[:, None] + np.zeros_like(a.m)
        runs = rows if varies(error)[0] and not inside else None
        a = widen(a, free_bits(a.bits, k, b.bound), runs, _spread(b, a, axis=0))
        return product_at(a, b, k, a.scale[:, :1])
    if inside:
        a = widen(a, free_bits(a.bits, k, b.bound))
    if by_output:
        b = widen(b, free_bits(b.bits, k, a.bound))
    return product(a, b, k)


def weight_gradient(error: Tensor, wire: Tensor, batch: int) -> Acc:
    """dW: error [row, output] transposed times wire [row, input]."""
    by_row, by_input = varies(wire)
    fold = by_row and not by_input
    inside = varies(error)[0]
    a = raw_operand(error) if fold or inside else operand(error)
    b = raw_operand(wire) if by_row and by_input else operand(wire)
    if fold:
        a = widen(a, free_bits(a.bits, batch, b.bound), None, _spread(b, a, axis=1))
        return product_at(a.T, b, batch, a.scale.T[:, :1])
    if inside:
        a = widen(a, free_bits(a.bits, batch, b.bound))
    if by_row:
        b = widen(b, free_bits(b.bits, batch, a.bound))
    return product(a.T, b, batch)


def bias_gradient(error: Tensor, batch: int) -> Acc:
    """The sum over the rows of the error's codes."""
    if varies(error)[0]:
        a = raw_operand(error)
        a = widen(a, spare_bits(a.bits, lambda q: batch * q < 2**31))
    else:
        a = operand(error)
    assert batch * a.bound < 2**31
    return Acc(a.m.sum(axis=0), a.scale[0].copy())


def _along(t: Tensor, axis: int) -> Operand:
    """An operand whose reduction runs along this axis, not yet widened."""
    return raw_operand(t) if varies(t)[axis] else operand(t)


def _spread(b: Operand, a: Operand, axis: int) -> Operand:
    """The scale of b's outputs (axis 0) or rows (axis 1) for each element of a [row, output]."""
    column = replace(b, m=b.m[:, :1], scale=b.scale[:, :1], rangeless=b.rangeless[:, :1])
    column = column.T if axis == 0 else column
    shape = a.m.shape
    return Operand(
        np.broadcast_to(column.m, shape),
        np.broadcast_to(column.scale, shape),
        b.bits,
        np.broadcast_to(column.rangeless, shape),
    )
