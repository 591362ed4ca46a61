"""A forward that was lowered: its operations, and what backward has to turn round."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..formats import Float32, Format
from ..modules import Buffer
from .ir import Constant, Op, Tensor, ordered, stream_of
from .operands import Operands, convert, store
from .trace import Node


@dataclass(eq=False)
class Taped:
    """A layer as it ran: its input and output, and its parameters."""

    node: Node
    x: Tensor
    y: Tensor
    parameters: dict[str, Tensor] = field(default_factory=dict)
    made: dict[str, Tensor] = field(default_factory=dict)  # what else backward wants of it
    masks: tuple[Taped, ...] = ()  # layers before it, whose masks the errors of y pass first

    @property
    def learns(self) -> bool:
        return self.node.learns and bool(self.parameters)


@dataclass(eq=False)
class Tape:
    """Operations as they are emitted, and the layers that they belong to."""

    ops: list[Op]
    operands: Operands
    input: Tensor
    output: Tensor  # raw, or what a last Quant stored
    training: bool  # of a step, whose parameters are not constants
    batch: int  # the most rows
    parameters: dict[str, Tensor] = field(default_factory=dict)
    statistics: dict[str, Tensor] = field(default_factory=dict)
    wires: dict[str, Tensor] = field(default_factory=dict)
    taped: list[Taped] = field(default_factory=list)
    stored: dict[Tensor, Tensor] = field(default_factory=dict)  # a raw tensor: its wire
    makers: dict[Tensor, Node] = field(default_factory=dict)  # a raw tensor: its layer
    constants: dict[str, Constant] = field(default_factory=dict)
    needed: set[Tensor] = field(default_factory=set)  # raw tensors that backward reads as made
    values: dict[int, Tensor] = field(default_factory=dict)  # what each node, or INPUT, gives
    wanted: set[int] = field(default_factory=set)  # nodes whose errors lead to one that learns

    def kept(self, t: Tensor) -> Tensor:
        """The tensor as it was stored, where it was."""
        return self.stored.get(t, t)

    def made(self, node: Node, t: Tensor) -> Tensor:
        """Notes that a layer made sums, which are stored in its own format."""
        self.makers[t] = node
        return t

    @property
    def last_maker(self) -> Node | None:
        """The last layer that made sums."""
        return next(reversed(self.makers.values()), None)

    def parameter(self, node: Node, name: str, channels: int = 0, lead: int = 0) -> Tensor:
        """A parameter's tensor in the policy's format; a frozen one is a constant. `channels`,
        `lead`: its order in memory."""
        path = f"{node.path}.{name}"
        if path not in self.parameters:
            spec = next(p for p in node.layer.parameters() if p.name == name)
            fmt = node.policy.bias if name == "bias" else node.policy.weights
            space: Literal["arena", "const"] = "arena" if self.training and node.learns else "const"
            stream = stream_of(path, "update")
            t = Tensor(path, spec.shape, "parameter", fmt, space=space, stream=stream)
            t.channels, t.lead = ordered(channels, prod(spec.shape[lead:])), lead
            self.parameters[path] = t
        return self.parameters[path]

    def statistic(self, node: Node, buffer: Buffer, channels: int = 0) -> Tensor:
        """A running statistic, in floats; one that no step moves is a constant."""
        path = f"{node.path}.{buffer.name}"
        if path not in self.statistics:
            moves = self.training and node.tracks
            t = Tensor(path, buffer.shape, "state" if moves else "parameter", Float32())
            t.space = "arena" if moves else "const"
            t.channels = ordered(channels, t.size)
            self.statistics[path] = t
        return self.statistics[path]

    def constant(self, name: str, values: npt.NDArray[np.float32], fmt: Format) -> Tensor:
        """A table that is no parameter; its values are written when a session opens."""
        if name not in self.constants:
            t = Tensor(name, values.shape, "parameter", fmt, space="const")
            self.constants[name] = Constant(t, values)
        return self.constants[name].tensor

    def arranged(self, t: Tensor, shape: tuple[int, ...], channels: int, path: str) -> Tensor:
        """t, stored, in C order (channels 0) or with so many channels last."""
        wire = self.as_wire(t, shape)
        wanted = ordered(channels, wire.size)
        return wire if wire.channels == wanted else self.operands.transposed(wire, wanted, path)

    def as_wire(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """What a layer reads: sums are stored first, in the wires' format of their layer."""
        if not t.raw:
            return t
        maker = self.makers[t]
        return self.store(t, shape, maker.policy.wires, maker.path)

    def store(self, t: Tensor, shape: tuple[int, ...], fmt: Format, path: str) -> Tensor:
        """t in a format. What sums become is the output of every layer that they passed."""
        wire = store(t, shape, fmt, path, "wire")
        if isinstance(t.fmt, Float32) and isinstance(fmt, Float32):
            if t.raw:
                t.role, t.name = "wire", wire.name
            return t  # it is what it should be
        self.ops.append(convert(t, wire, path))
        if t.raw:
            self.stored[t] = wire
            for name, held in self.wires.items():
                if held is t:
                    self.wires[name] = wire
        return wire
