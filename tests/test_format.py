"""The plan's bytes: docs/format.md, the core's structs, the compiler and the gold plans agree."""

from __future__ import annotations

import json
import re
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any

import plan_bytes as pb
import plangold
import pytest
from plan_bytes import ARENA, HEADER, IO, NO_TENSOR, OPERATION, TENSOR, PlanBytes, parts, unpack
from plan_net import TABLES, Net, check, copied

import pyqfw as q
from pyqfw import quant, wire
from pyqfw._core import ffi, lib

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "format.md").read_text()
GOLD = sorted(plangold.gold_plans())
MANY = plangold.many_plans()
RECORDS = [
    ("qfw_plan_header", HEADER, pb.HEADER_BYTES),
    ("qfw_plan_tensor", TENSOR, pb.TENSOR_BYTES),
    ("qfw_plan_op", OPERATION, pb.OP_BYTES),
    ("qfw_plan_window", pb.WINDOW, pb.WINDOW_BYTES),
]

# ---- the page, the core and the parser -----------------------------------------------------------


def page_section(title: str) -> str:
    """What stands under a heading."""
    found = re.search(rf"^#+ (?:\d+\. )?{title}\n(.*?)(?=^#|\Z)", PAGE, flags=re.M | re.S)
    assert found, title
    return found[1]


def page_table(title: str) -> list[list[str]]:
    rows = re.findall(r"^\|(.+)\|$", page_section(title), flags=re.M)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


@pytest.mark.parametrize(("struct", "fields", "size"), RECORDS)
def test_records_are_the_structs_of_the_core(
    struct: str, fields: list[tuple[str, int, str]], size: int
) -> None:
    kinds = {"B": "uint8_t", "H": "uint16_t", "I": "uint32_t", "f": "float"}
    assert ffi.sizeof(struct) == size
    found = dict(ffi.typeof(struct).fields)
    assert list(found) == [name for name, _, _ in fields]
    end = 0
    for name, offset, code in fields:
        assert found[name].offset == offset == end
        length = f"[{code[:-1]}]" if code[:-1] else ""
        assert found[name].type.cname == kinds[code[-1]] + length
        end += ffi.sizeof(found[name].type)
    assert end == size


def page_fields(title: str) -> list[tuple[str, int, str]]:
    """The fields of a record, as the page has them."""
    letters = {"u8": "B", "u16": "H", "u32": "I", "f32": "f"}
    found = []
    for offset, kind, name, *_ in (row for row in page_table(title) if row[0].isdigit()):
        base, _, length = kind.rstrip("]").partition("[")
        found.append((name, int(offset), length + letters[base]))
    return found


@pytest.mark.parametrize(
    ("title", "fields"),
    [("Header", HEADER), ("Tensors", TENSOR), ("Operations", OPERATION), ("Windows", pb.WINDOW)],
)
def test_the_page_has_the_same_records(title: str, fields: list[tuple[str, int, str]]) -> None:
    assert page_fields(title) == fields


def test_constants() -> None:
    for name in ("ALIGN", "NET_BYTES", "NO_TENSOR"):
        assert getattr(pb, name) == getattr(lib, f"QFW_{name}")
    assert (pb.MAGIC, pb.VERSION) == (lib.QFW_PLAN_MAGIC, lib.QFW_PLAN_VERSION)
    assert (pb.PLACES, pb.PARAMS) == (lib.QFW_OP_TENSORS, lib.QFW_OP_PARAMS)
    for names in (pb.SPACES, pb.ROLES, pb.KINDS, pb.SECTIONS):
        assert [getattr(lib, f"QFW_{name.upper()}") for name in names] == list(range(len(names)))
    for name in ("NO_ROWS", "ROWS_OUTER", "ROWS_AXIS"):
        assert getattr(pb, name) == getattr(lib, f"QFW_{name}")
    assert [row[1] for row in page_table("Spaces") if row[0].isdigit()] == list(pb.SPACES)
    assert [row[1] for row in page_table("Sections") if row[0].isdigit()] == list(pb.SECTIONS)


# ---- operations ----------------------------------------------------------------------------------

CLASSES = {
    "F32": lib.QFW_AS_F32,
    "S8": lib.QFW_AS_S8,
    "S16": lib.QFW_AS_S16,
    "S32": lib.QFW_AS_S32,
    "SYM": lib.QFW_AS_SYM,
    "ASYM": lib.QFW_AS_ASYM,
    "INDEX": lib.QFW_AS_INDEX,
    "BYTES": lib.QFW_AS_BYTES,
    "PICK": lib.QFW_AS_PICK,
}
SETS = {
    **CLASSES,
    "SYMS": lib.QFW_AS_S8 | lib.QFW_AS_S16 | lib.QFW_AS_SYM,
    "STORED": sum(CLASSES[name] for name in ("F32", "S8", "S16", "SYM", "ASYM")),
}


def places_of(kernel: int) -> tuple[str | None, list[int]]:
    """The core's name and places of an operation."""
    places = ffi.new("uint16_t[8]")
    name = lib.qfw_op_name(kernel, places)
    return (None if name == ffi.NULL else ffi.string(name).decode()), list(places)


def test_operations_have_the_same_numbers_everywhere() -> None:
    listed = (ROOT / "csrc" / "kernels" / "kernels.def").read_text()
    numbers = {name: int(n) for n, name in re.findall(r"^QFW_OP\((\d+), (\w+),", listed, re.M)}
    assert numbers == wire.KERNELS
    assert {places_of(n)[0]: n for n in numbers.values()} == numbers
    assert places_of(0)[0] is None
    assert places_of(max(numbers.values()) + 1)[0] is None
    assert places_of(2**32 - 1)[0] is None
    titles = dict(re.findall(r"(\d+) (\w+)", " ".join(re.findall(r"^### (.+)$", PAGE, re.M))))
    assert {name: int(n) for n, name in titles.items()} == numbers


def page_places(title: str) -> dict[int, int]:
    """Places that a table of the page describes, as bits."""
    found = {}
    for number, access, classes, *_ in page_table(title):
        if not number.isdigit() or not classes:
            continue
        words = re.split(r"[ ,;]+", access)
        bits = sum(SETS[name] for name in classes.split(", "))
        bits |= lib.QFW_IS_READ if "in" in words else 0
        bits |= lib.QFW_IS_WRITTEN if "out" in words else 0
        bits |= lib.QFW_MAY_LACK if "lack" in words or "there" in words else 0
        bits |= lib.QFW_MAY_LACK if access == "out; as place 3 of update" else 0
        found[int(number)] = bits
    return found


@pytest.mark.parametrize(
    "title",
    [
        *("1 convert", "2 widen", "3 product_s32", "5 relu", "6 mask", "9 gradient_s32"),
        *("11 update", "13 normalize_s32", "15 normalize_back_s32", "16 normalize_back_f32"),
        *("17 columns_s32", "26 dropout"),
        "42 sigmoid_back, 43 tanh_back",
        *("57 batch_norm_s32", "59 batch_norm_back_s32", "61 fold_norm", "62 fold_s32"),
        *("30 square_sum", "31 clip_factor", "32 adamw", "35 commit", "37 accumulate"),
        *("46 join_s32", "48 transpose", "49 part"),
        *("50 max_pool", "51 max_pool_back", "64 product_pool_s32", "65 product_fold_s32"),
    ],
)
def test_the_page_has_the_places_of_the_core(title: str) -> None:
    found = page_places(title)
    places = places_of(int(title.split()[0]))[1]
    assert [found.get(i, 0) for i in range(pb.PLACES)] == places


def trimmed(kernel: int) -> list[int]:
    """An operation's places, without the empty ones at the end."""
    places = places_of(kernel)[1]
    while places[-1] == 0:
        places.pop()
    return places


def test_the_page_has_the_places_of_operations_that_are_like_others() -> None:
    read, written, may = lib.QFW_IS_READ, lib.QFW_IS_WRITTEN, lib.QFW_MAY_LACK
    f32 = CLASSES["F32"]
    product, gradient = page_places("3 product_s32"), page_places("9 gradient_s32")
    update, fused = page_places("11 update"), page_places("12 gradient_update_s32")
    floats = [f32 | (product[i] & (read | written | may)) for i in range(4)]
    assert trimmed(4) == [*floats, product[4], product[5]]
    join = page_places("46 join_s32")
    assert trimmed(47) == [f32 | (join[i] & (read | written | may)) for i in range(8)]
    norm = page_places("13 normalize_s32")
    assert trimmed(14) == [f32 | (norm[i] & (read | written | may)) for i in range(4)]
    floats = [f32 | (gradient[i] & (read | written | may)) for i in range(3)]
    assert trimmed(10) == [*floats, f32 | may | written, gradient[5]]
    assert trimmed(12) == [
        update[0],
        *(gradient[i] for i in (1, 2, 3)),
        *(fused[i] for i in (4, 5, 6)),
    ]
    adamw, own = page_places("32 adamw"), page_places("33 gradient_adamw_s32")
    errors = [gradient[i] for i in (1, 2, 3)]
    assert trimmed(33) == [adamw[0], *errors, adamw[2], adamw[3], own[6], own[7]]
    assert own[0] == adamw[0]
    ways = (written, read, read, written)
    for title in ("7 cross_entropy_s16, 8 cross_entropy_f32", "20 mse_s16, 21 mse_f32"):
        assert_places_of_two(title, ways)
    title = "27 weighted_cross_entropy_s16, 28 weighted_cross_entropy_f32"
    assert_places_of_two(title, (*ways, read | may))
    assert_places_of_two("22 softmax_s16, 23 softmax_f32", ways[:2])
    assert_places_of_two("24 softmax_back_s32, 25 softmax_back_f32", ways[:3])
    assert_places_of_two("38 sigmoid_s32, 39 sigmoid_f32", ways[:2])
    assert_places_of_two("40 tanh_s32, 41 tanh_f32", ways[:2])
    assert places_of(42)[1] == places_of(43)[1]


def test_the_page_has_the_places_of_means() -> None:
    ways = (lib.QFW_IS_WRITTEN, lib.QFW_IS_READ)
    assert_places_of_two("52 avg_pool_s32, 53 avg_pool_f32", ways)
    assert_places_of_two("54 avg_pool_back_s32, 55 avg_pool_back_f32", ways)


def test_the_page_has_the_places_of_normalisations_in_floats() -> None:
    """As of those in integers, without their scratch."""
    ways = lib.QFW_IS_READ | lib.QFW_IS_WRITTEN | lib.QFW_MAY_LACK
    for kernel, title in ((58, "57 batch_norm_s32"), (60, "59 batch_norm_back_s32")):
        like = page_places(title)
        found = {i: CLASSES["F32"] | (like[i] & ways) for i in like if i != 4}
        assert trimmed(kernel) == [found.get(i, 0) for i in range(max(found) + 1)]
    fold = page_places("62 fold_s32")
    assert trimmed(63) == [CLASSES["F32"] | (fold[i] & ways) for i in range(4)]


def assert_places_of_two(title: str, ways: tuple[int, ...]) -> None:
    """A table for an operation in integers and its twin in floats."""
    table = page_table(title)
    for k, number in enumerate(re.findall(r"(\d+) ", title)):
        kernel = int(number)
        both = [row[2].split("; ") for row in table if row[0].isdigit()]
        names = [cell[k % len(cell)].removeprefix(f"{kernel}: ") for cell in both]
        bits = [sum(SETS[name] for name in cell.split(", ")) for cell in names]
        assert trimmed(kernel) == [b | way for b, way in zip(bits, ways, strict=True)]


# ---- gold plans ----------------------------------------------------------------------------------


def gold(name: str) -> bytes:
    return (plangold.GOLD / f"plan_v1_{name}.bin").read_bytes()


def test_gold_plans_are_what_the_compiler_makes() -> None:
    assert plangold.differences() == [], "python tests/plangold.py"


@pytest.mark.parametrize("name", GOLD)
@pytest.mark.parametrize("table", TABLES)
def test_gold_plans_are_accepted_and_run(name: str, table: Any) -> None:
    data = gold(name)
    assert check(data).status == "OK"
    net = Net(data, table)
    with quant.float_mode():
        assert net.open() == "OK"
        x, y = q_rows(net.batch * net.row("input")), copied(bytes(4 * net.batch))
        for i in range(2):
            assert net.step(x, y, net.batch)[0] == "OK"
            assert net.progress()[:2] == (i + 1, i + 1)


def q_rows(n: int) -> Any:
    return quant.uniforms(n, seed=1).astype("float32") * 2.0**-32


@pytest.mark.parametrize("name", GOLD)
def test_gold_plans_say_what_is_written_beside_them(name: str) -> None:
    data = gold(name)
    text = json.loads((plangold.GOLD / f"plan_v1_{name}.json").read_text())
    h = unpack(HEADER, data, 0)
    assert (h["magic"], h["version"], h["header_bytes"]) == (pb.MAGIC, 1, pb.HEADER_BYTES)
    assert h["plan_bytes"] == len(data)
    assert h["crc"] == zlib.crc32(data[16:])
    assert [h[key] for key in ("batch", "seed", "arena_bytes")] == [
        text[key] for key in ("batch", "seed", "arena_bytes")
    ]
    assert h["reserved"] == [0] * 7
    assert h["micro_batches"] == 0
    tensors = [unpack(TENSOR, data, 128 + 52 * i) for i in range(h["tensors"])]
    assert len(tensors) == len(text["tensors"])
    for t, said in zip(tensors, text["tensors"], strict=True):
        check_tensor(t, said, h["batch"])
    ends = {"input": "input", "labels": "labels", "output": "output", "loss": "loss"}
    for field, title in ends.items():
        assert text["tensors"][h[field]]["name"] == title
    begin, number, windows = 128 + 52 * h["tensors"], 0, []
    for section, (title, ops) in enumerate(text["sections"].items()):
        assert title == pb.SECTIONS[section]
        if title == "infer":  # that of a step: nothing of its own
            assert ops == []
            continue
        assert (h["first"][section], h["count"][section]) == (number, len(ops))
        for said in ops:
            op = unpack(OPERATION, data, begin + 80 * number)
            assert places_of(op["kernel"])[0] == said["kernel"]
            listed = [NO_TENSOR if t is None else t for t in said["tensors"]]
            assert op["tensor"] == listed + [NO_TENSOR] * (pb.PLACES - len(listed))
            windows.append((op["param"][pb.WINDOW_PARAM] - 1, said.get("window")))
            number += 1
    assert number == h["ops"]
    assert (h["first"][4], h["count"][4]) == (0, h["count"][0] + h["count"][1])
    end = begin + 80 * number
    assert len(data) == end + 40 * h["windows"]
    assert h["windows"] == len({number for number, said in windows if said})
    for number, said in windows:
        assert (number >= 0) == (said is not None)
        if said is not None:
            found = unpack(pb.WINDOW, data, end + 40 * number)
            assert found.pop("reserved") == [0, 0, 0]
            assert found == said


def check_tensor(t: dict[str, Any], said: dict[str, Any], batch: int) -> None:
    assert pb.SPACES[t["space"]] == said["space"]
    assert pb.ROLES[t["role"]] == said["role"]
    assert (t["rows"] != pb.NO_ROWS) == said["rows"]
    assert [t[part] for part in ("codes", "scale", "zero_point", "absmax")] == said["offsets"]
    elements = 1
    for n in said["shape"]:
        elements *= n
    assert t["outer"] * t["axis"] * t["inner"] == elements
    if t["space"] != IO:
        aligned = (-(-size // 16) * 16 for size in pb.part_sizes(t, batch).values())
        assert sum(aligned) == said["bytes"]
    fmt = said["format"]
    if fmt == "bytes":
        assert t["kind"] == (pb.INDEX if t["space"] == IO else pb.BYTES)
        return
    found = eval(fmt, {name: getattr(q, name) for name in ("Sym", "Asym", "Float32", "SymInt32")})
    names = {q.Float32: "float32", q.Sym: "sym", q.SymInt32: "sym", q.Asym: "asym"}
    assert pb.KINDS[t["kind"]] == names[type(found)]
    assert (t["bits"], t["container"] or t["bits"]) == (found.bits, found.element_bits)
    assert t["pow2"] == found.pow2
    assert ("half_away", "half_even", "stochastic")[t["rounding"]] == found.rounding
    assert (t["range"], t["limit"]) == (0, 0.0)


# ---- what the compiler writes --------------------------------------------------------------------


@pytest.mark.parametrize("name", MANY)
def test_plans_are_accepted_and_ask_for_what_they_say(name: str) -> None:
    plan = MANY[name]
    data = plan.to_bytes()
    assert plan.to_bytes() == data
    assert check(data).status == "OK"
    assert Net(data).arena_size() == ("OK", plan.arena_bytes)
    assert PlanBytes(data).sealed() == data


def test_the_plans_have_every_operation_and_class() -> None:
    kernels, classes = set(), set()
    for plan in MANY.values():
        found = PlanBytes(plan.to_bytes())
        kernels |= set(found.ops["kernel"].tolist())
        for t in found.tensors:
            classes.add((int(t["kind"]), int(t["container"]), bool(t["bits"] == 32)))
    assert kernels == set(wire.KERNELS.values())
    assert {(pb.SYM, 0, False), (pb.SYM, 32, False), (pb.SYM, 32, True)} <= classes
    assert {(pb.ASYM, 0, False), (pb.ASYM, 16, False), (pb.ASYM, 32, False)} <= classes


@pytest.mark.parametrize("name", MANY)
def test_every_part_is_aligned_and_no_two_tensors_meet_while_both_live(name: str) -> None:
    plan = PlanBytes(MANY[name].to_bytes())
    batch, ops = int(plan.header["batch"][0]), len(plan.ops)
    ends = {pb.ARENA: int(plan.header["arena_bytes"][0]), pb.CONST: 0}
    ends[pb.CONST] = int(plan.header["const_bytes"][0])
    lives: dict[int, tuple[int, int]] = {}
    for i, t in enumerate(plan.tensors):
        used = [k for k, op in enumerate(plan.ops) if i in op["tensor"]]
        lasts = t["role"] <= pb.STATE
        lives[i] = (0, ops) if lasts else (min(used), max(used))
        if i == plan.header["loss"][0]:
            lives[i] = (min(used), int(plan.header["first"][0, 4]) or ops)  # the end of a step
        if t["space"] == IO:
            assert t["codes"] <= 2
            continue
        for part in parts(t, batch):
            assert part.begin % pb.ALIGN == 0
            assert part.begin >= (pb.NET_BYTES if t["space"] == ARENA else 0)
            assert part.end <= ends[int(t["space"])]
    over = {tuple(map(int, op["tensor"][:2])) for op in plan.ops if op["kernel"] in (1, 50)}
    for i, k in combinations(range(len(plan.tensors)), 2):
        a, b = plan.tensors[i], plan.tensors[k]
        together = lives[i][0] <= lives[k][1] and lives[k][0] <= lives[i][1]
        if {(i, k), (k, i)} & over and a["codes"] == b["codes"]:  # codes over their sums
            assert lives[i][0] == lives[k][1] or lives[k][0] == lives[i][1]
            continue
        if together and a["space"] == b["space"] and a["space"] != IO:
            for part in parts(a, batch):
                assert not any(part.meets(other) for other in parts(b, batch)), (i, k)
