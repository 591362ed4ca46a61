"""`pyqfw demo`: the point of the project in one command."""

from __future__ import annotations

import argparse
from typing import Any

from . import demo
from .cli_common import add_command, add_json, natural, positive, show, table
from .mcu import OpCount


def add(commands: Any) -> None:
    d = add_command(
        commands,
        "demo",
        run,
        help="train a smart watch's net on nine people, fine-tune it for the tenth",
        description="Real smart-watch recordings (seglearn): a 1-D CNN is trained in 8-bit "
        "integers on nine people, beside its float32 twin, and fine-tuned on the first windows of "
        "the tenth: here, and with the same bits on an emulated Cortex-M4. Writes the net and a "
        "report. Needs the extra `demo`.",
        example="pyqfw demo --person 2 --out pyqfw-demo",
    )
    d.add_argument(
        "--person",
        type=int,
        choices=range(1, 11),
        default=1,
        metavar="1..10",
        help="who is new (default: %(default)s)",
    )
    d.add_argument("--epochs", type=positive, default=20, metavar="N", help="(default: 20)")
    d.add_argument("--seed", type=natural, default=0, metavar="N", help="(default: 0)")
    d.add_argument("--out", default="pyqfw-demo", metavar="FOLDER", help="(default: %(default)s)")
    add_json(d)


def run(args: argparse.Namespace) -> int:
    quiet = False if args.json else None
    data = demo.people(args.person)
    if not args.json:
        print(f"nine people: {data.others}")
        print(
            f"person {args.person}: {len(data.first)} first windows, {len(data.later)} later ones"
        )
    found = demo.trained(data, args.epochs, args.seed, quiet)
    tuning = max(args.epochs // 2, 1)
    nets = {"int8": found.net, "float32": found.twin}
    tuned = {name: demo.fine_tuned(n, data.first, tuning, quiet) for name, n in nets.items()}
    device = demo.on_device(found.net, data.first, tuning, quiet)
    page = demo.written(found, device, data, args.out)
    before = {name: demo.accuracy(net, data.later) for name, net in nets.items()}
    facts = {
        name: {
            "before": before[name],
            "after": demo.accuracy(tuned[name], data.later),
            "arena": tuned[name].plan.arena_bytes,
        }
        for name in nets
    }
    there = {
        "target": device.cost.target,
        "after": demo.accuracy(device.net, data.later),
        "same_bits": demo.same(device.net, tuned["int8"]),
        "steps": len(device.losses),
        "instructions": device.instructions,
        "ram": device.ram,
        "flash": device.flash,
        "stack": device.stack,
    }
    if args.json:
        show({"person": args.person, "report": str(page), **facts, "device": there})
    else:
        print(_text(args.person, facts, there, device.by_op))
        print(f"\n{page}")
    return 0 if there["same_bits"] else 1


def _text(person: int, facts: dict[str, Any], there: dict[str, Any], by_op: list[OpCount]) -> str:
    rows = [("", "before", "after", "arena, bytes")]
    for name, f in facts.items():
        rows.append((name, f"{f['before']:.1%}", f"{f['after']:.1%}", str(f["arena"])))
    shares = (f"{facts['int8']['before']:.1%}", f"{there['after']:.1%}")
    rows.append((f"int8 on {there['target']}", *shares, str(facts["int8"]["arena"])))
    bits = "the same bits as here" if there["same_bits"] else "OTHER BITS THAN HERE"
    dear = sorted(by_op, key=lambda op: -op.instructions)[:3]
    most = ", ".join(f"{op.kernel} of layer {op.layer}" for op in dear)
    return "\n".join(
        (
            f"\naccuracy on the later windows of person {person}",
            table(rows, (1, 2, 3)),
            f"\nthe device: {there['steps']} steps, {bits}; RAM {there['ram']} bytes (stack "
            f"{there['stack']}), flash {there['flash']} bytes",
            f"{there['instructions']:.0f} instructions a step, most in {most}",
        )
    )
