"""Pools in plans that are wrong: windows, places over one another, picks of any bits, plans changed
at random."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_pool import Geometry, max_back, pick_bits
from plan_bytes import (
    OPERATION,
    ROWS_AXIS,
    ROWS_OUTER,
    TENSOR,
    WINDOW,
    Builder,
    PlanBytes,
    part_sizes,
)
from plan_cases import (
    AVG_POOL_BACK_S32,
    AVG_POOL_S32,
    MAX_POOL,
    MAX_POOL_BACK,
    PRODUCT_POOL,
    case,
)
from plan_net import OK, TABLES, Net, Verdict, check
from plan_pools import POOLS
from pool_machine import Data, Machine
from test_fuzz_plan import Edit, edits, mix_ops, mix_tensors, numbers, run, set_field, set_place
from test_pools import NETS, POLICIES, compiled

from pyqfw import quant

APART, UNWRITTEN = "overlaps another operand", "is read before it is written"

# ---- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", POOLS)
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"groups": 2}, "window"),
        ({"in_w": 3}, "the sizes differ"),
        ({"in_h": 3}, "the sizes differ"),
        ({"out_w": 3}, "the sizes differ"),
        ({"out_h": 2**20, "out_w": 2}, "the sizes differ"),
    ],
)
def test_windows_that_do_not_fit(kernel: int, fields: dict[str, int], words: str) -> None:
    plan = case(kernel, bare=True)
    plan.plan.windows[-1] |= fields
    assert check(plan.build()) == Verdict("PLAN", plan.op, plan.tensors[0], words)


@pytest.mark.parametrize("kernel", POOLS)
def test_windows_that_there_are_not(kernel: int) -> None:
    plan = case(kernel, bare=True)
    edited = PlanBytes(plan.build())
    edited.ops["param"][plan.op, 13] = len(edited.windows) + 1
    assert check(edited.sealed()) == Verdict("PLAN", plan.op, -1, "window")


@pytest.mark.parametrize(
    ("kernel", "fields", "words"),
    [
        *((k, {"dilation_w": 2}, "window") for k in range(AVG_POOL_S32, POOLS.stop)),
        (MAX_POOL, {"kernel_w": 9}, "picks"),  # 3 bits tell 8 taps apart
        (MAX_POOL_BACK, {"kernel_w": 9, "stride_w": 9}, "picks"),
        (MAX_POOL_BACK, {"stride_w": 1}, "windows overlap"),
        (MAX_POOL_BACK, {"dilation_w": 3}, "windows overlap"),
        (AVG_POOL_BACK_S32, {"stride_w": 1}, "windows overlap"),
        (AVG_POOL_S32, {"kernel_w": 16384, "kernel_h": 16384}, "headroom"),
    ],
)
def test_windows_that_cannot_be(kernel: int, fields: dict[str, int], words: str) -> None:
    plan = case(kernel, bare=True)
    plan.plan.windows[-1] |= fields
    assert check(plan.build()) == Verdict("PLAN", plan.op, plan.tensors[0], words)


@pytest.mark.parametrize("bits", [8, 16])
def test_headroom_of_sums_is_exact(bits: int) -> None:
    """Up to the last pixel of a window, the last window of a pixel, the last bit of a quotient."""
    most, top = (2**31 - 1) // (2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1
    for taps in (most, most + 1):
        plan = Builder(1)
        acc, x = plan.sym(1, 32, 32, rows=ROWS_AXIS), plan.sym(taps, bits, bits, rows=ROWS_AXIS)
        window = plan.window(in_w=taps)
        plan.op(AVG_POOL_S32, acc, x, p0=taps, p13=window, flags=2)
        assert check(plan.build()).field == (UNWRITTEN if taps == most else "headroom")
    for extra in range(33):
        for kernel, terms in ((AVG_POOL_S32, 1), (AVG_POOL_BACK_S32, 3)):
            plan = Builder(1)
            a, b = plan.sym(5, 32, 32, rows=ROWS_AXIS), plan.sym(5, bits, bits, rows=ROWS_AXIS)
            window = plan.window(in_w=5, out_w=5, kernel_w=3, pad_w=1)
            plan.op(kernel, a, b, p1=extra, p13=window)
            fits = extra <= 30 and terms * top * 2**extra < 2**31
            assert check(plan.build()).field == (UNWRITTEN if fits else "headroom")


# ---- a result over its image ---------------------------------------------------------------------


def over(by: dict[str, int], kind: str = "s32", shift: int = 0, at: str = "codes") -> Verdict:
    """What is said of a max_pool whose result lies `shift` bytes behind its image's codes."""
    plan = Builder(2, gap=64)
    window = plan.window(**{"in_w": 8, "out_w": 4, "kernel_w": 2, "stride_w": 2, **by})
    w = plan.windows[-1]
    bits, n = {"s8": 8, "s16": 16, "s32": 32}[kind], 3 * w["in_h"] * w["in_w"]
    a = plan.sym(1, rows=ROWS_AXIS)
    x = plan.sym(n, bits, bits, rows=ROWS_AXIS)
    y = plan.sym(3 * w["out_h"] * w["out_w"], bits, bits, rows=ROWS_AXIS)
    plan.op(1, a, plan.input)
    if kind == "s32":
        plan.op(3, x, a, plan.sym(n, role=0), p1=1)
    else:
        floats = plan.tensor(n, rows=ROWS_AXIS)
        plan.op(4, floats, plan.input, plan.tensor(n, role=0))
        plan.op(1, x, floats)
    plan.tensors[y]["codes"] = plan.tensors[x][at] + shift
    plan.op(MAX_POOL, y, x, p13=window)
    found = check(plan.build())
    return found._replace(op=-1, tensor=-1)


def test_a_result_may_begin_where_its_image_does() -> None:
    refused = Verdict("PLAN", field=APART)
    for kind in ("s8", "s16", "s32"):
        assert over({}, kind) == OK
        assert over({}, kind, shift=16) == refused
        assert over({}, kind, shift=-16) == refused
        assert over({}, kind, at="scale") == refused
    assert over({"out_w": 8, "stride_w": 1}) == OK  # overlapping windows: still no pixel before p
    assert over({"pad_w": 1}) == refused
    assert over({"in_w": 4, "out_w": 8}) == refused
    assert over({"in_h": 2, "out_h": 3, "in_w": 12}) == refused


def test_scales_of_a_result_may_lie_among_the_codes_of_its_image_but_not_among_its_scales() -> None:
    for part, at, fine in (
        *(("scale", "codes", True), ("absmax", "codes", True)),
        *(("scale", "scale", False), ("absmax", "absmax", False), ("scale", "absmax", False)),
    ):
        plan = Builder(1, gap=64)
        window = plan.window(in_w=64, out_w=4, kernel_w=2, stride_w=2)
        a = plan.sym(1, rows=ROWS_AXIS)
        x, y = plan.sym(64, 32, 32, rows=ROWS_AXIS), plan.sym(4, 32, 32, rows=ROWS_AXIS)
        plan.op(1, a, plan.input)
        plan.op(3, x, a, plan.sym(64, role=0), p1=1)
        plan.tensors[y]["codes"] = plan.tensors[x]["codes"]
        plan.tensors[y][part] = plan.tensors[x][at] + (128 if at == "codes" else 0)
        plan.op(MAX_POOL, y, x, p13=window)
        assert (check(plan.build()) == OK) == fine, (part, at)


def test_an_image_that_was_overwritten_is_gone() -> None:
    plan = Builder(1, gap=64)
    window = plan.window(in_w=8, out_w=4, kernel_w=2, stride_w=2)
    x, y = plan.tensor(8, rows=ROWS_AXIS), plan.tensor(4, rows=ROWS_AXIS)
    plan.op(4, x, plan.input, plan.tensor(8, role=0))
    plan.tensors[y]["codes"] = plan.tensors[x]["codes"]
    plan.op(MAX_POOL, y, x, p13=window)
    again = plan.tensor(8, rows=ROWS_AXIS)
    plan.op(1, again, x)
    assert check(plan.build()) == Verdict("PLAN", 2, x, UNWRITTEN)


# ---- picks ---------------------------------------------------------------------------------------


def test_picks_are_a_result() -> None:
    """Of another window too: they are numbers, whatever made them."""
    plan = case(MAX_POOL_BACK)
    assert check(plan.build()) == OK
    edited = PlanBytes(case(MAX_POOL_BACK, bare=True).build())
    assert check(edited.sealed()).field == UNWRITTEN


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", ["f32", "s8", "s32"])
def test_picks_of_any_bits_stay_inside(table: Any, kind: str) -> None:
    """A pick that is no tap, or lies in the padding, is nowhere."""
    rng = np.random.default_rng(0)
    g = Geometry((3, 5), (2, 3), (2, 3), (1, 1), ceil_mode=True)
    e = rng.integers(-5, 6, (2, *g.out, 7))
    pick = rng.integers(0, 2 ** pick_bits(g), e.shape)
    source = "s8" if kind == "s32" else kind
    operands = [Data(source, e), Data("pick", pick)]
    (dx,) = Machine(g, 7, 2).run(table, MAX_POOL_BACK, 2, (kind, 15, 0), operands)
    expected = max_back(e, pick, g)
    np.testing.assert_array_equal(dx.values.reshape(expected.shape), expected)
    assert (expected != 0).sum() < (e != 0).sum()


@pytest.mark.parametrize("table", TABLES)
def test_a_window_without_a_pixel_gives_0_and_a_pick_of_ones(table: Any) -> None:
    plan = Builder(1)
    window = plan.window(in_w=2, out_w=2, kernel_w=5, stride_w=9)
    x, y = plan.tensor(2, rows=ROWS_AXIS), plan.tensor(2, rows=ROWS_AXIS)
    pick = plan.tensor(2, kind=5, bits=3, container=0, rows=ROWS_AXIS)
    means = [plan.tensor(2, rows=ROWS_AXIS) for _ in range(3)]
    sums = [plan.sym(2, 32, 32, rows=ROWS_AXIS) for _ in range(2)]
    codes = plan.sym(2, rows=ROWS_AXIS)
    plan.op(4, x, plan.input, plan.tensor(2, role=0))
    plan.op(MAX_POOL, y, x, pick, p13=window)
    plan.op(53, means[0], x, p13=window)
    plan.op(53, means[1], x, p13=window, flags=1)
    plan.op(55, means[2], x, p13=window)
    plan.op(1, codes, x)
    plan.op(52, sums[0], codes, p13=window, p1=24)
    plan.op(54, sums[1], codes, p13=window, p1=24)
    data = plan.build()
    assert check(data) == OK
    net = Net(data, table)
    with quant.float_mode():
        assert net.open() == "OK"
        assert net.walk(0, len(net.plan.ops), 1, x=np.ones(1, np.float32)) == "OK"
    at = int(net.plan.tensors[pick]["codes"])
    assert net.arena[at] == 0b111_000
    for t in (y, means[0], means[1], sums[0]):
        at = int(net.plan.tensors[t]["codes"]) + 4
        assert not net.arena[at : at + 4].any()


# ---- plans that were changed ---------------------------------------------------------------------


@cache
def bases() -> list[bytes]:
    """Plans of networks with pools."""
    names = ("int8", "float32", "packed", "asym errors", "hindsight", "int8 fused", "rows")
    pairs = [(net, p) for net in NETS for p in names if net != "ends" or p != "hindsight"]
    return [compiled(net, POLICIES[p]).to_bytes() for net, p in pairs]


def changed(plan: PlanBytes, edit: Edit) -> None:
    choice, a, b, _, _ = edit
    match choice % 8:
        case 0:
            set_field(plan.tensors, TENSOR, edit)
        case 1 | 2:
            pools = np.flatnonzero(np.isin(plan.ops["kernel"], list(POOLS)))
            some = (edit[0], int(pools[a % len(pools)]), *edit[2:])
            set_field(plan.ops, OPERATION, some)
        case 3 | 4:
            set_field(plan.windows, WINDOW, edit)
        case 5:
            mix_tensors(plan, edit)
        case 6:
            mix_ops(plan, edit)
        case _:
            set_place(plan, (edit[0], a, b % 3, *edit[3:]))


@pytest.mark.parametrize("examples", [600, pytest.param(6000, marks=pytest.mark.slow)])
def test_any_plan_with_pools_gets_a_status(examples: int) -> None:
    verdicts: Counter[str] = Counter()

    @given(base=st.integers(0, 63), edits=edits, mode=st.integers(0, 2), seed=numbers)
    @settings(derandomize=True, deadline=None, database=None, max_examples=examples)
    def one(base: int, edits: list[Edit], mode: int, seed: int) -> None:
        plan = PlanBytes(bases()[base % len(bases())])
        for edit in edits:
            changed(plan, edit)
        verdicts[run(plan.sealed(), mode, seed)] += 1

    one()
    assert verdicts["OK"] > examples // 20  # it is not all refused
    assert verdicts["PLAN"] > examples // 4


def test_the_bases_are_plans() -> None:
    for data in bases():
        assert check(data) == OK
        plan = PlanBytes(data)
        assert np.isin(plan.ops["kernel"], [*POOLS, PRODUCT_POOL]).sum() >= 4
        for t in plan.tensors:
            assert sum(part_sizes(t, int(plan.header["batch"][0])).values()) > 0
    assert ROWS_OUTER in {int(t["rows"]) for t in PlanBytes(bases()[0]).tensors}
