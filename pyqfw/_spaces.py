"""The memory of a session: the arena and the constants, and tensors in them."""

from __future__ import annotations

from math import prod

import numpy as np

from . import quant
from ._arrays import Array
from .formats import Float32, Format, SymInt32
from .lower import Tensor
from .lower.memory import NET_BYTES
from .plan import Plan
from .quant import Stored
from .tensor import QTensor, quantize


def room(size: int) -> Array:
    """Bytes of 0 that begin at a multiple of 64."""
    space = np.zeros(size + 64, np.uint8)
    begin = -space.ctypes.data % 64
    return space[begin : begin + size]


def aligned(data: bytes) -> Array:
    """A copy that begins at a multiple of 64."""
    view = room(len(data))
    view[:] = np.frombuffer(data, np.uint8)
    return view


class Spaces:
    """Bytes that a plan's tensors lie in."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.const = aligned(bytes(max(plan.layout.const_bytes, 16)))
        self.arena = aligned(bytes(plan.arena_bytes))

    def lasting(self) -> Array:
        """Parameters, gradients and state."""
        return self.arena[NET_BYTES : self._plan.layout.persistent_bytes]

    def statistics(self) -> Array:
        """Running statistics, which stand last among those."""
        moving = [t for t in self._plan.program.statistics.values() if t.space == "arena"]
        if not moving:
            return self.arena[:0]
        first = min(self._plan.layout.of(t)[0] for t in moving)
        return self.arena[first : self._plan.layout.persistent_bytes]

    def parts(self, t: Tensor, rows: int) -> tuple[Array, Array, Array]:
        """Views of a tensor's codes, scales and zero points."""
        space = self.const if t.space == "const" else self.arena
        offsets, sizes = self._plan.layout.of(t), t.parts(rows)
        codes, scale, zero = (space[o : o + n] for o, n in zip(offsets[:3], sizes[:3], strict=True))
        return codes, scale.view(np.float32), zero.view(np.uint16)

    def read(self, t: Tensor, rows: int) -> QTensor:
        """A copy of a tensor as it stands in memory, in the order of memory."""
        fmt = t.storage_format
        assert fmt is not None
        shape = (rows, *t.storage_shape) if t.rows else t.storage_shape
        codes, scale, zero = (part.copy() for part in self.parts(t, rows if t.rows else 1))
        if isinstance(fmt, Float32):
            return QTensor(Stored(fmt, shape, codes, None, None))
        if t.spread in ("columns", "rows"):
            fmt, shape = _matrix(t, shape)
        elif t.spread == "grid":
            values = codes.view(np.int32) * scale.astype(np.longdouble)  # 55 bits
            return quantize(values.astype(np.float32).reshape(shape), Float32())
        zeros = zero.reshape(fmt.scale_shape(shape)) if fmt.asymmetric else None
        return QTensor(Stored(fmt, shape, codes, scale.reshape(fmt.scale_shape(shape)), zeros))

    def write(self, t: Tensor, value: QTensor) -> None:
        """Puts a value of the tensor's own format into memory."""
        codes, scale, zero = self.parts(t, 1)
        stored = value._stored
        codes[:] = stored.codes.reshape(-1).view(np.uint8)
        if stored.scale is not None:
            scale[:] = stored.scale.reshape(-1)
        if stored.zero_point is not None:
            zero[:] = stored.zero_point.reshape(-1)

    def overwritten(self, t: Tensor, written: int, last: int) -> bool:
        """Whether an operation after `written`, up to `last`, used its memory for another."""
        layout, batch = self._plan.layout, self._plan.rows
        begin, size = layout.of(t)[0], t.nbytes(batch)
        for op in self._plan.ops[written + 1 : last + 1]:
            for other in op.written:
                at = layout.of(other)[0]
                arena = other.space == "arena" and other is not t
                if arena and at < begin + size and begin < at + other.nbytes(batch):
                    return True
        return False


def _matrix(t: Tensor, shape: tuple[int, ...]) -> tuple[Format, tuple[int, ...]]:
    """The format and shape of sums with a scale for each column or row of their matrix: axes that
    a row of it spans are one."""
    columns = t.size // t.positions
    if t.spread == "rows" and t.positions == 1:
        return SymInt32(32, axis=0), shape
    if columns == 1 and t.spread == "columns":
        return SymInt32(32), shape
    at = len(shape) - 1
    while prod(shape[at:]) < columns:
        at -= 1
    if t.spread == "columns" and shape[at] == columns:
        return SymInt32(32, axis=at), shape
    return SymInt32(32, axis=at if t.spread == "columns" else "row"), (*shape[:at], columns)


def converted(stored: QTensor, t: Tensor) -> QTensor:
    """The same bits where the formats are equal, else the same values as near as it goes."""
    fmt = t.storage_format
    assert fmt is not None
    if isinstance(stored.format, Float32) and fmt != stored.format:
        quant.check_finite(stored.codes, f"'{t.name}'")
    return stored.to(fmt, rounding="half_away")
