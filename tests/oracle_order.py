"""The second opinion on the order of memory: docs/numerics.md section 32.

[channels][rest] of a sample (of a parameter: behind its first `lead` axes) lies in memory as
[rest][channels]; channels 0 is C order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
from oracle_tensor import Acc, Array, Format, Source, Tensor, is_float

Shape = tuple[int, ...]


def ordered(channels: int, size: int) -> int:
    """0 where C order is the same: one channel, or nothing but channels."""
    return channels if 1 < channels < size else 0


class Place(NamedTuple):
    """The shape of a sample, or of a parameter, and its order."""

    shape: Shape
    channels: int = 0
    lead: int = 0

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def moves(self) -> bool:
        """Whether the channels are an axis, which is the last in memory."""
        return self.channels > 0 and self.shape[self.lead] == self.channels

    @property
    def memory(self) -> Shape:
        """The axes in the order of memory; what was flattened, channels and all, is one."""
        lead, rest = self.shape[: self.lead], self.shape[self.lead :]
        return (*lead, *rest[1:], rest[0]) if self.moves else self.shape

    def format(self, fmt: Format) -> Format:
        """Of a parameter: over the axes in memory."""
        if is_float(fmt) or not isinstance(fmt.axis, int) or not self.moves:
            return fmt
        axes = list(range(len(self.shape)))
        axes = [*axes[: self.lead], *axes[self.lead + 1 :], self.lead]
        return replace(fmt, axis=axes.index(range(len(self.shape))[fmt.axis]))

    def to_memory(self, x: Array) -> Array:
        """From PyTorch's order; axes before the shape's are rows."""
        rows = x.shape[: x.ndim - len(self.shape)]
        if not self.channels:
            return x
        parts = x.reshape(*rows, *self.shape[: self.lead], self.channels, -1)
        return np.moveaxis(parts, -2, -1).reshape(*rows, *self.memory)

    def from_memory(self, x: Array, rows: Sequence[int] = ()) -> Array:
        """And back; `x` in any shape."""
        if not self.channels:
            return x.reshape(*rows, *self.shape)
        parts = x.reshape(*rows, *self.shape[: self.lead], -1, self.channels)
        return np.moveaxis(parts, -1, -2).reshape(*rows, *self.shape)


def shown(source: Source, place: Place) -> Source:
    """Rows of samples in PyTorch's order; where a row or a group has its scale, in memory's."""
    rows = source.shape[:1]
    if isinstance(source, Acc):
        parts = (source.values, source.scale)
        values, scale = (None if p is None else place.from_memory(p, rows) for p in parts)
        return Acc(values, scale, source.incoming)
    if not is_float(source.format) and not (source.format.axis is source.format.group is None):
        return source.reshape((*rows, *place.memory))
    return replace(source, codes=place.from_memory(source.codes, rows))


def shown_parameter(t: Tensor, place: Place, fmt: Format) -> Tensor:
    """The same of a parameter, in the format as the policy has it."""
    if not place.channels:
        return t
    if not is_float(fmt) and (fmt.axis == "row" or fmt.group is not None):
        return t
    points = [t.scale, t.zero]
    axis = None if is_float(fmt) or fmt.axis is None else range(len(place.shape))[fmt.axis]
    if axis == place.lead and not place.moves:  # an axis that was flattened
        flat = Place(place.shape[axis : axis + 1], place.channels)
        points = [None if p is None else flat.from_memory(p) for p in points]
    codes = place.from_memory(t.codes)
    return replace(t, format=fmt, codes=codes, scale=points[0], zero=points[1], origin=place.shape)


def reordered(source: Tensor, before: int, after: int) -> Tensor:
    """Rows of samples, one scale for all, in another order."""
    assert is_float(source.format) or source.format.axis is source.format.group is None
    codes = source.codes.reshape(len(source.codes), -1)
    size = codes.shape[1:]
    codes = Place(size, before).from_memory(codes, codes.shape[:1])
    return replace(source, codes=Place(size, after).to_memory(codes).reshape(source.shape))
