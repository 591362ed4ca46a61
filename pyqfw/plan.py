"""compile: a model, a loss, an optimizer and a policy become a plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import dropwhile
from math import prod
from typing import Any

import numpy as np

from . import _arrays as arrays
from . import nn, optim, wire
from .data.standardize import Standardize
from .errors import QfwError, ShapeError
from .findings import Case, Finding, examine
from .formats import Float32
from .lower import Memory, Node, Op, Program, lower, plan_memory, trace
from .lower.ir import SECTIONS
from .policy import Policy
from .printout import memory_table, print_plan

MAX_BATCH = 1 << 24


@dataclass(frozen=True)
class Request:
    """What `compile` was asked for; `Session.recompile` changes parts of it."""

    model: nn.Module
    input_shape: tuple[int, ...]
    loss: nn.Loss | None
    optimizer: optim.Optimizer | None
    policy: Policy
    batch: int
    seed: int
    train: tuple[str, ...] | None = None
    micro_batches: int = 1
    preprocess: Standardize | None = None


@dataclass(eq=False, repr=False)
class Plan:
    """Operations over tensors with formats and addresses; every cost is known before it runs."""

    request: Request
    nodes: list[Node]
    program: Program
    layout: Memory
    findings: list[Finding] = field(default_factory=list)

    @property
    def arena_bytes(self) -> int:
        """RAM: exactly what the core asks for."""
        return self.layout.arena_bytes

    @property
    def flash_bytes(self) -> int:
        """The plan itself and the constants (frozen parameters)."""
        return len(self.to_bytes()) + self.layout.const_bytes

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a step, for one row."""
        return sum(op.macs for op in self.program.ops)

    @property
    def ops(self) -> list[Op]:
        """The operations in the order they run."""
        return self.program.ops

    @property
    def batch(self) -> int:
        return self.request.batch

    @property
    def micro_batches(self) -> int:
        return self.request.micro_batches

    @property
    def rows(self) -> int:
        """The most rows of a micro-batch, which wires and errors have room for."""
        return self.program.batch

    @property
    def seed(self) -> int:
        return self.request.seed

    @property
    def policy(self) -> Policy:
        return self.request.policy

    @property
    def may_fail_late(self) -> bool:
        """Whether an operation that refuses NaN and infinity comes after what lasts was written,
        but for running statistics: those come first."""
        known = set(self.program.statistics)
        late = dropwhile(
            lambda op: not any(t.lasts and t.name not in known for t in op.written), self.ops
        )
        makes_codes = ("convert", "accumulate")
        return any(
            op.kernel == "clip_factor"
            or (op.kernel in makes_codes and isinstance(op.used[1].fmt, Float32))
            for op in late
        )

    def section(self, name: str) -> range:
        """The numbers of a section's operations."""
        at = arrays.choice(name, "section", SECTIONS[:4])
        counts = [len(self.program.sections[s]) for s in SECTIONS[:4]]
        first = sum(counts[:at])
        return range(first, first + counts[at])

    def memory(self) -> dict[str, Any]:
        """Bytes by role, the peak and the operation where it is."""
        return memory_table(self.program, self.layout)

    def to_bytes(self) -> bytes:
        """What the core reads: docs/format.md."""
        optimizer = self.request.optimizer
        lr = 0.0 if optimizer is None else optimizer.lr
        return wire.to_bytes(self.program, self.layout, self.seed, lr)

    def to_json(self, indent: int | None = None) -> str:
        """Everything that is printed, and where every tensor lies."""
        rows = self.rows
        tensors = self.program.tensors
        numbers = {t: i for i, t in enumerate(tensors)}
        asked = {name: getattr(self.request, name) for name in ("preprocess", "loss", "optimizer")}
        content = {
            "batch": self.batch,
            "micro_batches": self.micro_batches,
            "seed": self.seed,
            "input_shape": list(self.request.input_shape),
            **{name: None if v is None else repr(v) for name, v in asked.items()},
            "policy": repr(self.policy),
            "layers": [
                {
                    "path": node.path,
                    "layer": repr(node.layer),
                    "out_shape": list(node.out_shape),
                    "learns": node.learns,
                }
                for node in self.nodes
            ],
            "arena_bytes": self.arena_bytes,
            "flash_bytes": self.flash_bytes,
            "macs": self.macs,
            "memory": self.memory(),
            "findings": [asdict(f) for f in self.findings],
            "tensors": [
                {
                    "name": t.name,
                    "role": t.role,
                    "space": t.space,
                    "format": t.told,
                    "shape": list(t.shape),
                    "rows": t.rows,
                    "bytes": t.nbytes(rows),
                    "offsets": list(self.layout.of(t)),  # codes, scales, zero points, absmax
                }
                for t in tensors
            ],
            "sections": {
                name: [
                    {
                        "kernel": op.kernel,
                        "layer": op.layer,
                        "tensors": [None if t is None else numbers[t] for t in op.places],
                        "params": {str(i): value for i, value in op.params.items()},
                        "flags": op.flags,
                        "window": None if op.window is None else op.window._asdict(),
                        "pool": None if op.pool is None else op.pool._asdict(),
                        "macs": op.macs,
                        "note": op.note,
                    }
                    for op in self.program.sections[name]
                ]
                for name in SECTIONS
            },
        }
        return json.dumps(content, indent=indent)

    def __str__(self) -> str:
        return print_plan(self)

    def __repr__(self) -> str:
        r = self.request
        return f"<Plan {len(self.ops)} operations, batch {r.batch}, {self.arena_bytes} bytes>"


def compile(
    model: nn.Module,
    *,
    input_shape: int | Sequence[int],
    loss: nn.Loss | None = None,
    optimizer: optim.Optimizer | None = None,
    policy: Policy | None = None,
    batch: int = 1,
    micro_batches: int = 1,
    preprocess: Standardize | None = None,
    seed: int = 0,
) -> Plan:
    """A plan for steps of up to `batch` rows; without a loss, for inference alone.

    `input_shape` is without the batch axis. The same seed gives the same float initial weights
    under every policy. With `micro_batches` a step's rows are run so many parts at a time, and
    memory is for ceil(batch / micro_batches) rows. `preprocess`, a `q.data.Standardize`, is the
    plan's first operation: the net takes rows as they were recorded.
    """
    settings: Any = (input_shape, loss, optimizer, policy, batch, seed)
    settings = (*settings, None, micro_batches, preprocess)
    return build(Request(model, *settings))


def build(request: Request, watching: bool = False) -> Plan:
    """The plan of a request, which is checked.

    `watching`: with dynamic ranges instead of hindsight ones, to find the first gains of those.
    """
    request = _checked(request)
    nodes = trace(request.model, request.input_shape, request.policy, request.train)
    if request.policy.input.range == "hindsight":
        raise QfwError(
            f"input={request.policy.input!r}: a hindsight range follows the scale of what comes "
            f'in, and the input has none; choose range="dynamic" or a number'
        )
    for node in nodes:
        _check_fused(node, request)
    if request.optimizer is not None:
        optim.check_names(request.optimizer, _parameters(nodes))
    parts = request.micro_batches
    given = (request.input_shape, request.policy, request.loss, request.optimizer)
    program = lower(nodes, *given, -(-request.batch // parts), parts, watching, request.preprocess)
    memory = plan_memory(program)
    if memory.arena_bytes >= 2**31 or memory.const_bytes >= 2**31:
        raise QfwError(f"the plan needs {memory.arena_bytes} bytes of arena; 2^31 - 1 is the most")
    findings = examine(Case(request, nodes, program), at_compile=True)
    return Plan(request, nodes, program, memory, findings)


def _parameters(nodes: list[Node]) -> list[str]:
    return [f"{node.path}.{p.name}" for node in nodes for p in node.layer.parameters()]


def _checked(r: Request) -> Request:
    """The request with every field of its type and in its range."""
    policy = Policy.float32() if r.policy is None else r.policy
    shape = _shape(r.input_shape)
    batch = arrays.integer(r.batch, "batch", 1, MAX_BATCH)
    if r.optimizer is not None and r.loss is None:
        raise QfwError("an optimizer needs a loss: pass loss=, or leave optimizer out")
    preprocess = r.preprocess
    if preprocess is not None:
        _typed(preprocess, Standardize, "preprocess", "a q.data.Standardize").check(shape)
    return Request(
        _typed(r.model, nn.Module, "model", "a layer or nn.Sequential"),
        shape,
        None if r.loss is None else _typed(r.loss, nn.Loss, "loss", "nn.CrossEntropyLoss()"),
        None if r.optimizer is None else _optimizer(r.optimizer),
        _typed(policy, Policy, "policy", "a q.Policy such as Policy.int8()"),
        batch,
        arrays.word(r.seed, "seed"),
        r.train,
        _micro_batches(r.micro_batches, batch),
        preprocess,
    )


def _optimizer(value: Any) -> Any:
    return _typed(value, optim.Optimizer, "optimizer", "optim.SGD() or optim.AdamW()")


def _micro_batches(value: object, batch: int) -> int:
    """No more than there are rows; so many full ones are the most rows that the core counts."""
    parts = arrays.integer(value, "micro_batches", 1, MAX_BATCH)
    if parts > batch or -(-batch // parts) * parts > MAX_BATCH:
        raise QfwError(f"micro_batches must be 1..{batch}, at most a batch of {batch}, not {parts}")
    return parts


def _typed(value: Any, kind: type, name: str, legal: str) -> Any:
    if not isinstance(value, kind):
        raise QfwError(f"{name} must be {legal}, not {value!r}")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    sizes = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in sizes)
    if not sizes or not whole or min(sizes) < 1 or prod(map(int, sizes)) > 2**30:
        raise ShapeError(
            f"input_shape must be a tuple of sizes >= 1 without the batch axis, not {value!r}"
        )
    return tuple(map(int, sizes))


def _check_fused(node: Node, request: Request) -> None:
    if request.loss is None or not node.learns:
        return
    if node.policy.grads != "fused":
        return
    if request.optimizer is None:
        raise QfwError(f"layer '{node.path}': grads=\"fused\" needs an optimizer")
    if request.optimizer.max_grad_norm is not None:
        raise QfwError(
            f"layer '{node.path}': grads=\"fused\" moves each parameter before the other gradients "
            f"are known, so max_grad_norm cannot hold their norm: store the gradients, or leave "
            f"max_grad_norm out"
        )
    if request.micro_batches > 1:
        raise QfwError(
            f"layer '{node.path}': grads=\"fused\" moves parameters at every backward, so there is "
            f"nothing to add {request.micro_batches} micro-batches in; store the gradients "
            f"(grads=Float32() or a packed format), or use micro_batches=1"
        )
