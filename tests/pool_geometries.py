"""Geometries of pools: every small one of one axis, and some of two."""

from __future__ import annotations

from itertools import product

import numpy as np
from oracle_pool import Geometry

CHANNELS = (1, 2, 3, 5, 8, 16, 21, 22, 31, 32, 33, 63, 64, 65, 70, 130)  # around pieces of 64


def is_valid(g: Geometry, largest: bool) -> bool:
    """Whether something comes out, padding is at most half the kernel and windows meet pixels."""
    half = all(p <= k // 2 for p, k in zip(g.padding, g.kernel, strict=True))
    met = not largest or all(list(g.taps_at(at)) for at in g.positions())
    return half and min(g.out) >= 1 and met


def lines(largest: bool) -> list[Geometry]:
    """Along one axis."""
    found = []
    for size, k, s, p, ceil in product((1, 2, 5, 9), (1, 2, 3, 5), (1, 2, 3, 7), (0, 1, 2), (0, 1)):
        for more in (1, 2, 3) if largest else (True, False):
            given = {"dilation": (1, more)} if largest else {"count_include_pad": bool(more)}
            g = Geometry((1, size), (1, k), (1, s), (0, p), ceil_mode=bool(ceil), **given)  # type: ignore[arg-type]
            found += [g] if is_valid(g, largest) else []
    return found


def images(largest: bool, count: int) -> list[Geometry]:
    """Of two axes, drawn at random."""
    rng, found = np.random.default_rng(35), []

    def pair(low: int, high: int) -> tuple[int, int]:
        a, b = rng.integers(low, high, 2).tolist()
        return int(a), int(b)

    while len(found) < count:
        sizes = pair(1, 9), pair(1, 5), pair(1, 5), pair(0, 3)
        more = {"dilation": pair(1, 4)} if largest else {"count_include_pad": bool(rng.integers(2))}
        g = Geometry(*sizes, ceil_mode=bool(rng.integers(2)), **more)  # type: ignore[arg-type]
        if not largest and rng.integers(4) == 0:
            g = Geometry(*sizes, ceil_mode=g.ceil_mode, divisor=int(rng.integers(1, 12)))
        found += [g] if is_valid(g, largest) else []
    return found


def adaptive() -> list[Geometry]:
    """Windows that part an image, evenly and not, and more of them than there are pixels."""
    along = [(1, 1), (4, 1), (4, 2), (5, 2), (7, 3), (7, 5), (3, 7), (2, 2), (6, 4), (9, 1)]
    pairs = [((1, 1), axis) for axis in along] + list(zip(along, reversed(along), strict=True))
    return [Geometry((h[0], w[0]), output=(h[1], w[1])) for h, w in pairs]
