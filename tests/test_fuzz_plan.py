"""Hostile plans: bytes changed at random and sealed again.

qfw_check says what it says; a plan that it accepts is run on valid parameters, on any codes under
valid scales, and on garbage. A status must come back, no operation may write outside
the tensors that it is said to write, and the sanitized runs must stay silent: tools/sanitize.sh,
with `-m slow` for longer ones.
"""

from __future__ import annotations

import struct
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_bytes import (
    ARENA,
    ASYM,
    CONST,
    FLOAT32,
    HEADER,
    NET_BYTES,
    NO_TENSOR,
    OP_BYTES,
    OPERATION,
    PLACES,
    STATE,
    TENSOR,
    WINDOW,
    WINDOW_BYTES,
    PlanBytes,
    parts,
    sizes,
)
from plan_cases import KERNELS
from plan_net import TABLES, Array, Net, check
from plan_random_windows import WindowMaker
from plangold import many_plans

from pyqfw import quant
from pyqfw._core import ffi, lib
from pyqfw.counters import RECORD

# ---- plans ---------------------------------------------------------------------------------------


@cache
def bases() -> list[bytes]:
    return [plan.to_bytes() for plan in many_plans().values()]


# ---- edits: an edit is five numbers, whatever they are -------------------------------------------

Edit = tuple[int, int, int, int, int]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100]
NUMBERS += [127, 128, 129, 144, 255, 256, 511, 512, 4095, 4096, 32767, 32768, 65534, 65535, 65536]
NUMBERS += [2**24 - 1, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 16, 2**32 - 1]
NUMBERS += [0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x33800000]
FORMAT = ("kind", "bits", "container", "pow2", "range", "rounding", "limit")
LAYOUT = ("rows", "shared", "outer", "axis", "inner", "group")
OFFSETS = ("codes", "scale", "zero_point", "absmax")


def _slot(records: Array, fields: list[tuple[str, int, str]], a: int, b: int) -> tuple[Array, int]:
    """One number in a table of records, as words to index."""
    name = fields[b % len(fields)][0]
    flat = records[name].view(records[name].dtype.str.replace("f", "u")).reshape(len(records), -1)
    return flat[a % len(records)], b // len(fields) % flat.shape[1]


def set_field(records: Array, fields: list[tuple[str, int, str]], edit: Edit) -> None:
    """A number of the list, one that a neighbour has, or one near the one there is."""
    _, a, b, c, d = edit
    row, k = _slot(records, fields, a, b)
    other, _ = _slot(records, fields, d, b)
    near = int(row[k])
    value = [
        NUMBERS[c % len(NUMBERS)],
        int(other[k]),
        near + (-16, -2, -1, 1, 2, 16)[c % 6],
        near * 2,
        near // 2,
        c,
    ][d % 6]
    row[k] = value % 2 ** (8 * row.dtype.itemsize)


def set_place(plan: PlanBytes, edit: Edit) -> None:
    """Another tensor at a place of an operation, or two places swapped."""
    _, a, b, c, d = edit
    places = plan.ops["tensor"][a % len(plan.ops)]
    if d % 3 == 0:
        places[[b % PLACES, c % PLACES]] = places[[c % PLACES, b % PLACES]]
    elif d % 7 == 1:
        places[b % PLACES] = NO_TENSOR
    else:
        places[b % PLACES] = c % len(plan.tensors)


def mix_tensors(plan: PlanBytes, edit: Edit) -> None:
    """A tensor takes the format, the layout or the place of another."""
    _, a, b, c, _ = edit
    for name in (FORMAT, LAYOUT, OFFSETS, ("role",), (*FORMAT, *LAYOUT))[c % 5]:
        plan.tensors[name][a % len(plan.tensors)] = plan.tensors[name][b % len(plan.tensors)]


def mix_ops(plan: PlanBytes, edit: Edit) -> None:
    """Two operations change places, or one is lost to another, or takes parts of it."""
    _, a, b, c, _ = edit
    i, k = a % len(plan.ops), b % len(plan.ops)
    if c % 4 == 0:
        plan.ops[[i, k]] = plan.ops[[k, i]]
    elif c % 4 == 1:
        plan.ops[i] = plan.ops[k]
    else:
        name = OPERATION[c % len(OPERATION)][0]
        plan.ops[name][i] = plan.ops[name][k]


def set_sections(plan: PlanBytes, edit: Edit) -> PlanBytes:
    """An operation more or less, a section's end elsewhere, or an inference of its own."""
    _, a, b, c, d = edit
    data, ops = bytes(plan.data), len(plan.ops)
    end = len(data) - len(plan.windows) * WINDOW_BYTES
    begin, windows = end - ops * OP_BYTES, data[end:]
    records = [data[begin + i * OP_BYTES : begin + (i + 1) * OP_BYTES] for i in range(ops)]
    count = plan.header["count"][0, :4].astype(int)
    own = plan.header["first"][0, 4] != 0
    at, section = a % ops, c % 4
    if d % 4 == 0 and ops > 1:
        del records[at]
        section = int(np.searchsorted(np.cumsum(count), at, side="right"))
        count[min(section, 3)] -= 1
    elif d % 4 == 1:
        section = min(int(np.searchsorted(np.cumsum(count), at, side="right")), 3)
        records.insert(at, records[b % ops])
        count[section] += 1
    elif d % 4 == 2 and count[section] > 0:
        count[section] -= 1
        count[(section + 1) % 4] += 1
    elif not own:
        records += records[: count[0] + count[1]]
        own = True
    if min(count) < 0 or sum(count) > len(records):
        return plan
    head = bytearray(data[:begin])
    struct.pack_into("<I", head, 8, begin + len(records) * OP_BYTES + len(windows))
    struct.pack_into("<II", head, 32, len(plan.tensors), len(records))
    struct.pack_into("<I", head, 96, len(plan.windows))
    changed = PlanBytes(bytes(head) + b"".join(records) + windows)
    changed.header["count"][0, :4] = count
    changed.header["first"][0, :4] = np.cumsum([0, *count[:3]])
    after = sum(count)
    infer = (after, len(records) - after) if own else (0, count[0] + count[1])
    changed.header["first"][0, 4], changed.header["count"][0, 4] = infer
    return changed


def edited(plan: PlanBytes, edit: Edit) -> PlanBytes:
    kind, a, b, _, _ = edit
    choice = kind % 14
    if choice == 0:
        plan.data[a % len(plan.data)] ^= 1 << b % 8
    elif choice == 1:
        set_field(plan.header, HEADER[5:], edit)
    elif choice in (2, 3, 4):
        set_field(plan.tensors, TENSOR, edit)
    elif choice in (5, 6):
        set_field(plan.ops, OPERATION, edit)
    elif choice == 7:
        set_place(plan, edit)
    elif choice in (8, 9):
        mix_tensors(plan, edit)
    elif choice == 10:
        mix_ops(plan, edit)
    elif choice in (11, 12) and len(plan.windows):
        set_field(plan.windows, WINDOW, edit)
    else:
        return set_sections(plan, edit)
    return plan


def mutated(base: int, edits: list[Edit]) -> bytes:
    plan = PlanBytes(bases()[base % len(bases())])
    for edit in edits:
        plan = edited(plan, edit)
    return plan.sealed()


# ---- data ----------------------------------------------------------------------------------------

VALID, ANY_CODES, GARBAGE = range(3)


def valid_codes(t: Any, n: int, rng: np.random.Generator) -> Array:
    """Codes that the format has, as bytes; two floats of the state may be a gain."""
    if t["kind"] == FLOAT32:
        x = rng.normal(size=n).astype(np.float32)
        return (np.abs(x) if t["role"] == STATE and n == 2 else x).view(np.uint8)
    bits, asym = int(t["bits"]), t["kind"] == ASYM
    top = 2**bits - 1 if asym else 2 ** (bits - 1) - 1
    codes = rng.integers(0 if asym else -top, top + 1, n)
    if t["container"]:
        kept = codes.astype(f"uint{t['container']}" if asym else f"int{t['container']}")
        return kept.view(np.uint8)
    return quant.pack(codes.astype(np.uint16 if asym else np.int16), bits)


def any_codes(t: Any, size: int, rng: np.random.Generator) -> Array:
    """Bytes, often those of the ends of a range; of floats seldom any."""
    if t["kind"] == FLOAT32 and rng.integers(4):
        return valid_codes(t, size // 4, rng)
    return rng.choice([0x7F, 0x80, 0xFF, 0] if rng.integers(2) else range(256), size)


def scale_bits(t: Any, n: int, low: int, high: int, rng: np.random.Generator) -> Array:
    """Valid scales with exponents low .. high - 1, now and then 1."""
    bits = rng.integers(low, high, n) << 23
    if not t["pow2"]:
        bits |= rng.integers(0, 2**23, n)
    bits[rng.integers(8, size=n) == 0] = 0x3F800000
    return bits.astype(np.uint32)


def fill(net: Net, mode: int, rng: np.random.Generator) -> None:
    """What lasts, as a user could have written it; in the other modes the rest is garbage too."""
    spaces = {ARENA: net.arena, CONST: net.constants}
    if mode != VALID:
        net.arena[NET_BYTES:] = rng.integers(0, 256, net.arena.size - NET_BYTES)
    if mode == GARBAGE:
        net.constants[:] = rng.integers(0, 256, net.constants.size)
        return
    for t in net.plan.tensors:
        if t["role"] > STATE:
            continue
        space = spaces[int(t["space"])]
        n, scales = sizes(t, 1)
        codes, *rest = parts(t, 1)
        size = codes.end - codes.begin
        space[codes.begin : codes.end] = (
            valid_codes(t, n, rng) if mode == VALID else any_codes(t, size, rng)
        )
        if scales:
            exponents = (110, 128) if mode == VALID else (1, 255)
            space[rest[0].begin : rest[0].end].view(np.uint32)[:] = scale_bits(
                t, scales, *exponents, rng
            )
        if t["kind"] == ASYM:
            zero = rng.integers(0, 2 ** int(t["bits"]), scales)
            space[rest[1].begin : rest[1].end].view(np.uint16)[:] = zero


def some_rows(net: Net, rows: int, rng: np.random.Generator) -> dict[str, Array]:
    """Buffers of just the size: data, labels (few of them wrong), room for the output."""
    size = rng.choice([1.0, 1.0, 1e-30, 1e30])
    x = (size * rng.normal(size=rows * net.row("input"))).astype(np.float32)
    if rng.integers(8) == 0:
        x[rng.integers(x.size)] = rng.choice([np.nan, np.inf])
    classes = max(net.row("output"), 1)
    y = rng.integers(0, classes + (rng.integers(8) == 0), rows).astype(np.int32)
    if net.has_targets:
        y = (size * rng.normal(size=rows * net.row("labels"))).astype(np.float32)
    return {"x": x, "y": y, "out": np.zeros(rows * net.row("output"), np.float32)}


# ---- runs ----------------------------------------------------------------------------------------


def may_write(net: Net, op: int, rows: int) -> Array:
    """The bytes of the arena that an operation is said to write, and the core's own."""
    places = ffi.new("uint16_t[8]")
    record = net.plan.ops[op]
    lib.qfw_op_name(int(record["kernel"]), places)
    may = np.zeros(net.arena.size, bool)
    may[:NET_BYTES] = True
    for place, number in zip(places, record["tensor"], strict=True):
        if number != NO_TENSOR and place & lib.QFW_IS_WRITTEN:
            t = net.plan.tensors[number]
            for part in parts(t, rows) if t["space"] == ARENA else ():
                may[part.begin : part.end] = True
    return may


def walk_each(net: Net, rows: int, io: dict[str, Array]) -> str:
    """Operation by operation, as far as it goes; each writes what is its own to write."""
    kept = {name: io[name].tobytes() for name in ("x", "y")}
    constants, status = net.constants.tobytes(), ""
    for i in range(len(net.plan.ops)):
        before = net.arena.copy()
        status = net.walk(i, 1, rows, **io)
        changed = before != net.arena
        wrong = np.flatnonzero(changed & ~may_write(net, i, rows))
        assert wrong.size == 0, f"operation {i} wrote bytes {wrong[:8]}"
        if status != "OK":
            break
    assert kept == {name: io[name].tobytes() for name in ("x", "y")}
    assert constants == net.constants.tobytes()
    return status


def check_counts(net: Net, records: Array) -> None:
    """Only tensors in codes count, and a part is no more than its whole."""
    assert np.all(records["saturated"] <= records["written"])
    assert np.all(records["dead"] <= records["unmoved"])
    assert np.all(records["unmoved"] <= records["asked"])
    assert np.all(records["asked"] <= records["written"])
    assert np.all(records["least"] <= records["most"])
    assert not records[net.plan.tensors["kind"] == FLOAT32]["written"].any()


def is_large(plan: PlanBytes) -> bool:
    """Whether its memory or its buffers would take the time of many others."""
    h = plan.header[0]
    ends = [plan.tensors[h[name]] for name in ("input", "output")]
    elements = max(sizes(t, int(h["batch"]))[0] for t in ends)
    return bool(max(h["arena_bytes"], h["const_bytes"]) > 2**20 or elements > 2**18)


def run(data: bytes, mode: int, seed: int, ends: Counter[str] | None = None) -> str:
    """The verdict; what was accepted is run in every way. `ends` counts how walks ended."""
    verdict = check(data)
    if verdict.status != "OK":
        assert verdict.field or verdict.status != "PLAN"
        return verdict.status
    if is_large(PlanBytes(data)):
        return "large"
    rng = np.random.default_rng(seed)
    net = Net(data, TABLES[seed % len(TABLES)])
    with quant.float_mode():
        assert net.open() == "OK"
        fill(net, mode, rng)
        records = np.zeros(len(net.plan.tensors), RECORD)  # the sanitizers watch its end
        assert net.attach(records if seed % 2 else None) == "OK"
        for rows in (net.batch, 1, int(rng.integers(1, net.batch + 1))):
            step = int(rng.choice([0, 1, 255, 256, 2**32 - 1]))
            lr = float(rng.choice([0.0, 0.1, 1e-6, 1e30]))
            micro = int(rng.integers(min(net.micro_batches, 4)))
            assert net.set_progress(step, int(rng.integers(2)), lr, micro) == "OK"
            io = some_rows(net, rows, rng)
            status = walk_each(net, rows, io)
            if ends is not None:
                ends[status] += 1
            net.step(io["x"], io["y"], rows)
            net.section("forward", rows, x=io["x"])
            net.section("output", rows, out=io["out"])
            net.section("backward", rows, y=io["y"])
            net.section("update", rows)
            net.infer(io["x"], rows, io["out"])
            if mode == GARBAGE or rng.integers(4) == 0:
                fill(net, int(rng.integers(3)), rng)
        check_counts(net, records)
    return "OK"


# ---- plans that were changed ---------------------------------------------------------------------

numbers = st.integers(0, 2**16)
edits = st.lists(st.tuples(numbers, numbers, numbers, numbers, numbers), min_size=1, max_size=3)
mutation = {"base": st.integers(0, 63), "edits": edits, "mode": st.integers(0, 2), "seed": numbers}


@pytest.mark.parametrize("examples", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_any_plan_gets_a_status(examples: int) -> None:
    verdicts: Counter[str] = Counter()

    @given(**mutation)
    @settings(derandomize=True, deadline=None, database=None, max_examples=examples)
    def one(base: int, edits: list[Edit], mode: int, seed: int) -> None:
        verdicts[run(mutated(base, edits), mode, seed)] += 1

    one()
    assert verdicts["OK"] > examples // 20  # it is not all refused
    assert verdicts["PLAN"] > examples // 4


# ---- plans that were made up ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("examples", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_any_operation_gets_a_status(kernel: int, examples: int) -> None:
    ends: Counter[str] = Counter()

    @given(made=st.integers(0, 2**32), mode=st.integers(0, 2), seed=numbers)
    @settings(derandomize=True, deadline=None, database=None, max_examples=examples)
    def one(made: int, mode: int, seed: int) -> None:
        run(WindowMaker(made).make(kernel), mode, seed, ends)

    one()
    assert ends["OK"] > examples // 3  # it ran to the end that often
