"""The forward of a chain as operations."""

from __future__ import annotations

from ..formats import Float32, Format
from .ir import Constant, Tensor
from .operands import Operands, convert, store
from .rules import rule_of
from .tape import Tape
from .trace import Node


def forward(nodes: list[Node], input_format: Format, training: bool) -> Tape:
    """Lowers each layer in turn, for a step or for inference."""
    x = Tensor("input", nodes[0].in_shape, "wire", Float32(), rows=True, space="io", slot=0)
    return again(nodes, input_format, x, {}, {}, training)


def again(
    nodes: list[Node],
    input_format: Format,
    x: Tensor,
    parameters: dict[str, Tensor],
    constants: dict[str, Constant],
    training: bool,
) -> Tape:
    """The same over an input, parameters and constants that exist."""
    first = store(x, x.shape, input_format, "input", "wire")
    ops = [convert(x, first, "input")]
    tape = Tape(ops, Operands(ops.append), x, first, training, parameters, {"input": first})
    tape.constants = constants
    for node in nodes:
        tape.output = rule_of(node).forward(tape, node, tape.output)
        tape.wires[node.path] = tape.output
    return tape
