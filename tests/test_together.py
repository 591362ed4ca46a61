"""Layers, losses, optimizers, micro-batches and ranges in one net, beside the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from step_helpers import Case, same_kept, same_step

import pyqfw as q
from pyqfw import nn, optim

RANDOM = {"rounding": "stochastic"}
HINDSIGHT = q.Sym(8, range="hindsight")
POLICIES = {
    "float32": q.Policy.float32(),
    "full_sym": q.Policy.full_sym(),
    "int8": q.Policy.int8(),
    "groups": q.Policy.int8().replace(wires=q.BFP(7, 3), grads=q.Asym(6, group=4, **RANDOM)),
}
OPTIMIZERS = {
    "momentum": optim.SGD(0.1, momentum=0.9, weight_decay=0.01),
    "clipped": optim.SGD(0.1, max_grad_norm=0.5, groups={"l0": {"lr": 0.03}}),
    "adamw": optim.AdamW(0.01, max_grad_norm=1.0),
}
LAYERS = [
    ("linear", "l0", 5, 9, True),
    ("norm", "n0", (9,), 1e-5, True, True),
    ("leaky", "a0", 0.1),
    ("dropout", "d0", 0.3),
    ("linear", "l1", 9, 7, True),
    ("relu6", "x0"),
    ("tanh", "x1"),
    ("linear", "l3", 7, 7, True),
    ("sigmoid", "x2"),
    ("softmax", "s0", -1),
    ("linear", "l2", 7, 4, True),
]
WEIGHTED = nn.CrossEntropyLoss((1.0, 0.5, 2.0, 1.5), label_smoothing=0.1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", POLICIES)
def test_steps(name: str, optimizer: str) -> None:
    Case(LAYERS, POLICIES[name], OPTIMIZERS[optimizer], loss=WEIGHTED).check()


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("loss", [None, WEIGHTED], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", POLICIES)
def test_micro_batches(name: str, loss: nn.Loss | None, parts: int) -> None:
    """Two or three parts of a step, by hand and at once: the oracle's bytes."""
    options = {"loss": loss} if loss is not None else {}
    case = Case(LAYERS, POLICIES[name], OPTIMIZERS["clipped"], micro_batches=parts, **options)
    net, session = case.net(), q.Session(case.plan())
    for x, y in case.data():
        assert np.float32(session.step(x, y)).tobytes() == net.step(x, y).tobytes()
        same_kept(net, session)


@pytest.mark.parametrize("parts", [1, 2])
def test_hindsight_ranges(parts: int) -> None:
    """Gains of the first micro-batch, then of steps."""
    layers = [("linear", "l0", 5, 9, True), ("relu", "r0"), ("linear", "l1", 9, 4, True)]
    policy = q.Policy.int8().replace(wires=HINDSIGHT, errors=q.Sym(8, range="hindsight", **RANDOM))
    case = Case(layers, policy, OPTIMIZERS["adamw"], micro_batches=parts)
    net, session = case.net(), q.Session(case.plan())
    for x, y in case.data():
        if parts == 1:
            same_step(net, session, x, y)
        else:
            assert np.float32(session.step(x, y)).tobytes() == net.step(x, y).tobytes()
        same_kept(net, session)


def test_counters_see_all_of_it() -> None:
    case = Case(LAYERS, POLICIES["int8"], OPTIMIZERS["adamw"], loss=WEIGHTED, micro_batches=2)
    counted, plain = q.Session(case.plan(), counters=True), q.Session(case.plan())
    for x, y in case.data():
        assert counted.step(x, y) == plain.step(x, y)
    assert bytes(counted._spaces.lasting()) == bytes(plain._spaces.lasting())
    assert counted.counters()["n0.weight"].asked > 0


def test_a_save_waits_for_the_update(tmp_path) -> None:
    case = Case(LAYERS, POLICIES["int8"], OPTIMIZERS["adamw"], micro_batches=2)
    net = q.Session(case.plan())
    x, y = next(case.data())
    net.forward(x[:2])
    net.backward(y[:2])
    with pytest.raises(q.QfwError, match=r"save: gradients of micro-batches wait"):
        net.save(tmp_path / "net.safetensors")
    net.update()
    net.save(tmp_path / "net.safetensors")
    again = q.Session.load(tmp_path / "net.safetensors")
    for more in case.data():
        assert net.step(*more) == again.step(*more)
    same = [bytes(n.tensor(t).data) for n in (net, again) for t in ("l0.weight", "n0.weight")]
    assert same[:2] == same[2:]
