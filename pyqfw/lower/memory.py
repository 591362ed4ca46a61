"""Where tensors lie: lifetimes over the operations, then offsets."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .ir import ALIGN, Program, Tensor

NET_BYTES = 128
ROUNDS = 16


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

    offsets: dict[Tensor, tuple[int, int, int, int]]
    lifetimes: list[Lifetime]
    arena_bytes: int
    const_bytes: int
    persistent_bytes: int
    peak: int  # bytes that are live at the busiest operation
    peak_op: int

    def of(self, t: Tensor) -> tuple[int, int, int, int]:
        return self.offsets[t]


def lifetimes(program: Program) -> list[Lifetime]:
    """First and last use of everything that does not last."""
    spans: dict[Tensor, tuple[Tensor, int, int]] = {}
    for i, op in enumerate(program.all_ops):
        for t in op.used:
            if t.space == "arena" and not t.lasts:
                first = spans[t][1] if t in spans else i
                spans[t] = (t, first, i)
    if program.loss is not None:  # read by the caller at the end
        t, first, _ = spans[program.loss]
        spans[t] = (t, first, len(program.ops))
    return [Lifetime(*span) for span in spans.values()]


def plan_memory(program: Program) -> Memory:
    """What lasts stands first; the rest, in some order, at the lowest offset that is free for as
    long as it lives. While that takes more than is live at once, what came to lie highest is placed
    before all others, then another order is tried, and the best of all is kept."""
    batch = program.batch
    offsets: dict[Tensor, tuple[int, int, int, int]] = {}
    ends = {"arena": NET_BYTES, "const": 0, "io": 0}
    for t in program.tensors:
        if t.space == "io":
            offsets[t] = (t.slot, 0, 0, 0)
        elif t.lasts:
            offsets[t] = _spread(t, batch, ends[t.space])
            ends[t.space] += t.nbytes(batch)
    spans = lifetimes(program)
    takers, lasting = _takers(program, spans), ends["arena"]
    best = _best_placed(spans, takers, batch, lasting, len(program.all_ops))
    peak, peak_op = _peak(spans, best.taking, batch, len(program.all_ops))
    offsets |= {s.tensor: _spread(s.tensor, batch, best.at[s.tensor]) for s in spans}
    return Memory(offsets, spans, best.top, ends["const"], lasting, lasting + peak, peak_op)


def _best_placed(
    spans: list[Lifetime], takers: dict[Tensor, Tensor], batch: int, begin: int, ops: int
) -> _Placed:
    """The smallest of what some orders give: largest first, longest first, both."""
    sizes = {s.tensor: s.tensor.nbytes(batch) for s in spans}
    orders: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
        lambda s: (-sizes[s.tensor], s.first),
        lambda s: (s.first - s.last, -sizes[s.tensor]),
        lambda s: ((s.first - s.last - 1) * sizes[s.tensor], s.first),
    )
    best = None
    for key in orders:
        order = sorted(spans, key=key)
        for _ in range(ROUNDS):
            found = _placed(order, takers, sizes, begin)
            best = found if best is None or found.top < best.top else best
            if not order or best.top == begin + _peak(spans, best.taking, batch, ops)[0]:
                return best
            highest = max(order, key=lambda s: found.at[s.tensor] + sizes[s.tensor])
            order = [highest, *(s for s in order if s is not highest)]
    assert best is not None
    return best


def live_bytes(program: Program) -> list[int]:
    """Bytes that do not last and are live at each operation, what can be taken over being so."""
    spans = lifetimes(program)
    taking = set(_takers(program, spans))
    return _live(spans, taking, program.batch, len(program.all_ops))


class _Placed(NamedTuple):
    """Offsets of tensors, their end, and which tensors took the memory of others."""

    at: dict[Tensor, int]
    top: int
    taking: set[Tensor]


def _placed(
    order: list[Lifetime], takers: dict[Tensor, Tensor], sizes: dict[Tensor, int], begin: int
) -> _Placed:
    """Each at the lowest offset that is free while it lives, or where what it takes over is."""
    placed: list[tuple[int, int, Lifetime]] = []  # by where they begin
    found = _Placed({}, begin, set())
    for span in order:
        size, taken = sizes[span.tensor], takers.get(span.tensor)
        at = None if taken is None else found.at.get(taken)
        if at is not None and _is_free(span, at, size, taken, placed):
            found.taking.add(span.tensor)
        else:
            at = begin
            for start, end, other in placed:
                if span.meets(other) and at < end and start < at + size:
                    at = end
        insort(placed, (at, at + size, span), key=lambda p: p[0])
        found.at[span.tensor] = at
        found = found._replace(top=max(found.top, at + size))
    return found


def _takers(program: Program, spans: list[Lifetime]) -> dict[Tensor, Tensor]:
    """Results that can take the memory of what they are made of: that is needed for
    the last time there, and its codes have room for them, scales and all."""
    if program.watched:  # sums are looked at after they were converted
        return {}
    lives: dict[Tensor | None, Lifetime] = {span.tensor: span for span in spans}
    found: dict[Tensor, Tensor] = {}
    for i, op in enumerate(program.all_ops):
        old = None if op.over is None else lives.get(op.places[op.over])
        new = lives.get(op.places[0])
        if old is None or new is None or old.last != i or new.first != i:
            continue
        if new.tensor.nbytes(program.batch) <= old.tensor.parts(program.batch)[0]:
            found[new.tensor] = old.tensor
    return found


def _is_free(
    span: Lifetime,
    at: int,
    size: int,
    taken: Tensor | None,
    placed: list[tuple[int, int, Lifetime]],
) -> bool:
    """Whether nothing but what is taken over lies there for as long as that is needed."""
    return not any(
        span.meets(other) and at < end and begin < at + size
        for begin, end, other in placed
        if other.tensor is not taken
    )


def _spread(t: Tensor, batch: int, at: int) -> tuple[int, int, int, int]:
    """Offsets of the parts of a tensor that begins at `at`; 0 for a part it has not."""
    found = []
    for size in t.parts(batch):
        found.append(at if size else 0)
        at += -(-size // ALIGN) * ALIGN
    return (found[0], found[1], found[2], found[3])


def _live(spans: list[Lifetime], taking: set[Tensor], batch: int, ops: int) -> list[int]:
    live = [0] * (ops + 1)
    for s in spans:
        size = s.tensor.nbytes(batch)
        for i in range(s.first + (s.tensor in taking), s.last + 1):
            live[i] += size
    return live


def _peak(spans: list[Lifetime], taking: set[Tensor], batch: int, ops: int) -> tuple[int, int]:
    live = _live(spans, taking, batch, ops)
    most = max(live, default=0)
    return most, live.index(most) if live else 0
