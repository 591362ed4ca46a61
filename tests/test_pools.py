"""Pools in networks: every operation against the oracle, and what lowering makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle_tensor import Array
from pool_walk import walk
from session_helpers import POLICIES as COMMON
from session_helpers import STOCHASTIC, held

import pyqfw as q
from pyqfw import nn

INT8 = q.Policy.int8()
POLICIES = {
    **COMMON,
    "packed": INT8.replace(wires=q.Sym(5), errors=q.Sym(6, **STOCHASTIC)),
    "asym errors": INT8.replace(wires=q.Asym(8), errors=q.Asym(8, **STOCHASTIC)),
    "asym of 16 bits": INT8.replace(wires=q.Asym(16), errors=q.Asym(16)),
    "power of two": INT8.replace(
        wires=q.Sym(8, scale="pow2"), errors=q.Sym(8, scale="pow2", **STOCHASTIC)
    ),
    "fixed errors": INT8.replace(errors=q.Sym(8, range=0.5, **STOCHASTIC)),
    "hindsight": INT8.replace(
        wires=q.Sym(8, range="hindsight"), errors=q.Sym(8, range="hindsight", **STOCHASTIC)
    ),
    "hindsight fused": INT8.replace(wires=q.Sym(8, range="hindsight"), grads="fused"),
    "int16 in containers": INT8.replace(
        wires=q.Sym(8, container=16), errors=q.Sym(9, container=32)
    ),
}


class Fork(nn.Module):
    """A value that two pools read, whose results lie side by side, beside a way around them."""

    def __init__(self) -> None:
        self.conv, self.relu = nn.Conv1d(2, 4, 3, padding=1), nn.ReLU()
        self.max, self.avg = nn.MaxPool1d(2), nn.AvgPool1d(3, 2)
        self.join, self.head = nn.Concat(), nn.Conv1d(8, 4, 1)
        self.short, self.even, self.last = nn.MaxPool1d(3, 2), nn.AdaptiveAvgPool1d(3), nn.Flatten()
        self.out = nn.Linear(12, 3)

    def forward(self, x: Any) -> Any:
        x = self.relu(self.conv(x))
        both = self.head(self.join(self.max(x), self.avg(x)))
        return self.out(self.last(self.even(both + self.short(x))))


def chain() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(3, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(5, 6, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def overlapping() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 3, 1),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(18, 3),
    )


def codes() -> nn.Module:
    """What is stored before it is pooled, with ends that hang over and odd divisors."""
    return nn.Sequential(
        nn.AvgPool1d(2, 1),
        nn.MaxPool1d(3, 1, 1),
        nn.Conv1d(3, 4, 3),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.MaxPool1d(2, ceil_mode=True),
        nn.Quant(),
        nn.ReLU(),
        nn.AvgPool1d(2, 2, 1, ceil_mode=True, count_include_pad=False),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def ends() -> nn.Module:
    """A pool is the last layer, after one of sums that are joined."""
    return nn.Sequential(
        nn.Residual(nn.Conv2d(2, 2, 3, padding=1)),
        nn.ReLU(),
        nn.MaxPool2d((2, 1)),
        nn.LayerNorm(4),
        nn.MaxPool2d(2, 1, dilation=(1, 2)),
        nn.Conv2d(2, 2, 1),
        nn.AvgPool2d((2, 1), divisor_override=3),
    )


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "chain": (chain, (3, 12)),
    "overlapping": (overlapping, (2, 6, 7)),
    "codes": (codes, (3, 10)),
    "ends": (ends, (2, 6, 4)),
    "fork": (Fork, (2, 9)),
}
ROWS = 3


def compiled(net: str, policy: q.Policy, **changes: Any) -> q.Plan:
    model, shape = NETS[net]
    given: dict[str, Any] = {
        "input_shape": shape,
        "loss": nn.MSELoss() if net == "ends" else nn.CrossEntropyLoss(),
        "optimizer": q.optim.SGD(0.05),
        "policy": policy,
        "batch": ROWS,
        "seed": 3,
        **changes,
    }
    return q.compile(model(), **given)


def data(net: str, seed: int, rows: int = ROWS) -> tuple[Array, Array]:
    model, shape = NETS[net]
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, *shape)).astype(np.float32)
    out = model().out_shape(shape)
    if net == "ends":
        return x, rng.normal(size=(rows, *out)).astype(np.float32)
    return x, rng.integers(0, out[0], rows).astype(np.int32)


def pairs(*policies: str) -> list[tuple[str, str]]:
    """Nets under policies; a hindsight range needs one scale, which a LayerNorm's sums have not."""
    found = [(net, p) for net in NETS for p in policies]
    return [(net, p) for net, p in found if net != "ends" or not p.startswith("hindsight")]


@pytest.mark.parametrize(("net", "policy"), pairs(*POLICIES))
def test_every_pool_of_a_step_is_the_oracles(net: str, policy: str) -> None:
    plan = compiled(net, POLICIES[policy])
    one, two = q.Session(plan), q.Session(plan)
    for step in range(2):
        x, y = data(net, step, ROWS - step)
        seen = walk(one, x, y)
        two.step(x, y)
        assert held(one) == held(two)
        fused = sum(op.kernel == "product_pool_s32" for op in plan.ops)
        assert sum(seen.values()) + fused >= 4
    x, _ = data(net, 9, 5)
    alone = np.concatenate([one.predict(row[None]) for row in x])
    assert one.predict(x).tobytes() == alone.tobytes()


@pytest.mark.parametrize(("net", "policy"), pairs("full_sym", "int8", "hindsight", "packed"))
def test_micro_batches(net: str, policy: str) -> None:
    plan = compiled(net, POLICIES[policy], batch=5, micro_batches=2)
    one, two = q.Session(plan), q.Session(plan)
    x, y = data(net, 4, 5)
    walk(one, x, y)
    two.step(x, y)
    assert held(one) == held(two)


@pytest.mark.parametrize(("net", "policy"), pairs("float32", "int8", "full_sym", "hindsight"))
def test_inference_alone_gives_what_predict_gives(net: str, policy: str) -> None:
    trained = q.Session(compiled(net, POLICIES[policy]))
    trained.step(*data(net, 0))
    x, _ = data(net, 1)
    alone = trained.recompile(loss=None, optimizer=None)
    assert alone.predict(x).tobytes() == trained.predict(x).tobytes()
    assert not any(t.numbers.kind == "pick" for t in alone.plan.program.tensors)


@pytest.mark.parametrize("policy", ["full_sym", "asym of 16 bits"])
@pytest.mark.parametrize("net", NETS)
def test_gradients_are_near_those_of_the_float_twin(net: str, policy: str) -> None:
    """Wide formats through the same lowering: each gradient within 4 % of float32's, norm-wise."""
    if policy == "full_sym":
        wide = {"input": q.Sym(16), "wires": q.Sym(16), "errors": q.Sym(16), "weights": q.Sym(16)}
    else:
        wide = {"input": q.Sym(16), "wires": q.Asym(16), "errors": q.Asym(16), "weights": q.Sym(16)}
    chosen = q.Policy.full_sym().replace(**wide)
    nets = [q.Session(compiled(net, p)) for p in (q.Policy.float32(), chosen)]
    x, y = data(net, 5)
    if net == "codes":  # the same draws
        assert nets[0].plan.seed == nets[1].plan.seed
    for n in nets:
        n.forward(x)
        n.backward(y)
    for name in nets[0].state_dict():
        a, b = (n.grad(name).numpy().astype(np.float64) for n in nets)
        assert np.linalg.norm(a - b) <= 0.04 * np.linalg.norm(a), name
