"""Benchmarks, each beside its peer in the same process, one thread on one core.

A suite (bench_quant, bench_gemm, bench_layers, bench_train) yields cases; `measure` times a case
and its peer turn by turn and keeps the median and the quartiles of the per-round ratios. Rates of a
shared machine move by tens of percent; those ratios hardly do. What is timed is the thread's own
time, so that other work on the core does not count.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any, Literal, TypeAlias

import numpy as np

from . import quant

Run: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], float]

# A timing of less than this repeats the call: the clock and the interpreter stay below 0.1 %.
MIN_SECONDS = 0.005
WARM_UP = 5  # calls that are looked at
PEAK_ROUNDS = 20_000  # of the loop that shows the CPU's limit: some tenths of a millisecond
_cores: ContextVar[frozenset[int]] = ContextVar("cores", default=frozenset())  # before `quiet`


BITS = {"int8()": 8, "full_sym()": 16, "float32()": 32}  # of operands, as they lie in memory
LIMIT = (
    "GMAC/s: the multiply-accumulates that the work needs. limit: how many the core makes in a "
    "loop of nothing else, in the same rounds: of int8 and int16 as sums of pairs or, with VNNI, "
    "in one instruction; of floats by FMA, which float32() does without for the sake of its bits."
)


@dataclass(frozen=True)
class Case:
    """One piece of work. `amount` is what a call does, in the unit without its "/s"."""

    name: str
    run: Run
    amount: float
    unit: str
    peer: str | None = None
    peer_run: Run | None = None
    bar: float | None = None
    bar_of: Literal["ratio", "rate"] = "ratio"
    clock: Clock = thread_time
    macs: float = 0.0  # multiply-accumulates of a call, if they are its work
    bits: int = 0  # of their operands


@dataclass(frozen=True)
class Row:
    """A measured case: medians, with the lower and upper quartile over the rounds."""

    name: str
    unit: str
    rate: float
    rate_quartiles: tuple[float, float]
    peer: str | None
    peer_rate: float | None
    ratio: float | None
    ratio_quartiles: tuple[float, float] | None
    bar: float | None
    bar_of: Literal["ratio", "rate"]
    gmacs: float | None = None  # GMAC/s
    limit: float | None = None  # what the CPU could make of them

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without a bar."""
        value = self.ratio if self.bar_of == "ratio" else self.rate
        return None if self.bar is None or value is None else value >= self.bar


@dataclass(frozen=True)
class Suite:
    """Cases, and what a report says about them."""

    name: str
    cases: Iterator[Case]
    setting: dict[str, Any]
    title: str  # the setting in words
    notes: tuple[str, ...]
    without_torch: str  # a note more where torch is missing


def measure(case: Case, repeats: int, clock: Clock | None = None) -> Row:
    """Times the case and its peer in interleaved rounds, the order swapping each round."""
    clock = clock or case.clock
    peak = partial(quant.peak, case.bits, PEAK_ROUNDS)
    limited = case.macs > 0 and peak() > 0
    runs: list[Run] = [case.run]
    runs += [case.peer_run] if case.peer_run else []
    runs += [peak] if limited else []
    calls = [_calls_per_timing(run, clock) for run in runs]
    seconds = np.empty((repeats, len(runs)))
    for i in range(repeats):
        order = range(len(runs))
        for k in order if i % 2 == 0 else reversed(order):
            seconds[i, k] = _time(runs[k], calls[k], clock) / calls[k]
    rate, rate_quartiles = _spread(case.amount / seconds[:, 0])
    peer_rate = ratio = ratio_quartiles = None
    if case.peer_run:
        peer_rate = _spread(case.amount / seconds[:, 1])[0]
        ratio, ratio_quartiles = _spread(seconds[:, 1] / seconds[:, 0])
    return Row(
        name=case.name,
        unit=case.unit,
        rate=rate,
        rate_quartiles=rate_quartiles,
        peer=case.peer,
        peer_rate=peer_rate,
        ratio=ratio,
        ratio_quartiles=ratio_quartiles,
        bar=case.bar,
        bar_of=case.bar_of,
        gmacs=rate * case.macs / case.amount / 1e9 if case.macs else None,
        limit=_spread(peak() / seconds[:, -1] / 1e9)[0] if limited else None,
    )


def _time(run: Run, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        run()
    return clock() - start


def _calls_per_timing(run: Run, clock: Clock) -> int:
    """Warms the work up and finds how often it fits into a timing; its first calls may be slow."""
    run()
    once = min(_time(run, 1, clock) for _ in range(WARM_UP))
    return max(1, min(10_000, round(MIN_SECONDS / once))) if once > 0 else 1


def _spread(values: Any) -> tuple[float, tuple[float, float]]:
    low, median, high = np.percentile(values, [25, 50, 75])
    return float(median), (float(low), float(high))


@contextmanager
def quiet() -> Iterator[bool]:
    """One thread, pinned where the system can, no collector; yields whether it is pinned."""
    torch = optional("torch")
    threads = torch.get_num_threads() if torch else 0
    blas = _blas_threads()
    before = [get() for get, _ in blas]
    collecting = gc.isenabled()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
    token = _cores.set(frozenset(cores or ()))
    try:
        if torch:
            torch.set_num_threads(1)
        for _, set_threads in blas:
            set_threads(1)
        gc.disable()
        if cores:
            os.sched_setaffinity(0, {max(cores)})
        yield cores is not None
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
        _cores.reset(token)
        if collecting:
            gc.enable()
        for (_, set_threads), n in zip(blas, before, strict=True):
            set_threads(n)
        if torch:
            torch.set_num_threads(threads)


@contextmanager
def every_core() -> Iterator[set[int]]:
    """Not pinned, within `quiet`; yields the cores that there are for us."""
    cores = set(_cores.get())
    if not cores:  # not pinned, then
        yield set(range(os.cpu_count() or 1))
        return
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, pinned)


def _blas_threads() -> list[tuple[Callable[[], int], Callable[[int], object]]]:
    """How many threads NumPy's OpenBLAS uses: what asks, and what sets; nothing where there is none
    to be found."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
    found: list[tuple[Callable[[], int], Callable[[int], object]]] = []
    for path in sorted({word for word in maps if word.startswith("/") and "openblas" in word}):
        library = ctypes.CDLL(path)
        for start, end in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "")):
            name = f"{start}openblas_{{}}_num_threads{end}"
            if hasattr(library, name.format("set")):
                found.append((library[name.format("get")], library[name.format("set")]))
                break
    return found


def optional(name: str) -> Any:
    """The module if it can be imported, else None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next((name for name in names if name), platform.processor() or platform.machine())


def machine() -> dict[str, str | None]:
    """What the figures depend on."""
    core = quant.core_info()
    torch = optional("torch")
    return {
        "cpu": cpu_model(),
        "core": core["version"],
        "compiler": core["compiler"],
        "isa": core["isa"],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__ if torch else None,
    }


# --- reports -------------------------------------------------------------------------------------


def run_suite(
    cases: Iterator[Case], repeats: int, progress: Callable[[str], object] | None = None
) -> list[Row]:
    """Measures the cases as they come, so that one's buffers are gone before the next one's."""
    rows = []
    for case in cases:
        if progress:
            progress(case.name)
        rows.append(measure(case, repeats))
    if progress:
        progress("")
    return rows


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{**asdict(row), "met": row.met} for row in rows]


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text; what is multiplied beside the CPU's limit, where any row is."""
    counted = [r for r in rows if r.gmacs]
    rates = any(r.unit != "GMAC/s" for r in counted)  # else the rate is told already
    heads = (*(["GMAC/s"] if rates else []), *(["limit"] if counted else []))
    lines = [("work", "rate", *heads, "peer", "its rate", "ratio", "quartiles", "bar", "")]
    for r in rows:
        low, high = r.ratio_quartiles or r.rate_quartiles
        unit = "x" if r.ratio_quartiles else f" {r.unit}"
        bar_unit = "x" if r.bar_of == "ratio" else f" {r.unit}"
        lines.append(
            (
                r.name,
                f"{_digits(r.rate)} {r.unit}",
                *("" if v is None else _digits(v) for v in (r.gmacs, r.limit)[2 - len(heads) :]),
                r.peer or "",
                "" if r.peer_rate is None else f"{_digits(r.peer_rate)} {r.unit}",
                "" if r.ratio is None else f"{r.ratio:.2f}x",
                f"{_digits(low)}..{_digits(high)}{unit}",
                "" if r.bar is None else f">= {r.bar:g}{bar_unit}",
                {None: "", True: "ok", False: "MISSED"}[r.met],
            )
        )
    return aligned(lines, left={0, 2 + len(heads), 7 + len(heads)})


def aligned(lines: Sequence[tuple[str, ...]], left: set[int]) -> str:
    """Lines of cells in columns, those of `left` to the left."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def put_into(path: Path, name: str, setting: str, table: str, notes: Sequence[str]) -> None:
    """Writes a suite's section of a Markdown file: the one under its heading, or a new last one."""
    lines = [
        f"## {name}",
        "",
        f"`pyqfw bench {name}`: {setting}.",
        "",
        "```",
        table,
        "```",
        "",
        "\n\n".join(notes),
        "",
    ]
    text = path.read_text(encoding="utf-8") if path.exists() else "# Performance\n"
    parts = [part.rstrip() + "\n" for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)]
    section = "\n".join(lines)
    for k, part in enumerate(parts):
        if part.startswith(f"## {name}\n"):
            parts[k] = section
            break
    else:
        parts.append(section)
    path.write_text("\n".join(part.rstrip() + "\n" for part in parts), encoding="utf-8")


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"
