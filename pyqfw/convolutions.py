"""Convolutions: descriptions with PyTorch's names, arguments and defaults. `pyqfw.nn` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any, ClassVar, Literal

from . import _arrays as arrays
from .errors import QfwError
from .modules import RAW, Layer, Parameter, Raw, Shape, misfit
from .policy import Policy, layer_policy
from .spatial import MOST, Sizes, check_channels, sizes


@dataclass(frozen=True, eq=False, repr=False)
class _Convolution(Layer):
    """What all convolutions have."""

    dims: ClassVar[int]
    channels_last: ClassVar[bool] = True

    in_channels: int
    out_channels: int
    kernel_size: Sizes

    def _settle(self, **values: Any) -> None:
        name = type(self).__name__
        for field in ("in_channels", "out_channels"):
            values[field] = arrays.integer(getattr(self, field), f"{name}: {field}", 1, 2**30)
        values["groups"] = arrays.integer(values["groups"], f"{name}: groups", 1, MOST)
        for field in ("in_channels", "out_channels"):
            if values[field] % values["groups"]:
                raise QfwError(
                    f"{name}: {field} must be divisible by groups: {values[field]} by "
                    f"{values['groups']} is not"
                )
        for field, low in (("kernel_size", 1), ("stride", 1), ("dilation", 1)):
            values[field] = sizes(f"{name}: {field}", getattr(self, field), self.dims, low)
        if not isinstance(values["bias"], bool):
            raise QfwError(f"{name}: bias must be True or False, not {values['bias']!r}")
        if values.pop("padding_mode") != "zeros":
            raise QfwError(f"{name}: padding_mode must be 'zeros': others are not supported")
        if values["output"] is not None and values["output"] is not RAW:
            raise QfwError(f"{name}: output must be None or RAW, not {values['output']!r}")
        values["policy"] = layer_policy(name, values["policy"])
        for field, value in values.items():
            object.__setattr__(self, field, value)

    def _parameters(self, first: int, second: int, bias: bool) -> tuple[Parameter, ...]:
        kernel = self.axes("kernel_size")
        fan_in = second * prod(kernel)
        weight = Parameter("weight", (first, second, *kernel), fan_in)
        return (weight, Parameter("bias", (self.out_channels,), fan_in)) if bias else (weight,)

    def axes(self, name: str) -> tuple[int, ...]:
        """An argument with a number for each axis."""
        value = getattr(self, name)
        assert isinstance(value, tuple)
        return value

    def __repr__(self) -> str:
        parts = [str(self.in_channels), str(self.out_channels)]
        plain: dict[str, object] = {
            "kernel_size": None,
            "stride": None,
            "padding": (0,) * self.dims,
            "output_padding": (0,) * self.dims,
            "dilation": (1,) * self.dims,
            "groups": 1,
            "bias": True,
            "policy": None,
            "output": None,
        }
        for name, usual in plain.items():
            value = getattr(self, name, usual)
            parts += [f"{name}={value!r}"] if value != usual else []
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, eq=False, repr=False)
class _Conv(_Convolution):
    stride: Sizes = 1
    padding: Sizes | Literal["same", "valid"] = 0
    dilation: Sizes = 1
    groups: int = 1
    bias: bool = True
    padding_mode: str = "zeros"
    _: KW_ONLY
    policy: Mapping[str, Any] | Policy | None = None
    output: Literal[Raw.RAW] | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        padding: Any = self.padding
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise QfwError(
                    f"{name}: padding must be numbers, 'same' or 'valid', not {padding!r}"
                )
            strides = sizes(f"{name}: stride", self.stride, self.dims, 1)
            if padding == "same" and set(strides) != {1}:
                raise QfwError(f"{name}: padding='same' needs stride 1, not {self.stride!r}")
        else:
            padding = sizes(f"{name}: padding", padding, self.dims, 0)
        self._settle(
            padding=padding,
            groups=self.groups,
            bias=self.bias,
            padding_mode=self.padding_mode,
            policy=self.policy,
            output=self.output,
        )

    def pads(self) -> tuple[tuple[int, int], ...]:
        """Before and after, for each axis."""
        if self.padding == "valid":
            return ((0, 0),) * self.dims
        if self.padding == "same":
            steps = zip(self.axes("dilation"), self.axes("kernel_size"), strict=True)
            totals = [d * (k - 1) for d, k in steps]
            return tuple((total // 2, total - total // 2) for total in totals)
        return tuple((p, p) for p in self.axes("padding"))

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        check_channels(path, self, in_shape, self.dims, self.in_channels)
        found = []
        names = ("kernel_size", "stride", "dilation")
        each = zip(in_shape[1:], self.pads(), *(self.axes(n) for n in names), strict=True)
        for size, (before, after), k, s, d in each:
            padded, reach = size + before + after, d * (k - 1) + 1
            if padded < reach:
                legal = f"with its padding an axis has {padded}, and the kernel reaches {reach}"
                raise misfit(path, self, in_shape, legal)
            found.append((padded - reach) // s + 1)
        return (self.out_channels, *found)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._parameters(self.out_channels, self.in_channels // self.groups, self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class Conv1d(_Conv):
    """y[o, t] = b[o] + sum of w[o, c, k] x[c, t stride - padding + k dilation], samples (C, L).

    `policy` is a mapping of Policy's fields that are other here, or a whole Policy; with
    ``output=RAW`` the accumulator is left for a Quant.
    """

    dims: ClassVar[int] = 1


@dataclass(frozen=True, eq=False, repr=False)
class Conv2d(_Conv):
    """Conv1d over two axes, samples (C, H, W)."""

    dims: ClassVar[int] = 2


@dataclass(frozen=True, eq=False, repr=False)
class _ConvTranspose(_Convolution):
    stride: Sizes = 1
    padding: Sizes = 0
    output_padding: Sizes = 0
    groups: int = 1
    bias: bool = True
    dilation: Sizes = 1
    padding_mode: str = "zeros"
    _: KW_ONLY
    policy: Mapping[str, Any] | Policy | None = None
    output: Literal[Raw.RAW] | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        self._settle(
            padding=sizes(f"{name}: padding", self.padding, self.dims, 0),
            output_padding=sizes(f"{name}: output_padding", self.output_padding, self.dims, 0),
            groups=self.groups,
            bias=self.bias,
            padding_mode=self.padding_mode,
            policy=self.policy,
            output=self.output,
        )
        names = ("output_padding", "stride", "dilation")
        for more, s, d in zip(*(self.axes(n) for n in names), strict=True):
            if more >= s and more >= d:
                raise QfwError(
                    f"{name}: output_padding must be smaller than stride or dilation, not {more} "
                    f"with stride {s} and dilation {d}"
                )

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        check_channels(path, self, in_shape, self.dims, self.in_channels)
        found = []
        names = ("kernel_size", "stride", "padding", "output_padding", "dilation")
        each = zip(in_shape[1:], *(self.axes(n) for n in names), strict=True)
        for size, k, s, p, more, d in each:
            found.append((size - 1) * s - 2 * p + d * (k - 1) + more + 1)
        if min(found) < 1:
            raise misfit(path, self, in_shape, f"what comes out would be {tuple(found)}")
        return (self.out_channels, *found)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._parameters(self.in_channels, self.out_channels // self.groups, self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class ConvTranspose1d(_ConvTranspose):
    """The way back of a Conv1d as a layer: y[o, t stride - padding + k dilation] += w[c, o, k]
    x[c, t], and the bias. `policy` and `output` as of Conv1d.
    """

    dims: ClassVar[int] = 1


@dataclass(frozen=True, eq=False, repr=False)
class ConvTranspose2d(_ConvTranspose):
    """ConvTranspose1d over two axes, samples (C, H, W)."""

    dims: ClassVar[int] = 2
