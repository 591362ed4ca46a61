"""The first step of the chain in integers is as near its float twin as docs/numerics.md section 28
says: every term of that section, computed from the twin's values and the scales that were used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn

N, CLASSES, ROWS, LR = 64, 10, 32, 0.05
SLACK = 1e-5  # of every norm: float32's own roundings, in the twin and in scales
Array = Any


def chain() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(N, N), nn.Quant(), nn.LayerNorm(N), nn.Quant(), nn.Linear(N, CLASSES))
    )


def norms(x: Array) -> Array:
    """Of each row."""
    return np.linalg.norm(x, axis=1)


@dataclass
class Twin:
    """The float chain in float64: values of the forward, errors, gradients."""

    w: dict[str, Array]
    x: Array
    y: Array

    def __post_init__(self) -> None:
        w, rows = self.w, len(self.x)
        self.z = self.x @ w["0.weight"].T + w["0.bias"]
        c = self.z - self.z.mean(1, keepdims=True)
        self.sigma = np.sqrt((c * c).mean(1) + 1e-5)
        self.normal = c / self.sigma[:, None]
        self.logits = self.normal @ w["4.weight"].T + w["4.bias"]
        p = np.exp(self.logits - self.logits.max(1, keepdims=True))
        self.e = (p / p.sum(1, keepdims=True) - np.eye(CLASSES)[self.y]) / rows
        self.g = self.e @ w["4.weight"]
        along = (self.g * self.normal).mean(1, keepdims=True)
        self.dz = (self.g - self.g.mean(1, keepdims=True) - self.normal * along) / self.sigma[
            :, None
        ]
        self.grads = {
            "0.weight": self.dz.T @ self.x,
            "0.bias": self.dz.sum(0),
            "2.weight": (self.g * self.normal).sum(0),
            "2.bias": self.g.sum(0),
            "4.weight": self.e.T @ self.normal,
            "4.bias": self.e.sum(0),
        }
        self.contributions = {  # of the rows, whatever cancels
            "0.weight": norms(self.dz) @ norms(self.x),
            "0.bias": norms(self.dz).sum(),
            "2.weight": norms(self.g * self.normal).sum(),
            "2.bias": norms(self.g).sum(),
            "4.weight": norms(self.e) @ norms(self.normal),
            "4.bias": norms(self.e).sum(),
        }


def bounds(
    twin: Twin, step: dict[str, float], rows: dict[str, Array], apart: dict[str, Array]
) -> dict[str, float]:
    """Section 28: `step` has the scales of wires and errors, `rows` those of the weights, `apart`
    what encoding changed in these."""
    w, root = twin.w, np.sqrt(N)
    dx = step["input:wire"] / 2 * root
    near = np.abs(twin.x) + step["input:wire"] / 2
    of_z = np.abs(w["0.weight"]).sum(1) * step["input:wire"] / 2
    of_z = of_z + near @ np.abs(apart["0.weight"]).T + step["1:wire"]
    dz = norms(of_z)
    d = dz / root
    low = twin.sigma - d
    assert (low > 0).all()
    dn = dz / low + step["3:wire"] * root
    top, far = (np.linalg.norm(m["4.weight"], 2) for m in (w, apart))
    dl = top * dn + far * (norms(twin.normal) + dn) + step["logits"] * np.sqrt(CLASSES)
    de = dl / 2 / ROWS + step["4:error"] * np.sqrt(CLASSES)
    widened = step["4:error"] * np.sqrt(CLASSES) * rows["4.weight"].max() * 127
    dg = top * de + far * (norms(twin.e) + de) + widened + step["2:error"] * root
    dg16 = dg + step["2:error times gamma as int16"] * root
    g = norms(twin.g)
    de1 = dg16 / low + d / (twin.sigma * low) * g + 2 * dn / root / twin.sigma * g
    de1 = de1 + step["0:error"] * root
    most = np.abs(twin.normal).max(1)
    return {
        "0.weight": float((de1 * (norms(twin.x) + dx) + norms(twin.dz) * dx).sum()),
        "0.bias": float(de1.sum()),
        "2.weight": float((dg * (most + dn) + np.abs(twin.g).max(1) * dn).sum()),
        "2.bias": float(dg.sum()),
        "4.weight": float((de * (norms(twin.normal) + dn) + norms(twin.e) * dn).sum()),
        "4.bias": float(de.sum()),
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_first_step_is_near_its_twin(seed: int) -> None:
    plan = q.compile(
        chain(),
        input_shape=N,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(LR, momentum=0.9),
        policy=q.Policy.full_sym(),
        batch=ROWS,
        seed=seed,
    )
    net = q.Session(plan)
    floats = net.recompile(policy=q.Policy.float32())
    rng = np.random.default_rng(seed)
    x, y = rng.random((ROWS, N), np.float32), rng.integers(0, CLASSES, ROWS)
    begin = {name: v.astype(np.float64) for name, v in floats.state_dict().items()}
    twin = Twin(begin, x.astype(np.float64), y)
    weights = {n: np.asarray(net.tensor(n).scale).ravel() for n in begin if n.endswith("weight")}
    apart = {n: net.tensor(n).numpy() - begin[n] for n in weights}
    for name, matrix in apart.items():
        half = weights[name].reshape(-1, *[1] * (matrix.ndim - 1)) / 2
        assert (np.abs(matrix) <= half * (1 + SLACK)).all()
    step = {}
    for _, written in net.trace(x, y):
        step |= {n: float(t.scale) for n, t in written.items() if np.size(t.scale) == 1 and t.scale}
    floats.step(x, y)
    limit = bounds(twin, step, weights, apart)
    for name, gradient in twin.grads.items():
        ours, theirs = net.grad(name).numpy(), floats.grad(name).numpy()
        size = np.linalg.norm(gradient)
        assert np.linalg.norm(theirs - gradient) <= SLACK * size  # the twin is what it says
        off = np.linalg.norm(ours - gradient)
        assert off <= limit[name] + SLACK * size, f"{name}: {off} > {limit[name]}"
        share = limit[name] / twin.contributions[name]
        assert share < 0.5, f"{name}: the bound says nothing"
        codes = 0.0
        if name in weights:  # half a step to begin with, one to write back, one if a scale doubled
            spread = np.broadcast_to(
                weights[name].reshape(-1, *[1] * (gradient.ndim - 1)), gradient.shape
            )
            codes = 2.5 * float(np.linalg.norm(spread))
        apart = np.linalg.norm(net.tensor(name).numpy() - floats.tensor(name).numpy())
        size = np.linalg.norm(begin[name]) + LR * size
        assert apart <= codes + LR * limit[name] + SLACK * size, name
