"""What a plan is made of: tensors and operations over them, in the order they run."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..formats import Float32, Format, Layout, SymInt32
from .windows import Window

Role = Literal["parameter", "gradient", "state", "wire", "error", "scratch"]
Space = Literal["arena", "const", "io"]
Spread = Literal["format", "tensor", "columns", "rows", "grid"]

ROLES: tuple[Role, ...] = ("parameter", "gradient", "state", "wire", "error", "scratch")
SPACES: tuple[Space, ...] = ("arena", "const", "io")
SECTIONS = ("forward", "output", "backward", "update", "infer")
LASTING = ROLES[:3]
ALIGN = 16
ACCUMULATOR = SymInt32(32)


class Numbers(NamedTuple):
    """Elements that are no values of a format: their kind in a plan, their bits, and those of their
    slots (0: packed)."""

    kind: Literal["index", "bytes", "pick"]
    bits: int
    container: int


LABELS, BYTES = Numbers("index", 32, 32), Numbers("bytes", 8, 8)


def picks(count: int) -> Numbers:
    """Which of so many it was."""
    return Numbers("pick", max(1, (count - 1).bit_length()), 0)


def stream_of(path: str, role: str) -> int:
    """The tensor number of the generator."""
    return zlib.crc32(f"{path}:{role}".encode())


def ordered(channels: int, size: int) -> int:
    """Channels of a row of so many elements as `Tensor.channels` tells them: 0 if it is C order."""
    return channels if 1 < channels < size else 0


@dataclass(eq=False)
class Tensor:
    """Something with an address. `shape` is without the rows of a step."""

    name: str
    shape: tuple[int, ...]
    role: Role
    fmt: Format | None = None  # None: `numbers` says what they are
    rows: bool = False
    space: Space = "arena"
    slot: int = 0  # of the caller's buffers, in space io
    stream: int = 0
    spread: Spread = "format"  # accumulators: which elements share a scale
    positions: int = 1  # accumulators: matrix rows in a row of the step
    channels: int = 0  # channels last: [channels][rest] is stored as [rest][channels]; 0: C order
    lead: int = 0  # axes of a parameter that are before those, and stay where they are
    numbers: Numbers = BYTES

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """The axes in the order of memory; one that was flattened, channels and all, is one."""
        if not self._moves_axis:
            return self.shape
        lead, rest = self.shape[: self.lead], self.shape[self.lead :]
        return (*lead, *rest[1:], rest[0])

    @property
    def storage_format(self) -> Format | None:
        """The format over those axes: an axis that has moved is told by its place."""
        axis = None if self.fmt is None else self.fmt.axis
        if not self._moves_axis or not isinstance(axis, int):
            return self.fmt
        first = self.lead + self.rows  # the axis of the channels, as the format counts
        rank = len(self.shape) + self.rows
        at = axis % rank
        at = rank - 1 if at == first else at - (at > first)
        return replace(self.fmt, axis=at)  # type: ignore[type-var]  # Sym or Asym

    @property
    def scales_move(self) -> bool:
        """Whether scales go along an axis that was flattened, in the order of memory."""
        axis = None if self.fmt is None else self.fmt.axis
        flat = self.channels > 0 and not self._moves_axis
        rank = len(self.shape) + self.rows
        return flat and isinstance(axis, int) and axis % rank == self.lead + self.rows

    @property
    def _moves_axis(self) -> bool:
        return self.channels > 0 and self.shape[self.lead] == self.channels

    def to_storage(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An array in PyTorch's order, with rows of a step or without, in that of memory."""
        if not self.channels:
            return values
        return self._swapped(values, self.shape, self.storage_shape, (self.channels, -1))

    def from_storage(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """And back."""
        if not self.channels:
            return values
        return self._swapped(values, self.storage_shape, self.shape, (-1, self.channels))

    def _swapped(
        self,
        values: npt.NDArray[Any],
        before: tuple[int, ...],
        after: tuple[int, ...],
        split: tuple[int, int],
    ) -> npt.NDArray[Any]:
        rows = values.shape[: values.ndim - len(before)]
        parts = values.reshape(*rows, *before[: self.lead], *split)
        return np.ascontiguousarray(np.swapaxes(parts, -1, -2)).reshape(*rows, *after)

    @property
    def size(self) -> int:
        """Elements, of one row where there are rows."""
        return prod(self.shape)

    @property
    def told(self) -> str:
        """Its format in words."""
        if self.fmt is not None:
            return repr(self.fmt)
        return f"picks of {self.numbers.bits} bits" if self.numbers.kind == "pick" else "bytes"

    @property
    def lasts(self) -> bool:
        return self.role in LASTING

    @property
    def raw(self) -> bool:
        """An accumulator or its float twin: not yet a wire."""
        return self.fmt is ACCUMULATOR or (self.role == "scratch" and self.fmt == Float32())

    def layout(self, rows: int) -> Layout:
        """Which elements share a scale, over so many rows."""
        if self.spread == "format":
            shape = (rows, *self.storage_shape) if self.rows else self.storage_shape
            return (self.storage_format or Float32()).layout(shape)
        n = self.size // self.positions
        outer = rows * self.positions
        match self.spread:
            case "tensor":
                return Layout(1, rows * self.size, 1, rows * self.size, False)
            case "columns":
                return Layout(outer, n, 1, 1, True)
            case "rows":
                return Layout(outer, n, 1, n, False)
        return Layout(outer, n, 1, 1, False)

    def parts(self, rows: int) -> tuple[int, int, int, int]:
        """Bytes of codes, scales, zero points and absmax."""
        count = self.size * (rows if self.rows else 1)
        if self.fmt is None:
            return (-(-count * (self.numbers.container or self.numbers.bits) // 8), 0, 0, 0)
        codes = -(-count * self.fmt.element_bits // 8)
        if isinstance(self.fmt, Float32):
            return (codes, 0, 0, 0)
        scales = self.layout(rows if self.rows else 1).n_scales
        absmax = 4 * scales if self.fmt is ACCUMULATOR else 0
        return (codes, 4 * scales, 2 * scales if self.fmt.asymmetric else 0, absmax)

    def nbytes(self, rows: int) -> int:
        """Bytes in its space, each part aligned."""
        return sum(-(-part // ALIGN) * ALIGN for part in self.parts(rows))


@dataclass(eq=False)
class Op:
    """An operation of kernels.def: its places in order, None where one is empty."""

    kernel: str
    layer: str
    places: tuple[Tensor | None, ...]
    params: dict[int, int | float] = field(default_factory=dict)
    flags: int = 0
    writes: tuple[int, ...] = (0,)
    window: Window | None = None
    pool: Window | None = None  # of a product: over the image of its sums
    over: int | None = None  # the place whose memory the result may take, where nothing else has it
    patches: int = 0  # bytes of scratch for patches of the image
    folded: Tensor | None = None  # operand a of a product as it is widened, some of it at a time
    twice: bool = False  # a product may compute its sums twice, for a dynamic range
    tiled: int = 0  # of a gradient: outputs of its tile can be fewer, so many at a time
    macs: int = 0  # a row
    fixed_macs: bool = False
    note: str = ""

    @property
    def written(self) -> list[Tensor]:
        return [t for i in self.writes if (t := self.places[i]) is not None]

    @property
    def used(self) -> list[Tensor]:
        return [t for t in self.places if t is not None]

    @property
    def recomputed(self) -> bool:
        """Whether it is a product that does."""
        fmt = self.places[0].fmt if self.places[0] is not None else None
        coded = self.kernel.startswith("product_") and len(self.places) > 6  # has a tile
        return coded and fmt is not None and fmt.range == "dynamic"


@dataclass(frozen=True)
class Watch:
    """What tells a hindsight range its first gain: the largest value that `op` converts, over the
    scale of what `maker` made it of, the scale that it has itself or, absolute, 1."""

    gain: str
    op: Op
    source: Tensor
    maker: Op | None
    incoming: Tensor | None
    absolute: bool


class Constant(NamedTuple):
    """A table of the plan's own: its tensor, in space const, and its values."""

    tensor: Tensor
    values: npt.NDArray[np.float32]


@dataclass(eq=False)
class Program:
    """A lowered model: operations by section, and what they are about."""

    batch: int
    sections: dict[str, list[Op]]
    input: Tensor
    output: Tensor
    labels: Tensor | None = None
    loss: Tensor | None = None
    parameters: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, Tensor] = field(default_factory=dict)  # by their own names
    gains: dict[str, Tensor] = field(default_factory=dict)
    statistics: dict[str, Tensor] = field(default_factory=dict)  # running ones, of a layer each
    watched: list[Watch] = field(default_factory=list)
    wires: dict[str, Tensor] = field(default_factory=dict)
    micro_batches: int = 1  # of a step; `batch` is the rows of one
    constants: dict[str, Constant] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def kept(self) -> dict[str, Tensor]:
        """Parameters and running statistics: what a state_dict has."""
        return {**self.parameters, **self.statistics}

    @property
    def ops(self) -> list[Op]:
        """Those of a step, in order."""
        return [op for name in SECTIONS[:4] for op in self.sections[name]]

    @property
    def all_ops(self) -> list[Op]:
        """And those of inference, where it has its own."""
        return [*self.ops, *self.sections["infer"]]

    @property
    def users(self) -> dict[Tensor, int]:
        """How many operations have a tensor."""
        count: dict[Tensor, int] = {}
        for op in self.all_ops:
            for t in set(op.used):
                count[t] = count.get(t, 0) + 1
        return count

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor once: what lasts first, then in order of first use."""
        seen: dict[Tensor, None] = {}
        lasting = (self.parameters, self.gradients, self.states, self.gains, self.statistics)
        for group in lasting:
            seen |= dict.fromkeys(group.values())
        ends = (self.input, self.labels, self.output)
        seen |= dict.fromkeys(end for end in ends if end is not None)
        for op in self.all_ops:
            seen |= dict.fromkeys(op.used)
        return list(seen)
