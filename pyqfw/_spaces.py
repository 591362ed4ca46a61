"""The memory of a session: the arena and the constants, and tensors in them."""

from __future__ import annotations

import numpy as np

from . import quant
from ._arrays import Array
from .formats import Float32, SymInt32
from .lower import Tensor
from .lower.memory import NET_BYTES
from .plan import Plan
from .quant import Stored
from .tensor import QTensor, quantize


def aligned(data: bytes) -> Array:
    """A copy that begins at a multiple of 64."""
    space = np.zeros(len(data) + 64, np.uint8)
    begin = -space.ctypes.data % 64
    view = space[begin : begin + len(data)]
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

    def parts(self, t: Tensor, rows: int) -> tuple[Array, Array, Array]:
        """Views of a tensor's codes, scales and zero points."""
        space = self.const if t.space == "const" else self.arena
        offsets, sizes = self._plan.layout.of(t), t.parts(rows)
        codes, scale, zero = (space[o : o + n] for o, n in zip(offsets[:3], sizes[:3], strict=True))
        return codes, scale.view(np.float32), zero.view(np.uint16)

    def read(self, t: Tensor, rows: int) -> QTensor:
        """A copy of a tensor as it stands in memory."""
        fmt = t.fmt
        assert fmt is not None
        shape = (rows, *t.shape) if t.rows else t.shape
        codes, scale, zero = (part.copy() for part in self.parts(t, rows if t.rows else 1))
        if isinstance(fmt, Float32):
            return QTensor(Stored(fmt, shape, codes, None, None))
        if t.spread == "columns":
            fmt = SymInt32(32, axis=-1)
        elif t.spread == "rows":
            fmt = SymInt32(32, axis="row")
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


def converted(stored: QTensor, t: Tensor) -> QTensor:
    """The same bits where the formats are equal, else the same values as near as it goes."""
    assert t.fmt is not None
    if isinstance(stored.format, Float32) and t.fmt != stored.format:
        quant.check_finite(stored.codes, f"'{t.name}'")
    return stored.to(t.fmt, rounding="half_away")
