"""Steps with convolutions have the bits of `portable` on every ISA, at every number of channels."""

from __future__ import annotations

import numpy as np
import pytest
from conv_cases import GEOMETRIES, between
from step_helpers import Case, policy
from test_isa_step import FAST, lasting

import pyqfw as q
from pyqfw import Sym, nn, optim, quant

WIDE = Sym(12, container=16)
POLICIES = {  # widths of wires and errors, and of weights
    "int8": q.Policy.int8(),
    "16 x 8": q.Policy.full_sym(),
    "8 x 16": q.Policy.int8().replace(weights=Sym(12, container=16, axis=0)),
    "16 x 16": policy(WIDE, weights=Sym(10, container=16), bias=WIDE, grads=WIDE, state=WIDE),
    "errors of 16": q.Policy.int8().replace(errors=WIDE),
    "float32": q.Policy.float32(),
    "hindsight": q.Policy.int8().replace(wires=Sym(8, range="hindsight"), grads="fused"),
}


def run(isa: str, model: nn.Module, shape: tuple[int, ...], name: str, batch: int) -> bytes:
    """Everything that two steps leave, and predictions."""
    rng = np.random.default_rng(batch)
    given = {"loss": nn.CrossEntropyLoss(), "optimizer": optim.SGD(0.1, momentum=0.9)}
    with quant.isa(isa):
        plan = q.compile(model, input_shape=shape, policy=POLICIES[name], batch=batch, **given)
        net = q.Session(plan)
        classes = plan.nodes[-1].out_shape[0]
        for _ in range(2):
            x = rng.standard_normal((batch, *shape)).astype(np.float32)
            x[..., ::3] = 0.0
            net.step(x, rng.integers(0, classes, batch))
        return lasting(net) + net.predict(x).tobytes()


def depthwise(n: int) -> nn.Sequential:
    """n channels, each by itself, forward and back; and as many side by side."""
    return nn.Sequential(
        nn.Conv1d(2, n, 1),
        nn.Conv1d(n, n, 3, padding=1, groups=n),
        nn.ReLU(),
        nn.ConvTranspose1d(n, n, 2, stride=2, groups=n),
        nn.Flatten(),
        nn.Linear(n * 10, 3),
    )


def dense(n: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(2, n, 1),
        nn.Conv1d(n, 1 + n % 19, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose1d(1 + n % 19, n, 2, stride=2),
        nn.Flatten(),
        nn.Linear(n * 10, 3),
    )


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("model", [depthwise, dense])
@pytest.mark.parametrize("name", POLICIES)
def test_every_number_of_channels(isa: str, name: str, model: object) -> None:
    for n in range(1, 71):
        args = ((2, 5), name, 1 + n % 9)
        assert run(isa, model(n), *args) == run("portable", model(n), *args), n  # type: ignore[operator]


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", POLICIES)
def test_every_geometry(isa: str, name: str) -> None:
    for geometry in GEOMETRIES:
        shape, layers = between(geometry)
        model = Case(layers, POLICIES[name], shape=shape).model()
        for batch in (1, 9):
            found = [run(i, model, shape, name, batch) for i in (isa, "portable")]
            assert found[0] == found[1], (geometry, batch)


class Joined(nn.Module):
    """Sums and values side by side, of n channels."""

    def __init__(self, n: int) -> None:
        self.a, self.b = nn.Conv1d(2, n, 1), nn.Conv1d(n, n, 3, padding=1)
        self.cat, self.flat = nn.Concat(), nn.Flatten()
        self.out = nn.Linear(n * 10, 3)

    def forward(self, x: object) -> object:
        x = self.a(x)
        y = self.b(x)
        return self.out(self.flat(self.cat(x + y, x)))


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", POLICIES)
def test_joins(isa: str, name: str) -> None:
    for n in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40):
        args = ((2, 5), name, 1 + n % 9)
        assert run(isa, Joined(n), *args) == run("portable", Joined(n), *args), n
