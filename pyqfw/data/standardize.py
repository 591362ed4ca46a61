"""Standardize: what is done to the inputs of a net, in the net (docs/numerics.md section 37)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Array
from ..errors import DTypeError, NonFiniteError, QfwError, ShapeError


@dataclass(frozen=True)
class Standardize:
    """y = (x - mean) / std for each channel, the first axis of a sample; one number: for all.

    As ``q.compile(preprocess=)`` it is the first operation of the plan: the net takes x as it was
    recorded, on the host and on the device, and is saved with it. Computed as x * factor + offset
    in float32.
    """

    mean: Any
    std: Any

    def __post_init__(self) -> None:
        mean, std = _numbers(self.mean, "mean"), _numbers(self.std, "std")
        if len(mean) != len(std):
            raise ShapeError(
                f"Standardize: there are {len(mean)} means and {len(std)} standard deviations; "
                f"each channel has one of both"
            )
        if min(std) <= 0:
            raise QfwError(f"Standardize: std must be above 0, not {min(std)!r}")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)
        if not np.isfinite([self.factor, self.offset]).all():
            raise QfwError("Standardize: 1 / std and mean / std must be finite in float32")

    @classmethod
    def fit(cls, x: npt.ArrayLike, *, each_channel: bool = True) -> Standardize:
        """Mean and standard deviation of x [n, channels, ...], in float64; or one for all channels.

        A channel that never changes keeps its size: its std counts as 1.
        """
        given = np.asarray(x)
        if given.dtype.kind not in "fiu":
            raise DTypeError(f"Standardize.fit: x must be real numbers, not {given.dtype}")
        if given.ndim < 2 or not given.size:
            raise ShapeError(
                f"Standardize.fit: x must have the shape (n, channels, ...) and a row at least, "
                f"not {given.shape}"
            )
        parts = [given[:, c] for c in range(given.shape[1])] if each_channel else [given]
        mean = [float(np.mean(part, dtype=np.float64)) for part in parts]
        std = [float(np.std(part.astype(np.float64))) for part in parts]
        if not np.isfinite([mean, std]).all():
            raise NonFiniteError("Standardize.fit: x has a NaN or an infinity")
        return cls(mean, [s if s > 0 else 1.0 for s in std])

    @property
    def channels(self) -> int:
        """How many have numbers of their own; 1: all have the same."""
        return len(self.mean)

    @property
    def factor(self) -> npt.NDArray[np.float32]:
        """1 / std, rounded once."""
        with np.errstate(over="ignore", under="ignore"):
            return (1.0 / np.array(self.std)).astype(np.float32)

    @property
    def offset(self) -> npt.NDArray[np.float32]:
        """-mean / std, rounded once."""
        with np.errstate(over="ignore", under="ignore"):
            found: npt.NDArray[np.float64] = 0.0 - np.array(self.mean) / np.array(self.std)
            return found.astype(np.float32)

    def __call__(self, x: npt.ArrayLike) -> Array:
        """x as the first layer gets it, with the same bits."""
        given = np.asarray(x, np.float32)
        self.check(given.shape[1:])
        shape = (self.channels,) + (1,) * (given.ndim - 2)
        return given * self.factor.reshape(shape) + self.offset.reshape(shape)

    def check(self, shape: tuple[int, ...]) -> None:
        """Samples must have the channels."""
        if self.channels not in (1, *shape[:1]):
            raise ShapeError(
                f"preprocess: {self.channels} channels were standardised, and a sample has the "
                f"shape {shape}: its first axis must be {self.channels}"
            )


def _numbers(value: Any, name: str) -> tuple[float, ...]:
    """One number, or one for each channel, as floats."""
    found = (value,) if isinstance(value, Real) else tuple(np.asarray(value).reshape(-1).tolist())
    if not found or not all(isinstance(v, Real) and not isinstance(v, bool) for v in found):
        raise QfwError(f"Standardize: {name} must be a number, or one a channel, not {value!r}")
    if not np.isfinite(found).all():
        raise NonFiniteError(f"Standardize: {name} must be finite, not {value!r}")
    return tuple(float(v) for v in found)
