"""Layers and losses: descriptions with PyTorch's names, arguments and defaults, and no arrays.

A layer says which shapes it takes and which parameters it needs; a Session owns those. Layers are
read-only but for `requires_grad_`, compare by identity, and print as in PyTorch. Shapes are those
of one sample: the batch axis is not among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any, ClassVar, Literal

from . import _arrays as arrays
from .errors import QfwError
from .formats import Format
from .losses import CrossEntropyLoss, Loss, MSELoss
from .modules import RAW, Module, Parameter, Raw, Sequential, Shape, misfit, named_layers
from .policy import Policy, layer_policy, wire_format

__all__ = [
    "RAW",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "Loss",
    "MSELoss",
    "Module",
    "Parameter",
    "Quant",
    "Raw",
    "ReLU",
    "Sequential",
    "Shape",
    "Softmax",
    "named_layers",
]

_INT32_MAX = 2**31 - 1
_NORM_MAX = 2**16
_MOST_CLASSES = 2**16
_FLOAT32_MAX = 2.0**128 - 2.0**104


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Module):
    """y = x W^T + b on the last axis, W [out_features, in_features].

    `policy` is a mapping of Policy's fields that are other here, or a whole Policy; with
    ``output=RAW`` the accumulator is left for a Quant.
    """

    in_features: int
    out_features: int
    bias: bool = True
    _: KW_ONLY
    policy: Mapping[str, Any] | Policy | None = None
    output: Literal[Raw.RAW] | None = None

    def __post_init__(self) -> None:
        values = {
            "in_features": _size("Linear: in_features", self.in_features),
            "out_features": _size("Linear: out_features", self.out_features),
            "policy": layer_policy("Linear", self.policy),
        }
        _flag("Linear: bias", self.bias)
        _check_output("Linear", self.output)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        if in_shape[-1:] != (self.in_features,):
            raise misfit(path, self, in_shape, self._remedy(in_shape))
        return (*in_shape[:-1], self.out_features)

    def _remedy(self, in_shape: Shape) -> str:
        wanted = f"the last axis must have {self.in_features} elements"
        if in_shape and prod(in_shape) == self.in_features:
            return f"{wanted}: put Flatten() before it"
        if in_shape:
            return f"{wanted}, or write in_features={in_shape[-1]}"
        return wanted

    def parameters(self) -> tuple[Parameter, ...]:
        weight = Parameter("weight", (self.out_features, self.in_features), self.in_features)
        bias = Parameter("bias", (self.out_features,), self.in_features)
        return (weight, bias) if self.bias else (weight,)

    def __repr__(self) -> str:
        return _printed(self, ("in_features", "out_features", "bias"))


@dataclass(frozen=True, eq=False, repr=False)
class LayerNorm(Module):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over the last axes, `normalized_shape`.

    `policy` and `output` as of Linear.
    """

    normalized_shape: int | Sequence[int]
    eps: float = 1e-5
    elementwise_affine: bool = True
    bias: bool = True
    _: KW_ONLY
    policy: Mapping[str, Any] | Policy | None = None
    output: Literal[Raw.RAW] | None = None

    def __post_init__(self) -> None:
        given = self.normalized_shape
        sizes = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        shape = tuple(_size("LayerNorm: normalized_shape", n) for n in sizes)
        if not shape or prod(shape) > _NORM_MAX:
            raise QfwError(
                f"LayerNorm: normalized_shape must have 1 to {_NORM_MAX} elements, not {given!r}"
            )
        _flag("LayerNorm: elementwise_affine", self.elementwise_affine)
        _flag("LayerNorm: bias", self.bias)
        _check_output("LayerNorm", self.output)
        object.__setattr__(self, "normalized_shape", shape)
        object.__setattr__(self, "eps", arrays.normal_float32(self.eps, "LayerNorm: eps"))
        object.__setattr__(self, "policy", layer_policy("LayerNorm", self.policy))

    @property
    def shape(self) -> Shape:
        """The normalised axes."""
        shape = self.normalized_shape
        assert isinstance(shape, tuple)
        return shape

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        if in_shape[-len(self.shape) :] != self.shape:
            raise misfit(path, self, in_shape, f"its last axes must be {self.shape}")
        return in_shape

    def parameters(self) -> tuple[Parameter, ...]:
        if not self.elementwise_affine:
            return ()
        weight = Parameter("weight", self.shape, 1, 1.0)
        return (weight, Parameter("bias", self.shape, 1, 0.0)) if self.bias else (weight,)

    def __repr__(self) -> str:
        return _printed(self, ("normalized_shape", "eps", "elementwise_affine", "bias"))


@dataclass(frozen=True, eq=False, repr=False)
class ReLU(Module):
    """y = max(x, 0). `inplace` is PyTorch's and changes nothing: the plan decides."""

    inplace: bool = False

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape

    def __repr__(self) -> str:
        return "ReLU(inplace=True)" if self.inplace else "ReLU()"


@dataclass(frozen=True, eq=False, repr=False)
class LeakyReLU(Module):
    """y = x where x > 0, else negative_slope * x. `inplace` is PyTorch's and changes nothing."""

    negative_slope: float = 0.01
    inplace: bool = False

    def __post_init__(self) -> None:
        slope = arrays.number(self.negative_slope, "LeakyReLU: negative_slope", 0, _FLOAT32_MAX)
        object.__setattr__(self, "negative_slope", slope)

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape

    def __repr__(self) -> str:
        inplace = ", inplace=True" if self.inplace else ""
        return f"LeakyReLU(negative_slope={self.negative_slope}{inplace})"


@dataclass(frozen=True, eq=False, repr=False)
class Softmax(Module):
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


@dataclass(frozen=True, eq=False, repr=False)
class Dropout(Module):
    """In a step y = 0 with probability p, else x / (1 - p); y = x in inference.

    Which elements are dropped is a function of the seed, the step and the layer's path. `inplace`
    is PyTorch's and changes nothing.
    """

    p: float = 0.5
    inplace: bool = False
    trains_otherwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", arrays.number(self.p, "Dropout: p", 0, 1))

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape

    def __repr__(self) -> str:
        return f"Dropout(p={self.p}, inplace={bool(self.inplace)})"


@dataclass(frozen=True, eq=False, repr=False)
class Flatten(Module):
    """Axes start_dim to end_dim as one, in PyTorch's order; axis 0 is the batch."""

    start_dim: int = 1
    end_dim: int = -1

    def __post_init__(self) -> None:
        for name in ("start_dim", "end_dim"):
            axis = arrays.integer(getattr(self, name), f"Flatten: {name}", -64, 64)
            object.__setattr__(self, name, axis)

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        rank = 1 + len(in_shape)
        if not all(-rank <= axis < rank for axis in (self.start_dim, self.end_dim)):
            legal = f"with the batch it has {rank} axes: dims must be {-rank} to {rank - 1}"
            raise misfit(path, self, in_shape, legal)
        first, last = self.start_dim % rank, self.end_dim % rank
        if first > last:
            raise misfit(path, self, in_shape, "start_dim must not come after end_dim")
        if first == 0 < last:
            raise misfit(path, self, in_shape, "axis 0 is the batch: start_dim must be 1 or more")
        if first == 0:
            return in_shape
        merged = prod(in_shape[first - 1 : last])
        return (*in_shape[: first - 1], merged, *in_shape[last:])

    def __repr__(self) -> str:
        return f"Flatten(start_dim={self.start_dim}, end_dim={self.end_dim})"


@dataclass(frozen=True, eq=False, repr=False)
class Quant(Module):
    """y = x in a format: `fmt`, or the policy's wires. dx = dy, but for codes that can saturate."""

    fmt: Format | None = None

    def __post_init__(self) -> None:
        if self.fmt is not None:
            wire_format("Quant", "fmt", self.fmt)

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape

    def __repr__(self) -> str:
        return f"Quant({'' if self.fmt is None else self.fmt})"


def _size(name: str, value: object) -> int:
    return arrays.integer(value, name, 1, _INT32_MAX)


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise QfwError(f"{name} must be True or False, not {value!r}")


def _check_output(layer: str, output: object) -> None:
    if output is not None and output is not RAW:
        raise QfwError(f"{layer}: output must be None or RAW, not {output!r}")


def _printed(layer: Module, names: Sequence[str]) -> str:
    """As PyTorch prints it, with the policy and output where they are given."""
    args = [f"{name}={getattr(layer, name)}" for name in names]
    given = [(name, getattr(layer, name)) for name in ("policy", "output")]
    args += [f"{name}={value!r}" for name, value in given if value is not None]
    return f"{type(layer).__name__}({', '.join(args)})"
