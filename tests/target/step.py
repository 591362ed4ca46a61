"""Writes cases of steps.json as C constants (step.h):  step.py OUT [--plant WHAT CASE | --part K N]

With --plant one expected number of that case is wrong, or its plan, and a run must say so.
"""

from __future__ import annotations

import argparse
import json
import struct
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


def case(pool: Bytes, c: dict[str, Any]) -> str:
    plan, constants, lasting = (bytes.fromhex(c[n]) for n in ("plan", "constants", "lasting"))
    return fields(
        name=f'"{c["name"]}"',
        plan=pool.put(plan),
        constants=pool.put(constants),
        lasting=pool.put(lasting),
        plan_bytes=len(plan),
        const_bytes=len(constants),
        lasting_bytes=len(lasting),
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


def chosen(
    cases: dict[str, dict[str, Any]], planted: list[str] | None, part: list[int]
) -> dict[str, dict[str, Any]]:
    """A part of the cases, or the planted one and another."""
    if planted is None:
        number, parts = part
        return dict(list(cases.items())[number::parts])
    what, name = planted
    if what not in PLANTS or name not in cases:
        raise SystemExit(f"--plant: one of {', '.join(PLANTS)} and one of {', '.join(cases)}")
    plant(what, cases[name])
    return {n: c for n, c in cases.items() if n in (name, next(iter(cases)))}


def c_text(planted: list[str] | None, part: list[int]) -> str:
    content = json.loads(STEPS.read_text())
    cases = chosen({c["name"]: c for c in content["cases"]}, planted, part)
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
    arguments = parser.parse_args()
    arguments.out.write_text(c_text(arguments.plant, arguments.part))


if __name__ == "__main__":
    main()
