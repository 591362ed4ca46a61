"""The second opinion on layers in a graph: forward, and the error's way back.

A rule's forward takes the pass as it runs, its layer and the cells that it reads; its backward the
net, the layer and the error of its output, which it gives for each of what it read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import oracle as o
import oracle_conv as conv
import oracle_join as join
from oracle_activations import inside_six, relu6, squash, squash_back
from oracle_graph import INPUT, Cell, Layer, Pass, positions_of
from oracle_layers import dropout, kept_by, leaked, leaky_relu, positive, slope_of, softmax_back
from oracle_layers import softmax as softmax_layer
from oracle_order import reordered
from oracle_product import float_product, forward, propagated, weight_gradient
from oracle_tensor import Acc, Array, Format, Source, Tensor, encode, is_float

if TYPE_CHECKING:
    from oracle_step import Net


class Flow(NamedTuple):
    """An error on its way back, in an order of memory."""

    source: Source
    channels: int = 0
    of_loss: bool = False
    """Whether it is the loss's own, whose range is dynamic."""
    held: str = ""
    """The layer that it was stored for, before its order changed."""
    product: str = ""
    """The arithmetic of the product whose sums it is, if it is that alone."""


class Run:
    """A forward pass as it goes."""

    def __init__(self, net: Net, learns: bool, training: bool) -> None:
        self.net, self.learns, self.training = net, learns, training
        self.done = Pass()

    def walk(self, x: Array) -> Pass:
        net, graph = self.net, self.net.graph
        place = graph.places[INPUT]
        fmt, key = net.policy("").input, net.key(INPUT, "wire")
        value = encode(Acc(place.to_memory(np.asarray(x, np.float32))), fmt, key)
        self.done.cells[INPUT] = Cell(value, place, outputs={INPUT: place.shape})
        for layer in graph.layers:
            kind, path, *_ = layer
            read = [self.done.cells[s] for s in graph.sources[path]]
            cell = RULES[kind].forward(self, layer, *read)
            cell.place = graph.places[path]
            cell.outputs[path] = cell.place.shape
            self.done.cells[path] = cell
            if graph.readers[path] > 1:
                self.stored(cell)
        return self.done

    def made(self, path: str, acc: Acc, needed: bool = False) -> Cell:
        """What a layer summed."""
        return Cell(acc, self.net.graph.places[path], path, needed)

    def stored(self, cell: Cell) -> Tensor:
        """What a layer reads: sums are stored in the wires' format of their layer."""
        if isinstance(cell.source, Acc):
            fmt = self.net.policy(cell.maker).wires
            cell.source = self.encoded(cell, fmt, cell.maker)
        return cell.source

    def encoded(self, cell: Cell, fmt: Format, path: str) -> Tensor:
        net, name = self.net, f"{path}:wire"
        return net.gains.stored(cell.in_memory(), fmt, name, net.key(path, "wire"), self.learns)

    def arranged(self, cell: Cell, channels: int) -> Tensor:
        """Stored, in an order: one scale for all where that is another."""
        t = self.stored(cell)
        if cell.place.channels == channels:
            return t
        return reordered(join.at_one_scale(t), cell.place.channels, channels)


class Rule(Protocol):
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell: ...
    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow | list[Flow]: ...


def matrix(t: Tensor) -> Tensor:
    """A row for each position of each row."""
    return t.reshape((-1, t.shape[-1]))


# ---- layers with parameters ----------------------------------------------------------------------


class Linear:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        net, path, (x,) = run.net, layer[1], xs
        shape = x.place.shape
        wire = run.arranged(x, x.place.channels if len(shape) == 1 else 0)
        rows = wire.shape[0]
        wire = run.done.operands[path] = wire.reshape((-1, shape[-1]))
        weight, bias = net.params[f"{path}.weight"], net.params.get(f"{path}.bias")
        if net.policy(path).forward == "sym":
            acc = forward(wire, weight, bias)
        else:
            beta = None if bias is None else bias.floats()
            acc = Acc(float_product(wire.floats(), weight.floats().T, beta))
        return run.made(path, acc.reshape((rows, *shape[:-1], -1)))

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        path = layer[1]
        e = matrix(net.stored(path, error))
        wire, sym = net.last.operands[path], net.policy(path).weight_grad == "sym"
        if sym:
            net.gradients(path, e, lambda terms: weight_gradient(e, wire, terms))
        else:
            product = lambda _: Acc(float_product(e.floats().T, wire.floats()))  # noqa: E731
            net.gradients(path, e, product)
        if not net.leads(path):
            return error
        weight, enters = net.params[f"{path}.weight"], net.entered(path)
        if net.policy(path).prop == "sym":
            dx = propagated(e, weight)
        else:
            dx = Acc(float_product(e.floats(), weight.floats()))
        channels = enters.channels if len(enters.shape) == 1 else 0
        return Flow(dx.reshape((net.rows, *enters.shape)), channels, product=net.policy(path).prop)


class Convolution:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        net, path, spec = run.net, layer[1], layer[2]
        place = xs[0].place
        wire = run.arranged(xs[0], net.last_channels(place))
        run.done.operands[path] = wire
        bias = net.params.get(f"{path}.bias")
        sym = net.policy(path).forward == "sym"
        acc = self._product(net, path, spec, place.shape[1:], wire, bias, spec.transposed, sym)
        return run.made(path, acc)

    def _product(
        self,
        net: Net,
        path: str,
        spec: Any,
        sizes: tuple[int, ...],
        a: Tensor,
        bias: Tensor | None,
        scatters: bool,
        sym: bool,
    ) -> Acc:
        window, weight = spec.window(sizes), net.params[f"{path}.weight"]
        if sym:
            scales = conv.scales_of(net.policy(path).weights, spec.weight_shape)
            multiply = conv.scatter if scatters else conv.gather
            return multiply(a, weight, scales, window, bias)
        multiply_floats = conv.float_scatter if scatters else conv.float_gather
        return multiply_floats(a, weight, window, bias)

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        path, spec = layer[1], layer[2]
        e = net.stored(path, error)
        rows = matrix(e.reshape((net.rows, -1, spec.outputs)))
        net.gradients(path, rows, lambda _: self._gradient(net, path, spec, e))
        if not net.leads(path):
            return error
        enters, sym = net.entered(path), net.policy(path).prop == "sym"
        sizes = enters.shape[1:]
        acc = self._product(net, path, spec, sizes, e, None, not spec.transposed, sym)
        return Flow(acc, net.last_channels(enters), product=net.policy(path).prop)

    @staticmethod
    def _gradient(net: Net, path: str, spec: Any, error: Tensor) -> Acc:
        window, wire = spec.window(net.entered(path).shape[1:]), net.last.operands[path]
        error = error.reshape((net.rows, -1))
        factors = (wire, error) if spec.transposed else (error, wire)
        if net.policy(path).weight_grad == "sym":
            return conv.gradient(*factors, window, net.batch)
        return conv.float_gradient(*factors, window)


# ---- layers without ------------------------------------------------------------------------------


class Mask:
    """Layers that a MaxPool may pass before them."""

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        if any(layer in masks for masks in net.last.masks.values()):
            return error
        kept = net.last.cells[layer[1]].source
        return self.masked(layer, kept.reshape(error.source.shape), error)

    def masked(self, layer: Layer, kept: Source, error: Flow) -> Flow:
        raise NotImplementedError


class Relu(Mask):
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        slope = self._slope(layer)
        made = leaky_relu(xs[0].source, slope)
        return _apart(xs[0], made) if slope != 0 else _changed(xs[0], made)

    def masked(self, layer: Layer, kept: Source, error: Flow) -> Flow:
        passes, slope = positive(kept), self._slope(layer)
        if slope == 0:
            return error._replace(source=error.source.masked(passes))
        return _times(error, lambda acc: leaked(acc, passes, slope))

    def _slope(self, layer: Layer) -> np.float32:
        return slope_of(layer[2]) if layer[0] == "leaky" else np.float32(0)


class Relu6(Mask):
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        made = _changed(xs[0], relu6(xs[0].source))
        made.needed = made.needed or made.raw
        return made

    def masked(self, layer: Layer, kept: Source, error: Flow) -> Flow:
        return error._replace(source=error.source.masked(inside_six(kept)))


class Squash:
    """Sigmoid and Tanh."""

    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        kind, path = layer
        floats = run.net.policy(path).forward == "float32"
        return run.made(path, squash(xs[0].source, kind, floats), needed=True)

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        kept = net.last.cells[layer[1]].source.reshape(error.source.shape)
        return _times(error, lambda acc: squash_back(acc, kept, layer[0]))


class Softmax:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        path, (x,) = layer[1], xs
        source = x.source
        if len(x.place.shape) > 1 and x.place.channels:
            source = run.arranged(x, 0)
        floats = run.net.policy(path).forward == "float32"
        shape = (source.shape[0], *run.net.graph.places[path].shape)
        return run.made(path, softmax_layer(source.reshape(shape), floats), needed=True)

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        path = layer[1]
        stored, kept = net.stored(path, error), net.last.cells[path].source
        kept = kept.reshape(stored.shape)
        dx = softmax_back(stored, kept, net.policy(path).prop == "float32")
        return Flow(dx, net.graph.places[path].channels)


class Dropout:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        _, path, p = layer
        x = xs[0]
        if not run.training or p == 0:
            return _changed(x, x.source)
        keeps = kept_by(run.net.key(path, "dropout"), p, x.source.shape)
        dropped = dropout(x.source, keeps, p)
        return _apart(x, dropped)

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        _, path, p = layer
        if p == 0:
            return error
        keeps = kept_by(net.key(path, "dropout"), p, error.source.shape)
        return _times(error, lambda acc: dropout(acc, keeps, p))


class Quant:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        _, path, fmt = layer
        stored = run.encoded(xs[0], fmt or run.net.policy(path).wires, path)
        return _changed(xs[0], stored)

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        passes = in_range(net.last.cells[layer[1]].source)
        return error._replace(source=error.source.masked(passes))


class Flatten:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        return _changed(xs[0], xs[0].source)

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        return error


# ---- values that meet ----------------------------------------------------------------------------


class Add:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        path, rows = layer[1], xs[0].source.shape[0]
        place = run.net.graph.places[path]
        wires = [run.arranged(x, place.channels).reshape((rows, *place.memory)) for x in xs]
        return run.made(path, join.added(wires, run.net.policy(path).forward == "float32"))

    def backward(self, net: Net, layer: Layer, error: Flow) -> Flow:
        return error._replace(source=net.stored(layer[1], error))


class Concat:
    def forward(self, run: Run, layer: Layer, *xs: Cell) -> Cell:
        _, path, dim = layer
        place, floats = run.net.graph.places[path], run.net.policy(path).forward == "float32"
        wires = [run.arranged(x, run.net.last_channels(x.place)) for x in xs]
        acc = join.beside(wires, positions_of(place, dim), floats)
        return run.made(path, acc.reshape((len(acc.values), *place.memory)))

    def backward(self, net: Net, layer: Layer, error: Flow) -> list[Flow]:
        _, path, dim = layer
        positions = positions_of(net.graph.places[path], dim)
        read = [net.graph.places[s] for s in net.graph.sources[path]]
        sizes = [place.size // positions for place in read]
        found = join.parts(net.stored(path, error), positions, sizes)
        each = zip(found, read, strict=True)
        return [Flow(t, net.last_channels(p), error.of_loss) for t, p in each]


def _changed(x: Cell, source: Source) -> Cell:
    """Sums change where they are; what is stored stays, beside what was made of it."""
    if not x.raw:
        return Cell(source, x.place)
    x.source = source
    return x


def _apart(x: Cell, source: Source) -> Cell:
    """Sums that backward reads as they were made stay as they are."""
    return Cell(source, x.place, x.maker) if x.raw and x.needed else _changed(x, source)


def _times(error: Flow, factor: Callable[[Acc], Source]) -> Flow:
    """A factor applied to an error: stored codes become sums, stored floats stay stored."""
    source = error.source
    if isinstance(source, Acc):
        return error._replace(source=factor(source))
    if not is_float(source.format):
        return error._replace(source=factor(join.added([source], False)))
    return error._replace(source=replace(source, codes=factor(Acc(source.codes)).floats()))


def in_range(t: Source) -> Array:
    """Where a Quant's output passes an error: everywhere, or inside the end codes of a range that
    can be left."""
    assert isinstance(t, Tensor)
    fmt: Format = t.format
    if is_float(fmt) or fmt.range == "dynamic":
        return np.ones(t.shape, bool)
    top = o.top_code(fmt.bits, fmt.asymmetric)
    return (t.codes > (0 if fmt.asymmetric else -top)) & (t.codes < top)


RULES: dict[str, Rule] = {
    "linear": Linear(),
    "conv": Convolution(),
    "relu": Relu(),
    "leaky": Relu(),
    "relu6": Relu6(),
    "sigmoid": Squash(),
    "tanh": Squash(),
    "softmax": Softmax(),
    "dropout": Dropout(),
    "quant": Quant(),
    "flatten": Flatten(),
    "add": Add(),
    "concat": Concat(),
}
