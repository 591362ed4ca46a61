"""Losses: descriptions with PyTorch's names, arguments and defaults. `pyqfw.nn` has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass

import numpy as np

from ._arrays import Array
from .errors import QfwError, ShapeError


class Loss(ABC):
    """What every loss has. A loss is no layer: it is compile's `loss`."""

    @abstractmethod
    def target_shape(self, in_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a sample's label or target for the shape of the network's output."""


@dataclass(frozen=True, repr=False)
class CrossEntropyLoss(Loss):
    """-log(softmax(x)[label]), the mean over the rows. Only PyTorch's defaults so far."""

    weight: None = None
    _: KW_ONLY
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        defaults = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
        if self.weight is not None:
            raise QfwError("CrossEntropyLoss: weight must be None: others are not supported yet")
        for name, default in defaults.items():
            value = getattr(self, name)
            if isinstance(value, bool) or value != default:
                raise QfwError(
                    f"CrossEntropyLoss: {name} must be {default!r}, not {value!r}: others are not "
                    "supported yet"
                )

    def target_shape(self, in_shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(in_shape) != 1:
            raise ShapeError(
                f"{self}: the network's output has the shape {in_shape}; it must be (classes,): "
                "end with a Linear of as many outputs as classes, after a Flatten() if need be"
            )
        return ()

    def __repr__(self) -> str:
        return "CrossEntropyLoss()"


@dataclass(frozen=True, repr=False)
class MSELoss(Loss):
    """The mean of (x - y)^2 over all elements of a step; y has the shape of the output x."""

    _: KW_ONLY
    reduction: str = "mean"

    def __post_init__(self) -> None:
        if self.reduction != "mean":
            raise QfwError(
                f"MSELoss: reduction must be 'mean', not {self.reduction!r}: others are not "
                "supported yet"
            )

    def target_shape(self, in_shape: tuple[int, ...]) -> tuple[int, ...]:
        return in_shape

    def metrics(self, outputs: Array, targets: Array) -> dict[str, float]:
        """The loss of outputs as `predict` gives them, in float64."""
        x, y = (np.asarray(a, np.float64) for a in (outputs, targets))
        return {"loss": float(np.mean((x - y) ** 2))}

    def __repr__(self) -> str:
        return "MSELoss()"
