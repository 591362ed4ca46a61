"""The forward of a chain as operations, and a tape of what backward has to turn round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from .. import nn
from ..formats import Float32, Format
from .headroom import largest, prove
from .ir import Op, Tensor, stream_of
from .operands import (
    Operands,
    accumulator,
    by_matrix_row,
    convert,
    folded_extra,
    per_tensor,
    signed_bits,
    store,
    weight_scales,
)
from .trace import Node

RELU, FOLDED_B = 1, 2
FORWARD, BACK = 0, 1


@dataclass(eq=False)
class Taped:
    """A layer as it ran: its input and output, and its parameters."""

    node: Node
    kind: Literal["linear", "relu", "quant"]
    x: Tensor
    y: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None


@dataclass(eq=False)
class Tape:
    """A forward that was lowered."""

    ops: list[Op]
    operands: Operands
    taped: list[Taped]
    input: Tensor
    output: Tensor  # raw, or what a last Quant stored
    parameters: dict[str, Tensor]
    wires: dict[str, Tensor]
    stored: dict[int, Tensor] = field(default_factory=dict)  # id of a raw tensor: its wire

    def kept(self, t: Tensor) -> Tensor:
        """The tensor as it was stored, where it was."""
        return self.stored.get(id(t), t)


def forward(nodes: list[Node], input_format: Format, learns: Callable[[Node], bool]) -> Tape:
    """Lowers each layer in turn; `learns` says whose parameters are not constants."""
    ops: list[Op] = []
    x = Tensor("input", nodes[0].in_shape, "wire", Float32(), rows=True, space="io", slot=0)
    first = store(x, x.shape, input_format, "input", "wire")
    tape = Tape(ops, Operands(ops.append), [], x, first, {}, {"input": first})
    ops.append(convert(x, first, "input"))
    current = first
    for node in nodes:
        match node.layer:
            case nn.Linear():
                x = _as_wire(tape, current, node.in_shape)
                current = _linear(tape, node, x, learns(node))
            case nn.ReLU():
                current = _relu(tape, node, current)
            case nn.Quant():
                current = _quant(tape, node, current)
            case nn.Flatten():
                pass
        tape.wires[node.path] = current
    tape.output = current
    return tape


def _as_wire(tape: Tape, t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What a layer reads: an accumulator is stored first, in the wires' format of its layer."""
    if not t.raw:
        return t
    source = next(e.node for e in reversed(tape.taped) if e.kind == "linear")
    return _store(tape, t, shape, source.policy.wires, source.path)


def _store(tape: Tape, t: Tensor, shape: tuple[int, ...], fmt: Format, path: str) -> Tensor:
    """t in a format. What an accumulator becomes is the output of every layer that it passed."""
    wire = store(t, shape, fmt, path, "wire")
    if isinstance(t.fmt, Float32) and isinstance(fmt, Float32):
        if t.raw:
            t.role, t.name = "wire", wire.name
        return t  # it is what it should be
    tape.ops.append(convert(t, wire, path))
    if t.raw:
        tape.stored[id(t)] = wire
        for name, held in tape.wires.items():
            if held is t:
                tape.wires[name] = wire
    return wire


def _quant(tape: Tape, node: Node, t: Tensor) -> Tensor:
    assert isinstance(node.layer, nn.Quant)
    y = _store(tape, t, node.in_shape, node.layer.fmt or node.policy.wires, node.path)
    tape.taped.append(Taped(node, "quant", t, y))
    return y


def _relu(tape: Tape, node: Node, t: Tensor) -> Tensor:
    last = tape.ops[-1]
    if t.raw and last.kernel.startswith("product") and last.places[0] is t:
        last.flags |= RELU
        y = t
    elif t.raw:
        tape.ops.append(Op("relu", node.path, (t, t)))
        y = t
    else:
        y = Tensor(f"{node.path}:wire", t.shape, "wire", t.fmt, rows=True, stream=t.stream)
        tape.ops.append(Op("relu", node.path, (y, t)))
    tape.taped.append(Taped(node, "relu", t, y))
    return y


def parameter(node: Node, name: str, learns: bool) -> Tensor:
    """A parameter's tensor in the policy's format; a frozen one is a constant."""
    spec = next(p for p in node.layer.parameters() if p.name == name)
    fmt = node.policy.bias if name == "bias" else node.policy.weights
    path = f"{node.path}.{name}"
    space: Literal["arena", "const"] = "arena" if learns else "const"
    return Tensor(path, spec.shape, "parameter", fmt, space=space, stream=stream_of(path, "update"))


def _linear(tape: Tape, node: Node, x: Tensor, learns: bool) -> Tensor:
    layer = node.layer
    assert isinstance(layer, nn.Linear)
    weight = parameter(node, "weight", learns)
    bias = parameter(node, "bias", learns) if layer.bias else None
    for t in (weight, bias):
        if t is not None:
            tape.parameters[t.name] = t
    positions = prod(node.out_shape) // layer.out_features
    if node.policy.forward == "sym":
        y = _product_s32(tape, node, x, weight, bias, positions)
    else:
        y = _product_f32(tape, node, x, weight, bias, positions)
    tape.taped.append(Taped(node, "linear", x, y, weight, bias))
    return y


def _macs(layer: nn.Linear, positions: int) -> int:
    return layer.in_features * layer.out_features * positions


def _product_f32(
    tape: Tape, node: Node, x: Tensor, weight: Tensor, bias: Tensor | None, positions: int
) -> Tensor:
    layer, path = node.layer, node.path
    assert isinstance(layer, nn.Linear)
    y = Tensor(f"{path}:sums", node.out_shape, "scratch", Float32(), rows=True)
    b = None if bias is None else tape.operands.floats(bias, path)
    places = (y, tape.operands.floats(x, path), tape.operands.floats(weight, path), b, None)
    op = Op("product_f32", path, places, {0: FORWARD, 3: positions})
    op.macs = _macs(layer, positions)
    tape.ops.append(op)
    return y


def _product_s32(
    tape: Tape, node: Node, x: Tensor, weight: Tensor, bias: Tensor | None, positions: int
) -> Tensor:
    layer, path, make = node.layer, node.path, tape.operands
    assert isinstance(layer, nn.Linear)
    terms = layer.in_features
    widen_a, widen_b = not by_matrix_row(x, terms), weight_scales(weight) in ("in", "mixed")
    a = make.source(x, path) if widen_a else make.codes(x, path)
    b = make.source(weight, path) if widen_b else make.codes(weight, path)
    biased = bias is not None
    if widen_a:
        a = make.widened(a, path, extra=folded_extra(terms, a, b, biased), columns=terms)
    if widen_b:
        b = make.widened(b, path, extra=folded_extra(terms, b, a, biased), columns=terms)
    assert a.fmt is not None
    assert b.fmt is not None
    by_column = biased or b.layout(1).n_scales > 1
    y = accumulator(f"{path}:sums", node.out_shape, not per_tensor(a.fmt), by_column, positions)
    proof = prove(terms, largest(signed_bits(a.fmt)), largest(signed_bits(b.fmt)), bias=biased)
    scratch = Tensor(f"{path} seeds", (5 * layer.out_features,), "scratch") if biased else None
    params: dict[int, int | float] = {0: FORWARD, 1: proof.chunk, 2: proof.shift, 3: positions}
    op = Op("product_s32", path, (y, a, b, bias, None, scratch), params, writes=(0, 5))
    op.macs, op.note = _macs(layer, positions), str(proof)
    tape.ops.append(op)
    return y
