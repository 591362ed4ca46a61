"""What the rules of backward share."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..formats import Float32
from .ir import ACCUMULATOR, Op, Tensor
from .operands import Operands, as_dynamic, convert, is_plain, store
from .tape import Tape, Taped
from .update import Gradients

ABOVE_ZERO, INSIDE = 0, 1


@dataclass(eq=False)
class Backward:
    """A backward as it is emitted."""

    tape: Tape
    gradients: Gradients
    ops: list[Op] = field(default_factory=list)
    loss_error: Tensor | None = None

    @property
    def operands(self) -> Operands:
        return self.tape.operands

    def stored(self, taped: Taped, error: Tensor) -> Tensor:
        """The error of a layer's output in the policy's format."""
        node = taped.node
        fmt = node.policy.errors
        if error is self.loss_error:  # a handful of values, relative to nothing
            fmt = as_dynamic(fmt)
        stored = store(error, node.out_shape, fmt, node.path, "error")
        if isinstance(stored.fmt, Float32) and isinstance(error.fmt, Float32):
            error.role, error.name = "error", stored.name
            return error
        self.ops.append(convert(error, stored, node.path))
        return stored

    def mask(self, error: Tensor, wire: Tensor, path: str, mode: int) -> None:
        """Passes an error where a stored code is above zero or, INSIDE, within its range; as a part
        of the product that made the error where it can be."""
        if not (is_plain(wire) or isinstance(wire.fmt, Float32) or wire.fmt is ACCUMULATOR):
            wire = self.operands.codes(wire, path) if mode == ABOVE_ZERO else wire
        maker = next(op for op in reversed(self.ops) if op.places[0] is error)
        at_hand = not any(wire in op.written for op in self.ops)  # before the product ran
        free = maker.kernel.startswith("product") and maker.places[4] is None
        if mode == ABOVE_ZERO and free and at_hand:
            maker.places = (*maker.places[:4], wire, *maker.places[5:])
        else:
            self.ops.append(Op("mask", path, (error, wire), {0: mode}))
