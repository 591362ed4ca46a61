"""The second opinion: docs/numerics.md in Python integers and fractions, exact and slow.

Real numbers are `Fraction`s, floats are bit patterns, scales are `Fraction`s that a float holds.
Where the page states what a result is, the statement is computed here, not the page's way to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, floor, prod
from typing import NamedTuple

Key = tuple[int, int]
Pair = tuple[int, Fraction]  # a mantissa and its scale

ROUNDINGS = ("half_away", "half_even", "stochastic")
INT32_MAX = 2**31 - 1
WORD = 2**32

# ---- floats: bit patterns and fractions ----------------------------------------------------------


class Float(NamedTuple):
    """An IEEE binary format: its width, the bits of its significand and its normal exponents."""

    width: int
    precision: int
    emin: int
    emax: int

    @property
    def infinity(self) -> int:
        """The bit pattern of +infinity."""
        return (2 * self.emax + 1) << (self.precision - 1)


FLOATS = {
    "float16": Float(16, 11, -14, 15),
    "bfloat16": Float(16, 8, -126, 127),
    "float32": Float(32, 24, -126, 127),
    "float64": Float(64, 53, -1022, 1023),
}


@cache
def pow2(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(2) ** exponent


def floor_log2(v: Fraction) -> int:
    """The e with 2^e <= v < 2^(e+1), v > 0."""
    e = v.numerator.bit_length() - v.denominator.bit_length()
    return e if pow2(e) <= v else e - 1


def smallest_normal(kind: str = "float32") -> Fraction:
    """FLT_MIN, for any kind of float."""
    return pow2(FLOATS[kind].emin)


def largest_finite(kind: str = "float32") -> Fraction:
    """FLT_MAX, for any kind of float."""
    f = FLOATS[kind]
    return pow2(f.emax + 1) - pow2(f.emax + 1 - f.precision)


def is_negative(bits: int, kind: str = "float32") -> bool:
    """Is the sign bit set?"""
    return bool(bits >> (FLOATS[kind].width - 1))


def is_finite(bits: int, kind: str = "float32") -> bool:
    """Neither NaN nor infinity?"""
    f = FLOATS[kind]
    return bits % (1 << (f.width - 1)) < f.infinity


def fraction_of_bits(bits: int, kind: str = "float32") -> Fraction:
    """The value of a bit pattern; infinity reads as +-2^(emax+1), where the next float would be."""
    f = FLOATS[kind]
    magnitude = bits % (1 << (f.width - 1))
    if magnitude > f.infinity:
        raise ValueError(f"{bits:#x} is a NaN")
    exponent, fraction = divmod(magnitude, 1 << (f.precision - 1))
    hidden = 1 << (f.precision - 1) if exponent else 0
    value = (fraction + hidden) * pow2(f.emin + max(exponent - 1, 0) - f.precision + 1)
    return -value if is_negative(bits, kind) else value


def _ulp(v: Fraction, kind: str) -> Fraction:
    f = FLOATS[kind]
    return pow2(max(floor_log2(abs(v)) if v else f.emin, f.emin) - f.precision + 1)


def nearest(v: Fraction | int, kind: str = "float32") -> Fraction:
    """v rounded to nearest even, subnormals too; +-2^(emax+1) stands for infinity."""
    v = Fraction(v)
    limit = pow2(FLOATS[kind].emax + 1)
    ulp = _ulp(v, kind)
    return max(-limit, min(limit, round(v / ulp) * ulp))


def smallest_above(v: Fraction | int, kind: str = "float32") -> Fraction:
    """The smallest float >= v, for v >= 0; 2^(emax+1) if all are smaller."""
    v = Fraction(v)
    ulp = _ulp(v, kind)
    return min(ceil(v / ulp) * ulp, pow2(FLOATS[kind].emax + 1))


def is_normal(v: Fraction, kind: str = "float32") -> bool:
    """Is the positive v a normal float (what a scale must be)?"""
    return smallest_normal(kind) <= v <= largest_finite(kind) and nearest(v, kind) == v


def bits_of_fraction(v: Fraction | int, kind: str = "float32", negative: bool = False) -> int:
    """The bit pattern of v rounded to nearest even; `negative` is the sign if that is zero."""
    f = FLOATS[kind]
    value = nearest(v, kind)
    negative = value < 0 or (value == 0 and negative)
    steps = abs(value) / _ulp(value, kind)  # the whole significand
    exponent = max(floor_log2(abs(value)) if value else f.emin, f.emin) - f.emin
    pattern = (exponent << (f.precision - 1)) + int(steps)  # a hidden bit adds 1 to the exponent
    return pattern | negative << (f.width - 1)


# ---- rounding ------------------------------------------------------------------------------------


def half_away(y: Fraction) -> int:
    """Nearest, ties away from zero."""
    n = floor(abs(y) + Fraction(1, 2))
    return n if y >= 0 else -n


def half_even(y: Fraction) -> int:
    """Nearest, ties to the even integer."""
    return round(y)


def stochastic(y: Fraction, u: int) -> int:
    """floor(y + u / 2^32)."""
    return floor(y + Fraction(u, WORD))


def round_by(y: Fraction | int, rounding: str, u: int = 0) -> int:
    """y as an integer, by one of ROUNDINGS."""
    y = Fraction(y)
    if rounding == "stochastic":
        return stochastic(y, u)
    return {"half_away": half_away, "half_even": half_even}[rounding](y)


# ---- the generator -------------------------------------------------------------------------------


def mix(x: int) -> int:
    """A bijection of the 32-bit words."""
    x = (x ^ x >> 16) * 0x7FEB352D % WORD
    x = (x ^ x >> 15) * 0x846CA68B % WORD
    return x ^ x >> 16


def key(seed: int, step: int = 0, tensor: int = 0) -> Key:
    """(k0, k1) of a tensor in a step."""
    a = mix((seed + 0x9E3779B9) % WORD)
    b = mix(a ^ step)
    c = mix((b + 0x85EBCA6B * (tensor + 1)) % WORD)
    return c, mix(c ^ b ^ 0xC2B2AE35)


def draw(k: Key, i: int) -> int:
    """The i-th word: independent."""
    x = (k[0] + i * 0x9E3779B9) % WORD
    x = (x ^ x >> 16) * 0x7FEB352D % WORD
    x = ((x ^ x >> 15) + k[1]) * 0x846CA68B % WORD
    return x ^ x >> 16


def uniform(k: Key, i: int) -> int:
    """u of element i: what stochastic rounding adds."""
    block, lane = divmod(i, 32)
    return (draw(k, 2 * block) + lane * (draw(k, 2 * block + 1) | 1)) % WORD


# ---- scales --------------------------------------------------------------------------------------


def top_code(bits: int, asymmetric: bool = False) -> int:
    """Q of Sym(bits), N of Asym(bits)."""
    return (1 << bits if asymmetric else 1 << (bits - 1)) - 1


def scale_above(v: Fraction, power: bool = False, kind: str = "float32") -> Fraction:
    """The smallest scale (power: power of two) >= v, clamped to the normal floats; 1 if v = 0."""
    if v == 0:
        return Fraction(1)
    f = FLOATS[kind]
    if power:
        e = floor_log2(v)
        return pow2(max(f.emin, min(f.emax, e if pow2(e) == v else e + 1)))
    return max(smallest_normal(kind), min(largest_finite(kind), smallest_above(v, kind)))


def scale(s_in: Fraction, m: int, q: int, power: bool = False, kind: str = "float32") -> Fraction:
    """scale(s_in, M, Q): the smallest float >= s_in * M / Q, clamped; 1 if M = 0."""
    return scale_above(s_in * m / q, power, kind)


def sym_scale(pairs: Iterable[Pair], bits: int, power: bool = False) -> Fraction:
    """Dynamic Sym scale of a run of (mantissa, scale)."""
    q = top_code(bits)
    return max((scale(s, abs(m), q, power) for m, s in pairs if m), default=Fraction(1))


def sym_scale_of_floats(
    values: Iterable[Fraction], bits: int, power: bool = False, kind: str = "float32"
) -> Fraction:
    """Dynamic Sym scale of a run of float values."""
    absmax = max((abs(v) for v in values), default=Fraction(0))
    return scale_above(absmax / top_code(bits), power, kind)


def mantissa_above(v: Fraction, kind: str = "float32") -> Fraction:
    """The smallest number >= v > 0 with a float's mantissa and any exponent."""
    unit = pow2(floor_log2(v) - FLOATS[kind].precision + 1)
    return ceil(v / unit) * unit


def asym_params_of_floats(
    values: Iterable[Fraction], bits: int, power: bool = False, kind: str = "float32"
) -> tuple[Fraction, int]:
    """Dynamic Asym scale and zero point of a run of float values."""
    values = list(values)
    hi, lo = max([Fraction(0), *values]), min([Fraction(0), *values])
    if hi == lo:
        return Fraction(1), 0
    n = top_code(bits, asymmetric=True)
    s = scale_above(mantissa_above(hi - lo, kind) / n, power, kind)
    return s, max(0, min(n, floor(-lo / s + Fraction(1, 2))))


def asym_params(pairs: Iterable[Pair], bits: int, power: bool = False) -> tuple[Fraction, int]:
    """Dynamic Asym scale and zero point of a run of (mantissa, scale)."""
    values = (mantissa_above(s * abs(m)) * (1 if m > 0 else -1) for m, s in pairs if m)
    return asym_params_of_floats(values, bits, power)


def range_scale(r: Fraction, bits: int, asymmetric: bool = False, power: bool = False) -> Fraction:
    """Scale of the fixed range r, which is taken as a float32: [-r, r], or [0, r] for Asym."""
    return scale(nearest(r), 1, top_code(bits, asymmetric), power)


# ---- integers to integers ------------------------------------------------------------------------


def significand(v: Fraction) -> tuple[int, int]:
    """(m, x) with v = m * 2^x and 2^23 <= m < 2^24, for a normal float32."""
    x = floor_log2(v) - 23
    m = v / pow2(x)
    assert m.denominator == 1
    return m.numerator, x


def ratio(s_in: Fraction, s_out: Fraction, bits: int) -> tuple[int, int, int]:
    """(q, e, t): s_in / s_out as a multiplier for results of `bits` bits."""
    (m_in, x_in), (m_out, x_out) = significand(s_in), significand(s_out)
    d = int(m_in < m_out)
    q = 2**30 * (m_in << d) // m_out
    k = 30 - (x_in - x_out) + d
    e, t = 61 - k - bits, 29 - bits
    if e > 30:
        return INT32_MAX, 30, t
    if e < 0:
        e, t = 0, k - 32
        if t > 30:
            q, t = q >> (t - 30), 30
    return q, e, t


def rescale(a: int, qet: tuple[int, int, int], rounding: str, u: int = 0) -> int:
    """a * q * 2^(e-32-t) rounded once, with the t upper bits of u."""
    q, e, t = qet
    limit = INT32_MAX >> e
    p = Fraction((max(-limit, min(limit, a)) << e) * q, 2 ** (32 + t))
    return round_by(p, rounding, u >> (32 - t) << (32 - t))


def clamp_code(v: int, bits: int, z: int | None) -> tuple[int, bool]:
    """(code, saturated) of the rounded v: Sym if z is None, else Asym."""
    top = top_code(bits, z is not None)
    wanted = v if z is None else v + z
    code = max(-top if z is None else 0, min(top, wanted))
    return code, code != wanted


def requantize(
    a: int,
    s_in: Fraction,
    s_out: Fraction,
    bits: int,
    rounding: str,
    u: int = 0,
    z: int | None = None,
) -> tuple[int, bool]:
    """(code, saturated) of the integer a: Sym(bits) if z is None, else Asym(bits)."""
    qet = ratio(s_in, s_out, bits if z is None else bits + 1)
    return clamp_code(rescale(a, qet, rounding, u), bits, z)


def exact_quotient(a: int, s_in: Fraction, s_out: Fraction) -> Fraction:
    """What requantize approximates."""
    return a * s_in / s_out


# ---- floats to integers and back -----------------------------------------------------------------


def quantize(
    x: Fraction, s: Fraction, bits: int, rounding: str, u: int = 0, z: int | None = None
) -> tuple[int, bool]:
    """(code, saturated) of the exact quotient x / s: Sym(bits) if z is None, else Asym(bits)."""
    return clamp_code(round_by(x / s, rounding, u), bits, z)


def dequantize(code: int, s: Fraction, z: int = 0) -> int:
    """Float32 bits of (code - z) * s."""
    return bits_of_fraction((code - z) * s)


# ---- bytes ---------------------------------------------------------------------------------------


def pack(codes: Sequence[int], bits: int) -> bytes:
    """Codes side by side in one little-endian bit string."""
    string = "".join(f"{c % (1 << bits):0{bits}b}" for c in reversed(codes))
    return int(string or "0", 2).to_bytes(-(-len(codes) * bits // 8), "little")


def unpack(data: bytes, n: int, bits: int, signed: bool) -> list[int]:
    """The first n codes of a bit string."""
    string = "".join(f"{byte:08b}" for byte in reversed(data))
    end = len(string)
    codes = [int(string[end - (i + 1) * bits : end - i * bits], 2) for i in range(n)]
    return [c - (1 << bits) if signed and c >> (bits - 1) else c for c in codes]


def scale_bytes(s: Fraction, power: bool = False) -> bytes:
    """A stored scale: float32, or the exponent of a power of two."""
    if power:
        return floor_log2(s).to_bytes(1, "little", signed=True)
    return bits_of_fraction(s).to_bytes(4, "little")


def stored(
    codes: Sequence[int],
    bits: int,
    scales: Sequence[Fraction],
    zero_points: Sequence[int] = (),
    container: int | str = "packed",
    power: bool = False,
) -> bytes:
    """A stored Sym or Asym tensor: codes, scales, zero points."""
    data = pack(codes, bits if container == "packed" else int(container))
    data += b"".join(scale_bytes(s, power) for s in scales)
    return data + b"".join(z.to_bytes(2, "little") for z in zero_points)


# ---- granularity ---------------------------------------------------------------------------------


def layout(
    shape: Sequence[int],
    axis: int | str | None = None,
    group: int | None = None,
    affine: bool = False,
) -> tuple[list[int], tuple[int, ...]]:
    """(the scale of each element in storage order, the shape of the scales)."""
    shape = tuple(shape)
    n = prod(shape)
    if group is not None:  # an element's row, its place in it, and the group of that place
        leading = shape[:-1] if affine else shape[:1] if len(shape) > 1 else ()
        length = prod(shape[len(leading) :])
        groups = -(-length // group)
        return [i // length * groups + i % length // group for i in range(n)], (*leading, groups)
    if axis is None:
        return [0] * n, ()
    if axis == "row":
        return [i // shape[-1] for i in range(n)], shape[:-1]
    k = range(len(shape))[int(axis)]
    return [i // prod(shape[k + 1 :]) % shape[k] for i in range(n)], (shape[k],)


def nbytes(
    kind: str,
    bits: int,
    shape: Sequence[int],
    container: int | str = "packed",
    axis: int | str | None = None,
    group: int | None = None,
    power: bool = False,
) -> int:
    """Bytes of a tensor of kind Float32, Sym, Asym or SymInt32."""
    n = prod(shape)
    if kind == "Float32":
        return 4 * n
    width = 32 if kind == "SymInt32" else bits if container == "packed" else int(container)
    each = (1 if power else 4) + (2 if kind == "Asym" else 0)
    return -(-n * width // 8) + each * prod(layout(shape, axis, group)[1])
