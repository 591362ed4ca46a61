"""QTensor: codes with their scales, and the ways between formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arrays as arrays
from . import quant
from ._arrays import Array
from .errors import DTypeError, QfwError, ScaleError
from .formats import Float32, Format, Rounding, Sym, SymInt32
from .quant import Stored

Key = tuple[int, int, int]


class QTensor:
    """A tensor in a format: immutable codes, scales and zero points.

    `quantize` makes one from floats, `QTensor.from_codes` from integers by hand. Codes are
    ``.codes``, values are ``.numpy()``.
    """

    __slots__ = ("_saturated", "_stored")

    def __init__(self, stored: Stored, saturated: int = 0) -> None:
        for array in (stored.codes, stored.scale, stored.zero_point):
            if array is not None:
                array.flags.writeable = False
        self._stored = stored
        self._saturated = saturated

    @staticmethod
    def from_codes(
        codes: npt.ArrayLike,
        fmt: Format,
        scale: npt.ArrayLike | None = None,
        zero_point: npt.ArrayLike | None = None,
    ) -> QTensor:
        """A tensor of these very codes. Asym without a zero point has 0."""
        if isinstance(_format(fmt), Float32):
            return quantize(codes, fmt, scale=scale, zero_point=zero_point)
        given = arrays.integers(codes, "codes")
        if given.size and not fmt.qmin <= int(given.min()) <= int(given.max()) <= fmt.qmax:
            found = f"{int(given.min())}..{int(given.max())}"
            raise QfwError(f"codes of {fmt} must be {fmt.qmin}..{fmt.qmax}, not {found}")
        if scale is None:
            raise ScaleError(f"{fmt} needs a scale of the shape {fmt.scale_shape(given.shape)}")
        with quant.float_mode():
            points = _points(fmt, given.shape, scale, zero_point)
        return QTensor(Stored(fmt, given.shape, _store(given, fmt), *points))

    @property
    def format(self) -> Format:
        return self._stored.format

    @property
    def shape(self) -> tuple[int, ...]:
        return self._stored.shape

    @property
    def codes(self) -> Array:
        """The integers, unpacked, in the tensor's shape (Float32: the values)."""
        fmt, shape, data, _, _ = self._stored
        if fmt.container == "packed" and fmt.bits not in (8, 16):
            n = int(np.prod(shape, dtype=np.int64))
            plain = quant.unpack(data, fmt.bits, n, signed=not fmt.asymmetric)
        else:
            plain = data.view(fmt.code_dtype)
        codes: Array = plain.reshape(shape)
        codes.flags.writeable = False
        return codes

    @property
    def scale(self) -> Array | None:
        """float32, one a run: see `format.scale_shape(shape)`. None for Float32."""
        return self._stored.scale

    @property
    def zero_point(self) -> Array | None:
        """int32, one a run; None unless the format is asymmetric."""
        zero = self._stored.zero_point
        return None if zero is None else zero.astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes stored: codes, scales and zero points."""
        return self.format.nbytes(self.shape)

    @property
    def data(self) -> memoryview:
        """The stored bytes: codes, then scales (pow2: exponents), then zero points."""
        fmt, _, codes, scale, zero = self._stored
        parts = [codes.tobytes()]
        if scale is not None:
            exponents = (np.frexp(scale)[1] - 1).astype(np.int8)
            parts.append((exponents if fmt.pow2 else scale.astype("<f4")).tobytes())
        if zero is not None:
            parts.append(zero.astype("<u2").tobytes())
        return memoryview(b"".join(parts))

    @property
    def saturated(self) -> int:
        """How many codes the clamp changed when this tensor was made."""
        return self._saturated

    def numpy(self) -> Array:
        """The values: float32, each the exact product rounded once."""
        target = np.empty(self.shape, np.float32)
        stored = Stored(Float32(), self.shape, target.reshape(-1).view(np.uint8), None, None)
        with quant.float_mode():
            quant.convert(self._stored, stored, dynamic=False, rounding="half_away", key=(0, 0, 0))
        return target

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a QTensor's values are computed: copy=False cannot be had")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def to(
        self,
        fmt: Format,
        *,
        rounding: Rounding | None = None,
        seed: int = 0,
        step: int = 0,
        stream: int = 0,
    ) -> QTensor:
        """This tensor in another format; where only the container differs, the same codes."""
        if self.format == fmt:
            return self._as(fmt)
        scale, zero = None, None
        if _same_codes(self.format, fmt):
            scale, zero = self.scale, self.zero_point
        with quant.float_mode():
            return _encode(self._stored, fmt, scale, zero, rounding, (seed, step, stream))

    def _as(self, fmt: Format) -> QTensor:
        """The same bytes under an equal format, as it is spelt there."""
        if repr(fmt) == repr(self.format):
            return self
        return QTensor(self._stored._replace(format=fmt), self._saturated)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"QTensor({shape}, {self.format}, {self.nbytes} bytes)"


def quantize(
    x: npt.ArrayLike | QTensor,
    fmt: Format,
    *,
    scale: npt.ArrayLike | None = None,
    zero_point: npt.ArrayLike | None = None,
    rounding: Rounding | None = None,
    seed: int = 0,
    step: int = 0,
    stream: int = 0,
) -> QTensor:
    """x (taken as float32) in a format: the exact quotient x / scale, rounded.

    Without `scale` the format's range says how it is found; with it, what does not fit saturates
    and is counted. `rounding` is the format's unless given; (seed, step, stream) key the draws of
    stochastic rounding.
    """
    with quant.float_mode():
        source = x._stored if isinstance(x, QTensor) else _floats(x)
        return _encode(source, fmt, scale, zero_point, rounding, (seed, step, stream))


def requant(
    t: QTensor,
    bits: int,
    *,
    scale: npt.ArrayLike | None = None,
    container: int | None = None,
    rounding: Rounding = "half_away",
    seed: int = 0,
    step: int = 0,
    stream: int = 0,
) -> QTensor:
    """An accumulator's integers at a width of at most 16 bits, by one integer multiplication each.

    Without `scale` the smallest that holds the absmax is found (dynamic); with it the scale is
    fixed, and what does not fit saturates and is counted. container None: 8 up to 8 bits, else 16;
    32 keeps int32 slots (`SymInt32`). Scales keep their granularity.
    """
    if not isinstance(t, QTensor) or isinstance(t.format, Float32):
        found = t.format if isinstance(t, QTensor) else type(t).__name__
        raise DTypeError(f"requant takes a QTensor of integers, not {found}; see quantize")
    width = arrays.integer(bits, "bits", 2, 16)
    axis, group = t.format.axis, t.format.group
    if container is None:
        container = 8 if width <= 8 else 16
    target: Format
    if container == 32 and axis is None and group is None:
        target = SymInt32(width)
    else:
        target = Sym(width, container=container, axis=axis, group=group, rounding=rounding)
    with quant.float_mode():
        return _encode(t._stored, target, scale, None, rounding, (seed, step, stream))


def _format(fmt: object) -> Format:
    if not isinstance(fmt, Format):
        raise DTypeError(f"fmt must be a format such as Sym(8), not {fmt!r}")
    return fmt


def _widened(
    src: Stored, fmt: Format, scale: npt.ArrayLike | None, zero_point: npt.ArrayLike | None
) -> QTensor:
    """Integers with one scale as an accumulator: as they are. Nothing is quantized to 32 bits."""
    if isinstance(src.format, Float32) or src.format.axis is not None or src.format.group:
        raise QfwError(
            f"SymInt32(32) is an accumulator of integers with one scale, not of {src.format}; to "
            "quantize, choose SymInt32(2..16) or Sym"
        )
    if scale is not None or zero_point is not None:
        raise ScaleError("an accumulator keeps its source's scale: give none")
    t = QTensor(src)
    zero = 0 if t.zero_point is None else t.zero_point
    return QTensor.from_codes(t.codes.astype(np.int32) - zero, fmt, scale=t.scale)


def _floats(x: npt.ArrayLike) -> Stored:
    """Any real array as a stored Float32 tensor."""
    array = np.asarray(x)
    if array.dtype.kind not in "iuf" and array.dtype.name not in arrays.REALS:
        raise DTypeError(f"x must be real numbers, not {array.dtype}")
    with np.errstate(over="ignore"):
        given = np.require(array, np.float32, ["C", "A"])
    if array.dtype != np.float32:  # named as it was given: float64 has numbers beyond float32
        quant.check_finite(given, "x", array)
    return Stored(Float32(), given.shape, given.reshape(-1).view(np.uint8), None, None)


def _same_codes(a: Format, b: Format) -> bool:
    """Whether a and b differ in nothing that codes depend on: at most in container and rounding."""

    def key(f: Format) -> tuple[object, ...]:
        kind = Sym if isinstance(f, SymInt32) else type(f)
        return (kind, f.bits, f.axis, f.group, f.scale)

    return key(a) == key(b) and a.range == b.range


def _points(
    fmt: Format, shape: tuple[int, ...], scale: npt.ArrayLike, zero_point: npt.ArrayLike | None
) -> tuple[Array, Array | None]:
    """Scales and zero points given by hand, checked, as they are stored."""
    scale_shape = fmt.scale_shape(shape)
    s = arrays.scales(scale, scale_shape, np.dtype(np.float32)).copy()
    arrays.check_scales(s)
    odd = s[np.frexp(s)[0] != 0.5]
    if fmt.pow2 and odd.size:
        raise ScaleError(f"scales of {fmt} must be powers of two, not {odd[0]}")
    if not fmt.asymmetric:
        if zero_point is not None:
            raise ScaleError(f"{fmt} has no zero_point; Asym formats do")
        return s, None
    z = arrays.zero_points(0 if zero_point is None else zero_point, scale_shape)
    assert z is not None
    if z.size and not 0 <= int(z.min()) <= int(z.max()) <= fmt.qmax:
        found = f"{int(z.min())}..{int(z.max())}"
        raise ScaleError(f"zero_point of {fmt} must be 0..{fmt.qmax}, not {found}")
    return s, z.astype(np.uint16)


def _store(codes: Array, fmt: Format) -> Array:
    """Codes as the bytes of a format's container."""
    if fmt.container == "packed" and fmt.bits not in (8, 16):
        return quant.pack(codes, fmt.bits)
    return codes.astype(fmt.code_dtype, order="C").reshape(-1).view(np.uint8)


def _encode(
    src: Stored,
    fmt: Format,
    scale: npt.ArrayLike | None,
    zero_point: npt.ArrayLike | None,
    rounding: Rounding | None,
    key: Key,
) -> QTensor:
    """The one way from any format to any other."""
    if isinstance(_format(fmt), SymInt32) and fmt.bits == 32:
        return _widened(src, fmt, scale, zero_point)
    s: Array | None = None
    z: Array | None = None
    dynamic = False
    if isinstance(fmt, Float32):
        if scale is not None or zero_point is not None:
            raise QfwError("Float32() has neither scale nor zero_point")
    elif scale is not None:
        s, z = _points(fmt, src.shape, scale, zero_point)
    elif zero_point is not None:
        raise ScaleError("zero_point is given without scale: give both or none")
    else:
        dynamic = isinstance(fmt.range, str)
        shape = fmt.scale_shape(src.shape)
        s = np.empty(shape, np.float32)
        if not dynamic:
            s[...] = _fixed_scale(fmt)
        z = np.zeros(shape, np.uint16) if fmt.asymmetric else None
    codes = np.empty(fmt.codes_nbytes(src.shape), np.uint8)
    stored = Stored(fmt, src.shape, codes, s, z)
    mode = fmt.rounding if rounding is None else rounding
    saturated = quant.convert(src, stored, dynamic=dynamic, rounding=mode, key=key)
    if isinstance(fmt, Float32):  # a value beyond float32 is not kept
        quant.check_finite(
            codes.view(np.float32).reshape(src.shape), f"{src.format} to {fmt}: value"
        )
    return QTensor(stored, saturated)


def _fixed_scale(fmt: Format) -> np.float32:
    """The smallest scale whose largest code reaches the format's fixed range."""
    top = _floats(np.array(fmt.range, np.float32))
    probe = type(fmt)(fmt.bits, scale=fmt.scale)  # type: ignore[call-arg]  # Sym or Asym
    scale = _encode(top, probe, None, None, None, (0, 0, 0)).scale
    assert scale is not None
    return np.float32(scale)
