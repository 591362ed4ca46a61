"""The second opinion on LayerNorm: docs/numerics.md section 20.

Matrices have a row for each row that is normalised. Integers are Python's, floats numpy's float32,
one operation at a time.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import oracle as o
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
)
from oracle_product import widen as widened
from oracle_tensor import Acc, Array, Tensor, divided, encode, quiet

F32 = np.float32


class Sym16:
    """Sym(16): of x^, and of an error times gamma."""

    bits, asymmetric, axis, group = 16, False, None, None
    scale, pow2, range, rounding, container = "float", False, "dynamic", "half_away", "packed"


def ceil_sqrt(n: int) -> int:
    return next(r for r in range(isqrt(n), n + 2) if r * r >= n)


def fraction(n: int, most: int, top: int) -> int:
    """F for rows of n and codes of at most `most`."""
    return max(f for f in range(top + 1) if (ceil_sqrt(n - 1) * 2**f + 1) * most <= 2**29)


def rows_of(t: Tensor) -> Operand:
    """A wire or error as an operand with one scale a row."""
    if not varies(t)[1]:
        return operand(t)
    a = raw_operand(t)
    return widened(a, 16 - a.bits if a.bits > 16 else min(7, 16 - a.bits))


def rsqrt(w: int) -> tuple[int, int]:
    """(rho, j): 1 / sqrt(w) is rho 2^(j - 62)."""
    j = 0
    while w * 4 ** (j + 1) < 2**64:
        j += 1
    return min(2**62 // isqrt(w * 4**j), 2**31 - 1), j


def normal(m: list[int], s: np.float32, eps: float, f: int) -> tuple[list[int], int, int]:
    """h of a row, and rho and j."""
    n = len(m)
    total = sum(m)
    v = n * sum(c * c for c in m) - total * total
    e = 1
    if eps:
        per = mul(mul(quot(quot(F32(eps), s), s), F32(n)), F32(n))
        e = max(1, min(2**62, int(Fraction(float(per)))))
    rho, j = rsqrt(v + e)
    h = [o.half_away(Fraction((n * c - total) * rho, 2 ** (62 - j - f))) for c in m]
    assert max(map(abs, h)) <= ceil_sqrt(n - 1) * 2**f + 1
    return h, rho, j


def normalized(wire: Tensor, eps: float, gamma: Tensor | None, beta: Tensor | None) -> Acc:
    """The accumulators of a LayerNorm."""
    x, n = rows_of(wire), wire.shape[1]
    weight = None if gamma is None else operand(gamma)
    f = fraction(n, 1 if weight is None else weight.bound, 24)
    h = np.array(
        [normal(row.tolist(), s[0], eps, f)[0] for row, s in zip(x.m, x.scale, strict=True)]
    )
    unit = np.full(h.shape, 2.0**-f, F32)
    if weight is None:
        acc = Acc(h, unit, F32(1))
    else:
        sigma = mul(unit, weight.scale.reshape(1, n))
        acc = Acc(h * weight.m.reshape(1, n), sigma, F32(1))
    assert np.abs(acc.values).max(initial=0) <= 2**29
    return acc if beta is None else add_bias(acc, beta.reshape((n,)))


def back(error: Tensor, wire: Tensor, eps: float, gamma: Tensor | None) -> Acc:
    """The accumulators of dx, with a scale a row."""
    x, e, n = rows_of(wire), rows_of(error), wire.shape[1]
    if gamma is not None:
        w = operand(gamma)
        t = Acc(e.m * w.m.reshape(1, n), mul(e.scale, w.scale.reshape(1, n)))
        e = operand(encode(t, Sym16()))
    f = fraction(n, 1, 16)
    k = next(k for k in range(32) if 128 * n * ceil_sqrt(n) * e.bound <= 2 ** (30 + k))
    values, scales = [], []
    for m, g, s, s_g in zip(x.m.tolist(), e.m.tolist(), x.scale, e.scale, strict=True):
        h, rho, j = normal(m, s[0], eps, f)
        along = o.half_away(Fraction(sum(a * b for a, b in zip(g, h, strict=True)), 2 ** (f - 6)))
        total = sum(g)
        y = [
            64 * (n * a - total) - o.half_away(Fraction(b * along, 2**f))
            for a, b in zip(g, h, strict=True)
        ]
        values.append([o.half_away(Fraction(v, 2**k)) for v in y])
        assert max(map(abs, values[-1])) < 2**31
        scale = mul(quot(s_g[0], s[0]), F32(rho))
        scales.append([lift(scale, k - 68 + j)] * n)
    return Acc(np.array(values), np.array(scales, F32), e.scale[0, 0])


def gamma_gradient(error: Tensor, wire: Tensor, eps: float, terms: int) -> Acc:
    """Sums over the rows of e z; terms: the longest such sum."""
    e = raw_operand(error) if varies(error)[0] else operand(error)
    z = operand(encode(normalized(wire, eps, None, None), Sym16()))
    if varies(error)[0]:
        fits = [
            f
            for f in range(8)
            if e.bits + f <= 16 and not headroom(terms, o.top_code(e.bits + f), z.bound, False)[1]
        ]
        e = widened(e, 16 - e.bits if e.bits > 16 else max(fits, default=0))
    total = (e.m * z.m).sum(axis=0)
    h = headroom(terms, e.bound, z.bound, False)[1]
    sigma = lift(mul(e.scale[0], z.scale[0]), h)
    return Acc(divided(total, h, "half_away"), sigma)


# ---- float32 -------------------------------------------------------------------------------------


def divided_by(a: Array, b: Array) -> Array:
    """a / b, 0 below FLT_MIN."""
    with quiet():
        q = np.divide(a, b, dtype=F32)
    return np.where(np.abs(q) < F32(2.0**-126), F32(0), q)


def folded(x: Array) -> Array:
    """The sum of each row by eight sums."""
    p = np.zeros((x.shape[0], 8), F32)
    with quiet():
        for i in range(x.shape[1]):
            p[:, i % 8] = p[:, i % 8] + x[:, i]
        return ((p[:, 0] + p[:, 4]) + (p[:, 2] + p[:, 6])) + (
            (p[:, 1] + p[:, 5]) + (p[:, 3] + p[:, 7])
        )


def float_normal(x: Array, eps: float) -> tuple[Array, Array]:
    """x^ and r."""
    n = F32(x.shape[1])
    with quiet():
        c = x - divided_by(folded(x), n)[:, None]
        variance = divided_by(folded(c * c), n) + F32(eps)
        r = divided_by(F32(1), np.sqrt(variance, dtype=F32))[:, None]
        return c * r, r


def float_normalized(x: Array, eps: float, gamma: Array | None, beta: Array | None) -> Array:
    y, _ = float_normal(x, eps)
    with quiet():
        y = y if gamma is None else y * gamma
        return y if beta is None else y + beta


def float_back(e: Array, x: Array, eps: float, gamma: Array | None) -> Array:
    normals, r = float_normal(x, eps)
    n = F32(x.shape[1])
    with quiet():
        g = e if gamma is None else e * gamma
        a = divided_by(folded(g), n)[:, None]
        b = divided_by(folded(g * normals), n)[:, None]
        return r * ((g - a) - normals * b)


def float_gamma_gradient(e: Array, x: Array, eps: float) -> Array:
    normals, _ = float_normal(x, eps)
    total = np.zeros(e.shape[1], F32)
    with quiet():
        for i in range(e.shape[0]):
            total = total + e[i] * normals[i]
    return total
