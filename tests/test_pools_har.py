"""The CNN for activity recognition as a whole: its memory at one row, its steps, its learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle_tensor import Array
from pool_walk import walk
from session_helpers import STOCHASTIC, held

import pyqfw as q
from pyqfw import nn

FUSED = q.Policy.int8().replace(grads="fused")
HINDSIGHT = FUSED.replace(
    wires=q.Sym(8, range="hindsight"), errors=q.Sym(8, range="hindsight", **STOCHASTIC)
)


def har() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(9, 16, 7, padding=3),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, 6),
    )


def plan_of(policy: q.Policy, batch: int, **changes: Any) -> q.Plan:
    given: dict[str, Any] = {
        "loss": nn.CrossEntropyLoss(),
        "optimizer": q.optim.SGD(0.05),
        **changes,
    }
    return q.compile(har(), input_shape=(9, 128), policy=policy, batch=batch, **given)


def waves(rows: int, seed: int) -> tuple[Array, Array]:
    """Six classes that differ in frequency."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 6, rows)
    t, phase = np.arange(128) / 128, rng.uniform(0, 2 * np.pi, (rows, 9, 1))
    x = np.sin(2 * np.pi * (2 + 3 * y)[:, None, None] * t + phase)
    return (x + 0.3 * rng.normal(size=x.shape)).astype(np.float32), y


KIB = 1024


@pytest.mark.parametrize(
    ("policy", "most", "pools"), [(FUSED, 24 * KIB, 2), (HINDSIGHT, 19 * KIB, 0)]
)
def test_a_step_of_one_row_fits_a_small_device(policy: q.Policy, most: int, pools: int) -> None:
    """With hindsight ranges convolutions pool their sums themselves."""
    plan = plan_of(policy, 1)
    assert plan.arena_bytes <= most
    assert plan.memory()["peak"] <= plan.arena_bytes
    one, two = q.Session(plan), q.Session(plan)
    for seed in range(2):
        x, y = waves(1, seed)
        assert walk(one, x, y) == {
            **({"max_pool raw": pools} if pools else {}),
            "max_pool_back stored": 2,
            "avg_pool_s32 raw": 1,
            "avg_pool_back_s32 stored": 1,
        }
        two.step(x, y)
        assert held(one) == held(two)


@pytest.mark.parametrize("policy", [q.Policy.float32(), q.Policy.full_sym(), q.Policy.int8()])
def test_it_learns(policy: q.Policy) -> None:
    net = q.Session(plan_of(policy, 32, optimizer=q.optim.SGD(0.05, momentum=0.9)))
    x, y = waves(256, 0)
    q.fit(net, x, y, epochs=30, progress=False)
    score = q.evaluate(net, *waves(96, 1))
    assert score["accuracy"] > 0.95


def head_only() -> nn.Sequential:
    model = har()
    for layer in model[:-1]:
        layer.requires_grad_(False)
    return model


def test_the_head_alone_fits_a_smaller_one() -> None:
    """Frozen layers are constants, and leave their wires in hindsight ranges."""
    net = q.Session(plan_of(HINDSIGHT, 1)).recompile(train=["10"])
    assert net.plan.arena_bytes <= 6000
    assert {t.space for t in net.plan.program.parameters.values()} == {"arena", "const"}
    x, y = waves(1, 0)
    before = {name: bytes(net.tensor(name).data) for name in net.state_dict()}
    net.step(x, y)
    moved = {name for name, data in before.items() if bytes(net.tensor(name).data) != data}
    assert moved == {"10.weight", "10.bias"}


def test_frozen_layers_own_nothing_and_nothing_below_the_head_is_computed() -> None:
    momentum = q.optim.SGD(0.05, momentum=0.9)
    given: dict[str, Any] = {"loss": nn.CrossEntropyLoss(), "optimizer": momentum}
    given |= {"policy": q.Policy.int8(), "input_shape": (9, 128), "batch": 1}
    plans = [q.compile(model, **given) for model in (har(), head_only())]
    moving = [sum(p.memory()[r] for r in ("gradients", "state", "errors")) for p in plans]
    assert moving[1] <= 0.05 * moving[0]
    head = plans[1]
    assert {t.name for t in head.program.gradients.values()} == {
        "10.weight:grad",
        "10.bias:grad",
    }
    assert {name.split(":")[0] for name in head.program.states} == {"10.weight", "10.bias"}
    for name, t in head.program.parameters.items():
        assert t.space == ("arena" if name.startswith("10.") else "const"), name
    back = [op for op in head.ops if op.kernel.endswith("_back") or "dX" in op.places[0].name]
    assert back == []
    layers = {t.name.split(":")[0] for op in head.ops for t in op.written if t.role == "error"}
    assert layers <= {"10", "loss"}
    net = q.Session(head)
    before = {name: bytes(net.tensor(name).data) for name in net.state_dict()}
    net.step(*waves(1, 0))
    frozen = {name for name, data in before.items() if bytes(net.tensor(name).data) == data}
    assert frozen == {name for name in before if not name.startswith("10.")}


@pytest.mark.parametrize("policy", [q.Policy.float32(), q.Policy.full_sym(), q.Policy.int8()])
def test_a_plan_is_read_on_two_screens(policy: q.Policy) -> None:
    lines = str(plan_of(policy, 1)).splitlines()
    assert len(lines) <= 2 * 40
    memory = lines[lines.index("memory, bytes") :]
    for what in ("parameters", "gradients", "wires", "errors", "scratch", "arena", "peak"):
        assert any(line.split()[:1] == [what] for line in memory), what
