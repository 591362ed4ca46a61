"""Add and Concat: values that meet at a common scale."""

from __future__ import annotations

from math import prod

from .. import nn
from ..formats import Float32
from .context import Backward
from .ir import Op, Tensor, ordered
from .operands import join
from .tape import Tape, Taped
from .trace import Node


class _Add:
    def forward(self, tape: Tape, node: Node, *xs: Tensor) -> Tensor:
        first = xs[0].channels
        wires = [tape.arranged(x, node.out_shape, first, node.path) for x in xs]
        name, shape = f"{node.path}:sums", node.out_shape
        op = join(tape.operands, node.policy.forward, node.path, name, shape, wires)
        tape.ops.append(op)
        tape.taped.append(Taped(node, wires[0], op.used[0]))
        return tape.made(node, op.used[0])

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """The same codes for all that were added."""
        return back.stored(taped, error)


class _Concat:
    """Side by side along the channels, which are last in memory, or along another axis."""

    def forward(self, tape: Tape, node: Node, *xs: Tensor) -> Tensor:
        path, name = node.path, f"{node.path}:sums"
        shapes = node.in_shapes
        channels = [shape[0] if len(shape) > 1 else 0 for shape in shapes]
        wires = [
            tape.arranged(x, shape, last, path)
            for x, shape, last in zip(xs, shapes, channels, strict=True)
        ]
        given = node.policy.forward, path, name, node.out_shape, wires, _positions(node)
        op = join(tape.operands, *given)
        tape.ops.append(op)
        y = op.used[0]
        y.channels = ordered(sum(channels) and node.out_shape[0], y.size)
        tape.taped.append(Taped(node, wires[0], y))
        return tape.made(node, y)

    def backward(
        self, back: Backward, taped: Taped, error: Tensor, deeper: bool
    ) -> tuple[Tensor, ...]:
        """To each its part of the codes."""
        node, make, path = taped.node, back.operands, taped.node.path
        stored = back.stored(taped, error)
        whole = stored if isinstance(stored.fmt, Float32) else make.single(stored, path)
        positions, begin, found = _positions(node), 0, []
        for i, shape in enumerate(node.in_shapes):
            part = Tensor(f"{path}:error part {i}", shape, "error", whole.fmt, rows=True)
            part.channels = ordered(shape[0] if len(shape) > 1 else 0, part.size)
            if back.wanted[i]:
                params: dict[int, int | float] = {0: positions, 1: begin}
                back.ops.append(Op("part", path, (part, whole), params))
            begin += part.size // positions
            found.append(back.follows(error, part))
        return tuple(found)


def _positions(node: Node) -> int:
    """Of a row, at each of which the values lie side by side."""
    assert isinstance(node.layer, nn.Concat)
    shape = node.out_shape
    at = node.layer.axis(len(shape), node.path)
    if len(shape) == 1:
        return 1
    return prod(shape[1:]) if at == 0 else prod(shape[1:at])


ADD, CONCAT = _Add(), _Concat()
