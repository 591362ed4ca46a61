"""Learning rates over epochs: PyTorch's closed forms, called as schedule(lr, epoch)."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import cos, pi

from . import _arrays as arrays
from .errors import QfwError

_MOST = 1 << 31
_MOST_LR = sys.float_info.max


class Schedule(ABC):
    """The learning rate of an epoch (0, 1, ...), made from the one that training began with."""

    def __call__(self, lr: float, epoch: int) -> float:
        """The rate of this epoch."""
        base = arrays.number(lr, f"{self}: lr", 0, _MOST_LR)
        return float(self._rate(base, arrays.integer(epoch, f"{self}: epoch", 0, _MOST)))

    @abstractmethod
    def _rate(self, lr: float, epoch: int) -> float:
        """The same, of arguments that are checked."""

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def _name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class StepLR(Schedule):
    """lr gamma^floor(epoch / step_size)"""

    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        self._set("step_size", _count(self._name, "step_size", self.step_size))
        self._set("gamma", arrays.number(self.gamma, f"{self._name}: gamma", 0, _MOST_LR))

    def _rate(self, lr: float, epoch: int) -> float:
        return _power(lr, self.gamma, epoch // self.step_size)


@dataclass(frozen=True)
class ExponentialLR(Schedule):
    """lr gamma^epoch"""

    gamma: float

    def __post_init__(self) -> None:
        self._set("gamma", arrays.number(self.gamma, f"{self._name}: gamma", 0, _MOST_LR))

    def _rate(self, lr: float, epoch: int) -> float:
        return _power(lr, self.gamma, epoch)


@dataclass(frozen=True)
class CosineAnnealingLR(Schedule):
    """eta_min + (lr - eta_min) (1 + cos(pi epoch / T_max)) / 2"""

    T_max: int
    eta_min: float = 0.0

    def __post_init__(self) -> None:
        self._set("T_max", _count(self._name, "T_max", self.T_max))
        self._set("eta_min", arrays.number(self.eta_min, f"{self._name}: eta_min", 0, _MOST_LR))

    def _rate(self, lr: float, epoch: int) -> float:
        turn = epoch % (2 * self.T_max)  # its period: an angle that stays small stays exact
        return self.eta_min + (lr - self.eta_min) * (1.0 + cos(pi * turn / self.T_max)) / 2.0


@dataclass(frozen=True)
class LinearWarmup(Schedule):
    """lr (start + (1 - start) epoch / epochs) before epoch number `epochs`; from there on `then`,
    whose first epoch that is, or lr itself."""

    epochs: int
    start: float = 1.0 / 3.0
    then: Schedule | None = None

    def __post_init__(self) -> None:
        self._set("epochs", _count(self._name, "epochs", self.epochs))
        self._set("start", arrays.number(self.start, f"{self._name}: start", 0, _MOST_LR))
        if self.start > 1.0:
            raise QfwError(f"{self._name}: start must be 0..1, not {self.start}")
        if self.then is not None and not isinstance(self.then, Schedule):
            raise QfwError(f"{self._name}: then must be None or a schedule, not {self.then!r}")

    def _rate(self, lr: float, epoch: int) -> float:
        if epoch < self.epochs:
            return lr * (self.start + (1.0 - self.start) * epoch / self.epochs)
        return lr if self.then is None else self.then(lr, epoch - self.epochs)


def _count(owner: str, name: str, value: object) -> int:
    return arrays.integer(value, f"{owner}: {name}", 1, _MOST)


def _power(lr: float, gamma: float, n: int) -> float:
    """lr gamma^n, or a named error where no float holds it."""
    try:
        return lr * gamma**n
    except OverflowError:
        raise QfwError(f"gamma = {gamma} to the power {n} is no finite learning rate") from None
