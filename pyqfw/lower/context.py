"""What the rules of backward share."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import nn
from ..errors import QfwError
from ..formats import Float32
from .ir import ACCUMULATOR, Op, Tensor, stream_of
from .operands import MOST_JOINED, Operands, as_dynamic, convert, is_plain, join, store
from .tape import Tape, Taped
from .trace import Node
from .update import Gradients

ABOVE_ZERO, INSIDE = 0, 1


def part_of(number: int) -> str:
    """What an error that is added to others is called behind its layer's path, from +1 on: their
    sum has the path alone."""
    return f"+{number + 1}"


@dataclass(eq=False)
class Backward:
    """A backward as it is emitted."""

    tape: Tape
    gradients: Gradients
    loss: nn.Loss
    ops: list[Op] = field(default_factory=list)
    of_loss: set[Tensor] = field(default_factory=set)  # the loss's own error on its way
    wanted: tuple[bool, ...] = ()  # of the layer at hand: which of its inputs lead to learning
    shared: set[Tensor] = field(default_factory=set)  # errors that several layers read
    held: dict[Tensor, str] = field(default_factory=dict)  # an error: whose it was stored as

    @property
    def operands(self) -> Operands:
        return self.tape.operands

    def stored(self, taped: Taped, error: Tensor) -> Tensor:
        """The error of a layer's output in the policy's format."""
        return self.stored_for(taped.node, error)

    def stored_for(self, node: Node, error: Tensor, part: str = "") -> Tensor:
        """Unless it is already, for this layer or in this format."""
        fmt = node.policy.errors
        if error in self.of_loss:  # a handful of values, relative to nothing
            fmt = as_dynamic(fmt)
        if self.held.get(error) == node.path or (error.role == "error" and error.fmt == fmt):
            return error
        stored = store(error, node.out_shape, fmt, f"{node.path}{part}", "error")
        if isinstance(stored.fmt, Float32) and isinstance(error.fmt, Float32):
            error.role, error.name = "error", stored.name
            return error
        self.ops.append(convert(error, stored, node.path))
        return self.follows(error, stored)

    def follows(self, error: Tensor, made: Tensor) -> Tensor:
        """What was made of an error alone, which is the loss's own if that is."""
        self.of_loss |= {made} if error in self.of_loss else set()
        return made

    def joined(self, node: Node, errors: list[Tensor]) -> Tensor:
        """The sum of the errors of those that read a layer's output."""
        if len(errors) == 1:
            return errors[0]
        if len(errors) > MOST_JOINED:
            raise QfwError(
                f"layer '{node.path}': {len(errors)} layers read its output, and their errors are "
                f"added: at most {MOST_JOINED} can be"
            )
        stored = [self.stored_for(node, e, part_of(i)) for i, e in enumerate(errors)]
        name, shape = f"{node.path}:joined", node.out_shape
        op = join(self.operands, node.policy.prop, node.path, name, shape, stored)
        self.ops.append(op)
        return op.used[0]

    def arranged(self, node: Node, error: Tensor, channels: int, part: str = "") -> Tensor:
        """The error of a layer's output in the order that the output has in memory."""
        if error.channels == channels:
            return error
        stored = self.stored_for(node, error, part)
        turned = self.operands.transposed(stored, channels, node.path)
        turned.role = "error"
        self.held[turned] = node.path
        return self.follows(error, turned)

    def sums(self, error: Tensor, path: str) -> Tensor:
        """The error as sums or floats, which take any factor, for this reader alone."""
        if error.raw or isinstance(error.fmt, Float32):
            return self.own(error, path)
        op = join(self.operands, "sym", path, f"{path}:sums of error", error.shape, [error])
        self.ops.append(op)
        return self.follows(error, op.used[0])

    def own(self, error: Tensor, path: str) -> Tensor:
        """The error, or a copy if others read it too: one that may be written to."""
        if error not in self.shared:
            return error
        copy = Tensor(f"{path}:own {error.name}", error.shape, "error", error.fmt, rows=True)
        copy.channels, copy.stream = error.channels, stream_of(path, "error")
        self.ops.append(convert(error, copy, path))
        return self.follows(error, copy)

    def mask(self, error: Tensor, wire: Tensor, path: str, mode: int) -> Tensor:
        """The error, passed where a stored code is above zero or, INSIDE, within its range; as a
        part of the product that made the error where it can be."""
        error = self.own(error, path)
        if not (is_plain(wire) or isinstance(wire.fmt, Float32) or wire.fmt is ACCUMULATOR):
            wire = self.operands.codes(wire, path) if mode == ABOVE_ZERO else wire
        maker = next(op for op in reversed(self.ops) if op.places[0] is error)
        at_hand = not any(wire in op.written for op in self.ops)  # before the product ran
        free = maker.kernel.startswith("product") and maker.places[4] is None
        if mode == ABOVE_ZERO and free and at_hand:
            maker.places = (*maker.places[:4], wire, *maker.places[5:])
        else:
            self.ops.append(Op("mask", path, (error, wire), {0: mode}))
        return error
