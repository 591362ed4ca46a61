"""The second opinion on layers besides Linear: docs/numerics.md sections 21 and 22."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import oracle as o
from oracle_tensor import Acc, Array, Source, Tensor, is_float

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
