"""The oracle's floats, rounding, scales and bytes against the statements of docs/numerics.md."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction

import goldgen
import oracle as o
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import (
    EXACT,
    FLT_MAX,
    FLT_MIN,
    HALF,
    STRUCT,
    SYM,
    fixed,
    int32,
    kinds,
    scales,
    targets,
    words,
)

# ---- gold ----------------------------------------------------------------------------------------


def test_gold_files_are_what_the_generator_writes():
    assert goldgen.differences() == []


def test_gold_stays_small():
    assert sum(p.stat().st_size for p in goldgen.GOLD.iterdir()) < 700_000


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
