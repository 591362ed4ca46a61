"""tests/gold/net_v1_*: saved files, and what is in them, as version 1 wrote them.

`python tests/savegold.py` writes those that are missing. A file of a released version is never
written again: it must load for ever.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import pyqfw as q
from pyqfw import nn, optim

GOLD = Path(__file__).resolve().parent / "gold"
STOCHASTIC: dict[str, Any] = {"rounding": "stochastic"}
POLICIES = {
    "float32": q.Policy.float32(),
    "int8": q.Policy.int8(),
    "mixed": q.Policy.int8().replace(
        weights=q.Asym(5, group=4, **STOCHASTIC), bias=q.Float32(), state=q.BFP(6, 3), grads="fused"
    ),
}


def model() -> nn.Sequential:
    """Names, a frozen layer, RAW, overrides."""
    body = nn.Sequential(nn.Linear(6, 5, output=q.RAW), nn.ReLU(), nn.Quant(q.Sym(8, range=4.0)))
    frozen = nn.Linear(5, 4, bias=False).requires_grad_(False)
    head = nn.Linear(4, 3, policy={"weights": q.Sym(4, axis=0, **STOCHASTIC)})
    return nn.Sequential({"body": body, "frozen": frozen, "head": head})


def rows(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(4, 2, 3)).astype(np.float32), rng.integers(0, 3, 4)


def trained(policy: q.Policy) -> q.Session:
    sgd = optim.SGD(0.1, momentum=0.9, dampening=0.25)
    layers = nn.Sequential({"flat": nn.Flatten(), "net": model()})
    plan = q.compile(
        layers,
        input_shape=(2, 3),
        loss=nn.CrossEntropyLoss(),
        optimizer=sgd,
        policy=policy,
        batch=4,
        seed=11,
    )
    net = q.Session(plan)
    for i in range(3):
        net.step(*rows(i))
    net.lr, net.epochs = 0.03, 2
    return net


def shown(net: q.Session) -> dict[str, Any]:
    """What a loaded file must show."""
    program = net.plan.program
    names = [*program.parameters, *(t.name for t in program.states.values())]
    return {
        "steps": net.steps,
        "lr": net.lr,
        "epochs": net.epochs,
        "tensors": {name: bytes(net.tensor(name).data).hex() for name in sorted(names)},
        "outputs": net.predict(rows(9)[0]).tobytes().hex(),
    }


def main() -> None:
    for name, policy in POLICIES.items():
        path = GOLD / f"net_v1_{name}.safetensors"
        if not path.exists():
            net = trained(policy)
            net.save(path)
            path.with_suffix(".json").write_text(json.dumps(shown(net), indent=1) + "\n")


if __name__ == "__main__":
    main()
