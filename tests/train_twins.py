"""One network and its data for both libraries, and how far results are apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = Any  # of numpy
SIZES = (20, 16, 12, 5)
BATCH, STEPS, LR = 32, 50, 0.05
FIRST, LAST = 1e-5, 1e-3  # relative errors, norm-wise per tensor


def layers(module: Any) -> Any:
    """The same network of either library."""
    pairs = itertools.pairwise(SIZES)
    made = [layer for a, b in pairs for layer in (module.Linear(a, b), module.ReLU())]
    return module.Sequential(*made[:-1])


def batches(rows: tuple[int, ...] = (BATCH,), seed: int = 1) -> Iterator[tuple[Array, Array]]:
    """Classes in so much noise that the loss does not vanish; batches of so many rows in turn."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(SIZES[-1], SIZES[0]))
    for i in range(STEPS):
        y = rng.integers(0, SIZES[-1], rows[i % len(rows)])
        x = 0.4 * centres[y] + rng.normal(size=(len(y), SIZES[0]))
        yield x.astype(np.float32), y


def error(ours: Any, theirs: Any) -> float:
    """The norm of the difference over the norm, in float64."""
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
