"""The oracle's requantization and quantization against the statements of docs/numerics.md."""

from __future__ import annotations

import itertools
from fractions import Fraction

import goldgen
import oracle as o
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import (
    ASYM,
    EXACT,
    FLT_MAX,
    FLT_MIN,
    HALF,
    SYM,
    finite32,
    fixed,
    int32,
    scale_pairs,
    scales,
    targets,
    words,
)

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
