"""The affine family before it meets C: each function makes the `Call` that `quant` performs.

Names, arguments and documentation are those of `pyqfw.quant`.
"""

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
    return_mask: bool = False

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


def _forward(
    op: str,
    rules: Rules,
    x: npt.ArrayLike,
    points: tuple[npt.ArrayLike | None, npt.ArrayLike | None],
    limits: tuple[int, int],
) -> Call:
    low, high = arrays.int32(limits[0], "qmin"), arrays.int32(limits[1], "qmax")
    given = arrays.reals(x, "x")
    scale, zero = points
    call = Call(op, rules, given.shape, given.dtype, x=given, scale=scale, zero_point=zero)
    return replace(call, qmin=low, qmax=high)


def quantize_affine(
    x: npt.ArrayLike,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike | None,
    qmin: int,
    qmax: int,
    *,
    axis: Axis = None,
    group: int | None = None,
    rounding: str = "half_even",
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
    return_mask: bool = False,
    in_range: str = "inclusive",
    exact: bool = False,
    seed: int = 0,
    step: int = 0,
    stream: int = 0,
) -> Call:
    """clamp(round(x * (1 / scale)) + zero_point, qmin, qmax) as integers.

    The scale's shape is () per tensor, (x.shape[axis],), x.shape[:-1] for ``axis="row"``, and
    x.shape[:-1] + (ceil(x.shape[-1] / group),) for groups; `exact` refuses a ragged last group.
    `dtype` is by default out's, else the smallest that holds qmin..qmax. With `return_mask` the
    result is (codes, mask): the packed bits of the elements in range, which a backward takes in
    place of x. A call that fails leaves `out` as it was.
    """
    rules = Rules(axis, group, exact, rounding, in_range, seed, step, stream)
    call = _forward("quantize_affine", rules, x, (scale, zero_point), (qmin, qmax))
    code = code_dtype(call.qmin, call.qmax, dtype, out)
    return replace(call, code=code, out=out, return_mask=return_mask)


def fake_quantize_affine(
    x: npt.ArrayLike,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike | None,
    qmin: int,
    qmax: int,
    *,
    axis: Axis = None,
    group: int | None = None,
    rounding: str = "half_even",
    out: Array | None = None,
    return_mask: bool = False,
    in_range: str = "inclusive",
    exact: bool = False,
    seed: int = 0,
    step: int = 0,
    stream: int = 0,
) -> Call:
    """(code - zero_point) * scale in x's type: quantize_affine and back."""
    rules = Rules(axis, group, exact, rounding, in_range, seed, step, stream)
    call = _forward("fake_quantize_affine", rules, x, (scale, zero_point), (qmin, qmax))
    return replace(call, out=out, return_mask=return_mask)


def dequantize_affine(
    codes: npt.ArrayLike,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike | None = None,
    *,
    axis: Axis = None,
    group: int | None = None,
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
    exact: bool = False,
) -> Call:
    """(codes - zero_point) * scale as reals of `dtype`.

    By default that is out's type, else float64 if the scale is a numpy number or array of it, else
    float32.
    """
    given = arrays.integers(codes, "codes")
    if given.dtype.name not in arrays.CODES:
        given = arrays.as_int32(given, "codes")
    what = "dtype"
    if dtype is None and isinstance(out, np.ndarray):
        dtype, what = out.dtype, "out"
    if dtype is None:
        dtype = arrays.compute_dtype(scale.dtype) if hasattr(scale, "dtype") else np.float32
    real = np.dtype(dtype)
    if real.name not in arrays.REALS:
        raise DTypeError(f"{what} must be one of {', '.join(arrays.REALS)}, not {real}")
    data = arrays.contiguous(given)
    rules = Rules(axis, group, exact)
    call = Call("dequantize_affine", rules, data.shape, real, scale=scale, zero_point=zero_point)
    return replace(call, x=data, code=data.dtype.name, out=out)


def _backward(
    op: str,
    rules: Rules,
    dy: npt.ArrayLike,
    x: npt.ArrayLike | None,
    mask: npt.ArrayLike | None,
    points: tuple[npt.ArrayLike | None, npt.ArrayLike | None],
    limits: tuple[int | None, int | None],
) -> Call:
    grad = arrays.reals(dy, "dy")
    if (x is None) == (mask is None):
        raise QfwError(f"{op} takes x or mask, one of the two")
    scale, zero = points
    call = Call(op, rules, grad.shape, grad.dtype, dy=grad, scale=scale, zero_point=zero)
    if x is None:
        assert mask is not None
        return replace(call, mask=arrays.mask_bits(mask, grad.size))
    given = arrays.reals(x, "x")
    if given.shape != grad.shape:
        raise ShapeError(f"x must have dy's shape {grad.shape}, not {given.shape}")
    if given.dtype != grad.dtype:
        raise DTypeError(f"x must have dy's type {grad.dtype}, not {given.dtype}")
    low, high = arrays.int32(limits[0], "qmin"), arrays.int32(limits[1], "qmax")
    return replace(call, x=given, qmin=low, qmax=high)


def quantize_affine_backward(
    dy: npt.ArrayLike,
    x: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    zero_point: npt.ArrayLike | None = None,
    qmin: int | None = None,
    qmax: int | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    axis: Axis = None,
    group: int | None = None,
    rounding: str = "half_even",
    in_range: str = "inclusive",
    out: Array | None = None,
    exact: bool = False,
    seed: int = 0,
    step: int = 0,
    stream: int = 0,
) -> Call:
    """dx = dy / scale where the code was in range, else 0; from x, or from the forward's mask."""
    rules = Rules(axis, group, exact, rounding, in_range, seed, step, stream)
    op, points = "quantize_affine_backward", (scale, zero_point)
    return replace(_backward(op, rules, dy, x, mask, points, (qmin, qmax)), out=out)


def fake_quantize_affine_backward(
    dy: npt.ArrayLike,
    x: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    zero_point: npt.ArrayLike | None = None,
    qmin: int | None = None,
    qmax: int | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    axis: Axis = None,
    group: int | None = None,
    rounding: str = "half_even",
    in_range: str = "inclusive",
    out: Array | None = None,
    exact: bool = False,
    seed: int = 0,
    step: int = 0,
    stream: int = 0,
) -> Call:
    """dx = dy where the code was in range, else 0; from x, or from the forward's mask."""
    rules = Rules(axis, group, exact, rounding, in_range, seed, step, stream)
    op, points = "fake_quantize_affine_backward", (scale, zero_point)
    return replace(_backward(op, rules, dy, x, mask, points, (qmin, qmax)), out=out)


def dequantize_affine_backward(
    dy: npt.ArrayLike,
    scale: npt.ArrayLike,
    *,
    axis: Axis = None,
    group: int | None = None,
    out: Array | None = None,
    exact: bool = False,
) -> Call:
    """The gradient with respect to the codes: dy * scale."""
    grad = arrays.reals(dy, "dy")
    rules, op = Rules(axis, group, exact), "dequantize_affine_backward"
    return Call(op, rules, grad.shape, grad.dtype, dy=grad, scale=scale, out=out)
