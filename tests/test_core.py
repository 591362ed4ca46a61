"""The C interface itself: statuses for everything a caller can get wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyqfw import quant
from pyqfw._core import ffi, lib

PORTABLE = lib.qfw_host_kernels(lib.QFW_ISA_PORTABLE)
INT64 = st.one_of(st.integers(-2, 3), st.integers(-(2**63), 2**63 - 1))
INT32 = st.one_of(st.integers(-2, 40), st.integers(-(2**31), 2**31 - 1))
UINT8 = st.integers(0, 255)


def layout(outer: int = 1, axis: int = 4, inner: int = 1, group: int = 4, **rest: int) -> Any:
    return {"outer": outer, "axis": axis, "inner": inner, "group": group, **rest}


def affine(**fields: Any) -> Any:
    return ffi.new("qfw_affine *", {"layout": layout(), "qmin": -7, "qmax": 7, **fields})


def tensor(codes: Any, fmt: tuple[int, int, int], scale: Any = ffi.NULL, **fields: Any) -> Any:
    kind, bits, container = fmt
    form = {"kind": kind, "bits": bits, "container": container}
    return ffi.new(
        "qfw_tensor *",
        {"format": form, "layout": layout(), "codes": codes, "scale": scale, **fields},
    )


def test_every_status_has_its_own_sentence() -> None:
    names = [n for n in dir(lib) if n == "QFW_OK" or n.startswith("QFW_E_")]
    texts = {ffi.string(lib.qfw_status_text(getattr(lib, n))) for n in names}
    assert len(texts) == len(names) > 10
    assert ffi.string(lib.qfw_status_text(len(names))) == b"unknown status"


def test_tables_have_names() -> None:
    names = [
        ffi.string(lib.qfw_kernels_name(lib.qfw_host_kernels(i))).decode()
        for i in range(lib.QFW_ISA_COUNT)
        if lib.qfw_host_kernels(i) != ffi.NULL
    ]
    assert names == quant.core_info()["isas"]
    assert lib.qfw_host_kernels(lib.QFW_ISA_COUNT) == ffi.NULL


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (layout(outer=-1), lib.QFW_E_SIZE),
        (layout(axis=-1), lib.QFW_E_SIZE),
        (layout(inner=-1), lib.QFW_E_SIZE),
        (layout(outer=2**32, axis=2**32), lib.QFW_E_SIZE),
        (layout(axis=2**60), lib.QFW_E_SIZE),
        (layout(group=0), lib.QFW_E_GROUP),
        (layout(group=-3), lib.QFW_E_GROUP),
        (layout(axis=5, group=2, exact=1), lib.QFW_E_GROUP),
        (layout(axis=5, group=2), lib.QFW_OK),
        (layout(axis=0), lib.QFW_OK),
        (layout(outer=0), lib.QFW_OK),
    ],
)
def test_layouts(fields: dict[str, int], status: int) -> None:
    n = ffi.new("ptrdiff_t[2]")
    assert lib.qfw_layout_check(ffi.new("qfw_layout *", fields), n, n + 1) == status
    assert lib.qfw_affine_check(affine(layout=fields)) == status


@given(st.tuples(INT64, INT64, INT64, INT64, UINT8, UINT8))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_any_layout_gets_a_status(fields: tuple[int, ...]) -> None:
    n = ffi.new("ptrdiff_t[2]")
    names = ("outer", "axis", "inner", "group", "shared", "exact")
    c = ffi.new("qfw_layout *", dict(zip(names, fields, strict=True)))
    if lib.qfw_layout_check(c, n, n + 1) == lib.QFW_OK:
        outer, axis, inner, group, shared, _ = fields
        assert n[0] == outer * axis * inner
        assert n[1] == (1 if shared else outer) * -(-axis // group)


@pytest.mark.parametrize(
    ("fmt", "status"),
    [
        ((lib.QFW_SYM, 1, 0), lib.QFW_E_BITS),
        ((lib.QFW_SYM, 17, 0), lib.QFW_E_BITS),
        ((lib.QFW_SYM, 32, 0), lib.QFW_E_CONTAINER),
        ((lib.QFW_SYM, 32, 32), lib.QFW_OK),
        ((lib.QFW_SYM, 9, 8), lib.QFW_E_CONTAINER),
        ((lib.QFW_SYM, 8, 24), lib.QFW_E_CONTAINER),
        ((lib.QFW_ASYM, 0, 0), lib.QFW_E_BITS),
        ((lib.QFW_ASYM, 1, 0), lib.QFW_OK),
        ((lib.QFW_ASYM, 32, 32), lib.QFW_E_BITS),
        ((lib.QFW_FLOAT32, 16, 16), lib.QFW_E_BITS),
        ((lib.QFW_FLOAT32, 32, 32), lib.QFW_OK),
        ((3, 8, 8), lib.QFW_E_KIND),
        ((255, 8, 8), lib.QFW_E_KIND),
    ],
)
def test_formats(fmt: tuple[int, int, int], status: int) -> None:
    kind, bits, container = fmt
    form = {"kind": kind, "bits": bits, "container": container}
    assert lib.qfw_format_check(ffi.new("qfw_format *", form)) == status


@given(st.tuples(*[INT32] * 7))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_any_descriptor_gets_a_status(fields: tuple[int, ...]) -> None:
    names = ("op", "real", "code", "rounding", "in_range", "qmin", "qmax")
    c = affine(**dict(zip(names, fields, strict=True)))
    status = lib.qfw_affine_check(c)
    size = ffi.new("size_t *", 7)
    assert lib.qfw_affine_workspace(c, size) == status
    assert (size[0] == 0) == (status == lib.QFW_OK)


def test_null_pointers_get_a_status() -> None:
    n, null = ffi.new("ptrdiff_t[2]"), ffi.NULL
    size, scale, zero = ffi.new("size_t *"), ffi.new("float[1]", [1]), ffi.new("int32_t[1]")
    x, c = ffi.new("float[4]"), affine()
    t = tensor(x, (lib.QFW_FLOAT32, 32, 32))
    how, count = ffi.new("qfw_encoding *"), ffi.new("uint64_t *")
    good = ffi.new("qfw_layout *", layout())
    empty = ffi.new("qfw_affine_data *")
    calls = [
        lambda: lib.qfw_layout_check(null, n, n),
        lambda: lib.qfw_layout_check(good, null, n),
        lambda: lib.qfw_format_check(null),
        lambda: lib.qfw_affine_check(null),
        lambda: lib.qfw_affine_workspace(c, null),
        lambda: lib.qfw_affine_run(null, c, empty),
        lambda: lib.qfw_affine_run(PORTABLE, null, empty),
        lambda: lib.qfw_affine_run(PORTABLE, c, null),
        lambda: lib.qfw_affine_run(PORTABLE, c, empty),
        lambda: lib.qfw_affine_params(null, good, 0, 8, 1, x, scale, zero),
        lambda: lib.qfw_affine_params(PORTABLE, good, 0, 8, 1, null, scale, zero),
        lambda: lib.qfw_affine_params(PORTABLE, good, 0, 8, 1, x, null, zero),
        lambda: lib.qfw_affine_params(PORTABLE, good, 0, 8, 1, x, scale, null),
        lambda: lib.qfw_check_finite(PORTABLE, null, 1, 0),
        lambda: lib.qfw_check_finite(null, x, 1, 0),
        lambda: lib.qfw_pack(null, 0, 1, 4, ffi.new("uint8_t[8]")),
        lambda: lib.qfw_unpack(null, 1, 4, 1, 0, x),
        lambda: lib.qfw_convert(null, t, t, how, count),
        lambda: lib.qfw_convert(PORTABLE, null, t, how, count),
        lambda: lib.qfw_convert(PORTABLE, t, null, how, count),
        lambda: lib.qfw_convert(PORTABLE, t, t, null, count),
        lambda: lib.qfw_convert(PORTABLE, t, t, how, null),
        lambda: lib.qfw_convert(PORTABLE, tensor(null, (1, 8, 8), scale), t, how, count),
        lambda: lib.qfw_convert(PORTABLE, tensor(x, (1, 8, 8)), t, how, count),
        lambda: lib.qfw_convert(PORTABLE, tensor(x, (2, 8, 8), scale), t, how, count),
    ]
    for i, call in enumerate(calls):
        assert call() == lib.QFW_E_NULL, i
    assert lib.qfw_affine_kernel(null, c, empty) == null
    assert lib.qfw_affine_kernel(PORTABLE, null, empty) == null
    assert lib.qfw_affine_kernel(PORTABLE, c, null) == null
    assert lib.qfw_pack(null, 0, 0, 4, null) == lib.QFW_OK
    assert lib.qfw_affine_workspace(c, size) == lib.QFW_OK


def test_convert_checks_before_it_writes() -> None:
    x = ffi.new("float[4]", [1, 2, 3, 4])
    src = tensor(x, (lib.QFW_FLOAT32, 32, 32))
    codes, count = ffi.new("int8_t[8]", [77] * 8), ffi.new("uint64_t *")
    one, bad, odd = (ffi.new("float[1]", [v]) for v in (1.0, 0.0, 0.3))
    zero = ffi.new("uint16_t[1]", [16])

    def status(dst: Any, **how: int) -> int:
        return int(lib.qfw_convert(PORTABLE, src, dst, ffi.new("qfw_encoding *", how), count))

    sym, asym = (lib.QFW_SYM, 8, 8), (lib.QFW_ASYM, 4, 0)
    pow2 = tensor(codes, sym, odd)
    pow2.format.pow2 = 1
    short = tensor(codes, sym, one)
    short.layout.axis = 3
    assert status(tensor(codes, sym, bad)) == lib.QFW_E_SCALE
    assert status(pow2) == lib.QFW_E_SCALE
    assert status(tensor(codes, asym, one, zero_point=zero)) == lib.QFW_E_ZERO_POINT
    assert status(short) == lib.QFW_E_SIZE
    assert status(tensor(codes, (lib.QFW_SYM, 32, 32), one)) == lib.QFW_E_KIND
    assert status(tensor(codes, sym, one), rounding=3) == lib.QFW_E_KIND
    assert status(tensor(codes, (lib.QFW_SYM, 99, 8), one)) == lib.QFW_E_BITS
    assert list(codes) == [77] * 8
    assert status(tensor(codes, sym, one)) == lib.QFW_OK
    assert list(codes) == [1, 2, 3, 4, 77, 77, 77, 77]


def test_packing_checks() -> None:
    data, codes = ffi.new("uint8_t[8]"), ffi.new("int16_t[4]")
    for bits, wide, status in ((0, 1, "BITS"), (17, 1, "BITS"), (9, 0, "CONTAINER")):
        expected = getattr(lib, f"QFW_E_{status}")
        assert lib.qfw_pack(codes, wide, 4, bits, data) == expected
        assert lib.qfw_unpack(data, 4, bits, 1, wide, codes) == expected


def test_an_empty_tensor_needs_no_pointers() -> None:
    n0 = layout(axis=0, group=1)
    empty = tensor(ffi.NULL, (lib.QFW_FLOAT32, 32, 32))
    empty.layout.axis = 0
    how, count = ffi.new("qfw_encoding *"), ffi.new("uint64_t *")
    no_data = ffi.new("qfw_affine_data *")
    none = ffi.new("qfw_layout *", n0)
    assert lib.qfw_convert(PORTABLE, empty, empty, how, count) == lib.QFW_OK
    assert lib.qfw_affine_run(PORTABLE, affine(layout=n0), no_data) == lib.QFW_OK
    assert lib.qfw_check_finite(PORTABLE, ffi.NULL, 0, lib.QFW_F32) == lib.QFW_OK
    params = (ffi.NULL, ffi.NULL, ffi.NULL)
    assert lib.qfw_affine_params(PORTABLE, none, lib.QFW_F32, 8, 1, *params) == lib.QFW_OK


def test_the_build_and_the_core_have_one_version() -> None:
    build = (Path(__file__).parents[1] / "meson.build").read_text()
    assert f"version: '{quant.core_info()['version']}'" in build
