"""How far a sum of products is from leaving int32: docs/numerics.md section 13."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Headroom:
    """The proof for one reduction. `bits`: of int32, left over (below 0: it is split)."""

    terms: int
    chunk: int
    shift: int
    bits: float
    split: bool

    def __str__(self) -> str:
        if self.split:
            return f"split: int32 chunks of {self.chunk}, sum >> {self.shift}"
        return f"headroom {self.bits:.1f} bits"


def largest(bits: int) -> int:
    """The largest magnitude of a Sym code."""
    return int(2 ** (bits - 1)) - 1


def prove(terms: int, a: int, b: int, *, bias: bool = False) -> Headroom:
    """`terms` products of magnitudes up to a and b, and a bias where there is one."""
    limit = 2**30 - 1 if bias else INT32_MAX
    total = terms * a * b
    bits = log2(limit / total)
    if total <= limit:
        return Headroom(terms, terms, 0, bits, False)
    shift = 0
    while -(-total // 2**shift) > limit:
        shift += 1
    return Headroom(terms, max(1, min(terms, INT32_MAX // (a * b))), shift, bits, True)


def extra_bits(terms: int, bits: int, other: int, *, bias: bool = False) -> int:
    """F of `widen`: the largest of 0..7 that keeps 16 bits and needs no shift; 0 if none does."""
    fits = [
        f
        for f in range(8)
        if bits + f <= 16 and not prove(terms, largest(bits + f), other, bias=bias).split
    ]
    return max(fits, default=0)
