"""Layers by themselves, forward and backward, beside torch's in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from . import bench, nn, optim
from .bench import Case
from .plan import compile as compile_plan
from .policy import Policy
from .session import Session

BATCH = 32
LR = 0.01
POLICIES = {"int8()": Policy.int8, "float32()": Policy.float32}

NOTES = (
    "A training step of one layer with a mean squared error: forward, error, gradients and plain "
    f"SGD, batch {BATCH}; session.step(x, y) beside torch float32's zero_grad, forward, loss, "
    "backward and step.",
    bench.LIMIT,
)


@dataclass(frozen=True)
class Layer:
    title: str
    input_shape: tuple[int, ...]
    layers: Callable[[Any], list[Any]]  # of our nn or torch's


def _then(make: Callable[[Any], Any], channels: int) -> Callable[[Any], list[Any]]:
    """A layer without parameters after one that has some, for there must be something to learn."""
    return lambda nn: [nn.Conv2d(channels, channels, 1), make(nn)]


LAYERS = (
    Layer("Linear 256-64", (256,), lambda nn: [nn.Linear(256, 64)]),
    Layer("Conv1d 9-16, 5 on 128", (9, 128), lambda nn: [nn.Conv1d(9, 16, 5)]),
    Layer("Conv2d 8-16, 3x3 on 16x16", (8, 16, 16), lambda nn: [nn.Conv2d(8, 16, 3)]),
    Layer(
        "Conv2d 16, 3x3 depthwise on 16x16",
        (16, 16, 16),
        lambda nn: [nn.Conv2d(16, 16, 3, groups=16)],
    ),
    Layer(
        "ConvTranspose1d 16-8, 4 stride 2 on 64",
        (16, 64),
        lambda nn: [nn.ConvTranspose1d(16, 8, 4, stride=2)],
    ),
    Layer(
        "Conv2d 1x1, MaxPool2d 2 on 16x16x16",
        (16, 16, 16),
        _then(lambda nn: nn.MaxPool2d(2), 16),
    ),
    Layer(
        "Conv2d 1x1, AvgPool2d 2 on 16x16x16",
        (16, 16, 16),
        _then(lambda nn: nn.AvgPool2d(2), 16),
    ),
    Layer("LayerNorm 256", (256,), lambda nn: [nn.LayerNorm(256)]),
    Layer("BatchNorm2d 16 on 16x16", (16, 16, 16), lambda nn: [nn.BatchNorm2d(16)]),
)


def suite() -> bench.Suite:
    """The suite `layers`."""
    return bench.Suite(
        name="layers",
        cases=cases(),
        setting={"batch": BATCH, "lr": LR},
        title=f"layers, batch {BATCH}",
        notes=NOTES,
        without_torch="torch is not installed: there is no peer here.",
    )


def cases() -> Iterator[Case]:
    torch = bench.optional("torch")
    for layer in LAYERS:
        for policy in POLICIES:
            yield _case(layer, policy, torch)


def _case(layer: Layer, policy: str, torch: Any) -> Case:
    plan = compile_plan(
        nn.Sequential(*layer.layers(nn)),
        input_shape=layer.input_shape,
        loss=nn.MSELoss(),
        optimizer=optim.SGD(lr=LR),
        policy=POLICIES[policy](),
        batch=BATCH,
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, *layer.input_shape), dtype=np.float32)
    y = rng.standard_normal((BATCH, *plan.nodes[-1].out_shape), dtype=np.float32)
    case = partial(
        Case,
        *(f"{layer.title}, {policy}", partial(Session(plan).step, x, y), BATCH, "samples/s"),
        macs=plan.macs * BATCH,
        bits=bench.BITS[policy],
    )
    if not torch:
        return case()
    return case(peer="torch", peer_run=_torch_run(torch, layer, x, y))


def _torch_run(torch: Any, layer: Layer, x: Any, y: Any) -> bench.Run:
    model = torch.nn.Sequential(*layer.layers(torch.nn))
    loss = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)

    def run() -> None:
        optimizer.zero_grad()
        loss(model(tx), ty).backward()
        optimizer.step()

    return run
