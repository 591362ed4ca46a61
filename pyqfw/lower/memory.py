"""Where tensors lie: lifetimes over the operations, then offsets."""

from __future__ import annotations

from dataclasses import dataclass

from .ir import ALIGN, Program, Tensor

NET_BYTES = 128


@dataclass(frozen=True)
class Lifetime:
    """A tensor is needed from operation `first` to operation `last`."""

    tensor: Tensor
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Memory:
    """Offsets of every tensor's parts (codes, scales, zero points, absmax) in its space."""

    offsets: dict[int, tuple[int, int, int, int]]
    lifetimes: list[Lifetime]
    arena_bytes: int
    const_bytes: int
    persistent_bytes: int
    peak: int  # bytes that are live at the busiest operation
    peak_op: int

    def of(self, t: Tensor) -> tuple[int, int, int, int]:
        return self.offsets[id(t)]


def lifetimes(program: Program) -> list[Lifetime]:
    """First and last use of everything that does not last."""
    spans: dict[int, tuple[Tensor, int, int]] = {}
    for i, op in enumerate(program.all_ops):
        for t in op.used:
            if t.space == "arena" and not t.lasts:
                first = spans[id(t)][1] if id(t) in spans else i
                spans[id(t)] = (t, first, i)
    if program.loss is not None:  # read by the caller at the end
        t, first, _ = spans[id(program.loss)]
        spans[id(t)] = (t, first, len(program.ops))
    return [Lifetime(*span) for span in spans.values()]


def plan_memory(program: Program) -> Memory:
    """What lasts stands first; the rest, largest first, at the lowest offset that is free for as
    long as it lives."""
    batch = program.batch
    offsets: dict[int, tuple[int, int, int, int]] = {}
    ends = {"arena": NET_BYTES, "const": 0, "io": 0}
    for t in program.tensors:
        if t.space == "io":
            offsets[id(t)] = (t.slot, 0, 0, 0)
        elif t.lasts:
            offsets[id(t)] = _spread(t, batch, ends[t.space])
            ends[t.space] += t.nbytes(batch)
    spans = lifetimes(program)
    placed: list[tuple[int, int, Lifetime]] = []
    top = ends["arena"]
    for span in sorted(spans, key=lambda s: (-s.tensor.nbytes(batch), s.first)):
        size = span.tensor.nbytes(batch)
        at = ends["arena"]
        for begin, end, other in sorted(placed, key=lambda p: p[0]):
            if span.meets(other) and at < end and begin < at + size:
                at = end
        placed.append((at, at + size, span))
        offsets[id(span.tensor)] = _spread(span.tensor, batch, at)
        top = max(top, at + size)
    peak, peak_op = _peak(spans, batch, len(program.all_ops))
    lasting = ends["arena"]
    return Memory(offsets, spans, top, ends["const"], lasting, lasting + peak, peak_op)


def _spread(t: Tensor, batch: int, at: int) -> tuple[int, int, int, int]:
    """Offsets of the parts of a tensor that begins at `at`; 0 for a part it has not."""
    found = []
    for size in t.parts(batch):
        found.append(at if size else 0)
        at += -(-size // ALIGN) * ALIGN
    return (found[0], found[1], found[2], found[3])


def _peak(spans: list[Lifetime], batch: int, ops: int) -> tuple[int, int]:
    live = [0] * (ops + 1)
    for s in spans:
        for i in range(s.first, s.last + 1):
            live[i] += s.tensor.nbytes(batch)
    most = max(live, default=0)
    return most, live.index(most) if live else 0
