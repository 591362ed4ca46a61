"""What a report shows, as numbers: blocks of memory, histograms of codes, quantization errors."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arrays import Array
from .errors import QfwError
from .formats import Float32, SymInt32
from .lower.ir import Role

if TYPE_CHECKING:
    from .plan import Plan
    from .session import Session
    from .tensor import QTensor

_MOST_BINS = 255


class Block(NamedTuple):
    """A tensor in the arena: bytes begin .. end, operations first .. last."""

    name: str
    role: Role
    begin: int
    end: int
    first: int
    last: int


class Codes(NamedTuple):
    """How often a stored tensor has which codes, and how far it is off what it was made of."""

    name: str
    role: Role
    format: str
    edges: Array
    counts: Array
    used: float  # of the codes that the format has, those that occur
    decibels: float | None  # 10 log10(signal / error); None: it was not converted


def blocks(plan: Plan) -> list[Block]:
    """The memory map of a step: what lasts is there all the time."""
    layout, rows, end = plan.layout, plan.rows, len(plan.ops)
    found = []
    for t in plan.program.tensors:
        if t.space == "arena" and t.lasts:
            at = min(o for o, n in zip(layout.of(t), t.parts(rows), strict=True) if n)
            found.append(Block(t.name, t.role, at, at + t.nbytes(rows), 0, end))
    for span in layout.lifetimes:
        t = span.tensor
        if span.first < end and t.nbytes(rows):
            at = layout.of(t)[0]
            last = min(span.last + 1, end)
            found.append(Block(t.name, t.role, at, at + t.nbytes(rows), span.first, last))
    return found


def codes(net: Session, x: npt.ArrayLike | None, y: npt.ArrayLike | None) -> list[Codes]:
    """Of parameters and state as they are; with data, of all that a step writes, in a copy of the
    net that makes one."""
    program = net.plan.program
    seen: dict[str, Codes] = {}
    if x is not None:
        seen = _traced(net, np.asarray(x)[: net.plan.batch], y)
    kept = [*program.parameters, *(t.name for t in program.states.values())]
    for name in kept:
        t = net.tensor(name)
        if not isinstance(t.format, Float32):
            role: Role = "parameter" if name in program.parameters else "state"
            seen[name] = _counted(name, role, t, None)
    return list(seen.values())


def _traced(net: Session, x: Array, y: npt.ArrayLike | None) -> dict[str, Codes]:
    copy = net.recompile()
    loss = net.plan.request.loss
    labels = None if loss is None or y is None else np.asarray(y)[: len(x)]
    if loss is not None and labels is None:
        copy = net.recompile(loss=None, optimizer=None)
    values: dict[str, Array] = {copy.plan.program.input.name: x}
    found: dict[str, Codes] = {}
    for op, made in copy.trace(x, labels):
        for name, t in made.items():
            tensor = next(w for w in op.written if w.name == name)
            if tensor.role in ("wire", "error", "gradient") and _is_codes(t):
                source = op.places[1] if op.kernel == "convert" else None
                before = None if source is None else values.get(source.name)
                found[name] = _counted(name, tensor.role, t, before)
            values[name] = t.numpy()
    return found


def _is_codes(t: QTensor) -> bool:
    return not isinstance(t.format, (Float32, SymInt32))


def _counted(name: str, role: Role, t: QTensor, before: Array | None) -> Codes:
    fmt = t.format
    top = (1 << fmt.bits) - 1 if fmt.asymmetric else (1 << fmt.bits - 1) - 1
    low = 0 if fmt.asymmetric else -top
    n = min(top - low + 1, _MOST_BINS)
    edges = np.linspace(low - 0.5, top + 0.5, n + 1)
    flat = t.codes.reshape(-1)
    counts = np.histogram(flat, edges)[0]
    used = len(np.unique(flat)) / (top - low + 1)
    return Codes(name, role, repr(fmt), edges, counts, used, _decibels(before, t.numpy()))


def _decibels(before: Array | None, after: Array) -> float | None:
    """Of the same elements in the same order."""
    if before is None or before.shape != after.shape:
        return None
    signal = float(np.sum(np.square(before, dtype=np.float64)))
    error = float(np.sum(np.square(after.astype(np.float64) - before)))
    return 10 * log10(signal / error) if signal > 0 and error > 0 else None


def instructions(run: object) -> list[tuple[str, float]]:
    """Of a run on a device, by operation."""
    from .mcu import Run  # here, since most reports are of no device

    if not isinstance(run, Run):
        raise QfwError(f"report: run must be the Run of q.mcu.run, not {type(run).__name__}")
    return [(f"{op.number} {op.kernel} {op.layer}", op.instructions) for op in run.by_op]
