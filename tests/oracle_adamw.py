"""The second opinion on clipping, groups and AdamW: docs/numerics.md section 25."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import oracle as o
from oracle_tensor import FLT_MAX, FLT_MIN, Array, Source, Tensor, is_float, is_floating, quiet
from oracle_update import Streams, held_quotients, normal, ranged, settled, words

ROLES = ("exp_avg", "exp_avg_sq")
F = np.float32


# ---- groups --------------------------------------------------------------------------------------


def options(optimizer: Any, name: str) -> Any:
    """The optimizer's numbers for a parameter: those of the longest group that it is in."""
    found = {
        key: dict(own)
        for key, own in dict(optimizer.groups or ()).items()
        if f"{name}.".startswith(f"{key}.")
    }
    own = found[max(found, key=len)] if found else {}
    return SimpleNamespace(**{**vars(optimizer), **own})


def rate(optimizer: Any, name: str, lr: float) -> np.float32:
    """lr * rho."""
    own = options(optimizer, name).lr
    if own == optimizer.lr:
        return F(lr)
    with quiet():
        return F(normal(F(lr) * F(own / optimizer.lr)))


# ---- clipping ------------------------------------------------------------------------------------


def squares(grad: Source) -> list[np.float32]:
    """The terms of a gradient: one an element, or one a scale."""
    if is_floating(grad):
        return [g * g for g in grad.floats().ravel()]
    assert isinstance(grad, Tensor)
    assert grad.scale is not None
    m, scales = grad.ints().ravel().tolist(), grad.scale.ravel()
    sums = [0] * scales.size
    for code, i in zip(m, grad.index.ravel().tolist(), strict=True):
        sums[i] += code * code
    return [F(float(o.nearest(Fraction(s)))) * t * t for s, t in zip(sums, scales, strict=True)]


def folded(terms: Iterable[np.float32]) -> np.float32:
    """In eight partial sums."""
    p = [F(0)] * 8
    for i, t in enumerate(terms):
        p[i % 8] = p[i % 8] + t
    return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))


def clip_factor(grads: Sequence[Source], most: float) -> np.float32:
    """What all gradients are multiplied by."""
    with quiet():
        total = folded(squares(grads[0]))
        for grad in grads[1:]:
            total = total + folded(squares(grad))
        assert np.isfinite(total)
        k = F(normal(F(most) / (np.sqrt(total) + F(1e-6))))
    return min(k, F(1))


# ---- AdamW ---------------------------------------------------------------------------------------


def correction(beta: float, t: int) -> np.float32:
    """1 - beta^t, in units of 2^-32 until it is a float."""
    power, square = 2**32, o.round_by(Fraction(beta) * 2**32, "half_even", 0)
    while t:
        if t & 1:
            power = power * square >> 32
        square = square * square >> 32
        t >>= 1
    return F(float(o.nearest(Fraction(2**32 - power)))) * F(2.0**-32)


def quotient(a: Array, b: Array) -> Array:
    """A quotient below FLT_MIN is 0."""
    q = np.asarray(a / b)
    assert q.dtype == np.float32
    return np.where(np.abs(q) < FLT_MIN, np.copysign(F(0), q), q)


def moved(
    w: Tensor,
    g: Source,
    moments: tuple[Tensor, Tensor],
    adam: Any,
    lr: np.float32,
    streams: Streams,
    roles: tuple[int, int],
    k: np.float32,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """(w', (m', v')); `roles` are the streams of the moments."""
    one, two = adam.betas
    rest = F(1.0 - one), F(1.0 - two)
    with quiet():
        w = ranged(w, g, lr, growth=0)
        m = ranged(moments[0], g, normal(rest[0] * k))
        v = ranged(moments[1], g, normal(normal(rest[1] * k) * k), growth=2)
        d, new_m, new_v = _step(w, k * g.floats(), m, v, adam, lr, streams.step + 1)
        values = w.floats() - d
    if not is_float(w.format):
        u = words(w, streams, streams.update)
        values = w.ints() - held_quotients(d, w, adam.rounding, u)
    kept = []
    for t, value, stream in ((m, new_m, roles[0]), (v, new_v, roles[1])):
        wanted = value
        if not is_float(t.format):
            wanted = held_quotients(value, t, t.format.rounding, words(t, streams, stream))
        kept.append(settled(t, wanted, streams, stream))
    return settled(w, values, streams, streams.update), (kept[0], kept[1])


def _step(
    w: Tensor, g: Array, m: Tensor, v: Tensor, adam: Any, lr: np.float32, t: int
) -> tuple[Array, Array, Array]:
    """(d, m', v'), in float32."""
    one, two = adam.betas
    new_m = F(one) * m.floats() + F(1.0 - one) * g
    new_v = F(two) * v.floats() + F(1.0 - two) * (g * g)
    least = F(0) if is_float(v.format) else F(0.5) * v.scales
    root = np.sqrt(np.maximum(new_v, least)) * quotient(F(1), np.sqrt(correction(two, t)))
    size = F(normal(quotient(lr, correction(one, t))))
    d = quotient(size * new_m, root + F(adam.eps))
    decay = F(normal(lr * F(adam.weight_decay)))
    if decay:
        d = d + decay * w.floats()
    assert np.abs(d).max(initial=0) <= FLT_MAX
    return d, new_m, new_v
