"""Checks of what comes in: arrays made contiguous, parameters fitted, errors with names."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import DTypeError, QfwError, ScaleError, ShapeError

Array: TypeAlias = npt.NDArray[Any]

REALS = ("float32", "float64", "float16", "bfloat16")
CODES = ("int8", "uint8", "int16", "uint16", "int32")
_INT32 = np.iinfo(np.int32)
_MOST = float(np.finfo(np.float64).max)
_FLT_MIN = float(np.finfo(np.float32).tiny)
_FLT_MAX = float(np.finfo(np.float32).max)


def contiguous(x: Array) -> Array:
    """x itself, or one copy: C order, aligned, native bytes."""
    return np.require(x, dtype=x.dtype.newbyteorder("="), requirements=["C", "A"])


def reals(x: npt.ArrayLike, name: str) -> Array:
    """A contiguous array of one of the real types."""
    array = np.asarray(x)
    if array.dtype.name not in REALS:
        raise DTypeError(f"{name} must be one of {', '.join(REALS)}, not {array.dtype}")
    return contiguous(array)


def integers(codes: npt.ArrayLike, name: str) -> Array:
    """An array of integers; an empty one may come as [], which numpy takes for floats."""
    array = np.asarray(codes)
    if array.size == 0 and not isinstance(codes, np.ndarray):
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{name} must be integers, not {array.dtype}")
    return array


def as_int32(array: Array, name: str, error: type[QfwError] = QfwError) -> Array:
    """Integers as int32, which must hold them."""
    if array.dtype == np.int32:
        return array
    if array.size and (int(array.min()) < _INT32.min or int(array.max()) > _INT32.max):
        raise error(f"{name} must fit int32, not {int(array.min())}..{int(array.max())}")
    return array.astype(np.int32)


def codes_of_bits(codes: npt.ArrayLike, bits: int) -> Array:
    """Contiguous int8 (int16 above 8 bits) codes; each must fit `bits` bits, signed or not."""
    given = integers(codes, "codes")
    if given.size and not -(1 << bits - 1) <= int(given.min()) <= int(given.max()) < 1 << bits:
        raise QfwError(f"codes {int(given.min())}..{int(given.max())} do not fit {bits} bits")
    holder = np.dtype(np.int8 if bits <= 8 else np.int16)
    if given.dtype.itemsize == holder.itemsize:
        return contiguous(given)
    return given.astype(holder, order="C")


def compute_dtype(real: np.dtype[Any]) -> np.dtype[Any]:
    """The precision that this type is computed in."""
    return np.dtype(np.float64 if real == np.float64 else np.float32)


def integer(value: object, name: str, low: int, high: int) -> int:
    """A Python or numpy integer between low and high."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise QfwError(f"{name} must be an integer {low}..{high}, not {value!r}")
    if not low <= value <= high:
        raise QfwError(f"{name} must be {low}..{high}, not {value}")
    return int(value)


def normal_float32(value: object, name: str) -> float:
    """A number that is 0 or, as a float32, positive and normal."""
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            number = float(value) + 0.0  # no negative zero
        except OverflowError:
            number = float("inf")
        if number == 0.0 or _FLT_MIN <= number <= _FLT_MAX:
            return number
    raise QfwError(f"{name} must be 0 or a positive normal float32, not {value!r}")


def number(value: object, name: str, low: float, high: float) -> float:
    """A real number from low to high, as a float; no negative zero."""
    if not isinstance(value, (bool, np.bool_)) and isinstance(value, Real):
        try:
            found = float(value) + 0.0
        except OverflowError:
            found = float("inf")
        if low <= found <= high:
            return found
    ends = f"number between {low} and {high}" if high < _MOST else f"finite number >= {low:g}"
    raise QfwError(f"{name} must be a {ends}, not {value!r}")


def int32(value: object, name: str) -> int:
    return integer(value, name, int(_INT32.min), int(_INT32.max))


def word(value: object, name: str) -> int:
    """A 32-bit word of the generator's key."""
    return integer(value, name, 0, 2**32 - 1)


def choice(value: object, name: str, legal: tuple[str, ...]) -> int:
    """The number of a name in a list."""
    if not isinstance(value, str) or value not in legal:
        raise QfwError(f"{name} must be one of {', '.join(map(repr, legal))}, not {value!r}")
    return legal.index(value)


def _fit(array: Array, name: str, shape: tuple[int, ...]) -> Array:
    """One value for all (or a one-element array where one is meant), or exactly the shape."""
    if array.shape == shape:
        return contiguous(array)
    if array.ndim == 0 or (array.size == 1 and shape == ()):
        return np.full(shape, array.reshape(()), array.dtype)
    raise ShapeError(f"{name} must have the shape {shape}, not {array.shape}")


def scales(value: npt.ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Scales of a shape in the precision of the computation; see check_scales."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" and array.dtype.name not in REALS:
        raise DTypeError(f"scale must be one of {', '.join(REALS)}, not {array.dtype}")
    with np.errstate(over="ignore", under="ignore"):
        return _fit(array, "scale", shape).astype(dtype, copy=False)


def check_scales(cast: Array) -> None:
    """Each scale must be a positive normal number; C checks the same and says less."""
    tiny = np.finfo(cast.dtype).tiny
    good = np.isfinite(cast) & (cast >= tiny)
    if not np.all(good):
        bad = cast[~good].flat[0]
        raise ScaleError(f"scale must be finite and at least {tiny:.9g} (normal), not {bad}")


def zero_points(value: npt.ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    """Zero points of a shape as int32; None stands for zeros."""
    if value is None:
        return None
    array = as_int32(integers(value, "zero_point"), "zero_point", ScaleError)
    return _fit(array, "zero_point", shape)


def output(
    out: object, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: dict[str, Array | None]
) -> Array:
    """A new array, or `out` if it is fit to be written."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise DTypeError(f"out must be a numpy array, not {type(out).__name__}")
    if out.dtype != dtype or not out.dtype.isnative:
        raise DTypeError(f"out must be {dtype}, not {out.dtype}")
    if out.shape != shape:
        raise ShapeError(f"out must have the shape {shape}, not {out.shape}")
    if not (out.flags.c_contiguous and out.flags.aligned):
        raise QfwError("out must be C-contiguous and aligned")
    if not out.flags.writeable:
        raise QfwError("out is read-only")
    for name, array in inputs.items():
        in_place = name in ("x", "dy") and array is not None and _coincide(out, array)
        if array is not None and np.may_share_memory(out, array) and not in_place:
            raise QfwError(f"out overlaps {name}")
    return out


def _coincide(out: Array, array: Array) -> bool:
    """Element for element the same memory: each is read before it is written."""
    return (out.ctypes.data, out.shape, out.dtype) == (array.ctypes.data, array.shape, array.dtype)


def mask_bits(mask: npt.ArrayLike, n: int) -> Array:
    """A packed mask of n bits."""
    array = np.asarray(mask)
    if array.dtype != np.uint8:
        raise DTypeError(f"mask must be uint8 (packed bits), not {array.dtype}")
    if array.shape != ((n + 7) // 8,):
        raise ShapeError(
            f"mask of {n} bits must have the shape {((n + 7) // 8,)}, not {array.shape}"
        )
    return contiguous(array)
