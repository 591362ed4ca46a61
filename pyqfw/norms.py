"""Normalisations with PyTorch's names, arguments and defaults. `pyqfw.nn` has them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any, ClassVar, Literal

from . import _arrays as arrays
from .errors import QfwError
from .modules import (
    Buffer,
    Layer,
    Parameter,
    Raw,
    Shape,
    check_output,
    flag,
    misfit,
    printed,
    size,
)
from .policy import Policy, layer_policy

_NORM_MAX = 2**16


@dataclass(frozen=True, eq=False, repr=False)
class LayerNorm(Layer):
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
        shape = tuple(size("LayerNorm: normalized_shape", n) for n in sizes)
        if not shape or prod(shape) > _NORM_MAX:
            raise QfwError(
                f"LayerNorm: normalized_shape must have 1 to {_NORM_MAX} elements, not {given!r}"
            )
        flag("LayerNorm: elementwise_affine", self.elementwise_affine)
        flag("LayerNorm: bias", self.bias)
        check_output("LayerNorm", self.output)
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
        return printed(self, ("normalized_shape", "eps", "elementwise_affine", "bias"))


@dataclass(frozen=True, eq=False, repr=False)
class _ChannelNorm(Layer):
    """What normalisations with a weight and a bias for each channel share."""

    channels_last: ClassVar[bool] = True

    def _settle(self, counts: Sequence[str], flags: Sequence[str], **values: Any) -> None:
        name = type(self).__name__
        for field in counts:
            values[field] = size(f"{name}: {field}", getattr(self, field))
        for field in flags:
            flag(f"{name}: {field}", getattr(self, field))
        check_output(name, values["output"])
        values["eps"] = arrays.normal_float32(values["eps"], f"{name}: eps")
        values["policy"] = layer_policy(name, values["policy"])
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @abstractmethod
    def channels(self) -> int:
        """Of a sample, its first axis."""

    def _affine(self, affine: bool, bias: bool) -> tuple[Parameter, ...]:
        if not affine:
            return ()
        weight = Parameter("weight", (self.channels(),), 1, 1.0)
        return (weight, Parameter("bias", (self.channels(),), 1, 0.0)) if bias else (weight,)


@dataclass(frozen=True, eq=False, repr=False)
class GroupNorm(_ChannelNorm):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over groups of channels of a sample.

    Samples (C, *): weight and bias are those of the channel. `policy` and `output` as of Linear.
    """

    num_groups: int
    num_channels: int
    eps: float = 1e-5
    affine: bool = True
    _: KW_ONLY
    bias: bool = True
    policy: Mapping[str, Any] | Policy | None = None
    output: Literal[Raw.RAW] | None = None

    def __post_init__(self) -> None:
        given = {"eps": self.eps, "policy": self.policy, "output": self.output}
        self._settle(("num_groups", "num_channels"), ("affine", "bias"), **given)
        if self.num_channels % self.num_groups:
            raise QfwError(
                f"GroupNorm: num_channels must be divisible by num_groups: {self.num_channels} by "
                f"{self.num_groups} is not"
            )

    def channels(self) -> int:
        return self.num_channels

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        if in_shape[:1] != (self.num_channels,):
            raise misfit(path, self, in_shape, f"axis 0 must have {self.num_channels} channels")
        return in_shape

    def parameters(self) -> tuple[Parameter, ...]:
        return self._affine(self.affine, self.bias)

    def __repr__(self) -> str:
        first = (self.num_groups, self.num_channels)
        return printed(self, ("eps", "affine", "bias"), first, bias=self.affine and self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class _BatchNorm(_ChannelNorm):
    """What both have."""

    axes: ClassVar[tuple[tuple[str, ...], ...]]  # that samples may have besides the channels
    trains_otherwise: ClassVar[bool] = True

    num_features: int
    eps: float = 1e-5
    momentum: float | None = 0.1
    affine: bool = True
    track_running_stats: bool = True
    _: KW_ONLY
    bias: bool = True
    policy: Mapping[str, Any] | Policy | None = None
    output: Literal[Raw.RAW] | None = None

    def __post_init__(self) -> None:
        momentum = self.momentum
        if momentum is not None:
            momentum = arrays.number(momentum, f"{type(self).__name__}: momentum", 0, 1)
        given = {"eps": self.eps, "policy": self.policy, "output": self.output}
        flags = ("affine", "track_running_stats", "bias")
        self._settle(("num_features",), flags, momentum=momentum, **given)

    def channels(self) -> int:
        return self.num_features

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        known = any(len(in_shape) == 1 + len(axes) for axes in self.axes)
        if not known or in_shape[0] != self.num_features:
            n = self.num_features
            samples = [f"({n}, {', '.join(axes)})" if axes else f"({n},)" for axes in self.axes]
            raise misfit(path, self, in_shape, f"a sample must be {' or '.join(samples)}")
        return in_shape

    def parameters(self) -> tuple[Parameter, ...]:
        return self._affine(self.affine, self.bias)

    def buffers(self) -> tuple[Buffer, ...]:
        shape = (self.num_features,)
        mean, variance = Buffer("running_mean", shape, 0.0), Buffer("running_var", shape, 1.0)
        return mean, variance, Buffer("num_batches_tracked", (), 0.0, integer=True)

    def __repr__(self) -> str:
        names = ("eps", "momentum", "affine", "bias", "track_running_stats")
        return printed(self, names, (self.num_features,), bias=self.affine and self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class BatchNorm1d(_BatchNorm):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias of each channel.

    Samples are (C,) or (C, L). In a step mean and variance are those of the micro-batch, over its
    rows and positions, and the running ones follow: running = (1 - momentum) * running + momentum *
    found, the variance as that of a sample (one less than the values as divisor); momentum=None:
    the mean of all batches. In inference they are the running ones. So they are in a step of a
    layer that is frozen, by `requires_grad_(False)` or as none of those to `train`, unlike in
    PyTorch: its statistics stay, and it is a factor and a bias for each channel. `policy` and
    `output` as of Linear.
    """

    axes: ClassVar[tuple[tuple[str, ...], ...]] = ((), ("length",))


@dataclass(frozen=True, eq=False, repr=False)
class BatchNorm2d(_BatchNorm):
    """BatchNorm1d of samples (C, H, W)."""

    axes: ClassVar[tuple[tuple[str, ...], ...]] = (("height", "width"),)
