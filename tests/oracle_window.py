"""The second opinion on windows: docs/format.md section 5, docs/numerics.md section 32.

Arrays are in the order of memory: images [rows, pixels, channels], results [rows, positions,
channels], weights [of the result's channels, taps, of a group of the image's].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from oracle_tensor import Array

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Conv:
    """A convolution with numbers for each axis, or a transposed one."""

    inputs: int
    outputs: int
    kernel: Sizes
    stride: Sizes = ()
    padding: Sizes = ()
    dilation: Sizes = ()
    groups: int = 1
    bias: bool = True
    transposed: bool = False
    output_padding: Sizes = ()
    same: bool = False
    """padding="same": what the kernel reaches beyond a pixel, the larger half of it behind."""

    def axes(self, name: str, usual: int) -> Sizes:
        """An argument, or what it usually is; of the padding, what comes before."""
        if self.same and name == "padding":
            steps = zip(self.axes("dilation", 1), self.kernel, strict=True)
            return tuple(d * (k - 1) // 2 for d, k in steps)
        given: Sizes = getattr(self, name)
        return given or (usual,) * len(self.kernel)

    @property
    def weight_shape(self) -> Sizes:
        """In PyTorch's order."""
        first, second = self.inputs, self.outputs
        if not self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel)

    @property
    def fan_in(self) -> int:
        """What the initial values' bound is made of: PyTorch's second size of the weight."""
        return prod(self.weight_shape[1:])

    def out_sizes(self, sizes: Sizes) -> Sizes:
        """Of an image of these sizes."""
        if self.same:
            return sizes
        found = []
        names = (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
        each = zip(sizes, *(self.axes(*n) for n in names), strict=True)
        for (n, k, s, p, d), more in zip(each, self.axes("output_padding", 0), strict=True):
            reach = d * (k - 1) + 1
            back = (n - 1) * s - 2 * p + reach + more
            found.append(back if self.transposed else (n + 2 * p - reach) // s + 1)
        return tuple(found)

    def window(self, sizes: Sizes) -> Window:
        """How the kernel goes over the larger side: the image, or what is made of one."""
        image, result = sizes, self.out_sizes(sizes)
        if self.transposed:
            image, result = result, image
        names = (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
        return Window(image, result, *(self.axes(*n) for n in names), self.groups)


@dataclass(frozen=True)
class Window:
    """A kernel over an image: sizes of each axis."""

    image: Sizes
    result: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int = 1

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def pixels(self) -> int:
        return prod(self.image)

    @property
    def positions(self) -> int:
        return prod(self.result)

    def at(self) -> Array:
        """[positions, taps]: the pixel that a position meets at a tap, -1 for none."""
        found = []
        for position in _every(self.result):
            for tap in _every(self.kernel):
                each = zip(position, self.stride, self.padding, tap, self.dilation, strict=True)
                where = [p * s - before + u * d for p, s, before, u, d in each]
                inside = all(0 <= w < n for w, n in zip(where, self.image, strict=True))
                pixel = 0
                for w, n in zip(where, self.image, strict=True):
                    pixel = pixel * n + w
                found.append(pixel if inside else -1)
        return np.array(found, np.int64).reshape(self.positions, self.taps)

    def spans(self, channels: int) -> list[slice]:
        """The channels of each group."""
        own = channels // self.groups
        return [slice(g * own, (g + 1) * own) for g in range(self.groups)]


def _every(sizes: Sizes) -> Iterator[Sizes]:
    return product(*map(range, sizes))


def patches(x: Array, at: Array) -> Array:
    """[rows, positions, channels] of the pixels that each position meets; 0 outside the image."""
    zero = x.dtype.type(0)
    return np.where((at >= 0)[None, :, None], x[:, np.maximum(at, 0)], zero)


# ---- integers: exact in int64, |codes| < 2^16 and fewer than 2^31 terms --------------------------


def gathered(x: Array, w: Array, window: Window) -> Array:
    """acc(p, o) = sum over k, c of x(at(p, k), c) w(o, k, c)."""
    at, out = window.at(), np.zeros((len(x), window.positions, len(w)), np.int64)
    for k in range(window.taps):
        met = patches(x, at[:, k])
        for o, c in zip(window.spans(len(w)), window.spans(x.shape[2]), strict=True):
            out[:, :, o] += met[:, :, c] @ w[o, k].T
    return out


def scattered(e: Array, w: Array, window: Window) -> Array:
    """acc(q, c) = sum over k, o, p with at(p, k) = q of e(p, o) w(o, k, c)."""
    at, channels = window.at(), w.shape[2] * window.groups
    out = np.zeros((len(e), window.pixels, channels), np.int64)
    for k in range(window.taps):
        p = np.flatnonzero(at[:, k] >= 0)
        for o, c in zip(window.spans(len(w)), window.spans(channels), strict=True):
            out[:, at[p, k], c] += e[:, p, o] @ w[o, k]
    return out


def gradients(e: Array, x: Array, window: Window) -> Array:
    """acc(o, k, c) = sum over p of e(p, o) x(at(p, k), c)."""
    at, channels = window.at(), x.shape[2]
    out = np.zeros((e.shape[2], window.taps, channels // window.groups), np.int64)
    for k in range(window.taps):
        met = patches(x, at[:, k])
        for o, c in zip(window.spans(e.shape[2]), window.spans(channels), strict=True):
            out[o, k] = np.einsum("npo,npc->oc", e[:, :, o], met[:, :, c])
    return out


# ---- float32: each product and each sum rounded, from +0, in the order of section 32 -------------


def float_gathered(x: Array, w: Array, window: Window) -> Array:
    """Ascending (k, c), a pixel outside the image being +0."""
    at, out = window.at(), np.zeros((len(x), window.positions, len(w)), np.float32)
    with np.errstate(under="ignore"):
        for k in range(window.taps):
            met = patches(x, at[:, k])
            for o, c in zip(window.spans(len(w)), window.spans(x.shape[2]), strict=True):
                for i, channel in enumerate(range(*c.indices(x.shape[2]))):
                    out[:, :, o] = out[:, :, o] + met[:, :, channel, None] * w[o, k, i]
    return out


def float_scattered(e: Array, w: Array, window: Window) -> Array:
    """Ascending (k, o), what meets."""
    at, channels = window.at(), w.shape[2] * window.groups
    out = np.zeros((len(e), window.pixels, channels), np.float32)
    with np.errstate(under="ignore"):
        for k in range(window.taps):
            p = np.flatnonzero(at[:, k] >= 0)
            for o, c in zip(window.spans(len(w)), window.spans(channels), strict=True):
                for channel in range(*o.indices(len(w))):
                    more = e[:, p, channel, None] * w[channel, k]
                    out[:, at[p, k], c] = out[:, at[p, k], c] + more
    return out


def float_gradients(e: Array, x: Array, window: Window) -> Array:
    """Ascending p, rows first, a pixel outside the image being +0."""
    at, channels = window.at(), x.shape[2]
    out = np.zeros((e.shape[2], window.taps, channels // window.groups), np.float32)
    with np.errstate(under="ignore"):
        for k in range(window.taps):
            met = patches(x, at[:, k])
            for o, c in zip(window.spans(e.shape[2]), window.spans(channels), strict=True):
                for row, p in product(range(len(e)), range(window.positions)):
                    out[o, k] = out[o, k] + e[row, p, o, None] * met[row, p, c]
    return out
