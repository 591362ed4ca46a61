"""What qfw_check says of windows: every field of each, whether it is used or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plan_bytes import NO_TENSOR, PARAMETER, ROWS_AXIS, ROWS_OUTER, WINDOW, Builder, PlanBytes
from plan_cases import (
    BATCH,
    GATHER,
    GATHER_F32,
    GRADIENT_S32,
    OF_WINDOWS,
    OVER_IMAGE,
    PRODUCT_F32,
    PRODUCT_POOL,
    PRODUCT_S32,
    SCATTER,
    N,
    case,
)
from plan_net import OK, TABLES, Net, Verdict, check
from plangold import GOLD
from test_check import UNWRITTEN, assert_runs

from pyqfw import quant

DATA = (GOLD / "plan_v1_conv.bin").read_bytes()
REFUSED = Verdict("PLAN", field="windows")
FIELDS = [name for name, _, _ in WINDOW if name != "reserved"]
WINDOWS = len(PlanBytes(DATA).windows)


@pytest.mark.parametrize("kernel", OF_WINDOWS)
def test_operations_over_images_are_accepted_and_run(kernel: int) -> None:
    data = case(kernel).build()
    assert check(data) == OK
    assert_runs(data)


@pytest.mark.parametrize("number", range(WINDOWS))
@pytest.mark.parametrize("field", FIELDS)
def test_every_field_counts(field: str, number: int) -> None:
    """0 is refused but for pads, and so is what is too large; the rest depends on the operands."""
    for value in (0, 1, 2, 3, 5, 255, 2**15, 2**16 - 1, 2**16, 2**30, 2**30 + 1, 2**31, 2**32 - 1):
        plan = PlanBytes(DATA)
        there = int(plan.windows[field][number])
        if value >= 2 ** (8 * plan.windows.dtype[field].itemsize):
            continue
        plan.windows[field][number] = value
        found = check(plan.sealed())
        if value == there:
            assert found == OK
        elif value == 0 and "pad" not in field:
            assert found == REFUSED
        elif field in ("in_h", "in_w", "out_h", "out_w", "kernel_h", "kernel_w", "groups"):
            assert found.status == "PLAN"
            assert found == REFUSED or found.op >= 0
        else:
            assert found in (OK, REFUSED) or found.field == "scratch"


@pytest.mark.parametrize("number", range(WINDOWS))
@pytest.mark.parametrize("k", range(3))
def test_what_is_reserved_is_0(number: int, k: int) -> None:
    plan = PlanBytes(DATA)
    plan.windows["reserved"][number, k] = 1
    assert check(plan.sealed()) == REFUSED


LIMITS: list[tuple[dict[str, int], bool]] = [
    ({"in_h": 2**15, "in_w": 2**15}, True),
    ({"in_h": 2**15, "in_w": 2**15 + 1}, False),
    ({"in_h": 2**32 - 1, "in_w": 2**32 - 1}, False),
    ({"out_h": 2**15, "out_w": 2**15}, True),
    ({"out_h": 2**16, "out_w": 2**15}, False),
    ({"kernel_h": 2**15, "kernel_w": 2**15}, True),
    ({"kernel_h": 2**15, "kernel_w": 2**15 + 1}, False),
    ({"out_w": 2**24, "stride_w": 64}, True),
    ({"out_w": 2**24 + 2, "stride_w": 64}, False),
    ({"out_h": 2**24 + 2, "stride_h": 64}, False),
    ({"out_w": 2**30, "stride_w": 2**16 - 1}, False),
    ({"kernel_w": 2**14 + 1, "dilation_w": 2**16 - 1}, True),
    ({"kernel_w": 2**15, "dilation_w": 2**15 + 2}, False),
    ({"kernel_h": 2**15, "dilation_h": 2**15 + 2}, False),
    (
        {"kernel_h": 2**16 - 1, "dilation_h": 2**16 - 1, "out_h": 2**30, "stride_h": 2**16 - 1},
        False,
    ),
    ({"pad_h": 2**16 - 1, "pad_w": 2**16 - 1, "groups": 2**16 - 1}, True),
]


@pytest.mark.parametrize(("fields", "fits"), LIMITS)
def test_sizes_have_an_end(fields: dict[str, int], fits: bool) -> None:
    """Of a window that nothing uses: what it reaches is at most 2^30 along each axis, so that no
    number made of it and a tensor's sizes leaves 63 bits."""
    plan = Builder()
    plan.op(1, plan.output, plan.input)
    plan.window(**fields)
    assert check(plan.build()) == (OK if fits else REFUSED)


def test_a_window_that_is_not_there() -> None:
    for kernel in OF_WINDOWS:
        made = case(kernel)
        for number in (len(PlanBytes(made.build()).windows) + 1, 2**16, 2**32 - 1):
            plan = PlanBytes(made.build())
            plan.ops["param"][made.op, 13] = number
            assert check(plan.sealed()) == Verdict("PLAN", made.op, -1, "window")


def test_the_window_of_a_pool_is_there() -> None:
    made = case(PRODUCT_POOL)
    for number in (0, 3, 2**16, 2**32 - 1):
        plan = PlanBytes(made.build())
        plan.ops["param"][made.op, 4] = number
        assert check(plan.sealed()) == Verdict("PLAN", made.op, -1, "window")
    plan = PlanBytes(made.build())
    plan.ops["param"][made.op, 13] = 0
    assert check(plan.sealed()) == Verdict("PLAN", made.op, -1, "window")


def test_no_other_operation_names_one() -> None:
    made = case(1)
    made.plan.window()
    plan = PlanBytes(made.build())
    plan.ops["param"][made.op, 13] = 1
    assert check(plan.sealed()) == Verdict("PLAN", made.op, -1, "flags, param")


def test_scratch_of_another_place_is_none() -> None:
    """Without a window there are no patches to have room for."""
    made = case(OVER_IMAGE)
    plan = PlanBytes(made.build())
    plan.ops["param"][made.op, 13] = 0
    assert check(plan.sealed()).status == "PLAN"
    other = case(GRADIENT_S32)
    spare = other.plan.scratch(64)
    plan = PlanBytes(other.build())
    plan.ops["tensor"][other.op, 5] = spare
    assert check(plan.sealed()) == Verdict("PLAN", other.op, other.tensors[0], "scratch")


# ---- how much room a patch takes -----------------------------------------------------------------

PATCHES: list[tuple[dict[str, int], int]] = [  # a window over 2 channels, and elements of a patch
    ({"in_w": 4, "out_w": 3, "kernel_w": 2}, 0),
    ({"in_w": 5, "out_w": 2, "kernel_w": 2, "stride_w": 3}, 0),
    ({"in_w": 4, "out_w": 2, "kernel_w": 2, "stride_w": 3}, 4),  # beyond the line's end
    ({"in_w": 4, "out_w": 3, "kernel_w": 2, "pad_w": 1}, 4),
    ({"in_w": 4, "out_w": 2, "kernel_w": 2, "dilation_w": 2}, 4),
    ({"in_w": 4, "out_w": 3, "kernel_w": 2, "groups": 2}, 2),
    ({"in_h": 3, "in_w": 2, "out_h": 2, "out_w": 2, "stride_h": 2}, 0),
    ({"in_h": 2, "in_w": 2, "out_h": 2, "out_w": 2, "stride_h": 2}, 2),  # beyond the last line
    ({"in_h": 2, "in_w": 2, "out_h": 2, "out_w": 2, "pad_h": 1}, 2),
    ({"in_h": 2, "in_w": 2, "out_h": 1, "out_w": 2, "kernel_h": 2}, 4),
    ({"in_w": 1, "out_w": 1, "pad_w": 3}, 2),  # nothing of the line is met
    ({"in_w": 2, "out_w": 4}, 2),
]


def gathering(fields: dict[str, int], sym: bool, room: int) -> tuple[bytes, int, int]:
    """A product of an image of two channels with so much scratch; its number, its result."""
    plan = Builder(BATCH)
    number = plan.window(**fields)
    w = plan.windows[0]
    image, made = w["in_h"] * w["in_w"] * 2, w["out_h"] * w["out_w"]
    taps = w["kernel_h"] * w["kernel_w"] * 2 // w["groups"]
    floats = plan.tensor(image, rows=ROWS_AXIS)
    plan.op(PRODUCT_F32, floats, plan.input, plan.tensor(image, role=PARAMETER))
    a, b = floats, plan.tensor(taps * 2, role=PARAMETER)
    acc = plan.tensor(made * 2, rows=ROWS_AXIS)
    if sym:
        a, b = plan.sym(image, rows=ROWS_AXIS), plan.sym(taps * 2, role=PARAMETER)
        plan.op(1, a, floats)
        acc = plan.sym(made * 2, 32, 32, rows=ROWS_AXIS)
    scratch = [NO_TENSOR, NO_TENSOR, plan.scratch(room)] if room else []
    params = {"p3": made, "p13": number, **({"p1": taps} if sym else {})}
    plan.op(PRODUCT_S32 if sym else PRODUCT_F32, acc, a, b, *scratch, **params)
    return plan.build(), len(plan.ops["forward"]) - 1, acc


@pytest.mark.parametrize("sym", [False, True])
@pytest.mark.parametrize(("fields", "patch"), PATCHES)
def test_room_for_one_patch_is_enough(fields: dict[str, int], patch: int, sym: bool) -> None:
    """And less is not; more changes no bit."""
    need = patch * (1 if sym else 4)
    found = []
    for room in {need, need + 1, 2 * need, need + 4096}:
        data, _, acc = gathering(fields, sym, room)
        assert check(data) == OK
        found += [ran(data, acc, table) for table in TABLES]
    assert len(set(found)) == 1
    if need:
        data, op, acc = gathering(fields, sym, need - 1)
        assert check(data) == Verdict("PLAN", op, acc, "scratch")


def ran(data: bytes, acc: int, table: Any) -> bytes:
    """The sums of a walk over parameters that are like no others."""
    net, rng = Net(data, table), np.random.default_rng(5)
    with quant.float_mode():
        assert net.open() == "OK"
        for t in net.plan.tensors[net.plan.tensors["role"] == PARAMETER]:
            n, at = int(t["axis"]), int(t["codes"])
            if t["bits"] == 32:
                net.arena[at : at + 4 * n].view(np.float32)[:] = rng.normal(size=n)
            else:
                net.arena[at : at + n].view(np.int8)[:] = rng.integers(-127, 128, n)
        x = np.array([1.0, -2.0][:BATCH], np.float32)
        assert net.walk(0, len(net.plan.ops), BATCH, x=x) == "OK"
    t = net.plan.tensors[acc]
    at = int(t["codes"])
    return net.arena[at : at + 4 * int(t["axis"]) * BATCH].tobytes()


# ---- scales --------------------------------------------------------------------------------------


def test_weights_with_a_scale_for_each_output_or_input() -> None:
    """Outputs when it gathers, in groups too; inputs when it scatters, but not in groups."""
    each = {"outer": 1, "axis": N, "inner": 4, "group": 1}
    last = {"outer": 4, "axis": N, "inner": 1, "group": 1, "shared": 1}
    spots = {"rows": ROWS_OUTER, "outer": 4, "axis": N, "group": 1, "shared": 1}
    for kernel, layout, groups, fine in (
        *((GATHER, each, 1, True), (GATHER, last, 1, False)),
        *((SCATTER, last, 1, True), (SCATTER, each, 1, False)),
        (SCATTER, {**last, "outer": 2}, 2, False),
    ):
        made = case(kernel, bare=True)
        plan = PlanBytes(made.build())
        for name, value in layout.items():
            plan.tensors[name][made.tensors[2]] = value
        if kernel == SCATTER:
            for name, value in spots.items():
                plan.tensors[name][made.tensors[0]] = value
        plan.windows["groups"][0] = groups
        found = check(plan.sealed())
        wrong = "b has scales along the sum"
        if groups == 2:  # half the weights
            plan.tensors["axis"][made.tensors[2]] = N
            found = check(plan.sealed())
        assert found.field == (UNWRITTEN if fine else wrong), (kernel, layout, groups)


def test_a_window_does_not_change_what_a_float_product_takes() -> None:
    made = case(GATHER_F32)
    assert check(made.build()) == OK
    plan = PlanBytes(made.build())
    plan.ops["flags"][made.op] = 1
    assert check(plan.sealed()) == OK
