"""QTensor, quantize and requant: what they promise and what they refuse."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyqfw as q

FLT_MIN, FLT_MAX = np.finfo(np.float32).tiny, np.finfo(np.float32).max
ROUNDINGS = ("half_away", "half_even", "stochastic")


def accumulator(codes: object, scale: float = 0.37) -> q.QTensor:
    return q.QTensor.from_codes(codes, q.SymInt32(32), scale=scale)


# --- QTensor -------------------------------------------------------------------------------------


def test_from_codes_by_hand() -> None:
    t = q.QTensor.from_codes([[1, -2], [7, 0]], q.Sym(4), scale=0.5)
    assert (t.shape, t.format, t.nbytes, t.saturated) == ((2, 2), q.Sym(4), 2 + 4, 0)
    assert t.codes.dtype == np.int8
    np.testing.assert_array_equal(t.codes, [[1, -2], [7, 0]])
    np.testing.assert_array_equal(t.numpy(), np.float32([[0.5, -1], [3.5, 0]]))
    assert t.data == bytes([0xE1, 0x07]) + np.float32(0.5).tobytes()
    assert t.zero_point is None
    assert t.scale == 0.5
    assert "Sym(4)" in repr(t)
    assert "2x2" in repr(t)


def test_asym_by_hand() -> None:
    t = q.QTensor.from_codes([0, 3, 7], q.Asym(3, scale="pow2"), scale=0.25, zero_point=3)
    np.testing.assert_array_equal(t.numpy(), np.float32([-0.75, 0, 1]))
    assert (t.zero_point.dtype, int(t.zero_point)) == (np.int32, 3)
    assert t.codes.dtype == np.uint8
    assert t.data == bytes([0b11011000, 0b1, 0xFE, 3, 0])
    plain = q.QTensor.from_codes([0, 3, 7], q.Asym(3), scale=0.25)
    np.testing.assert_array_equal(plain.numpy(), np.float32([0, 0.75, 1.75]))


def test_an_accumulator_by_hand() -> None:
    t = accumulator([2**31 - 1, -(2**31), 5], 1.5)
    assert t.codes.dtype == np.int32
    assert t.nbytes == 16
    expected = [oracle.dequantize(c, Fraction(3, 2)) for c in (2**31 - 1, -(2**31), 5)]
    assert t.numpy().view(np.uint32).tolist() == expected


@given(st.integers(-(2**31), 2**31 - 1), st.floats(float(FLT_MIN), float(FLT_MAX), width=32))
@settings(derandomize=True, deadline=None)
def test_values_are_rounded_once(m: int, s: float) -> None:
    expected = oracle.dequantize(m, Fraction(s))
    assert accumulator([m], s).numpy().view(np.uint32).tolist() == [expected]


def test_no_tensor_is_made_of_values_beyond_float32() -> None:
    t = q.QTensor.from_codes([1, 127], q.Sym(8), scale=3e38)
    assert np.isinf(t.numpy()).tolist() == [False, True]
    with pytest.raises(q.NonFiniteError, match=r"Sym\(8\) to Float32\(\): value\[1\]"):
        t.to(q.Float32())


def test_tensors_are_immutable_and_own_their_data() -> None:
    scale = np.float32([1, 2])
    x = np.ones((2, 3), np.float32)
    for t in (
        q.QTensor.from_codes([[1], [2]], q.Sym(8, axis=0), scale=scale),
        q.quantize(x, q.Sym(8)),
        q.quantize(x, q.Float32()),
    ):
        before = bytes(t.data)
        scale[:], x[:] = 5, 5
        assert t.data == before
        for array in (t.codes, t.scale):
            if array is not None:
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 1
    assert scale.flags.writeable
    assert x.flags.writeable


def test_numpy_sees_values() -> None:
    t = q.QTensor.from_codes([1, -2], q.Sym(8), scale=0.5)
    np.testing.assert_array_equal(np.asarray(t), np.float32([0.5, -1]))
    assert np.asarray(t, dtype=np.float64).dtype == np.float64


def test_changing_only_the_container_keeps_every_bit() -> None:
    t = q.QTensor.from_codes([1, -3, 2], q.Sym(5), scale=0.3)
    for fmt in (q.Sym(5, container=8), q.Sym(5, container=32), q.SymInt32(5)):
        wide = t.to(fmt)
        np.testing.assert_array_equal(wide.codes, t.codes)
        assert wide.scale == t.scale
        assert wide.to(t.format).data == t.data


def test_to_says_the_format_as_it_was_asked_for() -> None:
    t = q.quantize(np.float32([0.5, -1]), q.Sym(8))
    same = t.to(q.Sym(8, container=8))
    assert same.format.container == 8
    assert same.data == t.data


def test_a_fixed_range_becomes_dynamic() -> None:
    t = q.quantize(np.float32([0.5, -1]), q.Sym(8, range=100.0))
    assert t.codes.tolist() == [1, -1]
    assert t.to(q.Sym(8)).codes.tolist() == [127, -127]
    assert t.to(q.Sym(8, range=50.0)).codes.tolist() == [2, -2]


@pytest.mark.parametrize(
    ("codes", "fmt", "points", "error", "words"),
    [
        ([1], "sym8", {"scale": 1}, q.DTypeError, "fmt must be a format"),
        ([8], q.Sym(4), {"scale": 1}, q.QfwError, "-7..7"),
        ([-8], q.Sym(4), {"scale": 1}, q.QfwError, "-7..7"),
        ([-1], q.Asym(4), {"scale": 1}, q.QfwError, "0..15"),
        ([2**31], q.SymInt32(32), {"scale": 1}, q.QfwError, "codes"),
        ([1.0], q.Sym(4), {"scale": 1}, q.DTypeError, "codes"),
        ([1], q.Sym(4), {}, q.ScaleError, "needs a scale"),
        ([1], q.Sym(4), {"scale": 0.0}, q.ScaleError, "scale"),
        ([1], q.Sym(4), {"scale": -1.0}, q.ScaleError, "scale"),
        ([1], q.Sym(4), {"scale": np.nan}, q.ScaleError, "scale"),
        ([1], q.Sym(4), {"scale": np.inf}, q.ScaleError, "scale"),
        ([1], q.Sym(4), {"scale": 1e-39}, q.ScaleError, "normal"),
        ([1], q.Sym(4), {"scale": 1e39}, q.ScaleError, "finite"),
        ([1], q.Sym(4), {"scale": "one"}, q.DTypeError, "scale"),
        ([1], q.Sym(4), {"scale": [1.0, 2.0]}, q.ShapeError, "scale"),
        ([1, 2], q.Sym(4, axis=0), {"scale": [1.0, 2.0, 3.0]}, q.ShapeError, r"\(2,\)"),
        ([1], q.Sym(4, scale="pow2"), {"scale": 0.3}, q.ScaleError, "powers of two"),
        ([1], q.Sym(4), {"scale": 1, "zero_point": 0}, q.ScaleError, "no zero_point"),
        ([1], q.Asym(4), {"scale": 1, "zero_point": 16}, q.ScaleError, "0..15"),
        ([1], q.Asym(4), {"scale": 1, "zero_point": -1}, q.ScaleError, "0..15"),
        ([1], q.Asym(4), {"scale": 1, "zero_point": 0.5}, q.DTypeError, "zero_point"),
        ([1.0], q.Float32(), {"scale": 1}, q.QfwError, "neither"),
    ],
)
def test_from_codes_refuses(codes, fmt, points, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        q.QTensor.from_codes(codes, fmt, **points)
    assert isinstance(caught.value, ValueError)


# --- quantize ------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9),
    st.integers(2, 16),
    st.sampled_from(ROUNDINGS),
)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_quantize_rounds_the_exact_quotient(x: list[float], bits: int, rounding: str) -> None:
    t = q.quantize(np.float32(x), q.Sym(bits), rounding=rounding, seed=5)
    s = oracle.sym_scale_of_floats([Fraction(v) for v in x], bits)
    assert Fraction(float(t.scale)) == s
    key = oracle.key(5)
    expected = [
        oracle.quantize(Fraction(v), s, bits, rounding, oracle.uniform(key, i))[0]
        for i, v in enumerate(x)
    ]
    assert t.codes.tolist() == expected
    if rounding != "stochastic":
        assert t.saturated == 0
        assert np.abs(t.codes).max() == t.format.qmax or t.scale == FLT_MIN or not any(x)


def test_ties_of_a_scale_that_is_no_power_of_two() -> None:
    x = np.float32([1.5, 4.5, 7.5, -1.5, -4.5, -7.5])
    away = q.quantize(x, q.Sym(8), scale=3.0)
    even = q.quantize(x, q.Sym(8), scale=3.0, rounding="half_even")
    assert away.codes.tolist() == [1, 2, 3, -1, -2, -3]
    assert even.codes.tolist() == [0, 2, 2, 0, -2, -2]


def test_a_fixed_range_saturates_and_counts() -> None:
    t = q.quantize(np.float32([0.25, 1.0, 1.5, -3.0]), q.Sym(8, range=1.0))
    assert t.codes.tolist() == [32, 127, 127, -127]
    assert t.saturated == 2
    u = q.quantize(np.float32([0.25, 1.0, 1.5, -3.0]), q.Asym(8, range=1))
    assert u.codes.tolist() == [64, 255, 255, 0]
    assert (u.saturated, int(u.zero_point)) == (2, 0)


def test_hindsight_without_a_past_is_dynamic() -> None:
    x = np.float32([0.1, -2.0])
    fixed, now = (q.quantize(x, q.Sym(8, range=r)) for r in ("hindsight", "dynamic"))
    assert fixed.data == now.data


@pytest.mark.parametrize("fmt", [q.Sym(8), q.Asym(8), q.Sym(5, axis="row"), q.BFP(6, 2)], ids=repr)
def test_zero_and_empty_tensors(fmt: q.Format) -> None:
    zero = q.quantize(np.zeros((2, 3), np.float32), fmt)
    assert not zero.codes.any()
    np.testing.assert_array_equal(zero.scale, np.ones(fmt.scale_shape((2, 3))))
    for shape in ((0,), (2, 0), (0, 3)):
        empty = q.quantize(np.zeros(shape, np.float32), fmt)
        assert empty.codes.shape == empty.numpy().shape == shape
        assert len(empty.data) == fmt.nbytes(shape)


def test_a_scale_that_would_underflow_is_the_smallest_normal() -> None:
    t = q.quantize(np.float32([1e-45, -1e-44]), q.Sym(8))
    assert t.scale == FLT_MIN
    assert t.codes.tolist() == [0, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fmt", [q.Sym(8), q.Sym(4), q.Asym(8), q.Float32(), q.Sym(8, group=2)])
def test_non_finite_data_is_refused_by_place(value: float, fmt: q.Format) -> None:
    x = np.ones((2, 3), np.float32)
    x[1, 2] = value
    with pytest.raises(q.NonFiniteError, match=r"x\[1, 2\]"):
        q.quantize(x, fmt)
    if not isinstance(fmt, q.Float32):
        with pytest.raises(q.NonFiniteError, match=r"x\[1, 2\]"):
            q.quantize(x, fmt, scale=1.0)


def test_any_real_array_is_taken_as_float32() -> None:
    x = np.array([0.5, -1.25, 2.0])
    expected = q.quantize(x.astype(np.float32), q.Sym(8)).data
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
        assert q.quantize(x.astype(dtype), q.Sym(8)).data == expected
    assert q.quantize([0.5, -1.25, 2.0], q.Sym(8)).data == expected
    strided = np.zeros((3, 2))
    strided[:, 1] = x
    assert q.quantize(strided[:, 1], q.Sym(8)).data == expected
    assert q.quantize(x[::-1], q.Sym(8)).codes.tolist() == [127, -79, 32]
    assert q.quantize(np.array([1, 2]), q.Sym(8)).scale == q.quantize([1.0, 2.0], q.Sym(8)).scale
    with pytest.raises(q.NonFiniteError, match=r"x\[1\] is 1e\+300: .* finite in float32"):
        q.quantize(np.array([1.0, 1e300]), q.Sym(8))
    for bad in (np.array([1j]), np.array(["a"]), np.array([None]), np.array([True])):
        with pytest.raises(q.DTypeError, match="x must be real"):
            q.quantize(bad, q.Sym(8))


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"fmt": 8}, "Sym"),
        ({"fmt": q.SymInt32(32)}, "accumulator"),
        ({"rounding": "up"}, "half_away"),
        ({"seed": -1}, "seed"),
        ({"step": 2**32}, "step"),
        ({"stream": 1.5}, "stream"),
        ({"zero_point": 3}, "without scale"),
        ({"scale": np.ones(3)}, "scale"),
        ({"fmt": q.Sym(8, axis=2)}, "axis"),
        ({"fmt": q.Float32(), "scale": 1.0}, "neither"),
    ],
)
def test_quantize_refuses(keywords: dict, words: str) -> None:
    with pytest.raises(q.QfwError if "axis" not in words else ValueError, match=words):
        q.quantize(np.ones(2, np.float32), **{"fmt": q.Sym(8), **keywords})


# --- requant -------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8),
    st.integers(2, 16),
    st.floats(float(FLT_MIN), float(FLT_MAX), width=32),
    st.sampled_from(ROUNDINGS),
)
@settings(derandomize=True, deadline=None, max_examples=400)
def test_dynamic_requant(codes: list[int], bits: int, s_in: float, rounding: str) -> None:
    t = accumulator(codes, s_in)
    made = q.requant(t, bits, rounding=rounding, seed=9)
    s_out = oracle.scale(Fraction(s_in), max(map(abs, codes)), 2 ** (bits - 1) - 1)
    assert Fraction(float(made.scale)) == s_out
    key = oracle.key(9)
    expected = [
        oracle.requantize(a, Fraction(s_in), s_out, bits, rounding, oracle.uniform(key, i))[0]
        for i, a in enumerate(codes)
    ]
    assert made.codes.tolist() == expected
    fixed = q.requant(t, bits, scale=made.scale, rounding=rounding, seed=9)
    assert fixed.data == made.data
    assert fixed.saturated == made.saturated
    if rounding != "stochastic" and s_out < FLT_MAX:
        assert made.saturated == 0
        again = q.requant(made, bits, rounding=rounding)
        assert again.data == made.data


def test_requant_containers() -> None:
    t = accumulator([100, -50])
    for bits, container, expected in (
        (8, None, q.Sym(8)),
        (4, None, q.Sym(4, container=8)),
        (12, None, q.Sym(12, container=16)),
        (12, 32, q.SymInt32(12)),
        (4, 16, q.Sym(4, container=16)),
    ):
        made = q.requant(t, bits, container=container)
        assert made.format == expected
        assert made.codes.dtype == expected.code_dtype


def test_requant_keeps_the_granularity() -> None:
    t = q.QTensor.from_codes([[90, 3], [4, 5]], q.Sym(8, axis=0), scale=[1.0, 2.0])
    made = q.requant(t, 4)
    assert made.format.axis == 0
    assert made.codes.tolist() == [[7, 0], [6, 7]]
    assert q.requant(t, 4, container=32).codes.dtype == np.int32


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: q.requant(t, 1), "2..16"),
        (lambda t: q.requant(t, 17), "2..16"),
        (lambda t: q.requant(t, 8.0), "bits"),
        (lambda t: q.requant(t, True), "bits"),
        (lambda t: q.requant(t, 8, scale=0), "scale"),
        (lambda t: q.requant(t, 8, scale=[1, 2]), "scale"),
        (lambda t: q.requant(t, 12, container=8), "container"),
        (lambda t: q.requant(t, 8, container=7), "container"),
        (lambda t: q.requant(t, 8, rounding="down"), "rounding"),
        (lambda t: q.requant(np.ones(3), 8), "quantize"),
        (lambda t: q.requant(q.quantize([1.0], q.Float32()), 8), "quantize"),
    ],
)
def test_requant_refuses(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(accumulator([1]))
