"""What modules are, layers and containers alike. `pyqfw.nn` has them."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, overload

from . import _arrays as arrays
from .errors import QfwError, ShapeError
from .losses import Loss

Shape: TypeAlias = tuple[int, ...]
M = TypeVar("M", bound="Module")


class Raw(Enum):
    """The type of RAW."""

    RAW = "RAW"

    def __repr__(self) -> str:
        return "RAW"


RAW = Raw.RAW
"""``Linear(..., output=RAW)``: leave the accumulator; a Quant further on requantizes it."""


class Parameter(NamedTuple):
    """What a layer needs: a name, a shape, and the inputs that each of its outputs sums.

    Initial values are U(-b, b), b = 1 / sqrt(fan_in) (`docs/numerics.md` section 18), or `value`.
    """

    name: str
    shape: Shape
    fan_in: int
    value: float | None = None  # that all elements begin with, if it is one


class Buffer(NamedTuple):
    """What a layer keeps and does not learn: floats that begin with `value`, or one integer."""

    name: str
    shape: Shape
    value: float
    integer: bool = False


class Module:
    """A network or a part of one. Modules that are attributes belong to it; `forward` calls them.

    ``forward(self, x)`` is run once, by `q.compile`, over values that stand for the data: it is
    made of layers, of `+`, and of modules like itself.
    """

    def forward(self, *values: Any) -> Any:
        """What the module makes of its input."""
        raise QfwError(f"{type(self).__name__} has no forward: write `def forward(self, x)`")

    def __call__(self, *values: Any) -> Any:
        """The module in a forward that is being traced."""
        tracer = next((v._tracer for v in values if hasattr(v, "_tracer")), None)
        if any(isinstance(v, (list, tuple)) for v in values):
            raise QfwError(
                f"{type(self).__name__} is given a list: values come one by one, as in module(a, b)"
            )
        if tracer is None:
            raise QfwError(
                f"{type(self).__name__} is a description, and is called in a forward alone: give "
                f"the model to q.compile, the data to a q.Session"
            )
        return tracer.call(self, values)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules in it, by name, in the order they were assigned."""
        return ((name, m) for name, m in vars(self).items() if isinstance(m, Module))

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        """The shape that comes out for the shape that goes in; ShapeError if it does not fit."""
        from .graph import shape_of  # which knows modules

        return shape_of(self, in_shape, path)

    def parameters(self) -> tuple[Parameter, ...]:
        """Those of all layers, by their paths: ``0.weight``."""
        return tuple(
            p._replace(name=join(name, p.name))
            for name, module in self.named_children()
            for p in module.parameters()
        )

    @property
    def requires_grad(self) -> bool:
        """Whether any layer is trained."""
        return any(module.requires_grad for _, module in self.named_children())

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Freezes the parameters (False) or trains them (True), in place."""
        for _, module in self.named_children():
            module.requires_grad_(requires_grad)
        return self

    def __repr__(self) -> str:
        children = list(self.named_children())
        lines = [f"\n({name}): {module!r}".replace("\n", "\n  ") for name, module in children]
        return f"{type(self).__name__}(" + "".join(lines) + ("\n)" if lines else ")")


@dataclass(frozen=True, eq=False, repr=False)
class Layer(Module, ABC):
    """What every layer has: one operation on what enters it, and parameters of its own."""

    _frozen: bool = field(default=False, init=False)
    trains_otherwise: ClassVar[bool] = False  # whether a step runs it otherwise than inference
    channels_last: ClassVar[bool] = False  # whether it wants axis 0 of a sample last in memory
    any_order: ClassVar[bool] = False  # or takes samples in any order, element by element
    monotone: ClassVar[bool] = False  # whether its output tells its mask, and grows with its input

    @abstractmethod
    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        """The shape that comes out for the shape that goes in; ShapeError if it does not fit."""

    def joined_shape(self, in_shapes: tuple[Shape, ...], path: str = "") -> Shape:
        """The same for all that enters; most layers take one value."""
        if len(in_shapes) != 1:
            raise QfwError(f"layer {path!r}, {self!r}, takes one value, not {len(in_shapes)}")
        return self.out_shape(in_shapes[0], path)

    def parameters(self) -> tuple[Parameter, ...]:
        """What the layer learns."""
        return ()

    def buffers(self) -> tuple[Buffer, ...]:
        """What a step changes without learning it: running statistics."""
        return ()

    @property
    def keeps(self) -> bool:
        """Whether it has either."""
        return bool(self.parameters() or self.buffers())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return iter(())

    @property
    def requires_grad(self) -> bool:
        """Whether its parameters are trained."""
        return not self._frozen

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Freezes the parameters (False) or trains them (True), in place."""
        object.__setattr__(self, "_frozen", not requires_grad)
        return self


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Sequential(Module):
    """y = layer_n(... layer_1(layer_0(x))); layers in order, or one dict of names and layers."""

    _children: tuple[tuple[str, Module], ...]

    @overload
    def __init__(self, *layers: Module) -> None: ...
    @overload
    def __init__(self, layers: Mapping[str, Module], /) -> None: ...
    def __init__(self, *layers: Any) -> None:
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            children = tuple(layers[0].items())
        else:
            children = tuple((str(i), layer) for i, layer in enumerate(layers))
        for name, layer in children:
            _check_name(name)
            _check_layer(f"Sequential: layer {name!r}", layer)
        object.__setattr__(self, "_children", children)

    def forward(self, x: Any) -> Any:
        for _, layer in self._children:
            x = layer(x)
        return x

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return iter(self._children)

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Module]:
        return (layer for _, layer in self._children)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Module:
        """A layer, or a Sequential of some, which keep their names as in PyTorch."""
        if isinstance(index, slice):
            return Sequential(dict(self._children[index]))
        at = operator.index(index)
        if not -len(self) <= at < len(self):
            raise IndexError(f"layer {at} of a Sequential with {len(self)}")
        return self._children[at][1]

    def __getattr__(self, name: str) -> Module:
        """A layer by its name."""
        for child, layer in self.__dict__.get("_children", ()):
            if child == name:
                return layer  # type: ignore[no-any-return]  # __dict__ knows no types
        raise AttributeError(f"Sequential has no layer or attribute {name!r}")


def named_layers(model: Module) -> tuple[tuple[str, Layer], ...]:
    """Every layer with its path (``2.1``), in the order it was given.

    A layer that is the whole model has the path ``0``, as in ``Sequential(layer)``.
    """
    _check_layer("model", model)
    layers = tuple(_walk("", whole(model)))
    if not layers:
        raise QfwError(f"empty model: {model!r} has no layer; give it one, such as Linear(4, 2)")
    seen: dict[int, str] = {}
    for path, layer in layers:
        first = seen.setdefault(id(layer), path)
        if first != path and layer.keeps:
            raise QfwError(
                f"layers {first!r} and {path!r} are one object, {layer!r}: make two, shared "
                "weights are not supported yet"
            )
    return layers


def whole(model: Module) -> Module:
    """The model, a layer by itself being a Sequential of one."""
    return Sequential(model) if isinstance(model, Layer) else model


def _walk(path: str, module: Module) -> Iterator[tuple[str, Layer]]:
    for name, child in module.named_children():
        if isinstance(child, Layer):
            yield join(path, name), child
        else:
            yield from _walk(join(path, name), child)


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _check_name(name: object) -> None:
    """A name is a step of a path, and an attribute of its Sequential."""
    if not isinstance(name, str) or not name or "." in name:
        raise QfwError(f"Sequential: a layer's name must be text without a dot, not {name!r}")
    if hasattr(Sequential, name):
        raise QfwError(f"Sequential: {name!r} is no name for a layer: it is an attribute already")


def _check_layer(what: str, layer: object) -> None:
    if isinstance(layer, Module):
        return
    if isinstance(layer, Loss):
        hint = "a loss is no layer: give it to compile as loss"
    elif isinstance(layer, type) and issubclass(layer, Module):
        hint = f"that is a class: write {layer.__name__}(...)"
    elif isinstance(layer, (list, tuple)):
        hint = "write Sequential(*layers)"
    else:
        hint = "such as Linear(4, 2)"
    raise QfwError(f"{what} must be a layer, not {layer!r}; {hint}")


def size(name: str, value: object) -> int:
    """An argument that counts something."""
    return arrays.integer(value, name, 1, 2**31 - 1)


def flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise QfwError(f"{name} must be True or False, not {value!r}")


def check_output(layer: str, output: object) -> None:
    if output is not None and output is not RAW:
        raise QfwError(f"{layer}: output must be None or RAW, not {output!r}")


def printed(
    layer: Layer, names: Sequence[str], first: Sequence[object] = (), **known: object
) -> str:
    """As PyTorch prints it, `first` without names; with policy and output where they are given.

    `known`: what PyTorch prints instead of the argument.
    """
    args = [str(value) for value in first]
    args += [f"{name}={known.get(name, getattr(layer, name))}" for name in names]
    given = [(name, getattr(layer, name)) for name in ("policy", "output")]
    args += [f"{name}={value!r}" for name, value in given if value is not None]
    return f"{type(layer).__name__}({', '.join(args)})"


def misfit(path: str, layer: Layer, in_shape: Shape, remedy: str) -> ShapeError:
    where = f"layer {path!r}, {layer!r}" if path else repr(layer)
    return ShapeError(f"{where}: what enters it has the shape {in_shape} (no batch axis); {remedy}")
