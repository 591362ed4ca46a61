"""Where `fit` and `evaluate` get their batches: arrays, or an iterable of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import feed, quant
from ._arrays import Array
from .errors import QfwError, ShapeError
from .lower.ir import stream_of
from .session import Session

Batch: TypeAlias = tuple[Any, Any]
Rows: TypeAlias = "slice | Array"
Source: TypeAlias = "Arrays | Stream"

_ORDER = stream_of("fit", "order")


@contextmanager
def named(place: str) -> Iterator[None]:
    """Errors of the block say where they came from."""
    try:
        yield
    except QfwError as e:
        raise type(e)(f"{place}: {e}") from e


def permutation(n: int, seed: int, epoch: int) -> Array:
    """The order of n rows in a pass: docs/numerics.md section 18."""
    words = quant.draws(n, seed=seed, step=epoch, stream=_ORDER)
    return np.argsort(words, kind="stable")


class Arrays:
    """Rows with their targets, checked as a whole before any is used.

    A batch is known by its rows, and gathered when it is asked for.
    """

    def __init__(self, net: Session, x: npt.ArrayLike, y: npt.ArrayLike) -> None:
        self.x = feed.inputs(x, net.plan.request.input_shape, None)
        if not len(self.x):
            raise ShapeError("x has no rows: there must be one at least")
        feed.blame(self.x, x)
        self.y = net._labels(y, len(self.x))

    def count(self, size: int) -> int | None:
        """Batches in a pass, where that is known."""
        return -(-len(self.x) // size)

    def keys(self, size: int, order: Array | None = None) -> Iterator[Rows]:
        """All rows, `size` at a time; the last batch has what is left."""
        for first in range(0, len(self.x), size):
            rows = slice(first, first + size)
            yield rows if order is None else order[rows]

    def batch(self, key: Any) -> Batch:
        return self.x[key], self.y[key]

    def held(self, key: Any) -> int:
        """Bytes that live as long as the key."""
        return 0


class Stream:
    """An iterable of (x, y); how many rows a batch has and their order are its own."""

    def __init__(self, x: Iterable[Any], passes: int) -> None:
        if hasattr(x, "__array__"):
            raise QfwError("y is missing: x is an array; give y, or an iterable of (x, y) as x")
        if not (hasattr(x, "__iter__") or hasattr(x, "__getitem__")):
            raise QfwError(f"x must be an array, or an iterable of batches (x, y), not {x!r}")
        if isinstance(x, Iterator) and passes > 1:
            raise QfwError(
                f"x is a one-shot iterator ({type(x).__name__}), and there are {passes} passes: "
                "give something that can be iterated again, such as a list or a DataLoader"
            )
        self.x = x

    def count(self, size: int) -> int | None:
        return len(self.x) if isinstance(self.x, Sized) else None

    def keys(self, size: int, order: Array | None = None) -> Iterator[Batch]:
        """The batches themselves."""
        number = -1
        for number, batch in enumerate(self.x):
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                kind = type(batch).__name__
                raise QfwError(f"batch {number}: a batch must be a pair (x, y), not a {kind}")
            yield batch[0], batch[1]
        if number < 0:
            raise QfwError("x gave no batch: it is empty, or can be iterated only once")

    def batch(self, key: Any) -> Batch:
        x, y = key
        return x, y

    def held(self, key: Any) -> int:
        return int(getattr(key[0], "nbytes", 0))


def source(net: Session, x: Any, y: Any, passes: int) -> Source:
    """Where the batches come from: x and y, or x alone."""
    return Stream(x, passes) if y is None else Arrays(net, x, y)
