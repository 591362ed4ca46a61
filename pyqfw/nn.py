"""Layers and losses: descriptions with PyTorch's names, arguments and defaults, and no arrays.

A layer says which shapes it takes and which parameters it needs; a Session owns those. Layers are
read-only but for `requires_grad_`, compare by identity, and print as in PyTorch. Shapes are those
of one sample: the batch axis is not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any, ClassVar, Literal

from . import _arrays as arrays
from .activations import LeakyReLU, ReLU, ReLU6, Sigmoid, Softmax, Tanh
from .convolutions import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from .formats import Format
from .graph import Add, Concat, Graph, ModuleList, Residual
from .losses import CrossEntropyLoss, Loss, MSELoss
from .modules import (
    RAW,
    Layer,
    Module,
    Parameter,
    Raw,
    Sequential,
    Shape,
    check_output,
    flag,
    misfit,
    named_layers,
    printed,
    size,
)
from .norms import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm
from .policy import Policy, layer_policy, wire_format
from .pools import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    MaxPool1d,
    MaxPool2d,
)

__all__ = [
    "RAW",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "Add",
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Concat",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Graph",
    "GroupNorm",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "Loss",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "Parameter",
    "Quant",
    "Raw",
    "ReLU",
    "ReLU6",
    "Residual",
    "Sequential",
    "Shape",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "named_layers",
]

_INT32_MAX = 2**31 - 1
_NORM_MAX = 2**16


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Layer):
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
            "in_features": size("Linear: in_features", self.in_features),
            "out_features": size("Linear: out_features", self.out_features),
            "policy": layer_policy("Linear", self.policy),
        }
        flag("Linear: bias", self.bias)
        check_output("Linear", self.output)
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
        return printed(self, ("in_features", "out_features", "bias"))


@dataclass(frozen=True, eq=False, repr=False)
class Dropout(Layer):
    """In a step y = 0 with probability p, else x / (1 - p); y = x in inference.

    Which elements are dropped is a function of the seed, the step and the layer's path. `inplace`
    is PyTorch's and changes nothing.
    """

    p: float = 0.5
    inplace: bool = False
    trains_otherwise: ClassVar[bool] = True
    any_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", arrays.number(self.p, "Dropout: p", 0, 1))

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape

    def __repr__(self) -> str:
        return f"Dropout(p={self.p}, inplace={bool(self.inplace)})"


@dataclass(frozen=True, eq=False, repr=False)
class Flatten(Layer):
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
class Quant(Layer):
    """y = x in a format: `fmt`, or the policy's wires. dx = dy, but for codes that can saturate."""

    fmt: Format | None = None
    any_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.fmt is not None:
            wire_format("Quant", "fmt", self.fmt)

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        return in_shape

    def __repr__(self) -> str:
        return f"Quant({'' if self.fmt is None else self.fmt})"
