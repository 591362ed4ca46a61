"""How a step's time and its arena grow with batch, width and depth, with fitted exponents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, log
from pathlib import Path
from time import thread_time
from typing import Any, NamedTuple

import numpy as np

from . import nn, optim
from .errors import QfwError
from .plan import compile as compile_plan
from .policy import Policy
from .session import Session

BATCH, WIDTH, DEPTH, LENGTH, CLASSES = 32, 16, 4, 64, 6
FITTED = 4  # of the sizes, the largest
MIN_SECONDS = 0.01  # of a timing
SWEEPS: dict[str, tuple[int, ...]] = {
    "batch": (8, 16, 32, 64, 128, 256),
    "width": (4, 8, 16, 32, 64, 128),
    "depth": (1, 2, 4, 8, 16, 32),
}
# What each should be: depth and batch add rows and layers; the weights of a layer are width x
# width, and so are its products, while its wires are only as wide.
EXPECTED = {"batch": "1, 1", "width": "up to 2, between 1 and 2", "depth": "1, 1"}


class Point(NamedTuple):
    """One net: the varied size, microseconds of a step (the fastest round), bytes of arena."""

    size: int
    microseconds: float
    arena: int


class Growth(NamedTuple):
    what: str
    points: list[Point]

    def exponent(self, of: str) -> float:
        return fitted([(p.size, float(getattr(p, of))) for p in self.points]).exponent


class Fit(NamedTuple):
    """y = always + factor x^exponent."""

    exponent: float
    factor: float
    always: float

    def at(self, x: float) -> float:
        return self.always + float(self.factor * x**self.exponent)


def fitted(points: Sequence[tuple[int, float]]) -> Fit:
    """Over the largest sizes, each twice the one before: what is always there is in no difference
    of neighbours, and those grow with the same power. Least squares of their logarithms."""
    some = points[-FITTED:]
    x = [log(a) for a, _ in some[:-1]]
    steps = [log(max(b[1] - a[1], 1e-9)) for a, b in pairwise(some)]
    exponent = float(np.polyfit(x, steps, 1)[0])
    mean = exp(sum(steps) / len(steps) - exponent * sum(x) / len(x))
    factor = mean / (2.0**exponent - 1.0)
    always = sum(y - factor * size**exponent for size, y in some) / len(some)
    return Fit(exponent, factor, always)


def net(batch: int = BATCH, width: int = WIDTH, depth: int = DEPTH) -> Session:
    """Convolutions over a line, their mean, and a head."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Conv1d(width, width, 3, padding=1), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, CLASSES)]
    plan = compile_plan(
        nn.Sequential(*layers),
        input_shape=(width, LENGTH),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.01),
        policy=Policy.int8(),
        batch=batch,
    )
    return Session(plan)


def measured(repeats: int, progress: Callable[[str], None] | None = None) -> list[Growth]:
    """Every sweep; the sizes of one take turns in each round, so that all see the same machine."""
    found = []
    for what, sizes in SWEEPS.items():
        steps = [_step(net(**{what: size})) for size in sizes]
        taken: list[list[float]] = [[] for _ in sizes]
        for k in range(repeats):
            for seconds, (run, _) in zip(taken, steps, strict=True):
                seconds.append(_seconds(run))
            if progress:
                progress(f"{what}, round {k + 1}")
        points = [
            Point(size, 1e6 * min(seconds), arena)
            for size, seconds, (_, arena) in zip(sizes, taken, steps, strict=True)
        ]
        found.append(Growth(what, points))
    if progress:
        progress("")
    return found


def _step(session: Session) -> tuple[Callable[[], object], int]:
    rng = np.random.default_rng(0)
    batch, shape = session.plan.batch, session.plan.request.input_shape
    x = rng.standard_normal((batch, *shape)).astype(np.float32)
    y = rng.integers(0, CLASSES, batch)
    session.step(x, y)
    return lambda: session.step(x, y), session.plan.arena_bytes


def _seconds(run: Callable[[], object]) -> float:
    """The thread's own time of a call, of as many as make it long enough for the clock."""
    count, taken = 1, 0.0
    while True:
        begin = thread_time()
        for _ in range(count):
            run()
        taken = thread_time() - begin
        if taken >= MIN_SECONDS:
            return taken / count
        count = max(2 * count, int(1.2 * count * MIN_SECONDS / max(taken, 1e-7)))


def table(found: Sequence[Growth]) -> str:
    head = ("size", "step", "arena", "a step grows", "arena grows", "expected")
    lines: list[tuple[str, ...]] = [head]
    for g in found:
        fits = [f"^{g.exponent(of):.2f}" for of in ("microseconds", "arena")]
        for p in g.points:
            first = p is g.points[0]
            told = (*fits, EXPECTED[g.what]) if first else ("", "", "")
            size = f"{g.what} {p.size}"
            lines.append((size, f"{p.microseconds:.0f} us", f"{p.arena} bytes", *told))
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            c.rjust(w) if 0 < k < 5 else c.ljust(w)
            for k, (c, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def to_json(found: Sequence[Growth]) -> list[dict[str, Any]]:
    return [
        {
            "what": g.what,
            "points": [p._asdict() for p in g.points],
            "time_exponent": g.exponent("microseconds"),
            "arena_exponent": g.exponent("arena"),
        }
        for g in found
    ]


def plot(found: Sequence[Growth], path: Path) -> None:
    """Time and arena against each size, both logarithmic, with the fitted lines; SVG or PNG."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as e:
        raise QfwError("a plot needs matplotlib: pip install 'pyqfw[plot]'") from e
    matplotlib.rcParams.update({"svg.hashsalt": "pyqfw", "svg.fonttype": "path", "font.size": 9})
    drawn = Figure(figsize=(10, 5.5), layout="constrained")
    axes = drawn.subplots(2, len(found), sharex="col", sharey="row")
    rows = (
        ("microseconds", "microseconds a step", "#4269d0"),
        ("arena", "bytes of arena", "#ff725c"),
    )
    for row, (of, label, colour) in zip(axes, rows, strict=True):
        for axis, g in zip(row, found, strict=True):
            values = [(p.size, float(getattr(p, of))) for p in g.points]
            fit = fitted(values)
            x = np.geomspace(values[-FITTED][0], values[-1][0])
            axis.loglog(*zip(*values, strict=True), "o", color=colour, base=2)
            told = f"c + b {g.what}^{fit.exponent:.2f}"
            axis.loglog(x, [fit.at(v) for v in x], color="#444", base=2, label=told)
            axis.set_xticks([x for x, _ in values], [str(x) for x, _ in values], minor=False)
            axis.set_yscale("log", base=10)
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(alpha=0.3)
            axis.legend(frameon=False, loc="lower right")
        row[0].set_ylabel(label)
    for axis, g in zip(axes[-1], found, strict=True):
        axis.set_xlabel(g.what)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    drawn.savefig(path, dpi=110, metadata=metadata)
