"""The oracle against the statements of docs/numerics.md, and the gold files against the oracle."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction

import goldgen
import numpy as np
import oracle as o
import oracle_affine as oa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

HALF = Fraction(1, 2)
EXACT = ("half_away", "half_even")
FLT_MIN, FLT_MAX = o.smallest_normal(), o.largest_finite()
SYM, ASYM = range(2, 17), range(1, 17)
STRUCT = {"float16": "<e", "float32": "<f", "float64": "<d"}

fixed = settings(derandomize=True, deadline=None, database=None, max_examples=250)

int32 = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-1000, 1000),
    st.sampled_from([-(2**31), -(2**31) + 1, 2**31 - 1]),
)
words = st.integers(0, 2**32 - 1)
scales = st.one_of(
    st.integers(0x00800000, 0x7F7FFFFF),
    st.integers(0x3A000000, 0x45000000),
    st.sampled_from([0x00800000, 0x00800001, 0x3F800000, 0x3FFFFFFF, 0x7F000000, 0x7F7FFFFF]),
).map(o.fraction_of_bits)
targets = st.one_of(
    st.tuples(st.just("sym"), st.sampled_from(SYM)),
    st.tuples(st.just("asym"), st.sampled_from(ASYM)),
)
kinds = st.sampled_from(sorted(o.FLOATS))
finite32 = st.integers(0, 2**32 - 1).filter(o.is_finite)


@st.composite
def scale_pairs(draw: st.DrawFn) -> tuple[Fraction, Fraction]:
    """(s_in, s_out), often with a ratio at which codes of some width appear."""
    s_in, s_out = draw(scales), draw(scales)
    if draw(st.booleans()):
        s_out = s_in * draw(st.integers(2**23, 2**24)) * o.pow2(draw(st.integers(-30, 10)))
        s_out = max(FLT_MIN, min(FLT_MAX, o.nearest(s_out)))
    return s_in, s_out


# ---- gold ----------------------------------------------------------------------------------------


def test_gold_files_are_what_the_generator_writes():
    assert goldgen.differences() == []


def test_gold_stays_small():
    assert sum(p.stat().st_size for p in goldgen.GOLD.iterdir()) < 600_000


# ---- floats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(STRUCT))
@given(data=st.data())
@fixed
def test_bits_are_read_as_the_machine_reads_them(kind, data):
    f = o.FLOATS[kind]
    bits = data.draw(st.integers(0, 2**f.width - 1))
    (value,) = struct.unpack(STRUCT[kind], bits.to_bytes(f.width // 8, "little"))
    assert o.is_finite(bits, kind) == math.isfinite(value)
    if math.isfinite(value):
        assert o.fraction_of_bits(bits, kind) == Fraction(value)
        assert o.bits_of_fraction(Fraction(value), kind, math.copysign(1, value) < 0) == bits
        assert o.is_negative(bits, kind) == (math.copysign(1, value) < 0)
        normal = abs(value) >= float(o.smallest_normal(kind))
        assert o.is_normal(abs(Fraction(value)), kind) == normal


def test_bfloat16_is_the_upper_half_of_float32():
    for bits in itertools.chain(range(0, 0x7F80, 7), range(0x8000, 0xFF80, 7)):
        assert o.fraction_of_bits(bits, "bfloat16") == o.fraction_of_bits(bits << 16)


@given(
    kinds, st.fractions(), st.integers(-1100, 1100), st.sampled_from([None, -1, 0, 1]), st.data()
)
@fixed
def test_rounded_to_the_nearest_of_two_neighbours(kind, v, exponent, nudge, data):
    f = o.FLOATS[kind]
    v *= o.pow2(exponent)
    if nudge is not None:  # at, or next to, the middle of two floats
        pattern = data.draw(st.integers(0, f.infinity - 1))
        low, high = o.fraction_of_bits(pattern, kind), o.fraction_of_bits(pattern + 1, kind)
        v = (low + high) / 2 + nudge * o.pow2(-1200)
    bits = o.bits_of_fraction(abs(v), kind)
    assert 0 <= bits <= f.infinity
    near = {
        b: o.fraction_of_bits(b, kind) for b in (bits - 1, bits, bits + 1) if 0 <= b <= f.infinity
    }
    error = abs(near[bits] - abs(v))
    assert near[bits] == o.nearest(abs(v), kind) == abs(o.nearest(-v, kind))
    if bits < f.infinity:
        assert all(error < abs(near[b] - abs(v)) or bits % 2 == 0 for b in near if b != bits)
        assert all(error <= abs(near[b] - abs(v)) for b in near)
    else:
        assert abs(v) >= (near[bits] + near[bits - 1]) / 2
    above = o.smallest_above(abs(v), kind)
    pattern = o.bits_of_fraction(above, kind)
    assert o.fraction_of_bits(pattern, kind) == above
    assert above >= abs(v) or pattern == f.infinity
    assert pattern == 0 or o.fraction_of_bits(pattern - 1, kind) < abs(v)


@given(st.floats(allow_nan=False, allow_infinity=False))
@fixed
def test_narrowed_as_the_machine_narrows(value):
    for kind in ("float32", "float16"):
        try:
            data = struct.pack(STRUCT[kind], value)
        except OverflowError:
            data = (o.FLOATS[kind].infinity | (value < 0) << (o.FLOATS[kind].width - 1)).to_bytes(
                o.FLOATS[kind].width // 8, "little"
            )
        bits = o.bits_of_fraction(Fraction(value), kind, math.copysign(1, value) < 0)
        # `struct` keeps the sign of what underflows; so does a caller of bits_of_fraction.
        assert bits == int.from_bytes(data, "little")


def test_float_limits():
    assert o.bits_of_fraction(FLT_MAX) == 0x7F7FFFFF
    assert o.bits_of_fraction(FLT_MIN) == 0x00800000
    assert o.bits_of_fraction(FLT_MAX + o.pow2(103)) == 0x7F800000  # the tie goes to infinity
    assert o.bits_of_fraction(FLT_MAX + o.pow2(103) - 1) == 0x7F7FFFFF
    assert o.bits_of_fraction(o.pow2(-150)) == 0
    assert o.bits_of_fraction(o.pow2(-150) + o.pow2(-200)) == 1
    assert o.bits_of_fraction(Fraction(0), negative=True) == 2**31
    assert not o.is_normal(FLT_MIN / 2)
    assert not o.is_normal(FLT_MAX * 2)
    assert not o.is_normal(Fraction(1, 3))
    with pytest.raises(ValueError, match="NaN"):
        o.fraction_of_bits(0x7FC00000)


# ---- rounding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "away", "even"),
    [("1/2", 1, 0), ("3/2", 2, 2), ("5/2", 3, 2), ("49/100", 0, 0), ("51/100", 1, 1), ("7", 7, 7)],
)
def test_ties_of_both_signs(y, away, even):
    for sign in (1, -1):
        assert o.round_by(sign * Fraction(y), "half_away") == sign * away
        assert o.round_by(sign * Fraction(y), "half_even") == sign * even


@given(st.fractions(), words)
@fixed
def test_rounding_is_near_and_odd(y, u):
    for rounding in EXACT:
        assert abs(o.round_by(y, rounding) - y) <= HALF
        assert o.round_by(-y, rounding) == -o.round_by(y, rounding)
    assert o.stochastic(y, 0) == math.floor(y)
    assert o.stochastic(y, u) in (math.floor(y), math.floor(y) + 1)
    assert o.stochastic(y, u) - math.floor(y) == (u >= (math.floor(y) + 1 - y) * 2**32)


# ---- scales --------------------------------------------------------------------------------------


@given(scales, st.integers(0, 2**31), targets, st.booleans())
@fixed
def test_a_scale_is_the_smallest_that_does(s_in, m, target, power):
    q = o.top_code(target[1], target[0] == "asym")
    s = o.scale(s_in, m, q, power)
    wanted = s_in * m / q
    assert o.is_normal(s)
    if m == 0:
        assert s == 1
        return
    if power:
        assert s == o.pow2(o.floor_log2(s))
        assert s >= min(wanted, o.pow2(127))
        assert s == FLT_MIN or s / 2 < wanted
    else:
        assert s >= min(wanted, FLT_MAX)
        assert s == FLT_MIN or o.fraction_of_bits(o.bits_of_fraction(s) - 1) < wanted
        assert m != q or s == s_in


@given(st.lists(st.tuples(int32, scales), max_size=6), st.sampled_from(SYM), st.booleans())
@fixed
def test_dynamic_scale_of_integers_and_of_floats_agree(pairs, bits, power):
    """What float32 holds exactly has one scale, as mantissas or as floats."""
    small = [(m % 2**24 - 2**23, s) for m, s in pairs]
    small = [(m, s) for m, s in small if abs(m * s) <= FLT_MAX]
    values = [m * s for m, s in small]
    assume(all(o.nearest(v) == v for v in values))
    assert o.sym_scale(small, bits, power) == o.sym_scale_of_floats(values, bits, power)
    assert o.asym_params(small, bits, power) == o.asym_params_of_floats(values, bits, power)


def test_scales_of_nothing_and_of_ranges():
    for bits in SYM:
        assert o.sym_scale([], bits) == o.sym_scale([(0, FLT_MAX)], bits) == 1
        assert o.sym_scale_of_floats([], bits) == 1
        assert o.asym_params([(0, FLT_MIN)], bits) == (1, 0)
        assert o.range_scale(Fraction(1), bits) >= Fraction(1, o.top_code(bits))
    assert o.range_scale(Fraction(255), 8, asymmetric=True) == 1
    assert o.range_scale(Fraction(127), 8) == 1
    assert o.range_scale(Fraction(128), 8, power=True) == 2
    assert o.range_scale(Fraction(1, 10), 2) == o.nearest(Fraction(1, 10))


# ---- requantization ------------------------------------------------------------------------------


def recipe(a: int, qet: tuple[int, int, int], rounding: str, u: int) -> int:
    """`fixed` of the page, line by line."""
    q, e, t = qet
    limit = (2**31 - 1) >> e
    a = max(-limit, min(limit, a))
    if rounding == "half_even":
        p = (abs(a) << e) * q
        h = p // 2**32 + 2 ** (t - 1)
        v = h >> t
        if p % 2**32 == 0 and h % 2**t == 0:
            v &= ~1
        return v if a >= 0 else -v
    p = (a << e) * q
    if rounding == "half_away":
        high, c = (p - (a < 0)) // 2**32, 2 ** (t - 1)
    else:
        high, c = p // 2**32, u >> (32 - t)
    assert -(2**31) <= high + c < 2**31
    return (high + c) >> t


def deviation(bits: int) -> Fraction:
    """How much the multiplier may add to a rounding error, for results of `bits` bits."""
    return o.pow2(bits - 31)


def check_requantize(a, s_in, s_out, target, u, z):
    kind, bits = target
    z = z % 2**bits if kind == "asym" else None
    width = bits if z is None else bits + 1
    qet = o.ratio(s_in, s_out, width)
    assert 0 <= qet[0] < 2**31
    assert 0 <= qet[1] <= 30
    assert 12 <= qet[2] <= 30
    exact = o.exact_quotient(a, s_in, s_out)
    top = o.top_code(bits, z is not None)
    low = -top if z is None else 0
    for rounding in o.ROUNDINGS:
        v = o.rescale(a, qet, rounding, u)
        assert v == recipe(a, qet, rounding, u)
        code, saturated = o.requantize(a, s_in, s_out, bits, rounding, u, z)
        wanted = v + (z or 0)
        assert code == max(low, min(top, wanted))
        assert saturated == (code != wanted)
        bound = (1 if rounding == "stochastic" else HALF) + deviation(width)
        if not saturated:
            assert abs(v - exact) < bound
        else:
            shifted = exact + (z or 0)
            assert shifted > top + 1 - bound or shifted < low - 1 + bound


@given(int32, scale_pairs(), targets, words, words)
@settings(fixed, max_examples=1500)
def test_requantize_error(a, pair, target, u, z):
    check_requantize(a, *pair, target, u, z)


@pytest.mark.parametrize("target", goldgen.FORMATS, ids=str)
def test_requantize_error_next_to_ties(target):
    source = goldgen.Source(target[1])
    top = o.top_code(target[1], target[0] == "asym")
    for _ in range(60):
        s_in = o.fraction_of_bits(source.float(-100, 60))
        s_out = o.nearest(s_in * source.integer(1, 2**32) / 2 ** source.integer(0, 12))
        codes = [0, top, -top, source.integer(-top, top), source.integer(-top, top)]
        near = goldgen.near_ties(s_in, s_out, codes)
        for a in [*near, *(v + 1 for v in near if v < 2**31 - 1), -(2**31)]:
            check_requantize(a, s_in, s_out, target, source.word() >> 32, source.word())
    for a, (s_in, s_out) in itertools.product(
        [-(2**31), -(2**31) + 1, 2**31 - 1, 0, 1, -1],
        itertools.product([FLT_MIN, Fraction(1), FLT_MAX], repeat=2),
    ):
        check_requantize(a, s_in, s_out, target, source.word() >> 32, 1)


def test_the_lowest_integer_at_the_widest_codes():
    """-2^31 is moved by one; near a tie of the largest codes that and the error of q meet."""
    for target, code in itertools.product([("sym", 16), ("asym", 16)], range(40)):
        top = o.top_code(16, target[0] == "asym")
        for step in range(-20, 20):
            s_out = o.nearest(Fraction(2**31) / (top - code + HALF))
            s_in = o.fraction_of_bits(o.bits_of_fraction(Fraction(1)) + step)
            check_requantize(-(2**31), s_in, s_out, target, 0, top)


@given(scale_pairs(), st.sampled_from(SYM))
@fixed
def test_ratio_is_just_below_the_quotient(pair, bits):
    s_in, s_out = pair
    q, e, t = o.ratio(s_in, s_out, bits)
    quotient = s_in / s_out
    value = q * o.pow2(e - 32 - t)
    if q == 2**31 - 1 and e == 30 and quotient > value:
        assert quotient >= 2**bits or quotient - value < quotient * o.pow2(-30)
    elif q >= 2**30:
        assert quotient * (1 - o.pow2(-30)) < value <= quotient
    else:  # so small that the whole int32 range rounds to zero
        assert t == 30
        assert value <= quotient < o.pow2(-32)


@given(st.integers(1, 20), int32, scales, st.sampled_from(SYM), words)
@settings(fixed, max_examples=600)
def test_a_power_of_two_is_a_shift(k, a, s_in, bits, u):
    s_out = s_in * 2**k
    assume(s_out <= FLT_MAX)
    qet = o.ratio(s_in, s_out, bits)
    q = o.top_code(bits)

    def clamp(v: int) -> int:
        return max(-q, min(q, v))

    shift = (a + 2 ** (k - 1) - (a < 0)) >> k
    assert clamp(o.rescale(a, qet, "half_away")) == clamp(shift)
    if k <= 29 - bits:
        shift = (a + (u >> (32 - k))) >> k
        assert clamp(o.rescale(a, qet, "stochastic", u)) == clamp(shift)


def test_beyond_its_resolution_a_stochastic_shift_differs():
    """k = 30 - bits: one bit of a lies below the last bit of u that is used."""
    bits, k = 8, 22
    u = ((2**k - 1) << (32 - k)) % 2**32
    qet = o.ratio(Fraction(1), Fraction(2**k), bits)
    assert o.rescale(1, qet, "stochastic", u) == 0
    assert (1 + (u >> (32 - k))) >> k == 1


mantissas = st.lists(int32, min_size=1, max_size=6)


@given(
    mantissas, scales, st.sampled_from(SYM), st.booleans(), st.lists(words, min_size=6, max_size=6)
)
@settings(fixed, max_examples=500)
def test_dynamic_sym(a, s_in, bits, power, u):
    """Nothing exceeds Q, the absmax becomes +-Q, and a second time changes nothing."""
    q = o.top_code(bits)
    s_out = o.sym_scale([(v, s_in) for v in a], bits, power)
    absmax = max(abs(v) for v in a)
    clamped = s_in * absmax / q > (o.pow2(127) if power else FLT_MAX)
    for rounding in o.ROUNDINGS:
        results = [
            o.requantize(v, s_in, s_out, bits, rounding, w) for v, w in zip(a, u, strict=False)
        ]
        codes = [c for c, _ in results]
        assert clamped or not any(saturated for _, saturated in results)
        again = [o.requantize(c, s_out, s_out, bits, rounding, u[0]) for c in codes]
        assert again == [(c, False) for c in codes]
        if rounding == "stochastic" or absmax == 0:
            continue
        ends = {abs(c) for v, c in zip(a, codes, strict=True) if abs(v) == absmax}
        if s_out > FLT_MIN:
            assert ends == {q} if not power else all(2 * c > q for c in ends)
        assert o.sym_scale([(c, s_out) for c in codes], bits, power) == s_out


def test_absmax_is_not_q_where_the_scale_was_clamped():
    s = o.sym_scale([(1, FLT_MIN)], 8)
    assert s == FLT_MIN
    assert o.requantize(1, FLT_MIN, s, 8, "half_away") == (1, False)


@given(int32, st.integers(1, 2**31 - 1), scale_pairs(), targets, words)
@settings(fixed, max_examples=500)
def test_requantize_is_monotone(a, more, pair, target, u):
    kind, bits = target
    z = 2**bits // 2 if kind == "asym" else None
    larger = min(a + more, 2**31 - 1)
    for rounding in o.ROUNDINGS:
        low, _ = o.requantize(a, *pair, bits, rounding, u, z)
        high, _ = o.requantize(larger, *pair, bits, rounding, u, z)
        assert low <= high


@given(
    st.lists(st.tuples(int32, scales), min_size=1, max_size=5), st.sampled_from(ASYM), st.booleans()
)
@settings(fixed, max_examples=500)
def test_dynamic_asym_of_integers(pairs, bits, power):
    s, z = o.asym_params(pairs, bits, power)
    check_asym(s, z, bits, power)
    for (m, s_in), rounding in itertools.product(pairs, EXACT):
        code, saturated = o.requantize(m, s_in, s, bits, rounding, 0, z)
        check_saturation(code, saturated, m * s_in / s, s, z, power)


@given(st.lists(finite32, min_size=1, max_size=5), st.sampled_from(ASYM), st.booleans())
@settings(fixed, max_examples=500)
def test_dynamic_asym_of_floats(patterns, bits, power):
    values = [o.fraction_of_bits(b) for b in patterns]
    s, z = o.asym_params_of_floats(values, bits, power)
    check_asym(s, z, bits, power)
    for v, rounding in itertools.product(values, EXACT):
        code, saturated = o.quantize(v, s, bits, rounding, 0, z)
        check_saturation(code, saturated, v / s, s, z, power)


def check_asym(s, z, bits, power):
    assert o.is_normal(s)
    assert 0 <= z <= o.top_code(bits, asymmetric=True)
    assert not power or s == o.pow2(o.floor_log2(s))


def check_saturation(code, saturated, quotient, s, z, power):
    """Where the scale is not clamped, only an exact tie saturates, and it stays half a step off."""
    if saturated and s < (o.pow2(127) if power else FLT_MAX):
        assert abs(code - z - quotient) == HALF


def test_asym_of_every_small_interval():
    """Every pair of halves in [-4, 4], many of them ties at both ends."""
    for bits, low, high in itertools.product([1, 2, 3], range(-8, 1), range(9)):
        ends = [Fraction(low, 2), Fraction(high, 2)]
        s, z = o.asym_params_of_floats(ends, bits)
        for v, rounding in itertools.product(ends, EXACT):
            check_saturation(*o.quantize(v, s, bits, rounding, 0, z), v / s, s, z, False)


def test_asym_interval_is_rounded_up():
    """The ends, then their distance, to 24 bits of any exponent."""
    ends = [Fraction(1), -o.pow2(-30)]
    assert o.asym_params_of_floats(ends, 2) == (11184812 * o.pow2(-25), 0)
    assert o.asym_params([(2**24 + 1, Fraction(1)), (-1, Fraction(1))], 1) == (2**24 + 4, 0)
    assert o.asym_params([(4, FLT_MAX)], 3) == (o.smallest_above(4 * FLT_MAX / 7), 0)


# ---- quantization --------------------------------------------------------------------------------


@given(finite32, scales, targets, words, words)
@settings(fixed, max_examples=600)
def test_quantize_is_the_exact_quotient_rounded(x, s, target, u, z):
    kind, bits = target
    z = z % 2**bits if kind == "asym" else None
    low, high = (-o.top_code(bits), o.top_code(bits)) if z is None else (0, 2**bits - 1)
    quotient = o.fraction_of_bits(x) / s + (z or 0)
    for rounding in o.ROUNDINGS:
        code, saturated = o.quantize(o.fraction_of_bits(x), s, bits, rounding, u, z)
        assert low <= code <= high
        if saturated:
            assert (code == high and quotient > high) or (code == low and quotient < low)
        elif rounding == "stochastic":
            assert code <= quotient + Fraction(u, 2**32) < code + 1
        else:
            assert abs(code - quotient) <= HALF


def test_quantize_ties():
    for bits in SYM:
        q = o.top_code(bits)
        for c in {0, 1, q // 2, q - 1} - {q}:
            for sign in (1, -1):
                x = sign * (c + HALF) * Fraction(3, 4)
                assert o.quantize(x, Fraction(3, 4), bits, "half_away") == (sign * (c + 1), False)
                even = c + c % 2
                assert o.quantize(x, Fraction(3, 4), bits, "half_even") == (sign * even, False)


@given(st.lists(finite32, min_size=1, max_size=6), st.sampled_from(SYM), st.booleans())
@fixed
def test_dynamic_quantize(patterns, bits, power):
    values = [o.fraction_of_bits(b) for b in patterns]
    s = o.sym_scale_of_floats(values, bits, power)
    q = o.top_code(bits)
    absmax = max(map(abs, values))
    for rounding in EXACT:
        results = [o.quantize(v, s, bits, rounding) for v in values]
        if absmax <= q * s:
            assert not any(saturated for _, saturated in results)
        if s > FLT_MIN and absmax and not power:
            assert max(abs(c) for c, _ in results) == q


@given(st.integers(-65535, 65535), scales)
@fixed
def test_values_are_one_rounding(m, s):
    bits = o.dequantize(m, s)
    assert o.fraction_of_bits(bits) == o.nearest(m * s)
    assert o.dequantize(m + 77, s, 77) == bits
    assert m == 0 or abs(o.fraction_of_bits(bits)) >= FLT_MIN
    assert m or bits == 0


# ---- bytes and granularity -----------------------------------------------------------------------


@given(st.integers(1, 16), st.booleans(), st.data())
@fixed
def test_packing_bit_by_bit(bits, signed, data):
    low = -(2 ** (bits - 1)) if signed else 0
    codes = data.draw(st.lists(st.integers(low, low + 2**bits - 1), max_size=20))
    packed = o.pack(codes, bits)
    assert len(packed) == math.ceil(len(codes) * bits / 8)
    for k in range(8 * len(packed)):
        i, b = divmod(k, bits)
        wanted = codes[i] >> b & 1 if i < len(codes) else 0
        assert packed[k // 8] >> k % 8 & 1 == wanted
    assert o.unpack(packed, len(codes), bits, signed) == codes
    if bits in (8, 16):
        assert packed == b"".join(c.to_bytes(bits // 8, "little", signed=signed) for c in codes)


def test_layout_table():
    n = (2, 3, 4)
    assert o.layout(n) == ([0] * 24, ())
    assert o.layout(n, axis=1) == ([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2] * 2, (3,))
    assert o.layout(n, axis=-1) == ([0, 1, 2, 3] * 6, (4,))
    assert o.layout(n, axis="row") == ([r for r in range(6) for _ in range(4)], (2, 3))
    row = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert o.layout(n, group=5) == ([*row, *(g + 3 for g in row)], (2, 3))
    ragged = [2 * r + g for r in range(6) for g in (0, 0, 0, 1)]
    assert o.layout(n, group=3, affine=True) == (ragged, (2, 3, 2))
    assert o.layout((5,), group=2) == ([0, 0, 1, 1, 2], (3,))
    assert o.layout((5,), group=2, affine=True) == ([0, 0, 1, 1, 2], (3,))
    assert o.layout((), group=2) == ([0], (1,))
    assert o.layout((3, 0), group=2) == ([], (3, 0))
    assert o.layout((0, 3), axis=1) == ([], (3,))
    assert o.layout((0,)) == ([], ())


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.sampled_from(["tensor", "axis", "row", "group"]),
    st.integers(1, 7),
    st.sampled_from([(8, "packed"), (3, "packed"), (5, 8), (12, 16), (2, 32)]),
    st.booleans(),
    st.booleans(),
)
@fixed
def test_bytes_are_counted(shape, granularity, group, width, asymmetric, power):
    bits, container = width
    axis = {"axis": len(shape) - 1, "row": "row"}.get(granularity)
    run = group if granularity == "group" else None
    index, scale_shape = o.layout(shape, axis, run)
    count = math.prod(scale_shape)
    assert all(0 <= g < count for g in index)
    zeros = [1] * count if asymmetric else []
    data = o.stored([0] * len(index), bits, [Fraction(1)] * count, zeros, container, power)
    kind = "Asym" if asymmetric else "Sym"
    assert o.nbytes(kind, bits, shape, container, axis, run, power) == len(data)


def test_stored_bytes():
    data = o.stored([1, -1, 3], 3, [Fraction(1)], [], "packed")
    assert data == bytes([0b11111001, 0b0]) + bytes.fromhex("0000803f")
    assert o.stored([1, 2], 8, [Fraction(1, 4)], [258], power=True) == bytes([1, 2, 0xFE, 2, 1])
    assert o.stored([-2], 4, [Fraction(1)], container=16)[:2] == b"\xfe\xff"
    assert o.nbytes("Float32", 32, (3, 5)) == 60
    assert o.nbytes("SymInt32", 12, (3,)) == 16
    assert o.nbytes("Sym", 8, (0,)) == 4


# ---- the affine family ---------------------------------------------------------------------------


def as_float(bits: int, kind: str) -> float:
    return struct.unpack(STRUCT[kind], bits.to_bytes(o.FLOATS[kind].width // 8, "little"))[0]


def as_bits(value: float, kind: str) -> int:
    return int.from_bytes(struct.pack(STRUCT[kind], value), "little")


def single(value: float) -> float:
    """Rounded to float32; exact quotients and products of float32 come out rounded once."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@given(data=st.data())
@settings(fixed, max_examples=300)
def test_affine_in_machine_floats(dtype, data):
    """The machine's own doubles do what the oracle says; float32 through them."""
    to = float if dtype == "float64" else single
    width = {"float64": 64, "float32": 32, "float16": 16}[dtype]
    reals = st.floats(-1e4, 1e4, width=width).filter(lambda v: v == 0 or abs(v) > 1e-3)
    x, dy = data.draw(reals), data.draw(reals)
    s = data.draw(st.floats(2.0**-10, 2.0**10, width=min(width, 32)))
    zp = data.draw(st.integers(-200, 200))
    qmin, qmax = data.draw(st.sampled_from([(-128, 127), (0, 255), (-8, 7), (-(2**31), 2**31 - 1)]))
    in_range = data.draw(st.sampled_from(["inclusive", "strict"]))
    a = oa.Affine(dtype, [0], [Fraction(s)], [zp], qmin, qmax, "half_even", in_range)
    bits, dbits = as_bits(x, dtype), as_bits(dy, dtype)

    n = round(to(x * to(1 / s))) + zp
    code = max(qmin, min(qmax, n))
    passes = qmin < n < qmax if in_range == "strict" else qmin <= n <= qmax
    value = to(to(code - zp) * s)
    assume(dtype != "float16" or max(abs(value), abs(to(dy * s)), abs(to(dy / s))) < 65504)
    assert oa.quantize_affine(a, [bits]) == [code]
    assert oa.fake_quantize_affine(a, [bits]) == [as_bits(value, dtype)]
    assert oa.dequantize_affine(a, [code]) == [as_bits(value, dtype)]
    mask = oa.in_range_mask(a, [bits])
    assert mask == [passes]
    zero = math.copysign(0.0, dy)
    gradient = to(dy / s) if passes else zero
    assert oa.quantize_affine_backward(a, [dbits], mask) == [as_bits(gradient, dtype)]
    passed = dy if passes else zero
    assert oa.fake_quantize_affine_backward(a, [dbits], mask) == [as_bits(passed, dtype)]
    assert oa.dequantize_affine_backward(a, [dbits]) == [as_bits(to(dy * s), dtype)]


def test_affine_rounds_each_operation():
    """r, then x * r; the difference, then the product: one rounding less gives another result."""
    seventh = o.nearest(Fraction(1, 7))
    x = 0x3FF6DB6E  # 13.5 sevenths, as near as float32 comes
    a = oa.Affine("float32", [0], [seventh], [0], -128, 127)
    assert oa.quantize_affine(a, [x]) == [13]
    assert o.half_even(o.nearest(o.fraction_of_bits(x) * (1 / seventh))) == 14
    a = oa.Affine("float32", [0], [Fraction(3)], [-3], 0, 2**24)
    assert oa.dequantize_affine(a, [2**24]) == [o.bits_of_fraction(3 * (2**24 + 4))]
    assert o.nearest(3 * (2**24 + 3)) != 3 * (2**24 + 4)


def test_affine_edges():
    largest = o.bits_of_fraction(FLT_MAX)
    a = oa.Affine("float32", [0, 0], [FLT_MIN], [3], -128, 127)
    assert oa.quantize_affine(a, [largest, largest + 2**31]) == [127, -128]  # x * r is infinite
    assert a.unclamped([largest], 0) == 2**33 + 3
    a = oa.Affine("float32", [0], [Fraction(2)], [0], -128, 127)
    tiny = o.bits_of_fraction(FLT_MIN) + 2**31
    assert oa.quantize_affine_backward(a, [tiny], [True]) == [2**31]  # below the normal numbers
    assert oa.quantize_affine_backward(a, [tiny + (1 << 23)], [True]) == [tiny]
    assert oa.dequantize_affine_backward(a, [1]) == [2]  # a product may be subnormal
    assert oa.quantize_affine_backward(a, [0xBF800000], [False]) == [2**31]
    assert oa.fake_quantize_affine_backward(a, [0xBF800000, 0x3F800000], [False, False]) == [
        2**31,
        0,
    ]
    one = o.bits_of_fraction(Fraction(1))
    a = oa.Affine("float32", [0], [Fraction(1)], [-(2**31)], -(2**31), 2**31 - 1)
    assert oa.dequantize_affine(a, [2**31 - 1]) == [one + (32 << 23)]  # 2^32 - 1 rounds to 2^32
    assert oa.pack_mask([True] + [False] * 7 + [True, True]) == b"\x01\x03"
    assert oa.pack_mask([]) == b""
    smallest = o.FLOATS["float64"]
    a = oa.Affine("float64", [0], [o.pow2(smallest.emin)], [0], -128, 127)
    assert oa.quantize_affine(a, [1 << 52]) == [1]


@pytest.mark.parametrize("rounding", o.ROUNDINGS)
@pytest.mark.parametrize("in_range", ["inclusive", "strict"])
def test_gradient_passes_exactly_where_the_code_is_in_range(rounding, in_range):
    x = [o.bits_of_fraction(Fraction(i - 150, 16)) for i in range(300)]
    codes_of = ([0] * 300, [Fraction(1, 4)], [5], -20, 21)
    a = oa.Affine("float32", *codes_of, rounding, in_range, o.key(3))
    dy = [o.bits_of_fraction(Fraction(1))] * 300
    mask = oa.in_range_mask(a, x)
    codes = oa.quantize_affine(a, x)
    dx = oa.fake_quantize_affine_backward(a, dy, mask)
    inside = [-20 < c < 21 for c in codes]
    assert {-20, 21} < set(codes)
    assert [d != 0 for d in dx] == mask
    assert all(m for m, i in zip(mask, inside, strict=True) if i)
    if in_range == "strict":
        assert mask == inside


def test_qparams():
    x = [o.bits_of_fraction(Fraction(v, 4)) for v in (-5, 3, 0, 0, 10, 6)]
    found, zeros = oa.qparams(x, [0, 0, 1, 1, 2, 2], 3, 8, True, "float32")
    assert zeros == [0, 0, 0]
    assert found == [o.scale(Fraction(5, 4), 1, 127), 1, o.scale(Fraction(5, 2), 1, 127)]
    found, zeros = oa.qparams(x, [0, 0, 1, 1, 2, 2], 3, 2, False, "float32")
    assert found == [o.smallest_above(Fraction(2, 3)), 1, o.smallest_above(Fraction(5, 6))]
    assert zeros == [2, 0, 0]
    bits = [o.bits_of_fraction(Fraction(1, 3), "float64")]
    (scale,), _ = oa.qparams(bits, [0], 1, 8, True, "float64")
    assert o.is_normal(scale, "float64")
    assert scale != o.smallest_above(scale, "float32")


# ---- the generator -------------------------------------------------------------------------------
# numpy serves the statistics only; its draws are checked against the oracle's first.
# All statistics have fixed seeds. A bound of 4.5 standard deviations fails a perfect generator with
# probability 7e-6 a number; about 400 numbers are looked at.

BOUND = 4.5
N = 2**16


def mix_np(x):
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def key_np(seed, step, tensor):
    seed, step, tensor = np.broadcast_arrays(
        *(np.atleast_1d(v).astype(np.uint32) for v in (seed, step, tensor))
    )
    b = mix_np(mix_np(seed + np.uint32(0x9E3779B9)) ^ step)
    c = mix_np(b + np.uint32(0x85EBCA6B) * (tensor + np.uint32(1)))
    return c, mix_np(c ^ b ^ np.uint32(0xC2B2AE35))


def draw_np(k, i):
    x = k[0] + np.atleast_1d(i).astype(np.uint32) * np.uint32(0x9E3779B9)
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) + k[1]
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def uniform_np(k, i):
    i = np.atleast_1d(i).astype(np.uint64)
    block = np.uint64(2) * (i >> np.uint64(5))
    lane = (i & np.uint64(31)).astype(np.uint32)
    b = draw_np(k, block + np.uint64(1)) | np.uint32(1)
    return draw_np(k, block) + lane * b


def chi_square(cells, bins):
    """(chi^2 - df) / sqrt(2 df) of integers in 0..bins-1."""
    counts = np.bincount(cells.astype(np.int64), minlength=bins)
    expected = len(cells) / bins
    chi = float(((counts - expected) ** 2).sum() / expected)
    return (chi - (bins - 1)) / math.sqrt(2 * (bins - 1))


def correlation(a, b):
    """The correlation of two lists of words in standard deviations."""
    x, y = (v.astype(np.float64) / 2**32 - 0.5 for v in (a, b))
    return float((x * y).sum() * 12 / math.sqrt(len(x)))


def test_numpy_draws_are_the_oracles():
    source = goldgen.Source(7)
    for _ in range(20):
        triple = [source.word() >> 32 for _ in range(3)]
        k = o.key(*triple)
        assert tuple(int(v[0]) for v in key_np(*triple)) == k
        index = [0, 1, 31, 32, 63, 2**32 - 1, source.word() >> 32, source.word() >> 40]
        assert draw_np(key_np(*triple), np.array(index)).tolist() == [o.draw(k, i) for i in index]
        assert uniform_np(key_np(*triple), np.array(index)).tolist() == [
            o.uniform(k, i) for i in index
        ]


def test_mix_is_a_bijection():
    """Undone step by step: odd factors have inverses mod 2^32."""

    def unshift(x: int, n: int) -> int:
        return x ^ x >> n ^ x >> 2 * n

    source = goldgen.Source(8)
    for x in [0, 1, 2**32 - 1, *(source.word() >> 32 for _ in range(200))]:
        y = unshift(o.mix(x), 16) * pow(0x846CA68B, -1, 2**32) % 2**32
        assert unshift(unshift(y, 15) * pow(0x7FEB352D, -1, 2**32) % 2**32, 16) == x


STREAMS = {
    "elements": lambda n: draw_np(key_np(0, 0, 0), np.arange(n)),
    "elements, another key": lambda n: draw_np(key_np(12345, 678, 9), np.arange(n)),
    "steps": lambda n: draw_np(key_np(1, np.arange(n), 0), 0),
    "tensors": lambda n: draw_np(key_np(1, 0, np.arange(n)), 0),
    "seeds": lambda n: draw_np(key_np(np.arange(n), 0, 0), 0),
    "u over blocks, lane 0": lambda n: uniform_np(key_np(0, 0, 0), 32 * np.arange(n)),
    "u over blocks, lane 1": lambda n: uniform_np(key_np(0, 0, 0), 32 * np.arange(n) + 1),
    "u over blocks, lane 31": lambda n: uniform_np(key_np(5, 6, 7), 32 * np.arange(n) + 31),
    "u over steps": lambda n: uniform_np(key_np(2, np.arange(n), 3), 17),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_streams_are_uniform_and_uncorrelated(stream):
    u = STREAMS[stream](16 * N)
    for shift in (0, 8, 16, 24):
        assert abs(chi_square(u >> np.uint32(shift) & np.uint32(255), 256)) < BOUND
    pairs = (u[0::2] >> np.uint32(26)) * np.uint32(64) + (u[1::2] >> np.uint32(26))
    assert abs(chi_square(pairs, 4096)) < BOUND
    for lag in (1, 2, 3, 7, 16, 32, 33, 256, 1024):
        assert abs(correlation(u[lag:], u[:-lag])) < BOUND


@pytest.mark.parametrize("function", [draw_np, uniform_np], ids=["draw", "uniform"])
def test_neighbouring_keys_are_uncorrelated(function):
    """Every 33rd element, so that no two lie in a block."""
    index = 33 * np.arange(N)
    base = (77, 5, 6)
    first = function(key_np(*base), index)
    for position, by in itertools.product(range(3), (1, 2, 3, 64, 2**16, 2**31)):
        moved = [v + by * (i == position) for i, v in enumerate(base)]
        assert abs(correlation(first, function(key_np(*moved), index))) < BOUND
    for swapped in itertools.permutations(base):
        if swapped != base:
            assert abs(correlation(first, function(key_np(*swapped), index))) < BOUND


@pytest.mark.parametrize("lag", range(1, 32))
def test_lanes_of_a_block_are_uncorrelated(lag):
    """One pair a block, so the pairs are independent; 16 x 16 cells and the correlation."""
    block = 32 * np.arange(4 * N)
    k = key_np(21, 22, 23)
    u, v = uniform_np(k, block), uniform_np(k, block + lag)
    assert abs(correlation(u, v)) < BOUND
    cells = (u >> np.uint32(28)) * np.uint32(16) + (v >> np.uint32(28))
    assert abs(chi_square(cells, 256)) < BOUND


def test_upper_27_bits_of_a_block_are_pairwise_independent():
    """u_j - u_i = d B with B odd: an odd multiple of 2^v, v <= 4, else free. On 10-bit words."""
    bits, low = 10, 5
    for d in range(1, 32):
        differences = sorted(d * b % 2**bits for b in range(1, 2**bits, 2))
        for a in (0, 1, 511):
            upper = [(a + x) % 2**bits >> low for x in differences]
            assert {upper.count(v) for v in range(2 ** (bits - low))} == {2 ** (low - 1)}


@pytest.mark.parametrize("part", [1, 10, 37, 50, 99])
def test_stochastic_rounding_is_unbiased(part):
    """Mean and variance of floor(y + u), over one tensor and over the steps of one element."""
    p = part / 100
    threshold = np.uint32(round((1 - p) * 2**32))
    streams = [uniform_np(key_np(4, 4, 4), np.arange(32 * N)), STREAMS["u over steps"](16 * N)]
    for u in streams:
        ups = (u >= threshold).astype(np.float64)
        assert abs(ups.mean() - p) / math.sqrt(p * (1 - p) / len(u)) < BOUND
    sums = (streams[0].reshape(-1, 32) >= threshold).sum(axis=1) - 32 * p
    variance = float((sums**2).mean() / (32 * p * (1 - p)))
    kurtosis = 32 / (p * (1 - p))  # at most: a sum of 32 is below 32, its variance 32 p (1 - p)
    assert abs(variance - 1) < BOUND * math.sqrt(kurtosis / len(sums))
