"""A plan as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .lower.ir import ROLES, SECTIONS, Op, Program, Tensor
from .lower.memory import NET_BYTES, Memory

if TYPE_CHECKING:
    from .plan import Plan

GROUPS = {
    "parameters": "parameter",
    "gradients": "gradient",
    "state": "state",
    "wires": "wire",
    "errors": "error",
    "scratch": "scratch",
}


def memory_table(program: Program, memory: Memory) -> dict[str, Any]:
    """Bytes by role. Wires, errors and scratch share memory: their sums exceed what they take."""
    sums = dict.fromkeys(GROUPS, 0)
    const = 0
    for t in program.tensors:
        name = next(n for n, role in GROUPS.items() if role == t.role)
        if t.space == "arena":
            sums[name] += t.nbytes(program.batch)
        elif t.space == "const":
            const += t.nbytes(program.batch)
    ops = program.all_ops
    at = min(memory.peak_op, len(ops) - 1)
    return {
        **sums,
        "core": NET_BYTES,
        "lasting": memory.persistent_bytes,
        "transient": memory.arena_bytes - memory.persistent_bytes,
        "peak": memory.peak,
        "peak_at": f"{at}: {ops[at].kernel} ({ops[at].layer})",
        "arena": memory.arena_bytes,
        "const": const,
    }


def print_plan(plan: Plan) -> str:
    """Operations with formats, bytes, MACs and headroom, then the memory table."""
    r = plan.request
    aim = r.optimizer or ("no optimizer" if r.loss else "inference alone")
    parts = f" in {r.micro_batches} micro-batches of {plan.rows}" if r.micro_batches > 1 else ""
    lines = [f"plan: batch {r.batch}{parts}, seed {r.seed}, {r.policy!r}, {aim}"]
    rows = [("", "operation", "layer", "writes", "bytes", "MACs/row", "")]
    number = 0
    for section in SECTIONS:
        ops = plan.program.sections[section]
        for i, op in enumerate(ops):
            rows.append((f"{number:>3}", *_op_line(op, plan.rows)))
            if i == 0:
                rows[-1] = (f"{section}\n{rows[-1][0]}", *rows[-1][1:])
            number += 1
    lines += _table(rows)
    memory = plan.memory()
    lines += ["", "memory, bytes"]
    lines += [f"  {name:<12}{memory[name]:>10}" for name in GROUPS]
    lines.append(f"  {'core':<12}{memory['core']:>10}")
    lines.append(
        f"  {'arena':<12}{memory['arena']:>10}   {memory['lasting']} last, {memory['transient']} "
        f"are shared by wires, errors and scratch"
    )
    lines.append(f"  {'peak':<12}{memory['peak']:>10}   live at operation {memory['peak_at']}")
    if memory["const"]:
        lines.append(f"  {'const':<12}{memory['const']:>10}   frozen parameters and tables")
    lines.append(f"MACs a row: {plan.macs}; flash: {plan.flash_bytes} bytes")
    lines += map(str, plan.findings)
    return "\n".join(lines)


def _op_line(op: Op, batch: int) -> tuple[str, str, str, str, str, str]:
    target = op.places[0]
    assert target is not None
    window = "" if op.window is None else str(op.window)
    window += "" if op.pool is None else f", pool {op.pool}"
    note = ", ".join(x for x in (window, _epilogue(op), op.note) if x)
    macs = str(op.macs) if op.macs else ""
    return op.kernel, op.layer, _described(target), str(target.nbytes(batch)), macs, note


def _described(t: Tensor) -> str:
    spread = "" if t.spread in ("format", "tensor") else f" by {t.spread}"
    shape = "x".join((["n"] if t.rows else []) + [str(n) for n in t.shape]) or "1"
    return f"{t.name} {shape} {t.told}{spread}"


def _epilogue(op: Op) -> str:
    if not op.kernel.startswith("product"):
        return ""
    parts = ["bias"] * (op.places[3] is not None) + ["ReLU"] * (op.flags & 1)
    parts += ["mask"] * (op.places[4] is not None and op.pool is None)
    parts += ["requantize"] * (len(op.places) > 6)
    return " + ".join(parts) + (", recomputed" if op.recomputed else "")


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(r[k].split("\n")[-1]) for r in rows) for k in range(len(rows[0]))]
    right = {4, 5}
    lines = []
    for row in rows:
        *heads, first = row[0].split("\n")
        lines += heads
        cells = [first, *row[1:]]
        padded = [
            c.rjust(w) if k in right else c.ljust(w)
            for k, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


assert set(GROUPS.values()) == set(ROLES)
