"""Activations: layers of `pyqfw.nn` without parameters, on each element or along the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from . import _arrays as arrays
from .modules import Layer, Shape, misfit

_FLOAT32_MAX = 2.0**128 - 2.0**104
_MOST_CLASSES = 2**16


class _Elementwise(Layer):
    """Any shape, which it keeps."""

    any_order: ClassVar[bool] = True

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape


@dataclass(frozen=True, eq=False, repr=False)
class ReLU(_Elementwise):
    """y = max(x, 0). `inplace` is PyTorch's and changes nothing: the plan decides."""

    inplace: bool = False
    monotone: ClassVar[bool] = True

    def __repr__(self) -> str:
        return "ReLU(inplace=True)" if self.inplace else "ReLU()"


@dataclass(frozen=True, eq=False, repr=False)
class ReLU6(_Elementwise):
    """y = min(max(x, 0), 6). `inplace` is PyTorch's and changes nothing."""

    inplace: bool = False
    monotone: ClassVar[bool] = True

    def __repr__(self) -> str:
        return "ReLU6(inplace=True)" if self.inplace else "ReLU6()"


@dataclass(frozen=True, eq=False, repr=False)
class LeakyReLU(_Elementwise):
    """y = x where x > 0, else negative_slope * x. `inplace` is PyTorch's and changes nothing."""

    negative_slope: float = 0.01
    inplace: bool = False
    monotone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        slope = arrays.number(self.negative_slope, "LeakyReLU: negative_slope", 0, _FLOAT32_MAX)
        object.__setattr__(self, "negative_slope", slope)

    def __repr__(self) -> str:
        inplace = ", inplace=True" if self.inplace else ""
        return f"LeakyReLU(negative_slope={self.negative_slope}{inplace})"


@dataclass(frozen=True, eq=False, repr=False)
class Sigmoid(_Elementwise):
    """y = 1 / (1 + exp(-x))."""

    def __repr__(self) -> str:
        return "Sigmoid()"


@dataclass(frozen=True, eq=False, repr=False)
class Tanh(_Elementwise):
    """y = (1 - exp(-2 x)) / (1 + exp(-2 x))."""

    def __repr__(self) -> str:
        return "Tanh()"


@dataclass(frozen=True, eq=False, repr=False)
class Softmax(Layer):
    """y = exp(x) / sum(exp(x)) over the last axis; `dim` counts the batch as axis 0."""

    dim: int | None = None

    def __post_init__(self) -> None:
        if self.dim is not None:
            object.__setattr__(self, "dim", arrays.integer(self.dim, "Softmax: dim", -64, 64))

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        last = len(in_shape)
        if last == 0 or in_shape[-1] > _MOST_CLASSES:
            legal = f"the last axis must have 1 to {_MOST_CLASSES} elements"
            raise misfit(path, self, in_shape, legal)
        if self.dim is None and last > 1:
            legal = "PyTorch takes another axis than the last without dim: write dim=-1"
            raise misfit(path, self, in_shape, legal)
        if self.dim not in (None, -1, last):
            legal = f"dim must be the last axis, -1 or {last}; others are not supported yet"
            raise misfit(path, self, in_shape, legal)
        return in_shape

    def __repr__(self) -> str:
        return f"Softmax(dim={self.dim})"
