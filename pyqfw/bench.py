"""Benchmarks, each beside its peer in the same process, one thread on one core.

A suite yields cases; `measure` times a case and its peer turn by turn and keeps the median and the
quartiles of the per-round ratios. Rates of a shared machine move by tens of percent; those
ratios hardly do.
"""

from __future__ import annotations

import gc
import importlib
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeAlias

import numpy as np

from . import quant, tensor
from .formats import Sym

Run: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], float]

# A timing of less than this repeats the call: the clock and the interpreter stay below 0.1 %.
MIN_SECONDS = 0.005

CHANNELS = 1024
GROUPS = (32, 64, 128)
ODD_WIDTHS = (3, 5, 6, 7, 9, 11, 12, 13)
MEMCPY_BAR = 0.9
TORCH_BAR = 8.0
PACK_BAR = 1.0


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

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without a bar."""
        value = self.ratio if self.bar_of == "ratio" else self.rate
        return None if self.bar is None or value is None else value >= self.bar


def measure(case: Case, repeats: int, clock: Clock = perf_counter) -> Row:
    """Times the case and its peer in interleaved rounds, the order swapping each round."""
    runs = [case.run] if case.peer_run is None else [case.run, case.peer_run]
    calls = [_calls_per_timing(run, clock) for run in runs]
    seconds = np.empty((repeats, len(runs)))
    for i in range(repeats):
        order = range(len(runs))
        for k in order if i % 2 == 0 else reversed(order):
            seconds[i, k] = _time(runs[k], calls[k], clock) / calls[k]
    rate, rate_quartiles = _spread(case.amount / seconds[:, 0])
    peer_rate = ratio = ratio_quartiles = None
    if len(runs) == 2:
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
    )


def _time(run: Run, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        run()
    return clock() - start


def _calls_per_timing(run: Run, clock: Clock) -> int:
    """Warms the work up and finds how often it fits into a timing."""
    run()
    once = _time(run, 1, clock)
    return max(1, min(10_000, round(MIN_SECONDS / once))) if once > 0 else 1


def _spread(values: Any) -> tuple[float, tuple[float, float]]:
    low, median, high = np.percentile(values, [25, 50, 75])
    return float(median), (float(low), float(high))


@contextmanager
def quiet() -> Iterator[bool]:
    """One thread, pinned where the system can, no collector; yields whether it is pinned."""
    torch = optional("torch")
    threads = torch.get_num_threads() if torch else 0
    collecting = gc.isenabled()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
    try:
        if torch:
            torch.set_num_threads(1)
        gc.disable()
        if cores:
            os.sched_setaffinity(0, {max(cores)})
        yield cores is not None
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
        if collecting:
            gc.enable()
        if torch:
            torch.set_num_threads(threads)


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


# --- the quantize family -----------------------------------------------------------------------

QUANT_NOTES = (
    "GB/s counts the float input; of pack and unpack, the integer codes (int8 up to 8 bits, "
    "else int16).",
    "memcpy, pack, unpack and rows with out= write into buffers touched before; the others and "
    "torch allocate their result anew in every call, which for 64 MB costs about as much as the "
    "work.",
)


def quant_suite(elements: int) -> Iterator[Case]:
    """The quantize family on `elements` floats, a multiple of CHANNELS."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(elements, dtype=np.float32)
    yield from _groupwise(x)
    torch = optional("torch")
    for n in sorted({elements, min(elements, 2**20)}, reverse=True):
        yield from _fake_quantize(x[:n].reshape(CHANNELS, -1), torch)
    del x
    for bits in ODD_WIDTHS:
        yield from _packing(rng, elements, bits)


def _groupwise(x: Any) -> Iterator[Case]:
    copy = x.copy()
    gigabytes = x.nbytes / 1e9

    def memcpy() -> None:
        np.copyto(copy, x)

    def case(name: str, run: Run) -> Case:
        return Case(name, run, gigabytes, "GB/s", "memcpy", memcpy, MEMCPY_BAR)

    yield Case("memcpy", memcpy, gigabytes, "GB/s")
    for g in GROUPS:
        fmt = Sym(8, group=g)
        yield case(f"quantize(x, {fmt})", partial(tensor.quantize, x, fmt))
    codes = np.zeros(x.shape, np.int8)
    for g in GROUPS:
        args = (x, *quant.qparams(x, 8, group=g), -127, 127)
        for suffix, out in (("", None), (", out=", codes)):
            run = partial(quant.quantize_affine, *args, group=g, out=out)
            yield case(f"quantize_affine int8, group={g}{suffix}", run)


def _fake_quantize(x: Any, torch: Any) -> Iterator[Case]:
    """Per tensor and per channel, beside torch's forward where torch is there."""
    zero = np.int32(0)
    zeros = np.zeros(CHANNELS, np.int32)
    scale = np.float32(0.03)
    scales = np.linspace(0.01, 0.05, CHANNELS, dtype=np.float32)
    size = _short(x.size)

    out = np.zeros_like(x)

    def per_tensor(out: Any) -> object:
        return quant.fake_quantize_affine(x, scale, zero, -128, 127, out=out)

    def per_channel(out: Any) -> object:
        return quant.fake_quantize_affine(x, scales, zeros, -128, 127, axis=0, out=out)

    peers: dict[str, Run] = {}
    if torch:
        tx, ts, tz = map(torch.from_numpy, (x, scales, zeros))
        per_tensor_torch = torch.fake_quantize_per_tensor_affine
        per_channel_torch = torch.fake_quantize_per_channel_affine
        peers["tensor"] = partial(per_tensor_torch, tx, float(scale), 0, -128, 127)
        peers["channel"] = partial(per_channel_torch, tx, ts, tz, 0, -128, 127)

    for grain, run in (("tensor", per_tensor), ("channel", per_channel)):
        peer = peers.get(grain)
        for suffix, target in (("", None), (", out=", out)):
            yield Case(
                f"fake_quantize per {grain}, {size}{suffix}",
                partial(run, target),
                x.nbytes / 1e9,
                "GB/s",
                peer="torch" if peer else None,
                peer_run=peer,
                bar=TORCH_BAR if peer else None,
            )


def _packing(rng: Any, elements: int, bits: int) -> Iterator[Case]:
    largest = 2 ** (bits - 1) - 1
    dtype = np.int8 if bits <= 8 else np.int16
    codes = rng.integers(-largest, largest, elements, dtype, endpoint=True)
    packed = quant.pack(codes, bits)
    back = np.zeros_like(codes)
    pack = partial(quant.pack, codes, bits, out=packed)
    unpack = partial(quant.unpack, packed, bits, elements, out=back)
    for name, run in (("pack", pack), ("unpack", unpack)):
        title = f"{name} {bits} bits, {np.dtype(dtype).name}"
        yield Case(title, run, codes.nbytes / 1e9, "GB/s", bar=PACK_BAR, bar_of="rate")


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
    """The rows as aligned text."""
    lines = [("work", "rate", "peer", "its rate", "ratio", "quartiles", "bar", "")]
    for r in rows:
        low, high = r.ratio_quartiles or r.rate_quartiles
        unit = "x" if r.ratio_quartiles else f" {r.unit}"
        bar_unit = "x" if r.bar_of == "ratio" else f" {r.unit}"
        lines.append(
            (
                r.name,
                f"{r.rate:.2f} {r.unit}",
                r.peer or "",
                "" if r.peer_rate is None else f"{r.peer_rate:.2f} {r.unit}",
                "" if r.ratio is None else f"{r.ratio:.2f}x",
                f"{low:.2f}..{high:.2f}{unit}",
                "" if r.bar is None else f">= {r.bar:g}{bar_unit}",
                {None: "", True: "ok", False: "MISSED"}[r.met],
            )
        )
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    left = {0, 2, 7}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _short(n: int) -> str:
    """16777216 as 16M."""
    for power, letter in ((20, "M"), (10, "k")):
        if n >= 2**power and n % 2**power == 0:
            return f"{n >> power}{letter}"
    return str(n)
