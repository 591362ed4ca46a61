"""What the affine family refuses: by name, with a word on the argument, and nothing written."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from helpers import KINDS, dtype_of

from pyqfw import quant
from pyqfw.errors import DTypeError, NonFiniteError, QfwError, ScaleError, ShapeError

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 6)
MASK = np.full(2, 255, np.uint8)
POINTS = {"scale": 0.5, "zero_point": 3}
LIMITS = {"qmin": -8, "qmax": 7}
BASE: dict[str, dict[str, Any]] = {
    "quantize_affine": {"x": X, **POINTS, **LIMITS},
    "fake_quantize_affine": {"x": X, **POINTS, **LIMITS},
    "dequantize_affine": {"codes": np.ones((2, 6), np.int8), **POINTS},
    "quantize_affine_backward": {"dy": X, "x": X, **POINTS, **LIMITS},
    "fake_quantize_affine_backward": {"dy": X, "x": X, **POINTS, **LIMITS},
    "dequantize_affine_backward": {"dy": X, "scale": 0.5},
    "qparams": {"x": X, "bits": 8},
}
BACKWARDS = ("quantize_affine_backward", "fake_quantize_affine_backward")
TAKES = {op: set(inspect.signature(getattr(quant, op)).parameters) for op in BASE}
SENTINEL = 85


def output(op: str, arguments: dict[str, Any]) -> np.ndarray:
    """An array fit for the result, filled with a pattern."""
    data = next(arguments[k] for k in ("dy", "x", "codes") if arguments.get(k) is not None)
    given = np.asarray(data)
    real = given.dtype if given.dtype.name in KINDS else np.dtype(np.float32)
    kind = np.dtype(arguments.get("dtype", np.int8 if op == "quantize_affine" else real))
    return np.full(given.shape, SENTINEL, kind)


def refused(op: str, error: type[Exception], message: str, **changes: Any) -> None:
    """The call fails as said, with and without `out`, which keeps its pattern."""
    arguments = {**BASE[op], **changes}
    with pytest.raises(error, match=message):
        getattr(quant, op)(**arguments)
    if "out" in TAKES[op] and "out" not in changes:
        out = output(op, arguments)
        before = out.tobytes()
        with pytest.raises(error, match=message):
            getattr(quant, op)(**arguments, out=out)
        assert out.tobytes() == before


def everywhere(*names: str) -> list[str]:
    """The operations that take all these arguments."""
    return [op for op in BASE if set(names) <= TAKES[op]]


def test_the_calls_work_before_they_are_spoilt():
    for op, arguments in BASE.items():
        getattr(quant, op)(**arguments)
        if "out" in TAKES[op]:
            out = output(op, arguments)
            getattr(quant, op)(**arguments, out=out)
            assert not np.all(out == SENTINEL)
    for op in BACKWARDS:
        getattr(quant, op)(X, mask=MASK, scale=0.5)


# --- data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_non_finite_data_is_named_with_its_place(kind, bad):
    good = X.astype(dtype_of(kind))
    for at in ((0, 0), (0, 5), (1, 3)):
        x = good.copy()
        x[at] = bad
        for grain in ({}, {"axis": 1}, {"axis": "row"}, {"group": 4}):
            for op in everywhere("x"):
                changes = {"x": x, "dy": good} if "dy" in BASE[op] else {"x": x}
                words = rf"^{op}: x\[{at[0]}, {at[1]}\] is {bad}"
                refused(op, NonFiniteError, words, **changes, **grain)
            for op in everywhere("dy"):
                changes = {"dy": x, "x": good} if "x" in BASE[op] else {"dy": x}
                words = rf"^{op}: dy\[{at[0]}, {at[1]}\] is {bad}"
                refused(op, NonFiniteError, words, **changes, **grain)
    for op in BACKWARDS:
        words = rf"^{op}: dy\[1, 3\] is {bad}"
        refused(op, NonFiniteError, words, dy=x, x=None, mask=MASK)
        refused(op, NonFiniteError, words, dy=x, x=None, mask=0 * MASK)


def test_a_non_finite_scalar():
    for op in everywhere("x"):
        dy = {"dy": np.float32(1)} if "dy" in BASE[op] else {}
        refused(op, NonFiniteError, "x is nan", x=np.float32(np.nan), **dy)


@pytest.mark.parametrize(
    "bad",
    [X.astype(np.int32), X.astype(complex), X.astype(object), X > 0, [[1, 2]], "a"],
    ids=["int32", "complex", "object", "bool", "list of ints", "str"],
)
def test_data_of_a_wrong_type(bad):
    for name in ("x", "dy"):
        for op in everywhere(name):
            refused(op, DTypeError, rf"^{name} must be one of float32, ", **{name: bad})


@pytest.mark.parametrize("bad", [X, X > 0, X.astype("O")])
def test_codes_of_a_wrong_type(bad):
    refused("dequantize_affine", DTypeError, r"^codes must be integers", codes=bad)


def test_codes_of_any_integer_type_that_int32_holds():
    codes = np.array([[-7, 5, 0]], np.int64)
    expected = quant.dequantize_affine(codes.astype(np.int8), 0.5)
    for given in (codes, codes.tolist()):
        np.testing.assert_array_equal(quant.dequantize_affine(given, 0.5), expected)
    with pytest.raises(QfwError, match=r"^codes must fit int32"):
        quant.dequantize_affine(np.array([2**31]), 0.5)


def test_data_that_do_not_fit_each_other():
    for op in BACKWARDS:
        refused(op, ShapeError, r"^x must have dy's shape \(2, 6\), not \(6, 2\)", x=X.T)
        refused(op, DTypeError, r"^x must have dy's type float32", x=X.astype(np.float64))


# --- scales and zero points ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 1.1754942e-38, 1e39, 0, -1]
)
def test_a_scale_that_is_no_positive_normal_number(bad):
    words = r"^scale must be finite and at least 1\.17549435e-38 \(normal\), not"
    for op in everywhere("scale"):
        single = {"dtype": np.float32} if op == "dequantize_affine" else {}
        refused(op, ScaleError, words, scale=bad, **single)
        refused(op, ScaleError, words, scale=np.array([0.5, bad]), axis=0, **single)
        refused(op, ScaleError, words, scale=np.array([[0.5, 1], [bad, 1]]), group=4, **single)


def test_a_scale_of_float64_data_is_judged_in_float64():
    x = X.astype(np.float64)
    for op in everywhere("scale"):
        data = {k: x for k in ("x", "dy") if k in BASE[op]}
        if op == "dequantize_affine":
            data = {"dtype": np.float64}
        getattr(quant, op)(**{**BASE[op], **data, "scale": 1e-40})
        for bad in (1e-310, 0.0, np.nan):
            refused(op, ScaleError, r"^scale must be finite and at least 2\.22", **data, scale=bad)


@pytest.mark.parametrize(
    ("grain", "shapes"),
    [
        ({}, [(2,), (2, 6), (0,)]),
        ({"axis": 0}, [(1,), (6,), (2, 1), (0,)]),
        ({"axis": -1}, [(1,), (2,), (1, 6)]),
        ({"axis": "row"}, [(6,), (2, 1), (1,)]),
        ({"group": 4}, [(2,), (2, 1), (4,), (2, 2, 1), (1, 4)]),
    ],
)
def test_a_wrong_shape_of_points(grain, shapes):
    for shape in shapes:
        for op in everywhere("scale"):
            refused(op, ShapeError, r"^scale must have the shape", **grain, scale=np.ones(shape))
        for op in everywhere("zero_point"):
            zero = np.zeros(shape, np.int32)
            refused(op, ShapeError, r"^zero_point must have the shape", **grain, zero_point=zero)


@pytest.mark.parametrize("bad", [True, 1j, "a", ValueError()], ids=repr)
def test_a_scale_of_a_wrong_type(bad):
    for op in everywhere("scale"):
        refused(op, DTypeError, r"^scale must be", scale=bad)


@pytest.mark.parametrize("op", [op for op in BASE if op != "qparams"])
def test_a_missing_scale_is_named(op):
    refused(op, QfwError, "scale", scale=None)


@pytest.mark.parametrize("bad", [0.0, 1.5, np.float32(3), True, "a"], ids=repr)
def test_zero_points_that_are_no_integers(bad):
    for op in everywhere("zero_point"):
        refused(op, DTypeError, r"^zero_point must be integers", zero_point=bad)


@pytest.mark.parametrize("bad", [2**31, -(2**31) - 1, 2**63, 2**64 - 1])
def test_zero_points_beyond_int32(bad):
    for op in everywhere("zero_point"):
        refused(op, ScaleError, r"^zero_point must fit int32", zero_point=bad)


# --- rules ---------------------------------------------------------------------------------------


def test_the_code_range():
    for op in everywhere("qmin"):
        refused(op, QfwError, r"qmax must be at least qmin, not 8\.\.7", qmin=8)
        for name in ("qmin", "qmax"):
            for bad in (1.0, "a", None, True, np.float32(1)):
                refused(op, QfwError, rf"^{name} must be an integer", **{name: bad})
            for bad in (2**31, -(2**31) - 1, 2**70):
                refused(op, QfwError, rf"^{name} must be -2147483648\.\.", **{name: bad})
    for high, dtype in ((128, "int8"), (256, "uint8"), (32768, "int16"), (65536, "uint16")):
        words = rf"0\.\.{high} do not fit {dtype}"
        refused("quantize_affine", QfwError, words, qmin=0, qmax=high, dtype=dtype)
    refused("quantize_affine", QfwError, r"-8\.\.7 do not fit uint8", dtype="uint8")


@pytest.mark.parametrize("bad", [np.int64, np.float32, np.uint32, bool, object])
def test_a_dtype_that_no_result_has(bad):
    for op in ("quantize_affine", "dequantize_affine"):
        if not (op == "dequantize_affine" and bad == np.float32):
            refused(op, DTypeError, r"dtype|codes must be one of", dtype=bad)


def test_unknown_rules():
    for bad in ("up", "", None, 1, "HALF_EVEN"):
        for op in everywhere("rounding"):
            refused(op, QfwError, r"^rounding must be one of 'half_away'", rounding=bad)
        for op in everywhere("in_range"):
            refused(op, QfwError, r"^in_range must be one of 'inclusive'", in_range=bad)


@pytest.mark.parametrize("name", ["seed", "step", "stream"])
def test_seeds_out_of_range(name):
    for op in everywhere(name):
        for bad in (-1, 2**32, 1.0, None, "a", True):
            refused(op, QfwError, rf"^{name} must be", rounding="stochastic", **{name: bad})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"group": 0}, "group"),
        ({"group": -1}, "group"),
        ({"group": 1.0}, "group"),
        ({"group": True}, "group"),
        ({"group": "row"}, "group"),
        ({"axis": 2}, "axis=2"),
        ({"axis": -3}, "axis=-3"),
        ({"axis": 1.0}, "axis"),
        ({"axis": True}, "axis"),
        ({"axis": "column"}, "axis"),
        ({"axis": 0, "group": 2}, "axis=0 and group=2"),
        ({"axis": "row", "group": 2}, "axis='row' and group=2"),
    ],
    ids=str,
)
def test_granularities_that_are_none(changes, word):
    for op in everywhere("axis", "group"):
        refused(op, QfwError, word, **changes)


def test_a_scalar_has_no_axis():
    for op in everywhere("axis"):
        data = {k: np.float32(1) for k in ("x", "dy") if k in BASE[op]}
        data = data or {"codes": np.int8(1)}
        for axis in (0, -1, "row"):
            refused(op, QfwError, "axis", axis=axis, **data)


def test_exact_refuses_a_ragged_group():
    for op in everywhere("exact"):
        for group in (4, 5, 7):
            refused(op, ShapeError, "group", group=group, exact=True)
        getattr(quant, op)(**BASE[op], group=3, exact=True)


def test_exact_refuses_a_ragged_group_of_a_scalar():
    for op in everywhere("exact"):
        data = {k: np.float32(1) for k in ("x", "dy") if k in BASE[op]}
        refused(op, ShapeError, "group", group=3, exact=True, **(data or {"codes": np.int8(1)}))


@pytest.mark.parametrize("group", [2**62, 2**63 - 1, 2**63, 2**70])
def test_a_group_larger_than_any_array_is_one_group(group):
    for op in everywhere("group"):
        found = getattr(quant, op)(**BASE[op], group=group)
        expected = getattr(quant, op)(**BASE[op], group=6)
        np.testing.assert_array_equal(found, expected)


# --- out and mask --------------------------------------------------------------------------------


@pytest.mark.parametrize("op", everywhere("out"))
def test_an_out_that_cannot_be_written(op):
    good = output(op, BASE[op])
    wrong = np.int16 if good.dtype != np.int16 else np.int32
    if op == "quantize_affine":
        refused(op, DTypeError, r"^out must be int8, not int16", dtype=np.int8, out=wrong(good))
    else:
        refused(op, DTypeError, r"^out must be", out=wrong(good))
    if good.itemsize > 1:
        refused(op, DTypeError, r"^out must be", out=good.astype(good.dtype.newbyteorder()))
        raw = np.zeros(good.nbytes + 1, np.uint8)[1:].view(good.dtype).reshape(good.shape)
        refused(op, QfwError, r"^out must be C-contiguous and aligned", out=raw)
    refused(op, DTypeError, r"^out must be a numpy array, not list", out=good.tolist())
    for shape in ((12,), (6, 2), (2, 6, 1), (2, 7)):
        refused(op, ShapeError, r"^out must have the shape", out=np.empty(shape, good.dtype))
    for view in (np.asfortranarray(good), np.repeat(good, 2, axis=1)[:, ::2], good[::-1]):
        refused(op, QfwError, r"^out must be C-contiguous", out=view)
    locked = good.copy()
    locked.flags.writeable = False
    refused(op, QfwError, r"^out is read-only", out=locked)
    assert np.all(locked == SENTINEL)


@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_the_type_of_an_out_for_codes_is_named(kind):
    out = np.full((2, 6), SENTINEL, np.float64)
    dtype = {} if kind == np.float32 else {"dtype": kind}
    refused("quantize_affine", DTypeError, r"\bout\b", out=out, **dtype)
    assert np.all(out == SENTINEL)


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, k) for op in everywhere("out") for k in ("x", "dy", "codes") if k in BASE[op]],
)
def test_an_out_that_overlaps_an_input(op, name):
    data = BASE[op][name]
    kind = np.dtype(np.int8 if op == "quantize_affine" else np.float32)
    memory = np.zeros(256, np.uint8)
    expected = getattr(quant, op)(**BASE[op])
    for first, start in ((0, 0), (0, 4), (44, 0)):  # where the input and out begin
        given = memory[first : first + data.nbytes].view(data.dtype).reshape(data.shape)
        given[...] = data
        out = memory[start : start + 12 * kind.itemsize].view(kind).reshape(data.shape)
        if first == start and given.dtype == kind:  # in place
            assert getattr(quant, op)(**{**BASE[op], name: given}, out=out) is out
            np.testing.assert_array_equal(given.view(np.uint32), expected.view(np.uint32))
        elif np.shares_memory(given, out):
            refused(op, QfwError, rf"^out overlaps {name}$", **{name: given}, out=out)
            np.testing.assert_array_equal(given, data)
    out = memory[128 : 128 + 12 * kind.itemsize].view(kind).reshape(data.shape)
    assert getattr(quant, op)(**{**BASE[op], name: given}, out=out) is out  # same base, apart


@pytest.mark.parametrize("op", BACKWARDS)
def test_an_out_that_overlaps_the_mask(op):
    memory = np.full(64, 255, np.uint8)
    out = memory[:48].view(np.float32).reshape(2, 6)
    refused(op, QfwError, r"^out overlaps mask", x=None, mask=memory[46:48], out=out)
    assert np.all(memory == 255)


@pytest.mark.parametrize("op", BACKWARDS)
def test_masks_that_are_none(op):
    for kind in (bool, np.int8, np.uint16, float):
        refused(op, DTypeError, r"^mask must be uint8", x=None, mask=MASK.astype(kind))
    for shape in ((1,), (3,), (12,), (2, 1), (), (0,)):
        bad = np.zeros(shape, np.uint8)
        refused(op, ShapeError, r"^mask of 12 bits must have the shape \(2,\)", x=None, mask=bad)
    refused(op, QfwError, "takes x or mask, one of the two", x=None)
    refused(op, QfwError, "takes x or mask, one of the two", mask=MASK)


def test_a_mask_needs_a_scale_where_the_gradient_is_divided():
    words = r"^quantize_affine_backward needs scale"
    refused("quantize_affine_backward", QfwError, words, x=None, mask=MASK, scale=None)
    dx = quant.fake_quantize_affine_backward(X, mask=MASK)
    np.testing.assert_array_equal(dx, X)


# --- an out of many bytes ------------------------------------------------------------------------


@pytest.mark.parametrize("group", [32, 64, 100])
@pytest.mark.parametrize("size", [2**18, 2**20, 2**20 + 77])
def test_a_large_out(size, group):
    """Codes go where they are asked for, and nowhere if one number of x is not finite."""
    x = np.random.default_rng(size).standard_normal(size, dtype=np.float32)
    scale, zero = quant.qparams(x, 8, group=group)
    args = (scale, zero, -127, 127)
    room = np.full(size + 128, SENTINEL, np.int8)
    for offset in (0, 1, 16, 48):
        out = room[offset : offset + size]
        expected = quant.quantize_affine(x, *args, group=group)
        assert quant.quantize_affine(x, *args, group=group, out=out) is out
        assert np.array_equal(out, expected)
        assert np.all(room[offset + size :] == SENTINEL)
        room[:] = SENTINEL
    for at in (0, 1, size // 4 + 15, size // 2, size - 1):
        for bad in (np.nan, np.inf, -np.inf):
            kept, x[at] = x[at], bad
            with pytest.raises(NonFiniteError, match=rf"x\[{at}\] is"):
                quant.quantize_affine(x, *args, group=group, out=room[:size])
            assert np.all(room == SENTINEL)
            x[at] = kept


def test_the_memory_that_a_large_out_takes_is_told():
    for size, workspace in ((2**18, 0), (2**20, 2**20)):
        x, out = np.zeros(size, np.float32), np.empty(size, np.int8)
        found = quant.describe("quantize_affine", x, np.float32(1.0), 0, -127, 127, out=out)
        assert found.workspace == workspace
        assert quant.describe("quantize_affine", x, np.float32(1.0), 0, -127, 127).workspace == 0
