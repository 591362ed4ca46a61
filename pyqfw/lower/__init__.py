"""From a model to operations over tensors with addresses: trace, forward, backward, memory."""

from __future__ import annotations

from .. import nn, optim
from ..data.standardize import Standardize
from ..errors import QfwError
from ..formats import Float32
from ..policy import Policy
from .backward import backward
from .folding import fold
from .forward import asked, forward
from .ir import Op, Program, Tensor
from .memory import Memory, plan_memory
from .operands import convert
from .order import hoist
from .requantize import settle, watch
from .rooms import tighten
from .trace import Node, trace
from .update import Gradients

__all__ = ["Memory", "Node", "Op", "Program", "Tensor", "lower", "plan_memory", "trace"]


def lower(
    nodes: list[Node],
    input_shape: tuple[int, ...],
    policy: Policy,
    loss: nn.Loss | None,
    optimizer: optim.Optimizer | None,
    batch: int,
    micro_batches: int = 1,
    watching: bool = False,
    preprocess: Standardize | None = None,
) -> Program:
    """The operations of a traced model, section by section; `batch`: rows of a micro-batch.

    `watching`: hindsight ranges are dynamic, and the program says what their gains would be.
    """
    if loss is not None:
        loss.target_shape(nodes[-1].out_shape)
        if not any(node.learns for node in nodes):
            raise QfwError("nothing learns: every parameter is frozen, or there is none")
    tape = forward(nodes, input_shape, policy.input, preprocess, loss is not None, batch)
    out = Tensor("output", nodes[-1].out_shape, "wire", Float32(), rows=True, space="io", slot=2)
    out.channels = tape.output.channels
    sections = {"forward": tape.ops, "output": [convert(tape.output, out, "output")]}
    program = Program(batch, sections, tape.input, out, parameters=tape.parameters)
    program.micro_batches, program.statistics = micro_batches, tape.statistics
    program.sections |= {"backward": [], "update": [], "infer": []}
    if tape.training and any(node.trains_otherwise for node in nodes):
        alone = asked(nodes, policy.input, preprocess, tape)
        program.sections["infer"] = [*alone.ops, convert(alone.output, out, "output")]
    if loss is not None:
        gradients = Gradients(batch, optimizer, micro_batches)
        ops, program.labels, program.loss = backward(nodes, tape, gradients, loss)
        program.sections |= {"backward": ops, "update": gradients.update_section()}
        program.gradients, program.states = gradients.gradients, gradients.states
    program.constants = tape.constants
    if watching:
        watch(program)
    else:
        settle(program, optimizer is not None)
        fold(program)
    hoist(program)
    tighten(program)
    program.wires = {path: tape.kept(t) for path, t in tape.wires.items()}
    return program
