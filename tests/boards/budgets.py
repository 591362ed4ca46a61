"""How many instructions steps may take:  budgets.py [--check]

Measures a training step and an inference of some networks on some cores (arm-none-eabi-gcc -O2, in
Unicorn) and writes them to budgets.json; with --check compares, and names the operations that grew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT.parent))

import device_nets  # noqa: E402

from pyqfw import mcu  # noqa: E402

FILE = ROOT / "budgets.json"
KINDS = ("mlp", "chain", "har", "autoencoder", "depthwise")
CORES = ("cortex-m0", "cortex-m4")
ROOM = 1.01  # another release of the compiler


def measured(kind: str, core: str) -> dict[str, Any]:
    """Of the network with 8 bits everywhere."""
    cost = mcu.cost(device_nets.session(kind, "int8"), target=core, backend="unicorn")
    assert cost.step is not None
    assert cost.inference is not None
    ops = {f"{op.number} {op.kernel} {op.layer}": round(op.instructions) for op in cost.by_op}
    return {"step": round(cost.step), "inference": round(cost.inference), "operations": ops}


def grown(now: dict[str, Any], budget: dict[str, Any]) -> list[str]:
    """What is above its budget, operations first."""
    ops, allowed = now["operations"], budget["operations"]
    found = [
        f"{name}: {n} instructions, {allowed.get(name, 0)} are allowed"
        for name, n in ops.items()
        if n > ROOM * allowed.get(name, 0)
    ]
    whole = [name for name in ("step", "inference") if now[name] > ROOM * budget[name]]
    found += [f"{name}: {now[name]} instructions, {budget[name]} are allowed" for name in whole]
    return found if whole else []


def main(arguments: list[str]) -> int:
    now = {kind: {core: measured(kind, core) for core in CORES} for kind in KINDS}
    if arguments != ["--check"]:
        FILE.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    allowed = json.loads(FILE.read_text())
    wrong = [
        f"{kind} on {core}: {line}"
        for kind in KINDS
        for core in CORES
        for line in grown(now[kind][core], allowed[kind][core])
    ]
    print("\n".join(wrong) or "every step is within its budget")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
