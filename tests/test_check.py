"""What qfw_check refuses, and where it says the fault is; what nets answer to wrong calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plan_bytes as pb
import pytest
from plan_bytes import (
    ASYM,
    CONST,
    FLOAT32,
    INDEX,
    IO,
    NO_ROWS,
    NO_TENSOR,
    PARAMETER,
    PICK,
    ROWS_AXIS,
    ROWS_OUTER,
    SCRATCH,
    STATE,
    WIRE,
    Builder,
    PlanBytes,
    parts,
)
from plan_cases import (
    ADAMW,
    BATCH,
    CLIP_FACTOR,
    COLUMNS_S32,
    COMMIT,
    CONVERT,
    DROPOUT,
    FORMATS,
    FUSED,
    FUSED_ADAMW,
    GRADIENT_F32,
    GRADIENT_S32,
    JOIN_F32,
    JOIN_S32,
    KERNELS,
    LOSS_F32,
    MASK,
    NORM_BACK_F32,
    NORM_BACK_S32,
    NORM_F32,
    NORM_S32,
    PARAMS,
    PART,
    PRODUCT_F32,
    PRODUCT_FOLD,
    PRODUCT_POOL,
    PRODUCT_S32,
    RELU,
    SOFTMAX_BACK_F32,
    SOFTMAX_BACK_S32,
    SOFTMAX_F32,
    SOFTMAX_S16,
    SQUARE_SUM,
    TRANSPOSE,
    UPDATE,
    WEIGHTED_F32,
    WEIGHTED_S16,
    WIDEN,
    K,
    N,
    case,
    together,
)
from plan_net import OK, TABLES, Net, Verdict, check, copied
from plan_norm_rules import KNOWN, NORM_RULES, OTHER_SUMS, READY
from plan_pools import FIELDS as POOL_FIELDS
from plan_rules import HEADROOM, INF, NAN, RULES, TOO_LONG, Change
from plan_rules_windows import WINDOW_FIELDS, WINDOW_RULES
from plangold import GOLD, gold_plans
from test_format import places_of

import pyqfw as q
from pyqfw import quant
from pyqfw._core import ffi, lib
from pyqfw.session import check_plan

DATA = (GOLD / "plan_v1_int8.bin").read_bytes()

# ---- bytes ---------------------------------------------------------------------------------------


def test_truncated_at_every_length() -> None:
    for n in range(len(DATA)):
        assert check(DATA[:n]) == Verdict("SIZE"), n
    assert check(DATA) == OK
    assert check(DATA + b"\0") == Verdict("SIZE")


def test_no_changed_byte_is_accepted() -> None:
    for i in range(len(DATA)):
        data = bytearray(DATA)
        data[i] ^= 1 << i % 8
        status = "MAGIC" if i < 4 else "VERSION" if i < 8 else "SIZE" if i < 12 else "CRC"
        status = "SIZE" if 32 <= i < 40 or 96 <= i < 100 else status
        assert check(bytes(data)).status == status, i


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        ("magic", 0x51465750, "MAGIC"),
        ("version", 0, "VERSION"),
        ("version", 2, "VERSION"),
        ("header_bytes", 64, "VERSION"),
        ("plan_bytes", len(DATA) + 64, "SIZE"),
        ("tensors", 4097, "SIZE"),
        ("ops", 4097, "SIZE"),
        ("ops", 18, "SIZE"),
        ("tensors", 2**32 - 1, "SIZE"),
        ("windows", 1, "SIZE"),
        ("windows", 4097, "SIZE"),
        ("windows", 2**32 - 1, "SIZE"),
    ],
)
def test_bytes_that_are_no_plan(field: str, value: int, status: str) -> None:
    plan = PlanBytes(DATA)
    plan.header[field] = value
    data = plan.sealed()
    assert check(data) == Verdict(status)
    net = Net(DATA)
    net.bytes[:] = np.frombuffer(data, np.uint8)
    assert net.open() == status
    assert net.arena_size()[0] == status


def test_the_plan_needs_an_address_and_a_place_for_the_fault() -> None:
    fault, space = ffi.new("qfw_fault *"), copied(DATA + bytes(16))
    start = ffi.from_buffer(space)
    assert lib.qfw_check(ffi.NULL, len(DATA), fault) == lib.QFW_E_NULL
    assert lib.qfw_check(start, len(DATA), ffi.NULL) == lib.QFW_E_NULL
    assert lib.qfw_check(start + 8, len(DATA), fault) == lib.QFW_E_SIZE
    assert lib.qfw_check(start, len(DATA), fault) == lib.QFW_OK


# ---- header --------------------------------------------------------------------------------------

Edit = Callable[[PlanBytes], Any]


def header(**fields: Any) -> Edit:
    def edit(plan: PlanBytes) -> None:
        for name, value in fields.items():
            plan.header[name] = value

    return edit


def section(name: str, first: int, count: int) -> Edit:
    def edit(plan: PlanBytes) -> None:
        i = pb.SECTIONS.index(name)
        plan.header["first"][0, i] = int(plan.header["first"][0, i]) + first
        plan.header["count"][0, i] = int(plan.header["count"][0, i]) + count

    return edit


ENDS = "input, labels, output, loss"
SPACES = "arena_bytes, const_bytes"
HEADERS: list[tuple[Edit, str]] = [
    *((section(name, 1, 0), "sections") for name in pb.SECTIONS),
    *((section(name, 0, 1), "sections") for name in pb.SECTIONS),
    (header(count=[[2**32 - 1] * 5]), "sections"),
    (header(first=[[0] * 5], count=[[0, 0, 0, 19, 0]]), "sections"),  # nothing to infer with
    (header(first=[[0, 0, 0, 0, 19]], count=[[0, 0, 0, 19, 0]]), "sections"),
    (header(batch=0), "batch"),
    (header(batch=2**24 + 1), "batch"),
    *((header(lr=np.uint32(bits).view(np.float32)), "lr") for bits in (NAN, INF, 1, 0x007FFFFF)),
    (header(lr=-1.0), "lr"),
    (header(lr=-0.0), "lr"),
    (header(input=NO_TENSOR), ENDS),
    (header(output=NO_TENSOR), ENDS),
    (header(labels=1000), ENDS),
    (header(loss=65534), ENDS),
    (header(reserved=[[0] * 6 + [1]]), "reserved"),
    (header(micro_batches=2**24 + 1), "micro_batches"),
    (header(micro_batches=2**22 + 1), "micro_batches"),  # times a batch of 4
    (header(micro_batches=2**32 - 1), "micro_batches"),
    (header(arena_bytes=1064), SPACES),
    (header(arena_bytes=112), SPACES),
    (header(arena_bytes=2**31), SPACES),
    (header(const_bytes=8), SPACES),
    (header(const_bytes=2**31), SPACES),
]


@pytest.mark.parametrize(("edit", "field"), HEADERS)
def test_headers(edit: Edit, field: str) -> None:
    plan = PlanBytes(DATA)
    edit(plan)
    assert check(plan.sealed()) == Verdict("PLAN", field=field)


# ---- tensors -------------------------------------------------------------------------------------

NAMES = {t.name: i for i, t in enumerate(gold_plans()["int8"].program.tensors)}
WEIGHT, GRAD, MOMENTUM = NAMES["0.weight"], NAMES["0.weight:grad"], NAMES["0.weight:momentum"]
INPUT, LABELS, OUTPUT, LOSS = (NAMES[name] for name in ("input", "labels", "output", "loss"))
WIRE_0, SUMS, SEEDS = NAMES["0:wire"], NAMES["0:sums"], NAMES["0 seeds"]
ENUMS = "space, role, kind, pow2, range, rounding, rows, shared"
SIZES = "outer, axis, inner, group"
LASTS = "overlaps a tensor that lasts"
ARENA_END = int(PlanBytes(DATA).header["arena_bytes"][0])
FLOAT = {"kind": FLOAT32, "bits": 32, "container": 32}

PICK_BOXES = ({"bits": 0, "container": 0}, {"bits": 17, "container": 0}, {"bits": 8})

TENSORS: list[tuple[int, dict[str, Any], str]] = [
    *((WEIGHT, {name: 255}, ENUMS) for name in ENUMS.split(", ")),
    (WIRE_0, {"space": 3}, ENUMS),
    (WIRE_0, {"role": 6}, ENUMS),
    (WIRE_0, {"kind": 6}, ENUMS),
    *((WIRE_0, {"kind": PICK, **box}, "bits, container") for box in PICK_BOXES),
    (WIRE_0, {"kind": PICK, "container": 0, "rounding": 1}, "pow2, range, rounding"),
    (WEIGHT, {"kind": PICK, "container": 0, "rounding": 0}, "role"),
    (WIRE_0, {"range": 3}, ENUMS),
    (WEIGHT, {"range": 2}, "range"),
    (WIRE_0, {"range": 2, "limit": 1.0}, "limit"),
    (WIRE_0, {"rounding": 3}, ENUMS),
    (WIRE_0, {"rows": 3}, ENUMS),
    (WIRE_0, {"pow2": 2}, ENUMS),
    (WEIGHT, {"reserved": [0, 1]}, "reserved"),
    (WEIGHT, {"bits": 1}, "bits, container"),
    (WEIGHT, {"bits": 9}, "bits, container"),
    (WEIGHT, {"bits": 17, "container": 32}, "bits, container"),
    (WEIGHT, {"bits": 32}, "bits, container"),
    (WEIGHT, {"container": 24}, "bits, container"),
    (WEIGHT, {"kind": ASYM, "bits": 32, "container": 32}, "bits, container"),
    (INPUT, {"bits": 16}, "bits, container"),
    (LABELS, {"bits": 8, "container": 8}, "bits, container"),
    (SEEDS, {"container": 0}, "bits, container"),
    *((LOSS, {name: 1}, "pow2, range, rounding") for name in ("pow2", "range", "rounding")),
    *((SUMS, {name: 1}, "pow2, range, rounding") for name in ("pow2", "range", "rounding")),
    (LABELS, {"rounding": 2}, "pow2, range, rounding"),
    (SEEDS, {"pow2": 1}, "pow2, range, rounding"),
    (WIRE_0, {"range": 1, "limit": 0.0}, "limit"),
    (WIRE_0, {"range": 1, "limit": -1.0}, "limit"),
    (WIRE_0, {"range": 1, "limit": np.inf}, "limit"),
    (WIRE_0, {"range": 1, "limit": 1e-39}, "limit"),
    (WIRE_0, {"limit": 1.0}, "limit"),
    (WIRE_0, {"outer": 2}, "rows"),
    (WIRE_0, {"group": 1}, "rows"),
    (WIRE_0, {"shared": 1}, "rows"),
    (WEIGHT, {"rows": ROWS_OUTER}, "rows"),
    (GRAD, {"rows": ROWS_OUTER}, "rows"),
    (SUMS, {"role": STATE}, "rows"),
    (SUMS, {"role": STATE, "rows": NO_ROWS}, "role"),
    (SEEDS, {"role": WIRE}, "role"),
    (SEEDS, {"rows": ROWS_AXIS}, "role"),
    (SEEDS, {"space": IO}, "io"),
    (MOMENTUM, {"space": CONST}, "role"),
    (WIRE_0, {"space": CONST}, "role"),
    (WEIGHT, {"space": CONST}, "offset"),
    (WIRE_0, {"kind": INDEX, "bits": 32, "container": 32}, "io"),
    *((WEIGHT, {name: 0}, SIZES) for name in ("outer", "axis", "inner", "group")),
    (WEIGHT, {"axis": 2**31, "inner": 2**31}, SIZES),
    (WEIGHT, {"outer": 2**31}, SIZES),
    (SUMS, {"outer": 2**28}, SIZES),
    (INPUT, {"codes": 3}, "io"),
    (INPUT, {"scale": 16}, "io"),
    (INPUT, {"absmax": 16}, "io"),
    (INPUT, {"role": SCRATCH}, "io"),
    (INPUT, {"rows": NO_ROWS}, "io"),
    (WIRE_0, {"space": IO, "codes": 0}, "io"),
    (WEIGHT, {"codes": 112}, "offset"),  # the core's own bytes
    (WEIGHT, {"codes": 0}, "offset"),
    (WEIGHT, {"codes": 136}, "offset"),
    (WEIGHT, {"codes": ARENA_END}, "offset"),
    (WEIGHT, {"codes": 2**32 - 16}, "offset"),
    (WEIGHT, {"scale": 0}, "offset"),
    (WEIGHT, {"scale": 128}, "offset"),  # its own codes
    (WEIGHT, {"zero_point": 16}, "offset"),
    (WEIGHT, {"absmax": 16}, "offset"),
    (SUMS, {"absmax": 0}, "offset"),
    (WIRE_0, {"kind": ASYM}, "offset"),  # no room for zero points
    (WEIGHT, {"inner": 2**20}, "offset"),
]


@pytest.mark.parametrize(("tensor", "fields", "field"), TENSORS)
def test_tensors(tensor: int, fields: dict[str, Any], field: str) -> None:
    plan = PlanBytes(DATA)
    for name, value in fields.items():
        plan.tensors[name][tensor] = value
    assert check(plan.sealed()) == Verdict("PLAN", tensor=tensor, field=field)


def test_what_lasts_is_alone() -> None:
    for a, b in ((WEIGHT, GRAD), (MOMENTUM, WEIGHT), (GRAD, WIRE_0), (WEIGHT, SEEDS)):
        plan = PlanBytes(DATA)
        plan.tensors["codes"][b] = plan.tensors["codes"][a]
        assert check(plan.sealed()) == Verdict("PLAN", tensor=max(a, b), field=LASTS)
    plan = PlanBytes(DATA)
    plan.tensors["scale"][WIRE_0] = plan.tensors["codes"][MOMENTUM]
    assert check(plan.sealed()) == Verdict("PLAN", tensor=WIRE_0, field=LASTS)


@pytest.mark.parametrize(
    ("edit", "tensor", "field"),
    [
        (header(input=LOSS), LOSS, "input, labels, output"),
        (header(input=OUTPUT), OUTPUT, "input, labels, output"),
        (header(labels=INPUT), INPUT, "input, labels, output"),
        (header(output=LABELS), LABELS, "input, labels, output"),
        (header(labels=NO_TENSOR), LABELS, "io"),
        (header(loss=INPUT), INPUT, "loss"),
        (header(loss=WIRE_0), WIRE_0, "loss"),
        (header(loss=SEEDS), SEEDS, "loss"),
    ],
)
def test_ends(edit: Edit, tensor: int, field: str) -> None:
    plan = PlanBytes(DATA)
    edit(plan)
    assert check(plan.sealed()) == Verdict("PLAN", tensor=tensor, field=field)


def test_a_loss_has_one_element() -> None:
    plan = case(LOSS_F32)
    plan.plan.header["loss"] = plan.tensors[3]
    assert check(plan.build()) == OK
    plan.plan.header["loss"] = plan.plan.tensor(2)
    assert check(plan.build()) == Verdict("PLAN", tensor=plan.plan.header["loss"], field="loss")


# ---- every operation with every format -----------------------------------------------------------

TAKES = "the operation does not take this format"


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_operation_takes_the_classes_of_its_places_and_runs_on_them(kernel: int) -> None:
    for place in range(pb.PLACES):
        mask = places_of(kernel)[1][place]
        for name, (cls, _) in FORMATS.items():
            if mask == 0:
                continue
            formats = together(kernel, place, name)
            plan = case(kernel, formats)
            data = plan.build()
            if mask & cls:
                assert check(data) == OK, (place, name)
                assert_runs(data)
            else:
                fault = Verdict("PLAN", plan.op, plan.tensors[min(formats)], TAKES)
                assert check(data) == fault, (place, name)


def assert_runs(data: bytes) -> None:
    """On every table, with one row and with all."""
    for table in TABLES:
        net = Net(data, table)
        with quant.float_mode():
            assert net.open() == "OK"
            net.set_gains()
            for op in net.plan.ops[
                np.isin(net.plan.ops["kernel"], (WEIGHTED_S16, WEIGHTED_F32))
            ]:  # weights that count
                table = net.plan.tensors[op["tensor"][4]]
                kind = np.float32 if table["kind"] == FLOAT32 else np.int16
                at = int(table["codes"])
                net.arena[at : at + N * np.dtype(kind).itemsize].view(kind)[:] = 1
            for rows in (1, BATCH):
                x = np.full(rows * net.row("input"), 0.5, np.float32)
                y = np.zeros(rows, np.int32)
                assert net.walk(0, len(net.plan.ops), rows, x=x, y=y) == "OK"


@pytest.mark.parametrize("kernel", KERNELS)
def test_places_that_are_empty_or_should_be(kernel: int) -> None:
    for place, mask in enumerate(places_of(kernel)[1]):
        plan = case(kernel)
        op = PlanBytes(plan.build())
        if mask == 0:
            for other in (plan.plan.input, plan.tensors[0]):
                op.ops["tensor"][plan.op, place] = other
                many = Verdict("PLAN", plan.op, -1, "an operand too many")
                assert check(op.sealed()) == many
        else:
            op.ops["tensor"][plan.op, place] = NO_TENSOR
            found = check(op.sealed())
            missing = Verdict("PLAN", plan.op, -1, "an operand is missing")
            assert (found == missing) == (mask & lib.QFW_MAY_LACK == 0)
            op.ops["tensor"][plan.op, place] = len(op.tensors)
            assert check(op.sealed()) == Verdict("PLAN", plan.op, -1, "an operand too many")


@pytest.mark.parametrize("kernel", KERNELS)
def test_flags_and_params_that_an_operation_does_not_know(kernel: int) -> None:
    page = {  # docs/format.md, section 7
        WIDEN: (0, {0, 1}),
        PRODUCT_S32: (3, {0, 1, 2, 3, 13}),
        PRODUCT_F32: (1, {0, 3, 13}),
        PRODUCT_POOL: (1 | 4, {0, 1, 2, 3, 4, 13}),
        PRODUCT_FOLD: (2, {0, 1, 2, 3, 4, 13}),
        RELU: (0, {0, 1}),
        MASK: (0, {0, 1, 2}),
        DROPOUT: (1, {0, 1, 2}),
        **dict.fromkeys((WEIGHTED_S16, WEIGHTED_F32), (0, {0, 1, 2})),
        **dict.fromkeys((SOFTMAX_S16, SOFTMAX_F32), (0, {0})),
        **dict.fromkeys((SOFTMAX_BACK_S32, SOFTMAX_BACK_F32), (0, {0})),
        GRADIENT_S32: (4 | 32, {9, 10, 11, 13}),
        GRADIENT_F32: (32, {11, 13}),
        **dict.fromkeys((JOIN_S32, JOIN_F32), (0, {0})),
        **dict.fromkeys((TRANSPOSE, PART), (0, {0, 1})),
        UPDATE: (1 | 24, {*range(9), 12}),
        FUSED: (1 | 4 | 24 | 32, set(range(14))),
        CLIP_FACTOR: (0, {0}),
        ADAMW: (24, {*range(8), 12}),
        FUSED_ADAMW: (4 | 24 | 32, {*range(8), *range(9, 14)}),
        NORM_S32: (1, {0, 1, 3}),
        NORM_F32: (1, {1, 3}),
        NORM_BACK_S32: (0, {0, 1, 2, 3}),
        NORM_BACK_F32: (0, {1, 3}),
        COLUMNS_S32: (0, {3}),
        **POOL_FIELDS,
        **KNOWN,
    }
    flags, params = page.get(kernel, (0, set()))
    plan = case(kernel)
    unknown = Verdict("PLAN", plan.op, -1, "flags, param")
    for bit in range(16):
        changed = PlanBytes(plan.build())
        changed.ops["flags"][plan.op] ^= 1 << bit
        assert (check(changed.sealed()) == unknown) == (flags >> bit & 1 == 0), bit
    for i in range(pb.PARAMS):
        changed = PlanBytes(plan.build())
        changed.ops["param"][plan.op, i] ^= 1
        assert (check(changed.sealed()) == unknown) == (i not in params), i


@pytest.mark.parametrize("kernel", [0, KERNELS[-1] + 1, 255, 65535])
def test_operations_that_there_are_not(kernel: int) -> None:
    plan = PlanBytes(DATA)
    plan.ops["kernel"][3] = kernel
    assert check(plan.sealed()) == Verdict("PLAN", 3, -1, "kernel")


# ---- rules ---------------------------------------------------------------------------------------


def changed(kernel: int, place: int, change: Change) -> tuple[Verdict, int, list[int]]:
    """What is said of a plan with other fields at a place (-1: params or flags, -2: the window)."""
    plan = case(kernel, bare=True)
    edited = PlanBytes(plan.build())
    for name, value in change.items():
        if name == "gone":
            edited.ops["tensor"][plan.op, place] = NO_TENSOR
        elif name == "flags":
            edited.ops["flags"][plan.op] = value
        elif place == WINDOW_FIELDS:
            edited.windows[name][0] = value
        elif place < 0:
            edited.ops["param"][plan.op, int(name[1:])] = value
        else:
            edited.tensors[name][plan.tensors[place]] = value
    return check(edited.sealed()), plan.op, plan.tensors


@pytest.mark.parametrize(
    ("kernel", "place", "change", "rule"), [*RULES, *NORM_RULES, *WINDOW_RULES]
)
def test_rules(kernel: int, place: int, change: Change, rule: str) -> None:
    assert changed(kernel, place, {})[0].field in ("", UNWRITTEN)
    found, op, tensors = changed(kernel, place, change)
    assert found == Verdict("PLAN", op, tensors[0], rule)


def test_relu_is_for_what_has_rows() -> None:
    """A parameter's codes are whatever the caller wrote."""
    plan = Builder(BATCH)
    a, b = (plan.sym(K, 4, role=role) for role in (SCRATCH, PARAMETER))
    plan.op(RELU, a, b)
    assert check(plan.build()) == Verdict("PLAN", 0, a, "rows")


def test_scales_that_are_folded_in_are_as_many_for_fewer_rows() -> None:
    """Just as many as columns for the whole batch, but not for one row less; and so by rows."""
    for mode, rows in ((1, NO_ROWS), (2, NO_ROWS), (1, ROWS_OUTER), (2, ROWS_OUTER)):
        for src_rows in (NO_ROWS, ROWS_AXIS):
            plan = Builder(BATCH)
            n = BATCH * BATCH
            src = plan.sym(n if src_rows == NO_ROWS else BATCH, rows=src_rows)
            dst = plan.sym(n if src_rows == NO_ROWS else BATCH, 12, 16, rows=src_rows)
            outer = BATCH if rows == NO_ROWS else 1
            by = plan.sym(3, outer=outer, rows=rows)
            plan.op(WIDEN, dst, src, by, p0=mode, p1=BATCH)
            right = mode == 1 and rows == NO_ROWS
            right |= mode == 2 and rows == ROWS_OUTER and src_rows == ROWS_AXIS
            rule = "a scale a column" if mode == 1 else "a scale a row"
            assert check(plan.build()).field == (UNWRITTEN if right else rule)
    plan = Builder(BATCH)
    dst, src = plan.sym(K, 12, 16), plan.sym(K, role=PARAMETER)
    by = plan.sym(N, outer=2, role=PARAMETER)
    plan.op(WIDEN, dst, src, by, p0=1)
    assert check(plan.build()) == Verdict("PLAN", 0, dst, "a scale a column")


def test_rows_that_are_normalised_have_an_end() -> None:
    for n, fault in ((65536, UNWRITTEN), (65537, TOO_LONG)):
        plan = Builder(1)
        y, x = (plan.tensor(n, rows=ROWS_AXIS) for _ in range(2))
        plan.op(NORM_F32, y, x)
        assert check(plan.build()).field == fault


def test_fractions_of_normalised_rows_are_exact_up_to_the_proof() -> None:
    """Up to the last bit, without gamma; up to the last k."""
    for n, root in ((1, 0), (2, 1), (3, 2), (10, 3), (11, 4), (65536, 256)):
        for bits in range(25):
            plan = Builder(1)
            y, x = plan.sym(n, 32, 32, rows=ROWS_AXIS), plan.sym(n, rows=ROWS_AXIS)
            plan.op(NORM_S32, y, x, p0=bits)
            fits = root * 2**bits + 1 <= 2**29
            assert check(plan.build()).field == (UNWRITTEN if fits else HEADROOM)
    for n, root in ((1, 1), (2, 2), (4, 2), (5, 3), (65536, 256)):
        for k in range(32):
            plan = Builder(1)
            y = plan.sym(n, 32, 32, rows=ROWS_OUTER)
            g, x = plan.sym(n, 12, 16, rows=ROWS_AXIS), plan.sym(n, rows=ROWS_AXIS)
            plan.op(NORM_BACK_S32, y, g, x, p0=6, p2=k)
            fits = 128 * n * root * 2047 <= 2 ** (30 + k)
            assert check(plan.build()).field == (UNWRITTEN if fits else HEADROOM)


def test_sums_over_micro_batches_need_room_for_their_scales() -> None:
    """A float for each scale of a tile, where the gradient's range is found anew."""
    for fmt, room in (("s8", 4), ("asym packed", 4), ("f32", 0)):
        for bytes_ in (room, room - 1):
            plan = case(GRADIENT_S32, {0: fmt})
            plan.plan.tensors[plan.tensors[4]]["axis"] = max(bytes_, 1)
            edited = PlanBytes(plan.build())
            if bytes_ < 1:
                edited.ops["tensor"][plan.op, 4] = NO_TENSOR
            found = check(edited.sealed())
            fine = bytes_ >= room or room == 0
            assert found == (OK if fine else Verdict("PLAN", plan.op, plan.tensors[0], "scratch"))
            edited.header["micro_batches"] = 1
            assert check(edited.sealed()) == OK
            edited.header["micro_batches"] = 2
            edited.tensors["range"][plan.tensors[0]] = int(room != 0)
            edited.tensors["limit"][plan.tensors[0]] = float(room != 0)
            assert check(edited.sealed()) == OK


@pytest.mark.parametrize("kernel", [UPDATE, FUSED, ADAMW, FUSED_ADAMW])
def test_parameters_do_not_move_between_micro_batches(kernel: int) -> None:
    plan = case(kernel)
    assert check(plan.build()) == OK
    plan.plan.header["micro_batches"] = 2
    assert check(plan.build()) == Verdict("PLAN", plan.op, plan.tensors[0], "micro_batches")


def test_a_sum_of_errors_is_one_chunk() -> None:
    terms = 3
    for params in ({}, {"p9": terms - 1}, {"p10": 1}, {"flags": 4}, {"p9": 2**31 // 127 + 1}):
        plan = Builder(terms)
        e, grad = plan.sym(1, rows=ROWS_AXIS), plan.tensor(1)
        tile = plan.sym(1, 32, 32)
        plan.op(GRADIENT_S32, grad, e, NO_TENSOR, tile, **{"p9": terms, "p11": 1, **params})
        fault = UNWRITTEN if not params else HEADROOM
        assert check(plan.build()).field == fault, params


@pytest.mark.parametrize("bias", [False, True])
def test_headroom_is_exact(bias: bool) -> None:
    """Up to the last term, in a chunk and in all."""
    product, limit = 127 * 32767, 2**30 - 1 if bias else 2**31 - 1
    most, longest = limit // product, (2**31 - 1) // product
    for terms in (most, most + 1, 2 * most, 2 * most + 1):
        for chunk in (1, most, most + 1, longest, longest + 1, terms):
            for shift in (0, 1, 2, 31):
                plan = Builder(1)
                a = plan.sym(terms, rows=ROWS_AXIS)
                b = plan.sym(terms, 16, 16, role=PARAMETER)
                layout = {"rows": ROWS_OUTER if bias else ROWS_AXIS, "shared": int(bias)}
                acc = plan.sym(1, 32, 32, **layout)
                more = [plan.tensor(1, role=PARAMETER), NO_TENSOR, plan.scratch(5)] if bias else []
                plan.op(PRODUCT_S32, acc, a, b, *more, p1=chunk, p2=shift)
                fits = chunk <= longest and -(-terms * product // 2**shift) <= limit
                assert check(plan.build()).field == (UNWRITTEN if fits else HEADROOM)


# ---- memory --------------------------------------------------------------------------------------

APART, UNWRITTEN = "overlaps another operand", "is read before it is written"


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_written_is_apart_from_all_else(kernel: int) -> None:
    """Tensor by tensor, and part by part."""
    plan = case(kernel, bare=True)
    masks = places_of(kernel)[1]
    data = plan.build()
    for w, mask in enumerate(masks):
        for k, t in enumerate(plan.tensors):
            if (
                k == w
                or not mask & lib.QFW_IS_WRITTEN
                or NO_TENSOR in (t, *plan.tensors[w : w + 1])
            ):
                continue
            if w >= len(plan.tensors):
                continue
            edited = PlanBytes(data)
            first, other = edited.tensors[plan.tensors[w]], edited.tensors[t]
            if IO in (first["space"], other["space"]):
                continue
            # Codes may lie where the sums do that they are made of.
            over = (kernel, w, k) == (CONVERT, 0, 1)
            for part in list(parts(other, BATCH))[over:]:
                edited = PlanBytes(data)
                edited.tensors["codes"][plan.tensors[w]] = part.begin
                found = check(edited.sealed())
                lasting = LASTS in found.field
                assert lasting or (found.op, found.field) == (plan.op, APART), (w, k)


def test_relu_and_dropout_work_in_place() -> None:
    for kernel in (RELU, DROPOUT, CONVERT):
        plan = Builder(BATCH)
        t = plan.tensor(K, rows=ROWS_AXIS)
        plan.op(PRODUCT_F32, t, plan.input, plan.tensor(K, role=PARAMETER))
        plan.op(kernel, t, t, **PARAMS.get(kernel, {}))
        assert check(plan.build()) == (OK if kernel != CONVERT else Verdict("PLAN", 1, t, APART))


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        (0, {"space": CONST, "role": PARAMETER}),  # written, and constant
        (0, {"space": IO, "codes": 0}),  # the input
        (1, {"space": IO, "codes": 2}),  # the output, read
    ],
)
def test_spaces(place: int, fields: dict[str, int]) -> None:
    plan = Builder(BATCH)
    constant = plan.tensor(1, space=CONST, role=PARAMETER)
    other = plan.tensor(1, role=PARAMETER)
    number = (
        constant if fields["space"] == CONST else (plan.input, -1, plan.output)[fields["codes"]]
    )
    floats = plan.tensor(1, rows=ROWS_AXIS)
    mate = other if number == constant else floats
    places = [mate, mate]
    places[place] = number
    plan.op(CONVERT, *places)
    assert check(plan.build()) == Verdict("PLAN", 0, number, "space")


def chain(*sections: str, clobber: str | None = None) -> tuple[bytes, int]:
    """A tensor written in the first section and read in the last; perhaps overwritten between."""
    plan = Builder(BATCH)
    made, to = plan.tensor(1, rows=ROWS_AXIS), plan.tensor(1, rows=ROWS_AXIS)
    plan.op(CONVERT, plan.output, plan.input)  # so that there is an inference
    plan.op(CONVERT, made, plan.input, section=sections[0])
    if clobber is not None:
        other = plan.tensor(1, rows=ROWS_AXIS)
        plan.tensors[other]["codes"] = plan.tensors[made]["codes"]
        plan.op(CONVERT, other, plan.input, section=clobber)
    plan.op(CONVERT, to, made, section=sections[1])
    return plan.build(), made


@pytest.mark.parametrize("reader", pb.SECTIONS)
@pytest.mark.parametrize("writer", pb.SECTIONS)
def test_what_is_read_was_written_in_the_same_chain(writer: str, reader: str) -> None:
    data, made = chain(writer, reader)
    order = {name: i for i, name in enumerate(pb.SECTIONS)}
    step = ("forward", "output", "backward")
    fine = writer == reader or (writer in step and reader in step and order[writer] < order[reader])
    if (writer, reader) == ("output", "backward"):
        fine = False  # a step leaves output out
    found = check(data)
    assert (found.tensor, found.field) == ((-1, "") if fine else (made, UNWRITTEN))


@pytest.mark.parametrize("clobber", ["forward", "output", "backward"])
def test_what_is_read_was_not_overwritten(clobber: str) -> None:
    data, made = chain("forward", "backward", clobber=clobber)
    found = check(data)
    assert (found.tensor, found.field) == (made, UNWRITTEN)
    assert check(chain("forward", "backward", clobber="update")[0]) == OK


def test_scratch_is_no_result() -> None:
    """A tile of accumulators holds what came last, and no absmax."""
    plan = case(GRADIENT_S32)
    to = plan.plan.tensor(K * N)
    plan.plan.op(CONVERT, to, plan.tensors[3])
    assert check(plan.build()) == Verdict("PLAN", plan.op + 1, plan.tensors[3], UNWRITTEN)


def test_nothing_is_read_before_anything_is_written() -> None:
    for kernel in KERNELS:
        plan = case(kernel, bare=True)
        wires = [p for p in plan.tensors if plan.plan.labels < p != NO_TENSOR]
        wires = [p for p in wires if plan.plan.tensors[p]["role"] >= pb.WIRE]
        found = check(plan.build())
        assert found == OK or (found.tensor in wires and found.field == UNWRITTEN)
        ready = (UPDATE, SQUARE_SUM, CLIP_FACTOR, ADAMW, COMMIT, *READY)
        assert (found == OK) == (kernel in ready)


# ---- all of them ---------------------------------------------------------------------------------


def test_every_refusal_was_provoked() -> None:
    """Every text in the sources of the check and of the rules stands in a test above."""
    sources = Path(__file__).resolve().parents[1].joinpath("csrc", "engine").glob("*.c")
    texts = set()
    for file in sources:
        code = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)
        code = re.sub(r"^#(?:.*\\\n)*.*$", "", code, flags=re.M)
        code = re.sub(r"__asm__.*?;", "", code, flags=re.S)  # instructions
        texts |= set(re.findall(r'"([a-z][^"]*)"', code))
    tables = [field for _, field in HEADERS] + [field for _, _, field in TENSORS]
    tables += [rule for *_, rule in [*RULES, *NORM_RULES, *WINDOW_RULES]]
    others = {APART, UNWRITTEN, TAKES, LASTS, "an operand is missing", "an operand too many"}
    others |= {"flags, param", "kernel", "space", "input, labels, output", "loss"}
    others |= {"a scale a column", "a scale a row", TOO_LONG, OTHER_SUMS, "windows", "window"}
    assert texts == set(tables) | others


# ---- in Python -----------------------------------------------------------------------------------


def test_a_fault_is_named() -> None:
    plan = gold_plans()["int8"]
    changed = PlanBytes(plan.to_bytes())
    product = next(i for i, op in enumerate(plan.ops) if op.kernel == "product_s32")
    changed.ops["param"][product, 1] = 0
    words = rf"plan: .*headroom, operation {product} \(product_s32\), tensor \d+ \(0:sums\)"
    with pytest.raises(q.QfwError, match=words):
        check_plan(np.frombuffer(changed.sealed(), np.uint8), plan)
    with pytest.raises(q.QfwError, match=rf"headroom, operation {product}, tensor \d+$"):
        check_plan(np.frombuffer(changed.sealed(), np.uint8))
    changed = PlanBytes(plan.to_bytes())
    changed.tensors["codes"][WEIGHT] = 0
    with pytest.raises(q.QfwError, match=rf"offset, tensor {WEIGHT} \(0.weight\)$"):
        check_plan(np.frombuffer(changed.sealed(), np.uint8), plan)
    with pytest.raises(q.QfwError, match=r"plan: .*the CRC differs$"):
        check_plan(np.frombuffer(plan.to_bytes()[:-1] + b"\7", np.uint8), plan)
    check_plan(np.frombuffer(plan.to_bytes(), np.uint8), plan)
