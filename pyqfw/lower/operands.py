"""Operands: stored tensors as the kernels want them (docs/numerics.md sections 13 and 14)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from ..errors import QfwError
from ..formats import Asym, Float32, Format, Sym
from .headroom import extra_bits, largest
from .ir import ACCUMULATOR, Op, Role, Spread, Tensor, stream_of

OPERAND = Sym(12, container=16)  # of a Float32 tensor in integer arithmetic
LOGITS = Sym(16)

NONE, BY_COLUMN, BY_ROW = range(3)
MOST_EXTRA = 7  # F of docs/numerics.md section 14
MOST_JOINED = 7  # places of an operation but the first


def is_hindsight(fmt: Format | None) -> bool:
    return fmt is not None and fmt.range == "hindsight"


def as_dynamic(fmt: Format) -> Format:
    """The format without a range from earlier steps."""
    if isinstance(fmt, (Sym, Asym)) and is_hindsight(fmt):
        return replace(fmt, range="dynamic")
    return fmt


def signed_bits(fmt: Format) -> int:
    """Bits of a signed number that holds every code, zero point removed."""
    return fmt.bits + (1 if fmt.asymmetric else 0)


def slot(bits: int) -> int:
    return 8 if bits <= 8 else 16


def is_plain(t: Tensor) -> bool:
    """Sym codes in 8- or 16-bit slots."""
    return isinstance(t.fmt, Sym) and t.fmt.element_bits in (8, 16)


def convert(src: Tensor, dst: Tensor, layer: str) -> Op:
    """dst's format for src's values."""
    scratch = None
    if src.spread == "columns" and isinstance(dst.fmt, Sym):
        columns = src.size // src.positions
        scratch = Tensor(f"{dst.name} ratios", (16 * columns,), "scratch")
    op = Op("convert", layer, (dst, src, scratch), writes=(0, 2))
    plain = src.fmt is ACCUMULATOR and is_plain(dst) and per_tensor(dst.fmt)
    op.over = 1 if plain else None
    return op


class Operands:
    """Makes operands and remembers them; `emit` appends an operation to where it is needed."""

    def __init__(self, emit: Callable[[Op], None]) -> None:
        self.emit = emit
        self._made: dict[tuple[object, ...], Tensor] = {}

    def _remember(self, key: tuple[object, ...], make: Callable[[], Tensor]) -> Tensor:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _temporary(self, t: Tensor, fmt: Format, what: str) -> Tensor:
        made = Tensor(f"{t.name} {what}", t.shape, "scratch", fmt, t.rows, stream=t.stream)
        made.channels, made.lead = t.channels, t.lead
        return made

    def floats(self, t: Tensor, layer: str) -> Tensor:
        """The tensor in Float32."""
        if isinstance(t.fmt, Float32):
            return t

        def make() -> Tensor:
            dst = self._temporary(t, Float32(), "as float32")
            self.emit(convert(t, dst, layer))
            return dst

        return self._remember((t, "floats"), make)

    def codes(self, t: Tensor, layer: str) -> Tensor:
        """The tensor as Sym codes in 8- or 16-bit slots, its granularity kept."""
        if is_plain(t):
            return t

        def make() -> Tensor:
            assert t.fmt is not None
            if isinstance(t.fmt, Float32):
                dst = self._temporary(t, OPERAND, "as int12")
                self.emit(convert(t, dst, layer))
                return dst
            bits = min(signed_bits(t.fmt), 16)
            fmt = Sym(bits, container=slot(bits), axis=t.fmt.axis, group=t.fmt.group)
            if isinstance(t.fmt, Asym):
                dst = self._temporary(t, fmt, f"as int{bits}")
                self.emit(Op("widen", layer, (dst, t, None), {0: NONE}))
                return dst
            same = replace(fmt, scale=t.fmt.scale, range=t.fmt.range)
            dst = self._temporary(t, same, "unpacked")
            self.emit(convert(t, dst, layer))
            return dst

        return self._remember((t, "codes"), make)

    def source(self, t: Tensor, layer: str) -> Tensor:
        """What `widened` reads: codes, or Asym(16), whose zero point goes with its one rounding."""
        assert t.fmt is not None
        return t if signed_bits(t.fmt) == 17 else self.codes(t, layer)

    def widened(
        self,
        t: Tensor,
        layer: str,
        *,
        extra: int,
        by: Tensor | None = None,
        mode: int = NONE,
        keep_rows: bool = False,
        columns: int = 0,
    ) -> Tensor:
        """The codes with the scales of `by` folded in, and one scale (or one a row)."""

        def make() -> Tensor:
            assert t.fmt is not None
            bits = min(signed_bits(t.fmt) + extra, 16)
            box = slot(bits) if extra == 0 else 16
            fmt = Sym(bits, container=box, axis="row" if keep_rows else None)
            dst = self._temporary(t, fmt, f"widened to int{bits}")
            scratch = None
            if mode == BY_COLUMN:
                scratch = Tensor(f"{dst.name} ratios", (16 * columns,), "scratch")
            places = (dst, t, by, scratch)
            self.emit(Op("widen", layer, places, {0: mode, 1: columns}, writes=(0, 3)))
            return dst

        return self._remember((t, "widened", extra, by, mode, keep_rows), make)

    def single(self, t: Tensor, layer: str) -> Tensor:
        """The tensor as codes with one scale: what has several is widened."""
        if per_tensor(t.fmt):
            return self.codes(t, layer)
        source = self.source(t, layer)
        assert source.fmt is not None
        extra = max(0, min(MOST_EXTRA, 16 - signed_bits(source.fmt)))
        return self.widened(source, layer, extra=extra)

    def transposed(self, t: Tensor, channels: int, layer: str) -> Tensor:
        """The tensor with so many channels last in memory; 0: in C order."""

        def make() -> Tensor:
            floats = isinstance(t.fmt, Float32)
            src = t if floats else self.single(t, layer)
            assert src.fmt is not None
            inner = t.channels or t.size // channels  # the axis that is last now
            dst = self._temporary(src, src.fmt, "transposed")
            dst.channels = channels
            params: dict[int, int | float] = {0: t.size // inner, 1: inner}
            self.emit(Op("transpose", layer, (dst, src), params))
            return dst

        if t.channels and channels:
            return self.transposed(self.transposed(t, 0, layer), channels, layer)
        return self._remember((t, "transposed", channels), make)


def join(
    make: Operands,
    arithmetic: str,
    layer: str,
    name: str,
    shape: tuple[int, ...],
    operands: list[Tensor],
    positions: int = 0,
) -> Op:
    """The sum of operands or, with positions, what they are side by side at each of so many."""
    if len(operands) > MOST_JOINED:
        raise QfwError(
            f"layer '{layer}': {len(operands)} values meet; at most {MOST_JOINED} do at a time: "
            f"join some of them first"
        )
    floats = arithmetic == "float32"
    places = [make.floats(t, layer) if floats else make.single(t, layer) for t in operands]
    sums = Tensor(name, shape, "scratch", Float32() if floats else ACCUMULATOR, rows=True)
    sums.spread = "format" if floats else "tensor"
    sums.channels = operands[0].channels
    kernel = "join_f32" if floats else "join_s32"
    return Op(kernel, layer, (sums, *places), {0: positions})


def per_tensor(fmt: Format | None) -> bool:
    return fmt is not None and fmt.axis is None and fmt.group is None


def by_matrix_row(t: Tensor, inner: int) -> bool:
    """One scale for each row of `inner` elements, or fewer scales than that: none along a row."""
    fmt = t.fmt
    if fmt is None or per_tensor(fmt):
        return True
    if fmt.group is not None:
        return t.rows and fmt.group >= t.size == inner
    return fmt.axis == "row" and bool(t.shape) and t.storage_shape[-1] == inner


def weight_scales(t: Tensor) -> str:
    """Of a weight [out, in, ...]: "tensor", "out" (a scale a row), "in" (one for each input) or
    "mixed"."""
    fmt = t.fmt
    assert fmt is not None
    if per_tensor(fmt):
        return "tensor"
    rank = len(t.shape)
    if fmt.group is not None:
        return "out" if fmt.group >= t.size // t.shape[0] else "mixed"
    if fmt.axis in (0, -rank) or (fmt.axis == "row" and rank == 2):
        return "out"
    return "in" if fmt.axis in (1, 1 - rank) else "mixed"


def accumulator(
    name: str, shape: tuple[int, ...], by_row: bool, by_column: bool, positions: int
) -> Tensor:
    """int32 sums with the scales of their product."""
    spreads: dict[tuple[bool, bool], Spread] = {
        (True, True): "grid",
        (True, False): "rows",
        (False, True): "columns",
        (False, False): "tensor",
    }
    t = Tensor(name, shape, "scratch", ACCUMULATOR, rows=True, positions=positions)
    t.spread = spreads[by_row, by_column]
    return t


def store(src: Tensor, shape: tuple[int, ...], fmt: Format, path: str, role: Role) -> Tensor:
    """A tensor for src's values in a format and a shape: a wire or an error."""
    assert prod(shape) == src.size
    t = Tensor(f"{path}:{role}", shape, role, fmt, rows=True, stream=stream_of(path, role))
    t.channels = src.channels
    return t


def folded_extra(terms: int, t: Tensor, other: Tensor | None, bias: bool = False) -> int:
    """F for widening t against `other`, itself widened or not (None: a plain sum)."""
    assert t.fmt is not None
    b = 1 if other is None or other.fmt is None else largest(min(signed_bits(other.fmt), 16))
    return extra_bits(terms, signed_bits(t.fmt), b, bias=bias)
