"""Every ISA has the bits of `portable` at every tail length; the float mode does not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import oracle as o
import pytest
from helpers import FLT_MAX, FLT_MIN, INT32_MAX, INT32_MIN, KINDS, ROUNDINGS, RULES, dtype_of

import pyqfw as q
from pyqfw import quant
from pyqfw._core import lib
from pyqfw.errors import NonFiniteError

# Where there is none but portable, that one against itself: no test is skipped.
FAST = [isa for isa in quant.core_info()["isas"] if isa != "portable"] or ["portable"]
TAILS = [*range(71), 127, 128, 129, 130, 131, 1000]
SOME = [0, 1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 70, 131]

for_each_isa = pytest.mark.parametrize("isa", FAST)


def bits(x: Any) -> Any:
    """What must be equal: arrays by type, shape and bytes."""
    if isinstance(x, np.ndarray):
        return x.dtype.name, x.shape, x.tobytes()
    if isinstance(x, q.QTensor):
        return bits(x.codes), bits(x.scale), bits(x.zero_point), bytes(x.data), x.saturated
    return tuple(map(bits, x)) if isinstance(x, tuple) else x


def same(isa: str, function: Callable[[], Any], *about: Any) -> None:
    with quant.isa("portable"):
        expected = function()
    with quant.isa(isa):
        found = function()
    assert bits(found) == bits(expected), (*about, found, expected)


def short_scale(rng: np.random.Generator, low: int = -20, high: int = 20) -> np.float32:
    """A scale of at most 12 significant bits: k/2 of it is exact for |k| < 2^12."""
    return np.float32(np.ldexp(float(rng.integers(2048, 4096)), int(rng.integers(low, high)) - 11))


def stepped(x: np.ndarray, ulps: np.ndarray) -> np.ndarray:
    """Floats so many steps away from zero, no further than the largest."""
    patterns = x.view(np.uint32).astype(np.int64)
    magnitudes = np.clip((patterns & 0x7FFFFFFF) + ulps, 0, 0x7F7FFFFF)
    return (patterns & 0x80000000 | magnitudes).astype(np.uint32).view(np.float32)


def samples(rng: np.random.Generator, n: int, s: np.float32, top: int) -> np.ndarray:
    """Codes, ties and their neighbours up to `top` steps; zeros, subnormals."""
    with np.errstate(over="ignore", under="ignore"):
        half = np.float64(s) * rng.integers(-2 * top, 2 * top + 1, n) / 2
        x = np.clip(half, -FLT_MAX, FLT_MAX).astype(np.float32)
        x = stepped(x, rng.choice([0, 0, 0, -1, 1, 2], n))
        x = np.clip(x, -FLT_MAX, FLT_MAX)
    odd = rng.random(n)
    small = rng.integers(0, 2**23, n).astype(np.uint32).view(np.float32)
    x = np.where(odd < 0.05, np.float32(0), np.where(odd < 0.1, np.float32(-0.0), x))
    return np.where(odd > 0.95, small * np.sign(x), x).astype(np.float32)


def saturating(rng: np.random.Generator, x: np.ndarray, s: np.float32) -> np.ndarray:
    """Some elements far beyond every code."""
    with np.errstate(over="ignore"):
        far = np.clip(
            np.float64(s) * rng.choice([200, -500, 1e6, -1e30], x.size), -FLT_MAX, FLT_MAX
        )
    far = np.where(rng.random(x.size) < 0.5, far, np.sign(far) * FLT_MAX)
    return np.where(rng.random(x.size) < 0.1, far, x).astype(np.float32)


def within(x: np.ndarray, s: np.float32, top: int) -> np.ndarray:
    """Data whose dynamic scale is s itself: nothing beyond top * s, one element there."""
    limit = np.float32(np.float64(s) * top)
    x = np.clip(x, -limit, limit)
    x[x.size // 2 : x.size // 2 + 1] = limit
    return x


# --- quantize ------------------------------------------------------------------------------------


def check_quantize(isa: str, rng: np.random.Generator, shape: Any, **format: Any) -> None:
    """Each rounding, dynamic and fixed, with float and pow2 scales."""
    n, width = int(np.prod(shape)), format.pop("bits")
    top = 2 ** (width - 1) - 1
    for scale in ("float", "pow2"):
        s = np.float32(2.0 ** rng.integers(-20, 20)) if scale == "pow2" else short_scale(rng)
        x = samples(rng, n, s, top + 2)
        dynamic, fixed = within(x, s, top).reshape(shape), saturating(rng, x, s).reshape(shape)
        for rounding in ROUNDINGS:
            fmt = q.Sym(width, scale=scale, rounding=rounding, **format)
            same(isa, lambda f=fmt, v=dynamic: q.quantize(v, f, seed=n), fmt, shape)
            same(isa, lambda f=fmt, v=fixed, s=s: q.quantize(v, f, scale=s, seed=3), fmt, shape)


@for_each_isa
@pytest.mark.parametrize("width", range(2, 9))
def test_quantize_per_tensor(isa, width):
    rng = np.random.default_rng(width)
    for n in TAILS:
        check_quantize(isa, rng, (n,), bits=width, container=8)
        if width == 8:
            check_quantize(isa, rng, (n,), bits=8, container="packed")


@for_each_isa
@pytest.mark.parametrize("container", [8, "packed"])
def test_quantize_by_groups(isa, container):
    rng = np.random.default_rng(2)
    for group in range(1, 41):
        for n in (group - 1, group, group + 1, 2 * group + 7, 70, 131):
            width = 8 if container == "packed" else int(rng.integers(2, 9))
            check_quantize(isa, rng, (n,), bits=width, container=container, group=group)
        check_quantize(isa, rng, (3, group + 5), bits=8, container=container, group=group)


def many_runs(rng: np.random.Generator, runs: int, group: int, rest: int) -> np.ndarray:
    """Groups with a scale each, some zero, tiny or huge, and a short one."""
    x = samples(rng, runs * group + rest, np.float32(0.75), 127)
    sizes = np.exp2(rng.integers(-8, 8, runs + 1)).astype(np.float32)
    odd = rng.random(runs + 1)
    sizes[odd < 0.02] = 0.0
    sizes[odd > 0.97] = 2.0**-124
    sizes[odd > 0.99] = 2.0**118
    return x * np.repeat(sizes, group)[: x.size]


@for_each_isa
@pytest.mark.parametrize("group", [8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 255, 256, 257])
def test_quantize_by_many_groups(isa, group):
    """As many as have their scales found together, and those that are left over."""
    rng = np.random.default_rng(group)
    for runs, rest in ((15, 0), (16, 0), (16, 1), (17, group - 1), (32, 3), (50, 7)):
        x = many_runs(rng, runs, group, rest)
        for rounding, scale in product(ROUNDINGS, ("float", "pow2")):
            fmt = q.Sym(8, group=group, rounding=rounding, scale=scale)
            same(isa, lambda f=fmt, x=x: q.quantize(x, f, seed=5), fmt, runs, rest)


@for_each_isa
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_quantize_sees_a_non_finite_number_in_any_of_many_groups(isa, bad):
    fmt = q.Sym(8, container=8, group=32)
    for at in range(0, 35 * 32, 29):
        x = np.ones(35 * 32, np.float32)
        x[at] = bad
        with quant.isa(isa), pytest.raises(NonFiniteError, match=rf"x\[{at}\] is"):
            q.quantize(x, fmt)


@for_each_isa
@pytest.mark.parametrize("axis", [0, 1, 2, "row"])
def test_quantize_by_rows_and_axes(isa, axis):
    rng = np.random.default_rng(4)
    for shape in [(2, 3, n) for n in (*range(20), 31, 33, 64, 70)] + [
        (1, 5, 8),
        (7, 1, 9),
        (0, 2, 3),
    ]:
        for container in (8, "packed"):
            check_quantize(isa, rng, shape, bits=8, container=container, axis=axis)


def extreme_scales() -> list[np.float32]:
    """Ends of the range, and the first binades with their odd last bits."""
    low = [np.uint32(0x00800000 + k).view(np.float32) for k in (0, 1, 2, 3, 0x2AAAAB, 0x7FFFFF)]
    next_binade = [np.uint32(0x01000000 + k).view(np.float32) for k in (0, 1, 3, 0x7FFFFF)]
    high = [np.float32(2.0**k) for k in (118, 119, 120, 121, 125, 126, 127)]
    odd = [np.uint32(v).view(np.float32) for v in (0x7B800001, 0x7E7FFFFF, 0x7F000001, 0x7F7FFFFF)]
    return [*low, *next_binade, *high, *odd]


@for_each_isa
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("s", extreme_scales(), ids=lambda s: s.item().hex())
def test_quantize_at_extreme_scales(isa, rounding, s):
    rng = np.random.default_rng(6)
    for width, n in product((2, 3, 8), (8, 31, 32, 33, 70, 1000)):
        top = 2 ** (width - 1) - 1
        x = samples(rng, n, s, top + 1)
        fmt = q.Sym(width, container=8, rounding=rounding)
        same(isa, lambda f=fmt, x=x: q.quantize(x, f, scale=s), width, n)
        fmt = q.Sym(width, container=8, rounding=rounding, group=16)
        same(isa, lambda f=fmt, x=x: q.quantize(x, f), width, n)
        fmt = q.Sym(width, container=8, rounding=rounding, scale="pow2")
        same(isa, lambda f=fmt, x=x: q.quantize(x, f), width, n)


@for_each_isa
def test_quantize_any_bits(isa):
    """Scales and data of full precision: near every tie of every code, whatever the last bits."""
    rng = np.random.default_rng(8)
    for _ in range(200):
        s = np.uint32(rng.integers(0x00800000, 0x7B000000)).view(np.float32)
        x = saturating(rng, samples(rng, 256, s, 130), s)
        for rounding in ("half_away", "half_even"):
            fmt = q.Sym(8, container=8, rounding=rounding)
            same(isa, lambda f=fmt, x=x, s=s: q.quantize(x, f, scale=s))
            same(isa, lambda f=fmt, x=x: q.quantize(x, f))
            anything = rng.integers(0, 2**32, 64, dtype=np.uint32).view(np.float32)
            finite = anything[np.isfinite(anything)]
            grouped = q.Sym(8, container=8, rounding=rounding, group=9)
            same(isa, lambda f=grouped, x=finite: q.quantize(x, f))


@for_each_isa
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_quantize_sees_a_non_finite_number_at_every_position(isa, bad):
    for n, group, scale in product((1, 9, 33, 70), (None, 8, 32), (None, 0.5)):
        fmt = q.Sym(8, container=8, group=group)
        for at in range(n):
            x = np.ones(n, np.float32)
            x[at] = bad
            with quant.isa(isa), pytest.raises(NonFiniteError, match=rf"x\[{at}\] is"):
                q.quantize(x, fmt, scale=scale)


# --- the affine family ---------------------------------------------------------------------------


def affine_results(x: np.ndarray, dy: np.ndarray, points: Any, **how: Any) -> Any:
    """All six operations, with and without a mask."""
    grain = {k: how[k] for k in ("axis", "group") if k in how}
    scale, zero = points[:2]
    codes = quant.quantize_affine(x, *points, **how)
    y, mask = quant.fake_quantize_affine(x, *points, **how, return_mask=True)
    dequantized = quant.dequantize_affine(codes, scale, zero, **grain, dtype=x.dtype)
    return (
        codes,
        quant.quantize_affine(x, *points, **how, return_mask=True),
        (y, mask, quant.fake_quantize_affine(x, *points, **how)),
        dequantized,
        quant.quantize_affine_backward(dy, x, *points, **how),
        quant.fake_quantize_affine_backward(dy, x, *points, **how),
        quant.fake_quantize_affine_backward(dy, mask=mask),
        quant.dequantize_affine_backward(dy, scale, **grain),
        quant.qparams(x, 8, **grain),
        quant.qparams(x, 8, **grain, symmetric=False),
    )


def check_affine(isa: str, rng: np.random.Generator, shape: Any, limits: Any, **how: Any) -> None:
    n = int(np.prod(shape))
    grain = {k: how[k] for k in ("axis", "group") if k in how}
    _, scale_shape = o.layout(shape, grain.get("axis"), grain.get("group"), affine=True)
    s = short_scale(rng)
    scale = np.full(scale_shape, s, np.float32)
    scale.reshape(-1)[1::2] *= np.float32(rng.uniform(0.5, 2))
    zero = rng.integers(-9, 10, scale_shape).astype(np.int32)
    x = saturating(rng, samples(rng, n, s, 140), s).reshape(shape)
    dy = samples(rng, n, np.float32(0.1), 50).reshape(shape)
    points = (scale, zero, *limits)
    same(isa, lambda: affine_results(x, dy, points, **how), shape, limits, how)


@for_each_isa
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_affine_per_tensor(isa, rounding):
    rng = np.random.default_rng(10)
    for n, rule in product(TAILS, RULES):
        limits = ((-128, 127), (0, 255), (-8, 7), (3, 3))[n % 4]
        check_affine(isa, rng, (n,), limits, rounding=rounding, in_range=rule)


@for_each_isa
@pytest.mark.parametrize("rounding", ["half_away", "half_even"])
def test_affine_by_groups_rows_and_axes(isa, rounding):
    rng = np.random.default_rng(12)
    rule = dict(enumerate(RULES))
    for group in range(1, 41):
        for n in (group, group + 3, 64, 70):
            how = {"group": group, "rounding": rounding, "in_range": rule[n % 2]}
            check_affine(isa, rng, (2, n), (-128, 127), **how)
    for group, n in ((16, 300), (17, 600), (32, 1100), (48, 48 * 33 + 5)):  # scales by sixteens
        how = {"group": group, "rounding": rounding, "in_range": rule[n % 2]}
        check_affine(isa, rng, (2, n), (-128, 127), **how)
    for n, axis in product((*range(1, 20), 31, 32, 33, 40, 64), (0, 1, 2, "row")):
        how = {"axis": axis, "rounding": rounding, "in_range": rule[n % 2]}
        check_affine(isa, rng, (2, 3, n), (-100, 99), **how)
        check_affine(isa, rng, (3, n, 2), (0, 255), **how)


@for_each_isa
@pytest.mark.parametrize("rounding", ["half_away", "half_even"])
def test_affine_at_extremes(isa, rounding):
    """Every scale and kind of number; zero points and limits around those a fast path takes."""
    rng = np.random.default_rng(14)
    one = np.float32(1)
    marks = np.array([0, 1, 2**22, 2**23 - 1, 2**23, 2**24, 1e10, FLT_MAX, FLT_MIN], np.float32)
    marks = np.concatenate([marks, marks - np.float32(0.5), np.float32([0.5, 1.5, 2.5, 1e-45])])
    marks = np.concatenate([marks, -marks])
    edge = 2**22
    limits = ((-128, 127), (-edge, edge), (-edge - 1, edge), (2**24, 2**24 + 3))
    zeros = (0, -edge, edge, edge + 1, 1 - 2**24, 2**24 + 1, INT32_MIN, INT32_MAX)
    for limit, zp in product(limits, zeros):
        ends = np.concatenate([np.arange(e - zp - 3, e - zp + 4) for e in limit])
        x = np.concatenate([marks, ends.astype(np.float32)])
        points = (one, zp, *limit)
        same(isa, lambda x=x, p=points: affine_results(x, x, p, rounding=rounding), points)
    for s in (*extreme_scales(), one):
        x = np.concatenate([marks, samples(rng, 500, s, 200)])
        points = (s, 3, -128, 127)
        same(isa, lambda x=x, p=points: affine_results(x, x, p, rounding=rounding), s)


@for_each_isa
@pytest.mark.parametrize("kind", KINDS)
def test_affine_of_every_type(isa, kind):
    rng = np.random.default_rng(16)
    for n in SOME:
        x = (rng.standard_normal(n) * 60).astype(dtype_of(kind))
        points = (np.float32(0.37), 5, -100, 101)
        for rounding, code in product(ROUNDINGS, ("int8", "int16", "int32")):
            same(isa, lambda x=x, p=points, r=rounding: affine_results(x, x, p, rounding=r))
            how = {"rounding": rounding, "dtype": code, "seed": n}
            same(isa, lambda x=x, p=points, h=how: quant.quantize_affine(x, *p, **h))


@for_each_isa
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_affine_sees_a_non_finite_number_at_every_position(isa, bad):
    points = (0.5, 0, -128, 127)
    for n in (1, 9, 33, 70):
        good = np.ones(n, np.float32)
        for at in range(n):
            x = good.copy()
            x[at] = bad
            with quant.isa(isa):
                for grain in ({}, {"axis": 0}, {"group": 8}):
                    for forward in (quant.quantize_affine, quant.fake_quantize_affine):
                        with pytest.raises(NonFiniteError, match=rf"x\[{at}\] is"):
                            forward(x, *points, **grain)
                backward = quant.fake_quantize_affine_backward
                with pytest.raises(NonFiniteError, match=rf"x\[{at}\] is"):
                    backward(good, x, *points)
                with pytest.raises(NonFiniteError, match=rf"dy\[{at}\] is"):
                    backward(x, good, *points)
                with pytest.raises(NonFiniteError, match=rf"x\[{at}\] is"):
                    quant.qparams(x, 8)


# --- the caller's float mode ---------------------------------------------------------------------

MODES = {"flush to zero": 0x9FC0, "round down": 0x3F80, "round up": 0x5F80, "truncate": 0x7F80}
FLAGS = 0x3F  # sticky: any operation may raise them


def current_mode() -> int:
    mode = lib.qfw_host_float_enter()
    lib.qfw_host_float_leave(mode)
    return mode & ~FLAGS


@contextmanager
def float_mode(mode: int) -> Iterator[None]:
    """Sets x86's control register; elsewhere it does nothing."""
    before = lib.qfw_host_float_enter()
    lib.qfw_host_float_leave(mode)
    try:
        yield
    finally:
        lib.qfw_host_float_leave(before)


def check_mode(mode: int, function: Callable[[], Any]) -> None:
    """Equal results, and the mode is as it was; also after an error."""
    bad = np.full(9, np.nan, np.float32)
    expected = function()
    with float_mode(mode):
        set_to = current_mode()
        found = function()
        after = current_mode()
        try:
            quant.qparams(bad, 8)
        except NonFiniteError:
            after_error = current_mode()
    assert set_to == after == after_error
    assert bits(found) == bits(expected)


def subnormal_floats() -> np.ndarray:
    rng = np.random.default_rng(18)
    patterns = np.concatenate([rng.integers(0, 2**24, 60), [1, 2**22, 2**23 - 1, 2**23]])
    x = patterns.astype(np.uint32).view(np.float32)
    return np.concatenate([x, -x, np.float32([0.1, 1 / 3, 1e30, -7.5])])


all_isas = pytest.mark.parametrize("isa", quant.core_info()["isas"])
all_modes = pytest.mark.parametrize("mode", MODES)


@all_isas
@all_modes
def test_float_mode_does_not_matter(isa, mode):
    x = subnormal_floats()
    with quant.isa(isa):
        for kind, rounding in product(KINDS, ROUNDINGS):
            if kind in ("float32", "float64"):
                data = x.astype(kind)
            else:
                data = np.arange(1, 200, dtype=np.uint16).view(dtype_of(kind))
            for s in (FLT_MIN, np.float32(0.1), FLT_MAX):
                points = (s, 1, -128, 127)
                how = {"rounding": rounding}
                check_mode(
                    MODES[mode], lambda d=data, p=points, h=how: affine_results(d, d, p, **h)
                )
        for fmt in (q.Sym(8, container=8), q.Sym(5), q.Asym(8), q.BFP(8, 8), q.Float32()):
            t = q.quantize(x, fmt)
            check_mode(MODES[mode], lambda f=fmt: q.quantize(x, f))
            check_mode(MODES[mode], lambda t=t: (t.numpy(), t.to(q.Sym(7, group=3))))


THIRDS = np.concatenate([np.float64([0.1, 1 / 3, 1e-40, -1e-45, -0.7]), np.arange(1, 9) / 7e39])
NARROWED = {
    "data": lambda: q.quantize(THIRDS, q.Float32()),
    "small data": lambda: q.quantize(THIRDS[2:3], q.Sym(8)),
    "scale of codes": lambda: quant.dequantize_affine(np.ones(5, np.int8), 0.1),
    "scale of a format": lambda: q.quantize(np.float32([0.1]), q.Sym(8), scale=1 / 3),
    "range": lambda: q.quantize(np.float32([0.1]), q.Sym(8, range=1 / 3)),
}


@all_modes
@pytest.mark.parametrize("what", NARROWED)
def test_float_mode_does_not_matter_where_float64_becomes_float32(what, mode):
    """Data and scales that are given in float64 are rounded to nearest too."""
    check_mode(MODES[mode], NARROWED[what])
