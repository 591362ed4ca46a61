"""The second opinion on hindsight ranges: docs/numerics.md section 26."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import oracle as o
from oracle_product import mul, quot
from oracle_tensor import (
    Array,
    Format,
    Source,
    Tensor,
    carries,
    encode,
    extremes,
    is_float,
    is_floating,
)


def is_hindsight(fmt: Format) -> bool:
    """Is its range that of earlier steps?"""
    return not is_float(fmt) and bool(fmt.range == "hindsight")


def dynamic(fmt: Format) -> Format:
    """The format with the range of the tensor itself."""
    return replace(fmt, range="dynamic") if is_hindsight(fmt) else fmt


@dataclass
class Gains:
    """By name: the gain in force and the next one, 0 if there is none."""

    now: dict[str, Array] = field(default_factory=dict)
    next: dict[str, Array] = field(default_factory=dict)
    watching: bool = False
    """Ranges are dynamic, and gains that are not there yet are found."""

    def stored(self, source: Source, fmt: Format, name: str, key: o.Key, learns: bool) -> Tensor:
        """The source in a format, by a gain where its range is one in hindsight."""
        ranged = is_hindsight(fmt)
        fmt = dynamic(fmt) if self.watching else fmt
        carried = isinstance(source, Tensor) and carries(source, fmt, source.shape)
        if self.watching and ranged:
            self.now.setdefault(name, first(largest(source), incoming(source)))
            self.next.setdefault(name, np.float32(0))
        if self.watching or not ranged or carried:
            return encode(source, fmt, key)
        s_in, g = incoming(source), self.now[name]
        top = o.top_code(fmt.bits, fmt.asymmetric)
        scale = o.scale_above(Fraction(float(s_in)) * Fraction(float(g)) / top, fmt.pow2)
        if learns:
            asked, kept = quot_of(largest(source), s_in), mul(g, np.float32(63 / 64))
            self.next[name] = max(self.next[name], asked, kept)
        return encode(source, fmt, key, at=scale)

    def commit(self) -> None:
        """At the end of a step."""
        for name, g in self.next.items():
            if g > 0:
                self.now[name], self.next[name] = g, np.float32(0)


def largest(source: Source) -> Array:
    """R: the largest magnitude, as the smallest normal float32 that holds it; 0 if all are 0."""
    index = np.zeros(source.shape, np.int64)
    ((lo, hi),) = extremes(source, index, 1)
    most = max(hi, -lo)
    return np.float32(float(o.scale_above(most))) if most else np.float32(0)


def incoming(source: Source) -> Array:
    """s_in: of operand a, or the source's own one scale, or 1."""
    if is_floating(source):
        return np.float32(1)
    of_a = None if isinstance(source, Tensor) else source.incoming
    if of_a is not None:
        return of_a
    scales = np.unique(source.pairs()[1])
    assert len(scales) == 1
    return scales[0]


def quot_of(most: Array, s_in: Array) -> Array:
    """What the largest value asks for."""
    return quot(most, s_in) if most else np.float32(0)


def first(most: Array, s_in: Array) -> Array:
    """The first gain."""
    return quot(most, s_in) if most else np.float32(1)
