"""What the oracle of a step is held against: backprop in float64, an update in fractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import oracle as o
import oracle_tensor as ot

Array: TypeAlias = Any  # of numpy


def fractions(array: Array) -> list[Fraction]:
    """The elements, exactly."""
    return [Fraction(v) for v in np.ravel(array).tolist()]


def exactly(source: ot.Source) -> list[Fraction]:
    """The values of integers with scales, exactly."""
    m, s = map(fractions, source.pairs())
    return [a * b for a, b in zip(m, s, strict=True)]


def tensor(fmt: ot.Format, values: Any) -> ot.Tensor:
    """Floats in a format."""
    return ot.encode(ot.Acc(np.asarray(values, np.float32)), fmt)


def backprop(
    layers: Sequence[tuple[Any, ...]],
    params: Mapping[str, Array],
    x: Array,
    y: Array,
    masks: Mapping[str, Array] | None = None,
) -> tuple[float, dict[str, Array]]:
    """The mean cross-entropy of a chain and its gradients, through these masks of its ReLUs."""
    value = np.asarray(x, np.float64)
    inputs = []
    for kind, path, *_ in layers:
        inputs.append(value)
        if kind == "linear":
            value = value @ params[f"{path}.weight"].T + params.get(f"{path}.bias", 0)
        elif kind == "relu":
            value = np.maximum(value, 0)
        elif kind == "flatten":
            value = value.reshape(len(value), -1)
    value = value - value.max(axis=1, keepdims=True)
    p = np.exp(value) / np.exp(value).sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean()
    error = p.copy()
    error[rows, y] -= 1
    error /= len(y)
    grads: dict[str, Array] = {}
    for (kind, path, *_), value in zip(reversed(layers), reversed(inputs), strict=True):
        if kind == "linear":
            grads[f"{path}.weight"] = error.T @ value
            if f"{path}.bias" in params:
                grads[f"{path}.bias"] = error.sum(axis=0)
            error = error @ params[f"{path}.weight"]
        elif kind == "relu":
            error = error * (value > 0 if masks is None else masks[path])
        else:
            error = error.reshape(value.shape)
    return float(loss), grads


def descend(
    sgd: Any, params: dict[str, Array], state: dict[str, Array], grads: Mapping[str, Array]
) -> None:
    """PyTorch's SGD in float64, in place; the state is empty before the first step."""
    for name, grad in grads.items():
        d = grad + sgd.weight_decay * params[name]
        if sgd.momentum:
            old = state.get(name)
            v = d if old is None else sgd.momentum * old + (1 - sgd.dampening) * d
            state[name] = v
            d = d + sgd.momentum * v if sgd.nesterov else v
        params[name] = params[name] - sgd.lr * d


class Term(NamedTuple):
    """A code, the c of its coefficient, and its scale; None where it is the target's own."""

    code: int
    c: Fraction
    scale: Fraction | None


def _kept(v: Fraction) -> Fraction:
    """A float32 result: 0 below FLT_MIN, at most FLT_MAX."""
    v = o.nearest(v)
    return Fraction(0) if v < o.smallest_normal() else min(v, o.largest_finite())


def change(terms: Sequence[Term], s_to: Fraction, f: int, rounding: str, u: int) -> int:
    """n of the integer step of one element, whose target has F = f."""
    y = 0
    for code, c, scale in terms:
        coefficient = c if scale is None else _kept(_kept(c * scale) / s_to)
        if coefficient:
            m, x = o.significand(coefficient)
            exact = code * (m // 2**8) * o.pow2(x + 8 + f)
            y += max(-(2**28), min(2**28, floor(exact)))
    return o.round_by(Fraction(y, 2**f), rounding, u >> (32 - f) << (32 - f))
