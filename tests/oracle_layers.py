"""The second opinion on layers besides Linear: docs/numerics.md sections 21 and 22."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor

import numpy as np
import oracle as o
from oracle_product import Operand, Sym12, lift, mul, operand, raw_operand, widen
from oracle_softmax import distances, exp, exp2
from oracle_tensor import Acc, Array, Source, Tensor, draws, encode, is_float

# ---- LeakyReLU -----------------------------------------------------------------------------------


def slope_of(value: float) -> np.float32:
    """The slope as a float32, 0 below FLT_MIN."""
    slope = np.float32(value)
    return slope if slope >= np.float32(2.0**-126) else np.float32(0)


def times(m: Array, slope: np.float32) -> Array:
    """The exact products of integers with the slope, half away, within +-(2^31 - 1)."""
    exact = Fraction(float(slope))
    found = [o.half_away(v * exact) for v in np.ravel(m).tolist()]
    top = o.INT32_MAX
    return np.array([max(-top, min(top, v)) for v in found], np.int64).reshape(m.shape)


def leaked(source: Acc, passes: Array, slope: np.float32) -> Acc:
    """An accumulator or floats: as they are where they pass, elsewhere times the slope."""
    if slope == 0:
        return source.masked(passes)
    with np.errstate(under="ignore"):
        low = source.values * slope if source.scale is None else times(source.values, slope)
    return replace(source, values=np.where(passes.reshape(source.shape), source.values, low))


def leaky_relu(source: Source, slope: np.float32) -> Source:
    """v > 0 ? v : v * slope; codes stay in their format."""
    if slope == 0:
        return source.relu()
    if isinstance(source, Acc):
        return leaked(source, source.values > 0, slope)
    if is_float(source.format):
        floats = leaked(Acc(source.codes), source.positive(), slope)
        return replace(source, codes=floats.values)
    m = source.ints()
    low = np.maximum(times(m, slope), source.bounds[0])
    return source.with_ints(np.where(m > 0, m, low))


def positive(kept: Source) -> Array:
    """Where the stored code, or the accumulator, is above zero."""
    return kept.positive() if isinstance(kept, Tensor) else kept.values > 0


# ---- Softmax -------------------------------------------------------------------------------------


class Sym16:
    """What is computed with where no format is given: Sym(16)."""

    bits, asymmetric, axis, group = 16, False, None, None
    scale, pow2, range, rounding, container = "float", False, "dynamic", "half_away", "packed"


def softmax(source: Source, in_floats: bool) -> Acc:
    """Probabilities along the last axis: floats, or integers at the scale 2^-30."""
    shape = source.shape
    if in_floats:
        z = source.floats().reshape(-1, shape[-1])
        e = exp(z - z.max(axis=1, keepdims=True))
        total = np.zeros(len(e), np.float32)
        for c in range(shape[-1]):
            total = total + e[:, c]
        with np.errstate(under="ignore"):
            return Acc((e * (np.float32(1) / total)[:, None]).reshape(shape))
    z = encode(source, Sym16())
    assert z.scale is not None
    scale = Fraction(float(z.scale))
    rows = [_probabilities(row, scale) for row in z.codes.reshape(-1, shape[-1]).tolist()]
    codes = np.array(rows, np.int64).reshape(shape)
    return Acc(codes, np.full(shape, np.float32(2.0**-30)))


def _probabilities(z: list[int], scale: Fraction) -> list[int]:
    e = [exp2(t) for t in distances([max(z) - v for v in z], scale)]
    k = sum(e).bit_length() - 1
    r = 2 ** (31 + k) // sum(e)
    return [v * r // 2 ** (k + 1) for v in e]


def softmax_back(error: Tensor, kept: Source, in_floats: bool) -> Acc:
    """dx = p (e - sum of p e) along the last axis."""
    shape = error.shape
    if in_floats:
        e, p = (t.floats().reshape(-1, shape[-1]) for t in (error, kept))
        mean = np.zeros(len(e), np.float32)
        with np.errstate(under="ignore"):
            for c in range(shape[-1]):
                mean = mean + p[:, c] * e[:, c]
            return Acc((p * (e - mean[:, None])).reshape(shape))
    a, b = one_scale(error), one_scale(kept)
    drop = max(0, (shape[-1] - 1).bit_length() - 8)
    m, x = o.significand(Fraction(float(b.scale.flat[0])))
    limit = 2 ** (a.bits + 12)
    down = max(0, a.bits + b.bits - 19)
    out = []
    rows = (t.m.reshape(-1, shape[-1]).tolist() for t in (a, b))
    for e, p in zip(*rows, strict=True):
        total = sum(u * v for u, v in zip(p, e, strict=True)) >> drop
        mean = max(-limit, min(limit, floor(total * m * o.pow2(x + drop + 13))))
        exact = [u * (v * 2**13 - mean) for u, v in zip(p, e, strict=True)]
        out.append([o.half_away(Fraction(v, 2**down)) for v in exact])
    scale = lift(mul(b.scale.flat[0], a.scale.flat[0]), down - 13)
    codes = np.array(out, np.int64).reshape(shape)
    assert np.abs(codes).max(initial=0) < 2**31
    return Acc(codes, np.broadcast_to(scale, shape))


def one_scale(source: Source) -> Operand:
    """Codes with one scale: an accumulator as Sym(16), several scales widened."""
    if isinstance(source, Acc):
        if source.scale is not None:
            return operand(encode(source, Sym16()))
        return operand(encode(source, Sym12()))
    f = source.format
    if is_float(f) or (f.axis is None and f.group is None):
        return operand(source)
    raw = raw_operand(source)
    return widen(raw, 16 - raw.bits if raw.bits > 16 else min(7, 16 - raw.bits))


# ---- Dropout -------------------------------------------------------------------------------------


def kept_by(key: o.Key, p: float, shape: tuple[int, ...]) -> Array:
    """Where nothing is dropped: element i where draw(i) >= p 2^32, rounded."""
    threshold = floor(Fraction(p) * o.WORD + Fraction(1, 2))
    return (draws(key, np.arange(np.prod(shape))) >= threshold).reshape(shape)


def dropout(source: Source, keeps: Array, p: float) -> Source:
    """0 where an element is dropped; the factor goes into the scales."""
    factor = np.float32(1 if p == 1 else 1 / (1 - p))
    if isinstance(source, Acc):
        left = source.masked(keeps)
        if left.scale is not None:
            return replace(left, scale=mul(left.scale, factor))
        return Acc(np.where(keeps, left.values * factor, np.float32(0)))
    if is_float(source.format):
        return replace(source, codes=np.where(keeps, source.codes * factor, np.float32(0)))
    assert source.scale is not None
    fmt = replace(source.format, scale="float", range="dynamic")
    left = source.with_ints(np.where(keeps, source.ints(), 0), mul(source.scale, factor))
    return replace(left, format=fmt)
