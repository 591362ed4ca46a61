"""The second opinion on BatchNorm and GroupNorm: docs/numerics.md section 36.

Data are [rows, positions, channels], or [rows, channels] for BatchNorm, whose rows are all there
are. Integers are Python's, floats numpy's float32, one operation at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import oracle as o
from oracle_norm import (
    ceil_sqrt,
    divided_by,
    float_back,
    float_normal,
    float_normalized,
    folded,
    fraction,
    normal,
)
from oracle_product import (
    Operand,
    add_bias,
    headroom,
    lift,
    mul,
    operand,
    quot,
    raw_operand,
    varies,
    widen,
)
from oracle_tensor import Acc, Array, Tensor, divided, encode, products, quiet

F32 = np.float32
TINY = F32(2.0**-126)


class SymOf:
    """Sym(bits)."""

    asymmetric, axis, group = False, None, None
    scale, pow2, range, rounding, container = "float", False, "dynamic", "half_away", "packed"

    def __init__(self, bits: int) -> None:
        self.bits = bits


class Float32:
    """The format of floats."""

    axis, group = None, None


def fits(n: int, bits: int) -> bool:
    """Can so many codes be normalised together?"""
    return n * o.top_code(bits) <= 2**31 - 1


def to_one_scale(t: Tensor, n: int) -> Operand:
    """Several scales widened to one, with the most bits more that fit n of them."""
    a = raw_operand(t)
    if a.bits > 16:
        return widen(a, 16 - a.bits)
    return widen(
        a, max((f for f in range(8) if a.bits + f <= 16 and fits(n, a.bits + f)), default=0)
    )


def batch_operand(t: Tensor, n: int) -> Operand:
    """A matrix with one scale."""
    return to_one_scale(t, n) if any(varies(t)) else operand(t)


def group_operand(t: Tensor, n: int, positions: int) -> Operand:
    """One scale or, of samples at one position, one for each row."""
    by_row, along = varies(t)
    return to_one_scale(t, n) if along or (by_row and positions > 1) else operand(t)


def back_fraction(n: int) -> int:
    return max(f for f in range(6, 17) if ceil_sqrt(n - 1) * 2**f + 1 <= 2**25)


def back_shift(n: int, bound: int) -> int:
    return next(k for k in range(32) if 128 * n * ceil_sqrt(n) * bound <= 2 ** (30 + k))


def projected(
    m: list[int], g: list[int], s: Array, eps: float, k: int, f: int
) -> tuple[list[int], int, int]:
    """half_away(y / 2^k) of a row, and rho and j."""
    n = len(m)
    h, rho, j = normal(m, s, eps, f)
    along = o.half_away(Fraction(sum(a * b for a, b in zip(g, h, strict=True)), 2 ** (f - 6)))
    total = sum(g)
    y = [
        64 * (n * a - total) - o.half_away(Fraction(b * along, 2**f))
        for a, b in zip(g, h, strict=True)
    ]
    assert abs(along) < 2**38
    assert max(abs(b * along) for b in h) < 2**63
    out = [o.half_away(Fraction(v, 2**k)) for v in y]
    assert max(map(abs, out)) <= 2**30
    return out, rho, j


# ---- BatchNorm in a step -------------------------------------------------------------------------


def signs(v: Array) -> Array:
    return np.sign(v).astype(np.int64)


def sizes(v: Array) -> Array:
    """|v| as a factor of a scale."""
    return np.where(v == 0, F32(1), np.abs(v)).astype(F32)


def batch_normalized(
    x: Operand, eps: float, gamma: Array | None, beta: Tensor | None, most: int
) -> Acc:
    """acc [rows, channels]; `most`: the rows of the compiled batch."""
    f, s = fraction(most, 1, 24), x.scale[0, 0]
    h = np.array([normal(column, s, eps, f)[0] for column in x.m.T.tolist()]).T
    sigma = np.full(h.shape, 2.0**-f, F32)
    if gamma is not None:
        h, sigma = signs(gamma) * h, mul(sigma, sizes(gamma)[None])
    acc = Acc(h, sigma, F32(1))
    return acc if beta is None else add_bias(acc, beta)


def batch_back(e: Operand, x: Operand, eps: float, gamma: Array | None, most: int) -> Acc:
    """The accumulators of dx, with a scale a channel."""
    f, k = back_fraction(most), back_shift(most, e.bound)
    s, s_e = x.scale[0, 0], e.scale[0, 0]
    columns, scales = [], []
    for m, g in zip(x.m.T.tolist(), e.m.T.tolist(), strict=True):
        out, rho, j = projected(m, g, s, eps, k, f)
        columns.append(out)
        scales.append(lift(mul(quot(s_e, s), F32(rho)), k - 68 + j))
    values, sigma = np.array(columns).T, np.array(scales, F32)
    if gamma is not None:
        values, sigma = signs(gamma) * values, mul(sigma, sizes(gamma))
    return Acc(values, np.broadcast_to(sigma, values.shape), s_e)


def gamma_gradient(error: Tensor, z: Acc, terms: int) -> Acc:
    """Sums over the rows of e z, element by element; terms: the longest such sum."""
    normals = operand(encode(z, SymOf(16)))
    e = raw_operand(error) if varies(error)[0] else operand(error)
    if varies(error)[0]:
        fit = [
            f
            for f in range(8)
            if e.bits + f <= 16
            and not headroom(terms, o.top_code(e.bits + f), normals.bound, False)[1]
        ]
        e = widen(e, 16 - e.bits if e.bits > 16 else max(fit, default=0))
    total = (e.m * normals.m).sum(axis=0)
    h = headroom(terms, e.bound, normals.bound, False)[1]
    return Acc(divided(total, h, "half_away"), lift(mul(e.scale[0], normals.scale[0]), h))


# ---- running statistics --------------------------------------------------------------------------


@dataclass
class Running:
    """The three of a layer."""

    mean: Array
    variance: Array
    tracked: Array

    def follow(self, mean: Array, variance: Array, momentum: float | None) -> None:
        """One batch more."""
        self.tracked = min(self.tracked + F32(1), F32(2**24))
        if momentum is None:
            now = divided_by(F32(1), self.tracked)
            old = F32(1) - now
        else:
            now, old = (v if v >= TINY else F32(0) for v in (F32(momentum), F32(1 - momentum)))
        with quiet():
            self.mean = old * self.mean + now * mean
            self.variance = old * self.variance + now * variance


def fresh(channels: int) -> Running:
    return Running(np.zeros(channels, F32), np.ones(channels, F32), F32(0))


def statistics(x: Operand) -> tuple[Array, Array]:
    """Mean and variance as a sample's, of each channel."""
    n, s = x.m.shape[0], x.scale[0, 0]
    total = x.m.sum(axis=0)
    v = [n * sum(c * c for c in column) - sum(column) ** 2 for column in x.m.T.tolist()]
    mean = divided_by(products(total, np.broadcast_to(s, total.shape)), F32(n))
    with quiet():
        per = divided_by(divided_by(np.array(v, np.int64).astype(F32), F32(n)), F32(n - 1))
        return mean, (per * s) * s


def float_statistics(x: Array) -> tuple[Array, Array]:
    n = F32(x.shape[0])
    mean = divided_by(folded(x.T), n)
    with quiet():
        c = x.T - mean[:, None]
        return mean, divided_by(folded(c * c), n - F32(1))


# ---- statistics that are known -------------------------------------------------------------------


def coefficients(
    running: Running, gamma: Array | None, beta: Array | None, eps: float
) -> tuple[Array, Array]:
    """a and b."""
    one = F32(1) if gamma is None else gamma
    with quiet():
        a = divided_by(one, np.sqrt(running.variance + F32(eps), dtype=F32))
        b = (F32(0) if beta is None else beta) - running.mean * a
    return a, np.asarray(b, F32)


def fold_sums(acc: Acc, a: Array, b: Array | None) -> Acc:
    """Sums [rows, channels], each with its scale; a column, or each element, has its largest."""
    v, sigma = acc.pairs()
    large = np.zeros(v.shape, bool)
    shared = (sigma == sigma[:1]).all()
    for j in range(v.shape[1]):
        groups = [slice(None)] if shared else [slice(i, i + 1) for i in range(v.shape[0])]
        for rows in groups:
            large[rows, j] = np.abs(v[rows, j]).max() >= 2**30
    v, sigma = signs(a) * v, mul(sigma, sizes(a))
    if b is None:
        return Acc(v, sigma, acc.incoming)
    v, sigma = np.where(large, v >> 1, v), np.where(large, lift(sigma, 1), sigma)
    return add_bias(Acc(v, sigma, acc.incoming), Tensor(Float32(), b))


def fold_codes(x: Operand, a: Array, b: Array | None) -> Acc:
    """Codes [rows, channels]."""
    up = 0 if b is None else 30 - x.bits
    v = signs(a) * x.m * 2**up
    sigma = lift(mul(x.scale, sizes(a)[None]), -up)
    acc = Acc(v, sigma, x.scale[0, 0])
    return acc if b is None else add_bias(acc, Tensor(Float32(), b))


def fold_operand(t: Tensor) -> Operand:
    """One scale, or one for each row."""
    return to_one_scale(t, 1) if varies(t)[1] else operand(t)


def float_fold(x: Array, a: Array, b: Array | None) -> Array:
    with quiet():
        return x * a if b is None else x * a + b


# ---- GroupNorm -----------------------------------------------------------------------------------


def to_groups(v: Array, groups: int) -> Array:
    """[rows, positions, channels] as [rows * groups, elements of a group]."""
    r, p, c = v.shape
    return v.reshape(r, p, groups, c // groups).transpose(0, 2, 1, 3).reshape(r * groups, -1)


def from_groups(v: Array, shape: tuple[int, ...], groups: int) -> Array:
    r, p, c = shape
    return v.reshape(r, groups, p, c // groups).transpose(0, 2, 1, 3).reshape(shape)


def group_normalized(
    x: Operand, eps: float, groups: int, gamma: Operand | None, beta: Tensor | None
) -> Acc:
    """acc [rows, positions, channels]; x likewise."""
    shape = x.m.shape
    n = shape[1] * shape[2] // groups
    f = fraction(n, 1 if gamma is None else gamma.bound, 24)
    rows = zip(to_groups(x.m, groups).tolist(), to_groups(x.scale, groups)[:, 0], strict=True)
    h = np.array([normal(m, s, eps, f)[0] for m, s in rows])
    values, sigma = from_groups(h, shape, groups), np.full(shape, 2.0**-f, F32)
    if gamma is not None:
        values, sigma = values * gamma.m.reshape(-1), mul(sigma, gamma.scale.reshape(-1))
    flat = Acc(values.reshape(-1, shape[2]), sigma.reshape(-1, shape[2]), F32(1))
    return (flat if beta is None else add_bias(flat, beta)).reshape(shape)


def group_back(e: Operand, x: Operand, eps: float, groups: int, gamma: Operand | None) -> Acc:
    """The accumulators of dx, with a scale for each row of the step."""
    shape = x.m.shape
    n = shape[1] * shape[2] // groups
    if gamma is not None:
        t = Acc(e.m * gamma.m.reshape(-1), mul(e.scale, gamma.scale.reshape(-1)))
        bits = max(b for b in range(2, 17) if fits(n, b))
        e = operand(encode(t, SymOf(bits)))
    k = back_shift(n, e.bound)
    rows = [to_groups(v, groups) for v in (x.m, e.m)]
    found = [
        projected(m, g, s, eps, k, back_fraction(n))
        for m, g, s in zip(
            *(r.tolist() for r in rows), to_groups(x.scale, groups)[:, 0], strict=True
        )
    ]
    values, sigma = [], np.zeros(shape, F32)
    for i in range(shape[0]):
        some = found[i * groups : (i + 1) * groups]
        most = max(j for _, _, j in some)
        for u, rho, j in some:
            values.append([o.half_away(Fraction(v * rho, 2 ** (31 + most - j))) for v in u])
        sigma[i] = lift(quot(e.scale[i, 0, 0], x.scale[i, 0, 0]), k - 37 + most)
    acc = from_groups(np.array(values), shape, groups)
    assert np.abs(acc).max(initial=0) <= 2**30
    return Acc(acc, sigma, e.scale[0, 0, 0])


def _spread(v: Array | None, shape: tuple[int, ...], groups: int) -> Array | None:
    """A number for each channel, for each element of groups."""
    return None if v is None else to_groups(np.broadcast_to(v, shape), groups)


def float_group_normalized(
    x: Array, eps: float, groups: int, gamma: Array | None, beta: Array | None
) -> Array:
    affine = (_spread(v, x.shape, groups) for v in (gamma, beta))
    return from_groups(float_normalized(to_groups(x, groups), eps, *affine), x.shape, groups)


def float_group_back(e: Array, x: Array, eps: float, groups: int, gamma: Array | None) -> Array:
    rows = (to_groups(v, groups) for v in (e, x))
    return from_groups(float_back(*rows, eps, _spread(gamma, x.shape, groups)), x.shape, groups)


def float_group_normal(x: Array, eps: float, groups: int) -> Array:
    return from_groups(float_normal(to_groups(x, groups), eps)[0], x.shape, groups)


def float_batch_normalized(x: Array, eps: float, gamma: Array | None, beta: Array | None) -> Array:
    columns = (None if v is None else v[:, None] for v in (gamma, beta))
    return float_normalized(x.T, eps, *columns).T


def float_batch_back(e: Array, x: Array, eps: float, gamma: Array | None) -> Array:
    return float_back(e.T, x.T, eps, None if gamma is None else gamma[:, None]).T


def float_gamma_gradient(e: Array, normals: Array) -> Array:
    total = np.zeros(e.shape[1], F32)
    with quiet():
        for e_i, z_i in zip(e, normals, strict=True):
            total = total + e_i * z_i
    return total
