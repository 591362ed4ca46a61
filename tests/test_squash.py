"""Sigmoid, tanh and the end of ReLU6, one operation at a time: the oracle's bits on every table,
and how far those are from real numbers."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import oracle as o
import oracle_activations as oa
import pytest
from oracle_tensor import Acc
from plan_bytes import ROWS_AXIS, ROWS_OUTER, SYM, Builder
from plan_cases import CONVERT, PRODUCT_F32, PRODUCT_S32
from plan_net import TABLES, Net, check

from pyqfw import quant, wire

F = np.float32
KINDS = ("sigmoid", "tanh")
BOUND = {"sigmoid": 4, "tanh": 8}  # units of 2^-30
SIX = int(F(6).view(np.uint32))
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


class Bench:
    """A plan whose last operation reads and writes what the test puts there, on one table."""

    def __init__(self, kernel: str, places: list[dict[str, Any]], **params: int) -> None:
        plan = Builder(1)
        self.tensors = [self._made(plan, **place) for place in places]
        plan.op(wire.KERNELS[kernel], *self.tensors, **params)
        self.data = plan.build()
        assert check(self.data).status == "OK"

    def _made(self, plan: Builder, n: int, kind: str, columns: bool = False) -> int:
        """Something of so many elements that an operation wrote."""
        one = {"rows": ROWS_AXIS}
        if kind == "f32":
            t = plan.tensor(n, **one)
            plan.op(PRODUCT_F32, t, plan.input, plan.tensor(n, role=0))
            return t
        a = plan.sym(1, **one)
        plan.op(CONVERT, a, plan.input)
        if kind == "s32":
            each = {"rows": ROWS_OUTER, "outer": 1, "group": 1, "shared": 1} if columns else one
            t = plan.tensor(n, kind=SYM, **each)
            b = plan.sym(n, role=0, **({"axis": n, "group": 1} if columns else {}))
            plan.op(PRODUCT_S32, t, a, b, p1=1)
            return t
        floats = plan.tensor(n, **one)
        plan.op(PRODUCT_F32, floats, plan.input, plan.tensor(n, role=0))
        t = plan.sym(n, 16, 16, **one)
        plan.op(CONVERT, t, floats)
        return t

    def run(self, table: Any, **given: Any) -> dict[str, Any]:
        """`codes0=...`, `scale1=...`: parts of places before; all parts of place 0 after."""
        net = Net(self.data, table)
        with quant.float_mode():
            assert net.open() == "OK"
            last = len(net.plan.ops) - 1
            assert net.walk(0, last, 1, x=np.ones(1, F)) == "OK"
            for name, value in given.items():
                self._view(net, int(name[-1]), name[:-1])[:] = value
            assert net.walk(last, 1, 1) == "OK"
        names = ("codes",) if self._kind(net, 0) is F else ("codes", "scale", "absmax")
        return {name: self._view(net, 0, name).copy() for name in names}

    def _kind(self, net: Net, place: int) -> Any:
        t = net.plan.tensors[self.tensors[place]]
        return F if t["kind"] != SYM else np.int32 if t["bits"] == 32 else np.int16

    def _view(self, net: Net, place: int, part: str) -> Any:
        t = net.plan.tensors[self.tensors[place]]
        n = int(t["axis"]) if part == "codes" else -(-int(t["axis"]) // int(t["group"]))
        kind = {"codes": self._kind(net, place), "scale": F, "absmax": np.uint32}[part]
        return net.arena[int(t[part]) :][: n * np.dtype(kind).itemsize].view(kind)


def squash(kind: str, codes: Any, scale: Any) -> Any:
    """Results of int16 or int32 codes, or of floats (scale None), the same on every table."""
    n, floats = len(codes), scale is None
    columns = not floats and np.ndim(scale) > 0
    source = "f32" if floats else "s16" if codes.dtype == np.int16 else "s32"
    places = [{"n": n, "kind": "s32"}, {"n": n, "kind": source, "columns": columns}]
    bench = Bench(f"{kind}_s32", places)
    given = {"codes1": codes} | ({} if floats else {"scale1": scale})
    found = [bench.run(table, **given) for table in TABLES]
    for f in found:
        assert f["codes"].tobytes() == found[0]["codes"].tobytes()
        assert f["scale"].tolist() == [2.0**-30]
        assert f["absmax"].tolist() == [np.abs(f["codes"]).max()]
    return found[0]["codes"]


def float_squash(kind: str, x: Any) -> Any:
    bench = Bench(f"{kind}_f32", [{"n": len(x), "kind": "f32"}] * 2)
    found = [bench.run(table, codes1=x)["codes"] for table in TABLES]
    assert all(f.tobytes() == found[0].tobytes() for f in found)
    return found[0]


def exactly(kind: str, x: Any) -> Any:
    """In float64."""
    with np.errstate(over="ignore"):
        return np.tanh(x) if kind == "tanh" else 1 / (1 + np.exp(-x))


def expected(kind: str, codes: Any, scales: Any) -> list[int]:
    each = np.broadcast_to(scales, np.shape(codes))
    pairs = zip(codes.tolist(), each.tolist(), strict=True)
    return [oa.squashed(m, Fraction(s), kind) for m, s in pairs]


# ---- integers ------------------------------------------------------------------------------------

SCALES = [F(v) for v in (1.2e-38, 1e-9, 3e-6, 1e-5, 2.0**-12, 7e-4, 2.0**-10, 0.01, 0.7, 3.0, 1e20)]


def check_codes(kind: str, codes: Any, scale: Any) -> None:
    """The oracle's bits, within the bound, growing, and as symmetric as the function."""
    found = squash(kind, codes.astype(np.int16), scale)
    assert found.tolist() == expected(kind, codes, scale)
    exact = exactly(kind, codes * np.float64(scale)) * 2.0**30
    assert np.abs(found - exact).max() < BOUND[kind]
    assert (np.diff(found) >= 0).all()
    mirrored = found[::-1]
    assert (found + mirrored == (2**30 if kind == "sigmoid" else 0))[codes != 0].all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_codes(kind: str, scale: Any) -> None:
    half = np.unique(np.concatenate([np.arange(0, 40), np.arange(40, 2**15, 331), [2**15 - 1]]))
    check_codes(kind, np.concatenate([-half[:0:-1], half]), scale)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_every_code(kind: str, scale: Any) -> None:
    check_codes(kind, np.arange(-(2**15) + 1, 2**15), scale)


def accumulators(rng: np.random.Generator, n: int) -> Any:
    a = rng.integers(INT32_MIN, INT32_MAX + 1, n) >> rng.integers(0, 32, n)
    ends = [INT32_MIN, INT32_MIN + 1, -1, 0, 1, INT32_MAX]
    a[: len(ends)] = ends[:n]
    return a.astype(np.int32)


@pytest.mark.parametrize("kind", KINDS)
def test_accumulators_of_every_scale(kind: str) -> None:
    """A column for each exponent, and some whose values are of the size that matters."""
    rng = np.random.default_rng(1)
    n = 254 * 3
    mantissas = np.repeat(rng.integers(0, 2**23, 254), 3)
    mantissas[::3], mantissas[1::3] = 0, 2**23 - 1
    fields = np.repeat(np.arange(1, 255), 3)
    scales = (fields << 23 | mantissas).astype(np.uint32).view(F)
    for _ in range(3):
        a = accumulators(rng, n)
        assert squash(kind, a, scales).tolist() == expected(kind, a, scales)
    a = accumulators(rng, n)
    with np.errstate(divide="ignore"):
        near = (rng.uniform(0, 24, n) / np.maximum(np.abs(a.astype(np.float64)), 1)).astype(F)
    found = squash(kind, a, near)
    assert found.tolist() == expected(kind, a, near)
    exact = exactly(kind, a * near.astype(np.float64)) * 2.0**30
    assert np.abs(found - exact).max() < BOUND[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_tails(kind: str) -> None:
    rng = np.random.default_rng(2)
    for n in range(1, 71):
        a = accumulators(rng, n)
        s = (rng.uniform(0.1, 8, n if n > 1 else ()) * 2.0**-30).astype(F)
        assert squash(kind, a, s).tolist() == expected(kind, a, s), n


@pytest.mark.parametrize("kind", KINDS)
def test_ends(kind: str) -> None:
    far = np.array([INT32_MIN, -(2**20), 0, 2**20, INT32_MAX], np.int32)
    low, middle = (0, 2**29) if kind == "sigmoid" else (-(2**30), 0)
    assert squash(kind, far, F(1)).tolist() == [low, low, middle, 2**30, 2**30]
    assert squash(kind, far, F(2.0**-126)).tolist() == [middle] * 5


@pytest.mark.parametrize("kind", KINDS)
def test_floats_that_become_integers(kind: str) -> None:
    """24 bits and a power of two each: no rounding before the function."""
    rng = np.random.default_rng(3)
    patterns = rng.integers(0, 2**32, 500).astype(np.uint32)
    wide = patterns[(patterns & 0x7FFFFFFF) < 0x7F800000].view(F)
    x = np.concatenate([wide, rng.normal(size=500).astype(F) * 5, F([0, -0.0, 1e-45, 3e38])])
    found = squash(kind, x, None)
    assert found.tolist() == oa.squash(Acc(x), kind, False).values.tolist()
    exact = exactly(kind, x.astype(np.float64)) * 2.0**30
    assert np.abs(found - exact).max() < BOUND[kind]


# ---- floats --------------------------------------------------------------------------------------

ULPS = {"sigmoid": 2.5, "tanh": 1.6}


def floats_between(low: float, high: float, step: int) -> Any:
    """Every step-th float32."""
    ends = F([low, high]).view(np.uint32)
    return np.arange(ends[0], ends[1], step, dtype=np.uint32).view(F)


def check_floats(kind: str, x: Any) -> None:
    """Few ulp from the real number, and growing with x, which is sorted."""
    found = float_squash(kind, x)
    exact = exactly(kind, x.astype(np.float64))
    big = exact >= 2.0**-126 if kind == "sigmoid" else exact != 0
    ulp = 2.0 ** (np.maximum(np.frexp(exact[big])[1], -125) - 24)
    assert (np.abs(found[big] - exact[big]) / ulp).max(initial=0) < ULPS[kind]
    assert (np.diff(found) >= 0).all()
    assert ((found >= -1) & (found <= 1)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_floats(kind: str) -> None:
    for x in (floats_between(2.0**-20, 1, 977), floats_between(1, 100, 313)):
        check_floats(kind, x)
        check_floats(kind, -x[::-1])
        some = np.concatenate([x[::50], -x[::50]])
        found = float_squash(kind, some)
        assert found.tobytes() == oa.float_squash(some, kind).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_float(kind: str) -> None:
    """From 2^-14 to 90, of both signs; pieces overlap, so that none falls from one to the next."""
    edges = [2.0**k for k in range(-14, 7)] + [90.0]
    for low, high in itertools.pairwise(edges):
        for sign in (1, -1):
            x = floats_between(low * 0.9999, high, 1) * F(sign)
            check_floats(kind, np.sort(x))


@pytest.mark.parametrize("kind", KINDS)
def test_float_tails_and_edges(kind: str) -> None:
    rng = np.random.default_rng(4)
    odd = F([0, -0.0, 1e-45, -1e-45, 2.0**-126, 0.625, -0.625, 88.73, -88.73, 3.4e38, -3.4e38])
    odd = np.concatenate([odd, np.nextafter(F(0.625), F([0, 1])), F([-87.34, -87.33, 17.5, -104])])
    for n in range(1, 71):
        x = np.resize(np.concatenate([odd, rng.normal(size=40).astype(F) * 20]), n + 30)[-n:]
        assert float_squash(kind, x).tobytes() == oa.float_squash(x, kind).tobytes(), n
    far = float_squash(kind, F([-3.4e38, -104, 17.5, 3.4e38]))
    low = 0 if kind == "sigmoid" else -1
    assert far.tolist() == [low, low, 1, 1]
    nothing = float_squash(kind, F([0, -0.0]))
    zeros = F([0.5, 0.5] if kind == "sigmoid" else [0, 0])
    assert nothing.tobytes() == zeros.tobytes()


# ---- backward ------------------------------------------------------------------------------------


def back(kind: str, error: Any, scale: Any, y: Any, y_scale: Any) -> dict[str, Any]:
    """Errors as accumulators (scale given) or floats, times the derivative at y."""
    n = len(error)
    places = [
        {"n": n, "kind": "f32" if scale is None else "s32", "columns": np.ndim(scale) > 0},
        {"n": n, "kind": "f32" if y_scale is None else "s16" if y.dtype == np.int16 else "s32"},
    ]
    bench = Bench(f"{kind}_back", places)
    given: dict[str, Any] = {"codes0": error, "codes1": y}
    if scale is not None:
        size = np.abs(error.astype(np.int64))
        given |= {"scale0": scale, "absmax0": size if np.ndim(scale) else size.max()}
    if y_scale is not None:
        given["scale1"] = y_scale
    found = [bench.run(table, **given) for table in TABLES]
    for f in found[1:]:
        assert all(f[name].tobytes() == found[0][name].tobytes() for name in f)
    return found[0]


def kept(y: Any, scale: Any) -> Acc:
    return Acc(y) if scale is None else Acc(y.astype(np.int64), np.full(len(y), scale, F))


RESULTS: dict[str, tuple[Any, Any]] = {
    "int16": (np.arange(-32767, 32768, 511).astype(np.int16), F(1 / 32767)),
    "beyond 1": (np.arange(-300, 301, 7).astype(np.int16), F(1.1 / 257)),
    "coarse": (np.arange(-5, 6).astype(np.int16), F(0.23)),
    "far too large": (np.arange(-9, 10).astype(np.int16), F(3e30)),
    "tiny": (np.arange(-9, 10).astype(np.int16), F(1e-30)),
    "as made": (np.arange(-(2**30), 2**30 + 1, 2**25 + 12345).astype(np.int32), F(2.0**-30)),
    "floats": (np.linspace(-1.001, 1.001, 77).astype(F), None),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RESULTS)
def test_derivatives_of_accumulators(name: str, kind: str) -> None:
    y, y_scale = RESULTS[name]
    y = np.abs(y) if kind == "sigmoid" else y
    rng = np.random.default_rng(5)
    for bits in (1, 2, 5, 12, 28, 29, 30, 31, 32):
        error = accumulators(rng, len(y)) >> (32 - bits)
        for field in (1, 2, 16, 30, 31, 32, 127, 254):
            scale = np.uint32(field << 23 | 0x2468AC).view(F)
            sigma = np.broadcast_to(scale, error.shape)
            wanted = oa.squash_back(Acc(error.astype(np.int64), sigma), kept(y, y_scale), kind)
            found = back(kind, error, scale, y, y_scale)
            assert found["codes"].tolist() == wanted.values.tolist()
            assert wanted.scale is not None
            assert found["scale"].tolist() == [wanted.scale[0]]
            assert found["absmax"].tolist() == [np.abs(wanted.values).max()]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_change_by_one_power_of_two(kind: str) -> None:
    """The largest sum and the smallest scale decide for all."""
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2**15, 100).astype(np.int16)
    for least in (2.0**-120, 2.0**-60):
        error = accumulators(rng, 100) >> 3
        scale = (rng.uniform(1, 2, 100) * least * 2.0 ** rng.integers(0, 40, 100)).astype(F)
        wanted = oa.squash_back(Acc(error.astype(np.int64), scale), kept(y, F(2.0**-15)), kind)
        found = back(kind, error, scale, y, F(2.0**-15))
        assert found["codes"].tolist() == wanted.values.tolist()
        assert wanted.scale is not None
        assert found["scale"].tolist() == wanted.scale.tolist()
        assert found["absmax"].tolist() == np.abs(wanted.values).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RESULTS)
def test_derivatives_of_floats(name: str, kind: str) -> None:
    y, y_scale = RESULTS[name]
    y = np.abs(y) if kind == "sigmoid" else y
    error = np.random.default_rng(7).normal(size=len(y)).astype(F)
    found = back(kind, error, None, y, y_scale)["codes"]
    wanted = oa.squash_back(Acc(error), kept(y, y_scale), kind).values
    assert found.tobytes() == wanted.tobytes()
    real = y.astype(np.float64) * (1 if y_scale is None else np.float64(y_scale))
    slope = 1 - real**2 if kind == "tanh" else real * (1 - real)
    np.testing.assert_allclose(found, error * np.maximum(slope, 0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_derivative_is_near_the_real_one(kind: str) -> None:
    """From results as they were made: within 2^-14 of the error, and of its sign or 0."""
    x = np.linspace(-12, 12, 401)
    y = np.round(exactly(kind, x) * 2.0**30).astype(np.int32)
    error = np.where(np.arange(401) % 2, 1000, -1000).astype(np.int32)
    found = back(kind, error, F(0.5), y, F(2.0**-30))
    values = found["codes"] * np.float64(found["scale"][0])
    real = exactly(kind, x)
    slope = 1 - real**2 if kind == "tanh" else real * (1 - real)
    assert np.abs(values - 500 * np.sign(error) * slope).max() < 500 * 2.0**-14
    assert (values * np.sign(error) >= 0).all()


# ---- ReLU6 ---------------------------------------------------------------------------------------


def scales_of_every_size() -> list[Any]:
    rng = np.random.default_rng(8)
    fields, mantissas = np.arange(1, 255), rng.integers(0, 2**23, 254)
    found = list((fields << 23 | mantissas).astype(np.uint32).view(F))
    ties = [12, 4, 12 / 5, 12 / 7, 2.0**-29, 6 * 2.0**-31, 3 * 2.0**-30, 6 * 2.0**-17]
    return found + [np.nextafter(F(s), F(d)) for s in ties for d in (0, s, 99)]


def test_the_code_of_six() -> None:
    """Accumulators around it are held, and pass an error below it alone."""
    for scale in scales_of_every_size():
        most = min(o.half_away(6 / Fraction(float(scale))), 2**31)
        near = {most + d for d in (-2, -1, 0, 1, 2)} | {0, 1, -1, INT32_MIN, INT32_MAX, 2**30}
        a = np.array(sorted(v for v in near if INT32_MIN <= v <= INT32_MAX), np.int32)
        made = {"n": len(a), "kind": "s32"}
        held = Bench("relu", [made] * 2, p1=SIX)
        masked = Bench("mask", [made] * 2, p2=SIX)
        size = np.abs(a.astype(np.int64)).max()
        for table in TABLES:
            found = held.run(table, codes1=a, scale1=scale, absmax1=size)
            assert found["codes"].tolist() == np.clip(a, 0, most).tolist()
            assert found["scale"].tolist() == [scale]
            assert found["absmax"].tolist() == [found["codes"].max()]
            ones = masked.run(table, codes0=7, codes1=a, scale1=scale)
            assert ones["codes"].tolist() == [7 * (0 < v < most) for v in a.tolist()]


def test_floats_end_at_six() -> None:
    x = F([-1, -0.0, 0, 1e-45, 3, 6, 7, 3e38])
    x = np.concatenate([x, np.nextafter(F(6), F([0, 7]))])
    found = Bench("relu", [{"n": len(x), "kind": "f32"}] * 2, p1=SIX).run(TABLES[0], codes1=x)
    assert found["codes"].tobytes() == np.where(x > 0, np.minimum(x, F(6)), F(0)).tobytes()
    masked = Bench("mask", [{"n": len(x), "kind": "f32"}] * 2, p2=SIX)
    passed = masked.run(TABLES[0], codes0=F(1), codes1=x)["codes"]
    assert passed.tolist() == [float(0 < v < 6) for v in x.tolist()]


def test_a_slope_and_an_end_together() -> None:
    a = np.array([-1000, -3, 0, 5, 1199, 1200, 1201], np.int32)
    half = int(F(0.5).view(np.uint32))
    bench = Bench("relu", [{"n": 7, "kind": "s32"}] * 2, p0=half, p1=SIX)
    found = bench.run(TABLES[0], codes1=a, scale1=F(0.005))
    assert found["codes"].tolist() == [-500, -2, 0, 5, 1199, 1200, 1200]
    masked = Bench("mask", [{"n": 7, "kind": "s32"}] * 2, p1=half, p2=SIX)
    passed = masked.run(TABLES[0], codes0=8, codes1=a, scale1=F(0.005))
    assert passed["codes"].tolist() == [4, 4, 4, 8, 8, 4, 4]
