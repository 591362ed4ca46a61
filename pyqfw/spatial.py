"""What layers over images share: sizes along axes, and samples with channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from . import _arrays as arrays
from .errors import QfwError
from .modules import Layer, Shape, misfit

Sizes: TypeAlias = int | Sequence[int]

MOST = 2**16 - 1  # of a kernel, a stride, a padding, a dilation, groups


def sizes(name: str, value: object, dims: int, low: int) -> tuple[int, ...]:
    """One number for all axes, or one for each."""
    several = value if isinstance(value, (tuple, list)) else (value,) * dims
    if len(several) != dims:
        raise QfwError(f"{name} must be a number or {dims} of them, not {value!r}")
    return tuple(arrays.integer(v, name, low, MOST) for v in several)


def check_channels(
    path: str, layer: Layer, in_shape: Shape, dims: int, channels: int | None = None
) -> None:
    """That a sample has its channels, so many where that is said, and `dims` axes more."""
    axes = ("length",) if dims == 1 else ("height", "width")
    wanted = f"({', '.join(('channels' if channels is None else str(channels), *axes))})"
    if len(in_shape) != dims + 1:
        raise misfit(path, layer, in_shape, f"a sample must be {wanted}")
    if channels is not None and in_shape[0] != channels:
        legal = f"a sample must be {wanted}: it has {in_shape[0]} channels, not {channels}"
        raise misfit(path, layer, in_shape, legal)
