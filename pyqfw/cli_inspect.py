"""`pyqfw inspect`: what is in a saved net."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from .cli_common import add_command, add_json, add_model, loaded, show, table
from .session import Session


def add(commands: Any) -> None:
    i = add_command(
        commands,
        "inspect",
        inspect,
        help="layers, formats, ranges and sizes of a saved net",
        description="What is in a saved net: layers with their shapes, every tensor that lasts "
        "with its format, range, scales and bytes, and what a step costs.",
        example="pyqfw inspect har.safetensors",
    )
    add_model(i)
    i.add_argument("--plan", action="store_true", help="print the whole plan too")
    add_json(i)


def inspect(args: argparse.Namespace) -> int:
    net = loaded(args.model)
    facts = facts_of(net)
    if args.json:
        show(facts)
        return 0
    lines = ["policy", "loss", "optimizer", "preprocess", "input_shape", "batch", "seed"]
    for name in (*lines, "steps", "epochs", "arena_bytes", "flash_bytes", "macs"):
        print(f"{name:<12} {facts[name]}")
    rows = [("layer", "", "output", "")]
    rows += [
        (
            layer["path"],
            layer["layer"],
            "x".join(map(str, layer["out_shape"])),
            "" if layer["learns"] else "frozen" if layer["parameters"] else "",
        )
        for layer in facts["layers"]
    ]
    print("\n" + table(rows))
    lasting = [("tensor", "shape", "format", "bytes", "least", "most", "scales")]
    for name, t in facts["tensors"].items():
        shape, least, most = "x".join(map(str, t["shape"])) or "1", t["least"], t["most"]
        scales = "" if t["scales"] is None else "{:.3g} .. {:.3g}".format(*t["scales"])
        told = (f"{least:.4g}", f"{most:.4g}", scales)
        lasting.append((name, shape, t["format"], str(t["bytes"]), *told))
    print("\n" + table(lasting, (3, 4, 5)))
    if args.plan:
        print(f"\n{net.plan}")
    return 0


def facts_of(net: Session) -> dict[str, Any]:
    plan, program = net.plan, net.plan.program
    asked = plan.request
    names = [*program.kept, *program.states, *program.gains]
    return {
        "policy": repr(asked.policy),
        "loss": repr(asked.loss),
        "optimizer": repr(asked.optimizer),
        "preprocess": repr(asked.preprocess),
        "input_shape": list(asked.input_shape),
        "batch": asked.batch,
        "seed": asked.seed,
        "steps": net.steps,
        "epochs": net.epochs,
        "arena_bytes": plan.arena_bytes,
        "flash_bytes": plan.flash_bytes,
        "macs": plan.macs,
        "layers": [
            {
                "path": node.path,
                "layer": repr(node.layer),
                "out_shape": list(node.out_shape),
                "learns": node.learns,
                "parameters": sum(int(np.prod(p.shape)) for p in node.layer.parameters()),
            }
            for node in plan.nodes
        ],
        "tensors": {name: _tensor(net, name) for name in names},
    }


def _tensor(net: Session, name: str) -> dict[str, Any]:
    t = net.tensor(name)
    values, scale = t.numpy(), t.scale
    return {
        "format": repr(t.format),
        "shape": list(t.shape),
        "bytes": t.nbytes,
        "least": float(values.min()),
        "most": float(values.max()),
        "scales": None if scale is None else [float(np.min(scale)), float(np.max(scale))],
    }
