"""What a session keeps, as bytes, and what a run shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from session_helpers import data

import pyqfw as q


def kept(net: q.Session) -> dict[str, Any]:
    """Every byte of what lasts but gradients, as it lies in memory; progress, to the bit."""
    found = {
        t.name: tuple(part.tobytes() for part in net._spaces.parts(t, 1))
        for t in net.plan.program.tensors
        if t.lasts and t.role != "gradient"
    }
    now = net._get()
    bits = (now.step, now.updates, np.float32(now.lr).tobytes(), net.epochs)
    return {**found, "progress": bits, "plan": net.plan.to_bytes()}


def run(net: q.Session, steps: int, seed: int = 0) -> tuple[list[float], bytes, dict[str, Any]]:
    """Everything that a run shows: losses, predictions, and what it ends with."""
    losses = [net.step(*data(seed=1000 * seed + i)) for i in range(steps)]
    return losses, net.predict(data(5, seed=99)[0]).tobytes(), kept(net)


def saved(net: q.Session, path: Path) -> q.Session:
    net.save(path)
    return q.Session.load(path)
