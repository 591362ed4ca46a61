"""`pyqfw export` and `pyqfw mcu`: firmware, and the device, emulated."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .cli_common import (
    add_command,
    add_data,
    add_json,
    add_model,
    labelled,
    loaded,
    positive,
    show,
    targets,
)
from .firmware import export
from .firmware.targets import HOST
from .firmware.targets import targets as cores
from .fit import evaluate
from .mcu import BACKENDS, Run, cost, run


def add(commands: Any) -> None:
    _add_export(commands)
    mcu = commands.add_parser(
        "mcu",
        help="train on an emulated Cortex-M, and what it costs there",
        description="The device, emulated: pip install 'pyqfw[mcu]' is all it needs.",
        epilog="example: pyqfw mcu cost model.safetensors --target cortex-m0,cortex-m4",
    )
    kinds = mcu.add_subparsers(metavar="what", required=True, title="what")
    _add_train(kinds)
    _add_cost(kinds)


def _add_export(commands: Any) -> None:
    e = add_command(
        commands,
        "export",
        exported,
        help="a net as a folder of C that builds with make",
        description="Writes firmware for a saved net: plain C, built by make, without Python.",
        example="pyqfw export model.safetensors firmware --target cortex-m4 --ram 64000",
    )
    add_model(e)
    e.add_argument("folder", metavar="FOLDER", type=Path, help="where to")
    e.add_argument("--target", choices=list(cores()), required=True)
    e.add_argument("--ram", type=positive, metavar="N", help="bytes there are; more is refused")
    e.add_argument("--flash", type=positive, metavar="N", help="bytes there are; more is refused")
    e.add_argument("--overwrite", action="store_true", help="replace an older export")
    add_json(e)


def _add_train(kinds: Any) -> None:
    t = add_command(
        kinds,
        "train",
        trained,
        help="go on training on the device",
        description="Goes on training a saved net on an emulated core, on the training rows of an "
        ".npz.",
        example="pyqfw mcu train model.safetensors --data person.npz --target cortex-m4 "
        "--epochs 3 --out tuned.safetensors",
    )
    add_model(t)
    add_data(t)
    t.add_argument("--target", choices=[n for n in cores() if n != HOST], required=True)
    t.add_argument("--epochs", type=positive, metavar="N", help="passes over the data (default: 1)")
    t.add_argument("--steps", type=positive, metavar="N", help="steps, instead of whole passes")
    t.add_argument("--backend", choices=BACKENDS, default="unicorn", help="(default: unicorn)")
    t.add_argument("--out", metavar="MODEL.safetensors", help="save the net as the device left it")
    add_json(t)


def _add_cost(kinds: Any) -> None:
    c = add_command(
        kinds,
        "cost",
        costs,
        help="RAM, flash, instructions",
        description="RAM, flash and instructions, by operation, of a saved net on some cores.",
        example="pyqfw mcu cost model.safetensors --target cortex-m0,cortex-m4 --json",
    )
    add_model(c)
    c.add_argument("--target", type=lambda text: text.split(","), required=True, metavar="A,B")
    c.add_argument("--backend", choices=BACKENDS, help="(default: one that is installed)")
    add_json(c)


def exported(args: argparse.Namespace) -> int:
    made = export(
        loaded(args.model),
        args.folder,
        target=args.target,
        ram=args.ram,
        flash=args.flash,
        overwrite=args.overwrite,
    )
    if args.json:
        show(made.to_dict())
    else:
        print(f"{made}\n\nin {args.folder}")
    return 0


def costs(args: argparse.Namespace) -> int:
    net = loaded(args.model)
    found = [cost(net, target=name, backend=args.backend) for name in args.target]
    if args.json:
        show([c.to_dict() for c in found])
    else:
        print("\n\n".join(map(str, found)))
    return 0


def trained(args: argparse.Namespace) -> int:
    net = loaded(args.model)
    rows = labelled(args.data, net).train
    y = targets(net, rows)
    before = evaluate(net, rows.x, y, progress=False)
    done = run(
        *(net, rows.x, y),
        target=args.target,
        epochs=args.epochs,
        steps=args.steps,
        backend=args.backend,
    )
    after = evaluate(done.net, rows.x, y, progress=False)
    if args.out is not None:
        done.net.save(args.out)
    if args.json:
        told = {"losses": done.losses, "before": before, "after": after}
        show({**told, "cost": done.cost.to_dict()})
    else:
        print(_text(done, before, after))
    return 0


def _text(done: Run, before: dict[str, float], after: dict[str, float]) -> str:
    changes = [f"{name} {before[name]:.4g} -> {after[name]:.4g}" for name in after]
    return f"{done.cost}\n\n{len(done.losses)} steps; on these data: {', '.join(changes)}"
