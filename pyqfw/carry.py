"""What one session hands to another: parameters, statistics, state, gains and progress."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from . import calibrate
from ._arrays import Array
from ._spaces import converted

if TYPE_CHECKING:
    from .session import Session


def over(source: Session, net: Session) -> None:
    """Parameters, statistics, and with the same optimizer its state; gains that are relative to the
    same."""
    mine, theirs = net._plan.program, source._plan.program
    for name, t in mine.parameters.items():
        stored = source._spaces.read(theirs.parameters[name], 1)
        if name in source._source and stored.format != t.fmt:
            net._spaces.write(t, net._encoded(t, source._source[name]))
        else:
            net._spaces.write(t, converted(stored, t))
    net._source = dict(source._source)
    for name, t in mine.statistics.items():
        net._spaces.write(t, source._spaces.read(theirs.statistics[name], 1))
    same = net._plan.request.optimizer == source._plan.request.optimizer
    for name, t in mine.states.items():
        if same and name in theirs.states:
            net._spaces.write(t, converted(source._spaces.read(theirs.states[name], 1), t))
    for name, gain in net._gains.items():
        if calibrate.relation(mine, name) == calibrate.relation(theirs, name):
            gain[:] = source._gains[name]
    progress = source._get()
    fields = {"step": progress.step}
    if same:
        fields |= {"updates": progress.updates, "lr": progress.lr}
        net.epochs = source.epochs
    net._set(**fields)


def first_gains(net: Session, twin: Session, data: Array, labels: Array | None) -> None:
    """Gains that there are not yet, of what the first micro-batch asks for in the twin, which has
    dynamic ranges; without labels, those of the forward."""
    plan = twin._plan
    rows = data[: plan.rows]
    end = None if labels is not None else plan.section("backward").start
    some = np.empty(0, np.int32) if labels is None else labels[: len(rows)]
    found = calibrate.gains(
        (op for op, _ in islice(twin._traced(rows, some), end)),
        plan.program.watched,
        lambda t: twin._spaces.read(t, len(rows)),
    )
    for name in net._unset("gain"):
        if name in found:
            net._gains[name].view(np.float32)[:] = found[name], 0.0
