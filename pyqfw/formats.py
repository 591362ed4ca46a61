"""Formats: what a code means, how its bits are stored, which elements share a scale.

A format is a frozen value: hashable, comparable, and printed as the code that makes it. Two
formats are equal when they store the same bytes by the same rules, so ``Sym(8)`` equals
``Sym(8, container=8)``. `docs/numerics.md` sections 2 and 3 define what the fields mean.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from math import prod
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

from .errors import QfwError, ShapeError

Container: TypeAlias = Literal["packed"] | int
Axis: TypeAlias = int | Literal["row"] | None
Range: TypeAlias = Literal["dynamic", "hindsight"] | float
Scale: TypeAlias = Literal["float", "pow2"]
Rounding: TypeAlias = Literal["half_away", "half_even", "stochastic"]
Shape: TypeAlias = int | Sequence[int]

SCALES = ("float", "pow2")
ROUNDINGS = ("half_away", "half_even", "stochastic")

_FLT_MIN = 2.0**-126
_AXIS_LEGAL = "None, an integer or 'row'"
_GROUP_LEGAL = "None or an integer >= 1"


@dataclass(frozen=True)
class Layout:
    """A tensor seen as [outer][axis][inner] in storage order.

    Along `axis`, runs of `group` indices share a scale and the last run may be short; either all
    of `outer` share one set of scales or each has its own. Where an empty tensor has scales all the
    same (per tensor, per row), its one run is axis = 1 with inner = 0.
    """

    outer: int
    axis: int
    inner: int
    group: int
    shared: bool

    @property
    def n_elements(self) -> int:
        return self.outer * self.axis * self.inner

    @property
    def n_scales(self) -> int:
        return (1 if self.shared else self.outer) * _ceil_div(self.axis, self.group)


def layout_of(
    shape: Shape,
    axis: Axis,
    group: int | None,
    *,
    last_axis_groups: bool,
    name: str = "layout",
) -> tuple[Layout, tuple[int, ...]]:
    """The layout of a tensor and the shape of its scales.

    Groups run along the last axis if `last_axis_groups` (the affine family), else along all axes
    after the first (formats), so that they never cross from one filter of a convolution to the
    next.
    """
    dims = _dims(shape)
    axis, group = _check_granularity(name, axis, group)
    if group is not None:
        if last_axis_groups:
            lead, length = dims[:-1], prod(dims[-1:])
        elif len(dims) >= 2:
            lead, length = dims[:1], prod(dims[1:])
        else:
            lead, length = (), prod(dims)
        return Layout(prod(lead), length, 1, group, False), (*lead, _ceil_div(length, group))
    if axis is None:
        return _one_run(1, prod(dims)), ()
    if not dims:
        raise ShapeError(f"axis={axis!r} on the shape (): legal for a scalar is None")
    if axis == "row":
        return _one_run(prod(dims[:-1]), dims[-1]), dims[:-1]
    rank = len(dims)
    if not -rank <= axis < rank:
        raise ShapeError(
            f"axis={axis} on the shape {dims}: legal are None, 'row' and {-rank} to {rank - 1}"
        )
    k = axis % rank
    return Layout(prod(dims[:k]), dims[k], prod(dims[k + 1 :]), 1, True), (dims[k],)


class Format:
    """What every format has. Fields that a format does not take are fixed in its class."""

    bits: int
    """Significant bits of a code."""

    @property
    def container(self) -> Container:
        """Bits that an element takes: 8, 16, 32, or exactly `bits` if "packed"."""
        return 32

    @property
    def axis(self) -> Axis:
        return None

    @property
    def group(self) -> int | None:
        return None

    @property
    def scale(self) -> Scale:
        return "float"

    @property
    def range(self) -> Range:
        return "dynamic"

    @property
    def rounding(self) -> Rounding:
        return "half_away"

    @property
    def qmin(self) -> int:
        """The smallest legal code."""
        raise AttributeError(f"{self!r} has no codes, so no qmin")

    @property
    def qmax(self) -> int:
        """The largest legal code."""
        raise AttributeError(f"{self!r} has no codes, so no qmax")

    @property
    def asymmetric(self) -> bool:
        """Whether there is a zero point."""
        return False

    @property
    def pow2(self) -> bool:
        return self.scale == "pow2"

    @property
    def element_bits(self) -> int:
        """Stored bits an element."""
        return self.bits if self.container == "packed" else self.container

    @property
    def code_dtype(self) -> str:
        """The numpy name of the type that holds unpacked codes."""
        width = next(w for w in (8, 16, 32) if w >= self.element_bits)
        return f"{'uint' if self.asymmetric else 'int'}{width}"

    @property
    def scale_nbytes(self) -> int:
        """Bytes of a scale and its zero point."""
        return (1 if self.pow2 else 4) + (2 if self.asymmetric else 0)

    def layout(self, shape: Shape) -> Layout:
        """Which elements share a scale."""
        return layout_of(shape, self.axis, self.group, last_axis_groups=False)[0]

    def scale_shape(self, shape: Shape) -> tuple[int, ...]:
        """The shape of the scales (and zero points) of a tensor of this shape."""
        return layout_of(shape, self.axis, self.group, last_axis_groups=False)[1]

    def codes_nbytes(self, shape: Shape) -> int:
        """Bytes of the codes alone."""
        return _ceil_div(prod(_dims(shape)) * self.element_bits, 8)

    def nbytes(self, shape: Shape) -> int:
        """Bytes of a tensor of this shape: its codes, scales and zero points."""
        return self.codes_nbytes(shape) + self.layout(shape).n_scales * self.scale_nbytes

    def _key(self) -> tuple[object, ...]:
        fixed = self.range if isinstance(self.range, str) else _float32(self.range)
        rules = (self.axis, self.group, self.scale, fixed, self.rounding)
        return (type(self), self.bits, self.element_bits, *rules)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Format) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        args = []
        for f in fields(self):  # type: ignore[arg-type]  # every concrete format is a dataclass
            value = getattr(self, f.name)
            if f.name == "bits":
                args.append(repr(value))
            elif value != f.default:
                args.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(args)})"


@dataclass(frozen=True, eq=False, repr=False)
class Float32(Format):
    """The value itself: 32 bits, no scale."""

    bits = 32

    @property
    def code_dtype(self) -> str:
        return "float32"

    @property
    def scale_nbytes(self) -> int:
        return 0


@dataclass(frozen=True, eq=False, repr=False)
class SymInt32(Format):
    """m * s in int32 slots: accumulators (32 bits) and raw wires. Compute only, never storage.

    One scale, or where a product's columns have scales of their own, ``axis=-1``.
    """

    bits: int = 12
    _: KW_ONLY
    axis: Axis = None

    def __post_init__(self) -> None:
        axis, _ = _check_granularity("SymInt32", self.axis, None)
        object.__setattr__(self, "axis", axis)
        legal = "an integer 2..16, or 32"
        bits = _integer("SymInt32", "bits", self.bits, legal)
        if not (2 <= bits <= 16 or bits == 32):
            raise _illegal("SymInt32", "bits", self.bits, legal)
        object.__setattr__(self, "bits", bits)

    @property
    def qmin(self) -> int:
        return -(2**31) if self.bits == 32 else -self.qmax

    @property
    def qmax(self) -> int:
        return int(2 ** (self.bits - 1)) - 1


@dataclass(frozen=True, eq=False, repr=False)
class _Stored(Format):
    """The fields of Sym and Asym."""

    bits: int
    _: KW_ONLY
    container: Container = "packed"
    axis: Axis = None
    group: int | None = None
    scale: Scale = "float"
    range: Range = "dynamic"
    rounding: Rounding = "half_away"

    def __post_init__(self) -> None:
        name = type(self).__name__
        low = 1 if self.asymmetric else 2
        legal = f"an integer {low}..16"
        bits = _integer(name, "bits", self.bits, legal)
        if not low <= bits <= 16:
            raise _illegal(name, "bits", self.bits, legal)
        axis, group = _check_granularity(name, self.axis, self.group)
        values = {
            "bits": bits,
            "container": _check_container(name, self.container, bits),
            "axis": axis,
            "group": group,
            "scale": _choice(name, "scale", self.scale, SCALES),
            "range": _check_range(name, self.range),
            "rounding": _choice(name, "rounding", self.rounding, ROUNDINGS),
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)


@dataclass(frozen=True, eq=False, repr=False)
class Sym(_Stored):
    """m * s with -Q <= m <= Q, Q = 2^(bits-1) - 1."""

    @property
    def qmin(self) -> int:
        return -self.qmax

    @property
    def qmax(self) -> int:
        return int(2 ** (self.bits - 1)) - 1


@dataclass(frozen=True, eq=False, repr=False)
class Asym(_Stored):
    """(c - z) * s with 0 <= c, z <= 2^bits - 1: zero is exact."""

    @property
    def asymmetric(self) -> bool:
        return True

    @property
    def qmin(self) -> int:
        return 0

    @property
    def qmax(self) -> int:
        return int(2**self.bits) - 1


def BFP(bits: int, group: int, **options: Any) -> Sym:  # noqa: N802  # a format's name
    """Block floating point: ``Sym(bits, group=group, scale="pow2", **options)``."""
    size = _integer("BFP", "group", group, "an integer >= 1")
    return Sym(bits, group=size, scale="pow2", **options)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _one_run(outer: int, length: int) -> Layout:
    """One scale for each outer, also where there is nothing to scale."""
    return Layout(outer, length, 1, length, False) if length else Layout(outer, 1, 0, 1, False)


def _dims(shape: object) -> tuple[int, ...]:
    """The shape as a tuple of integers >= 0."""
    sizes = [shape] if _as_int(shape) is not None else shape
    if isinstance(sizes, Sequence) and not isinstance(sizes, str):
        dims = tuple(n for n in map(_as_int, sizes) if n is not None and n >= 0)
        if len(dims) == len(sizes):
            return dims
    raise ShapeError(f"shape must be a tuple of integers >= 0, not {shape!r}")


def _float32(value: float) -> float:
    """The nearest float32; OverflowError where that is infinite."""
    rounded: float = struct.unpack("<f", struct.pack("<f", float(value)))[0]
    return rounded


def _as_int(value: object) -> int | None:
    """An integer, numpy's included, as an int; None for anything else, True and 1.0 too."""
    return None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def _illegal(name: str, field: str, value: object, legal: str) -> QfwError:
    return QfwError(f"{name}: {field} must be {legal}, not {value!r}")


def _integer(name: str, field: str, value: object, legal: str) -> int:
    number = _as_int(value)
    if number is None:
        raise _illegal(name, field, value, legal)
    return number


def _choice(name: str, field: str, value: object, legal: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in legal:
        raise _illegal(name, field, value, f"one of {', '.join(map(repr, legal))}")
    return str(value)


def _check_container(name: str, value: object, bits: int) -> str | int:
    widths = [w for w in (8, 16, 32) if w >= bits]
    legal = f"one of {', '.join(map(repr, ['packed', *widths]))} for {bits} bits"
    if isinstance(value, str) and value == "packed":
        return "packed"
    width = _integer(name, "container", value, legal)
    if width not in widths:
        raise _illegal(name, "container", value, legal)
    return width


def _check_granularity(name: str, axis: object, group: object) -> tuple[Axis, int | None]:
    k: Axis = None
    if isinstance(axis, str) and axis == "row":
        k = "row"
    elif axis is not None:
        k = _integer(name, "axis", axis, _AXIS_LEGAL)
    if group is None:
        return k, None
    n = _integer(name, "group", group, _GROUP_LEGAL)
    if n < 1:
        raise _illegal(name, "group", group, _GROUP_LEGAL)
    if k is not None:
        raise QfwError(
            f"{name}: axis={k!r} and group={n} exclude each other: legal are "
            f"axis ({_AXIS_LEGAL}) with group=None, or group (an integer >= 1) with axis=None"
        )
    return None, n


def _check_range(name: str, value: object) -> str | int | float:
    legal = "'dynamic', 'hindsight' or a positive number that float32 holds as a normal one"
    if isinstance(value, str) and value in ("dynamic", "hindsight"):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _illegal(name, "range", value, legal)
    try:
        number = int(value) if isinstance(value, Integral) else float(value)
        normal = _float32(number) >= _FLT_MIN
    except OverflowError:
        normal = False
    if not normal or number == float("inf"):
        raise _illegal(name, "range", value, legal)
    return number
