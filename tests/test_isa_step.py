"""A training step has the bits of `portable` on every ISA, at every tail length of every kernel."""

from __future__ import annotations

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn, quant

FAST = [isa for isa in quant.core_info()["isas"] if isa != "portable"] or ["portable"]
POLICIES = {
    "int8": q.Policy.int8(),
    "fused": q.Policy.int8().replace(grads="fused"),
    "full_sym": q.Policy.full_sym(),
    "float32": q.Policy.float32(),
    "half_away": q.Policy.int8().replace(state=q.Sym(8, axis=0), grads=q.Sym(8, axis=0)),
}


def lasting(net: q.Session) -> bytes:
    """Every parameter, gradient and state, byte for byte."""
    names = list(net.plan.program.parameters)
    states = [t.name for t in net.plan.program.states.values()]
    found = [bytes(net.tensor(name).data) for name in (*names, *states)]
    return b"".join(found + [bytes(net.grad(name).data) for name in net.plan.program.gradients])


def run(
    isa: str,
    policy: q.Policy,
    sizes: tuple[int, int, int],
    sgd: q.optim.SGD,
    batch: int,
    steps: int,
) -> tuple[bytes, list[float], bytes]:
    """Parameters, losses and predictions after a few steps on one ISA."""
    rng = np.random.default_rng(sum(sizes))
    model = nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2]))
    with quant.isa(isa):
        plan = q.compile(
            model,
            input_shape=(sizes[0],),
            loss=nn.CrossEntropyLoss(),
            optimizer=sgd,
            policy=policy,
            batch=batch,
        )
        net = q.Session(plan)
        losses = []
        for _ in range(steps):
            x = rng.standard_normal((batch, sizes[0])).astype(np.float32)
            x[:, ::3] = 0.0
            losses.append(net.step(x, rng.integers(0, sizes[2], batch)))
        return lasting(net), losses, net.predict(x).tobytes()


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", POLICIES)
def test_every_tail(isa: str, name: str) -> None:
    policy, sgd = POLICIES[name], q.optim.SGD(lr=0.1, momentum=0.9)
    for n in range(1, 71):
        args = (policy, (n, 1 + n % 37, 2 + n % 5), sgd, 1 + n % 6, 2)
        assert run(isa, *args) == run("portable", *args), n


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_tail_of_one_row(isa: str, name: str, momentum: float) -> None:
    policy, sgd = POLICIES[name], q.optim.SGD(lr=0.02, momentum=momentum)
    for n in [*range(1, 40), *range(60, 70), 127, 128, 129, 200, 513, 784]:
        args = (policy, (n, 5 + n % 29, 3), sgd, 1, 3)
        assert run(isa, *args) == run("portable", *args), n


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("batch", [1, 9, 33])
def test_larger_nets(isa: str, name: str, batch: int) -> None:
    for sgd in (
        q.optim.SGD(lr=0.05),
        q.optim.SGD(lr=0.05, momentum=0.9, nesterov=True),
        q.optim.SGD(lr=0.05, momentum=0.9, weight_decay=1e-2, dampening=0.1),
        q.optim.SGD(lr=50.0, momentum=0.5),  # terms that reach their clamp, codes that saturate
        q.optim.SGD(lr=0.05, momentum=0.9, rounding="half_even"),
    ):
        args = (POLICIES[name], (197, 67, 11), sgd, batch, 3)
        if sgd.lr == 50.0 and name == "float32":
            continue  # diverges
        assert run(isa, *args) == run("portable", *args), sgd


@pytest.mark.parametrize("isa", FAST)
def test_stochastic_quotients_next_to_an_integer(isa: str) -> None:
    """x / s + u / 2^32 on the integer, and one float to either side of where that is."""
    n = 1 << 16
    u = quant.uniforms(n, seed=5)
    exact = np.flatnonzero(u & 0xFF == 0)  # 1 - u / 2^32 is a float32
    x = np.zeros(n, np.float32)
    x[exact] = 1.0 - u[exact] / 2.0**32
    assert len(exact) > 100
    for s in (1.0, 0.75, 2.0**-20):
        for step, expected in ((0.0, 1), (-1.0, 0)):
            at = np.nextafter(x, np.float32(step)) if step else x
            with quant.isa(isa):
                found = q.quantize(
                    at * np.float32(s),
                    q.Sym(12, container=16),
                    scale=s,
                    seed=5,
                    rounding="stochastic",
                )
            with quant.isa("portable"):
                defined = q.quantize(
                    at * np.float32(s),
                    q.Sym(12, container=16),
                    scale=s,
                    seed=5,
                    rounding="stochastic",
                )
            assert np.array_equal(found.codes, defined.codes)
            if s != 0.75:  # the product with s is exact
                assert np.all(found.codes[exact] == expected)
