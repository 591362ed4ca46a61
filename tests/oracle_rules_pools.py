"""The second opinion on pools in a graph: docs/numerics.md section 35."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import oracle_join as join
import oracle_pool as pool
from oracle_graph import Cell, Layer
from oracle_rules import RULES, Flow, Mask, Run
from oracle_tensor import Acc, Tensor, is_float

if TYPE_CHECKING:
    from oracle_step import Net


MASKS = ("relu", "leaky", "relu6")  # what they make grows with what they read


def _image(place: Any, rows: int, g: Any) -> tuple[int, ...]:
    return (rows, *g.size, place.shape[0])


class MaxPool:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        _, path, spec = layer
        net, (x,) = run.net, xs
        place = x.place
        g, rows = pool.Geometry.of(spec, place.shape[1:]), x.source.shape[0]
        shape = _image(place, rows, g)
        masks = self._masks(run, x) if self._even(net, x, shape) else None
        if masks is None:
            t = join.at_one_scale(run.arranged(x, net.last_channels(place)))
            best, pick = pool.max_pool(t.codes.reshape(shape), g)
            made = replace(t, codes=best, origin=best.shape)
            cell = Cell(made.reshape((rows, *net.graph.places[path].memory)), place)
        else:
            acc = x.source.reshape(shape)
            best, pick = pool.max_pool(acc.values, g)
            scale = None if acc.scale is None else np.broadcast_to(acc.scale[:, :1, :1], best.shape)
            made_acc = Acc(best, scale, acc.incoming).reshape(
                (rows, *net.graph.places[path].memory)
            )
            cell = Cell(made_acc, place, x.maker)
            run.done.masks[path] = masks
        run.done.picks[path] = pick
        return cell

    def _even(self, net: Net, x: Cell, shape: tuple[int, ...]) -> bool:
        if not x.raw or x.place.channels != net.last_channels(x.place):
            return False
        scale = x.source.scale
        return scale is None or bool(
            (scale.reshape(shape) == scale.reshape(shape)[:, :1, :1]).all()
        )

    def _masks(self, run: Run, x: Cell) -> list[Layer] | None:
        kinds = {path: layer for layer in run.net.layers for path in [layer[1]]}
        chain = [kinds[p] for p in x.outputs if p in kinds]
        masks: list[Layer] = []
        while chain and chain[-1][0] in MASKS:
            masks.insert(0, chain.pop())
        if any(layer[0] in MASKS for layer in chain):
            return None
        if x.needed and not masks and not any(layer[0] == "dropout" for layer in chain):
            return None
        return masks

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        _, path, spec = layer
        of_loss = error.of_loss
        for mask in reversed(net.last.masks.get(path, [])):
            rule, kept = RULES[mask[0]], net.last.cells[path].source
            assert isinstance(rule, Mask)
            error = rule.masked(mask, kept.reshape(error.source.shape), error)
        enters = net.entered(path)
        g, stored = pool.Geometry.of(spec, enters.shape[1:]), net.stored(path, error)
        out = (net.rows, *g.out, enters.shape[0])
        memory = (net.rows, *_memory(net, enters))
        pick = net.last.picks[path]
        channels = net.last_channels(enters)
        if g.never_meet:
            e = join.at_one_scale(stored)
            dx = pool.max_back(e.codes.reshape(out), pick, g)
            return Flow(replace(e, codes=dx.reshape(memory), origin=memory), channels, of_loss)
        if net.policy(path).prop == "float32":
            return Flow(
                Acc(pool.max_back(stored.floats().reshape(out), pick, g).reshape(memory)),
                channels,
                of_loss,
            )
        op = join.one_scale(stored)
        sums = pool.max_back(op.m.reshape(out), pick, g).reshape(memory)
        return Flow(Acc(sums, np.broadcast_to(op.scale.flat[0], sums.shape)), channels, of_loss)


def _memory(net: Net, place: Any) -> tuple[int, ...]:
    return place._replace(channels=net.last_channels(place)).memory


class AvgPool:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        _, path, spec = layer
        net, (x,) = run.net, xs
        place = x.place
        g, rows = pool.Geometry.of(spec, place.shape[1:]), x.source.shape[0]
        wire = run.arranged(x, net.last_channels(place))
        shape, out = _image(place, rows, g), (rows, *net.graph.places[path].memory)
        if net.policy(path).forward == "float32":
            return run.made(
                path, Acc(pool.float_avg_pool(wire.floats().reshape(shape), g).reshape(out))
            )
        op = join.one_scale(wire)
        acc, s = pool.avg_pool(op.m.reshape(shape), op.scale.flat[0], op.bits, g)
        return run.made(path, Acc(acc.reshape(out), np.broadcast_to(s, out)))

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        _, path, spec = layer
        enters = net.entered(path)
        g, stored = pool.Geometry.of(spec, enters.shape[1:]), net.stored(path, error)
        out, memory = (net.rows, *g.out, enters.shape[0]), (net.rows, *_memory(net, enters))
        channels = net.last_channels(enters)
        if net.policy(path).prop == "float32":
            dx = pool.float_avg_back(stored.floats().reshape(out), g).reshape(memory)
            return Flow(Acc(dx), channels, error.of_loss)
        op = join.one_scale(stored)
        dx, s, alike = pool.avg_back(op.m.reshape(out), op.scale.flat[0], op.bits, g)
        dx = dx.reshape(memory)
        if not alike:
            return Flow(Acc(dx, np.broadcast_to(s, memory)), channels, error.of_loss)
        t = join.at_one_scale(stored)
        fmt = t.format
        if is_float(fmt):
            fmt = join.Codes(op.bits)
        elif hasattr(fmt, "__dataclass_fields__"):
            fmt = replace(fmt, scale="float", range="dynamic")
        return Flow(
            Tensor(fmt, dx, np.array(s, np.float32), origin=memory), channels, error.of_loss
        )


RULES |= {"maxpool": MaxPool(), "avgpool": AvgPool()}
