"""What a net takes of a core: bytes of RAM and flash, instructions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ..lower.memory import NET_BYTES
from ..plan import Plan


class OpCount(NamedTuple):
    """Instructions of one operation in a step, on average."""

    number: int
    kernel: str
    layer: str
    instructions: float


@dataclass(frozen=True)
class Cost:
    """Bytes and instructions. What was not measured, for want of a tool, is None."""

    target: str
    compiler: str | None
    ram: dict[str, int | None]
    flash: dict[str, int | None]
    step: float | None = None  # instructions of a training step of one full batch
    inference: float | None = None  # of a row
    by_op: list[OpCount] = field(default_factory=list)

    @property
    def ram_bytes(self) -> int:
        return sum(v for v in self.ram.values() if v is not None)

    @property
    def flash_bytes(self) -> int:
        return sum(v for v in self.flash.values() if v is not None)

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self)
        content["by_op"] = [op._asdict() for op in self.by_op]
        return {**content, "ram_bytes": self.ram_bytes, "flash_bytes": self.flash_bytes}

    def __str__(self) -> str:
        lines = [f"{self.target}, {self.compiler or 'not compiled'}"]
        for title, parts, total in (
            ("RAM", self.ram, self.ram_bytes),
            ("flash", self.flash, self.flash_bytes),
        ):
            lines += ["", f"{title:<32}{total:>9} bytes"]
            lines += [f"  {n:<30}{_number(v):>9}" for n, v in parts.items()]
        lines += ["", *_instructions(self)]
        return "\n".join(lines)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _instructions(cost: Cost) -> list[str]:
    lines = []
    if cost.inference is not None:
        lines.append(f"{'instructions, inference of a row':<32}{_number(cost.inference):>9}")
    if cost.step is not None:
        lines.append(f"{'instructions, training step':<32}{_number(cost.step):>9}")
    names = [(f"{op.number:>4} {op.kernel}", op.layer, op.instructions) for op in cost.by_op]
    width = max((len(name) for name, _, _ in names), default=0)
    return [*lines, *(f"  {n:<{width}} {n_:>10.0f}  {layer}" for n, layer, n_ in names)]


PROGRAM = 64  # bytes of stack around a step: frames of a program like main.c, and of the reset


def ram_of(plan: Plan, stack: int | None) -> dict[str, int | None]:
    """The arena by what it is for, the caller's rows, the stack; `stack`: what a step took."""
    layout, program = plan.layout, plan.program
    labels = 0 if program.labels is None else program.labels.size
    row = program.input.size + program.output.size + labels
    return {
        "parameters, gradients, state": layout.persistent_bytes - NET_BYTES,
        "wires, errors, scratch": layout.arena_bytes - layout.persistent_bytes,
        "the core": NET_BYTES,
        "samples, labels, outputs": 4 * row,
        "stack": None if stack is None else stack + PROGRAM,
    }


def flash_of(
    code: int | None, plan: bytes, constants: bytes, state: bytes
) -> dict[str, int | None]:
    return {
        "code": code,
        "plan": len(plan),
        "constants": len(constants),
        "initial parameters and state": len(state),
    }


def by_op(plan: Plan, walks: Sequence[int], steps: int) -> list[OpCount]:
    """The mean of each operation over steps; micro-batches of a step add up."""
    if not steps:
        return []
    ops = plan.ops
    sums = [0] * len(ops)
    for number, count in zip(_numbers(plan, len(walks)), walks, strict=True):
        if number < len(ops):
            sums[number] += count
    return [
        OpCount(i, op.kernel, op.layer, total / steps)
        for i, (op, total) in enumerate(zip(ops, sums, strict=True))
        if total
    ]


def _numbers(plan: Plan, total: int) -> Iterable[int]:
    """The operation of each walk of full steps, in turn."""
    from .steps import walks_of

    of_a_step = [walk.first if walk.many else len(plan.ops) for walk in walks_of(plan, plan.batch)]
    return (of_a_step[i % len(of_a_step)] for i in range(total))
