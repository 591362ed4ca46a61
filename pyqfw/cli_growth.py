"""`pyqfw bench growth`: how cost grows, as a table and a plot."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import bench, bench_growth
from .bench_growth import BATCH, DEPTH, LENGTH, WIDTH
from .cli_common import positive

TITLE = f"{DEPTH} Conv1d {WIDTH}-{WIDTH} on {LENGTH} positions, batch {BATCH}; one size varied"
NOTES = (
    "A training step with int8() and plain SGD, session.step(x, y): the fastest of the rounds, the "
    "thread's own time. The exponent is that of a power of the size, fitted to what the four "
    "largest have more than each other: what is there at every size does not count.",
)


def add(suites: Any) -> None:
    g = suites.add_parser(
        "growth",
        help="time and arena against batch, width and depth",
        description="How the time of a training step and its arena grow with batch, width and "
        "depth, with fitted exponents.",
        epilog="example: pyqfw bench growth --plot growth.svg",
    )
    g.add_argument(
        "--repeats", type=positive, default=15, metavar="N", help="rounds (default: %(default)s)"
    )
    g.add_argument("--json", action="store_true", help="machine-readable")
    g.add_argument("--plot", metavar="FILE", type=Path, help="draw it: an .svg or .png; extra plot")
    g.add_argument(
        "--into",
        metavar="FILE",
        type=Path,
        help="also put the table into this Markdown file, under its heading, with the plot",
    )
    g.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    with bench.quiet():
        machine = bench.machine()
        found = bench_growth.measured(args.repeats, _shown if sys.stderr.isatty() else None)
    told = ", ".join(f"{key} {value}" for key, value in machine.items() if value)
    if args.json:
        content = {"suite": "growth", "machine": machine, "rows": bench_growth.to_json(found)}
        print(json.dumps(content, indent=2))
    else:
        print(f"{told}\n{TITLE}, {args.repeats} rounds\n\n{bench_growth.table(found)}")
    notes = list(NOTES)
    if args.plot is not None:
        bench_growth.plot(found, args.plot)
    if args.plot is not None and args.into is not None:
        place = os.path.relpath(args.plot, args.into.parent)
        notes.insert(
            0, f"![time and arena against batch, width and depth]({Path(place).as_posix()})"
        )
    if args.into is not None:
        setting = f"{TITLE}; {args.repeats} rounds. {told}"
        bench.put_into(args.into, "growth", setting, bench_growth.table(found), notes)
    return 0


def _shown(text: str) -> None:
    print(f"\r{text:<40}", end="" if text else "\r", file=sys.stderr, flush=True)
