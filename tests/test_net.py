"""Plans at work, call by call: what qfw_open, qfw_walk and the others answer, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plan_bytes import (
    ARENA,
    ASYM,
    CONST,
    FLOAT32,
    GRADIENT,
    NET_BYTES,
    NO_TENSOR,
    PARAMETER,
    PLACES,
    ROWS_AXIS,
    ROWS_OUTER,
    STATE,
    SYM,
    Builder,
    PlanBytes,
    parts,
    sizes,
)
from plan_cases import CONVERT, GRADIENT_S32, LOSS_F32, PRODUCT_F32, PRODUCT_S32, STEP, UPDATE
from plan_net import OK, TABLES, Array, Net, aligned, check
from plangold import BATCH, CLASSES, many_plans

from pyqfw import quant
from pyqfw._core import ffi, lib

MANY = {name: plan.to_bytes() for name, plan in many_plans().items()}


@pytest.fixture(autouse=True)
def _float_mode() -> Any:
    with quant.float_mode():
        yield


def opened(data: bytes, kernels: Any = None) -> Net:
    """A net whose constants have scales too."""
    net = Net(data, kernels)
    assert check(data) == OK
    assert net.open() == "OK"
    for i, t in enumerate(net.plan.tensors):
        if t["space"] == CONST and t["kind"] in (SYM, ASYM):
            view(net, i, "scale", np.float32)[:] = 1.0
    return net


def view(net: Net, tensor: int, part: str, kind: Any) -> Array:
    t = net.plan.tensors[tensor]
    n, scales = sizes(t, 1)
    count = n if part == "codes" else scales
    space = net.constants if t["space"] == CONST else net.arena
    return space[int(t[part]) :].view(np.uint8)[: count * np.dtype(kind).itemsize].view(kind)


def buffers(net: Net, rows: int) -> dict[str, Array]:
    x = np.linspace(-1, 1, rows * net.row("input"), dtype=np.float32)
    y = (np.arange(rows) % CLASSES).astype(np.int32)
    return {"x": x, "y": y, "out": np.zeros(rows * net.row("output"), np.float32)}


# ---- open ----------------------------------------------------------------------------------------


def test_open_zeroes_the_arena_and_sets_scales_to_one() -> None:
    for data in MANY.values():
        net = Net(data)
        net.arena[:] = 0xA5
        assert net.open() == "OK"
        expected = np.zeros_like(net.arena)
        for t in net.plan.tensors:
            if t["role"] <= STATE and t["space"] == ARENA and t["kind"] in (SYM, ASYM):
                scale = parts(t, 1)[1]
                expected[scale.begin : scale.end].view(np.float32)[:] = 1.0
        np.testing.assert_array_equal(net.arena[NET_BYTES:], expected[NET_BYTES:])
        assert net.progress() == (0, 0, float(net.plan.header["lr"][0]))


def test_the_arena_must_be_large_enough_and_aligned() -> None:
    net = Net(MANY["int8"])
    size = net.arena.size
    assert net.open(aligned(size - 1)) == "ARENA"
    assert net.open(aligned(size + 64)) == "OK"
    space = aligned(size + 64)
    assert net.open(space[16:]) == "OK"
    for shift in (1, 4, 8):
        assert net.open(space[shift:]) == "ARENA"


def test_a_plan_without_room_for_the_core_is_not_opened() -> None:
    plan = PlanBytes(MANY["int8"])
    plan.header["arena_bytes"] = 112
    assert Net(plan.sealed()).open(aligned(2**12)) == "ARENA"


def test_constants_must_be_there_and_aligned() -> None:
    net = Net(MANY["deep"])
    assert net.image.const_bytes > 0
    assert net.open() == "OK"
    net.image.const_bytes -= 16
    assert net.open() == "SIZE"
    net = Net(MANY["deep"])
    net.image.constants = ffi.NULL
    assert net.open() == "SIZE"
    net = Net(MANY["deep"])
    net.image.constants += 8
    assert net.open() == "SIZE"
    net = Net(MANY["int8"])
    net.image.constants = ffi.NULL  # none are needed
    assert net.open() == "OK"


def test_null_pointers() -> None:
    net = opened(MANY["int8"])
    out, io = ffi.new("qfw_net **"), ffi.new("qfw_io *")
    size, done, loss = ffi.new("size_t *"), ffi.new("uint32_t *"), ffi.new("float *")
    arena, progress, null = ffi.from_buffer(net.arena), ffi.new("qfw_progress *"), ffi.NULL
    x = ffi.new("float[64]")
    calls = [
        lambda: lib.qfw_arena_size(null, size),
        lambda: lib.qfw_arena_size(net.image, null),
        lambda: lib.qfw_open(null, net.arena.size, net.image, out),
        lambda: lib.qfw_open(arena, net.arena.size, null, out),
        lambda: lib.qfw_open(arena, net.arena.size, net.image, null),
        lambda: lib.qfw_get_progress(null, progress),
        lambda: lib.qfw_get_progress(net.net, null),
        lambda: lib.qfw_set_progress(null, progress),
        lambda: lib.qfw_set_progress(net.net, null),
        lambda: lib.qfw_walk(null, io, 1, 0, 1, done),
        lambda: lib.qfw_walk(net.net, null, 1, 0, 1, done),
        lambda: lib.qfw_walk(net.net, io, 1, 0, 1, null),
        lambda: lib.qfw_run_section(null, lib.QFW_FORWARD, io, 1),
        lambda: lib.qfw_run_section(net.net, lib.QFW_FORWARD, null, 1),
        lambda: lib.qfw_step(null, x, x, 1, loss),
        lambda: lib.qfw_step(net.net, x, x, 1, null),
        lambda: lib.qfw_step(net.net, null, x, 1, loss),
        lambda: lib.qfw_infer(null, x, 1, x),
        lambda: lib.qfw_infer(net.net, null, 1, x),
        lambda: lib.qfw_infer(net.net, x, 1, null),
    ]
    for i, call in enumerate(calls):
        assert call() == lib.QFW_E_NULL, i
    for field in ("plan", "kernels", "ops"):
        other = Net(MANY["int8"])
        setattr(other.image, field, ffi.NULL)
        assert other.open() == "NULL"


# ---- rows, buffers, operations that there are not ------------------------------------------------


def test_rows() -> None:
    for rows in (0, BATCH + 1, 2**31, 2**32 - 1):
        net = opened(MANY["int8"])
        io = buffers(net, BATCH)
        assert net.section("forward", rows, **io) == "ROWS"
        assert net.walk(0, 1, rows, **io) == "ROWS"
        assert net.step(io["x"], io["y"], rows)[0] == "ROWS"
    for rows in range(1, BATCH + 1):
        net = opened(MANY["int8"])
        io = buffers(net, rows)
        assert net.step(io["x"], io["y"], rows)[0] == "OK"


def test_any_number_of_rows_to_infer() -> None:
    net = opened(MANY["int8"])
    io = buffers(net, 9)
    assert net.infer(io["x"], 0, io["out"]) == "OK"
    assert net.infer(io["x"], 9, io["out"]) == "OK"


def test_operations_that_there_are_not() -> None:
    net = opened(MANY["int8"])
    ops = len(net.plan.ops)
    for first, count in ((ops + 1, 0), (0, ops + 1), (ops, 1), (2**32 - 1, 1), (1, 2**32 - 1)):
        assert net.walk(first, count, 1) == "SIZE"
        assert net.done == 0
    for number in (lib.QFW_INFER, 5, 2**31 - 1):
        status = lib.qfw_run_section(net.net, number, ffi.new("qfw_io *"), 1)
        assert status == lib.QFW_E_KIND


@pytest.mark.parametrize("name", ["x", "y", "out"])
def test_buffers_that_are_missing_or_not_aligned(name: str) -> None:
    net = opened(MANY["int8"])
    ops = len(net.plan.ops)
    for wrong in (None, np.zeros(256, np.uint8)[1:], np.zeros(256, np.uint8)[2:]):
        io = buffers(net, 1)
        if wrong is None:
            del io[name]
        else:
            io[name] = wrong
        assert net.walk(0, ops, 1, **io) == "NULL"
        uses = {"x": "input", "y": "labels", "out": "output"}[name]
        user = np.flatnonzero(net.plan.ops["tensor"] == net.plan.header[uses][0])[0] // PLACES
        assert net.done == user
    assert net.walk(0, ops, 1, **buffers(net, 1)) == "OK"
    assert net.done == ops


# ---- order ---------------------------------------------------------------------------------------


def test_sections_in_a_wrong_order() -> None:
    net = opened(MANY["int8"])
    io = buffers(net, BATCH)
    for section in ("output", "backward", "update"):
        assert net.section(section, BATCH, **io) == "ORDER"
    assert net.section("forward", BATCH, **io) == "OK"
    assert net.section("update", BATCH) == "ORDER"
    assert net.section("backward", BATCH - 1, **io) == "ORDER"  # other rows
    assert net.section("output", BATCH - 1, **io) == "ORDER"
    assert net.section("output", BATCH, **io) == "OK"
    assert net.section("output", BATCH, **io) == "ORDER"
    assert net.section("backward", BATCH, **io) == "OK"
    assert net.section("backward", BATCH, **io) == "ORDER"
    assert net.section("output", BATCH, **io) == "ORDER"
    for _ in range(2):  # the gradients that there are, as often as one likes
        assert net.section("update", BATCH) == "OK"
    assert net.section("backward", BATCH, **io) == "ORDER"
    assert net.section("forward", BATCH, **io) == "OK"
    assert net.section("backward", BATCH, **io) == "OK"  # without output
    assert net.section("update", 1) == "OK"


def test_inference_ends_a_step() -> None:
    net = opened(MANY["int8"])
    io = buffers(net, 1)
    assert net.section("forward", 1, **io) == "OK"
    assert net.infer(io["x"], 1, io["out"]) == "OK"
    assert net.section("backward", 1, **io) == "ORDER"


def test_operations_in_a_wrong_order() -> None:
    net = opened(MANY["int8"])
    ops = len(net.plan.ops)
    io = buffers(net, BATCH)
    for i in range(1, ops):
        assert net.walk(i, 1, BATCH, **io) == "ORDER", i
    for i in range(ops):
        for wrong in (i - 1, i + 1):
            begins = (0, net.plan.section("backward").start, net.plan.section("update").start)
            if 0 <= wrong < ops and wrong not in begins:
                assert net.walk(wrong, 1, BATCH, **io) == "ORDER", (i, wrong)
        assert net.walk(i, 1, BATCH, **io) == "OK"


def test_a_failure_ends_a_step() -> None:
    net = opened(MANY["int8"])
    io = buffers(net, 2)
    assert net.section("forward", 2, **io) == "OK"
    assert net.section("backward", 2, y=np.array([0, CLASSES], np.int32)) == "LABEL"
    assert net.section("backward", 2, **io) == "ORDER"
    assert net.section("update", 2) == "ORDER"
    assert net.progress()[:2] == (0, 0)
    assert net.section("forward", 2, **io) == "OK"
    assert net.section("backward", 2, **io) == "OK"


def test_a_plan_without_a_loss() -> None:
    net = opened(MANY["inference"])
    io = buffers(net, 1)
    assert net.section("backward", 1, **io) == "ORDER"
    assert net.step(io["x"], io["y"], 1)[0] == "ORDER"
    assert net.infer(io["x"], 1, io["out"]) == "OK"


def test_an_inference_of_its_own() -> None:
    plan = Builder(2)
    floats = plan.tensor(1, rows=ROWS_AXIS)
    plan.op(CONVERT, floats, plan.input)
    plan.op(CONVERT, plan.output, plan.input, section="infer")
    net = opened(plan.build())
    io = buffers(net, 2)
    assert net.infer(io["x"], 2, io["out"]) == "OK"
    np.testing.assert_array_equal(io["out"], io["x"])
    assert net.walk(1, 1, 2, **io) == "OK"
    assert net.progress()[0] == 0


# ---- steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["int8", "fused"])
def test_a_step_is_counted_once(name: str) -> None:
    net = opened(MANY[name])
    io = buffers(net, BATCH)
    ops, update = len(net.plan.ops), net.plan.section("update")
    assert net.step(io["x"], io["y"], BATCH)[0] == "OK"
    assert net.progress()[:2] == (1, 1)
    for i in range(update.start):
        assert net.walk(i, 1, BATCH, **io) == "OK"
    assert net.progress()[0] == 1
    for i in update:
        assert net.progress()[0] == 1
        assert net.walk(i, 1, BATCH, **io) == "OK"
    if not update:
        assert net.walk(update.start, 0, BATCH) == "OK"
    assert net.progress()[0] == 2
    if update:  # nothing runs: nothing is counted
        assert net.walk(ops, 0, BATCH) == "OK"
        assert net.walk(update.start, 0, BATCH) == "OK"
    assert net.progress()[0] == 2
    assert net.walk(0, ops, BATCH, **io) == "OK"
    assert net.progress()[0] == 2 + bool(update)


def test_inference_counts_no_step() -> None:
    for data in MANY.values():
        net = opened(data)
        net.set_gains()
        io = buffers(net, 1)
        assert net.infer(io["x"], 1, io["out"]) == "OK"
        assert net.progress()[:2] == (0, 0)


def test_a_hindsight_range_needs_a_gain() -> None:
    """And inference changes none."""
    net = opened(MANY["hindsight"])
    io = buffers(net, 1)
    assert net.infer(io["x"], 1, io["out"]) == "SCALE"
    assert net.step(io["x"], io["y"], 1)[0] == "SCALE"
    net.set_gains()
    tensors = net.plan.tensors[(net.plan.tensors["role"] == STATE)]
    at = [int(t["codes"]) for t in tensors if t["kind"] == FLOAT32]
    before = [net.arena[i : i + 8].tobytes() for i in at]
    assert net.infer(io["x"], 1, io["out"]) == "OK"
    assert [net.arena[i : i + 8].tobytes() for i in at] == before
    assert net.step(io["x"], io["y"], 1)[0] == "OK"
    assert [net.arena[i : i + 8].tobytes() for i in at] != before


def test_progress() -> None:
    net = opened(MANY["int8"])
    for lr in (np.nan, np.inf, -np.inf, -1.0, -0.0, 1e-39, 2.0**-127):
        assert net.set_progress(1, 1, lr) == "SCALE"
    assert net.progress()[:2] == (0, 0)
    for lr in (0.0, 2.0**-126, 1.0, float(np.finfo(np.float32).max)):
        assert net.set_progress(3, 2, lr) == "OK"
        assert net.progress() == (3, 2, lr)
    assert net.set_progress(2**32 - 1, 2**32 - 1, 0.5) == "OK"
    io = buffers(net, 1)
    assert net.step(io["x"], io["y"], 1)[0] == "OK"
    assert net.progress() == (0, 2**32 - 1, 0.5)  # the generator's step is a word


# ---- data that are not what they should be -------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("bits", [0, 1, 0x007FFFFF, 0x7F800000, 0x7FC00000, 0xBF800000, 2**32 - 1])
def test_scales_are_looked_at(bits: int, table: Any) -> None:
    for name in ("int8", "deep", "asym"):
        data = MANY[name]
        for i, t in enumerate(PlanBytes(data).tensors):
            if t["role"] in (PARAMETER, STATE) and t["kind"] in (SYM, ASYM):
                net = opened(data, table)
                view(net, i, "scale", np.uint32)[-1] = bits
                io = buffers(net, BATCH)
                assert net.step(io["x"], io["y"], BATCH)[0] == "SCALE", (name, i)


def test_powers_of_two_and_zero_points_are_looked_at() -> None:
    net = opened(MANY["groups"])
    weight = int(np.flatnonzero(net.plan.tensors["pow2"])[0])
    view(net, weight, "scale", np.float32)[0] = 0.75
    io = buffers(net, 1)
    assert net.infer(io["x"], 1, io["out"]) == "SCALE"
    net = opened(MANY["roomy"])
    bias = int(np.flatnonzero(net.plan.tensors["kind"] == ASYM)[0])
    view(net, bias, "zero_point", np.uint16)[0] = 2 ** int(net.plan.tensors["bits"][bias])
    assert net.infer(io["x"], 1, io["out"]) == "ZERO_POINT"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_numbers_are_looked_at(value: float) -> None:
    net = opened(MANY["int8"])
    io = buffers(net, BATCH)
    io["x"][-1] = value
    assert net.step(io["x"], io["y"], BATCH)[0] == "NONFINITE"
    for name in ("columns", "float32", "computed in integers"):  # of a bias, a weight
        net = opened(MANY[name])
        floats = (net.plan.tensors["kind"] == 0) & (net.plan.tensors["role"] == PARAMETER)
        t = int(np.flatnonzero(floats)[-1])
        view(net, t, "codes", np.float32)[0] = value
        io = buffers(net, BATCH)
        assert net.step(io["x"], io["y"], BATCH)[0] == "NONFINITE"


@pytest.mark.parametrize("label", [-1, CLASSES, -(2**31), 2**31 - 1])
def test_labels_are_looked_at(label: int) -> None:
    for name in ("int8", "float32"):
        net = opened(MANY[name])
        io = buffers(net, BATCH)
        io["y"][-1] = label
        assert net.step(io["x"], io["y"], BATCH)[0] == "LABEL"


@pytest.mark.parametrize("table", TABLES)
def test_codes_that_could_make_a_sum_leave_int32(table: Any) -> None:
    """2-bit weights in 16-bit slots: the proof is of the bits, the memory holds what it holds."""
    terms, chunk = 70_000, 30_000
    plan = Builder(1)
    floats, a = plan.tensor(terms, rows=ROWS_AXIS), plan.sym(terms, 2, 16, rows=ROWS_AXIS)
    plan.op(PRODUCT_F32, floats, plan.input, plan.tensor(terms, role=PARAMETER))
    plan.op(CONVERT, a, floats)
    b = plan.sym(terms, 2, 16, role=PARAMETER)
    acc = plan.sym(1, 32, 32, rows=ROWS_OUTER, shared=1)
    bias = plan.tensor(1, role=PARAMETER)
    plan.op(PRODUCT_S32, acc, a, b, bias, NO_TENSOR, plan.scratch(5), p1=chunk)
    net = opened(plan.build(), table)
    weight = int(plan.ops["forward"][0][2][2])
    view(net, weight, "codes", np.float32)[:] = 1.0
    view(net, bias, "codes", np.float32)[:] = 1.0
    view(net, b, "codes", np.int16)[:] = 1
    x = np.ones(1, np.float32)
    assert net.walk(0, 3, 1, x=x) == "OK"
    assert view(net, acc, "codes", np.int32)[0] == terms + 1
    view(net, b, "codes", np.int16)[:] = 32767
    assert net.walk(0, 3, 1, x=x) == "RANGE"


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize(
    ("bits", "container", "kind"),
    [(8, 32, SYM), (16, 32, SYM), (3, 16, ASYM), (15, 16, ASYM), (16, 16, ASYM), (9, 32, ASYM)],
)
def test_an_update_of_any_codes(
    bits: int, container: int, kind: int, floats: bool, table: Any
) -> None:
    """What a slot holds beyond the format counts as the end of its range."""
    fmt = {"kind": kind, "bits": bits, "container": container}
    n, code = 40, f"{'u' * (kind == ASYM)}int{container}"
    low, high = (0, 2**bits - 1) if kind == ASYM else (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)
    for byte in (0x00, 0x55, 0x7F, 0x80, 0xFF):
        plan = Builder(1)
        param, state = (plan.tensor(n, role=role, **fmt) for role in (PARAMETER, STATE))
        grad = plan.tensor(n, role=GRADIENT, **({} if floats else fmt))
        plan.op(UPDATE, param, grad, state, plan.scratch(2), **STEP)
        plan.op(CONVERT, plan.output, plan.input)
        net = opened(plan.build(), table)
        for t in (param, grad, state):
            kept = np.float32 if floats and t == grad else code
            view(net, t, "codes", kept).view(np.uint8)[:] = byte
        if floats:
            view(net, grad, "codes", np.float32)[:] = np.linspace(-3e38, 3e38, n)
        assert net.set_progress(7, 1, 0.5) == "OK"
        assert net.walk(0, 1, 1) == "OK"
        for t in (param, state):
            codes = view(net, t, "codes", code).astype(int)
            assert low <= codes.min()
            assert codes.max() <= high


def test_a_gradient_in_parts_is_written_once_and_whole() -> None:
    """Tiles of 1, 2 and 3 rows of 3, packed: the same bytes."""
    found = []
    for rows in (1, 2, 3):
        plan = Builder(2)
        pair = [plan.tensor(n, rows=ROWS_AXIS) for n in (3, 8)]
        for t in pair:
            n = plan.tensors[t]["axis"]
            plan.op(PRODUCT_F32, t, plan.input, plan.tensor(n, role=PARAMETER))
        e, x = (plan.sym(n, rows=ROWS_AXIS) for n in (3, 8))
        plan.op(CONVERT, e, pair[0])
        plan.op(CONVERT, x, pair[1])
        each = {"outer": 3, "axis": 8, "group": 8, "role": 1}
        grad = plan.tensor(24, **{**each, "kind": SYM, "bits": 5, "container": 0})
        tile = plan.sym(rows * 8, 32, 32)
        plan.op(GRADIENT_S32, grad, e, x, tile, p9=2, p11=1)
        net = opened(plan.build())
        for t in pair:
            weight = view(net, int(plan.ops["forward"][pair.index(t)][2][2]), "codes", np.float32)
            weight[:] = np.linspace(-1, 2, weight.size)
        assert net.walk(0, 5, 2, x=np.array([0.5, -1], np.float32)) == "OK"
        t = net.plan.tensors[grad]
        found.append([net.arena[p.begin : p.end].tobytes() for p in parts(t, 1)])
        assert any(found[0][0])
    assert found[0] == found[1] == found[2]


def test_the_loss_is_where_the_header_says() -> None:
    plan = Builder(1)
    labels, floats = plan.add_labels(), plan.tensor(CLASSES, rows=ROWS_AXIS)
    plan.op(PRODUCT_F32, floats, plan.input, plan.tensor(CLASSES, role=PARAMETER))
    loss = plan.tensor(1)
    error = plan.tensor(CLASSES, rows=ROWS_AXIS)
    plan.op(LOSS_F32, error, floats, labels, loss, section="backward")
    plan.header["loss"] = loss
    net = opened(plan.build())
    status, found = net.step(np.ones(1, np.float32), np.zeros(1, np.int32), 1)
    assert status == "OK"
    assert found == pytest.approx(np.log(CLASSES))
