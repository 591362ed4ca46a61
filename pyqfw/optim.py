"""Optimizers and schedules: descriptions with PyTorch's names, definitions and defaults."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from numbers import Real

import numpy as np

from . import _arrays as arrays
from .errors import QfwError
from .formats import ROUNDINGS, Rounding
from .schedules import CosineAnnealingLR, ExponentialLR, LinearWarmup, Schedule, StepLR

__all__ = [
    "SGD",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LinearWarmup",
    "Schedule",
    "StepLR",
]

_FLT_MIN = float(np.finfo(np.float32).tiny)
_FLT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Coefficients:
    """The update as a linear map, without the learning rate: float32, each 0 or normal.

        w' = w - lr (step_v v + step_g g + step_w w)
        v' = state_v v + state_g g + state_w w

    v, g and w are the old ones. The first update has the factors that end in 1, and v = 0.
    """

    step_v: np.float32
    step_g: np.float32
    step_w: np.float32
    state_v: np.float32
    state_g: np.float32
    state_w: np.float32
    step_g1: np.float32
    step_w1: np.float32
    state_g1: np.float32
    state_w1: np.float32


@dataclass(frozen=True)
class SGD:
    """g' = g + weight_decay w;  v' = momentum v + (1 - dampening) g';  w' = w - lr v'

    The first update has v' = g'. Without momentum: w' = w - lr g'; with `nesterov`:
    w' = w - lr (g' + momentum v'). `rounding` is how an integer parameter is written back.
    """

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    _: KW_ONLY
    rounding: Rounding = "stochastic"

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "dampening", "weight_decay"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.dampening > 1.0:
            raise QfwError(f"SGD: dampening must be 0..1, not {self.dampening}")
        if not isinstance(self.nesterov, (bool, np.bool_)):
            raise QfwError(f"SGD: nesterov must be True or False, not {self.nesterov!r}")
        object.__setattr__(self, "nesterov", bool(self.nesterov))
        if self.nesterov and (self.momentum == 0.0 or self.dampening != 0.0):
            raise QfwError(
                "SGD: nesterov needs momentum > 0 and dampening = 0, not "
                f"momentum={self.momentum} and dampening={self.dampening}"
            )
        mode = ROUNDINGS[arrays.choice(self.rounding, "SGD: rounding", ROUNDINGS)]
        object.__setattr__(self, "rounding", mode)
        for f, value in zip(fields(Coefficients), self._factors(), strict=True):
            if not _representable(value):
                raise QfwError(
                    f"{self}: the factor {f.name} = {value} (docs/numerics.md section 17) must be "
                    "0 or a normal float32"
                )

    @property
    def has_state(self) -> bool:
        """Whether there is a momentum to keep for each parameter."""
        return self.momentum != 0.0

    def coefficients(self) -> Coefficients:
        """The factors of `docs/numerics.md` section 17, each rounded to float32 once."""
        return Coefficients(*map(np.float32, self._factors()))

    def _factors(self) -> tuple[float, ...]:
        """The same in float64, in the order of Coefficients."""
        kappa = 1.0 - self.dampening
        beta = self.momentum
        wd = self.weight_decay
        if not self.has_state:
            return (0.0, 1.0, wd, 0.0, 0.0, 0.0, 1.0, wd, 0.0, 0.0)
        if self.nesterov:
            v, g, g1 = beta * beta, 1.0 + beta * kappa, 1.0 + beta
        else:
            v, g, g1 = beta, kappa, 1.0
        return (v, g, g * wd, beta, kappa, kappa * wd, g1, g1 * wd, 1.0, wd)


def _number(name: str, value: object) -> float:
    """A number >= 0 that float32 holds."""
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            number = float(value) + 0.0  # no negative zero
        except OverflowError:
            number = float("inf")
        if _representable(number):
            return number
    raise QfwError(f"SGD: {name} must be 0 or a positive normal float32, not {value!r}")


def _representable(value: float) -> bool:
    return value == 0.0 or _FLT_MIN <= value <= _FLT_MAX
