"""What every layer has, and containers of layers. `pyqfw.nn` has them."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, overload

from .errors import QfwError, ShapeError
from .losses import Loss

Shape: TypeAlias = tuple[int, ...]
M = TypeVar("M", bound="Module")
S = TypeVar("S", bound="Sequential")


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


@dataclass(frozen=True, eq=False, repr=False)
class Module(ABC):
    """What every layer has."""

    _frozen: bool = field(default=False, init=False)
    trains_otherwise: ClassVar[bool] = False  # whether a step runs it otherwise than inference

    @abstractmethod
    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        """The shape that comes out for the shape that goes in; ShapeError if it does not fit."""

    def parameters(self) -> tuple[Parameter, ...]:
        """What the layer learns."""
        return ()

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

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        for name, layer in self._children:
            in_shape = layer.out_shape(in_shape, _join(path, name))
        return in_shape

    def parameters(self) -> tuple[Parameter, ...]:
        """Those of all layers, by their paths: ``0.weight``."""
        return tuple(
            p._replace(name=_join(name, p.name))
            for name, layer in self._children
            for p in layer.parameters()
        )

    @property
    def requires_grad(self) -> bool:
        """Whether any layer is trained."""
        return any(layer.requires_grad for layer in self)

    def requires_grad_(self: S, requires_grad: bool = True) -> S:
        """Freezes or trains every layer in it."""
        for layer in self:
            layer.requires_grad_(requires_grad)
        return self

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

    def __repr__(self) -> str:
        lines = [f"\n({name}): {layer!r}".replace("\n", "\n  ") for name, layer in self._children]
        return "Sequential(" + "".join(lines) + ("\n)" if lines else ")")


def named_layers(model: Module) -> tuple[tuple[str, Module], ...]:
    """Every layer that is no container with its path (``2.1``), in the order of the data.

    A layer that is the whole model has the path ``0``, as in ``Sequential(layer)``.
    """
    _check_layer("model", model)
    layers = tuple(_walk("", model if isinstance(model, Sequential) else Sequential(model)))
    if not layers:
        raise QfwError(f"empty model: {model!r} has no layer; give it one, such as Linear(4, 2)")
    seen: dict[int, str] = {}
    for path, layer in layers:
        first = seen.setdefault(id(layer), path)
        if first != path:
            raise QfwError(
                f"layers {first!r} and {path!r} are one object, {layer!r}: make two, shared "
                "weights are not supported yet"
            )
    return layers


def _walk(path: str, model: Sequential) -> Iterator[tuple[str, Module]]:
    for name, layer in model.named_children():
        if isinstance(layer, Sequential):
            yield from _walk(_join(path, name), layer)
        else:
            yield _join(path, name), layer


def _join(path: str, name: str) -> str:
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


def misfit(path: str, layer: Module, in_shape: Shape, remedy: str) -> ShapeError:
    where = f"layer {path!r}, {layer!r}" if path else repr(layer)
    return ShapeError(f"{where}: what enters it has the shape {in_shape} (no batch axis); {remedy}")
