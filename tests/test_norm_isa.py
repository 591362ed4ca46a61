"""Normalisations have the bits of `portable` on every ISA, at every tail of channels and rows."""

from __future__ import annotations

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn, optim, quant

# Where there is none but portable, that one against itself: no test is skipped.
FAST = [isa for isa in quant.core_info()["isas"] if isa != "portable"] or ["portable"]
WIDE = q.Sym(16)
POLICIES = {
    "int8": q.Policy.int8(),
    "full_sym": q.Policy.full_sym(),
    "int16": q.Policy.full_sym().replace(input=WIDE, wires=WIDE, errors=WIDE),
}


def ran(isa: str, model: nn.Module, shape: tuple[int, ...], policy: q.Policy, rows: int) -> bytes:
    """What two steps leave, and a prediction; some channels are all zeros, some at the ends."""
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(2, rows, *shape)).astype(np.float32)
    x[:, :, ::5] = 0
    x[:, ::2, 1::7] = np.float32(100)
    x[:, 1::2, 1::7] = np.float32(-100)
    with quant.isa(isa):
        plan = q.compile(
            model,
            input_shape=shape,
            loss=nn.MSELoss(),
            optimizer=optim.SGD(0.1),
            policy=policy,
            batch=rows,
        )
        net = q.Session(plan)
        for part in x:
            net.step(part, rng.normal(size=(rows, 2)).astype(np.float32))
        return bytes(net._spaces.lasting()) + net.predict(x[0]).tobytes()


def chain(norm: nn.Module, size: int) -> nn.Sequential:
    return nn.Sequential(norm, nn.Flatten(), nn.Linear(size, 2))


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_tail(isa, policy):
    """Channels of a batch; rows of a LayerNorm; groups over positions."""
    given = POLICIES[policy]
    for n in [*range(1, 38), 63, 64, 65, 70]:
        cases = [
            (lambda n=n: nn.BatchNorm1d(n), (n, 2), 3),
            (lambda n=n: nn.LayerNorm(n), (n,), 3),
            (lambda n=n: nn.GroupNorm(1, n), (n, 3), 2),
            (lambda n=n: nn.GroupNorm(n, 2 * n), (2 * n, 5), 2),
        ]
        for make, shape, rows in cases:
            size = int(np.prod(shape))
            found = [
                ran(which, chain(make(), size), shape, given, rows) for which in ("portable", isa)
            ]
            assert found[0] == found[1], (n, shape)
