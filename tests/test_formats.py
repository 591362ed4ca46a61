"""Formats: what is legal, how they print and compare, their bytes and their layouts."""

import copy
import itertools
import pickle
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
from every_format import EVERY, WIDTHS

from pyqfw.formats import BFP, Asym, Float32, Format, Sym, SymInt32

# --- what is legal -----------------------------------------------------------------------


def test_every_legal_combination_prints_as_the_code_that_makes_it():
    for fmt in EVERY:
        same = eval(repr(fmt))
        assert type(same) is type(fmt)
        assert same == fmt
        assert hash(same) == hash(fmt)
        assert repr(same) == repr(fmt)


@pytest.mark.parametrize(
    ("fmt", "text"),
    [
        (Float32(), "Float32()"),
        (Sym(8), "Sym(8)"),
        (Sym(12, container=16), "Sym(12, container=16)"),
        (Sym(8, container=8), "Sym(8, container=8)"),
        (Sym(8, axis=0, rounding="stochastic"), "Sym(8, axis=0, rounding='stochastic')"),
        (Sym(4, axis="row", range=2), "Sym(4, axis='row', range=2)"),
        (Asym(1, group=8, range=0.5), "Asym(1, group=8, range=0.5)"),
        (Asym(16, range="hindsight"), "Asym(16, range='hindsight')"),
        (SymInt32(), "SymInt32(12)"),
        (SymInt32(32), "SymInt32(32)"),
        (BFP(4, 16), "Sym(4, group=16, scale='pow2')"),
    ],
)
def test_repr(fmt, text):
    assert repr(fmt) == str(fmt) == text


NOT_INTEGERS = (True, False, 8.0, "8", None, (8,), [8], np.float32(8), np.bool_(True), Fraction(8))
COMMON_ILLEGAL = {
    "container": (
        (0, 4, 12, 64, -8, 8.0, True, "8", "int8", None, [8], np.zeros(2)),
        ("'packed'", "8", "16", "32"),
    ),
    "axis": (
        (True, False, 0.0, 1.5, "col", "", (0,), [0], np.arange(3)),
        ("None", "integer", "'row'"),
    ),
    "group": ((0, -1, 32.0, True, "32", "row", (2,), np.zeros(2)), ("None", "integer >= 1")),
    "scale": (("fixed", "", 1, 0.5, None, True, ["float"], np.zeros(2)), ("'float'", "'pow2'")),
    "range": (
        (
            *("static", "", None, True, [1.0], 1j, np.ones(1), b"dynamic"),
            *(0, 0.0, -0.0, -1, -1.5, float("nan"), float("inf"), -float("inf")),
            *(3.5e38, 10**39, 10**400, Fraction(10**400), np.float64("nan")),
            *(1e-39, 2.0**-127, 1e-46, Fraction(1, 10**400)),
        ),
        ("'dynamic'", "'hindsight'", "positive number"),
    ),
    "rounding": (
        ("nearest", "half_down", "", 0, None, True, ("half_away",), np.zeros(2)),
        ("'half_away'", "'half_even'", "'stochastic'"),
    ),
}


@pytest.mark.parametrize("kind", [Sym, Asym])
@pytest.mark.parametrize("field", COMMON_ILLEGAL)
def test_an_illegal_field_is_refused_with_the_legal_values(kind, field):
    bad_values, legal = COMMON_ILLEGAL[field]
    for bad in bad_values:
        with pytest.raises(ValueError, match=f"^{kind.__name__}: {field} must be") as error:
            kind(8, **{field: bad})
        assert all(word in str(error.value) for word in legal), str(error.value)


@pytest.mark.parametrize(
    ("kind", "legal", "bad_bits"),
    [
        (Sym, "2..16", (-1, 0, 1, 17, 32, 2**40)),
        (Asym, "1..16", (-1, 0, 17, 32, 2**40)),
        (SymInt32, "2..16, or 32", (-1, 0, 1, 17, 31, 33, 64, 2**40)),
    ],
)
def test_illegal_bits(kind, legal, bad_bits):
    for bad in (*bad_bits, *NOT_INTEGERS):
        with pytest.raises(ValueError, match=f"^{kind.__name__}: bits must be") as error:
            kind(bad)
        assert legal in str(error.value)


@pytest.mark.parametrize("kind", [Sym, Asym])
def test_a_container_holds_its_bits_or_is_refused(kind):
    for bits, box in itertools.product(WIDTHS[kind], (8, 16, 32)):
        if box >= bits:
            assert kind(bits, container=box).container == box
            continue
        with pytest.raises(ValueError, match=f"for {bits} bits, not {box}$") as error:
            kind(bits, container=box)
        legal = ", ".join(str(w) for w in (8, 16, 32) if w >= bits)
        assert f"'packed', {legal} " in str(error.value)


@pytest.mark.parametrize("kind", [Sym, Asym])
@pytest.mark.parametrize("axis", [0, 1, -1, "row"])
def test_axis_and_group_exclude_each_other(kind, axis):
    match = f"{kind.__name__}: axis={axis!r} and group=4 exclude each other: legal are"
    with pytest.raises(ValueError, match=match):
        kind(8, axis=axis, group=4)


@pytest.mark.parametrize("bad", [None, 0, -4, True, 2.0, "4"])
def test_bfp_needs_a_group(bad):
    with pytest.raises(ValueError, match=r"group must be .*integer >= 1"):
        BFP(8, bad)


def test_options_are_keywords():
    with pytest.raises(TypeError):
        Sym(8, 16)
    with pytest.raises(TypeError):
        Sym()


def test_numpy_values_become_python_ones():
    fmt = Sym(np.int8(5), container=np.uint8(16), axis=np.int64(-1), range=np.float32(0.1))
    assert repr(fmt) == "Sym(5, container=16, axis=-1, range=0.10000000149011612)"
    assert repr(Asym(np.uint16(3), group=np.int32(7), range=np.int64(2))) == (
        "Asym(3, group=7, range=2)"
    )
    assert repr(Sym(4, axis=np.str_("row"), rounding=np.str_("stochastic"))) == (
        "Sym(4, axis='row', rounding='stochastic')"
    )
    assert repr(SymInt32(np.int64(32))) == "SymInt32(32)"
    assert type(SymInt32(np.int64(32)).bits) is int
    assert repr(Sym(8, range=Fraction(1, 4))) == "Sym(8, range=0.25)"


# --- values: equal, hashable, frozen -------------------------------------------------------


def stored_as(fmt):
    """What equality means, said apart from the implementation."""
    if isinstance(fmt, Float32 | SymInt32):
        return repr(fmt)
    width = fmt.bits if fmt.container == "packed" else fmt.container
    fixed = fmt.range if isinstance(fmt.range, str) else np.float32(fmt.range).item()
    rules = (fmt.axis, fmt.group, fmt.scale, fixed, fmt.rounding)
    return (type(fmt).__name__, fmt.bits, width, *rules)


def test_formats_are_equal_exactly_when_they_store_the_same_bytes_by_the_same_rules():
    by_format, by_meaning = {}, {}
    for fmt in EVERY:
        by_format.setdefault(fmt, set()).add(repr(fmt))
        by_meaning.setdefault(stored_as(fmt), set()).add(repr(fmt))
    assert sorted(map(sorted, by_format.values())) == sorted(map(sorted, by_meaning.values()))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Sym(8), Sym(8, container=8)),
        (Sym(16), Sym(16, container=16)),
        (Asym(8, group=4), Asym(8, container=8, group=4)),
        (Asym(16), Asym(16, container=16)),
        (Sym(4, range=1), Sym(4, range=1.0)),
        (Sym(4, range=0.1), Sym(4, range=np.float32(0.1))),
        (BFP(8, 32), Sym(8, group=32, scale="pow2")),
        (SymInt32(), SymInt32(12)),
    ],
)
def test_equal(a, b):
    assert a == b
    assert hash(a) == hash(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Sym(8), Asym(8)),
        (Sym(8), Sym(8, container=16)),
        (Sym(12), Sym(12, container=16)),
        (Sym(12, container=32), SymInt32(12)),
        (SymInt32(32), Float32()),
        (Sym(8), Sym(8, rounding="half_even")),
        (Sym(8), "Sym(8)"),
        (Sym(8), None),
    ],
)
def test_not_equal(a, b):
    assert a != b
    assert b != a


def test_fields_keep_what_was_written():
    assert Sym(8, container=8).container == 8
    assert Sym(8).container == "packed"
    assert type(Sym(8, range=1).range) is int


@pytest.mark.parametrize("fmt", [Float32(), Sym(8), Asym(4, group=2), SymInt32(32)])
def test_frozen(fmt):
    for name in ("bits", "container", "axis", "group", "scale", "range", "rounding", "new"):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(fmt, name, 8)
    with pytest.raises((FrozenInstanceError, AttributeError)):
        del fmt.bits


@pytest.mark.parametrize("fmt", [Float32(), Sym(5, axis="row"), Asym(4, range=3), SymInt32(32)])
def test_copies_are_equal(fmt):
    assert pickle.loads(pickle.dumps(fmt)) == copy.deepcopy(fmt) == replace(fmt) == fmt
    assert isinstance(fmt, Format)


def test_replace_checks_again():
    assert replace(Sym(8, container=8), bits=4) == Sym(4, container=8)
    with pytest.raises(ValueError, match="container"):
        replace(Sym(8, container=8), bits=9)


# --- what the tensor code reads ------------------------------------------------------------


def test_code_range():
    for bits in range(2, 17):
        largest = (1 << (bits - 1)) - 1
        assert (Sym(bits).qmin, Sym(bits).qmax) == (-largest, largest)
        assert (SymInt32(bits).qmin, SymInt32(bits).qmax) == (-largest, largest)
    for bits in range(1, 17):
        assert (Asym(bits).qmin, Asym(bits).qmax) == (0, (1 << bits) - 1)
    int32 = np.iinfo(np.int32)
    assert (SymInt32(32).qmin, SymInt32(32).qmax) == (int32.min, int32.max)
    assert not hasattr(Float32(), "qmin")
    assert not hasattr(Float32(), "qmax")


def test_code_dtype():
    assert Float32().code_dtype == "float32"
    assert SymInt32(5).code_dtype == SymInt32(32).code_dtype == "int32"
    for kind, sign in ((Sym, "int"), (Asym, "uint")):
        for bits in WIDTHS[kind]:
            assert kind(bits).code_dtype == f"{sign}{8 if bits <= 8 else 16}"
            for box in (8, 16, 32):
                if box >= bits:
                    assert kind(bits, container=box).code_dtype == f"{sign}{box}"
    for fmt in EVERY:
        dtype = np.dtype(fmt.code_dtype)
        if not isinstance(fmt, Float32):
            assert np.iinfo(dtype).min <= fmt.qmin < fmt.qmax <= np.iinfo(dtype).max


def test_the_small_properties():
    assert (Float32().bits, Float32().container) == (32, 32)
    assert (SymInt32(12).bits, SymInt32(12).container) == (12, 32)
    assert (Sym(12).bits, Sym(12, container=16).container) == (12, 16)
    assert Asym(8).asymmetric
    assert not any(f.asymmetric for f in (Sym(8), SymInt32(8), Float32()))
    assert Asym(8, scale="pow2").pow2
    assert BFP(8, 4).pow2
    assert not any(f.pow2 for f in (Sym(8), Asym(8), SymInt32(8), Float32()))
    for fmt in (Float32(), SymInt32(12)):
        rules = (fmt.axis, fmt.group, fmt.scale, fmt.range, fmt.rounding)
        assert rules == (None, None, "float", "dynamic", "half_away")
