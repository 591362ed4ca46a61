"""The second opinion on the update of one tensor: docs/numerics.md section 17."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import oracle as o
from oracle_product import lift
from oracle_tensor import (
    FLT_MAX,
    FLT_MIN,
    Array,
    Source,
    Tensor,
    divided,
    extremes,
    is_float,
    is_floating,
    quiet,
    quotients,
    significands,
    uniforms,
)

HALVING = 0x57334833
PERIOD = 256
ONE = np.float32(1)


@dataclass(frozen=True)
class SGD:
    """PyTorch's numbers and the rounding of a parameter's write-back."""

    lr: float
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    rounding: str = "stochastic"


@dataclass(frozen=True)
class Factors:
    """The columns of the table: float32 factors of v, g and w in a target's step."""

    v: Array
    g: Array
    w: Array

    def times(self, lr: np.float32) -> Factors:
        """c = lr * factor."""
        with quiet():
            return Factors(*(normal(lr * f) for f in (self.v, self.g, self.w)))

    def clipped(self, k: np.float32) -> Factors:
        """c * factor, in the column of g."""
        with quiet():
            return replace(self, g=normal(np.float32(self.g * k)))


def factors(sgd: SGD, first: bool) -> tuple[Factors, Factors]:
    """Those of w, without lr, and those of v: float64, rounded once."""
    kappa = 1.0 if first else 1.0 - sgd.dampening
    beta, wd = sgd.momentum, sgd.weight_decay
    v = Factors(*map(np.float32, (beta, kappa, kappa * wd)))
    if not beta:
        return Factors(*map(np.float32, (0.0, 1.0, wd))), v
    if sgd.nesterov:
        g = 1.0 + beta * kappa
        return Factors(*map(np.float32, (beta * beta, g, g * wd))), v
    return v, v


def normal(x: Array) -> Array:
    """A coefficient: 0 below FLT_MIN, at most FLT_MAX."""
    x = np.asarray(x)
    assert x.dtype == np.float32
    return np.where(x < FLT_MIN, np.float32(0), np.minimum(x, FLT_MAX))


def coefficient(c: Array, s_from: Array, s_to: Array) -> Array:
    """(c * s_from) / s_to, each operation rounded to float32."""
    with quiet():
        return normal(normal(c * s_from) / s_to)


def term(code: Array, c: Array, f: int) -> Array:
    """clamp(floor(code * mu * 2^(x + 8 + F)), -2^28, 2^28).

    |code| <= 2^31 and mu < 2^16 leave 16 bits to shift up in int64; mu >= 2^15, so a shift by more
    is beyond the clamp whatever the code.
    """
    c = np.broadcast_to(c, code.shape)
    m, x = significands(np.where(c > 0, c, np.float32(1)))
    p = np.where(c > 0, code * (m >> 8), 0)
    shift = x + 8 + f
    y = (p << np.clip(shift, 0, 15)) >> np.clip(-shift, 0, 63)
    return np.clip(y, -(2**28), 2**28)


def rounded(y: Array, f: int, rounding: str, u: Array) -> Array:
    """y / 2^F as an integer."""
    if rounding == "stochastic":
        return (y + (u >> (32 - f))) >> f
    return divided(y, f, rounding)


def fraction_bits(t: Tensor) -> int:
    """F of a target."""
    return (27 if t.format.asymmetric else 28) - int(t.format.bits)


@dataclass(frozen=True)
class Streams:
    """Where the randomness of an update comes from."""

    seed: int
    step: int
    update: int
    momentum: int


def updated(
    w: Tensor,
    g: Source,
    v: Tensor | None,
    sgd: SGD,
    lr: float,
    streams: Streams,
    k: np.float32 = ONE,
) -> tuple[Tensor, Tensor | None]:
    """(w', v') from the gradient that is stored, or the accumulator of a fused one; k is the factor
    of all gradients."""
    rate = np.float32(lr)
    f_w, f_v = factors(sgd, streams.step == 0)
    w = ranged(w, g, f_w.times(rate).clipped(k).g)
    v = None if v is None else ranged(v, g, f_v.clipped(k).g)
    floating = is_float(w.format) or is_floating(g) or (v is not None and is_float(v.format))
    step = _float_step if floating else _integer_step
    new_w, new_v = step(w, g, v, sgd, rate, streams, k)
    end_w = settled(w, new_w, streams, streams.update)
    return end_w, None if v is None else settled(v, new_v, streams, streams.momentum)


def ranged(t: Tensor, g: Source, c: Array, growth: int = 1) -> Tensor:
    """Scales that have no range yet take one of 4 c |g|^growth, and a zero point in the middle, for
    squares at the end."""
    if is_float(t.format) or not t.rangeless().any():
        return t
    assert t.scale is not None
    scale = t.scale.copy()
    zero = None if t.zero is None else t.zero.copy()
    found = extremes(g, t.index, scale.size)
    top = o.top_code(t.format.bits, t.format.asymmetric)
    for i in np.flatnonzero(t.rangeless()):
        largest = min(o.scale_above(max(found[i][1], -found[i][0])), o.largest_finite())
        with quiet():
            s_in = normal(np.float32(4) * c)
            for _ in range(growth):
                s_in = normal(s_in * np.float32(float(largest)))
        if not any(found[i]) or s_in == 0:
            continue
        middle = 0 if zero is None or growth == 2 else top // 2
        if zero is not None:
            zero.reshape(-1)[i] = middle
        q = top - middle
        scale.reshape(-1)[i] = float(o.scale(Fraction(float(s_in)), 1, q, t.format.pow2))
    moved = replace(t, scale=scale, zero=zero)
    return moved.with_ints(t.ints())


def _float_step(
    w: Tensor,
    g: Source,
    v: Tensor | None,
    sgd: SGD,
    lr: np.float32,
    streams: Streams,
    k: np.float32,
) -> tuple[Array, Array]:
    """The new values of Float32 tensors, the integers before their clamp of others."""
    kappa = factors(sgd, streams.step == 0)[1].g
    beta = np.float32(sgd.momentum)
    with np.errstate(under="ignore"):
        d = k * g.floats()
        if sgd.weight_decay:
            d = d + np.float32(sgd.weight_decay) * w.floats()
        new_v = d
        if v is not None:
            new_v = beta * v.floats() + kappa * d
            d = d + beta * new_v if sgd.nesterov else new_v
        change = lr * d
        values = w.floats() - change
    if not is_float(w.format):
        u = words(w, streams, streams.update)
        values = w.ints() - held_quotients(change, w, sgd.rounding, u)
    if v is not None and not is_float(v.format):
        u = words(v, streams, streams.momentum)
        new_v = held_quotients(new_v, v, v.format.rounding, u)
    return values, new_v


def held_quotients(x: Array, t: Tensor, rounding: str, u: Array) -> Array:
    """x / s of a target, rounded."""
    return np.clip(quotients(x, t.scales, rounding, u), -(2**17), 2**17)


def _integer_step(
    w: Tensor,
    g: Source,
    v: Tensor | None,
    sgd: SGD,
    lr: np.float32,
    streams: Streams,
    k: np.float32,
) -> tuple[Array, Array]:
    """The integers before their clamp."""
    f_w, f_v = factors(sgd, streams.step == 0)

    def step(target: Tensor, c: Factors, rounding: str, stream: int) -> Array:
        f = fraction_bits(target)
        y = np.zeros(target.shape, np.int64)
        for source, factor in ((v, c.v), (g, c.g), (w, c.w)):
            if source is not None:
                m, s = source.pairs()
                same = source is target
                y = y + term(m, factor if same else coefficient(factor, s, target.scales), f)
        return rounded(y, f, rounding, words(target, streams, stream))

    n = step(w, f_w.times(lr).clipped(k), sgd.rounding, streams.update)
    if v is None:
        return w.ints() - n, n
    return w.ints() - n, step(v, f_v.clipped(k), v.format.rounding, streams.momentum)


def words(t: Tensor, streams: Streams, stream: int) -> Array:
    """Of every element."""
    key = o.key(streams.seed % o.WORD, streams.step, stream)
    return uniforms(key, t.codes.size).reshape(t.shape)


def settled(t: Tensor, wanted: Array, streams: Streams, stream: int) -> Tensor:
    """Clamped, then halved where a code left the range, or doubled where it is used too little."""
    if is_float(t.format):
        return replace(t, codes=wanted)
    assert t.scale is not None
    lo, hi = t.bounds
    m = np.clip(wanted, lo, hi)
    runs = t.scale.size
    event = _any(t, (wanted < lo - 1) | (wanted > hi), runs)
    low = (m < -(3 * -lo // 8)) | (m > 3 * hi // 8)
    quiet_run = ~_any(t, low, runs) & _any(t, m != 0, runs) & (t.scale.ravel() >= 2 * FLT_MIN)
    due = streams.step > 0 and streams.step % PERIOD == 0
    double = quiet_run & ~event if due else np.zeros(runs, bool)

    bit = words(t, streams, stream ^ HALVING) >> 31
    halved, doubled = event[t.index], double[t.index]
    m = np.where(halved, (m + bit) >> 1, np.where(doubled, 2 * m, m))
    scale = lift(t.scale.ravel(), event.astype(np.int64) - double)
    if t.format.pow2:
        scale = np.minimum(scale, np.float32(2.0**127))
    return t.with_ints(m, scale.reshape(t.scale.shape))


def _any(t: Tensor, where: Array, runs: int) -> Array:
    """Which runs have an element where this holds."""
    found = np.zeros(runs, bool)
    found[t.index[where]] = True
    return found
