"""The order of operations, where it does not matter for the numbers: less memory at a time."""

from __future__ import annotations

from .ir import ACCUMULATOR, Op, Program


def hoist(program: Program) -> None:
    """Sums that become codes do so at once, not when the codes are first read."""
    for ops in program.sections.values():
        for op in [op for op in ops if op.kernel == "convert"]:
            src, dst = op.places[1], op.places[0]
            assert src is not None
            assert dst is not None
            if src.fmt is ACCUMULATOR and dst.nbytes(1) < src.nbytes(1):
                at = ops.index(op)
                first = _after(ops, op, at)
                if not any(src in other.used for other in ops[at + 1 :]):
                    ops.insert(first, ops.pop(at))


def _after(ops: list[Op], op: Op, at: int) -> int:
    """The first place where all that an operation reads is there, and nothing it writes is used."""
    own, written = set(op.used), set(op.written)
    while at > 0:
        before = ops[at - 1]
        meets = any(t in own for t in before.written) or any(t in written for t in before.used)
        if meets:
            break
        at -= 1
    return at
