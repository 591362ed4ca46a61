"""Steps that can be undone: a run that breaks goes back to where it was whole.

A copy of all that lasts before every step would cost up to a seventh of it. A step is a function of
what lasts and its batch, so one copy for many steps does: they are repeated from there, with the
same bits, up to the one that broke.
"""

from __future__ import annotations

from math import isfinite, nan
from typing import NoReturn

import numpy as np

from . import feed
from ._batches import Batch, named
from .errors import NonFiniteError, QfwError
from .formats import Float32
from .lower import Op
from .session import Session
from .tensor import QTensor

WINDOW = 32  # steps for a copy

_REMEDY = "it has diverged: go on with a smaller lr"


class Rewind:
    """The steps of a pass. What breaks is named with its batch; numbers that break are explained.

    NonFiniteError leaves the net as it was before the step that broke; any other error, as it was.
    """

    def __init__(self, net: Session) -> None:
        self._net = net
        self._before = 0  # batches before the copy
        self._batches: list[Batch] = []
        self._mark()

    def _mark(self) -> None:
        self._before += len(self._batches)
        self._start = self._net._mark()
        self._batches = []
        self._losses: list[float] = []

    def step(self, batch: Batch) -> float:
        """`Session.step`."""
        if len(self._batches) == WINDOW:
            self._mark()
        try:
            loss = self._net.step(*batch)
        except QfwError as e:
            number = self._before + len(self._batches)
            with named(f"batch {number}"):
                if not isinstance(e, NonFiniteError):
                    raise
                feed.blame(self._net._inputs(batch[0]), batch[0])
            self._batches.append(batch)
            self._explain(e)
        self._batches.append(batch)
        if not isfinite(loss):
            self._explain()
        self._losses.append(loss)
        return loss

    def check(self) -> None:
        """Explains what is not finite in what the last steps left."""
        if _broken(self._net) is not None:
            self._explain()

    def _explain(self, cause: Exception | None = None) -> NoReturn:
        """Repeats the steps from the copy; the first that breaks is traced, and undone."""
        net = self._net
        net._go_back(self._start)
        if (found := _broken(net)) is not None:
            raise NonFiniteError(
                f"'{found}' was not finite before step {net.steps} already: the net is as it was "
                "then; go back to good parameters (load_state_dict)"
            ) from cause
        for i, batch in enumerate(self._batches):
            before = net._mark()
            loss = _loss(net, batch)
            if i < len(self._losses) and loss != self._losses[i]:
                break
            if isfinite(loss) and _broken(net) is None:
                continue
            net._go_back(before)
            fault = _first_fault(net, batch)
            net._go_back(before)
            raise NonFiniteError(
                f"batch {self._before + i}, step {net.steps}: {fault}: {_REMEDY}; the net is as it "
                "was before this step"
            ) from cause
        net._go_back(self._start)
        raise NonFiniteError(
            f"batch {self._before + len(self._batches) - 1}: a value in the network is not finite: "
            f"{_REMEDY}; the net is as it was before step {net.steps}: batches have been written "
            "over since, so that the steps from there cannot be repeated"
        ) from cause


def _loss(net: Session, batch: Batch) -> float:
    try:
        return net.step(*batch)
    except NonFiniteError:
        return nan


def _broken(net: Session) -> str | None:
    """A parameter or state that is not finite."""
    program = net.plan.program
    for t in (*program.parameters.values(), *program.states.values()):
        if t.fmt == Float32() and _odd(net._spaces.read(t, 1)) is not None:
            return t.name
    return None


def _first_fault(net: Session, batch: Batch) -> str:
    """The operation, layer and tensor of a step where the first number that is not finite is."""
    done = 0
    try:
        for op, tensors in net.trace(*batch):
            for name, tensor in tensors.items():
                if (value := _odd(tensor)) is not None:
                    return f"'{name}' has become {value} in {_place(op, done)}"
            done += 1
    except NonFiniteError:  # an operation refuses a number that another has not written
        op = net.plan.ops[done]
        return f"'{op.written[0].name}' cannot be made of what enters {_place(op, done)}"
    return "a value in the network is not finite"


def _place(op: Op, number: int) -> str:
    return f"operation {number}, {op.kernel} of layer '{op.layer}'"


def _odd(t: QTensor) -> float | None:
    """The first number that is not finite."""
    if not isinstance(t.format, Float32):
        return None
    values = t.codes.reshape(-1)
    odd = ~np.isfinite(values)
    return float(values[int(np.argmax(odd))]) if odd.any() else None
