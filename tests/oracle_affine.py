"""The second opinion on the affine family of docs/numerics.md. Floats are bit patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import oracle as o


def compute_kind(dtype: str) -> str:
    """The precision an operation on this type is computed in."""
    return "float64" if dtype == "float64" else "float32"


@dataclass(frozen=True)
class Affine:
    """What an operation needs: element i has scales[index[i]] and zero_points[index[i]]."""

    dtype: str
    index: Sequence[int]
    scales: Sequence[Fraction]
    zero_points: Sequence[int]
    qmin: int
    qmax: int
    rounding: str = "half_even"
    in_range: str = "inclusive"
    key: o.Key = field(default=(0, 0))

    @property
    def precision(self) -> str:
        """The precision of the computation."""
        return compute_kind(self.dtype)

    def unclamped(self, x: Sequence[int], i: int) -> int:
        """n + zp of element i: the one function behind codes, masks and gradients."""
        g = self.index[i]
        r = o.nearest(1 / self.scales[g], self.precision)
        y = o.nearest(o.fraction_of_bits(x[i], self.dtype) * r, self.precision)
        n = o.round_by(y, self.rounding, o.uniform(self.key, i))
        return max(-(2**33), min(2**33, n)) + self.zero_points[g]

    def code(self, x: Sequence[int], i: int) -> int:
        """The code of element i."""
        return max(self.qmin, min(self.qmax, self.unclamped(x, i)))

    def passes(self, x: Sequence[int], i: int) -> bool:
        """Is element i in range?"""
        n = self.unclamped(x, i)
        if self.in_range == "strict":
            return self.qmin < n < self.qmax
        return self.qmin <= n <= self.qmax

    def value(self, code: int, i: int) -> int:
        """(code - zp) * s: the exact difference, the product and the result are each rounded."""
        g = self.index[i]
        difference = code - self.zero_points[g]
        y = o.nearest(o.nearest(difference, self.precision) * self.scales[g], self.precision)
        return o.bits_of_fraction(y, self.dtype, negative=difference < 0)

    def zero_like(self, dy: int) -> int:
        """Zero with the sign of dy."""
        return o.bits_of_fraction(0, self.dtype, o.is_negative(dy, self.dtype))


def quantize_affine(a: Affine, x: Sequence[int]) -> list[int]:
    """Codes."""
    return [a.code(x, i) for i in range(len(x))]


def in_range_mask(a: Affine, x: Sequence[int]) -> list[bool]:
    """Which elements are in range."""
    return [a.passes(x, i) for i in range(len(x))]


def pack_mask(mask: Sequence[bool]) -> bytes:
    """Bit i mod 8 of byte i / 8 for element i."""
    return o.pack([int(m) for m in mask], 1)


def dequantize_affine(a: Affine, codes: Sequence[int]) -> list[int]:
    """(c - zp) * s."""
    return [a.value(c, i) for i, c in enumerate(codes)]


def fake_quantize_affine(a: Affine, x: Sequence[int]) -> list[int]:
    """(code - zp) * s."""
    return dequantize_affine(a, quantize_affine(a, x))


def quantize_affine_backward(a: Affine, dy: Sequence[int], mask: Sequence[bool]) -> list[int]:
    """dy / s where in range; a rounded quotient below the smallest normal number is zero."""
    out = []
    for i, d in enumerate(dy):
        q = o.nearest(o.fraction_of_bits(d, a.dtype) / a.scales[a.index[i]], a.precision)
        kept = mask[i] and abs(q) >= o.smallest_normal(a.precision)
        out.append(o.bits_of_fraction(q, a.dtype, q < 0) if kept else a.zero_like(d))
    return out


def fake_quantize_affine_backward(a: Affine, dy: Sequence[int], mask: Sequence[bool]) -> list[int]:
    """dy where in range."""
    return [d if m else a.zero_like(d) for d, m in zip(dy, mask, strict=True)]


def dequantize_affine_backward(a: Affine, dy: Sequence[int]) -> list[int]:
    """dy * s."""
    out = []
    for i, d in enumerate(dy):
        y = o.nearest(o.fraction_of_bits(d, a.dtype) * a.scales[a.index[i]], a.precision)
        out.append(o.bits_of_fraction(y, a.dtype, o.is_negative(d, a.dtype)))
    return out


def qparams(
    x: Sequence[int], index: Sequence[int], n_scales: int, bits: int, symmetric: bool, dtype: str
) -> tuple[list[Fraction], list[int]]:
    """Scales (in the precision of the computation) and zero points of the runs of x."""
    kind = compute_kind(dtype)
    runs: list[list[Fraction]] = [[] for _ in range(n_scales)]
    for i, b in enumerate(x):
        runs[index[i]].append(o.fraction_of_bits(b, dtype))
    if symmetric:
        return [o.sym_scale_of_floats(r, bits, kind=kind) for r in runs], [0] * n_scales
    pairs = [o.asym_params_of_floats(r, bits, kind=kind) for r in runs]
    return [s for s, _ in pairs], [z for _, z in pairs]
