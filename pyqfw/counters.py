"""Counters: what rounding and clamping did to each tensor (docs/numerics.md section 27)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan, log2, nan
from typing import TYPE_CHECKING

import numpy as np

from ._arrays import Array
from .formats import Float32
from .lower.ir import Program, Role, Tensor

if TYPE_CHECKING:
    from .session import Session

_COUNTS = ("written", "saturated", "asked", "unmoved", "dead", "doubled", "halved")
RECORD = np.dtype([*((name, "<u8") for name in _COUNTS), ("least", "<f4"), ("most", "<f4")])
"""The core's qfw_counter."""


@dataclass(frozen=True)
class Counter:
    """One tensor, since counting began. A fraction of nothing is NaN.

    written: codes that were encoded, or moved by an update; saturated: those that a clamp changed.
    asked: updates of a parameter's elements whose step was not 0; unmoved: those that rounding
    made 0; dead: those that no draw would have moved. doubled, halved: changes of the scales of a
    parameter or state; scales: how many it has (of one row, where there are rows). least, most:
    the scales that codes had.
    """

    role: Role
    written: int
    saturated: int
    asked: int
    unmoved: int
    dead: int
    doubled: int
    halved: int
    scales: int
    least: float
    most: float

    @property
    def saturated_fraction(self) -> float:
        """Of the codes written."""
        return self.saturated / self.written if self.written else nan

    @property
    def zero_update_fraction(self) -> float:
        """Of the updates asked for, those that moved no code."""
        return self.unmoved / self.asked if self.asked else nan

    @property
    def dead_fraction(self) -> float:
        """Of the updates asked for, those that are lost: stochastic rounding makes up for the rest
        of the zero updates, since what it moves is right in the mean.
        """
        return self.dead / self.asked if self.asked else nan

    @property
    def drift(self) -> float:
        """log2 of a parameter's or state's scale against its first, the mean over its scales."""
        lasts = self.role in ("parameter", "state")
        return (self.doubled - self.halved) / self.scales if lasts else nan

    @property
    def spread(self) -> float:
        """log2(most / least)."""
        return log2(self.most) - log2(self.least)


class Counters(Mapping[str, Counter]):
    """Tensors by name, in the plan's order; printed as a table."""

    def __init__(self, counters: Mapping[str, Counter]) -> None:
        self._counters = dict(counters)

    def __getitem__(self, name: str) -> Counter:
        return self._counters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counters)

    def __len__(self) -> int:
        return len(self._counters)

    def __repr__(self) -> str:
        head = ("tensor", "codes", "saturated", "updates", "zero", "dead", "drift", "scales")
        rows = [head, *(_row(name, c) for name, c in self.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(w) if 0 < k < len(head) - 1 else cell.ljust(w)
                for k, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )


class CounterLog:
    """A callback of `fit` that keeps the counters of each epoch, for `q.report`; the net counts
    from here on."""

    def __init__(self, net: Session) -> None:
        self.epochs: list[Counters] = []
        net.count()

    def __call__(self, net: Session, history: object) -> None:
        self.epochs.append(net.counters(reset=True))


def counted(program: Program) -> dict[int, Tensor]:
    """By their numbers: tensors in codes that operations write, but for scratch."""
    written = {t for op in program.all_ops for t in op.written}
    return {
        i: t
        for i, t in enumerate(program.tensors)
        if t in written and t.role != "scratch" and not isinstance(t.fmt, Float32 | None)
    }


def table(program: Program) -> Array:
    """A record of zeros for each tensor of the plan."""
    return np.zeros(len(program.tensors), RECORD)


def read(program: Program, records: Array) -> Counters:
    """What the records say of the tensors that count."""
    return Counters({t.name: _counter(t, records[i]) for i, t in counted(program).items()})


def _counter(t: Tensor, record: Array) -> Counter:
    counts = {name: int(record[name]) for name in _COUNTS}
    least, most = (float(record[name]) or nan for name in ("least", "most"))
    return Counter(t.role, **counts, scales=t.layout(1).n_scales, least=least, most=most)


def _row(name: str, c: Counter) -> tuple[str, ...]:
    updates = str(c.asked) if c.role == "parameter" else "-"
    drift = "-" if isnan(c.drift) else f"{c.drift:+.2f}"
    scales = "-" if isnan(c.least) else f"{c.least:.3g} .. {c.most:.3g}"
    shares = (_share(f) for f in (c.zero_update_fraction, c.dead_fraction))
    return name, str(c.written), _share(c.saturated_fraction), updates, *shares, drift, scales


def _share(fraction: float) -> str:
    return "-" if isnan(fraction) else f"{fraction:.2%}"
