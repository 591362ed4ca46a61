"""The forward of a graph as operations."""

from __future__ import annotations

from ..data.standardize import Standardize
from ..formats import Float32, Format
from ..graph import INPUT
from .ir import Constant, Op, Tensor, ordered
from .operands import Operands, store
from .preprocess import taken
from .rules import rule_of
from .tape import Tape
from .trace import Node, input_channels, leading, users_of


def forward(
    nodes: list[Node],
    input_shape: tuple[int, ...],
    input_format: Format,
    preprocess: Standardize | None,
    training: bool,
    batch: int,
) -> Tape:
    """Lowers each layer in turn, for a step or for inference."""
    x = Tensor("input", input_shape, "wire", Float32(), rows=True, space="io", slot=0)
    x.channels = ordered(input_channels(nodes), x.size)
    return _lowered(nodes, input_format, preprocess, x, training, batch, {}, {}, {})


def asked(
    nodes: list[Node], input_format: Format, preprocess: Standardize | None, tape: Tape
) -> Tape:
    """The forward of inference, over what the one of a step has: input, parameters, constants."""
    given = tape.parameters, tape.statistics, tape.constants
    return _lowered(nodes, input_format, preprocess, tape.input, False, tape.batch, *given)


def _lowered(
    nodes: list[Node],
    input_format: Format,
    preprocess: Standardize | None,
    x: Tensor,
    training: bool,
    batch: int,
    parameters: dict[str, Tensor],
    statistics: dict[str, Tensor],
    constants: dict[str, Constant],
) -> Tape:
    first = store(x, x.shape, input_format, "input", "wire")
    ops: list[Op] = []
    tape = Tape(ops, Operands(ops.append), x, first, training, batch, parameters, statistics)
    tape.constants, tape.wires = constants, {"input": first}
    taken(tape, x, first, preprocess)
    tape.wanted = leading(nodes)
    users, values = users_of(nodes), tape.values
    values[INPUT] = first
    for i, node in enumerate(nodes):
        y = rule_of(node).forward(tape, node, *(values[source] for source in node.sources))
        tape.wires[node.path] = y
        if len(users[i]) > 1:
            y = tape.as_wire(y, node.out_shape)
        values[i] = tape.output = y
    return tape
