"""What both emulators do with a net: its batches, its walks, what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .._arrays import Array
from .._batches import Arrays, permutation
from ..errors import QfwError
from ..plan import Plan
from ..session import Session, status_text


class Step(NamedTuple):
    """Rows of a step as they lie in memory."""

    x: bytes
    y: bytes
    rows: int


class Walk(NamedTuple):
    """Operations first .. first + many - 1 over `rows` rows at row `at` of a step: what
    c/harness.h calls a command."""

    at: int
    rows: int
    step_rows: int
    first: int
    many: int


@dataclass
class Outcome:
    """What a device did."""

    losses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)  # instructions of each step that was counted
    walks: list[int] = field(default_factory=list)  # of each operation, in all of those steps
    inference: int = 0  # instructions of a row
    outputs: Array | None = None
    stack: int = 0
    lasting: bytes = b""  # the arena's bytes of parameters, gradients and state
    progress: tuple[int, int, float, int] = (0, 0, 0.0, 0)


def steps_of(net: Session, data: Arrays, epochs: int, most: int | None) -> Iterator[Step]:
    """The batches that `fit` would give the net in its next epochs, the first `most` of them."""
    given = 0
    for epoch in range(net.epochs, net.epochs + epochs):
        order = permutation(len(data.x), net.plan.seed, epoch)
        for key in data.keys(net.plan.batch, order):
            if given == most:
                return
            yield step_of(net, *data.batch(key))
            given += 1


def step_of(net: Session, x: Array, y: Array) -> Step:
    """Rows as the core reads them."""
    return Step(net._fed(x).tobytes(), net._asked(y).tobytes(), len(x))


def walks_of(plan: Plan, rows: int) -> list[Walk]:
    """A step over so many rows, operation by operation."""
    size, update = plan.rows, plan.section("update")
    starts = range(0, rows, size)
    walks = [
        Walk(at, min(size, rows - at), rows, i, 1) for at in starts for i in range(update.start)
    ]
    last = Walk(starts[-1], min(size, rows - starts[-1]), rows, update.start, 0)
    if not len(update):
        return [*walks, last]  # the step ends with a walk of its own
    return [*walks, *(last._replace(first=i, many=1) for i in update)]


def checked(status: int, what: str) -> None:
    """Raises on a status of the device's."""
    if status:
        raise QfwError(f"{what} on the device: {status_text(status)}")


def sample(net: Session, rows: int, seed: int) -> Step:
    """Rows of noise, with labels, to measure what a step costs."""
    source = np.random.default_rng(seed)
    x = source.standard_normal((rows, *net.plan.request.input_shape)).astype(np.float32)
    labels = net.plan.program.labels
    if labels is None:
        return step_of(net, x, np.empty(0, np.int32))
    if labels.fmt is not None:
        return step_of(net, x, source.standard_normal((rows, *labels.shape)).astype(np.float32))
    classes = net.plan.program.output.size
    return step_of(net, x, source.integers(0, classes, rows).astype(np.int32))
