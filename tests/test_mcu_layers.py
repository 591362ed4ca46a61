"""What a device does in its own way (windows, sums, codes at once) has the bits of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_runs import trained_here

import pyqfw as q
from pyqfw import nn, state
from pyqfw.graph import Add, Graph

DYNAMIC = q.Policy.int8()
FIXED = DYNAMIC.replace(
    wires=q.Sym(8, range=2.0), errors=q.Sym(8, range=0.1, rounding="stochastic"), grads="fused"
)
HINDSIGHT = DYNAMIC.replace(
    wires=q.Sym(8, range="hindsight"),
    errors=q.Sym(8, range="hindsight", rounding="stochastic"),
)
FUSED = DYNAMIC.replace(grads="fused")
ONE_SCALE = FIXED.replace(weights=q.Sym(8, rounding="stochastic"))


def head(*layers: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


def pools(pool: nn.Module, channels: int, features: int, quant: bool) -> nn.Module:
    between = (nn.Quant(),) if quant else ()
    return head(nn.Conv2d(2, channels, 1), *between, pool, features=features)


def added(*features: int) -> nn.Module:
    names = [f"x{i}" for i in range(len(features))]
    layers = [(name, nn.Linear(18, n)) for name, n in zip(names, features, strict=True)]
    calls = [(name, (-1,)) for name in names]
    calls += [("sum", tuple(range(len(names)))), ("out", (len(names),))]
    layers += [("sum", Add()), ("out", nn.Linear(features[0], 3))]  # type: ignore[list-item]
    return Graph(tuple(layers), tuple(calls))


def conv(channels: int, out: int, kernel: int, **how: Any) -> nn.Module:
    layer = nn.Conv2d(channels, out, kernel, **how)
    side = layer.out_shape((channels, 7, 6))
    return head(nn.Conv2d(2, channels, 1), nn.ReLU(), layer, features=int(np.prod(side)))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], q.Policy]] = {
    "max of codes": (lambda: pools(nn.MaxPool2d(2), 8, 72, True), (2, 6, 6), FIXED),
    "max of six channels": (lambda: pools(nn.MaxPool2d(2), 6, 54, True), (2, 6, 6), FIXED),
    "max 3x3 apart by 2": (
        lambda: pools(nn.MaxPool2d(3, stride=2), 4, 24, True),
        (2, 7, 6),
        HINDSIGHT,
    ),
    "max with padding": (
        lambda: pools(nn.MaxPool2d(3, stride=2, padding=1), 4, 48, True),
        (2, 7, 6),
        FIXED,
    ),
    "max of sums": (lambda: pools(nn.MaxPool2d(2), 5, 45, False), (2, 6, 6), FUSED),
    "max of lines of 4": (
        lambda: head(nn.Conv1d(2, 8, 3, padding=1), nn.ReLU(), nn.MaxPool1d(4), features=40),
        (2, 22),
        FUSED,
    ),
    "mean of codes": (lambda: pools(nn.AvgPool2d(2), 8, 72, True), (2, 6, 6), FIXED),
    "mean 3x2": (lambda: pools(nn.AvgPool2d((3, 2)), 4, 24, True), (2, 7, 6), HINDSIGHT),
    "mean of six channels": (lambda: pools(nn.AvgPool2d(2), 6, 54, True), (2, 6, 6), DYNAMIC),
    "sum of two": (lambda: added(21, 21), (18,), FIXED),
    "sum of two scales": (lambda: added(21, 21), (18,), DYNAMIC),
    "sum of three": (lambda: added(16, 16, 16), (18,), HINDSIGHT),
    "depthwise": (lambda: conv(8, 8, 3, padding=1, groups=8), (2, 7, 6), FIXED),
    "depthwise by 2": (lambda: conv(4, 4, 3, padding=1, stride=2, groups=4), (2, 7, 6), HINDSIGHT),
    "depthwise 5x5": (lambda: conv(4, 4, 5, padding=2, groups=4), (2, 7, 6), FUSED),
    "depthwise dilated": (
        lambda: conv(4, 4, 3, padding=2, dilation=2, groups=4),
        (2, 7, 6),
        FIXED,
    ),
    "depthwise of six": (lambda: conv(6, 6, 3, padding=1, groups=6), (2, 7, 6), FIXED),
    "3x3": (lambda: conv(5, 7, 3, padding=1), (2, 7, 6), FIXED),
    "3x3 by 2": (lambda: conv(3, 6, 3, padding=1, stride=2), (2, 7, 6), HINDSIGHT),
    "3x3 in groups": (lambda: conv(6, 8, 3, padding=1, groups=2), (2, 7, 6), FUSED),
    "3x3, one scale": (lambda: conv(5, 7, 3, padding=1), (2, 7, 6), ONE_SCALE),
    "one channel": (lambda: conv(1, 8, 3, padding=1), (2, 7, 6), FIXED),
    "rows": (lambda: nn.Sequential(nn.Linear(37, 19), nn.ReLU(), nn.Linear(19, 3)), (37,), FIXED),
}


@pytest.mark.parametrize("name", NETS)
def test_same_bits(name: str) -> None:
    model, shape, policy = NETS[name]
    net = q.Session(
        q.compile(
            model(),
            input_shape=shape,
            loss=nn.CrossEntropyLoss(),
            optimizer=q.optim.SGD(0.05),
            policy=policy,
            batch=3,
            seed=4,
        )
    )
    source = np.random.default_rng(6)
    x = source.standard_normal((12, *shape)).astype(np.float32)
    y = source.integers(0, 3, 12).astype(np.int32)
    run = q.mcu.run(net, x, y, target="cortex-m4", count_steps=0, progress=False)
    assert run.losses == trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)
    assert (run.net.predict(x[:2]) == net.predict(x[:2])).all()
