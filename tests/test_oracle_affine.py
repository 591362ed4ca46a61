"""The oracle's affine family against machine floats and docs/numerics.md."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import oracle as o
import oracle_affine as oa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import FLT_MAX, FLT_MIN, STRUCT, fixed

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
