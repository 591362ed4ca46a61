"""Graphs of layers: values that stand for data, and what joins them. `pyqfw.nn` has the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import _arrays as arrays
from .errors import QfwError, ShapeError
from .modules import Layer, Module, Sequential, Shape, join, named_layers, whole

INPUT = -1


@dataclass(frozen=True, eq=False, repr=False)
class Add(Layer):
    """y = a + b + ...: values of one shape, joined. ``x + y`` in a forward is the same."""

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape

    def joined_shape(self, in_shapes: tuple[Shape, ...], path: str = "") -> Shape:
        if len(in_shapes) < 2:
            raise QfwError(f"layer {path!r}, {self!r}, joins two values or more: add(a, b)")
        if len(set(in_shapes)) > 1:
            told = " and ".join(map(str, in_shapes))
            raise ShapeError(
                f"layer {path!r}, {self!r}: what enters it has the shapes {told} (no batch axis); "
                f"they must be one shape"
            )
        return in_shapes[0]

    def __repr__(self) -> str:
        return "Add()"


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Layer):
    """y = [a, b, ...] along `dim`, the batch being axis 0: torch.cat."""

    dim: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", arrays.integer(self.dim, "Concat: dim", -64, 64))

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return self.joined_shape((in_shape,), path)

    def axis(self, rank: int, path: str = "") -> int:
        """The axis of a sample of that rank."""
        if not -rank <= self.dim <= rank or self.dim == 0:
            raise ShapeError(
                f"layer {path!r}, {self!r}: values have {rank} axes and the batch, axis 0: dim "
                f"must be 1 to {rank}, or -1 to {-rank}"
            )
        return self.dim - 1 if self.dim > 0 else rank + self.dim

    def joined_shape(self, in_shapes: tuple[Shape, ...], path: str = "") -> Shape:
        at = self.axis(len(in_shapes[0]), path)
        others = {(*shape[:at], *shape[at + 1 :]) for shape in in_shapes}
        if len(others) > 1 or len({len(shape) for shape in in_shapes}) > 1:
            told = " and ".join(map(str, in_shapes))
            raise ShapeError(
                f"layer {path!r}, {self!r}: what enters it has the shapes {told} (no batch axis); "
                f"they may differ in axis {self.dim} alone"
            )
        first = in_shapes[0]
        return (*first[:at], sum(shape[at] for shape in in_shapes), *first[at + 1 :])

    def __repr__(self) -> str:
        return f"Concat(dim={self.dim})"


@dataclass(frozen=True, eq=False, repr=False)
class Residual(Module):
    """y = body(x) + shortcut(x); without a shortcut, body(x) + x."""

    body: Module
    shortcut: Module | None = None
    add: Add = field(default_factory=Add, init=False)

    def __post_init__(self) -> None:
        for name, module in (("body", self.body), ("shortcut", self.shortcut)):
            if not isinstance(module, Module) and (name == "body" or module is not None):
                raise QfwError(f"Residual: {name} must be a module, not {module!r}")

    def forward(self, x: Any) -> Any:
        return self.add(self.body(x), x if self.shortcut is None else self.shortcut(x))


@dataclass(frozen=True, eq=False, repr=False)
class ModuleList(Module):
    """Modules by number, as in PyTorch: for a forward that goes through them."""

    modules: Any = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "modules", tuple(self.modules))
        for i, module in enumerate(self.modules):
            if not isinstance(module, Module):
                raise QfwError(f"ModuleList: number {i} must be a module, not {module!r}")

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((str(i), module) for i, module in enumerate(self.modules))

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, index: int) -> Module:
        module: Module = self.modules[index]
        return module


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Module):
    """Layers by path, and calls of them in order: (path, what enters: numbers of calls, -1 being
    the input). What a forward that is code leaves behind, for a file."""

    layers: tuple[tuple[str, Layer], ...]
    calls: tuple[tuple[str, tuple[int, ...]], ...]

    def __post_init__(self) -> None:
        names = [name for name, layer in self.layers if isinstance(layer, Layer)]
        sound = all(
            name in names and all(isinstance(s, int) and INPUT <= s < i for s in sources)
            for i, (name, sources) in enumerate(self.calls)
        )
        if not self.calls or not sound or len(set(names)) != len(self.layers):
            raise QfwError("Graph: its calls must be of its layers, on what was called before")

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return iter(self.layers)

    def forward(self, x: Any) -> Any:
        layers, values = dict(self.layers), [x]
        for name, sources in self.calls:
            values.append(layers[name](*(values[s + 1] for s in sources)))
        return values[-1]


class Call(NamedTuple):
    """A layer as a forward called it."""

    path: str
    layer: Layer
    sources: tuple[int, ...]  # numbers of the calls whose results enter, or INPUT
    in_shapes: tuple[Shape, ...]
    shape: Shape


class Value:
    """What flows through a forward that is traced: it has a shape, without the batch axis."""

    def __init__(self, tracer: Tracer, source: int, shape: Shape) -> None:
        self._tracer, self._source, self.shape = tracer, source, shape

    def __add__(self, other: object) -> Value:
        if not isinstance(other, Value):
            raise QfwError(f"forward: a value + {other!r}: only values can be added")
        added: Value = self._tracer.call(Add(), (self, other))
        return added

    def __radd__(self, other: object) -> Value:
        """Python's sum() begins with 0."""
        if type(other) is int and other == 0:
            return self
        raise QfwError(f"forward: {other!r} + a value: only values can be added")

    def __bool__(self) -> bool:
        raise QfwError(
            "a forward cannot depend on a value: it is run once, over values that stand for data"
        )

    def __getitem__(self, index: object) -> Value:
        raise QfwError("a value has no elements: layers take it whole")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a value in a forward has no {name!r}: it is made of layers (nn.Flatten(), ...), of "
            f"+, nn.Add and nn.Concat"
        )

    def __repr__(self) -> str:
        return f"<value {self.shape}>"


def _refused(sign: str) -> Callable[..., Value]:
    def refuse(*_: object) -> Value:
        raise QfwError(f"forward: values can be added alone, not {sign}")

    return refuse


for _sign, _names in {"-": "neg sub", "*": "mul", "/": "truediv", "@": "matmul"}.items():
    for _name in _names.split():
        setattr(Value, f"__{_name}__", _refused(_sign))
        setattr(Value, f"__r{_name}__", _refused(_sign))


class Tracer:
    """A forward while it runs: the calls it makes."""

    def __init__(self, model: Module, path: str = "") -> None:
        self.calls: list[Call] = []
        self._called: Counter[int] = Counter()
        self._paths: dict[int, list[str]] = {}  # several, if a module is there several times
        for name, module in _modules(path, model):
            self._paths.setdefault(id(module), []).append(name)
        self._at = [path]
        self._sums: dict[str, int] = {}
        self._own: list[Add] = []  # of +, kept so that no other layer gets the id of one

    def call(self, module: Module, values: tuple[Any, ...]) -> Any:
        """A layer is noted; a module's forward is gone through."""
        path = self._path(module)
        for value in values:
            if not isinstance(value, Value) or value._tracer is not self:
                raise QfwError(f"forward: module {path!r} is given {value!r}, which is no value")
        if isinstance(module, Layer):
            return self._note(path, module, values)
        self._called[id(module)] += 1
        self._at.append(path)
        made = module.forward(*values)
        self._at.pop()
        return made

    def _note(self, path: str, layer: Layer, values: tuple[Value, ...]) -> Value:
        if self._called[id(layer)] and layer.keeps:
            raise QfwError(
                f"layer {path!r}, {layer!r}, is called twice: make two, shared weights are not "
                f"supported yet"
            )
        self._called[id(layer)] += 1
        shapes = tuple(v.shape for v in values)
        shape = layer.joined_shape(shapes, path)
        self.calls.append(Call(path, layer, tuple(v._source for v in values), shapes, shape))
        return Value(self, len(self.calls) - 1, shape)

    def _path(self, module: Module) -> str:
        if id(module) in self._paths:
            return self._of(module)
        here = self._at[-1]
        if type(module) is not Add:
            raise QfwError(
                f"forward of {here or 'the model'!r}: {module!r} belongs to no module: assign it "
                f"in __init__ (self.name = ...), lists of modules as nn.ModuleList"
            )
        number = self._sums[here] = self._sums.get(here, -1) + 1
        self._own.append(module)
        name = self._free(join(here, f"add{number or ''}"))
        self._paths[id(module)] = [name]
        return name

    def _of(self, module: Module) -> str:
        """The path of a module's next call: ReLU, say, may be called again, as "relu_2"."""
        names, number = self._paths[id(module)], self._called[id(module)]
        if number == len(names) and isinstance(module, Layer) and not module.keeps:
            names.append(self._free(f"{names[0]}_{number + 1}"))
        return names[min(number, len(names) - 1)]

    def _free(self, name: str) -> str:
        taken = {path for paths in self._paths.values() for path in paths}
        while name in taken:
            name += "_"
        return name


def traced(model: Module, in_shape: Shape, path: str = "") -> list[Call]:
    """The calls that a forward makes, in order, the output last: of every layer, and of one that
    keeps nothing, such as ReLU, as often as it likes."""
    model = whole(model)
    layers = dict(named_layers(model))
    tracer = Tracer(model, path)
    out, calls = _run(model, tracer, in_shape), tracer.calls
    live = set()
    waiting = [out._source]
    while waiting:
        at = waiting.pop()
        if at != INPUT and at not in live:
            live.add(at)
            waiting += calls[at].sources
    for i, call in enumerate(calls):
        if i not in live:
            raise QfwError(f"layer {call.path!r}, {call.layer!r}: nothing uses what it makes")
    called = {call.path for call in calls}
    for name, layer in layers.items():
        if join(path, name) not in called:
            raise QfwError(f"layer {name!r}, {layer!r}: forward does not call it")
    return calls


def shape_of(model: Module, in_shape: Shape, path: str = "") -> Shape:
    """The shape of what a forward returns."""
    shape: Shape = _run(model, Tracer(model, path), in_shape).shape
    return shape


def _run(model: Module, tracer: Tracer, in_shape: Shape) -> Value:
    out = tracer.call(model, (Value(tracer, INPUT, in_shape),))
    if not isinstance(out, Value):
        raise QfwError(f"forward of {type(model).__name__} must return one value, not {out!r}")
    return out


def graph_of(calls: list[Call]) -> Module:
    """The same calls without code."""
    chain = all(call.sources == (i - 1,) for i, call in enumerate(calls))
    names: Mapping[str, Layer] = {call.path: call.layer for call in calls}
    if chain and not any("." in name for name in names):
        return Sequential(names)
    return Graph(tuple(names.items()), tuple((call.path, call.sources) for call in calls))


def _modules(path: str, module: Module) -> Iterator[tuple[str, Module]]:
    yield path, module
    for name, child in module.named_children():
        yield from _modules(join(path, name), child)
