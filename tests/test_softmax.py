"""Softmax and cross-entropy: the bits of the oracle, and how far those are from real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle as o
import oracle_softmax as os
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import fixed, scales

from pyqfw._core import ffi, lib

F = np.float32
MAX_ROWS, MAX_CLASSES = 2**24, 2**16
SCALES = [F(v) for v in (1.2e-38, 3e-20, 1e-9, 1e-5, 3e-4, 0.01, 0.7, 1, 3, 1e5, 1e20, 3.4e38)]


def pointer(kind: str, array: Any) -> Any:
    return ffi.NULL if array is None else ffi.cast(f"{kind} *", array.ctypes.data)


class Integers:
    """One call of qfw_cross_entropy_s16: what goes in, and what came out."""

    def __init__(self, z: Any, scale: Any, labels: Any) -> None:
        self.z, self.scale = np.array(z, np.int16, order="C"), F(scale)
        self.labels = np.array(labels, np.int32)
        self.error: Any = np.full(self.z.shape, 7, np.int32)
        self.error_scale, self.loss = np.full(1, 7, F), np.full(1, 7, F)
        self.absmax = np.full(1, 7, np.uint32)

    def call(self, **other: Any) -> int:
        rows, classes = self.z.shape
        arguments: dict[str, Any] = {
            "z": pointer("int16_t", self.z),
            "scale": float(self.scale),
            "labels": pointer("int32_t", self.labels),
            "rows": rows,
            "classes": classes,
            "error": pointer("int32_t", self.error),
            "error_scale": pointer("float", self.error_scale),
            "absmax": pointer("uint32_t", self.absmax),
            "loss": pointer("float", self.loss),
        }
        return int(lib.qfw_cross_entropy_s16(*{**arguments, **other}.values()))

    def check(self) -> None:
        assert self.call() == lib.QFW_OK
        error, loss = os.cross_entropy(self.z, self.scale, self.labels)
        np.testing.assert_array_equal(self.error, error)
        assert self.error_scale[0] == os.quotient(2.0**-30, len(self.z))
        assert self.absmax[0] == np.abs(error).max()
        assert self.loss[0].tobytes() == loss.tobytes()

    @property
    def values(self) -> Any:
        return self.z.astype(np.float64) * float(self.scale)


class Floats:
    """One call of qfw_cross_entropy_f32."""

    def __init__(self, z: Any, labels: Any) -> None:
        self.z = np.array(z, F, order="C")
        self.labels = np.array(labels, np.int32)
        self.error, self.loss = np.full_like(self.z, 7), np.full(1, 7, F)

    def call(self, **other: Any) -> int:
        rows, classes = self.z.shape
        arguments: dict[str, Any] = {
            "z": pointer("float", self.z),
            "labels": pointer("int32_t", self.labels),
            "rows": rows,
            "classes": classes,
            "error": pointer("float", self.error),
            "loss": pointer("float", self.loss),
        }
        return int(lib.qfw_cross_entropy_f32(*{**arguments, **other}.values()))

    def check(self) -> None:
        assert self.call() == lib.QFW_OK
        error, loss = os.float_cross_entropy(self.z, self.labels)
        np.testing.assert_array_equal(self.error.view(np.uint32), error.view(np.uint32))
        assert self.loss[0].tobytes() == loss.tobytes()


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def losses(z: Any, labels: Any) -> Any:
    top = z.max(axis=1)
    behind = top - z[np.arange(len(z)), labels]
    return np.log(np.exp(z - top[:, None]).sum(axis=1)) + behind


def one_hot(labels: Any, classes: int) -> Any:
    return (np.arange(classes) == np.asarray(labels)[:, None]).astype(np.float64)


def random_codes(rng: Any, rows: int, classes: int) -> Any:
    """Rows of every width of range, with ties, and the ends of int16."""
    spread = 2 ** rng.integers(0, 16, (rows, 1))
    z = rng.integers(-spread, spread, (rows, classes))
    return np.where(rng.random((rows, classes)) < 0.02, rng.choice([-32768, 32767]), z)


# ---- the elementary functions of the oracle ------------------------------------------------------


def check_power(parts: Any) -> None:
    """Relative error below 2^-29, falling, and within [2^30, 2^31]: the page's claims."""
    v = os.power(parts * np.uint64(64))
    exact = np.exp2(31 - parts.astype(np.float64) / 2**26)
    assert np.abs(v / exact - 1).max() < 2.0**-29
    assert (np.diff(v.astype(np.int64)) <= 0).all()
    assert v.min() >= 2**30
    e = v + np.uint64(1) >> np.uint64(1)
    assert np.abs(e - exact / 2).max() < 1.4


def check_log2(x: Any) -> None:
    found = os.log2_part(x)
    assert np.abs(found - np.log2(1 + x / 2**32) * 2**26).max() < 0.6
    assert (np.diff(found.astype(np.int64)) >= 0).all()


def test_exp2() -> None:
    assert [os.exp2(n * 2**26) for n in range(33)] == [2**30 >> n for n in range(31)] + [0, 0]
    assert os.exp2(31 * 2**26 - 1) == 1
    check_power(np.arange(0, 2**26, 1009, dtype=np.uint64))
    check_power(np.arange(2**26 - 1000, 2**26, dtype=np.uint64))
    for t in range(0, 31 * 2**26, 7 * 2**20 + 12345):
        assert abs(os.exp2(t) - 2.0 ** (30 - t / 2**26)) < 1.4


@pytest.mark.slow
def test_exp2_at_every_fraction() -> None:
    step = 2**20
    for first in range(0, 2**26, step):
        check_power(np.arange(max(first - 1, 0), first + step, dtype=np.uint64))


def test_log2() -> None:
    assert [os.log2(2**k) for k in range(64)] == [k * 2**26 for k in range(64)]
    check_log2(np.arange(0, 2**32, 49999, dtype=np.uint64))
    check_log2(np.arange(2**32 - 1000, 2**32, dtype=np.uint64))
    check_log2(np.arange(1000, dtype=np.uint64))
    for k in (30, 31, 32, 33, 46):
        s = (1 << k) + (0x9E3779B97F4A7C15 >> 64 - k)
        assert abs(os.log2(s) - np.log2(float(s)) * 2**26) < 0.62


def ulps(found: Any, exact: Any) -> float:
    return float((np.abs(found - exact) / 2.0 ** (np.frexp(exact)[1] - 24)).max())


def test_exp_and_log_of_floats() -> None:
    x = -np.linspace(0, 87.3365, 400_001).astype(F)
    assert ulps(os.exp(x).astype(np.float64), np.exp(x.astype(np.float64))) < 1.02
    assert (np.diff(os.exp(x)) <= 0).all()
    edge = np.array([0, -0.0, -1e-45, -1e-10, -87.33654, -87.33655, -88, -88.1, -1e38, -np.inf], F)
    assert os.exp(edge).tolist() == [1, 1, 1, 1, os.exp(edge)[4], 0, 0, 0, 0, 0]
    assert os.FLT_MIN <= os.exp(edge)[4] < 1.001 * os.FLT_MIN
    x = np.concatenate([np.linspace(1, 4, 400_001), np.exp(np.linspace(0, 88, 100_001))]).astype(F)
    x = np.unique(x)
    assert os.log(x)[0].tobytes() == F(0).tobytes()
    assert ulps(os.log(x[1:]).astype(np.float64), np.log(x[1:].astype(np.float64))) < 0.88
    assert (np.diff(os.log(x)) >= 0).all()


# ---- integers: the oracle's bits -----------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("classes", [1, 2, 3, 10, 100, 1000])
def test_codes(classes: int, scale: Any) -> None:
    rng = np.random.default_rng([classes, int(scale.view(np.uint32))])
    rows = max(3, 200 // classes)
    z = random_codes(rng, rows, classes)
    Integers(z, scale, rng.integers(0, classes, rows)).check()


@given(st.data(), scales, st.integers(1, 6), st.integers(1, 9))
@fixed
def test_any_codes(data: Any, scale: Any, rows: int, classes: int) -> None:
    codes = st.one_of(st.integers(-(2**15), 2**15 - 1), st.sampled_from([-32768, -1, 0, 1, 32767]))
    z = data.draw(st.lists(codes, min_size=rows * classes, max_size=rows * classes))
    labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    Integers(np.reshape(z, (rows, classes)), float(scale), labels).check()


def test_every_exponent_of_the_scale() -> None:
    z = [[32767, -32768, 0], [0, -1, -2], [-100, 100, 99]]
    for exponent in range(1, 255):
        for mantissa in (0, 0x7FFFFF, 0x345678):
            Integers(z, np.uint32(exponent << 23 | mantissa).view(F), [1, 2, 0]).check()


@pytest.mark.parametrize("scale", [2.0**-15, 0.00031, 0.0004747])
def test_every_distance(scale: float) -> None:
    """Two classes, 0..65535 steps apart: exp2 and log2 at many points, one a row."""
    z = np.stack([np.full(2**16, 32767), 32767 - np.arange(2**16)], axis=1)
    Integers(z, scale, np.arange(2**16) & 1).check()


def test_ties_share() -> None:
    for classes in (1, 2, 3, 4, 7, 8, 1000):
        case = Integers(np.full((2, classes), -5), 0.25, [0, classes - 1])
        case.check()
        assert case.error[0, 1:].tolist() == [2**30 // classes] * (classes - 1)
        assert abs(case.loss[0] - np.log(classes)) < 2.0**-22


def test_the_most_classes() -> None:
    case = Integers(np.zeros((1, MAX_CLASSES)), 1, [5])
    assert case.call() == lib.QFW_OK
    assert case.error[0, 0] == 2**14
    assert case.error[0, 5] == case.error[0, 0] - 2**30
    assert abs(case.loss[0] - 16 * np.log(2)) < 2.0**-20
    rng = np.random.default_rng(3)
    Integers(rng.integers(-9, 9, (1, MAX_CLASSES)), 0.01, [77]).check()


def test_one_class_has_no_error() -> None:
    case = Integers([[5], [-9]], 3, [0, 0])
    case.check()
    assert case.error.tolist() == [[0], [0]]
    assert (case.loss[0], case.absmax[0]) == (0, 0)


def test_a_loss_ends_at_1024_bits() -> None:
    case = Integers([[32767, -32768]], 1e38, [1])
    case.check()
    assert case.error.tolist() == [[2**30, -(2**30)]]
    assert abs(case.loss[0] - 1024 * np.log(2)) < 1e-4


def test_absmax_may_be_left_out() -> None:
    case = Integers([[1, 2], [3, 4]], 0.5, [0, 1])
    assert case.call(absmax=ffi.NULL) == lib.QFW_OK
    assert case.error.tolist() == os.cross_entropy(case.z, case.scale, case.labels)[0].tolist()
    assert case.absmax[0] == 7


@pytest.mark.slow
def test_the_most_rows() -> None:
    """The sum of the largest losses does not overflow."""
    z = np.empty((MAX_ROWS, 2), np.int16)
    z[:] = [-32768, 32767]
    case = Integers(z, 1, np.zeros(MAX_ROWS))
    assert case.call() == lib.QFW_OK
    assert case.loss[0] == F(1024 * np.log(2))
    assert case.error_scale[0] == F(2.0**-54)


# ---- integers: how good they are -----------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("reach", [0.01, 1, 8, 20, 300])
def test_codes_against_real_numbers(classes: int, reach: float) -> None:
    """Probabilities within 2^-27, losses within 2^-24 and 2^-23 of themselves."""
    rng = np.random.default_rng([classes, int(100 * reach)])
    z = rng.integers(-32767, 32768, (50, classes))
    labels = rng.integers(0, classes, 50)
    case = Integers(z, reach / 32767, labels)
    assert case.call() == lib.QFW_OK
    expected = softmax(case.values) - one_hot(labels, classes)
    assert np.abs(case.error * 2.0**-30 - expected).max() < 2.0**-27
    loss = losses(case.values, labels).mean()
    assert abs(case.loss[0] - loss) < 2.0**-24 + 2.0**-23 * loss
    # What the floors take from a row: one unit for each class and one for the reciprocal.
    sums = case.error.sum(axis=1, dtype=np.int64)
    assert sums.max() <= 0
    assert sums.min() >= -classes - 1


# ---- floats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("reach", [1e-40, 1e-6, 0.1, 1, 30, 200, 1e10, 3e38])
def test_floats(classes: int, reach: float) -> None:
    rng = np.random.default_rng([classes, 5])
    rows = max(3, 300 // classes)
    z = (rng.uniform(-1, 1, (rows, classes)) * reach).astype(F)
    z[rng.random((rows, classes)) < 0.05] = z[0, 0]
    Floats(z, rng.integers(0, classes, rows)).check()


def test_many_float_distances() -> None:
    below = np.concatenate([np.linspace(0, 90, 50_001), 2.0 ** np.linspace(-30, 7, 10_001)])
    z = np.stack([np.zeros_like(below), -below], axis=1)
    Floats(z, np.arange(len(z)) & 1).check()


@given(st.data(), st.integers(1, 6), st.integers(1, 9))
@fixed
def test_any_floats(data: Any, rows: int, classes: int) -> None:
    finite = st.one_of(
        st.floats(-100, 100, width=32), st.floats(width=32, allow_nan=False, allow_infinity=False)
    )
    z = data.draw(st.lists(finite, min_size=rows * classes, max_size=rows * classes))
    labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    Floats(np.reshape(z, (rows, classes)), labels).check()


def test_floats_that_overflow() -> None:
    case = Floats([[3e38, -3e38]], [1])
    case.check()
    assert (case.error.tolist(), case.loss[0]) == ([[1, -1]], np.inf)
    case = Floats([[3e38, -3e38]], [0])
    case.check()
    assert (case.error.tolist(), case.loss[0]) == ([[0, 0]], 0)


def test_large_logits_keep_a_small_loss() -> None:
    """The loss is that of the differences, whatever is added to all logits."""
    far, near = Floats([[2.0**20 + 1, 2.0**20]], [0]), Floats([[1, 0]], [0])
    far.check()
    near.check()
    assert far.loss[0] == near.loss[0]
    assert abs(far.loss[0] - np.log1p(np.exp(-1))) < 2.0**-24


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("reach", [0.01, 1, 8, 20, 300])
def test_floats_against_real_numbers(classes: int, reach: float) -> None:
    """Relative to 1 / rows: errors within 2^-21, losses within 2^-22 and 2^-21 of themselves."""
    rng = np.random.default_rng([classes, int(100 * reach)])
    case = Floats(rng.uniform(-reach, reach, (50, classes)), rng.integers(0, classes, 50))
    assert case.call() == lib.QFW_OK
    z = case.z.astype(np.float64)
    expected = softmax(z) - one_hot(case.labels, classes)
    assert np.abs(case.error * 50.0 - expected).max() < 2.0**-21
    loss = losses(z, case.labels).mean()
    assert abs(case.loss[0] - loss) < 2.0**-22 + 2.0**-21 * loss


# ---- what a caller can get wrong -----------------------------------------------------------------


def integers() -> Integers:
    return Integers([[1, 2, 3], [4, 5, 6]], 0.5, [0, 2])


def floats() -> Floats:
    return Floats([[1, 2, 3], [4, 5, 6]], [0, 2])


def assert_untouched(case: Integers | Floats) -> None:
    assert (case.error == 7).all()
    assert case.loss[0] == 7


SIZES = [
    ({"rows": 0}, lib.QFW_E_ROWS),
    ({"rows": MAX_ROWS + 1}, lib.QFW_E_SIZE),
    ({"rows": 2**63}, lib.QFW_E_SIZE),
    ({"classes": 0}, lib.QFW_E_SIZE),
    ({"classes": MAX_CLASSES + 1}, lib.QFW_E_SIZE),
    ({"classes": 2**63}, lib.QFW_E_SIZE),
]


@pytest.mark.parametrize("make", [integers, floats])
@pytest.mark.parametrize(("sizes", "status"), SIZES)
def test_sizes(make: Any, sizes: dict[str, int], status: int) -> None:
    case = make()
    assert case.call(**sizes) == status
    assert_untouched(case)


@pytest.mark.parametrize("name", ["z", "labels", "error", "error_scale", "loss"])
def test_null(name: str) -> None:
    for make in [integers] if name == "error_scale" else [integers, floats]:
        case: Any = make()
        assert case.call(**{name: ffi.NULL}) == lib.QFW_E_NULL
        assert_untouched(case)


@pytest.mark.parametrize("make", [integers, floats])
@pytest.mark.parametrize("label", [-1, 3, 2**31 - 1, -(2**31)])
def test_labels(make: Any, label: int) -> None:
    case = make()
    case.labels[1] = label
    assert case.call() == lib.QFW_E_LABEL
    assert_untouched(case)


@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, 2.0**-127, np.inf, -np.inf, np.nan])
def test_scales(scale: float) -> None:
    case = integers()
    assert case.call(scale=scale) == lib.QFW_E_SCALE
    assert_untouched(case)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", [(0, 0), (0, 2), (1, 1)])
def test_logits_that_are_no_numbers(where: tuple[int, int], value: float) -> None:
    case = floats()
    case.z[where] = value
    assert case.call() == lib.QFW_E_NONFINITE


def test_the_largest_finite_logit_is_one() -> None:
    top = float(o.largest_finite())
    Floats([[top, -top, 0]], [0]).check()
