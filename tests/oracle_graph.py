"""The second opinion on graphs of layers: what reads what, in which shape and order of memory.

A layer is a tuple (kind, path, ...):
("linear", path, inputs, outputs, bias), ("conv", path, Conv), ("norm", path, shape, eps, gamma,
beta), ("quant", path, fmt), ("relu", path), ("leaky", path, slope), ("softmax", path, dim),
("relu6", path), ("sigmoid", path), ("tanh", path), ("maxpool", path, layer), ("avgpool", path,
layer), ("batch", path, channels, eps, momentum, affine), ("group", path, groups, channels, eps,
affine), ("dropout", path, p), ("flatten", path) or ("flatten", path, first, last), ("add", path),
("concat", path, axis of a batch). It reads the layer before it, or what `sources` say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from oracle_order import Place, Shape, ordered, shown
from oracle_pool import Geometry
from oracle_tensor import Acc, Source, Tensor
from oracle_window import Conv

Layer: TypeAlias = tuple[Any, ...]
Sources: TypeAlias = Mapping[str, tuple[str, ...]]

INPUT = "input"
NORMS, SQUASHES, POOLS = ("batch", "group"), ("sigmoid", "tanh"), ("maxpool", "avgpool")
MAKERS = (  # of accumulators
    *("linear", "conv", "norm", "softmax", "add", "concat", "avgpool"),
    *(*NORMS, *SQUASHES),
)
ELEMENTWISE = ("relu", "leaky", "relu6", *SQUASHES, "dropout", "quant")  # of samples in any order


@dataclass
class Cell:
    """A value that flows: in the order of memory, an accumulator until it is stored."""

    source: Source
    place: Place
    maker: str = ""
    """Of an accumulator: whose wires it is stored as."""
    needed: bool = False
    """Whether backward reads the accumulator as it was made."""
    outputs: dict[str, Shape] = field(default_factory=dict)
    """The layers whose output it is, and its shape there."""

    @property
    def raw(self) -> bool:
        return isinstance(self.source, Acc)

    def in_memory(self) -> Source:
        """In the shape that its runs follow."""
        return self.source.reshape((self.source.shape[0], *self.place.memory))

    def wires(self) -> dict[str, Source]:
        """What is shown of it, by layer."""
        place = self.place
        return {p: shown(self.source, place._replace(shape=s)) for p, s in self.outputs.items()}


@dataclass
class Pass:
    """What a forward pass leaves: each layer's output, and its operand as it entered."""

    cells: dict[str, Cell] = field(default_factory=dict)
    operands: dict[str, Tensor] = field(default_factory=dict)
    picks: dict[str, Any] = field(default_factory=dict)
    """Of a MaxPool."""
    masks: dict[str, list[Layer]] = field(default_factory=dict)
    """Of a MaxPool: the layers before it whose masks it passes, in order."""

    @property
    def wires(self) -> dict[str, Source]:
        """Each layer's output as it is kept, and "input"."""
        found = {path: cell.wires()[path] for path, cell in self.cells.items()}
        return found


class Graph:
    """Layers in the order they are called."""

    def __init__(self, layers: Sequence[Layer], shape: Shape, sources: Sources | None = None):
        self.layers = list(layers)
        before = [INPUT, *(path for _, path, *_ in layers)]
        given = sources or {}
        self.sources = {
            path: given.get(path, (before[i],)) for i, (_, path, *_) in enumerate(layers)
        }
        self.readers = Counter(s for all_of in self.sources.values() for s in all_of)
        self.places = {INPUT: Place(shape, self._input_channels(shape))}
        for layer in self.layers:
            self.places[layer[1]] = self._place(layer, [self.places[s] for s in self._read(layer)])

    def _read(self, layer: Layer) -> tuple[str, ...]:
        return self.sources[layer[1]]

    def _input_channels(self, shape: Shape) -> int:
        """Channels last if a convolution is there to read it, behind layers of any order."""
        same = {INPUT}
        for kind, path, *_ in self.layers:
            reads = bool(same & set(self.sources[path]))
            if reads and kind in ("conv", *POOLS, *NORMS) and len(shape) > 1:
                return ordered(shape[0], prod(shape))
            same |= {path} if reads and kind in ELEMENTWISE else set()
        return 0

    def _place(self, layer: Layer, xs: list[Place]) -> Place:
        """The shape and the order of a layer's output."""
        kind, _, *rest = layer
        shape, channels = xs[0].shape, xs[0].channels
        if kind == "linear":
            return Place((*shape[:-1], rest[1]))
        if kind == "conv":
            conv: Conv = rest[0]
            shape = (conv.outputs, *conv.out_sizes(shape[1:]))
            return Place(shape, ordered(conv.outputs, prod(shape)))
        if kind in POOLS:
            out = Geometry.of(rest[0], shape[1:]).out
            shape = (shape[0], *(out if len(shape) == 3 else out[1:]))
            return Place(shape, ordered(shape[0], prod(shape)))
        if kind in NORMS and len(shape) > 1:
            return Place(shape, ordered(shape[0], prod(shape)))
        if kind == "norm":
            return Place(shape, channels if prod(rest[0]) == prod(shape) else 0)
        if kind == "softmax":
            return Place(shape, channels if len(shape) == 1 else 0)
        if kind == "flatten":
            first, last = rest or (1, len(shape))
            return Place(
                (*shape[: first - 1], prod(shape[first - 1 : last]), *shape[last:]), channels
            )
        if kind == "concat":
            at = range(len(shape) + 1)[rest[0]] - 1
            shape = (*shape[:at], sum(x.shape[at] for x in xs), *shape[at + 1 :])
            return Place(shape, ordered(shape[0], prod(shape)) if len(shape) > 1 else 0)
        return Place(shape, channels)

    def parameters(self) -> dict[str, tuple[Place, int]]:
        """The shape and order, and the number of inputs (0: begins with one number) of each."""
        found: dict[str, tuple[Place, int]] = {}
        for layer in self.layers:
            kind, path, *rest = layer
            enters = self.places[self._read(layer)[0]]
            weight, bias = f"{path}.weight", f"{path}.bias"
            if kind == "linear":
                inputs, outputs, biased = rest
                channels = enters.channels if len(enters.shape) == 1 else 0
                found[weight] = Place((outputs, inputs), channels, lead=1), inputs
                found |= {bias: (Place((outputs,)), inputs)} if biased else {}
            elif kind == "conv":
                conv: Conv = rest[0]
                shape = conv.weight_shape
                place = Place(shape, ordered(shape[1], prod(shape[1:])), lead=1)
                found[weight] = place, conv.fan_in
                found |= {bias: (Place((conv.outputs,)), conv.fan_in)} if conv.bias else {}
            elif kind == "norm":
                shape, _, *affine = rest
                place = Place(shape, self.places[path].channels)
                names = zip((weight, bias), affine, strict=True)
                found |= {name: (place, 0) for name, has in names if has}
            elif kind in NORMS and rest[-1]:
                flat = self.places[path].channels if len(enters.shape) == 1 else 0
                found |= {name: (Place(enters.shape[:1], flat), 0) for name in (weight, bias)}
        return found

    def wanted(self, learning: set[str]) -> set[str]:
        """Layers whose output's error leads to one that learns."""
        found: set[str] = set()
        for _, path, *_ in self.layers:
            if path in learning or found & set(self.sources[path]):
                found.add(path)
        return found

    @property
    def last_maker(self) -> str:
        return [path for kind, path, *_ in self.layers if kind in MAKERS][-1]


def positions_of(place: Place, dim: int) -> int:
    """Of a sample joined along an axis of a batch: those at which values lie side by side."""
    at = range(len(place.shape) + 1)[dim] - 1
    if len(place.shape) == 1:
        return 1
    return prod(place.shape[1:]) if at == 0 else prod(place.shape[1:at])
