"""Products: exact integers, floats in ascending order, the same bits in every ISA at every tail."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from pyqfw._core import ffi, lib

TABLES = [lib.qfw_host_kernels(i) for i in range(lib.QFW_ISA_COUNT)]
KERNELS = {
    ffi.string(lib.qfw_kernels_name(table)).decode(): table for table in TABLES if table != ffi.NULL
}
FORMS = ("NT", "NN", "TN", "TT")  # as it lies in memory: m x k or k x m, k x n or n x k
INTS = {8: np.int8, 16: np.int16}
WIDTHS = list(product(INTS, INTS))
UNTOUCHED = 0x5A5A5A5A

every_isa = pytest.mark.parametrize("isa", KERNELS)
every_form = pytest.mark.parametrize("form", FORMS)
every_width = pytest.mark.parametrize("widths", WIDTHS, ids=lambda w: f"{w[0]}x{w[1]}")


def multiply(
    isa: str, a: Any, b: Any, sizes: tuple[int, int, int], strides: tuple[int, int, int, int]
) -> np.ndarray:
    """The m x n product; nothing behind it is written. a and b: what lies in memory."""
    m, n, _ = sizes
    floats = a.dtype == np.float32
    # Copies: blocks of the heap that end where the operand ends, for the address sanitizer.
    blocks = [np.array(x, order="C") for x in (a, b)]
    gemm = ffi.new("qfw_gemm *")
    gemm.a, gemm.b = (ffi.from_buffer(block) for block in blocks)
    gemm.a_width, gemm.b_width = 8 * a.itemsize, 8 * b.itemsize
    gemm.m, gemm.n, gemm.k = sizes
    gemm.a_row, gemm.a_col, gemm.b_row, gemm.b_col = strides
    out = np.full(m * n + 9, UNTOUCHED, np.int32)
    if floats:
        status = lib.qfw_gemm_f32(KERNELS[isa], gemm, ffi.from_buffer("float[]", out))
    else:
        status = lib.qfw_gemm_s32(KERNELS[isa], gemm, ffi.from_buffer("int32_t[]", out))
    assert status == lib.QFW_OK
    assert (out[m * n :] == UNTOUCHED).all()
    found = out[: m * n].reshape(m, n)
    return found.view(np.float32) if floats else found


def multiply_as(isa: str, form: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a (m x k) times b (k x n), each laid out as the form says."""
    (m, k), n = a.shape, b.shape[1]
    rows = (k, 1) if form[0] == "N" else (1, m)
    columns = (n, 1) if form[1] == "N" else (1, k)
    a = a if form[0] == "N" else a.T
    b = b if form[1] == "N" else b.T
    return multiply(isa, a, b, (m, n, k), (*rows, *columns))


def codes(rng: np.random.Generator, shape: Any, width: int, most: int) -> np.ndarray:
    """Numbers up to +-most, many at the ends."""
    x = rng.integers(-most, most + 1, shape)
    ends = rng.choice([-most, most], shape)
    return np.where(rng.random(shape) < 0.3, ends, x).astype(INTS[width])


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = a.astype(np.int64) @ b.astype(np.int64)
    assert c.size == 0 or np.abs(c).max() < 2**31
    return c


# --- integers ------------------------------------------------------------------------------------


@every_isa
@every_form
@every_width
def test_integers_at_every_tail(isa, form, widths):
    rng = np.random.default_rng(1)
    for k in range(41):
        a = codes(rng, (9, k), widths[0], 127 if widths[0] == 8 else 4000)
        b = codes(rng, (k, 35), widths[1], 127 if widths[1] == 8 else 4000)
        expected = exact(a, b)
        for m, n in product(range(10), range(36)):
            found = multiply_as(isa, form, a[:m], b[:, :n])
            assert np.array_equal(found, expected[:m, :n]), (m, n, k)


LARGE = [
    (64, 128, 784),
    (64, 64, 128),
    (64, 10, 64),
    (64, 128, 64),
    (128, 784, 64),
    (128, 784, 1),
    (128, 784, 2),
    (10, 64, 64),
    (1, 128, 784),
    (4, 130, 1024),
    (3, 41, 1025),
    (2, 67, 2100),
    (1, 1, 3000),
    (1, 1000, 70),
    (4, 461, 65),
    (5, 1803, 17),
    (17, 33, 225),
    (100, 97, 113),
    (33, 129, 449),
]


@every_isa
@every_form
@every_width
def test_integers_of_every_block(isa, form, widths):
    rng = np.random.default_rng(2)
    for m, n, k in LARGE:
        a = codes(rng, (m, k), widths[0], 127 if widths[0] == 8 else 800)
        b = codes(rng, (k, n), widths[1], 127 if widths[1] == 8 else 800)
        expected = exact(a, b)
        assert np.array_equal(multiply_as(isa, form, a, b), expected), (m, n, k)


# Bounds A and B and a k for which the largest sum, k A B, is an int32.
HEADROOM = [
    ((8, 8), 127, 127, 133144),
    ((8, 8), 128, 128, 131071),
    ((16, 8), 2047, 127, 8260),
    ((8, 16), 127, 2047, 8260),
    ((16, 16), 2047, 2047, 512),
    ((16, 8), 32767, 127, 516),
    ((8, 16), 128, 32768, 511),
    ((16, 16), 32767, 32767, 2),
    ((16, 16), 32768, 32768, 1),
]


@every_isa
@every_form
@pytest.mark.parametrize(("widths", "a_most", "b_most", "k"), HEADROOM)
def test_the_largest_sums(isa, form, widths, a_most, b_most, k):
    """Every operand at an end of its range, so that the sums are too."""
    signs = np.array([1, -1])
    for m, n in ((2, 2), (6, 20)):
        a = np.repeat(np.resize(signs, m) * a_most, k).reshape(m, k)
        b = np.tile(np.resize(signs, n) * b_most, k).reshape(k, n)
        a = np.minimum(a, np.iinfo(INTS[widths[0]]).max).astype(INTS[widths[0]])
        b = np.minimum(b, np.iinfo(INTS[widths[1]]).max).astype(INTS[widths[1]])
        expected = exact(a, b)
        assert np.abs(expected).max() > 2**31 - 2**26 or k == 1
        assert np.array_equal(multiply_as(isa, form, a, b), expected), (m, n)


# Nothing is contiguous, rows overlap or are apart, or there is one row only.
STRIDES = [
    ((3, 2), (2, 3)),
    ((50, 2), (1, 50)),
    ((50, 1), (100, 2)),
    ((60, 1), (1, 60)),
    ((1, 60), (60, 1)),
    ((61, 1), (61, 1)),
    ((0, 1), (1, 0)),
    ((1, 0), (0, 1)),
    ((1, 1), (1, 1)),
    ((0, 0), (0, 0)),
]


def strided(x: np.ndarray, shape: tuple[int, int], strides: tuple[int, int]) -> Any:
    """What must lie in memory, up to the last element, and the matrix that it is."""
    rows, columns = shape
    index = np.arange(rows)[:, None] * strides[0] + np.arange(columns) * strides[1]
    last = int(index.max()) + 1 if index.size else 0
    return x[:last], x[:last][index]


@every_isa
@every_width
def test_integers_of_any_strides(isa, widths):
    rng = np.random.default_rng(3)
    x = codes(rng, 8000, widths[0], 127)
    y = codes(rng, 8000, widths[1], 127)
    for m, n, k in product((1, 2, 4, 5, 19), (1, 3, 16, 35), (1, 2, 15, 33)):
        for (a_row, a_col), (b_row, b_col) in STRIDES:
            a, a_matrix = strided(x, (m, k), (a_row, a_col))
            b, b_matrix = strided(y, (k, n), (b_row, b_col))
            found = multiply(isa, a, b, (m, n, k), (a_row, a_col, b_row, b_col))
            assert np.array_equal(found, exact(a_matrix, b_matrix)), (m, n, k, a_row, b_row)


# --- floats --------------------------------------------------------------------------------------


def ascending(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """From +0, a product and then a sum at a time, each rounded to float32."""
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for p in range(a.shape[1]):
            acc = acc + a[:, p : p + 1] * b[p : p + 1]
    assert acc.dtype == np.float32
    return acc


def same_floats(found: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bits; any NaN for a NaN."""
    nan = np.isnan(expected)
    bits = np.where(nan, 0, found.view(np.uint32)), np.where(nan, 0, expected.view(np.uint32))
    return np.array_equal(np.isnan(found), nan) and np.array_equal(*bits)


def ordinary(rng: np.random.Generator, shape: Any) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def tiny(rng: np.random.Generator, shape: Any) -> np.ndarray:
    """Products around the subnormal numbers, zeros of both signs."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-80, -60, shape)
    return (x * rng.choice([0, -1, 1, 1], shape)).astype(np.float32)


def subnormal(rng: np.random.Generator, shape: Any) -> np.ndarray:
    """Subnormal numbers, and some that bring them back."""
    x = rng.integers(0, 2**23, shape).astype(np.uint32).view(np.float32)
    return np.where(rng.random(shape) < 0.5, x, ordinary(rng, shape)).astype(np.float32)


def huge(rng: np.random.Generator, shape: Any) -> np.ndarray:
    """Sums that overflow, and cancel to NaN."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(40, 65, shape)
    return x.astype(np.float32)


def anything(rng: np.random.Generator, shape: Any) -> np.ndarray:
    odd = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -1e-45])
    return np.where(rng.random(shape) < 0.03, rng.choice(odd, shape), ordinary(rng, shape))


KINDS = [ordinary, tiny, subnormal, huge, anything]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda f: f.__name__)


@every_isa
@every_form
def test_floats_at_every_tail(isa, form):
    rng = np.random.default_rng(4)
    a, b = ordinary(rng, (9, 40)), ordinary(rng, (40, 35))
    for k in range(41):
        expected = ascending(a[:, :k], b[:k])
        for m, n in product(range(10), range(36)):
            found = multiply_as(isa, form, a[:m, :k], b[:k, :n])
            assert same_floats(found, expected[:m, :n]), (m, n, k)


@every_isa
@every_form
@every_kind
def test_floats_of_every_kind(isa, form, kind):
    rng = np.random.default_rng(5)
    for m, n, k in ((1, 40, 30), (6, 37, 21), (5, 35, 600), (64, 128, 100), (10, 64, 257)):
        a, b = kind(rng, (m, k)), kind(rng, (k, n))
        expected = ascending(a, b)
        assert same_floats(multiply_as(isa, form, a, b), expected), (m, n, k)


@every_isa
def test_floats_of_any_strides(isa):
    rng = np.random.default_rng(6)
    x, y = ordinary(rng, 8000), ordinary(rng, 8000)
    for m, n, k in product((1, 2, 4, 5, 19), (1, 3, 16, 35), (1, 2, 15, 33)):
        for (a_row, a_col), (b_row, b_col) in STRIDES:
            a, a_matrix = strided(x, (m, k), (a_row, a_col))
            b, b_matrix = strided(y, (k, n), (b_row, b_col))
            found = multiply(isa, a, b, (m, n, k), (a_row, a_col, b_row, b_col))
            assert same_floats(found, ascending(a_matrix, b_matrix)), (m, n, k, a_row, b_row)


@every_isa
def test_float_sums_start_at_plus_zero(isa):
    for n in (1, 16, 17):
        a, b = np.full((5, 3), -0.0, np.float32), np.ones((3, n), np.float32)
        for form in FORMS:
            for k in range(4):
                found = multiply_as(isa, form, a[:, :k], b[:k])
                assert not found.view(np.uint32).any()


# --- what a caller can get wrong -----------------------------------------------------------------


def described(a_width: int, b_width: int, **fields: Any) -> Any:
    one = ffi.from_buffer(bytearray(8))
    rest = {"m": 1, "n": 1, "k": 1, "a_row": 1, "a_col": 1, "b_row": 1, "b_col": 1}
    gemm = {"a": one, "b": one, "a_width": a_width, "b_width": b_width, **rest, **fields}
    return ffi.new("qfw_gemm *", gemm), one


@every_isa
def test_a_missing_argument_is_refused(isa):
    for function, kind, width in (
        (lib.qfw_gemm_s32, "int32_t[1]", 8),
        (lib.qfw_gemm_f32, "float[1]", 32),
    ):
        table, out = KERNELS[isa], ffi.new(kind)
        whole, _keep = described(width, width)
        no_a, no_b = (described(width, width, **{x: ffi.NULL})[0] for x in "ab")
        assert function(table, whole, out) == lib.QFW_OK
        for arguments in (
            (ffi.NULL, whole, out),
            (table, ffi.NULL, out),
            (table, whole, ffi.NULL),
            (table, no_a, out),
            (table, no_b, out),
        ):
            assert function(*arguments) == lib.QFW_E_NULL


@every_isa
@pytest.mark.parametrize("a_width", [-8, 0, 4, 8, 12, 16, 32, 64])
@pytest.mark.parametrize("b_width", [-8, 0, 4, 8, 12, 16, 32, 64])
def test_other_widths_are_refused(isa, a_width, b_width):
    gemm, _keep = described(a_width, b_width)
    whole, real = ffi.new("int32_t *", UNTOUCHED), ffi.new("float *", 3.5)
    ints = a_width in INTS and b_width in INTS
    floats = a_width == b_width == 32
    status = lib.qfw_gemm_s32(KERNELS[isa], gemm, whole)
    assert status == (lib.QFW_OK if ints else lib.QFW_E_KIND)
    assert (whole[0] == UNTOUCHED) != ints
    status = lib.qfw_gemm_f32(KERNELS[isa], gemm, real)
    assert status == (lib.QFW_OK if floats else lib.QFW_E_KIND)
    assert (real[0] == 3.5) != floats
