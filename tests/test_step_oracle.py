"""A Session is the oracle's Net, bit for bit: networks, optimizers, short batches, instruction sets."""

import pytest
from step_helpers import Case, mlp

import pyqfw as q
from pyqfw import optim

POLICIES = {p: getattr(q.Policy, p)() for p in ("float32", "full_sym", "int8")}
RULES = {
    "plain": optim.SGD(0.1),
    "momentum": optim.SGD(0.05, momentum=0.9),
    "nesterov": optim.SGD(0.05, momentum=0.9, nesterov=True),
    "decay": optim.SGD(0.1, weight_decay=0.01),
    "all": optim.SGD(0.05, momentum=0.8, dampening=0.3, weight_decay=0.02),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("rule", RULES)
def test_mlp(name, rule):
    Case(mlp(64, 32, 10), POLICIES[name], RULES[rule], batch=32, rows=(32,) * 4 + (7,)).check()
