"""Writes cases of steps.json as C constants (step.h):

    step.py OUT [--plant WHAT CASE | --part K N] [--only CASE ...]

With --plant one expected number of that case is wrong, or its plan, and a run must say so.
"""

from __future__ import annotations

import argparse
import json
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gold import Pool, braces, fields

STEPS = Path(__file__).resolve().parent / "steps.json"
ALIGN = 16
GUARD = 32  # bytes of the arena that no case may touch
ALIGNED = f"__attribute__((aligned({ALIGN}))) uint8_t"
PLANTS = ("plan", "losses", "crcs", "outputs")


def little(numbers: Iterable[int]) -> bytes:
    return b"".join(struct.pack("<I", n) for n in numbers)


def words(numbers: Iterable[int]) -> str:
    return braces(f"{n}u" for n in numbers)


class Bytes(Pool):
    """Arrays of bytes, each at a multiple of ALIGN."""

    def __init__(self) -> None:
        super().__init__("bytes", ALIGNED, str)

    def put(self, data: bytes) -> str:
        return self.add(data + bytes(-len(data) % ALIGN))


def data(pool: Bytes, x: list[int], y: list[int], rows: int) -> str:
    return fields(x=pool.put(little(x)), y=pool.put(little(y)), rows=rows)


def state(c: dict[str, Any], plan: bytes, constants: bytes, lasting: bytes) -> bytes:
    """The state that the case begins with, as docs/format.md section 10 has it."""
    plan_crc, lr, steps = plan[12:16], plan[88:92], little([c["steps_before"]])
    head = b"QFWS" + struct.pack("<HHI", 1, 64, 0) + plan_crc + little([zlib.crc32(constants), 0])
    head += little([len(lasting), zlib.crc32(lasting)]) + 2 * steps + lr + little([0, 0, 0, 0])
    return head + little([zlib.crc32(head)]) + lasting


def case(pool: Bytes, c: dict[str, Any]) -> str:
    plan, constants, lasting = (bytes.fromhex(c[n]) for n in ("plan", "constants", "lasting"))
    begin = state(c, plan, constants, lasting)
    return fields(
        name=f'"{c["name"]}"',
        plan=pool.put(plan),
        constants=pool.put(constants),
        state=pool.put(begin),
        plan_bytes=len(plan),
        const_bytes=len(constants),
        state_bytes=len(begin),
        arena_bytes=c["arena_bytes"],
        steps_before=c["steps_before"],
        targets=braces(map(pool.put, map(little, c["targets"]))) if c["targets"] else "{0}",
        losses=words(c["losses"]),
        crcs=words(c["crcs"]),
        outputs=words(c["outputs"]),
    )


def plant(what: str, c: dict[str, Any]) -> None:
    """Flips the lowest bit of one number."""
    if what == "plan":
        last = len(c["plan"]) - 1
        c["plan"] = c["plan"][:last] + f"{int(c['plan'][last], 16) ^ 1:x}"
    else:
        c[what][-1] ^= 1


def share(cases: dict[str, dict[str, Any]], number: int, parts: int) -> list[str]:
    """The names of one part; the parts take about as many bytes each."""
    size = {n: sum(len(c[k]) for k in ("plan", "constants", "lasting")) for n, c in cases.items()}
    names: list[list[str]] = [[] for _ in range(parts)]
    for name in sorted(size, key=lambda n: (-size[n], n)):
        min(names, key=lambda part: sum(size[n] for n in part)).append(name)
    return names[number]


def chosen(
    cases: dict[str, dict[str, Any]], planted: list[str] | None, part: list[int]
) -> dict[str, dict[str, Any]]:
    """A part of the cases, or the planted one and another."""
    if planted is None:
        names = share(cases, *part)
        return {n: c for n, c in cases.items() if n in names}
    what, name = planted
    if what not in PLANTS or name not in cases:
        raise SystemExit(f"--plant: one of {', '.join(PLANTS)} and one of {', '.join(cases)}")
    plant(what, cases[name])
    return {n: c for n, c in cases.items() if n in (name, next(iter(cases)))}


def c_text(planted: list[str] | None, part: list[int], only: list[str] | None) -> str:
    content = json.loads(STEPS.read_text())
    known = {c["name"]: c for c in content["cases"]}
    cases = chosen(known if only is None else {n: known[n] for n in only}, planted, part)
    pool = Bytes()
    rows = ",\n    ".join(case(pool, c) for c in cases.values())
    batches = zip(content["x"], content["y"], content["rows"], strict=True)
    steps = ",\n    ".join(data(pool, x, y, n) for x, y, n in batches)
    asked = data(pool, content["asked"], [], content["asked_rows"])
    arena = max(c["arena_bytes"] for c in cases.values()) + GUARD
    return "\n".join(
        [
            '#include "step.h"\n',
            pool.text(),
            f"const step_case step_cases[] = {{\n    {rows}}};",
            f"const unsigned step_cases_count = {len(cases)};",
            f"const step_data step_steps[STEP_STEPS] = {{\n    {steps}}};",
            f"const step_data step_asked = {asked};",
            f"{ALIGNED} step_arena[{arena}];",
            "const size_t step_arena_bytes = sizeof step_arena;\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--plant", nargs=2, metavar=("WHAT", "CASE"))
    parser.add_argument("--part", nargs=2, type=int, default=[0, 1], metavar=("NUMBER", "PARTS"))
    parser.add_argument("--only", nargs="+", metavar="CASE")
    arguments = parser.parse_args()
    arguments.out.write_text(c_text(arguments.plant, arguments.part, arguments.only))


if __name__ == "__main__":
    main()
