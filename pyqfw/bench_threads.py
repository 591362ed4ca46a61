"""Two threads beside one: wall time, on as many cores as the process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from . import bench

BAR = 1.6  # two threads beside one, where both have a core to themselves
FREE = 0.9  # of each core, so that it counts as free
LOOK = 0.25  # seconds
STEPS = 25  # of a call: training goes on, and its threads and caches with it


def cases(make: Callable[[int], tuple[str, bench.Run]], amount: float) -> Iterator[bench.Case]:
    """The row of a step: `make` gives its name and its run with a number of threads."""
    with bench.every_core() as cores:
        name, one = make(1)
        _, two = make(2)
        free = idle_cores(cores)
        yield bench.Case(
            name=f"{name}, 2 threads{_told(free, len(cores))}",
            run=_several(two),
            amount=STEPS * amount,
            unit="samples/s",
            peer="1 thread",
            peer_run=_several(one),
            bar=BAR if free is not None and free >= 2 * FREE else None,
            clock=perf_counter,
        )


def _several(run: bench.Run) -> bench.Run:
    def steps() -> None:
        for _ in range(STEPS):
            run()

    return steps


def _told(free: float | None, cores: int) -> str:
    """Why there is no bar."""
    if cores < 2:
        return " (there is one core)"
    if free is None:
        return " (whether a second core is free is not known)"
    return "" if free >= 2 * FREE else f" (the second core is not free: {free:.1f} of {cores} idle)"


def idle_cores(cores: set[int], look: float = LOOK) -> float | None:
    """How many of these cores have nothing to do, while we wait; None where that is not told."""
    before, start = _idle_ticks(cores), perf_counter()
    sleep(look)
    after, seconds = _idle_ticks(cores), perf_counter() - start
    if before is None or after is None or not hasattr(os, "sysconf"):
        return None
    return (after - before) / os.sysconf("SC_CLK_TCK") / seconds


def _idle_ticks(cores: set[int]) -> int | None:
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        ticks: dict[str, Any] = {line.split()[0]: line.split()[1:] for line in lines if line}
        return sum(int(ticks[f"cpu{core}"][3]) for core in cores)
    except (OSError, KeyError, ValueError, IndexError):
        return None
