"""Training over epochs: `fit`, `evaluate`, and what was measured."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from math import inf
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _arrays as arrays
from ._bar import bar, text
from ._batches import Arrays, Batch, Source, Stream, named, permutation, source
from ._rewind import Rewind
from .errors import QfwError
from .session import Session

if TYPE_CHECKING:
    from ._bar_tqdm import Bar

_CHUNK = 1024  # rows of a prediction: between two the bar moves

Schedule: TypeAlias = Callable[[float, int], float]
Callback: TypeAlias = "Callable[[Session, History], object]"
Stopped: TypeAlias = Literal["patience", "callback", "interrupted"]


class History:
    """What `fit` measured: lists with a number for each complete epoch.

    `loss` is the mean over the epoch's rows, each seen by the network of its step; `lr` the
    learning rate at the epoch's beginning; `seconds` of training, validation not counted. With
    validation: what `evaluate` returned, as `val_loss`, `val_accuracy`. `stopped` says who ended
    the run: "patience", "callback" or "interrupted"; None, if nobody did.
    """

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.lr: list[float] = []
        self.seconds: list[float] = []
        self.stopped: Stopped | None = None
        self._validation: dict[str, list[float]] = {}

    def to_dict(self) -> dict[str, list[float]]:
        """The lists by name, copied."""
        lists = {"loss": self.loss, "lr": self.lr, "seconds": self.seconds, **self._validation}
        return {name: list(values) for name, values in lists.items()}

    def __len__(self) -> int:
        """Complete epochs."""
        return len(self.loss)

    def __getattr__(self, name: str) -> list[float]:
        found: dict[str, list[float]] = self.__dict__.get("_validation", {})
        if name in found:
            return found[name]
        hint = ": there was no validation" if name.startswith("val_") and not found else ""
        raise AttributeError(f"History has no {name!r}{hint}")

    def __repr__(self) -> str:
        parts = [f"{len(self)} epoch{'' if len(self) == 1 else 's'}"]
        if len(self):
            parts += [
                f"{name} {values[-1]:.4g}"
                for name, values in {"loss": self.loss, **self._validation}.items()
            ]
            judged = "val_loss" if "val_loss" in self._validation else "loss"
            values = getattr(self, judged)
            best = int(np.argmin(values))
            parts.append(f"best {judged}[{best}] {values[best]:.4g}")
            parts.append(f"{sum(self.seconds):.3g} s")
        if self.stopped:
            parts.append(f"stopped: {self.stopped}")
        return f"<History {', '.join(parts)}>"

    def _add(self, loss: float, lr: float, seconds: float, validation: dict[str, float]) -> None:
        self.loss.append(loss)
        self.lr.append(lr)
        self.seconds.append(seconds)
        for name, value in validation.items():
            self._validation.setdefault(f"val_{name}", []).append(value)


def fit(
    net: Session,
    x: npt.ArrayLike | Iterable[Batch],
    y: npt.ArrayLike | None = None,
    *,
    epochs: int,
    validation: tuple[npt.ArrayLike, npt.ArrayLike] | Iterable[Batch] | None = None,
    shuffle: bool = True,
    schedule: Schedule | None = None,
    callbacks: Iterable[Callback] = (),
    patience: int | None = None,
    progress: bool | None = None,
) -> History:
    """Trains for so many more passes over x and y, in batches of the plan's size.

    Or over x alone, an iterable of batches (x, y) in an order of its own. That of arrays depends on
    the plan's seed and `net.epochs` only, or is theirs if not `shuffle`. The short last batch is
    trained too. The steps are those of `net.step`, with the same bits.

    * ``validation=(x, y)``, or an iterable of batches: `evaluate` after each epoch.
    * ``schedule(base_lr, epoch)`` gives each epoch's `net.lr`; it gets the lr of the plan's
      optimizer and `net.epochs`.
    * ``callback(net, history)`` is called after each epoch; one that returns True ends the run.
    * `patience`: how many epochs in a row may bring no better validation loss (without validation,
      training loss). The parameters stay the last ones, not the best.
    * `progress`: a bar; None: if stderr is a terminal or a notebook.

    Ctrl-C ends the run after the step at work, and what is returned holds the complete epochs; a
    second one raises KeyboardInterrupt. A loss, parameter or state that is not finite raises
    NonFiniteError with the step and the first tensor that broke, the net being as it was before
    that step.
    """
    run = _Run(net, x, y, epochs, validation, shuffle, schedule, callbacks, patience)
    options = {"total": run.total(), "unit": "step", "desc": run.title(0)}
    with _Interrupt() as interrupt, bar(progress, **options) as shown:
        run.go(shown, interrupt)
    if interrupt.asked:
        run.history.stopped = "interrupted"
    return run.history


def evaluate(
    net: Session,
    x: npt.ArrayLike | Iterable[Batch],
    y: npt.ArrayLike | None = None,
    *,
    progress: bool | None = None,
) -> dict[str, float]:
    """The loss, and what else the loss measures (`accuracy`), of `net.predict`, in float64.

    Of x and y, or of x alone, an iterable of batches (x, y). A bar is shown when it takes long.
    """
    _check_net(net, "evaluate")
    net._needs_loss("evaluate")
    return _measured(net, source(net, x, y, 1), progress)


def _measured(net: Session, data: Source, progress: bool | None) -> dict[str, float]:
    outputs, targets = [], []
    with bar(progress, total=data.count(_CHUNK), unit="batch", delay=2, leave=False) as shown:
        for number, key in enumerate(data.keys(_CHUNK)):
            x, y = data.batch(key)
            with named(f"batch {number}"):
                outputs.append(net.predict(x))
                targets.append(net._labels(y, len(outputs[-1])))
            shown.update()
    if not sum(map(len, outputs)):
        raise QfwError("x has no rows: there must be one at least")
    loss = net.plan.request.loss
    assert loss is not None
    return loss.metrics(np.concatenate(outputs), np.concatenate(targets))


class _Run:
    """One call of fit."""

    def __init__(
        self,
        net: Session,
        x: Any,
        y: Any,
        epochs: int,
        validation: Any,
        shuffle: bool,
        schedule: Schedule | None,
        callbacks: Iterable[Callback],
        patience: int | None,
    ) -> None:
        _check_net(net, "fit")
        net._needs_optimizer("fit")
        self.epochs = arrays.integer(epochs, "epochs", 0, 2**31)
        if not isinstance(shuffle, (bool, np.bool_)):
            raise QfwError(f"shuffle must be True or False, not {shuffle!r}")
        if schedule is not None and not callable(schedule):
            raise QfwError(f"schedule must be a callable (base_lr, epoch) -> lr, not {schedule!r}")
        if patience is not None:
            arrays.integer(patience, "patience", 1, 2**31)
        self.net, self.shuffle, self.schedule, self.patience = net, shuffle, schedule, patience
        self.callbacks = _callables(callbacks)
        self.history = History()
        self.data = source(net, x, y, self.epochs)
        with named("validation"):
            self.validation = _validation(net, validation, self.epochs)

    def total(self) -> int | None:
        """Steps to come, where that is known."""
        count = self.data.count(self.net.plan.batch)
        return None if count is None else count * self.epochs

    def title(self, number: int) -> str:
        return f"epoch {min(number + 1, self.epochs)}/{self.epochs}"

    def go(self, shown: Bar, interrupt: _Interrupt) -> None:
        best, since = inf, 0
        for number in range(self.epochs):
            shown.set_description_str(self.title(number), refresh=False)
            if not self._epoch(shown, interrupt):
                return
            stop = [callback(self.net, self.history) for callback in self.callbacks]
            judged = self.history.loss if self.validation is None else self.history.val_loss
            best, since = (judged[-1], 0) if judged[-1] < best else (best, since + 1)
            if any(answer is True for answer in stop):
                self.history.stopped = "callback"
            elif self.patience is not None and since >= self.patience:
                self.history.stopped = "patience"
            if self.history.stopped or interrupt.asked:
                return

    def _epoch(self, shown: Bar, interrupt: _Interrupt) -> bool:
        """A pass with its validation; False if it was interrupted before its end."""
        net, epoch = self.net, self.net.epochs
        self._set_lr(epoch)
        begin, lr, mean = perf_counter(), net.lr, _Mean()
        with named(f"epoch {epoch}"):
            if not self._pass(mean, shown, interrupt):
                return False
        net.epochs += 1
        seconds = perf_counter() - begin
        values = {}
        if self.validation is not None:
            with named(f"validation after epoch {epoch}"):
                values = _measured(net, self.validation, False)
        self.history._add(mean.value, lr, seconds, values)
        shown.set_postfix_str(self._state(mean), refresh=False)
        return True

    def _set_lr(self, epoch: int) -> None:
        optimizer = self.net.plan.request.optimizer
        if self.schedule is not None and optimizer is not None:
            value = self.schedule(optimizer.lr, epoch)
            with named(f"schedule({optimizer.lr}, {epoch})"):
                self.net.lr = value

    def _pass(self, mean: _Mean, shown: Bar, interrupt: _Interrupt) -> bool:
        plan, order = self.net.plan, None
        if self.shuffle and isinstance(self.data, Arrays):
            order = permutation(len(self.data.x), plan.seed, self.net.epochs)
        steps = Rewind(self.net, self.data)
        for key in self.data.keys(plan.batch, order):
            if interrupt.asked:
                return False
            mean.add(*steps.step(key))
            if shown.update():
                shown.set_postfix_str(self._state(mean), refresh=False)
        steps.check()
        return True

    def _state(self, mean: _Mean) -> str:
        last = {name: values[-1] for name, values in self.history._validation.items()}
        return text({"loss": mean.value, **last})


class _Mean:
    """A mean weighted by rows."""

    def __init__(self) -> None:
        self._sum, self._rows = 0.0, 0

    def add(self, value: float, rows: int) -> None:
        self._sum += value * rows
        self._rows += rows

    @property
    def value(self) -> float:
        return self._sum / max(self._rows, 1)


class _Interrupt:
    """In the block the first Ctrl-C is only noted, and the second raises KeyboardInterrupt.

    Where Python's own handler would have answered: not in another thread, and not over a handler of
    the caller's.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> _Interrupt:
        here = threading.current_thread() is threading.main_thread()
        self._ours = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours and signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _check_net(net: object, what: str) -> None:
    if not isinstance(net, Session):
        raise QfwError(f"{what} needs a q.Session, not {type(net).__name__}")


def _callables(callbacks: Any) -> list[Callback]:
    if callable(callbacks):
        raise QfwError(f"callbacks must be a list of callables: write [{callbacks!r}]")
    if not hasattr(callbacks, "__iter__"):
        raise QfwError(f"callbacks must be a list of callables, not {callbacks!r}")
    found = list(callbacks)
    for i, callback in enumerate(found):
        if not callable(callback):
            raise QfwError(f"callbacks[{i}] must be callable (net, history), not {callback!r}")
    return found


def _validation(net: Session, given: Any, passes: int) -> Source | None:
    """A tuple of two is x and y; anything else an iterable of batches."""
    if given is None:
        return None
    if isinstance(given, tuple) and len(given) == 2:
        return source(net, *given, passes)
    return Stream(given, passes)
