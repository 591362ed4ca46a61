"""Real data of packages that the tests install, as arrays."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import pyqfw as q

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]


@cache
def digits() -> tuple[Pair, Pair]:
    """scikit-learn's images (1, 8, 8): the first 1347, and the last 450 to test."""
    train, test = q.data.digits()
    return (train.x, train.y), (test.x, test.y)


@cache
def watch(width: int = 128, step: int = 64) -> tuple[Pair, Pair]:
    """Windows (6, width) of seglearn's smart-watch recordings, standardised: accelerometer and
    gyroscope of people 1 to 7, and of people 8 to 10 to test."""
    samples = q.data.watch(width=width, step=step)
    train, test = (samples[rows] for rows in (samples.groups <= 7, samples.groups > 7))
    mean, spread = (f(train.x, axis=(0, 2), keepdims=True) for f in (np.mean, np.std))
    return ((train.x - mean) / spread, train.y), ((test.x - mean) / spread, test.y)
