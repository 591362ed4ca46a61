"""Pools: descriptions with PyTorch's names, arguments and defaults. `pyqfw.nn` has them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, TypeAlias

from . import _arrays as arrays
from .errors import QfwError
from .modules import Layer, Shape, misfit
from .spatial import Sizes, check_channels, sizes

OutputSize: TypeAlias = int | tuple[int | None, ...] | None

MOST_TAPS = 2**16  # of a MaxPool: as many as a pick of 16 bits can tell apart
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class _Pool(Layer):
    """What all pools with a kernel have."""

    dims: ClassVar[int]
    channels_last: ClassVar[bool] = True

    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0

    def _settle(self, flags: tuple[str, ...], more: tuple[str, ...] = ()) -> None:
        """Sizes as PyTorch keeps them: a number, or one for each axis."""
        kind = type(self).__name__
        if self.stride is None:
            object.__setattr__(self, "stride", self.kernel_size)
        for name in ("kernel_size", "stride", "padding", *more):
            given = getattr(self, name)
            found = sizes(f"{kind}: {name}", given, self.dims, 0 if name == "padding" else 1)
            object.__setattr__(self, name, found if isinstance(given, (tuple, list)) else found[0])
        for pad, kernel in zip(self.axes("padding"), self.axes("kernel_size"), strict=True):
            if pad > kernel // 2:
                raise QfwError(
                    f"{kind}: padding must be at most half of kernel_size, not {pad} with a kernel "
                    f"of {kernel}"
                )
        for name in flags:
            if not isinstance(getattr(self, name), bool):
                raise QfwError(f"{kind}: {name} must be True or False, not {getattr(self, name)!r}")

    def axes(self, name: str) -> tuple[int, ...]:
        """An argument with a number for each axis; one that a pool has not is 1."""
        value = getattr(self, name, 1)
        return value if isinstance(value, tuple) else (value,) * self.dims

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        check_channels(path, self, in_shape, self.dims)
        names = ("kernel_size", "stride", "padding", "dilation")
        each = zip(in_shape[1:], *(self.axes(n) for n in names), strict=True)
        return (in_shape[0], *(self._windows(path, in_shape, *axis) for axis in each))

    def _windows(
        self, path: str, in_shape: Shape, size: int, kernel: int, stride: int, pad: int, apart: int
    ) -> int:
        """How many there are along an axis, by PyTorch's rule."""
        over = getattr(self, "ceil_mode", False)
        padded, reach = size + 2 * pad, apart * (kernel - 1) + 1
        found = (padded - reach + (stride - 1 if over else 0)) // stride + 1
        if over and (found - 1) * stride >= size + pad:
            found -= 1  # it would begin in the padding behind the image
        if found < 1:
            legal = f"with its padding an axis has {padded}, and the kernel reaches {reach}"
            raise misfit(path, self, in_shape, f"{legal}: nothing would come out")
        for window in range(found) if apart > 1 else ():
            begin = window * stride - pad
            tap = max(0, -(begin // apart))  # the first that is not before the image
            if tap >= kernel or begin + tap * apart >= size:
                legal = f"window {window} of an axis of {size} would meet padding alone"
                raise misfit(path, self, in_shape, f"{legal}: take less dilation or padding")
        return found

    def _printed(self, *names: str) -> str:
        args = (f"{name}={getattr(self, name)}" for name in names)
        return f"{type(self).__name__}({', '.join(args)})"


@dataclass(frozen=True, eq=False, repr=False)
class _MaxPool(_Pool):
    dilation: Sizes = 1
    return_indices: bool = False
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        kind = type(self).__name__
        self._settle(("return_indices", "ceil_mode"), ("dilation",))
        if self.return_indices:
            raise QfwError(f"{kind}: return_indices must be False: a layer gives one value")
        taps = prod(self.axes("kernel_size"))
        if taps > MOST_TAPS:
            raise QfwError(f"{kind}: kernel_size must have at most {MOST_TAPS} taps, not {taps}")

    def __repr__(self) -> str:
        return self._printed("kernel_size", "stride", "padding", "dilation", "ceil_mode")


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool1d(_MaxPool):
    """y[c, t] = the largest x[c, t stride - padding + k dilation] over the kernel, samples (C, L).

    Of equal ones the first; padding never is. `stride` is `kernel_size` unless it is given, and
    with `ceil_mode` a last window may hang over the end.
    """

    dims: ClassVar[int] = 1


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool2d(_MaxPool):
    """MaxPool1d over two axes, samples (C, H, W)."""

    dims: ClassVar[int] = 2


@dataclass(frozen=True, eq=False, repr=False)
class _AvgPool(_Pool):
    ceil_mode: bool = False
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        self._settle(("ceil_mode", "count_include_pad"))

    @property
    def divisor(self) -> int | None:
        """What every sum is divided by, where that is said."""
        return None

    def __repr__(self) -> str:
        return self._printed("kernel_size", "stride", "padding")


@dataclass(frozen=True, eq=False, repr=False)
class AvgPool1d(_AvgPool):
    """y[c, t] = the mean of x[c, t stride - padding + k] over the kernel's k, samples (C, L).

    Padding is 0, and counts unless `count_include_pad` is False; what a window of `ceil_mode` has
    behind the padding never does.
    """

    dims: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _AvgPool.__post_init__(self)
        for name in ("kernel_size", "stride", "padding"):  # as PyTorch keeps them
            object.__setattr__(self, name, self.axes(name))


@dataclass(frozen=True, eq=False, repr=False)
class AvgPool2d(_AvgPool):
    """AvgPool1d over two axes, samples (C, H, W). `divisor_override`: what sums are divided by."""

    dims: ClassVar[int] = 2

    divisor_override: int | None = None

    def __post_init__(self) -> None:
        _AvgPool.__post_init__(self)
        if self.divisor_override is not None:
            name = "AvgPool2d: divisor_override"
            divisor = arrays.integer(self.divisor_override, name, 1, _INT32_MAX)
            object.__setattr__(self, "divisor_override", divisor)

    @property
    def divisor(self) -> int | None:
        return self.divisor_override


@dataclass(frozen=True, eq=False, repr=False)
class _AdaptiveAvgPool(Layer):
    """Windows that part the image evenly: o of n begins at floor(o size / n) and ends before
    ceil((o + 1) size / n)."""

    dims: ClassVar[int]
    channels_last: ClassVar[bool] = True

    output_size: OutputSize

    def __post_init__(self) -> None:
        name, given = f"{type(self).__name__}: output_size", self.output_size
        several = given if isinstance(given, (tuple, list)) else (given,) * self.dims
        kept = self.dims == 2  # PyTorch takes None in two axes alone
        numbers = sizes(name, tuple(1 if v is None and kept else v for v in several), self.dims, 1)
        found = tuple(None if v is None else n for v, n in zip(several, numbers, strict=True))
        value = found if isinstance(given, (tuple, list)) else found[0]
        object.__setattr__(self, "output_size", value)

    def out_shape(self, in_shape: Shape, path: str = "") -> Shape:
        check_channels(path, self, in_shape, self.dims)
        given = self.output_size
        several = given if isinstance(given, tuple) else (given,) * self.dims
        sized = zip(several, in_shape[1:], strict=True)
        return (in_shape[0], *(size if wanted is None else wanted for wanted, size in sized))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(output_size={self.output_size})"


@dataclass(frozen=True, eq=False, repr=False)
class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of `output_size` windows that part a sample (C, L) evenly."""

    dims: ClassVar[int] = 1


@dataclass(frozen=True, eq=False, repr=False)
class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """AdaptiveAvgPool1d over two axes, samples (C, H, W); None: as many as come in."""

    dims: ClassVar[int] = 2
