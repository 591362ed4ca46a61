"""Steps that can be undone: a run that breaks goes back to where it was whole.

A copy of all that lasts before every step would cost up to a seventh of it. A step is a function of
what lasts and its batch, so one copy for many steps does: they are repeated from there, with the
same bits, up to the one that broke.
"""

from __future__ import annotations

from math import isfinite, nan
from typing import Any, NoReturn

import numpy as np

from . import feed
from ._batches import Batch, Source, named
from .errors import NonFiniteError, QfwError
from .formats import Float32
from .session import Session
from .tensor import QTensor

WINDOW = 64  # steps for a copy, at most
HELD = 2**26  # bytes of batches to repeat them with, at most

_REMEDY = "it has diverged: go on with a smaller lr"


class Rewind:
    """The steps of a pass. What breaks is named with its batch; numbers that break are explained.

    NonFiniteError leaves the net as it was before the step that broke; any other error, as it was.
    """

    def __init__(self, net: Session, data: Source) -> None:
        self._net, self._data = net, data
        self._before = 0  # batches before the copy
        self._keys: list[Any] = []
        if (found := _broken(net)) is not None:
            raise NonFiniteError(
                f"'{found}' is not finite before the first step: go back to good parameters "
                "(load_state_dict)"
            )
        self._mark()

    def _mark(self) -> None:
        self._before += len(self._keys)
        self._start = self._net._mark()
        self._keys = []
        self._held = 0
        self._losses: list[float] = []

    def step(self, key: Any) -> tuple[float, int]:
        """`Session.step` on a batch of the source: its loss, and its rows."""
        if len(self._keys) == WINDOW or self._held > HELD:
            self.check()
            self._mark()
        x, y = self._data.batch(key)
        self._keys.append(key)
        self._held += self._data.held(key)
        try:
            loss = self._net.step(x, y)
        except NonFiniteError as e:
            with named(self._name(-1)):
                feed.blame(self._net._inputs(x), x)
            self._explain(e)
        except QfwError as e:
            raise type(e)(f"{self._name(-1)}: {e}") from e
        if not isfinite(loss):
            self._explain()
        self._losses.append(loss)
        return loss, len(y)

    def _name(self, i: int) -> str:
        return f"batch {self._before + i % len(self._keys)}"

    def check(self) -> None:
        """Explains what is not finite in what the last steps left."""
        if _broken(self._net) is not None:
            self._explain()

    def _explain(self, cause: Exception | None = None) -> NoReturn:
        """Repeats the steps from the copy; the first that breaks is traced, and undone."""
        net = self._net
        net._go_back(self._start)
        for i, key in enumerate(self._keys):
            batch = self._data.batch(key)
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
                f"{self._name(i)}, step {net.steps}: {fault}: {_REMEDY}; the net is as it was "
                "before this step"
            ) from cause
        net._go_back(self._start)
        raise NonFiniteError(
            f"{self._name(-1)}: a value in the network is not finite: {_REMEDY}; the net is as it "
            f"was before step {net.steps}: batches have been written over since, so that the steps "
            "from there cannot be repeated"
        ) from cause


def _loss(net: Session, batch: Batch) -> float:
    try:
        return net.step(*batch)
    except QfwError:
        return nan


def _broken(net: Session) -> str | None:
    """A parameter, statistic or state that is not finite."""
    program = net.plan.program
    for t in (*program.kept.values(), *program.states.values()):
        if not isinstance(t.fmt, Float32):
            continue
        if not np.isfinite(net._spaces.parts(t, 1)[0].view(np.float32)).all():
            return t.name
    return None


def _first_fault(net: Session, batch: Batch) -> str:
    """The operation, layer and tensor of a step where the first number that is not finite is."""
    try:
        for number, (op, tensors) in enumerate(net.trace(*batch)):
            for name, tensor in tensors.items():
                if (value := _odd(tensor)) is not None:
                    place = f"operation {number}, {op.kernel} of layer '{op.layer}'"
                    return f"'{name}' has become {value} in {place}"
    except NonFiniteError as e:  # an operation refused what is in no tensor; it says which
        return f"{str(e).partition(':')[0]}: a value is not finite"
    return "a value in the network is not finite"


def _odd(t: QTensor) -> float | None:
    """The first number that is not finite."""
    if not isinstance(t.format, Float32):
        return None
    values = t.codes.reshape(-1)
    odd = ~np.isfinite(values)
    return float(values[int(np.argmax(odd))]) if odd.any() else None
