"""The affine family before it meets C: what a call was asked to do, checked and complete."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _arrays as arrays
from ._arrays import Array
from .errors import DTypeError, QfwError, ShapeError
from .formats import Axis


class Rules(NamedTuple):
    """The keywords that the operations share."""

    axis: Axis = None
    group: int | None = None
    exact: bool = False
    rounding: str = "half_even"
    in_range: str = "inclusive"
    seed: int = 0
    step: int = 0
    stream: int = 0


@dataclass(frozen=True)
class Call:
    """One operation with its data. `real` is the type of x, dy and dx."""

    op: str
    rules: Rules
    shape: tuple[int, ...]
    real: np.dtype[Any]
    x: Array | None = None
    dy: Array | None = None
    mask: Array | None = None
    scale: npt.ArrayLike | None = None
    zero_point: npt.ArrayLike | None = None
    qmin: int = 0
    qmax: int = 0
    code: str = "int32"
    out: object = None

    @property
    def needs_scale(self) -> bool:
        return self.op != "fake_quantize_affine_backward" or self.mask is None

    @property
    def data(self) -> dict[str, Array | None]:
        """The arrays by the names that the user knows them by."""
        return {"codes" if self.op == "dequantize_affine" else "x": self.x, "dy": self.dy}

    @property
    def result(self) -> np.dtype[Any]:
        return np.dtype(self.code) if self.op == "quantize_affine" else self.real


@dataclass(frozen=True)
class Description:
    """What a call of the affine family will run, and what it promises."""

    op: str
    kernel: str
    isa: str
    precision: str
    """The arithmetic: float32, or float64 for float64 data."""
    workspace: int
    """Bytes of scratch."""
    deterministic: bool = True
    bit_stable: bool = True
    """The same bits on every machine, ISA and thread count."""


def code_dtype(qmin: int, qmax: int, dtype: npt.DTypeLike | None, out: object) -> str:
    """The codes' type: as asked, as `out` has it, or the smallest that holds the range."""
    what = "codes"
    if dtype is None and isinstance(out, np.ndarray):
        dtype, what = out.dtype, "out"
    if dtype is None:
        fits = (n for n in arrays.CODES if np.iinfo(n).min <= qmin and qmax <= np.iinfo(n).max)
        return next(fits)
    name = np.dtype(dtype).name
    if name not in arrays.CODES:
        raise DTypeError(f"{what} must be one of {', '.join(arrays.CODES)}, not {name}")
    return name


def forward(
    op: str,
    rules: Rules,
    x: npt.ArrayLike,
    scale: npt.ArrayLike | None,
    zero_point: npt.ArrayLike | None,
    qmin: int,
    qmax: int,
    *,
    dtype: npt.DTypeLike | None = None,
    out: object = None,
) -> Call:
    """quantize_affine (codes of `dtype`) or fake_quantize_affine."""
    low, high = arrays.int32(qmin, "qmin"), arrays.int32(qmax, "qmax")
    given = arrays.reals(x, "x")
    return Call(
        op,
        rules,
        given.shape,
        given.dtype,
        x=given,
        scale=scale,
        zero_point=zero_point,
        qmin=low,
        qmax=high,
        code=code_dtype(low, high, dtype, out) if op == "quantize_affine" else "int32",
        out=out,
    )


def from_codes(
    rules: Rules,
    codes: npt.ArrayLike,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike | None,
    *,
    dtype: npt.DTypeLike | None,
    out: object,
) -> Call:
    """dequantize_affine: of int32 where the codes have another type, if they fit."""
    given = arrays.integers(codes, "codes")
    if given.dtype.name not in arrays.CODES:
        given = arrays.as_int32(given, "codes")
    code = given.dtype.name
    what = "dtype"
    if dtype is None and isinstance(out, np.ndarray):
        dtype, what = out.dtype, "out"
    real = np.dtype(np.float32 if dtype is None else dtype)
    if real.name not in arrays.REALS:
        raise DTypeError(f"{what} must be one of {', '.join(arrays.REALS)}, not {real}")
    data = arrays.contiguous(given)
    call = Call("dequantize_affine", rules, data.shape, real, scale=scale, zero_point=zero_point)
    return replace(call, x=data, code=code, out=out)


def backward(
    op: str,
    rules: Rules,
    dy: npt.ArrayLike,
    x: npt.ArrayLike | None,
    scale: npt.ArrayLike | None,
    zero_point: npt.ArrayLike | None,
    qmin: int | None,
    qmax: int | None,
    *,
    mask: npt.ArrayLike | None = None,
    out: object = None,
) -> Call:
    """quantize_affine_backward or fake_quantize_affine_backward, from x or from a mask."""
    grad = arrays.reals(dy, "dy")
    if (x is None) == (mask is None):
        raise QfwError(f"{op} takes x or mask, one of the two")
    call = Call(op, rules, grad.shape, grad.dtype, dy=grad, scale=scale, zero_point=zero_point)
    call = replace(call, out=out)
    if mask is not None:
        return replace(call, mask=arrays.mask_bits(mask, grad.size))
    assert x is not None
    given = arrays.reals(x, "x")
    if given.shape != grad.shape:
        raise ShapeError(f"x must have dy's shape {grad.shape}, not {given.shape}")
    if given.dtype != grad.dtype:
        raise DTypeError(f"x must have dy's type {grad.dtype}, not {given.dtype}")
    low, high = arrays.int32(qmin, "qmin"), arrays.int32(qmax, "qmax")
    return replace(call, x=given, qmin=low, qmax=high)
