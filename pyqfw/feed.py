"""What a caller feeds a session: rows, and labels or targets, as the core takes them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import _arrays as arrays
from . import nn, quant
from ._arrays import Array
from .errors import DTypeError, QfwError, ShapeError

_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)


def as_array(values: npt.ArrayLike, name: str) -> Array:
    """What the caller gave as an array of some type."""
    try:
        return np.asarray(_plain(values))
    except (ValueError, TypeError, RuntimeError) as e:  # ragged, or a tensor without numbers
        raise DTypeError(f"{name} must be an array of numbers: {e}") from e


def _plain(values: Any) -> Any:
    """A tensor of torch as numpy takes it: on the CPU, without its graph, no half floats."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return values
    here = values.detach().cpu()
    return here.float() if here.dtype in (torch.float16, torch.bfloat16) else here


def inputs(
    x: npt.ArrayLike, shape: tuple[int, ...], most: int | None, of: str = "its batch"
) -> Array:
    """Rows as the core takes them: float32, in C order; 1 to `most`, or any number.

    Whether they are finite the core finds out; `blame` says it with names.
    """
    given = x if isinstance(x, np.ndarray) else as_array(x, "x")
    rows = len(given) if given.ndim == len(shape) + 1 else 0
    usual = given.dtype is _FLOAT32 and given.flags.carray and given.shape[1:] == shape
    if usual and 0 < rows <= (rows if most is None else most):
        return given
    if given.dtype.kind not in "fiu" and given.dtype.name not in arrays.REALS:
        raise DTypeError(f"x must be an array of real numbers, not {given.dtype}")
    if given.ndim != len(shape) + 1 or given.shape[1:] != shape:
        wanted = ", ".join(map(str, ("n", *shape)))
        raise ShapeError(f"x must have the shape ({wanted}), n rows, not {given.shape}")
    if most is not None and not 1 <= len(given) <= most:
        raise ShapeError(
            f"x has {len(given)} rows: the plan takes 1 to {most} ({of}); give fewer, or "
            f"recompile with another batch"
        )
    return _floats(given)


def _floats(given: Array) -> Array:
    if given.dtype == _FLOAT32 and given.flags.carray:
        return given
    with quant.float_mode(), np.errstate(over="ignore"):
        return np.require(given, np.float32, ["C", "A", "W"])


def blame(data: Array, x: npt.ArrayLike) -> None:
    """Raises the error that names what is not finite in x, if something is."""
    with quant.float_mode():
        quant.check_finite(data, "x", named=as_array(x, "x"))


def _same(a: Array, b: Array) -> bool:
    """Whether two lists of integers are equal; of a few, Python's are ready first."""
    if a.size == 1:
        return bool(a.item() == b.item())
    return a.tolist() == b.tolist() if a.size <= 16 else np.array_equal(a, b)


class Targets(Protocol):
    """What a loss compares the output with."""

    def take(self, y: npt.ArrayLike, rows: int) -> Array:
        """y as the core takes it, of so many rows; the core checks its values."""

    def blame(self, y: npt.ArrayLike) -> None:
        """Raises the error that names the first value that is none, if there is one."""


@dataclass(frozen=True)
class Labels:
    """Class numbers: int32, one a row."""

    classes: int
    ignored: int
    weight: tuple[float, ...] | None = None

    def take(self, y: npt.ArrayLike, rows: int) -> Array:
        given = y if isinstance(y, np.ndarray) else as_array(y, "y")
        if given.shape != (rows,):
            raise ShapeError(
                f"y must have the shape ({rows},), a label a row of x, not {given.shape}"
            )
        if given.dtype.kind not in "iu":
            raise DTypeError(f"y must be an array of integers (class numbers), not {given.dtype}")
        if given.dtype == _INT32 and given.flags.carray:
            return given
        narrow = given.astype(np.int32)
        if given.dtype.itemsize >= 4 and not _same(narrow, given):
            self.blame(given)
        return narrow

    def blame(self, y: npt.ArrayLike) -> None:
        given = np.asarray(y)
        counts = given != self.ignored
        wrong = counts & ((given < 0) | (given >= self.classes))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise QfwError(f"y[{at}] is {given[at]}: labels must be 0 to {self.classes - 1}")
        if given.size and not counts.any():
            raise QfwError(f"y: every label is {self.ignored}, the ignore_index: no row counts")
        if self.weight is not None and not np.array(self.weight)[given[counts]].any():
            raise QfwError("y: every label's class has the weight 0: no row counts")


@dataclass(frozen=True)
class Values:
    """Numbers in the shape of the output: float32."""

    shape: tuple[int, ...]

    def take(self, y: npt.ArrayLike, rows: int) -> Array:
        given = y if isinstance(y, np.ndarray) else as_array(y, "y")
        if given.dtype.kind not in "fiu" and given.dtype.name not in arrays.REALS:
            raise DTypeError(f"y must be an array of real numbers, not {given.dtype}")
        if given.shape != (rows, *self.shape):
            raise ShapeError(
                f"y must have the shape {(rows, *self.shape)}, that of the output, not "
                f"{given.shape}"
            )
        return _floats(given)

    def blame(self, y: npt.ArrayLike) -> None:
        named = as_array(y, "y")
        with quant.float_mode():
            quant.check_finite(_floats(named), "y", named=named)


def targets_of(loss: nn.Loss | None, shape: tuple[int, ...]) -> Targets:
    """What a loss takes for outputs of this shape."""
    if isinstance(loss, nn.CrossEntropyLoss):
        return Labels(prod(shape), loss.ignore_index, loss.weight)
    return Values(shape)
