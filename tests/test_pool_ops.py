"""Pools of the core beside the oracle, operation by operation: zero tolerance, on every table."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle as o
import oracle_pool as pool
import pytest
from oracle_pool import Geometry
from oracle_tensor import Array
from plan_net import TABLES
from pool_geometries import CHANNELS, adaptive, images, lines
from pool_machine import (
    ADAPTIVE,
    AVG_POOL_BACK_F32,
    AVG_POOL_BACK_S32,
    AVG_POOL_F32,
    AVG_POOL_S32,
    MAX_POOL,
    MAX_POOL_BACK,
    PADDING_COUNTS,
    Data,
    Machine,
)

MAX_GEOMETRIES = lines(True) + images(True, 60)
AVG_GEOMETRIES = lines(False) + images(False, 60) + adaptive()
PARTS = 8  # of the geometries, so that they run side by side
BITS = {"s8": 8, "s16": 16, "s32": 32, "columns": 32}


def some(kind: str, shape: tuple[int, ...], rng: np.random.Generator, bits: int = 0) -> Array:
    """Values with many that are equal, and the ends of the range."""
    if kind == "f32":
        few = rng.integers(-3, 4, shape).astype(np.float32)
        return np.where(rng.random(shape) < 0.5, few, rng.normal(size=shape)).astype(np.float32)
    top = o.top_code(bits or BITS[kind]) if kind in ("s8", "s16") else o.INT32_MAX
    few, wide = rng.integers(-3, 4, shape), rng.integers(-top, top + 1, shape)
    ends = rng.choice([-top, top, 0], shape)
    found = rng.choice(3, shape)
    return np.where(found == 0, few, np.where(found == 1, wide, ends)).astype(np.int64)


def cases(geometries: list[Geometry], part: int) -> list[tuple[int, Geometry, int, int, int]]:
    """Number, geometry, channels, rows and batch of a part of them."""
    found = []
    for i, g in enumerate(geometries):
        if i % PARTS == part:
            j = i // PARTS
            found.append((i, g, CHANNELS[j % len(CHANNELS)], 1 + j % 3, 3))
    return found


def positions(size: tuple[int, int]) -> int:
    return size[0] * size[1]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("part", range(PARTS))
def test_max_pool(part: int, table: Any) -> None:
    for i, g, channels, rows, batch in cases(MAX_GEOMETRIES, part):
        rng = np.random.default_rng(i)
        kind = ("f32", "s8", "s16", "s32", "columns")[i // PARTS % 5]
        x = some(kind, (rows, *g.size, channels), rng)
        scale = rng.uniform(1, 2, channels if kind == "columns" else 1).astype(np.float32)
        over = g.padding == (0, 0) and i % 2 == 0
        over = over and _fits_over(g, channels, batch, kind)
        machine = Machine(g, channels, batch)
        result, picks = (kind, positions(g.out), 0), i % 3 > 0
        y, *picked = machine.run(
            table, MAX_POOL, rows, result, [Data(kind, x, scale)], picks=picks, over=over
        )
        best, pick = pool.max_pool(x, g)
        np.testing.assert_array_equal(y.values.reshape(best.shape), best, str(g))
        if picks:
            found = pool.unpacked(picked[0].values, pool.pick_bits(g), pick.shape)
            np.testing.assert_array_equal(found, pick, str(g))
        if kind != "f32":
            np.testing.assert_array_equal(y.scale, scale)
        if kind in ("s32", "columns"):
            most = np.abs(best).max(axis=(0, 1, 2) if kind == "columns" else None)
            np.testing.assert_array_equal(y.absmax, np.ravel(most))


def _fits_over(g: Geometry, channels: int, batch: int, kind: str) -> bool:
    """Whether the result with its scales has room where the image's codes are."""
    size = {"f32": 4, "s8": 1, "s16": 2, "s32": 4, "columns": 4}[kind]
    scales = {"f32": 0, "columns": channels}.get(kind, 1)
    each = 2 if kind in ("s32", "columns") else 1
    need = -(-positions(g.out) * channels * batch * size // 16) * 16
    need += each * -(-4 * scales // 16) * 16
    return need <= positions(g.size) * channels * batch * size


def test_a_result_in_the_place_of_its_image_was_tried_with_every_kind() -> None:
    tried = {
        ("f32", "s8", "s16", "s32", "columns")[i // PARTS % 5]
        for part in range(PARTS)
        for i, g, channels, _, batch in cases(MAX_GEOMETRIES, part)
        if g.padding == (0, 0)
        and i % 2 == 0
        and _fits_over(g, channels, batch, ("f32", "s8", "s16", "s32", "columns")[i // PARTS % 5])
    }
    assert tried == {"f32", "s8", "s16", "s32", "columns"}


@pytest.mark.parametrize("table", TABLES)
def test_of_floats_a_nan_is_the_largest_and_infinities_are_numbers(table: Any) -> None:
    g = Geometry((1, 8), (1, 4), (1, 4))
    x = np.array([1, np.nan, np.inf, 2, -np.inf, -np.inf, -0.0, 0.0], np.float32)
    data = Data("f32", x.reshape(1, 1, 8, 1))
    y, pick = Machine(g, 1, 1).run(table, MAX_POOL, 1, ("f32", 2, 0), [data], picks=True)
    assert np.isnan(y.values.ravel()[0])
    assert y.values.ravel()[1] == 0
    assert np.signbit(y.values.ravel()[1])  # of equal ones the first
    assert pool.unpacked(pick.values, 2, (2,)).tolist() == [1, 2]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("part", range(PARTS))
def test_max_pool_back(part: int, table: Any) -> None:
    for i, g, channels, rows, batch in cases(MAX_GEOMETRIES, part):
        rng = np.random.default_rng(i)
        kind = ("f32", "s8", "s16")[i // PARTS % 3]
        bits = BITS.get(kind, 0) - (i % 2) * (kind != "f32")
        e = some(kind, (rows, *g.out, channels), rng, bits)
        taps = [[tap for tap, _ in g.taps_at(at)] for at in g.positions()]
        pick = np.stack([rng.choice(t, (rows, channels)) for t in taps], axis=1)
        pick = pick.reshape(e.shape)
        sums = kind if kind == "f32" or (g.never_meet and i % 4) else "s32"
        operands = [Data(kind, e, 0.75, bits=bits), Data("pick", pick)]
        result = (sums, positions(g.size), bits if sums == kind else 0)
        (dx,) = Machine(g, channels, batch).run(table, MAX_POOL_BACK, rows, result, operands)
        expected = pool.max_back(e, pick, g)
        same = dx.values.reshape(expected.shape)
        np.testing.assert_array_equal(same, expected, str(g))
        if kind == "f32":
            assert same.tobytes() == expected.tobytes()  # the order of the sums
        else:
            assert dx.scale == 0.75
        if sums == "s32":
            assert dx.absmax == np.abs(expected).max()


def mean(g: Geometry) -> dict[str, int]:
    """Flags and params but F of a mean."""
    d = g.constant()
    flags = ADAPTIVE if g.output is not None else 0
    if d is None and g.output is None and g.count_include_pad:
        flags |= PADDING_COUNTS
    return {"flags": flags, "p0": d or 0}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("part", range(PARTS))
def test_avg_pool(part: int, table: Any) -> None:
    for i, g, channels, rows, batch in cases(AVG_GEOMETRIES, part):
        rng = np.random.default_rng(i)
        kind = ("f32", "s8", "s16")[i // PARTS % 3]
        bits = BITS.get(kind, 0) - 3 * (i % 2) * (kind != "f32")
        x, scale = some(kind, (rows, *g.size, channels), rng, bits), np.float32(rng.uniform(1, 2))
        machine = Machine(g, channels, batch)
        if kind == "f32":
            given = (table, AVG_POOL_F32, rows, ("f32", positions(g.out), 0), [Data(kind, x)])
            (y,) = machine.run(*given, **mean(g))
            expected = pool.float_avg_pool(x, g)
            assert y.values.reshape(expected.shape).tobytes() == expected.tobytes(), g
            continue
        f = 0 if g.constant() is not None else pool.most_bits(o.top_code(bits))
        result, operands = ("s32", positions(g.out), 0), [Data(kind, x, scale, bits=bits)]
        (y,) = machine.run(table, AVG_POOL_S32, rows, result, operands, p1=f, **mean(g))
        acc, sigma = pool.avg_pool(x, scale, bits, g)
        np.testing.assert_array_equal(y.values.reshape(acc.shape), acc, str(g))
        assert y.scale == sigma
        assert y.absmax == np.abs(acc).max()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("part", range(PARTS))
def test_avg_pool_back(part: int, table: Any) -> None:
    for i, g, channels, rows, batch in cases(AVG_GEOMETRIES, part):
        rng = np.random.default_rng(i)
        kind = ("f32", "s8", "s16")[i // PARTS % 3]
        bits = BITS.get(kind, 0) - 3 * (i % 2) * (kind != "f32")
        e, scale = some(kind, (rows, *g.out, channels), rng, bits), np.float32(rng.uniform(1, 2))
        machine = Machine(g, channels, batch)
        if kind == "f32":
            result = ("f32", positions(g.size), 0)
            (dx,) = machine.run(table, AVG_POOL_BACK_F32, rows, result, [Data(kind, e)], **mean(g))
            expected = pool.float_avg_back(e, g)
            assert dx.values.reshape(expected.shape).tobytes() == expected.tobytes(), g
            continue
        codes, sigma, alike = pool.avg_back(e, scale, bits, g)
        most = g.most_meeting() * o.top_code(bits)
        f = 0 if g.constant() is not None else pool.most_bits(most)
        sums = kind if alike and i % 4 else "s32"
        result = (sums, positions(g.size), bits if sums == kind else 0)
        (dx,) = machine.run(
            *(table, AVG_POOL_BACK_S32, rows, result, [Data(kind, e, scale, bits=bits)]),
            p1=f,
            **mean(g),
        )
        np.testing.assert_array_equal(dx.values.reshape(codes.shape), codes, str(g))
        assert dx.scale == sigma
        if sums == "s32":
            assert dx.absmax == np.abs(codes).max()


def test_no_pixel_is_in_more_windows_than_was_said() -> None:
    for g in AVG_GEOMETRIES:
        meet = np.zeros(g.size, int)
        for at in g.positions():
            for pixel in g.pixels_at(at):
                meet[pixel] += 1
        assert meet.max() <= g.most_meeting(), g
        assert (g.most_meeting() == 1) <= (meet.max() <= 1)
    for g in MAX_GEOMETRIES:
        meet = np.zeros(g.size, int)
        for at in g.positions():
            for _, pixel in g.taps_at(at):
                meet[pixel] += 1
        assert meet.max() <= (1 if g.never_meet else g.taps), g


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("bits", [8, 16])
def test_the_largest_codes_of_the_largest_windows_fit(table: Any, bits: int) -> None:
    """All codes at the end of their range, in windows as long as sums of 16 bits allow."""
    length = 65538 if bits == 16 else 70000
    kind = f"s{bits}"
    for g in (Geometry((1, length), output=(1, 1)), Geometry((2, length // 2), output=(1, 1))):
        x = np.full((1, *g.size, 1), -o.top_code(bits))
        (y,) = Machine(g, 1, 1).run(
            *(table, AVG_POOL_S32, 1, ("s32", 1, 0), [Data(kind, x, 0.5)]), **mean(g)
        )
        assert y.values.ravel().tolist() == [-length * o.top_code(bits)]
