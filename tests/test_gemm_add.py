"""Products that go on from what is there, and matrices whose rows overlap, as of convolutions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from test_gemm import INTS, KERNELS, UNTOUCHED, codes, every_form, every_isa, every_width

from pyqfw._core import ffi, lib


def onto(
    isa: str, a: np.ndarray, b: np.ndarray, strides: tuple[int, ...], out: np.ndarray, k: int
) -> np.ndarray:
    """out + the product, in a block that ends where it ends; a and b: what lies in memory."""
    m, n = out.shape
    blocks = [np.array(x, order="C") for x in (a, b)]
    gemm = ffi.new("qfw_gemm *", {"m": m, "n": n, "k": k, "add": 1})
    gemm.a, gemm.b = (ffi.from_buffer(block) for block in blocks)
    gemm.a_width, gemm.b_width = 8 * a.itemsize, 8 * b.itemsize
    gemm.a_row, gemm.a_col, gemm.b_row, gemm.b_col = strides
    words = np.full(m * n + 9, UNTOUCHED, np.int32)
    words[: m * n] = out.ravel().view(np.int32)
    kind = "float[]" if a.dtype == np.float32 else "int32_t[]"
    multiply = lib.qfw_gemm_f32 if a.dtype == np.float32 else lib.qfw_gemm_s32
    assert multiply(KERNELS[isa], gemm, ffi.from_buffer(kind, words)) == lib.QFW_OK
    assert (words[m * n :] == UNTOUCHED).all()
    return words[: m * n].view(out.dtype).reshape(m, n)


def laid(form: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """a (m x k) and b (k x n) as a form has them in memory, and the strides."""
    (m, k), n = a.shape, b.shape[1]
    rows = (k, 1) if form[0] == "N" else (1, m)
    columns = (n, 1) if form[1] == "N" else (1, k)
    return a if form[0] == "N" else a.T, b if form[1] == "N" else b.T, (*rows, *columns)


def float_onto(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Ascending k, from what is there."""
    for p in range(a.shape[1]):
        out = out + a[:, p, None] * b[p]
    return out


SIZES = [*product(range(6), (0, 1, 7, 8, 15, 16, 17, 33), (0, 1, 2, 15, 16, 17, 40))]
SIZES += [(9, 40, 130), (33, 20, 260), (3, 70, 1100), (2, 5, 2100), (17, 130, 35)]


@every_isa
@every_form
@every_width
def test_integers_are_added(isa: str, form: str, widths: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    for m, n, k in SIZES:
        a = codes(rng, (m, k), widths[0], 127 if widths[0] == 8 else 900)
        b = codes(rng, (k, n), widths[1], 127 if widths[1] == 8 else 900)
        out = rng.integers(-(2**30) + 1, 2**30, (m, n)).astype(np.int32)
        found = onto(isa, *laid(form, a, b), out, k)
        expected = out.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64)
        assert np.array_equal(found, expected), (m, n, k)


@every_isa
@every_form
def test_floats_are_added(isa: str, form: str) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in SIZES:
        a, b, out = (rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
        found = onto(isa, *laid(form, a, b), out, k)
        assert found.tobytes() == float_onto(out, a, b).tobytes(), (m, n, k)


def overlapping(line: np.ndarray, m: int, k: int, row: int) -> Any:
    """Rows of k elements that begin `row` after each other."""
    return np.lib.stride_tricks.as_strided(line, (m, k), (row * line.itemsize, line.itemsize))


@every_isa
@every_width
def test_rows_of_a_overlap(isa: str, widths: tuple[int, int]) -> None:
    """A line of an image with its channels, a patch at each step: along p, nothing read beyond."""
    rng = np.random.default_rng(3)
    for m, row, k, n in product((1, 2, 4, 5, 9, 17), (1, 2, 3, 16), (1, 3, 16, 17, 35), (1, 4, 19)):
        line = codes(rng, (m - 1) * row + k, widths[0], 127 if widths[0] == 8 else 900)
        b = codes(rng, (n, k), widths[1], 127 if widths[1] == 8 else 900)
        out = rng.integers(-(2**30) + 1, 2**30, (m, n)).astype(np.int32)
        a = overlapping(line, m, k, row).astype(np.int64)
        found = onto(isa, line, b, (row, 1, 1, k), out, k)
        assert np.array_equal(found, out + a @ b.T.astype(np.int64)), (m, row, k, n)


@every_isa
@every_width
def test_rows_of_b_overlap(isa: str, widths: tuple[int, int]) -> None:
    """The same as the other operand: a gradient over a line."""
    rng = np.random.default_rng(4)
    for m, row, n, k in product((1, 3, 8, 17), (1, 2, 16), (1, 5, 16, 35), (1, 2, 9, 40)):
        line = codes(rng, (k - 1) * row + n, widths[1], 127 if widths[1] == 8 else 900)
        a = codes(rng, (k, m), widths[0], 127 if widths[0] == 8 else 900)
        out = np.zeros((m, n), np.int32)
        b = overlapping(line, k, n, row).astype(np.int64)
        found = onto(isa, a, line, (1, m, row, 1), out, k)
        assert np.array_equal(found, a.T.astype(np.int64) @ b), (m, row, n, k)


@every_isa
def test_floats_whose_rows_overlap(isa: str) -> None:
    rng = np.random.default_rng(5)
    for m, row, k, n in product((1, 4, 9), (1, 3, 16), (1, 7, 35), (1, 16, 19)):
        line = rng.normal(size=(m - 1) * row + k).astype(np.float32)
        b, out = (rng.normal(size=s).astype(np.float32) for s in ((n, k), (m, n)))
        found = onto(isa, line, b, (row, 1, 1, k), out, k)
        expected = float_onto(out, overlapping(line, m, k, row), b.T)
        assert found.tobytes() == expected.tobytes(), (m, row, k, n)


def test_add_is_a_flag() -> None:
    """Any number but 0 adds, and the twins agree."""
    a, b = np.full((2, 3), 5, INTS[8]), np.full((3, 17), 7, INTS[8])
    out = np.full((2, 17), 100, np.int32)
    found = {isa: onto(isa, a, b, (3, 1, 17, 1), out, 3).tobytes() for isa in KERNELS}
    assert set(found.values()) == {np.full((2, 17), 205, np.int32).tobytes()}
