"""Chains with BatchNorm and GroupNorm beside their oracle."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from oracle_step import Net
from oracle_tensor import Array
from step_helpers import Case, same_floats, same_kept, same_step

import pyqfw as q


@dataclass
class NormCase(Case):
    """Values for parameters and statistics of normalisations are made up, so that all count."""

    spread: float = 0.5
    spoilt: dict[str, float] = field(default_factory=dict)
    """Values that all channels of a parameter or statistic have instead."""

    def values(self, begin: dict[str, Array]) -> dict[str, Array]:
        """What the nets begin with."""
        rng = np.random.default_rng(self.seed + 100)
        kinds = {path: kind for kind, path, *_ in self.layers}
        found = {}
        for name, v in begin.items():
            path, what = name.rsplit(".", 1)
            noise = self.spread * rng.normal(size=v.shape)
            if kinds[path] not in ("batch", "group") or what == "num_batches_tracked":
                found[name] = v
            elif what == "running_var":
                found[name] = np.exp(noise).astype(np.float32)
            elif what == "weight":  # of both signs, one of them 0
                found[name] = (np.where(np.arange(v.size) % 3, 1, -1) * (v + noise)).astype(v.dtype)
                found[name][1:2] = 0
            else:
                found[name] = (v + noise).astype(np.float32)
            if name in self.spoilt:
                found[name] = np.full_like(v, self.spoilt[name])
        return found

    def opened(self) -> tuple[Net, q.Session]:
        """Both, with the same values."""
        net, session = self.net(), q.Session(self.plan())
        values = self.values(session.state_dict())
        session.load_state_dict(values)
        net.load({name: v for name, v in values.items() if name in net.params})
        for path, running in net.running.items():
            running.mean = values[f"{path}.running_mean"]
            running.variance = values[f"{path}.running_var"]
        return net, session

    def check(self) -> tuple[Net, q.Session]:
        net, session = self.opened()
        same_kept(net, session)
        x = None
        for x, y in self.data():
            same_step(net, session, x, y)
            same_running(net, session)
        assert x is not None
        same_floats(session.predict(x), net.predict(x), "predict")
        same_running(net, session)
        return net, session


def same_running(net: Net, session: q.Session) -> None:
    """The statistics, to the bit."""
    for path, running in net.running.items():
        for name, value in (("running_mean", running.mean), ("running_var", running.variance)):
            found = session.tensor(f"{path}.{name}").codes
            same_floats(found, np.asarray(value, np.float32), f"{path}.{name}")
        assert session.state_dict()[f"{path}.num_batches_tracked"] == int(running.tracked)
