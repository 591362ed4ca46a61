"""The second opinion on whole tensors: docs/numerics.md sections 2 to 9 over numpy arrays.

Integers are int64 arrays where a comment says why that is enough, Python integers elsewhere; scales
are float32 arrays. A format is anything with the attributes of the package's formats: nothing of
the package is imported.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
import oracle as o

Array: TypeAlias = Any  # of numpy
Format: TypeAlias = Any  # Float32, Sym or Asym
FLT_MIN, FLT_MAX = np.float32(2.0**-126), np.finfo(np.float32).max


def quiet() -> Any:
    """Overflow and underflow of a scale are defined, not warned of."""
    return np.errstate(over="ignore", under="ignore")


# ---- the generator -------------------------------------------------------------------------------


def stream(path: str, role: str) -> int:
    """The tensor number of "path:role"."""
    return zlib.crc32(f"{path}:{role}".encode())


def draws(key: o.Key, i: Array) -> Array:
    """draw(i) of many i: words in uint64, where a word times a word fits."""
    word = np.uint64(o.WORD - 1)
    x = (np.uint64(key[0]) + i.astype(np.uint64) * np.uint64(0x9E3779B9)) & word
    x = ((x ^ x >> np.uint64(16)) * np.uint64(0x7FEB352D)) & word
    x = (((x ^ x >> np.uint64(15)) + np.uint64(key[1]) & word) * np.uint64(0x846CA68B)) & word
    return x ^ x >> np.uint64(16)


def uniforms(key: o.Key, n: int) -> Array:
    """u of the elements 0..n-1, as int64."""
    i = np.arange(n)
    a, b = draws(key, 2 * (i >> 5)), draws(key, 2 * (i >> 5) + 1) | np.uint64(1)
    return ((a + (i & 31).astype(np.uint64) * b) & np.uint64(o.WORD - 1)).astype(np.int64)


# ---- scales --------------------------------------------------------------------------------------


def significands(s: Array) -> tuple[Array, Array]:
    """(m, x) with s = m * 2^x and 2^23 <= m < 2^24, for normal float32 numbers."""
    fraction, exponent = np.frexp(s.astype(np.float64))
    return np.ldexp(fraction, 24).astype(np.int64), exponent.astype(np.int64) - 24


def ratios(s_in: Array, s_out: Array, bits: int) -> tuple[Array, Array, Array]:
    """(q, e, t) of section 6; 2^30 * 2^25 fits int64."""
    (m_in, x_in), (m_out, x_out) = significands(s_in), significands(s_out)
    d = (m_in < m_out).astype(np.int64)
    q = (m_in << (30 + d)) // m_out
    k = 30 - (x_in - x_out) + d
    e = 61 - k - bits
    t = np.where(e < 0, k - 32, 29 - bits)
    q = np.where(e > 30, o.INT32_MAX, q >> np.clip(np.where(e < 0, t - 30, 0), 0, 62))
    return q, np.clip(e, 0, 30), np.minimum(t, 30)


def rescaled(a: Array, s_in: Array, s_out: Array, bits: int, rounding: str, u: Array) -> Array:
    """fixed(a): |a << e| < 2^31 and q < 2^31, so P fits int64, with its rounding constant too."""
    q, e, t = ratios(s_in, s_out, bits)
    limit = o.INT32_MAX >> e
    p = (np.clip(a, -limit, limit) << e) * q
    if rounding == "stochastic":
        return (p + (u >> (32 - t) << 32)) >> (32 + t)
    return divided(p, 32 + t, rounding)


def divided(p: Array, shift: Array | int, rounding: str) -> Array:
    """p / 2^shift to nearest, for |p| < 2^62 and 0 <= shift <= 62."""
    one = np.ones_like(p)
    half = (one << shift) >> 1
    n = (np.abs(p) + half) >> shift
    if rounding == "half_even":
        tie = (half > 0) & (n << shift == np.abs(p) + half)
        n = np.where(tie, n & ~one, n)
    return np.where(p < 0, -n, n)


def quotients(x: Array, s: Array, rounding: str, u: Array) -> Array:
    """The exact x / s of floats, rounded (section 7), clamped to +-2^40."""
    fx, ex = np.frexp(x.astype(np.float64))
    m, xs = significands(s)
    out = []
    for a, d, den, w in zip(
        np.ldexp(fx, 24).astype(np.int64).ravel().tolist(),
        (ex - 24 - xs).ravel().tolist(),
        m.ravel().tolist(),
        u.ravel().tolist(),
        strict=True,
    ):
        num, den = (a << d, den) if d >= 0 else (a, den << -d)
        if rounding == "stochastic":
            n = (num * o.WORD + w * den) // (den * o.WORD)
        else:
            n, rest = divmod(abs(num), den)
            up = 2 * rest > den or (2 * rest == den and (rounding == "half_away" or n % 2))
            n = (n + up) * (-1 if num < 0 else 1)
        out.append(max(-(2**40), min(2**40, n)))
    return np.array(out, np.int64).reshape(x.shape)


# ---- values --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Acc:
    """What a product leaves: integers with a scale for each element, or floats (scale None)."""

    values: Array
    scale: Array | None = None
    incoming: Array | None = None
    """The one scale of a product's operand a."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return tuple(self.values.shape)

    def reshape(self, shape: Sequence[int]) -> Acc:
        """The same values in another shape."""
        scale = None if self.scale is None else self.scale.reshape(shape)
        return Acc(self.values.reshape(shape), scale, self.incoming)

    def relu(self) -> Acc:
        """v > 0 ? v : 0."""
        return self.masked(self.values > 0)

    def masked(self, mask: Array) -> Acc:
        """The values where the mask holds, else 0."""
        zero = self.values.dtype.type(0)
        kept = np.where(mask.reshape(self.shape), self.values, zero)
        return Acc(kept, self.scale, self.incoming)

    def pairs(self) -> tuple[Array, Array]:
        """Integers and the scale of each."""
        assert self.scale is not None
        return self.values, self.scale

    def floats(self) -> Array:
        """The values as float32 (section 8)."""
        return self.values if self.scale is None else products(self.values, self.scale)


def products(m: Array, s: Array) -> Array:
    """m * s rounded once to float32: 32 bits times 24 fit int64, whose cast is to nearest even."""
    mantissa, x = significands(s)
    with quiet():
        rounded = (m * mantissa).astype(np.float32).astype(np.float64)
        values = np.ldexp(rounded, x).astype(np.float32)
    assert np.isfinite(values).all()
    return values


@lru_cache(maxsize=256)
def _index(shape: tuple[int, ...], axis: int | str | None, group: int | None) -> Array:
    index = np.array(o.layout(shape, axis, group)[0], np.int64)
    index.flags.writeable = False
    return index


def is_float(fmt: Format) -> bool:
    """Float32, as opposed to codes?"""
    return type(fmt).__name__ == "Float32"


@dataclass(frozen=True)
class Tensor:
    """A stored tensor: codes in its shape (Float32: the values), a scale and zero point a run."""

    format: Format
    codes: Array
    scale: Array | None = None
    zero: Array | None = None
    origin: tuple[int, ...] = ()
    """The shape that it was encoded in, which its runs follow."""
    saturated: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the codes."""
        return tuple(self.codes.shape)

    @property
    def index(self) -> Array:
        """The run of each element."""
        return _index(self.origin, self.format.axis, self.format.group).reshape(self.shape)

    @property
    def scales(self) -> Array:
        """The scale of each element."""
        assert self.scale is not None
        return self.scale.ravel()[self.index]

    @property
    def zeros(self) -> Array:
        """The zero point of each element; 0 for Sym."""
        return np.zeros_like(self.codes) if self.zero is None else self.zero.ravel()[self.index]

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The smallest and largest integer (code less zero point) of each element."""
        q = o.top_code(self.format.bits, self.format.asymmetric)
        z = self.zeros
        return (-z, q - z) if self.format.asymmetric else (z - q, z + q)

    def ints(self) -> Array:
        """Codes less their zero points."""
        return self.codes - self.zeros

    def with_ints(self, m: Array, scale: Array | None = None) -> Tensor:
        """Other integers (and scales) under the same format."""
        scale = self.scale if scale is None else scale
        return replace(self, codes=m + self.zeros, scale=scale)

    def pairs(self) -> tuple[Array, Array]:
        """Integers and the scale of each."""
        return self.ints(), self.scales

    def floats(self) -> Array:
        """The values as float32."""
        return self.codes if is_float(self.format) else products(*self.pairs())

    def rangeless(self) -> Array:
        """Of each run: is its scale 1 and every code 0, so that it has no range yet?"""
        assert self.scale is not None
        used = np.zeros(self.scale.size, bool)
        used[self.index[self.ints() != 0]] = True
        return (self.scale.ravel() == 1) & ~used

    def positive(self) -> Array:
        """Where the stored code is above zero."""
        return (self.codes if is_float(self.format) else self.ints()) > 0

    def relu(self) -> Tensor:
        """ReLU on codes."""
        return self.masked(self.positive())

    def masked(self, mask: Array) -> Tensor:
        """The codes where the mask holds, else those of 0."""
        zero = self.codes.dtype.type(0) if is_float(self.format) else self.zeros
        return replace(self, codes=np.where(mask.reshape(self.shape), self.codes, zero))

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """The same elements in another shape."""
        return replace(self, codes=self.codes.reshape(shape))

    def data(self) -> bytes:
        """The stored bytes."""
        if is_float(self.format):
            return bytes(self.codes.astype("<f4").tobytes())
        assert self.scale is not None
        f = self.format
        codes = o.stored(self.codes.ravel().tolist(), f.bits, [], container=f.container)
        exponents = (np.frexp(self.scale)[1] - 1).astype(np.int8)
        scales = exponents if f.pow2 else self.scale.astype("<f4")
        zero = b"" if self.zero is None else self.zero.astype("<u2").tobytes()
        return bytes(codes + scales.tobytes() + zero)


Source = Acc | Tensor


def is_floating(source: Source) -> bool:
    """Floats, as opposed to integers with scales?"""
    return source.scale is None


# ---- encoding ------------------------------------------------------------------------------------


def extremes(source: Source, index: Array, runs: int) -> list[tuple[Fraction, Fraction]]:
    """(least value or 0, largest value or 0) of each run, exactly.

    Rounding is monotone: the extreme is among those whose float64 product is extreme, which are
    compared in fractions.
    """
    if is_floating(source):
        m, s = source.floats().ravel().astype(np.float64), None
    else:
        ints, scales = source.pairs()
        m, s = ints.ravel(), scales.ravel().astype(np.float64)
    index = index.ravel()
    found = []
    for sign in (-1, 1):
        size = np.maximum(sign * m, 0) * (1.0 if s is None else s)
        top = np.zeros(runs)
        np.maximum.at(top, index, size)
        best = [Fraction(0)] * runs
        for i in np.flatnonzero((size > 0) & (size == top[index])):
            value = Fraction(m[i].item()) * (1 if s is None else Fraction(s[i].item()))
            run = index[i]
            best[run] = sign * max(abs(best[run]), abs(value))
        found.append(best)
    return list(zip(*found, strict=True))


def _found(fmt: Format, lo: Fraction, hi: Fraction, dynamic: bool) -> tuple[Fraction, int]:
    """Scale and zero point of a run of this range (section 5)."""
    if not (dynamic or isinstance(fmt.range, str)):
        return o.range_scale(Fraction(fmt.range), fmt.bits, fmt.asymmetric, fmt.pow2), 0
    if fmt.asymmetric:
        ends = [o.mantissa_above(abs(v)) * (1 if v > 0 else -1) for v in (lo, hi) if v]
        return o.asym_params_of_floats(ends, fmt.bits, fmt.pow2)
    return o.scale_above(max(hi, -lo) / o.top_code(fmt.bits), fmt.pow2), 0


def encode(
    source: Source,
    fmt: Format,
    key: o.Key = (0, 0),
    rounding: str | None = None,
    dynamic: bool = False,
    at: Fraction | None = None,
) -> Tensor:
    """The source in a format: scales by section 5, codes by section 6 or 7, floats by section 8.

    `rounding` and `dynamic` overrule the format's rounding and range; `at` is a scale for all.
    """
    shape = source.shape
    if is_float(fmt):
        return Tensor(fmt, source.floats(), origin=shape)
    index = _index(shape, fmt.axis, fmt.group).reshape(shape)
    scale_shape = o.layout(shape, fmt.axis, fmt.group)[1]
    if isinstance(source, Tensor) and carries(source, fmt, shape):
        return replace(source, format=fmt)
    ranges = extremes(source, index, prod(scale_shape))
    found = [(at, 0) if at else _found(fmt, lo, hi, dynamic) for lo, hi in ranges]
    scale = np.array([float(s) for s, _ in found], np.float32).reshape(scale_shape)
    zero = np.array([z for _, z in found], np.int64).reshape(scale_shape)
    t = Tensor(fmt, index, scale, zero if fmt.asymmetric else None, shape)

    rounding = rounding or fmt.rounding
    u = uniforms(key, prod(shape)).reshape(shape)
    if is_floating(source):
        n = quotients(source.floats(), t.scales, rounding, u)
    else:
        width = fmt.bits + 1 if fmt.asymmetric else fmt.bits
        m, s = source.pairs()
        n = rescaled(m, s, t.scales, width, rounding, u)
    lo_hi = t.bounds
    t = t.with_ints(np.clip(n, *lo_hi))
    return replace(t, saturated=int(((n < lo_hi[0]) | (n > lo_hi[1])).sum()))


def carries(t: Tensor, fmt: Format, shape: tuple[int, ...]) -> bool:
    """Do the formats differ at most in container and rounding, over the same runs (section 9)?

    The same whatever the length of the first axis, which may count the rows of a step.
    """

    def rules(f: Format) -> tuple[object, ...]:
        return (f.asymmetric, f.bits, f.scale, f.range)

    def runs(f: Format, dims: tuple[int, ...], more: int) -> Array:
        longer = (dims[0] + more, *dims[1:]) if dims else dims
        return _index(longer, f.axis, f.group)

    if is_float(t.format) or rules(t.format) != rules(fmt):
        return False
    pairs = ((runs(t.format, t.origin, n), runs(fmt, shape, n)) for n in (0, 1))
    return all(np.array_equal(a, b) for a, b in pairs)
