"""The affine family's edges: found parameters, empty and strided arrays, descriptions."""

from __future__ import annotations

import inspect
from math import prod

import helpers as h
import numpy as np
import oracle as o
import oracle_affine as oa
import pytest
from helpers import FLT_MAX, FLT_MIN, KINDS, RULES, bits_of, dtype_of
from hypothesis import given, settings
from hypothesis import strategies as st

from pyqfw import quant
from pyqfw.errors import QfwError

fixed = settings(derandomize=True, deadline=None, database=None, max_examples=200)

OPS = (
    "quantize_affine",
    "dequantize_affine",
    "fake_quantize_affine",
    "quantize_affine_backward",
    "dequantize_affine_backward",
    "fake_quantize_affine_backward",
)


# --- qparams -------------------------------------------------------------------------------------


def check_params(x, kind, bits, symmetric, **grain):
    """Against the oracle; returns what was found."""
    index, shape = o.layout(x.shape, grain.get("axis"), grain.get("group"), affine=True)
    scale, zero = quant.qparams(x, bits, symmetric=symmetric, **grain)
    s, z = oa.qparams(bits_of(x), index, prod(shape), bits, symmetric, kind)
    precision = oa.compute_kind(kind)
    h.same_bits(scale, [o.bits_of_fraction(v, precision) for v in s], precision)
    assert zero.dtype == np.int32
    assert zero.reshape(-1).tolist() == z
    assert scale.shape == zero.shape == shape
    return scale, zero


def code_range(bits, symmetric):
    top = o.top_code(bits, asymmetric=not symmetric)
    return (-top if symmetric else 0), top


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_qparams_of_every_granularity(kind, symmetric):
    rng = np.random.default_rng(11)
    for shape in ((), (9,), (3, 5), (2, 3, 4), (2, 3, 2, 3), (0,), (3, 0), (0, 3)):
        for i, grain in enumerate(h.granularities(shape)):
            x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4)).astype(dtype_of(kind))
            check_params(x, kind, (8, 2, 16, 5, 1 + symmetric)[i % 5], symmetric, **grain)


@given(st.data())
@fixed
def test_qparams_of_any_run(data):
    kind = data.draw(st.sampled_from(KINDS))
    symmetric = data.draw(st.booleans())
    f = o.FLOATS[kind]
    patterns = st.integers(0, 2**f.width - 1).filter(lambda b: o.is_finite(b, kind))
    x = h.reals(data.draw(st.lists(patterns, min_size=1, max_size=9)), kind)
    check_params(x, kind, data.draw(st.integers(1 + symmetric, 16)), symmetric)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_qparams_of_zeros_subnormals_and_the_largest(kind, symmetric):
    dtype, precision = dtype_of(kind), oa.compute_kind(kind)
    for zeros in (np.zeros(5, dtype), np.full(5, -0.0, dtype), np.zeros(0, dtype)):
        scale, zero = check_params(zeros, kind, 8, symmetric)
        assert (scale, zero) == (1, 0)
    least = h.reals([1, 3, 2], kind)
    scale, _ = check_params(least, kind, 8, symmetric)
    if kind != "float16":  # whose subnormals are normal float32 numbers
        assert scale == np.finfo(precision).tiny
        codes = quant.quantize_affine(least, scale, 0, 0, 127)
        assert codes.tolist() == [0, 0, 0]
    top = o.bits_of_fraction(o.largest_finite(kind), kind)
    check_params(h.reals([top, top | 1 << (o.FLOATS[kind].width - 1)], kind), kind, 2, symmetric)


@given(st.integers(2, 16), st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
@fixed
def test_found_symmetric_parameters_never_saturate(bits, kind, seed):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(64) * 2.0 ** rng.integers(-12, 12)).astype(dtype_of(kind))
    scale, zero = quant.qparams(x, bits)
    _, mask = quant.quantize_affine(x, scale, zero, *code_range(bits, True), return_mask=True)
    assert mask.tobytes() == b"\xff" * 8


@given(st.integers(1, 16), st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
@fixed
def test_found_asymmetric_parameters_do_not_saturate_ordinary_data(bits, kind, seed):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(64) * 2.0 ** rng.integers(-12, 12)).astype(dtype_of(kind))
    scale, zero = quant.qparams(x, bits, symmetric=False)
    _, mask = quant.quantize_affine(x, scale, zero, *code_range(bits, False), return_mask=True)
    assert mask.tobytes() == b"\xff" * 8


def test_qparams_bits():
    x = np.ones(3, np.float32)
    for bits in (1, 0, 17, -8, 8.0, True, None):
        with pytest.raises(QfwError, match=r"^bits must be"):
            quant.qparams(x, bits)
    assert quant.qparams(x, 1, symmetric=False)[0] == 1
    with pytest.raises(QfwError, match=r"^bits must be"):
        quant.qparams(x, 0, symmetric=False)


# --- shapes of memory ----------------------------------------------------------------------------


def call(op, x, dy, codes, scale, zero, **how):
    """One operation on whatever of this it takes."""
    if op == "dequantize_affine":
        return quant.dequantize_affine(codes, scale, zero, dtype=x.dtype.newbyteorder("="), **how)
    if op == "dequantize_affine_backward":
        return quant.dequantize_affine_backward(dy, scale, **how)
    data = (dy, x) if op.endswith("backward") else (x,)
    return getattr(quant, op)(*data, scale, zero, -100, 99, **how)


def unaligned(a):
    raw = np.zeros(a.nbytes + 1, np.uint8)
    view = raw[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    assert a.size == 0 or a.itemsize == 1 or not view.flags.aligned
    return view


def read_only(a):
    b = a.copy()
    b.flags.writeable = False
    return b


def every_other(a):
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


def swapped(a):
    return a.astype(a.dtype.newbyteorder()) if a.dtype.kind in "fiu" else a


VIEWS = {
    "negative strides": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "fortran": np.asfortranarray,
    "every other": every_other,
    "swapped bytes": swapped,
    "unaligned": unaligned,
    "read-only": read_only,
    "list": lambda a: a if a.dtype != np.float64 else a.tolist(),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_reads_as_its_contiguous_copy(kind, view):
    see = VIEWS[view]
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((6, 10)) * 40).astype(dtype_of(kind))
    dy = rng.standard_normal((6, 10)).astype(dtype_of(kind))
    codes = rng.integers(-100, 100, (6, 10)).astype(np.int16)
    scale = rng.uniform(0.5, 2, (6, 3)).astype(oa.compute_kind(kind))
    zero = rng.integers(-5, 5, (6, 3)).astype(np.int32)
    for op in OPS:
        expected = call(op, x, dy, codes, scale, zero, group=4)
        seen = [see(a) for a in (x, dy)] if view != "list" else [x, dy]
        found = call(op, *seen, see(codes), see(scale), see(zero), group=4)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    for expected, found in zip(
        quant.qparams(x, 8, axis=1), quant.qparams(see(x), 8, axis=1), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_a_mask_may_be_strided_and_its_spare_bits_do_not_matter():
    dy = np.ones(11, np.float32)
    mask = np.array([0b10110001, 0, 0b11111101, 0], np.uint8)[::2]
    expected = [1, 0, 0, 0, 1, 1, 0, 1, 1, 0, 1]
    assert quant.fake_quantize_affine_backward(dy, mask=mask).tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", OPS)
def test_empty_arrays(op, kind):
    for shape in ((0,), (0, 3), (3, 0), (2, 0, 4), (0, 0, 2, 3)):
        for grain in h.granularities(shape):
            _, scale_shape = o.layout(shape, grain.get("axis"), grain.get("group"), affine=True)
            x, codes = np.empty(shape, dtype_of(kind)), np.empty(shape, np.int8)
            for points in ((1.0, 0), (np.ones(scale_shape), np.zeros(scale_shape, np.int32))):
                y = call(op, x, x, codes, *points, **grain)
                assert y.shape == shape
                out = np.empty_like(y)
                assert call(op, x, x, codes, *points, **grain, out=out) is out
                if op in ("quantize_affine", "fake_quantize_affine"):
                    assert call(op, x, x, codes, *points, **grain, return_mask=True)[1].size == 0


def test_an_empty_list_of_zero_points_is_no_float():
    x = np.empty((0, 3), np.float32)
    assert quant.quantize_affine(x, [], [], 0, 255, axis=0).shape == (0, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_any_real_type_are_taken_in_the_precision_of_the_computation(kind):
    x = np.linspace(-3, 3, 25).astype(dtype_of(kind))
    precision = oa.compute_kind(kind)
    for given_kind in KINDS:
        scale = np.array(0.3, dtype_of(given_kind))
        expected = quant.fake_quantize_affine(x, scale.astype(precision), 1, -8, 7)
        np.testing.assert_array_equal(quant.fake_quantize_affine(x, scale, 1, -8, 7), expected)
    small = np.array(2.0**-24, np.float16)  # subnormal there, normal here
    assert quant.quantize_affine(x[:1] * 0, small, 0, -8, 7).tolist() == [0]
    for s in (FLT_MIN, FLT_MAX):
        assert quant.quantize_affine(x[12:13], s, 5, -8, 7).tolist() == [5]


@pytest.mark.parametrize(("low", "high", "name"), [
    (-128, 127, "int8"),
    (0, 0, "int8"),
    (0, 128, "uint8"),
    (-1, 128, "int16"),
    (0, 32768, "uint16"),
    (-1, 32768, "int32"),
    (-(2**31), 2**31 - 1, "int32"),
])  # fmt: skip
def test_codes_have_the_smallest_type_that_holds_them(low, high, name):
    x = np.ones(2, np.float32)
    assert quant.quantize_affine(x, 1.0, 0, low, high).dtype.name == name
    assert quant.quantize_affine(x, 1.0, 0, low, high, dtype="int32").dtype.name == "int32"
    assert quant.quantize_affine(x, np.float32(1), None, low, high)[0] == min(1, high)


# --- what will run -------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", KINDS)
def test_describe(op, kind):
    x = np.ones((4, 64), dtype_of(kind))
    rules = [{"in_range": rule} for rule in RULES]
    if op == "dequantize_affine":
        x, rules = x.astype(np.int8), [{"dtype": dtype_of(kind)}]
    elif op == "dequantize_affine_backward":
        rules = [{}]
    for rule in rules:
        found = quant.describe(op, x, axis="row", **rule)
        assert found == quant.describe(getattr(quant, op), x, axis="row", **rule)
        assert (found.op, found.precision, found.workspace) == (op, oa.compute_kind(kind), 0)
        assert found.deterministic
        assert found.bit_stable
        names = dict.fromkeys(("avx2", "avx512"), "affine_rows_avx2")
        names["portable"] = "affine_rows_scalar"
        if (op, kind) == ("quantize_affine", "float32"):
            names["avx512"] = "affine_rows_avx512"
        assert found.kernel == names[found.isa]
    with quant.isa("portable"):
        assert quant.describe(op, x).isa == "portable"
        assert quant.describe(op, x).kernel == "affine_rows_scalar"


def test_describe_tells_the_isa_in_use():
    x = np.ones(64, np.float32)
    assert quant.describe(x, 0.5, 0, -8, 7) == quant.describe("quantize_affine", x, 0.5, 0, -8, 7)
    for isa in quant.core_info()["isas"]:
        with quant.isa(isa):
            assert quant.core_info()["isa"] == isa
            described = quant.describe("quantize_affine", x[:63], 0.5, 3, 0, 255, return_mask=True)
            assert described.isa == isa
            ragged = quant.describe(
                "quantize_affine", x, np.ones(7), None, group=10, return_mask=True
            )
            assert ragged.isa == "portable"
            odd = quant.describe("fake_quantize_affine", x, 0.5, 2**23, 0, 255)
            assert odd.isa == "portable"
            for op in ("quantize_affine", "fake_quantize_affine", "fake_quantize_affine_backward"):
                assert quant.describe(op, x).isa == isa
            assert quant.describe("quantize_affine", x, rounding="stochastic").isa == "portable"
            assert quant.describe("quantize_affine", x, dtype="int32").isa == "portable"
    with pytest.raises(QfwError, match=r"^isa must be"), quant.isa("neon"):
        pass


@pytest.mark.parametrize("op", ["quantize", "", len, quant.qparams, 42, None])
def test_describe_refuses_an_unknown_op(op):
    with pytest.raises(QfwError, match=r"^op must be one of quantize_affine, "):
        quant.describe(op, np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qmin": 1, "qmax": 0}, "qmax must be at least qmin"),
        ({"dtype": "int8", "qmax": 200}, r"-128\.\.200 do not fit int8"),
        ({"rounding": "up"}, "^rounding"),
        ({"in_range": "open"}, "^in_range"),
        ({"group": 4, "exact": True}, "group=4 does not divide 6"),
        ({"axis": 2}, "axis=2"),
    ],
)
def test_describe_checks_what_a_call_would(changes, message):
    with pytest.raises(QfwError, match=message):
        quant.describe("quantize_affine", np.ones((2, 6), np.float32), **changes)


def test_dequantize_has_the_precision_of_its_scale():
    x = np.random.default_rng(0).standard_normal(7)
    for scale in (np.float64(0.1), np.array(0.1), *(quant.qparams(x, 8)[:1])):
        codes = quant.quantize_affine(x, scale, 0, -128, 127)
        y = quant.dequantize_affine(codes, scale, 0)
        assert y.dtype == np.float64
        np.testing.assert_array_equal(y, quant.fake_quantize_affine(x, scale, 0, -128, 127))
    for scale in (0.1, np.float32(0.1), np.float16(0.1)):
        assert quant.dequantize_affine(codes, scale).dtype == np.float32
    assert quant.dequantize_affine(codes, np.float64(0.1), dtype=np.float32).dtype == np.float32
    assert quant.dequantize_affine(np.int8([1]), np.float64(1e300)).tolist() == [1e300]


@pytest.mark.parametrize("op", OPS)
def test_functions_say_what_they_return(op):
    function = getattr(quant, op)
    signature = inspect.signature(function)
    assert signature.return_annotation.startswith("Array")
    assert ("tuple" in signature.return_annotation) == ("return_mask" in signature.parameters)
    assert function.__doc__
    assert function.__name__ == op


def test_in_place():
    x = np.linspace(-3, 3, 101, dtype=np.float32)
    expected = quant.fake_quantize_affine(x, 0.1, 3, -8, 7)
    for isa in quant.core_info()["isas"]:
        with quant.isa(isa):
            y = x.copy()
            assert quant.fake_quantize_affine(y, 0.1, 3, -8, 7, out=y) is y
            np.testing.assert_array_equal(y, expected)
            dy = x.copy()
            quant.quantize_affine_backward(dy, x, 0.1, 3, -8, 7, out=dy)
            np.testing.assert_array_equal(dy, quant.quantize_affine_backward(x, x, 0.1, 3, -8, 7))
