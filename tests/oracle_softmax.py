"""The second opinion on softmax and cross-entropy: docs/numerics.md sections 15 and 19.

Integers are Python's. Floats are numpy's float32, one operation at a time. Nothing of the package
is imported.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import oracle as o

Array: TypeAlias = Any  # of numpy
F = np.float32
LOG2_E, LN_2 = 3098164009, 46516320  # in units of 2^-31 and 2^-26
FARTHEST = 2**36
FLT_MIN, FLT_MAX = F(2.0**-126), np.finfo(F).max

# ---- integers ------------------------------------------------------------------------------------

EXP2 = (632021, 5702271, 41298234, 238385490, 1031764650, 2977044459)
LOG2 = (82551813, 217954399, 380185748, 528593859, 674322591, 867926157, 1196762347, 1901359917)


def power(u: Any) -> Any:
    """2^31 2^-(u / 2^32), nearly, for words u: an integer or an array of uint64."""
    h = 46333 + u * 0
    for c in EXP2:
        h = c - (u * h >> 32)
    return 2**31 - ((u * h >> 32) + 1 >> 1)


def exp2(t: int) -> int:
    """2^30 2^-(t / 2^26), nearly; t >= 0."""
    n, part = divmod(t, 2**26)
    return power(part * 2**6) + 2**n >> n + 1 if n < 31 else 0


def log2_part(x: Any) -> Any:
    """log2(1 + x / 2^32) in units of 2^-26, nearly; x as u above."""
    g = 14792170 + x * 0
    for c in LOG2:
        g = c - (x * g >> 32)
    y = x + ((x * (2**32 - 1 - x) >> 32) * g >> 32)
    return y + 32 >> 6


def log2(s: int) -> int:
    """log2(s) in units of 2^-26, nearly; s >= 1."""
    k = s.bit_length() - 1
    return int(k * 2**26 + log2_part((s << 32 >> k) - 2**32))


def distances(below: list[int], scale: Fraction) -> list[int]:
    """below * scale * log2(e) in units of 2^-26, at most 2^36."""
    m, x = o.significand(scale)
    step = (m * LOG2_E // 2**24) * o.pow2(x + 19)
    return [min(v * step.numerator // step.denominator, FARTHEST) for v in below]


def row(z: list[int], scale: Fraction, y: int) -> tuple[list[int], int]:
    """The error codes and the loss, in units of 2^-26, of one row."""
    top = max(z)
    t = distances([top - v for v in z], scale)
    e = [exp2(v) for v in t]
    s = sum(e)
    k = s.bit_length() - 1
    r = 2 ** (31 + k) // s
    errors = [v * r // 2 ** (k + 1) - 2**30 * (c == y) for c, v in enumerate(e)]
    return errors, (log2(s) - 30 * 2**26 + t[y]) * LN_2 // 2**26


def cross_entropy(z: Array, scale: Any, labels: Array) -> tuple[Array, Any]:
    """Error codes (rows, classes), at the scale 2^-30 / rows, and the mean loss of codes z."""
    s = Fraction(float(scale))
    found = [row(list(map(int, v)), s, int(y)) for v, y in zip(z, labels, strict=True)]
    total = o.nearest(sum(loss for _, loss in found))
    mean = o.nearest(total / 2**26 / len(found))
    return np.array([codes for codes, _ in found], np.int64), F(float(mean))


# ---- floats --------------------------------------------------------------------------------------

LN2_HI, LN2_LO = F(float.fromhex("0x1.63p-1")), F(float.fromhex("-0x1.bd0106p-13"))
TO_LOG2 = F(float.fromhex("0x1.715476p+0"))
EXP = [
    F(float.fromhex(c))
    for c in ("0x1.6db446p-10", "0x1.123b6ap-7", "0x1.55545ep-5", "0x1.55548ep-3", "0x1p-1")
]
HALF_ROOT = F(float.fromhex("0x1.6a09e6p-1"))
LOG = [
    F(float.fromhex(c))
    for c in (
        *("-0x1.41f470p-4", "0x1.07cfb8p-3", "-0x1.0cdea2p-3", "0x1.226e64p-3"),
        *("-0x1.5478c4p-3", "0x1.99a596p-3", "-0x1.00021ep-2", "0x1.55554ap-2"),
    )
]


def polynomial(x: Array, coefficients: list[Any]) -> Array:
    """By Horner, the highest coefficient first."""
    p = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        p = p * x + c
    return p


def exp(x: Array) -> Array:
    """e^x of float32 numbers; 0 below FLT_MIN."""
    inside = np.clip(x, F(-88), F(89))
    with np.errstate(under="ignore", over="ignore"):
        n = (inside * TO_LOG2 + F(12582912)) - F(12582912)
        r = (inside - n * LN2_HI) - n * LN2_LO
        y = (polynomial(r, EXP) * (r * r) + r) + F(1)
        exact = np.ldexp(y.astype(np.float64), n.astype(np.int64))
        exact[(exact < FLT_MIN) | ~(x >= F(-88))] = 0
        return exact.astype(F)


def log(x: Array) -> Array:
    """ln(x) of finite float32 numbers >= 1."""
    a, k = np.frexp(x)
    low = a < HALF_ROOT
    k = np.where(low, k - 1, k).astype(F)
    f = np.where(low, a * F(2), a) - F(1)
    q = f * f
    return (f + (((f * q) * polynomial(f, LOG) + k * LN2_LO) - F(0.5) * q)) + k * LN2_HI


def quotient(a: Any, b: Any) -> Any:
    """a / b, 0 below FLT_MIN."""
    with np.errstate(under="ignore", over="ignore"):
        q = F(a) / F(b)
    return q if abs(q) >= FLT_MIN else F(0)


def float_cross_entropy(z: Array, labels: Array) -> tuple[Array, Any]:
    """The error (rows, classes) and the mean loss of float32 logits z."""
    rows, classes = z.shape
    y = np.asarray(labels)
    with np.errstate(under="ignore", over="ignore"):
        m = z.max(axis=1)
        e = exp(z - m[:, None])
        s = np.zeros(rows, F)
        for c in range(classes):
            s = s + e[:, c]
        r = F(1) / s
        hit = (np.arange(classes) == y[:, None]).astype(F)
        error = (e * r[:, None] - hit) * quotient(1, rows)
        losses = log(s) + (m - z[np.arange(rows), y])
        total = F(0)
        for loss in losses:
            total = total + loss
    return error, quotient(total, rows)
