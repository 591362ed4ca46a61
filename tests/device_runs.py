"""Training on an emulated device beside this machine."""

from __future__ import annotations

import device_nets

import pyqfw as q
from pyqfw import mcu, state
from pyqfw._batches import permutation


def trained_here(net: q.Session, x: device_nets.Array, y: device_nets.Array) -> list[float]:
    """What `run` does, on this machine."""
    order = permutation(len(x), net.plan.seed, net.epochs)
    batch = net.plan.batch
    parts = (order[i : i + batch] for i in range(0, len(x), batch))
    return [net.step(x[rows], y[rows]) for rows in parts]


def check_same(kind: str, policy: str, target: str, backend: mcu.Backend) -> mcu.Run:
    """Trains there and here; the device's run."""
    net = device_nets.session(kind, policy)
    x, y = device_nets.data(kind)
    counted = 1
    if (kind, policy) == ("har", "float32"):  # a hundred million instructions a step without FPU
        x, y, counted = x[:3], y[:3], 0
    before = state.of(net)
    run = q.mcu.run(net, x, y, target=target, backend=backend, count_steps=counted, progress=False)
    assert state.of(net) == before
    assert run.losses == trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)
    assert (run.net.predict(x[:2]) == net.predict(x[:2])).all()
    return run
