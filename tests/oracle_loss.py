"""The second opinion on losses: docs/numerics.md sections 15 and 23."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import oracle as o
import oracle_softmax as plain
from oracle_layers import Sym16
from oracle_product import lift, quot
from oracle_softmax import LN_2, distances, exp, exp2, log, log2, quotient
from oracle_tensor import Acc, Array, Source, Tensor, encode, quiet, ratios

F = np.float32
JOINED = 13

# ---- MSE -----------------------------------------------------------------------------------------


def joined(t: Tensor, s: np.float32) -> Array:
    """Codes at the scale s 2^-13, towards zero: 2^31 * 2^31 fits int64."""
    assert t.scale is not None
    q, e, down = ratios(t.scale, s, 16)
    m = np.abs(t.codes)
    assert (m << e).max(initial=0) < 2**31
    return np.sign(t.codes) * ((m << e) * q >> 32 + down - JOINED)


def mse(z: Tensor, y: Tensor) -> tuple[Acc, np.float32]:
    """The error and the loss of codes of 16 bits with one scale."""
    assert z.scale is not None
    assert y.scale is not None
    scales = [t.scale for t in (z, y) if t.codes.any() or t.scale != 1]
    s = F(max(scales, default=1))
    d = joined(z, s) - joined(y, s)
    n = F(d.size)
    total = F(float(o.nearest(sum(v * v for v in d.ravel().tolist()))))
    unit = lift(s, -JOINED)
    with quiet():
        loss = F(quotient(total, n) * unit) * unit
    return Acc(d, np.broadcast_to(quot(lift(s, 1 - JOINED), n), d.shape)), F(loss)


def float_mse(z: Array, y: Array) -> tuple[Acc, np.float32]:
    """The same of floats, squares added in ascending order."""
    n = F(z.size)
    total = F(0)
    with quiet():
        d = z - y
        for v in (d * d).ravel():
            total = total + v
        return Acc(d * quotient(2, n)), F(quotient(total, n))


# ---- cross-entropy with weights, smoothing and a label that does not count -----------------------


def weighted(z: Tensor, y: Array, loss: Any) -> tuple[Acc, np.float32]:
    """The error and the loss of logits of 16 bits with one scale."""
    assert z.scale is not None
    scale, classes = Fraction(float(z.scale)), z.shape[1]
    u = [2**15] * classes
    if loss.weight is not None:
        u = encode(Acc(np.array(loss.weight, F)), Sym16()).codes.tolist()
    eps = loss.label_smoothing
    own, every = (floor(Fraction(s) * 2**30 + Fraction(1, 2)) for s in (1 - eps, eps / classes))
    hit, soft = ([v * share // 2**18 for v in u] for share in (own, every))
    errors = np.zeros(z.shape, np.int64)
    total = weights = 0
    for i, label in enumerate(y.tolist()):
        if label == loss.ignore_index:
            continue
        codes = z.codes[i].tolist()
        far = distances([max(codes) - v for v in codes], scale)
        e = [exp2(t) for t in far]
        k = sum(e).bit_length() - 1
        r = 2 ** (31 + k) // sum(e)
        targets = [v + hit[label] * (c == label) for c, v in enumerate(soft)]
        for c, target in enumerate(targets):
            p = e[c] * r // 2 ** (k + 1)
            errors[i, c] = sum(targets) * p // 2**30 - target
            total += target * ((log2(sum(e)) - 30 * 2**26 + far[c]) * LN_2 // 2**26)
        weights += u[label]
    n = F(float(o.nearest(Fraction(weights))))
    value = quotient(F(float(o.nearest(Fraction(total)) / 2**38)), n)
    return Acc(errors, np.broadcast_to(quot(F(2.0**-12), n), z.shape)), F(value)


def float_weighted(z: Array, y: Array, loss: Any) -> tuple[Acc, np.float32]:
    """The same of floats, in the order of the page."""
    classes = z.shape[1]
    w = np.ones(classes, F) if loss.weight is None else np.array(loss.weight, F)
    eps = loss.label_smoothing
    own, every = (F(s) if s >= 2.0**-126 else F(0) for s in (1 - eps, eps / classes))
    counts = y != loss.ignore_index
    total = weights = sum_of = F(0)
    for label in y[counts]:
        total = total + w[label]
    for v in w:
        weights = weights + v
    errors, share = np.zeros_like(z), quotient(1, total)
    with quiet():
        for i in np.flatnonzero(counts):
            label, top = y[i], z[i].max()
            e, s, smooth = exp(z[i] - top), F(0), F(0)
            for v in e:
                s = s + v
            of_all = log(s.reshape(1))[0]
            hit = own * w[label]
            targets = np.where(np.arange(classes) == label, hit, F(0)) + every * w
            errors[i] = ((hit + every * weights) * (e * (F(1) / s)) - targets) * share
            losses = of_all + (top - z[i])
            for v in w * losses:
                smooth = smooth + v
            sum_of = sum_of + (hit * losses[label] + (every * smooth if every else F(0)))
    return Acc(errors), F(quotient(sum_of, total))


def cross_entropy(z: Source, y: Array, spec: Any) -> tuple[Acc, np.float32]:
    """The error and the mean loss of logits: floats, or codes with one scale."""
    counts = y != -100
    if spec is not None and not spec.is_plain:
        return (
            weighted(z, y, spec) if isinstance(z, Tensor) else float_weighted(z.floats(), y, spec)
        )
    if isinstance(z, Tensor):
        assert z.scale is not None
        codes = np.zeros(z.shape, np.int64)
        codes[counts], loss = plain.cross_entropy(z.codes[counts], z.scale, y[counts])
        scale = quot(np.float32(2.0**-30), np.float32(counts.sum()))
        return Acc(codes, np.broadcast_to(scale, codes.shape)), loss
    floats = np.zeros_like(z.values)
    floats[counts], loss = plain.float_cross_entropy(z.values[counts], y[counts])
    return Acc(floats), loss
