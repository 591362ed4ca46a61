"""The second opinion on the counters: docs/numerics.md section 27, beside the oracle's Net."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, prod
from typing import Any, TypeAlias

import numpy as np
import oracle as o
from oracle_step import Net
from oracle_tensor import Array, Source, Tensor, is_float, is_floating, quotients, stream, uniforms
from oracle_update import (
    SGD,
    Streams,
    coefficient,
    factors,
    fraction_bits,
    ranged,
    rounded,
    settled,
    term,
)

Rounded: TypeAlias = Callable[[str, Array], Array]
"""The integer step, by rounding and draws."""


@dataclass
class Count:
    """What the counter of a tensor must say."""

    written: int = 0
    saturated: int = 0
    asked: int = 0
    unmoved: int = 0
    dead: int = 0
    doubled: int = 0
    halved: int = 0
    least: float = inf
    most: float = 0.0

    def encoded(self, t: Tensor) -> None:
        """A tensor was made."""
        self.written += prod(t.shape)
        self.saturated += t.saturated
        self.see(t.scale, t.rangeless())

    def see(self, scale: Array, rangeless: Array) -> None:
        """Scales that codes have."""
        for s in np.ravel(scale)[~rangeless].tolist():
            self.least, self.most = min(self.least, s), max(self.most, s)


class Counting:
    """A Net whose steps are counted."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.counts: defaultdict[str, Count] = defaultdict(Count)

    def step(self, x: Array, y: Array) -> None:
        """forward, backward, update."""
        self.forward(x)
        self.net.backward(y)
        self._encoded((f"{path}:error", t) for path, t in self.net.errors.items())
        self._encoded((f"{name}:grad", g) for name, g in self.net.grads.items())
        for name, grad in self.net.grads.items():
            self._update(name, grad)
        self.net.update()

    def forward(self, x: Array) -> None:
        """Every wire that is made by encoding, once: a Quant's, or its first layer's."""
        self.net.forward(x)
        quants = [path for kind, path, *_ in self.net.layers if kind == "quant"]
        made: dict[int, list[str]] = {}
        for path, t in self.net.wires.items():
            if isinstance(t, Tensor) and not is_float(t.format):
                made.setdefault(id(t.scale), []).append(path)
        for paths in made.values():
            owner = next((path for path in paths if path in quants), paths[0])
            self._encoded([(f"{owner}:wire", self.net.wires[owner])])

    def _encoded(self, tensors: Iterable[tuple[str, Source]]) -> None:
        for name, t in tensors:
            if isinstance(t, Tensor) and not is_float(t.format):
                self.counts[name].encoded(t)

    def _update(self, name: str, g: Source) -> None:
        net = self.net
        streams = Streams(net.seed, net.steps, stream(name, "update"), stream(name, "momentum"))
        rate, first = np.float32(net.lr), net.steps == 0
        f_w, f_v = factors(net.sgd, first)
        w = ranged(net.params[name], g, f_w.times(rate).g)
        v = net.state.get(name)
        v = None if v is None else ranged(v, g, f_v.g)
        floating = is_float(w.format) or is_floating(g) or (v is not None and is_float(v.format))
        steps = _float_steps if floating else _integer_steps
        targets = ((w, name, streams.update), (v, f"{name}:momentum", streams.momentum))
        for target, label, stem in targets:
            if target is None or is_float(target.format):
                continue
            is_param = target is w
            rounding = net.sgd.rounding if is_param else target.format.rounding
            asked, at = steps(w, g, v, net.sgd, rate, first, target)
            u = uniforms(o.key(net.seed, net.steps, stem), target.codes.size).reshape(target.shape)
            n = at(rounding, u)
            to = target.ints() - n if is_param else n
            self._moved(label, target, to)
            if is_param:
                count = self.counts[label]
                # No draw moves what neither the smallest nor the largest one moves.
                still = (at(rounding, 0 * u) == 0) & (at(rounding, 0 * u + o.WORD - 1) == 0)
                count.asked += int(asked.sum())
                count.unmoved += int((asked & (n == 0)).sum())
                count.dead += int((asked & still).sum())
            self._settled(label, target, settled(target, to, streams, stem))

    def _moved(self, label: str, t: Tensor, to: Array) -> None:
        lo, hi = t.bounds
        self.counts[label].written += to.size
        self.counts[label].saturated += int(((to < lo) | (to > hi)).sum())

    def _settled(self, label: str, before: Tensor, after: Tensor) -> None:
        assert before.scale is not None
        assert after.scale is not None
        count, ranged_now = self.counts[label], ~after.rangeless()
        count.see(before.scale, ~ranged_now)
        count.see(after.scale, ~ranged_now)
        count.doubled += int((after.scale > before.scale).sum())
        count.halved += int((after.scale < before.scale).sum())


def _integer_steps(
    w: Tensor, g: Source, v: Tensor | None, sgd: SGD, lr: Any, first: bool, target: Tensor
) -> tuple[Array, Rounded]:
    """Where the step of the target is asked for, and its rounding."""
    f_w, f_v = factors(sgd, first)
    c = f_w.times(lr) if target is w else f_v
    f = fraction_bits(target)
    y = np.zeros(target.shape, np.int64)
    asked = np.zeros(target.shape, bool)
    for source, factor in ((v, c.v), (g, c.g), (w, c.w)):
        if source is not None:
            m, s = source.pairs()
            of = factor if source is target else coefficient(factor, s, target.scales)
            y = y + term(m, of, f)
            asked |= (m != 0) & (of > 0)
    return asked, lambda rounding, u: rounded(y, f, rounding, u)


def _float_steps(
    w: Tensor, g: Source, v: Tensor | None, sgd: SGD, lr: Any, first: bool, target: Tensor
) -> tuple[Array, Rounded]:
    """The same of the float32 step."""
    kappa, beta = factors(sgd, first)[1].g, np.float32(sgd.momentum)
    with np.errstate(under="ignore"):
        d = g.floats()
        if sgd.weight_decay:
            d = d + np.float32(sgd.weight_decay) * w.floats()
        new_v = d
        if v is not None:
            new_v = beta * v.floats() + kappa * d
            d = d + beta * new_v if sgd.nesterov else new_v
        x = lr * d if target is w else new_v
    held = 2**17
    return x != 0, lambda rounding, u: np.clip(
        quotients(x, target.scales, rounding, u), -held, held
    )
