"""Small networks under many policies, and what a session holds as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

import pyqfw as q
from pyqfw import nn

INPUTS, CLASSES, BATCH = 10, 4, 8
STOCHASTIC: dict[str, Any] = {"rounding": "stochastic"}
INT8 = q.Policy.int8()
POLICIES = {
    "float32": q.Policy.float32(),
    "full_sym": q.Policy.full_sym(),
    "int8": INT8,
    "float32 fused": q.Policy.float32().replace(grads="fused"),
    "full_sym fused": q.Policy.full_sym().replace(grads="fused"),
    "int8 fused": INT8.replace(grads="fused"),
    "rows": INT8.replace(wires=q.Sym(8, axis="row"), errors=q.Sym(8, axis="row", **STOCHASTIC)),
    "rows of the input": INT8.replace(input=q.Sym(8, axis="row"), grads="fused"),
    "groups": INT8.replace(
        wires=q.BFP(8, 4), weights=q.BFP(6, 4, **STOCHASTIC), grads=q.Sym(7, group=3)
    ),
    "asym": INT8.replace(input=q.Asym(8), wires=q.Asym(7), weights=q.Asym(8), state=q.Asym(6)),
    "4 bits": INT8.replace(weights=q.Sym(4, axis=0, **STOCHASTIC), errors=q.Sym(5)),
    "stochastic wires": INT8.replace(input=q.Sym(8, **STOCHASTIC), wires=q.Sym(8, **STOCHASTIC)),
    "fixed ranges": INT8.replace(wires=q.Sym(8, range=4.0), grads=q.Sym(8, range=1)),
    "integers stored, floats computed": q.Policy(
        weights=q.Sym(8, axis=0), bias=q.Sym(16), errors=q.Sym(8, **STOCHASTIC), grads=q.Sym(8)
    ),
    "floats stored, integers computed": q.Policy(
        forward="sym", weight_grad="sym", bias_grad="sym", prop="sym"
    ),
}
FUSED = [name for name, policy in POLICIES.items() if policy.grads == "fused"]
MOMENTUM = q.optim.SGD(0.1, momentum=0.9)


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(INPUTS, 9),
        nn.ReLU(),
        nn.Linear(9, 6, bias=False),
        nn.Quant(),
        nn.ReLU(),
        nn.Linear(6, CLASSES),
    )


def session(policy: str | q.Policy = "float32", **changes: Any) -> q.Session:
    given: dict[str, Any] = {
        "input_shape": (INPUTS,),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": MOMENTUM,
        "policy": POLICIES[policy] if isinstance(policy, str) else policy,
        "batch": BATCH,
        **changes,
    }
    return q.Session(q.compile(given.pop("model", None) or model(), **given))


def data(rows: int = BATCH, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, INPUTS)).astype(np.float32)
    return x, rng.integers(0, CLASSES, rows)


def train(net: q.Session, steps: int = 3, seed: int = 0) -> q.Session:
    for i in range(steps):
        net.step(*data(seed=1000 * seed + i))
    return net


def held(net: q.Session) -> dict[str, object]:
    """Every byte of parameters, state and gradients; steps and learning rate."""
    program = net.plan.program
    names = [*program.parameters, *(t.name for t in program.states.values())]
    found: dict[str, object] = {name: bytes(net.tensor(name).data) for name in names}
    for name in program.gradients:
        try:
            found[f"{name}:grad"] = bytes(net.grad(name).data)
        except q.QfwError:
            found[f"{name}:grad"] = None
    return {**found, "steps": net.steps, "lr": net.lr}
