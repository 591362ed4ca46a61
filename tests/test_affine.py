"""The affine family against its oracle, and the defects of its ancestors. Zero tolerance."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import helpers as h
import numpy as np
import oracle as o
import oracle_affine as oa
import pytest
from helpers import INT32_MAX, INT32_MIN, KINDS, ROUNDINGS, RULES, Case
from hypothesis import given, settings
from hypothesis import strategies as st

from pyqfw import quant
from pyqfw.errors import QfwError, ScaleError

fixed = settings(derandomize=True, deadline=None, database=None, max_examples=300)

SHAPES = ((), (1,), (9,), (3, 5), (2, 3, 4), (2, 3, 2, 3))
RANGES = (
    (-128, 127),
    (0, 255),
    (-8, 7),
    (0, 1),
    (5, 5),
    (100, 200),
    (-32768, 32767),
    (0, 65535),
    (INT32_MIN, INT32_MAX),
    (INT32_MIN, INT32_MIN),
    (INT32_MAX - 1, INT32_MAX),
)
ZERO_POINTS = (0, 1, -1, 7, 128, -129, 1001, 2**22, 2**22 + 1, -(2**24) - 1, INT32_MIN, INT32_MAX)
CODES = {
    "int8": (-128, -127, -1, 0, 1, 127),
    "uint8": (0, 1, 127, 128, 254, 255),
    "int16": (-32768, -1, 0, 257, 32767),
    "uint16": (0, 1, 32768, 65535),
    "int32": (INT32_MIN, -(2**24) - 1, -1, 0, 3, 2**24 + 1, INT32_MAX),
}


def landmarks(kind: str) -> list[int]:
    """Zeros, the smallest and largest subnormal, normal and finite number, and 1: both signs."""
    f = o.FLOATS[kind]
    least = 1 << (f.precision - 1)
    one = o.bits_of_fraction(1, kind)
    positive = [0, 1, least - 1, least, least + 1, one, f.infinity - 1]
    return positive + [b | 1 << (f.width - 1) for b in positive]


def extreme_scales(kind: str) -> list[int]:
    f = o.FLOATS[kind]
    least = 1 << (f.precision - 1)
    return [least, least + 1, 2 * least, f.infinity - least, f.infinity - 1]


def spread(rng: np.random.Generator, case: dict[str, Any]) -> Case:
    """Ties, their neighbours and a few landmarks for the elements of a given layout."""
    kind, shape, grain = case["kind"], case["shape"], case["grain"]
    precision = oa.compute_kind(kind)
    index, scale_shape = o.layout(shape, grain.get("axis"), grain.get("group"), affine=True)
    scales = [
        o.bits_of_fraction(Fraction(float(rng.uniform(0.01, 2))), precision)
        for _ in range(prod(scale_shape))
    ]
    s = [o.fraction_of_bits(b, precision) for b in scales]
    marks = landmarks(kind)
    x = [
        marks[rng.integers(len(marks))]
        if rng.random() < 0.1
        else h.half_steps(int(rng.integers(-300, 300)), s[g], kind, int(rng.integers(-2, 3)))
        for g in index
    ]
    dy = [h.half_steps(int(rng.integers(-99, 99)), Fraction(1, 3), kind) for _ in index]
    points = [int(rng.integers(-9, 10)) for _ in scales]
    return Case(x=x, dy=dy, scales=scales, zero_points=points, codes=(-3, 0, 127, 5), **case)


# --- against the oracle --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_granularity_of_every_rank(kind):
    rng = np.random.default_rng(7)
    for shape in SHAPES:
        for i, grain in enumerate(h.granularities(shape)):
            rounding = ROUNDINGS[i % 3]
            case = {"kind": kind, "shape": shape, "grain": grain, "rounding": rounding}
            spread(rng, {**case, "qmin": -100, "qmax": 99, "key": (i, 2, 3)}).check()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_ties_of_both_signs_and_their_neighbours(kind, rounding):
    for s in (Fraction(1), Fraction(3, 16), Fraction(1, 1024), o.nearest(Fraction(1, 3))):
        ks = [k for k in range(-21, 22) if k] + [255, -255, 256, -256]
        x = [h.half_steps(k, s, kind, u) for k in ks for u in (-1, 0, 1)]
        n = len(x)
        scale = [o.bits_of_fraction(s, oa.compute_kind(kind))]
        rules = {"rounding": rounding, "key": (5, 6, 7)}
        Case(kind, (n,), {}, x, x[::-1], scale, [0], -10, 9, **rules).check()
        Case(kind, (n,), {}, x, x, scale, [7], -128, 127, **rules).check()


@pytest.mark.parametrize("kind", KINDS)
def test_stochastic_rounding_at_its_thresholds(kind):
    """x + u / 2^32 at an integer, and as little as half a unit of u beside it: both signs."""
    n, scale = 96, [o.bits_of_fraction(1, oa.compute_kind(kind))]
    for k in (0, 1, -3, 100):
        for halves in (-1, 0, 1):
            u = [o.uniform(o.key(1, 2, 3), i) for i in range(n)]
            x = [o.bits_of_fraction(k - Fraction(2 * w + halves, 2**33), kind) for w in u]
            Case(kind, (n,), {}, x, x, scale, [5], rounding="stochastic", key=(1, 2, 3)).check()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_extremes_of_data_and_scales(kind, rounding):
    """Products and quotients that overflow, underflow and are subnormal on the way."""
    marks = landmarks(kind)
    for scale in extreme_scales(oa.compute_kind(kind)):
        for zp in (0, 1, INT32_MIN, INT32_MAX):
            for qmin, qmax in ((-128, 127), (INT32_MIN, INT32_MAX)):
                case = Case(kind, (len(marks),), {}, marks, marks[::-1], [scale], [zp], qmin, qmax)
                replace(case, rounding=rounding, codes=CODES["int32"]).check()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("kind", KINDS)
def test_code_types_end_codes_and_odd_zero_points(kind, code):
    limits = np.iinfo(code)
    one = [o.bits_of_fraction(1, oa.compute_kind(kind))]
    for zp in ZERO_POINTS:
        ends = {e - zp + d for e in (limits.min, limits.max) for d in (-1, 0, 1)}
        x = [o.bits_of_fraction(e, kind) for e in sorted(ends)]
        x = [b for b in x if o.is_finite(b, kind)]
        case = Case(kind, (len(x),), {}, x, x, one, [zp], int(limits.min), int(limits.max))
        replace(case, codes=CODES[code], code=code).check()


finite = {
    kind: st.one_of(
        st.integers(0, 2 ** o.FLOATS[kind].width - 1), st.sampled_from(landmarks(kind))
    ).filter(lambda b, kind=kind: o.is_finite(b, kind))
    for kind in KINDS
}
normal = {
    kind: st.one_of(
        st.fractions(Fraction(1, 1000), 10).map(lambda v, kind=kind: o.bits_of_fraction(v, kind)),
        st.integers(
            1 << (o.FLOATS[kind].precision - 1),
            o.FLOATS[kind].infinity - 1,
        ),
        st.sampled_from(extreme_scales(kind)),
    )
    for kind in ("float32", "float64")
}
int32 = st.one_of(st.integers(-300, 300), st.integers(INT32_MIN, INT32_MAX))
words = st.integers(0, 2**32 - 1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(KINDS))
    shape = draw(st.sampled_from(SHAPES))
    grain = draw(st.sampled_from(list(h.granularities(shape))))
    precision = oa.compute_kind(kind)
    index, scale_shape = o.layout(shape, grain.get("axis"), grain.get("group"), affine=True)
    n, runs = len(index), prod(scale_shape)
    scales = draw(st.lists(normal[precision], min_size=runs, max_size=runs))
    s = [o.fraction_of_bits(b, precision) for b in scales]
    near = st.tuples(st.integers(-600, 600), st.integers(-2, 2))
    picks = draw(st.lists(st.one_of(near, finite[kind]), min_size=n, max_size=n))
    x = [
        p if isinstance(p, int) else h.half_steps(p[0], s[g], kind, p[1])
        for p, g in zip(picks, index, strict=True)
    ]
    low, high = sorted(draw(st.one_of(st.tuples(int32, int32), st.sampled_from(RANGES))))
    return Case(
        kind,
        shape,
        grain,
        x,
        draw(st.lists(finite[kind], min_size=n, max_size=n)),
        scales,
        draw(
            st.lists(st.one_of(int32, st.sampled_from(ZERO_POINTS)), min_size=runs, max_size=runs)
        ),
        low,
        high,
        draw(st.sampled_from(ROUNDINGS)),
        draw(st.tuples(words, words, words)),
        draw(st.lists(int32, min_size=1, max_size=3)),
    )


@given(cases())
@fixed
def test_any_case(case):
    case.check()


# --- the gradient passes exactly where the code was in range ------------------------------------


@given(cases(), st.sampled_from(RULES))
@fixed
def test_gradient_passes_exactly_where_the_code_was_in_range(case, rule):
    """The code before the clamp is seen through a clamp that is as wide as int32."""
    points = (case.scale(), case.zero_point())
    words = dict(zip(("seed", "step", "stream"), case.key, strict=True))
    how = {**case.grain, "rounding": case.rounding, **words}
    low, high = max(case.qmin, INT32_MIN + 1), min(case.qmax, INT32_MAX - 1)
    if low > high:
        return
    x = case.array(case.x)
    raw = quant.quantize_affine(x, *points, INT32_MIN, INT32_MAX, **how)
    expected = (raw > low) & (raw < high) if rule == "strict" else (raw >= low) & (raw <= high)
    dy = np.ones(case.shape, x.dtype)
    limits = (low, high)
    dx = quant.fake_quantize_affine_backward(dy, x, *points, *limits, **how, in_range=rule)
    np.testing.assert_array_equal(dx != 0, expected)
    codes, mask = quant.quantize_affine(x, *points, *limits, **how, in_range=rule, return_mask=True)
    np.testing.assert_array_equal(codes, np.clip(raw, low, high))
    seen = np.unpackbits(mask, count=x.size, bitorder="little").reshape(case.shape)
    np.testing.assert_array_equal(seen, expected)


# --- the ancestors' defects ----------------------------------------------------------------------


def test_ancestor_two_contradictory_mask_rules():
    """One rule in every operation and granularity; what the ends do is an argument."""
    x = np.arange(-6, 6, dtype=np.float32).reshape(2, 6)
    dy = np.ones_like(x)
    for grain in ({}, {"axis": 0}, {"axis": 1}, {"axis": "row"}, {"group": 4}):
        for rule, low, high in (("inclusive", -4, 3), ("strict", -3, 2)):
            expected = (x >= low) & (x <= high)
            how = {**grain, "in_range": rule}
            for forward in (quant.quantize_affine, quant.fake_quantize_affine):
                _, mask = forward(x, 1.0, 0, -4, 3, **how, return_mask=True)
                bits = np.unpackbits(mask, count=12, bitorder="little").reshape(2, 6)
                np.testing.assert_array_equal(bits, expected)
            for name in ("quantize_affine_backward", "fake_quantize_affine_backward"):
                dx = getattr(quant, name)(dy, x, 1.0, 0, -4, 3, **how)
                np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_ancestor_zero_point_added_before_rounding(kind):
    """x = 0.5, s = 1, zp = 1: round(0.5) + 1 = 1 forward and backward, never round(1.5) = 2."""
    x = np.full(9, 0.5, h.dtype_of(kind))
    assert quant.quantize_affine(x, 1.0, 1, 0, 255).tolist() == [1] * 9
    assert quant.fake_quantize_affine(x, 1.0, 1, 0, 255).tolist() == [0] * 9
    for name in ("quantize_affine_backward", "fake_quantize_affine_backward"):
        backward = getattr(quant, name)
        assert backward(x, x, 1.0, 1, 1, 1).tolist() == [0.5] * 9
        assert backward(x, x, 1.0, 1, 2, 2).tolist() == [0] * 9


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_ancestor_forward_divides_while_backward_multiplies_by_a_reciprocal(kind):
    """On x where the two differ, the gradient follows the forward's code."""
    rng = np.random.default_rng(3)
    s = rng.uniform(0.01, 1, 4000).astype(kind)
    x = ((rng.integers(0, 100, 4000) + 0.5) * s).astype(kind)
    divided, multiplied = np.rint(x / s), np.rint(x * (np.ones(1, kind) / s))
    differ = divided != multiplied
    assert np.count_nonzero(differ) > 50
    x, s, codes = x[differ], s[differ], multiplied[differ]
    how = {"axis": 0}
    np.testing.assert_array_equal(quant.quantize_affine(x, s, 0, -128, 127, **how), codes)
    for i in range(50):
        for code in (codes[i], divided[differ][i]):
            low = high = int(code)
            _, mask = quant.quantize_affine(x[i], s[i], 0, low, high, return_mask=True)
            dx = quant.fake_quantize_affine_backward(x[i], x[i], s[i], 0, low, high)
            assert bool(mask[0]) == bool(dx != 0) == (code == codes[i])


def test_ancestor_float64_computed_in_float32():
    s, x = 0.1, np.array([0.05 * (1 + 2.0**-40), 1e300, 1e-300, 12.3])
    assert quant.quantize_affine(x, s, 0, -128, 127).tolist() == [1, 127, 0, 123]
    assert quant.fake_quantize_affine(x, s, 0, -128, 127)[3] == 123 * s
    assert quant.dequantize_affine(np.int8([3]), s, dtype=np.float64)[0] == 3 * s
    assert quant.dequantize_affine_backward(x, s).tolist() == (x * s).tolist()
    dx = quant.quantize_affine_backward(x, x, s, 0, -128, 127)
    assert dx.tolist() == [x[0] / s, 0, 1e-300 / s, 12.3 / s]
    tiny = np.array([3e-300])
    assert quant.quantize_affine(tiny, 1e-300, 0, -128, 127).tolist() == [3]
    assert quant.describe("quantize_affine", x).precision == "float64"


@pytest.mark.parametrize("bad", [0.0, -0.0, float("nan")])
def test_ancestor_scale_zero_or_nan_unchecked(bad):
    x, codes = np.ones(4, np.float32), np.ones(4, np.int8)
    for scale in (bad, np.array([1, 1, bad, 1], np.float32)):
        how = {"axis": None if np.ndim(scale) == 0 else 0}
        for call in (
            lambda s=scale, k=how: quant.quantize_affine(x, s, 0, -8, 7, **k),
            lambda s=scale, k=how: quant.fake_quantize_affine(x, s, 0, -8, 7, **k),
            lambda s=scale, k=how: quant.dequantize_affine(codes, s, **k),
            lambda s=scale, k=how: quant.quantize_affine_backward(x, x, s, 0, -8, 7, **k),
            lambda s=scale, k=how: quant.fake_quantize_affine_backward(x, x, s, 0, -8, 7, **k),
            lambda s=scale, k=how: quant.dequantize_affine_backward(x, s, **k),
        ):
            with pytest.raises(ScaleError, match=r"^scale must be finite"):
                call()


@pytest.mark.parametrize("code", ["int8", "uint8", "int16", "uint16"])
def test_ancestor_code_range_unchecked_against_the_output_type(code):
    x, limits = np.zeros(3, np.float32), np.iinfo(code)
    for low, high in ((limits.min - 1, limits.max), (limits.min, limits.max + 1)):
        for where in ({"dtype": code}, {"out": np.empty(3, code)}):
            with pytest.raises(QfwError, match=rf"{low}\.\.{high} do not fit {code}"):
                quant.quantize_affine(x, 1.0, 0, int(low), int(high), **where)
    assert quant.quantize_affine(x, 1.0, 0, int(limits.min), int(limits.max), dtype=code).size == 3


def test_ancestor_strides_ignored():
    base = np.arange(48, dtype=np.float32).reshape(6, 8)
    for x in (base[::2, ::2], base.T, base[::-1, 1::3], np.broadcast_to(base[0], (3, 8))):
        expected = quant.quantize_affine(x.copy(), 0.5, 1, -128, 127)
        np.testing.assert_array_equal(quant.quantize_affine(x, 0.5, 1, -128, 127), expected)
        assert expected.tolist() == np.minimum(x * 2 + 1, 127).tolist()
        dx = quant.fake_quantize_affine_backward(x, x, 0.5, 1, -128, 127)
        np.testing.assert_array_equal(dx, np.where(x * 2 + 1 <= 127, x, 0))
