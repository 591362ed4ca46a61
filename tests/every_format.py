"""Every legal format, and shapes to try them on."""

import itertools

from pyqfw.formats import Asym, Float32, Sym, SymInt32

WIDTHS = {Sym: range(2, 17), Asym: range(1, 17)}
CONTAINERS = ("packed", 8, 16, 32)
GRANULARITIES = (
    {},
    {"axis": 0},
    {"axis": 1},
    {"axis": -1},
    {"axis": "row"},
    {"group": 1},
    {"group": 3},
    {"group": 32},
)
SCALES = ("float", "pow2")
RANGES = ("dynamic", "hindsight", 1, 0.1, 2.0**-126, 3.4028234663852886e38)
ROUNDINGS = ("half_away", "half_even", "stochastic")
SHAPES = (
    (),
    (0,),
    (1,),
    (7,),
    (64,),
    (0, 4),
    (4, 0),
    (3, 5),
    (5, 3),
    (2, 3, 4),
    (2, 0, 4),
    (3, 2, 2, 5),
)


def every_format():
    """Every legal combination of every field, a few ranges standing for all numbers."""
    yield Float32()
    yield from (SymInt32(b) for b in (*range(2, 17), 32))
    for kind, widths in WIDTHS.items():
        for bits, box, grain, scale, rng, rounding in itertools.product(
            widths, CONTAINERS, GRANULARITIES, SCALES, RANGES, ROUNDINGS
        ):
            if box == "packed" or box >= bits:
                rules = {"scale": scale, "range": rng, "rounding": rounding}
                yield kind(bits, container=box, **grain, **rules)


EVERY = list(every_format())
