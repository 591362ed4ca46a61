"""Networks that train on every core: an MLP, LayerNorm, convolutions in one and two dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import pyqfw as q
from pyqfw import nn

Array = np.ndarray[Any, Any]
STEPS = 20


class Kind(NamedTuple):
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    loss: nn.Loss = nn.CrossEntropyLoss()
    batch: int = 1


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def chain() -> nn.Module:
    parts = (nn.Linear(64, 64), nn.Quant(), nn.LayerNorm(64), nn.Quant(), nn.Linear(64, 10))
    return nn.Sequential(*parts)


def har() -> nn.Module:
    """The activity-recognition network of 10 214 parameters."""
    return nn.Sequential(
        *(nn.Conv1d(9, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1)),
        *(nn.Flatten(), nn.Linear(64, 6)),
    )


def autoencoder() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(1, 8, 5, stride=2, padding=2), nn.ReLU()),
        *(nn.Conv1d(8, 4, 5, stride=2, padding=2), nn.ReLU()),
        *(nn.ConvTranspose1d(4, 8, 4, stride=2, padding=1), nn.ReLU()),
        nn.ConvTranspose1d(8, 1, 4, stride=2, padding=1),
    )


def depthwise() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 12, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10)),
    )


KINDS = {
    "mlp": Kind(mlp, (64,)),
    "chain": Kind(chain, (64,), batch=4),
    "har": Kind(har, (9, 128)),
    "autoencoder": Kind(autoencoder, (1, 64), nn.MSELoss()),
    "depthwise": Kind(depthwise, (1, 12, 12), batch=2),
}
POLICIES = {
    "float32": q.Policy.float32(),
    "full_sym": q.Policy.full_sym(),
    "int8": q.Policy.int8().replace(grads="fused"),
}


def session(kind: str, policy: str) -> q.Session:
    """A network under a policy; int8 gradients are fused and plain, the others have momentum."""
    k = KINDS[kind]
    momentum = 0.0 if policy == "int8" else 0.9
    return q.Session(
        q.compile(
            k.model(),
            input_shape=k.shape,
            loss=k.loss,
            optimizer=q.optim.SGD(0.02, momentum=momentum),
            policy=POLICIES[policy],
            batch=k.batch,
            seed=3,
        )
    )


def data(kind: str) -> tuple[Array, Array]:
    """Rows and labels or targets for STEPS steps of full batches."""
    k = KINDS[kind]
    source = np.random.default_rng(5)
    x = source.standard_normal((STEPS * k.batch, *k.shape)).astype(np.float32)
    if isinstance(k.loss, nn.MSELoss):
        return x, x
    classes = 6 if kind == "har" else 10
    return x, source.integers(0, classes, len(x)).astype(np.int32)
