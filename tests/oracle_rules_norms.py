"""The second opinion on normalisations in a graph: docs/numerics.md sections 20 and 36.

("norm", path, shape, eps, gamma, beta), ("batch", path, channels, eps, momentum, affine),
("group", path, groups, channels, eps, affine).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import oracle_batch_norm as bn
import oracle_norm as norm
from oracle_graph import Cell, Layer
from oracle_product import operand
from oracle_rules import RULES, Flow, Run
from oracle_tensor import Acc, Array, Tensor

if TYPE_CHECKING:
    from oracle_step import Net

PRODUCTS = ("linear", "conv")


class Norm:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        net, (_, path, shape, eps, *_), (x,) = run.net, layer, xs
        wire = run.arranged(x, net.graph.places[path].channels)
        rows = wire.shape[0]
        wire = run.done.operands[path] = wire.reshape((-1, prod(shape)))
        gamma, beta = (net.params.get(f"{path}.{p}") for p in ("weight", "bias"))
        if net.policy(path).forward == "sym":
            acc = norm.normalized(wire, eps, gamma, beta)
        else:
            floats = (None if p is None else p.floats().reshape(1, -1) for p in (gamma, beta))
            acc = Acc(norm.float_normalized(wire.floats(), eps, *floats))
        return run.made(path, acc.reshape((rows, *net.graph.places[path].memory)))

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        _, path, _, eps, *_ = layer
        wire = net.last.operands[path]
        e = net.stored(path, error).reshape(wire.shape)
        if net.policy(path).weight_grad == "sym":
            net.gradients(path, e, lambda terms: norm.gamma_gradient(e, wire, eps, terms))
        else:
            floats = e.floats(), wire.floats()
            net.gradients(path, e, lambda _: Acc(norm.float_gamma_gradient(*floats, eps)))
        if not net.leads(path):
            return error
        gamma = net.params.get(f"{path}.weight")
        if net.policy(path).prop == "sym":
            dx = norm.back(e, wire, eps, gamma)
        else:
            weight = None if gamma is None else gamma.floats().reshape(1, -1)
            dx = Acc(norm.float_back(e.floats(), wire.floats(), eps, weight))
        place = net.graph.places[path]
        return Flow(dx.reshape((net.rows, *place.memory)), place.channels)


class _Channels:
    """A normalisation of channels, which are last."""

    def read(self, run: Run, layer: Layer, x: Cell) -> Tensor:
        """What enters, a row for each position."""
        place = x.place
        wire = run.arranged(x, run.net.last_channels(place) or place.channels)
        run.done.operands[layer[1]] = wire = wire.reshape((-1, place.shape[0]))
        return wire

    def gave(self, run: Run, layer: Layer, acc: Acc, rows: int) -> Cell:
        path = layer[1]
        return run.made(path, acc.reshape((rows, *run.net.graph.places[path].memory)))

    def returned(self, net: Net, layer: Layer, acc: Acc) -> Flow:
        place = net.graph.places[layer[1]]
        return Flow(acc.reshape((net.rows, *place.memory)), place.channels)


class BatchNorm(_Channels):
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        net, (_, path, _, eps, momentum, _), (x,) = run.net, layer, xs
        rows = x.source.shape[0]
        if not run.training or path in net.frozen:
            return self._known(run, layer, x)
        wire = self.read(run, layer, x)
        gamma, beta = affine(net, path)
        if net.policy(path).forward == "sym":
            most = net.batch * len(wire.codes) // rows
            of = bn.batch_operand(wire, most)
            found = bn.statistics(of)
            weight = None if gamma is None else gamma.floats()
            made = bn.batch_normalized(of, eps, weight, beta, most)
        else:
            floats = wire.floats()
            found = bn.float_statistics(floats)
            made = Acc(bn.float_batch_normalized(floats, eps, *both(gamma, beta)))
        if not net.gains.watching:
            net.running[path].follow(*found, momentum)
        return self.gave(run, layer, made, rows)

    def _known(self, run: Run, layer: Layer, x: Cell) -> Cell:
        """With statistics that are known: on the sums of a product, or on what is stored."""
        net, path, rows = run.net, layer[1], x.source.shape[0]
        a, b = coefficients(net, layer)
        sym, channels = net.policy(path).forward == "sym", layer[2]
        makers = [kind for kind, p, *_ in net.layers if x.maker == p and kind in PRODUCTS]
        alone = x.raw and list(x.outputs) == [x.maker] and bool(makers)
        alone = alone and net.policy(x.maker).forward == net.policy(path).forward
        if alone:
            acc = x.source.reshape((-1, channels))
            made = bn.fold_sums(acc, a, b) if sym else Acc(bn.float_fold(acc.floats(), a, b))
        elif sym:
            made = bn.fold_codes(bn.fold_operand(self.read(run, layer, x)), a, b)
        else:
            made = Acc(bn.float_fold(self.read(run, layer, x).floats(), a, b))
        made = Acc(made.values, made.scale, np.float32(1)) if sym else made  # relative to 1
        cell = self.gave(run, layer, made, rows)
        if alone:  # the product's sums are these from now on
            x.source, x.maker = cell.source, path
        return x if alone else cell

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        _, path, _, eps, *_ = layer
        if path in net.frozen:
            return self._known_back(net, layer, error)
        wire, sym = net.last.operands[path], net.policy(path).prop == "sym"
        e = net.stored(path, error).reshape(wire.shape)
        most, (gamma, _) = net.batch * len(wire.codes) // net.rows, affine(net, path)

        def normals() -> Acc:
            if net.policy(path).weight_grad != "sym":
                return Acc(bn.float_batch_normalized(wire.floats(), eps, None, None))
            of = bn.batch_operand(wire, most)
            return bn.batch_normalized(of, eps, None, None, most)

        net.gradients(path, e, lambda terms: gamma_gradient(net, path, e, normals(), terms))
        if not net.leads(path):
            return error
        weight = None if gamma is None else gamma.floats()
        if sym:
            dx = bn.batch_back(*(bn.batch_operand(t, most) for t in (e, wire)), eps, weight, most)
        else:
            dx = Acc(bn.float_batch_back(e.floats(), wire.floats(), eps, weight))
        return self.returned(net, layer, dx)

    def _known_back(self, net: Net, layer: Layer, error: Flow) -> Flow:
        path, channels = layer[1], layer[2]
        a, _ = coefficients(net, layer)
        sym = net.policy(path).prop == "sym"
        if isinstance(error.source, Acc) and error.product == net.policy(path).prop:
            acc = error.source.reshape((-1, channels))
            dx = bn.fold_sums(acc, a, None) if sym else Acc(bn.float_fold(acc.floats(), a, None))
            return self.returned(net, layer, dx)
        stored = net.stored(path, error).reshape((-1, channels))
        if sym:
            return self.returned(net, layer, bn.fold_codes(bn.fold_operand(stored), a, None))
        return self.returned(net, layer, Acc(bn.float_fold(stored.floats(), a, None)))


class GroupNorm(_Channels):
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        rows = xs[0].source.shape[0]
        wire = self.read(run, layer, xs[0])
        sym = run.net.policy(layer[1]).forward == "sym"
        made = self._normalized(wire, rows, layer, sym, *affine(run.net, layer[1]))
        return self.gave(run, layer, made, rows)

    def _operand(self, t: Tensor, rows: int, layer: Layer) -> bn.Operand:
        _, _, groups, channels, *_ = layer
        positions = len(t.codes) // rows
        x = bn.group_operand(t, positions * channels // groups, positions)
        parts = (v.reshape(rows, positions, channels) for v in (x.m, x.scale))
        return bn.Operand(*parts, x.bits, x.rangeless.reshape(rows, positions, channels))

    def _normalized(
        self,
        wire: Tensor,
        rows: int,
        layer: Layer,
        sym: bool,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
    ) -> Acc:
        _, _, groups, channels, eps, _ = layer
        if not sym:
            x = wire.floats().reshape(rows, -1, channels)
            return Acc(bn.float_group_normalized(x, eps, groups, *both(gamma, beta)))
        weight = None if gamma is None else operand(gamma)
        return bn.group_normalized(self._operand(wire, rows, layer), eps, groups, weight, beta)

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        _, path, groups, channels, eps, _ = layer
        wire, rows, (gamma, _) = net.last.operands[path], net.rows, affine(net, path)
        e = net.stored(path, error).reshape(wire.shape)

        def normals() -> Acc:
            sym = net.policy(path).weight_grad == "sym"
            return self._normalized(wire, rows, layer, sym).reshape(wire.shape)

        net.gradients(path, e, lambda terms: gamma_gradient(net, path, e, normals(), terms))
        if not net.leads(path):
            return error
        if net.policy(path).prop == "sym":
            weight = None if gamma is None else operand(gamma)
            both_of = (self._operand(t, rows, layer) for t in (e, wire))
            return self.returned(net, layer, bn.group_back(*both_of, eps, groups, weight))
        floats = (t.floats().reshape(rows, -1, channels) for t in (e, wire))
        weight = None if gamma is None else gamma.floats()
        dx = bn.float_group_back(*floats, eps, groups, weight)
        return self.returned(net, layer, Acc(dx))


def affine(net: Net, path: str) -> tuple[Tensor | None, Tensor | None]:
    weight, bias = (net.params.get(f"{path}.{p}") for p in ("weight", "bias"))
    return weight, bias


def both(gamma: Tensor | None, beta: Tensor | None) -> tuple[Array | None, Array | None]:
    """As floats."""
    return (None if gamma is None else gamma.floats()), (None if beta is None else beta.floats())


def coefficients(net: Net, layer: Layer) -> tuple[Array, Array]:
    _, path, _, eps, *_ = layer
    return bn.coefficients(net.running[path], *both(*affine(net, path)), eps)


def gamma_gradient(net: Net, path: str, e: Tensor, normals: Acc, terms: int) -> Acc:
    if net.policy(path).weight_grad == "sym":
        return bn.gamma_gradient(e, normals, terms)
    return Acc(bn.float_gamma_gradient(e.floats(), normals.values))


RULES |= {"norm": Norm(), "batch": BatchNorm(), "group": GroupNorm()}
