"""The second opinion on pools: docs/numerics.md section 35.

Arrays are [rows][high][wide][channels]. Geometry comes from a layer's arguments by PyTorch's rules,
numbers are Python integers or float32, and nothing of the package is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
import oracle as o
from oracle_product import lift, quot
from oracle_tensor import Array

Pair = tuple[int, int]


def pair(value: Any, usual: int) -> Pair:
    """A size for both axes: one axis is two with a height of 1."""
    several = value if isinstance(value, (tuple, list)) else None
    if several is None:
        return (value, value)
    return (usual, several[0]) if len(several) == 1 else (several[0], several[1])


@dataclass(frozen=True)
class Geometry:
    """Where the windows of a pool lie on an image of so many pixels."""

    size: Pair
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None
    output: Pair | None = None  # of an adaptive pool

    @staticmethod
    def of(layer: Any, image: tuple[int, ...]) -> Geometry:
        """Of a layer with PyTorch's attributes, over a sample's axes after the channels."""
        flat = len(image) == 1
        size: Pair = (1, image[0]) if flat else (image[0], image[1])

        def sizes(name: str, usual: int) -> Pair:
            value = getattr(layer, name, usual)
            value = layer.kernel_size if value is None and name == "stride" else value
            found = pair(value, usual)
            return (usual, found[1]) if flat else found

        if hasattr(layer, "output_size"):
            wanted = sizes("output_size", 1)
            filled = [n if w is None else w for w, n in zip(wanted, size, strict=True)]
            return Geometry(size, output=(filled[0], filled[1]))
        plain = {"kernel": "kernel_size", "stride": "stride", "dilation": "dilation"}
        given: dict[str, Any] = {name: sizes(theirs, 1) for name, theirs in plain.items()}
        given["padding"] = sizes("padding", 0)
        given["ceil_mode"] = layer.ceil_mode
        given["count_include_pad"] = getattr(layer, "count_include_pad", True)
        return Geometry(size, **given, divisor=getattr(layer, "divisor_override", None))

    def windows(self, axis: int) -> int:
        """How many there are along an axis: PyTorch's pooling_output_shape."""
        if self.output is not None:
            return self.output[axis]
        n, k, s, p, d = (
            getattr(self, name)[axis]
            for name in ("size", "kernel", "stride", "padding", "dilation")
        )
        found = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if self.ceil_mode else 0)) // s + 1
        if self.ceil_mode and (found - 1) * s >= n + p:
            found -= 1
        return int(found)

    @property
    def out(self) -> Pair:
        """Windows of both axes."""
        return self.windows(0), self.windows(1)

    @property
    def taps(self) -> int:
        """Of the kernel."""
        return self.kernel[0] * self.kernel[1]

    def taps_at(self, at: Pair) -> Iterator[tuple[int, Pair]]:
        """Taps of a window whose pixels are inside the image, in ascending order."""
        for tap, uv in enumerate(product(range(self.kernel[0]), range(self.kernel[1]))):
            y, x = (
                at[i] * self.stride[i] - self.padding[i] + uv[i] * self.dilation[i] for i in (0, 1)
            )
            if 0 <= y < self.size[0] and 0 <= x < self.size[1]:
                yield tap, (y, x)

    def span(self, axis: int, window: int) -> tuple[range, int]:
        """The pixels of a window along an axis, and what it counts."""
        n = self.size[axis]
        if self.output is not None:
            m = self.output[axis]
            found = range(window * n // m, -(-(window + 1) * n // m))
            return found, len(found)
        begin = window * self.stride[axis] - self.padding[axis]
        end = min(begin + self.kernel[axis], n + self.padding[axis])
        found = range(max(begin, 0), min(end, n))
        return found, end - begin if self.count_include_pad else len(found)

    def pixels_at(self, at: Pair) -> list[Pair]:
        """Of a window of a mean, in ascending order."""
        return list(product(self.span(0, at[0])[0], self.span(1, at[1])[0]))

    def count(self, at: Pair) -> int:
        """What the sum of a window is divided by."""
        return self.divisor or self.span(0, at[0])[1] * self.span(1, at[1])[1]

    def positions(self) -> list[Pair]:
        """Of the result, in ascending order."""
        return list(product(range(self.out[0]), range(self.out[1])))

    def constant(self) -> int | None:
        """The divisor of all windows, if they have one."""
        found = {self.count(at) for at in self.positions()}
        return found.pop() if len(found) == 1 else None

    @property
    def never_meet(self) -> bool:
        """Whether strides are as long as kernels reach, or there is one window."""
        return all(
            self.out[i] == 1 or self.stride[i] >= self.dilation[i] * (self.kernel[i] - 1) + 1
            for i in (0, 1)
        )

    def most_meeting(self) -> int:
        """T: a bound of the windows of a mean that a pixel is in."""

        def along(i: int) -> int:
            n, m = self.size[i], self.out[i]
            if self.output is not None:
                return 1 if n % m == 0 else -(-m // n) + 1
            return min(m, -(-self.kernel[i] // self.stride[i]))

        return along(0) * along(1)


def cell(x: Array, at: Pair) -> Array:
    """A view of one place of the image, in all rows: [rows][channels]."""
    return x[:, at[0], at[1]]


# ---- the largest ---------------------------------------------------------------------------------


def max_pool(x: Array, g: Geometry) -> tuple[Array, Array]:
    """What is selected of integers or floats, and the picks."""
    y = np.zeros((x.shape[0], *g.out, x.shape[-1]), x.dtype)
    pick = np.zeros(y.shape, np.int64)
    for at in g.positions():
        (first, pixel), *others = g.taps_at(at)
        best, chosen = cell(x, pixel), np.full((len(x), x.shape[-1]), first)
        for tap, pixel in others:
            v = cell(x, pixel)
            more = (v > best) | (v != v)
            best, chosen = np.where(more, v, best), np.where(more, tap, chosen)
        cell(y, at)[:], cell(pick, at)[:] = best, chosen
    return y, pick


def pick_bits(g: Geometry) -> int:
    """The fewest that tell the taps apart."""
    return max(1, (g.taps - 1).bit_length())


def max_back(e: Array, pick: Array, g: Geometry) -> Array:
    """Errors at the pixels that were picked, added in ascending positions."""
    dx = np.zeros((e.shape[0], *g.size, e.shape[-1]), e.dtype)
    for at in g.positions():
        for tap, pixel in g.taps_at(at):
            here = cell(pick, at) == tap
            cell(dx, pixel)[here] += cell(e, at)[here]
    return dx


# ---- the mean ------------------------------------------------------------------------------------


def most_bits(most: int) -> int:
    """F: the largest with most 2^F in int32."""
    return max(f for f in range(31) if most * 2**f <= o.INT32_MAX)


def divided(v: int, f: int, n: int) -> int:
    return o.half_away(Fraction(int(v) * 2**f, n))


def avg_pool(m: Array, s: np.float32, bits: int, g: Geometry) -> tuple[Array, np.float32]:
    """Sums of codes of so many bits, and their scale."""
    d, f = g.constant(), most_bits(o.top_code(bits))
    acc = np.zeros((m.shape[0], *g.out, m.shape[-1]), np.int64)
    for at in g.positions():
        for pixel in g.pixels_at(at):
            cell(acc, at)[:] += cell(m, pixel)
        if d is None:
            here = cell(acc, at)
            flat = [divided(v, f, g.count(at)) for v in here.ravel().tolist()]
            cell(acc, at)[:] = np.reshape(flat, here.shape)
    assert np.abs(acc).max(initial=0) <= o.INT32_MAX
    return acc, quot(s, np.float32(d)) if d is not None else lift(s, -f)


def float_avg_pool(x: Array, g: Geometry) -> Array:
    """In ascending pixels from +0, then one division."""
    y = np.zeros((x.shape[0], *g.out, x.shape[-1]), np.float32)
    for at in g.positions():
        for pixel in g.pixels_at(at):
            cell(y, at)[:] += cell(x, pixel)
        cell(y, at)[:] = _quotients(cell(y, at), g.count(at))
    return y


def _quotients(x: Array, n: int) -> Array:
    """x / n in float32, 0 with its sign below FLT_MIN."""
    with np.errstate(under="ignore"):
        found = x / np.float32(n)
        return np.where(
            np.abs(found) < np.float32(2.0**-126), np.copysign(np.float32(0), found), found
        )


def avg_back(e: Array, s: np.float32, bits: int, g: Geometry) -> tuple[Array, np.float32, bool]:
    """Each pixel's share, its scale, and whether these are codes of e as they were."""
    d, terms = g.constant(), g.most_meeting()
    f = most_bits(terms * o.top_code(bits))
    dx = np.zeros((e.shape[0], *g.size, e.shape[-1]), np.int64)
    for at in g.positions():
        share = cell(e, at)
        if d is None:
            flat = [divided(v, f, g.count(at)) for v in share.ravel().tolist()]
            share = np.reshape(flat, share.shape)
        for pixel in g.pixels_at(at):
            cell(dx, pixel)[:] += share
    assert np.abs(dx).max(initial=0) <= o.INT32_MAX
    scale = quot(s, np.float32(d)) if d is not None else lift(s, -f)
    return dx, scale, d is not None and terms == 1


def float_avg_back(e: Array, g: Geometry) -> Array:
    """Shares in ascending positions from +0."""
    dx = np.zeros((e.shape[0], *g.size, e.shape[-1]), np.float32)
    for at in g.positions():
        share = _quotients(cell(e, at), g.count(at))
        for pixel in g.pixels_at(at):
            cell(dx, pixel)[:] += share
    return dx


def unpacked(data: Array, bits: int, shape: tuple[int, ...]) -> Array:
    """Picks out of their bytes, lowest bit first; bits behind the last are 0."""
    n = prod(shape)
    found = np.unpackbits(data, bitorder="little")
    assert len(data) == -(-n * bits // 8)
    assert not found[n * bits :].any()
    weights = 1 << np.arange(bits)
    return (found[: n * bits].reshape(n, bits) * weights).sum(axis=1).reshape(shape)
