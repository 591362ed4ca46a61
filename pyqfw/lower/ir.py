"""What a plan is made of: tensors and operations over them, in the order they run."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..formats import Float32, Format, Layout, SymInt32

Role = Literal["parameter", "gradient", "state", "wire", "error", "scratch"]
Space = Literal["arena", "const", "io"]
Spread = Literal["format", "tensor", "columns", "rows", "grid"]

ROLES: tuple[Role, ...] = ("parameter", "gradient", "state", "wire", "error", "scratch")
SPACES: tuple[Space, ...] = ("arena", "const", "io")
SECTIONS = ("forward", "output", "backward", "update", "infer")
LASTING = ROLES[:3]
ALIGN = 16
ACCUMULATOR = SymInt32(32)


def stream_of(path: str, role: str) -> int:
    """The tensor number of the generator."""
    return zlib.crc32(f"{path}:{role}".encode())


@dataclass(eq=False)
class Tensor:
    """Something with an address. `shape` is without the rows of a step."""

    name: str
    shape: tuple[int, ...]
    role: Role
    fmt: Format | None = None  # None: labels (space io) or bytes
    rows: bool = False
    space: Space = "arena"
    slot: int = 0  # of the caller's buffers, in space io
    stream: int = 0
    spread: Spread = "format"  # accumulators: which elements share a scale
    positions: int = 1  # accumulators: matrix rows in a row of the step

    @property
    def size(self) -> int:
        """Elements, of one row where there are rows."""
        return prod(self.shape)

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
            shape = (rows, *self.shape) if self.rows else self.shape
            return (self.fmt or Float32()).layout(shape)
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
            return (count * (4 if self.space == "io" else 1), 0, 0, 0)
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
    macs: int = 0  # a row
    fixed_macs: bool = False
    note: str = ""

    @property
    def written(self) -> list[Tensor]:
        return [t for i in self.writes if (t := self.places[i]) is not None]

    @property
    def used(self) -> list[Tensor]:
        return [t for t in self.places if t is not None]


@dataclass(frozen=True)
class Watch:
    """What tells a hindsight range its first gain: the largest value that `op` converts, over the
    scale of operand a of the product that made it, or the scale that it has itself."""

    gain: str
    op: Op
    source: Tensor
    product: Op | None
    incoming: Tensor | None


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
    watched: list[Watch] = field(default_factory=list)
    wires: dict[str, Tensor] = field(default_factory=dict)
    micro_batches: int = 1  # of a step; `batch` is the rows of one
    constants: dict[str, Constant] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def ops(self) -> list[Op]:
        """Those of a step, in order."""
        return [op for name in SECTIONS[:4] for op in self.sections[name]]

    @property
    def all_ops(self) -> list[Op]:
        """And those of inference, where it has its own."""
        return [*self.ops, *self.sections["infer"]]

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor once: what lasts first, then in order of first use."""
        seen: dict[int, Tensor] = {}
        for group in (self.parameters, self.gradients, self.states, self.gains):
            for t in group.values():
                seen.setdefault(id(t), t)
        for end in (self.input, self.labels, self.output):
            if end is not None:
                seen.setdefault(id(end), end)
        for op in self.all_ops:
            for t in op.used:
                seen.setdefault(id(t), t)
        return list(seen.values())
