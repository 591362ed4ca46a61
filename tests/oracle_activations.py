"""The second opinion on ReLU6, Sigmoid and Tanh: docs/numerics.md section 34."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import oracle as o
from oracle_product import lift
from oracle_softmax import distances, exp, exp2, polynomial
from oracle_tensor import Acc, Array, Source, Tensor, is_float, is_floating, quotients, rescaled

F = np.float32
ONE = 2**30  # of a result
Q15 = F(2.0**-15)

# ---- ReLU6 ---------------------------------------------------------------------------------------


def six(scales: Array) -> Array:
    """The code of 6 at each scale, 2^31 where no code is that large."""
    known = {s: min(o.half_away(6 / Fraction(s)), 2**31) for s in set(np.ravel(scales).tolist())}
    return np.array([known[s] for s in np.ravel(scales).tolist()], np.int64).reshape(scales.shape)


def relu6(source: Source) -> Source:
    """min(max(v, 0), 6); codes stay in their format."""
    if is_floating(source):
        held = np.where(source.floats() > 0, np.minimum(source.floats(), F(6)), F(0))
        return Acc(held) if isinstance(source, Acc) else replace(source, codes=held)
    m, s = source.pairs()
    held = np.clip(m, 0, six(s))
    return replace(source, values=held) if isinstance(source, Acc) else source.with_ints(held)


def inside_six(kept: Source) -> Array:
    """Where the stored code lies above that of 0 and below that of 6."""
    if is_floating(kept):
        return (kept.floats() > 0) & (kept.floats() < 6)
    m, s = kept.pairs()
    return (m > 0) & (m < six(s))


# ---- Sigmoid and Tanh: forward -------------------------------------------------------------------


def squashed(m: int, scale: Fraction, kind: str) -> int:
    """The function of m * scale, in units of 2^-30."""
    (t,) = distances([abs(m)], scale * (2 if kind == "tanh" else 1))
    r = 2**61 // (ONE + exp2(t))
    if kind == "tanh":
        return (r - ONE) * (-1 if m < 0 else 1)
    p = (r + 1) // 2
    return ONE - p if m < 0 else p


def squash(source: Source, kind: str, in_floats: bool) -> Acc:
    """Floats, or integers at the scale 2^-30."""
    if in_floats:
        return Acc(float_squash(source.floats(), kind))
    if is_floating(source):  # 24 bits and a power of two
        exact = [Fraction(v) for v in np.ravel(source.floats()).tolist()]
        pairs = [o.significand(abs(v)) if v else (0, 0) for v in exact]
        found = [
            squashed(-a if v < 0 else a, o.pow2(x), kind)
            for v, (a, x) in zip(exact, pairs, strict=True)
        ]
    else:
        m, s = source.pairs()
        ints, scales = np.ravel(m).tolist(), np.ravel(s).tolist()
        found = [squashed(a, Fraction(x), kind) for a, x in zip(ints, scales, strict=True)]
    codes = np.array(found, np.int64).reshape(source.shape)
    return Acc(codes, np.full(source.shape, F(2.0**-30)))


TANH = [
    F(float.fromhex(c))
    for c in ("-0x1.75e1ccp-8", "0x1.52269cp-6", "-0x1.b83c5ap-5", "0x1.110726p-3")
]
TANH.append(F(float.fromhex("-0x1.555532p-2")))


def float_squash(x: Array, kind: str) -> Array:
    """In float32, one operation at a time."""
    with np.errstate(under="ignore", over="ignore"):
        if kind == "sigmoid":
            return _normal(F(1) / (F(1) + exp(-x)))
        z = x * x
        near = (x * z) * polynomial(z, TANH) + x
        e = exp(F(-2) * np.abs(x))
        far = np.copysign(_normal((F(1) - e) / (F(1) + e)), x)
    return np.where(np.abs(x) < F(0.625), near, far)


def _normal(x: Array) -> Array:
    """0 below FLT_MIN."""
    return np.where(x < F(2.0**-126), F(0), x)


# ---- and backward --------------------------------------------------------------------------------


def squash_back(error: Acc, kept: Source, kind: str) -> Acc:
    """The error times y (1 - y), or 1 - y^2, y being what was kept."""
    if error.scale is None:
        y = kept.floats().reshape(error.shape)
        with np.errstate(under="ignore", over="ignore"):
            d = (F(1) + y if kind == "tanh" else y) * (F(1) - y)
            return Acc(error.values * np.where(d < 0, F(0), d))
    y = _in_q15(kept, kind).reshape(error.shape)
    slope = (2**15 + y if kind == "tanh" else y) * (2**15 - y)
    top = 30 if kind == "tanh" else 28
    assert slope.min(initial=0) >= 0
    assert slope.max(initial=0) <= 2**top
    bits = int(np.abs(error.values).max(initial=0)).bit_length()
    lowest = min(o.significand(Fraction(float(s)))[1] for s in np.unique(error.scale))
    drop = max(0, bits + top - 31, -119 - lowest)
    codes = [
        o.half_away(Fraction(a * g, 2**drop))
        for a, g in zip(error.values.ravel().tolist(), slope.ravel().tolist(), strict=True)
    ]
    assert all(abs(v) < 2**31 for v in codes)
    values = np.array(codes, np.int64).reshape(error.shape)
    return replace(error, values=values, scale=lift(error.scale, drop - 30))


def _in_q15(kept: Source, kind: str) -> Array:
    """y in units of 2^-15, half away, within what the function can be."""
    if (isinstance(kept, Tensor) and is_float(kept.format)) or kept.scale is None:
        y = quotients(kept.floats(), np.full(kept.shape, Q15), "half_away", np.zeros(kept.shape))
    else:
        m, s = kept.pairs()
        y = rescaled(m, s, np.full(s.shape, Q15), 17, "half_away", np.zeros_like(m))
    return np.clip(y, -(2**15) if kind == "tanh" else 0, 2**15)
