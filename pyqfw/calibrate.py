"""The first gains of hindsight ranges: what one batch asks for under dynamic ranges.

docs/numerics.md section 26. A device has no room for that: it is given the gains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from .formats import Float32
from .lower import Op, Program, Tensor
from .lower.ir import Watch
from .lower.requantize import ABSOLUTE
from .tensor import QTensor

FLT_MIN, FLT_MAX = np.float32(2.0**-126), np.finfo(np.float32).max


def gains(
    ran: Iterator[Op], watched: list[Watch], read: Callable[[Tensor], QTensor]
) -> dict[str, np.float32]:
    """The gain of each range whose operation runs; `read` gives a tensor as it stands then."""
    scales: dict[str, np.float32] = {}
    found: dict[str, np.float32] = {}
    for op in ran:
        for w in watched:
            if op is w.maker and w.incoming is not None:
                scales[w.gain] = _scale(read(w.incoming))
            if op is w.op:
                source = read(w.source)
                own = np.float32(1) if w.absolute else _scale(source)
                found[w.gain] = _gain(_largest(source), scales.get(w.gain, own))
    return found


def _scale(t: QTensor) -> np.float32:
    """Its one scale; 1 of floats."""
    return np.float32(1) if t.scale is None else np.float32(np.max(t.scale))


def _largest(t: QTensor) -> Fraction:
    """The largest magnitude, exactly: rows have a scale each, or columns, or all have one."""
    if isinstance(t.format, Float32):
        return Fraction(float(np.abs(t.codes).max(initial=0)))
    codes = t.codes.astype(np.int64)
    if t.zero_point is not None:
        codes -= np.int64(t.zero_point)
    assert t.scale is not None
    by_row = t.format.axis in ("row", 0)
    runs = (t.scale.size, -1) if by_row or t.scale.size == 1 else (-1, t.scale.size)
    sizes = np.abs(codes).reshape(runs).max(axis=1 if runs[1] == -1 else 0)
    each = t.scale.reshape(-1)
    return max(int(m) * Fraction(float(s)) for m, s in zip(sizes, each, strict=True))


def _gain(most: Fraction, s_in: np.float32) -> np.float32:
    """R / s_in in float32, R rounded up to one; 1 if nothing was seen."""
    if most == 0:
        return np.float32(1)
    with np.errstate(over="ignore", under="ignore"):
        return np.float32(np.clip(_float32_above(most) / s_in, FLT_MIN, FLT_MAX))


def _float32_above(v: Fraction) -> np.float32:
    """The smallest normal float32 that is not below."""
    if v >= Fraction(float(FLT_MAX)):
        return np.float32(FLT_MAX)
    x = np.float32(max(v, Fraction(float(FLT_MIN))))
    return x if Fraction(float(x)) >= v else np.nextafter(x, np.float32(np.inf))


def relation(program: Program, gain: str) -> tuple[object, ...] | None:
    """What a gain is about: the format of the range, and what it is relative to."""
    t = program.gains.get(gain)
    op = next((op for op in program.all_ops if t in op.used[1:]), None)
    if t is None or op is None or op.places[0] is None:
        return None
    if op.kernel == "convert" and op.params.get(ABSOLUTE):
        return op.places[0].fmt, 1
    a = op.places[1]
    if op.kernel == "convert":
        a = op.places[4] or a
    a = op.folded or a
    return None if a is None else (op.places[0].fmt, a.name, a.fmt)
