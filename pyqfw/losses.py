"""Losses: descriptions with PyTorch's names, arguments and defaults. `pyqfw.nn` has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from . import _arrays as arrays
from ._arrays import Array
from .errors import DTypeError, QfwError, ShapeError

IGNORED = -100  # PyTorch's default ignore_index


class Loss(ABC):
    """What every loss has. A loss is no layer: it is compile's `loss`."""

    @abstractmethod
    def target_shape(self, in_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a sample's label or target for the shape of the network's output."""

    @abstractmethod
    def metrics(self, outputs: Array, targets: Array) -> dict[str, float]:
        """The mean ``loss`` and what else is worth knowing of outputs [n, ...], n >= 1, in float64.

        `targets` are as the core takes them.
        """


@dataclass(frozen=True, repr=False)
class CrossEntropyLoss(Loss):
    """-sum of t log(softmax(x)), the mean over the rows weighted by their label's weight.

    t is weight[label] (1 - label_smoothing) at the label, and weight label_smoothing / classes at
    every class. Rows with the label `ignore_index` do not count. `weight` becomes a tuple.
    """

    weight: tuple[float, ...] | None = None
    _: KW_ONLY
    ignore_index: int = IGNORED
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        name = "CrossEntropyLoss"
        if self.reduction != "mean":
            raise QfwError(
                f"{name}: reduction must be 'mean', not {self.reduction!r}: others are not "
                "supported yet"
            )
        values = {
            "weight": None if self.weight is None else _weights(self.weight),
            "ignore_index": arrays.int32(self.ignore_index, f"{name}: ignore_index"),
            "label_smoothing": arrays.number(
                self.label_smoothing, f"{name}: label_smoothing", 0, 1
            ),
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def is_plain(self) -> bool:
        """Whether every argument is PyTorch's default."""
        return self == CrossEntropyLoss()

    def target_shape(self, in_shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(in_shape) != 1:
            raise ShapeError(
                f"{self}: the network's output has the shape {in_shape}; it must be (classes,): "
                "end with a Linear of as many outputs as classes, after a Flatten() if need be"
            )
        if self.weight is not None and len(self.weight) != in_shape[0]:
            raise ShapeError(
                f"CrossEntropyLoss: weight must have {in_shape[0]} elements, one for each output "
                f"of the network, not {len(self.weight)}"
            )
        return ()

    def metrics(self, outputs: Array, targets: Array) -> dict[str, float]:
        """`loss`, and `accuracy`: the share of the rows that count whose largest output, the first,
        is right; NaN if none counts."""
        counts = targets != self.ignore_index
        if not counts.any():
            return {"loss": float("nan"), "accuracy": float("nan")}
        z, y = outputs[counts].astype(np.float64), targets[counts]
        z -= z.max(axis=1, keepdims=True)
        costs = np.log(np.exp(z).sum(axis=1, keepdims=True)) - z
        classes = z.shape[1]
        weight = np.ones(classes) if self.weight is None else np.array(self.weight, np.float64)
        hit = weight[y] * costs[np.arange(len(y)), y]
        smooth = costs @ weight / classes
        rows = (1.0 - self.label_smoothing) * hit + self.label_smoothing * smooth
        right = outputs[counts].argmax(axis=1) == y
        total = weight[y].sum()
        loss = float(rows.sum() / total) if total else float("nan")
        return {"loss": loss, "accuracy": float(right.mean())}

    def __repr__(self) -> str:
        given = {
            "weight": (self.weight, None),
            "ignore_index": (self.ignore_index, IGNORED),
            "label_smoothing": (self.label_smoothing, 0.0),
        }
        args = [f"{name}={value!r}" for name, (value, default) in given.items() if value != default]
        return f"CrossEntropyLoss({', '.join(args)})"


def _weights(weight: Any) -> tuple[float, ...]:
    """A weight for each class: float32 numbers >= 0, at least one of them above it."""
    name = "CrossEntropyLoss: weight"
    try:
        given = np.asarray(weight)
    except (ValueError, TypeError, RuntimeError) as e:
        raise DTypeError(f"{name} must be an array of numbers: {e}") from e
    if given.dtype.kind not in "fiu":
        raise DTypeError(f"{name} must be an array of real numbers, not {given.dtype}")
    if given.ndim != 1 or given.size == 0:
        raise ShapeError(f"{name} must have one axis, a weight a class, not {given.shape}")
    with np.errstate(over="ignore", under="ignore"):
        narrow = given.astype(np.float32)
    if not (np.isfinite(narrow) & (narrow >= 0)).all() or not narrow.any():
        raise QfwError(f"{name} must be finite numbers >= 0, not all 0, not {given.tolist()}")
    return tuple(narrow.tolist())


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
        """`loss`: the mean square."""
        x, y = (np.asarray(a, np.float64) for a in (outputs, targets))
        return {"loss": float(np.mean((x - y) ** 2))}

    def __repr__(self) -> str:
        return "MSELoss()"
