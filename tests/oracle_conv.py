"""The second opinion on convolutions: docs/numerics.md sections 13, 14 and 32.

Tensors are in the order of memory; `scales` says of a weight what its format has scales for, in
PyTorch's axes: "tensor", "out" (each of the first axis), "in" (each of the second) or "mixed".
"""

from __future__ import annotations

from math import prod

import numpy as np
from oracle_product import (
    Operand,
    add_bias,
    free_bits,
    headroom,
    lift,
    mul,
    operand,
    raw_operand,
    widen,
)
from oracle_tensor import Acc, Array, Format, Tensor, divided, is_float
from oracle_window import (
    Window,
    float_gathered,
    float_gradients,
    float_scattered,
    gathered,
    gradients,
    scattered,
)


def several(t: Tensor) -> bool:
    """Has its format more than one scale?"""
    f = t.format
    return not is_float(f) and (f.axis is not None or f.group is not None)


def scales_of(fmt: Format, shape: tuple[int, ...]) -> str:
    """Which elements of a weight share a scale, by its format over PyTorch's axes."""
    if is_float(fmt) or (fmt.axis is None and fmt.group is None):
        return "tensor"
    if fmt.group is not None:
        return "out" if fmt.group >= prod(shape[1:]) else "mixed"
    if fmt.axis == "row":
        return "mixed"
    return {0: "out", 1: "in"}.get(range(len(shape))[fmt.axis], "mixed")


def image(t: Tensor, window: Window) -> Tensor:
    """[rows, pixels, channels]"""
    return t.reshape((t.shape[0], window.pixels, -1))


def result(t: Tensor, window: Window) -> Tensor:
    """[rows, positions, channels]"""
    return t.reshape((t.shape[0], window.positions, -1))


def kernel(t: Tensor, window: Window) -> Tensor:
    """[first axis, taps, second axis]"""
    return t.reshape((t.shape[0], window.taps, -1))


def _finished(total: Array, a: Operand, b: Operand, k: int, sigma: Array, bias: bool) -> Acc:
    """The sums as accumulators at their scales."""
    assert np.abs(a.m).max(initial=0) <= a.bound
    assert np.abs(b.m).max(initial=0) <= b.bound
    assert (a.scale == a.scale.flat[0]).all()
    h = headroom(k, a.bound, b.bound, bias)[1]
    acc = divided(total, h, "half_away")
    assert np.abs(acc).max(initial=0) < 2 ** (30 if bias else 31)
    return Acc(acc, np.broadcast_to(lift(sigma, h), acc.shape), a.scale.flat[0])


def _biased(acc: Acc, bias: Tensor | None) -> Acc:
    if bias is None:
        return acc
    shape = acc.shape
    return add_bias(acc.reshape((-1, shape[-1])), bias).reshape(shape)


def gather(x: Tensor, w: Tensor, scales: str, window: Window, bias: Tensor | None = None) -> Acc:
    """x is the image: a convolution's forward, a transposed one's dX."""
    x, w, biased = image(x, window), kernel(w, window), bias is not None
    k = window.taps * w.shape[2]
    along = scales in ("in", "mixed")
    a = raw_operand(x) if several(x) else operand(x)
    b = raw_operand(w) if along else operand(w)
    if several(x):
        a = widen(a, free_bits(a.bits, k, b.bound, biased))
    if along:
        b = widen(b, free_bits(b.bits, k, a.bound, biased))
    sigma = mul(a.scale.flat[0], b.scale[:, 0, 0])
    return _biased(_finished(gathered(a.m, b.m, window), a, b, k, sigma, biased), bias)


def scatter(e: Tensor, w: Tensor, scales: str, window: Window, bias: Tensor | None = None) -> Acc:
    """e has the result's positions: a convolution's dX, a transposed one's forward."""
    e, w, biased = result(e, window), kernel(w, window), bias is not None
    k = window.taps * (e.shape[2] // window.groups)
    folds = scales == "out"
    mixed = scales == "mixed" or (scales == "in" and window.groups > 1)
    a = raw_operand(e) if several(e) or folds else operand(e)
    b = raw_operand(w) if mixed else operand(w)
    free = free_bits(a.bits, k, b.bound, biased)
    if folds:
        each = [v[:, 0, 0] for v in (b.m, b.scale, b.rangeless)]
        m, s, r = (np.broadcast_to(v, a.m.shape) for v in each)
        a = widen(a, free, None, Operand(m, s, b.bits, r))
        sigma = a.scale.flat[0]
    else:
        a = widen(a, free) if several(e) else a
        b = widen(b, free_bits(b.bits, k, a.bound, biased)) if mixed else b
        sigma = np.tile(mul(a.scale.flat[0], b.scale[0, 0]), window.groups)
    return _biased(_finished(scattered(a.m, b.m, window), a, b, k, sigma, biased), bias)


def gradient(e: Tensor, x: Tensor, window: Window, rows: int) -> Acc:
    """[first axis, taps, second axis]; rows: the most of a step."""
    e, x, terms = result(e, window), image(x, window), rows * window.positions
    a = raw_operand(e) if several(e) else operand(e)
    b = raw_operand(x) if several(x) else operand(x)
    if several(e):
        a = widen(a, free_bits(a.bits, terms, b.bound))
    if several(x):
        b = widen(b, free_bits(b.bits, terms, a.bound))
    sigma = mul(a.scale.flat[0], b.scale.flat[0])
    return _finished(gradients(a.m, b.m, window), a, b, terms, sigma, False)


# ---- float32 -------------------------------------------------------------------------------------


def float_gather(x: Tensor, w: Tensor, window: Window, bias: Tensor | None = None) -> Acc:
    acc = float_gathered(image(x, window).floats(), kernel(w, window).floats(), window)
    return Acc(acc if bias is None else acc + bias.floats())


def float_scatter(e: Tensor, w: Tensor, window: Window, bias: Tensor | None = None) -> Acc:
    acc = float_scattered(result(e, window).floats(), kernel(w, window).floats(), window)
    return Acc(acc if bias is None else acc + bias.floats())


def float_gradient(e: Tensor, x: Tensor, window: Window) -> Acc:
    return Acc(float_gradients(result(e, window).floats(), image(x, window).floats(), window))
