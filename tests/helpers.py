"""What tests share: arrays of exact bits, and one driver of the affine family beside its oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import oracle as o
import oracle_affine as oa

from pyqfw import quant

BITS = {"float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32, "float64": np.uint64}
KINDS = tuple(BITS)
ROUNDINGS = ("half_away", "half_even", "stochastic")
RULES = ("inclusive", "strict")
FLT_MIN, FLT_MAX = np.float32(2.0**-126), np.finfo(np.float32).max
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def dtype_of(kind: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)


def reals(bits: Sequence[int], dtype: str = "float32", shape: Any = None) -> np.ndarray:
    array = np.array(bits, BITS[dtype]).view(dtype_of(dtype))
    return array.reshape(len(bits) if shape is None else shape)


def bits_of(array: np.ndarray) -> list[int]:
    return array.reshape(-1).view(BITS[array.dtype.name]).tolist()


def same_bits(found: np.ndarray, expected: Sequence[int], dtype: str) -> None:
    assert found.dtype.name == dtype
    bits = found.reshape(-1).view(BITS[dtype])
    np.testing.assert_array_equal(bits, np.array(expected, BITS[dtype]))


def shifted(bits: int, ulps: int, kind: str = "float32") -> int:
    """The float so many steps away from zero (negative: towards it), at most the largest one."""
    f = o.FLOATS[kind]
    sign, magnitude = divmod(bits, 1 << (f.width - 1))
    return sign << (f.width - 1) | max(0, min(f.infinity - 1, magnitude + ulps))


def half_steps(k: int, s: Fraction, kind: str = "float32", ulps: int = 0) -> int:
    """Bits of k/2 * s, a tie for odd k, or of its neighbour some ulps away."""
    return shifted(o.bits_of_fraction(Fraction(k, 2) * s, kind, k < 0), ulps, kind)


def granularities(shape: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Per tensor, every axis from both ends, rows, and groups that fit, are ragged, and exceed."""
    yield {}
    yield from ({"axis": k} for k in range(-len(shape), len(shape)))
    if shape:
        yield {"axis": "row"}
    yield from ({"group": g} for g in (1, 2, 3, 5))


@dataclass(frozen=True)
class Case:
    """One set of data for the whole family. x, dy and scales are bit patterns."""

    kind: str
    shape: tuple[int, ...]
    grain: dict[str, Any]
    x: Sequence[int]
    dy: Sequence[int]
    scales: Sequence[int]
    zero_points: Sequence[int]
    qmin: int = -128
    qmax: int = 127
    rounding: str = "half_even"
    key: tuple[int, int, int] = (0, 0, 0)
    codes: Sequence[int] = ()
    code: str = "int32"
    """The codes that dequantize reads, repeated as often as needed, and their type."""

    @property
    def precision(self) -> str:
        return oa.compute_kind(self.kind)

    def layout(self) -> tuple[list[int], tuple[int, ...]]:
        return o.layout(self.shape, self.grain.get("axis"), self.grain.get("group"), affine=True)

    def oracle(self, in_range: str = "inclusive") -> oa.Affine:
        return oa.Affine(
            self.kind,
            self.layout()[0],
            [o.fraction_of_bits(s, self.precision) for s in self.scales],
            self.zero_points,
            self.qmin,
            self.qmax,
            self.rounding,
            in_range,
            o.key(*self.key),
        )

    def array(self, bits: Sequence[int]) -> np.ndarray:
        return reals(bits, self.kind, self.shape)

    def scale(self) -> np.ndarray:
        return reals(self.scales, self.precision, self.layout()[1])

    def zero_point(self) -> np.ndarray:
        return np.array(self.zero_points, np.int32).reshape(self.layout()[1])

    def check(self) -> None:
        """All six operations, both rules, with and without masks and `out`. Zero tolerance."""
        self.check_linear()
        for rule in RULES:
            self.check_rule(rule)

    def check_linear(self) -> None:
        """The two operations without a rounding to integers."""
        a, scale, n = self.oracle(), self.scale(), prod(self.shape)
        codes = [self.codes[i % len(self.codes)] for i in range(n)] if self.codes else [0] * n
        array = np.array(codes, self.code).reshape(self.shape)
        dtype = dtype_of(self.kind)
        y = quant.dequantize_affine(array, scale, self.zero_point(), dtype=dtype, **self.grain)
        same_bits(y, oa.dequantize_affine(a, codes), self.kind)
        dc = quant.dequantize_affine_backward(self.array(self.dy), scale, **self.grain)
        same_bits(dc, oa.dequantize_affine_backward(a, self.dy), self.kind)
        assert y.shape == dc.shape == self.shape

    def check_rule(self, in_range: str) -> None:
        a, x, dy = self.oracle(in_range), self.array(self.x), self.array(self.dy)
        points = (self.scale(), self.zero_point(), self.qmin, self.qmax)
        words = dict(zip(("seed", "step", "stream"), self.key, strict=True))
        how = {**self.grain, **words, "rounding": self.rounding, "in_range": in_range}
        mask = oa.in_range_mask(a, self.x)
        packed = oa.pack_mask(mask)
        codes = oa.quantize_affine(a, self.x)

        found, bits = quant.quantize_affine(x, *points, **how, return_mask=True)
        assert found.shape == self.shape
        assert found.reshape(-1).tolist() == codes
        assert bits.tobytes() == packed
        wide = np.empty(self.shape, np.int32)
        assert quant.quantize_affine(x, *points, **how, out=wide) is wide
        assert wide.reshape(-1).tolist() == codes
        assert quant.quantize_affine(x, *points, **how).reshape(-1).tolist() == codes

        values = oa.dequantize_affine(a, codes)
        y, bits = quant.fake_quantize_affine(x, *points, **how, return_mask=True)
        same_bits(y, values, self.kind)
        assert bits.tobytes() == packed
        y = np.empty_like(x)
        assert quant.fake_quantize_affine(x, *points, **how, out=y) is y
        same_bits(y, values, self.kind)

        for name in ("quantize_affine_backward", "fake_quantize_affine_backward"):
            backward, expected = getattr(quant, name), getattr(oa, name)(a, self.dy, mask)
            same_bits(backward(dy, x, *points, **how), expected, self.kind)
            dx = np.empty_like(x)
            from_mask = backward(dy, mask=bits, scale=points[0], **self.grain, out=dx)
            assert from_mask is dx
            same_bits(dx, expected, self.kind)
