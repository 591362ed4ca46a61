"""Faults that the rules of BatchNorm and GroupNorm find, beside those of plan_rules.py."""

from __future__ import annotations

from plan_bytes import NO_ROWS, PARAMETER, ROWS_AXIS, ROWS_OUTER
from plan_cases import (
    BATCH,
    BATCH_NORM_BACK_F32,
    BATCH_NORM_BACK_S32,
    BATCH_NORM_F32,
    BATCH_NORM_S32,
    CONVERT,
    FOLD_F32,
    FOLD_NORM,
    FOLD_S32,
    FOLDED_SUMS,
    FOLLOWING,
    NORM_BACK_F32,
    NORM_BACK_S32,
    NORM_F32,
    NORM_S32,
    PRODUCT_S32,
    RANGED,
    N,
)
from plan_rules import ACC, DIFFER, HEADROOM, INF, NAN, NEGATIVE, SCALES, SUBNORMAL, Change

OTHER_SUMS = "other accumulators"
ONE_SCALE, RUNNING = "more than one scale", "running statistics"
# What operations know: flags, and params by number.
KNOWN: dict[int, tuple[int, set[int]]] = {
    CONVERT: (0, {0}),
    PRODUCT_S32: (7, {0, 1, 2, 3, 13}),
    NORM_S32: (1, {0, 1, 3, 4}),
    NORM_F32: (1, {1, 3, 4}),
    NORM_BACK_S32: (0, {0, 1, 2, 3, 4}),
    NORM_BACK_F32: (0, {1, 3, 4}),
    BATCH_NORM_S32: (3, {0, 1, 3, 5, 6}),
    BATCH_NORM_F32: (3, {1, 3, 5, 6}),
    BATCH_NORM_BACK_S32: (0, {0, 1, 2, 3}),
    BATCH_NORM_BACK_F32: (0, {1, 3}),
    FOLD_NORM: (0, {1}),
    FOLD_S32: (1, {3}),
    FOLD_F32: (1, {3}),
}
READY = (FOLD_NORM,)  # operations that read nothing but what lasts
NORMS = (BATCH_NORM_S32, BATCH_NORM_F32)
BACKS = (BATCH_NORM_BACK_S32, BATCH_NORM_BACK_F32)
SMALLER = {"axis": 2 * N - 1, "group": 2 * N - 1}

# kernel, place (or -1: params), what changes there, the rule
NORM_RULES: list[tuple[int, int, Change, str]] = [
    (RANGED, -1, {"p0": 2}, "gain"),
    (FOLLOWING, -1, {"p0": 1}, "gain"),  # relative to place 4, and to 1
    (CONVERT, -1, {"p0": 1}, "gain"),
    (PRODUCT_S32, 3, {"gone": True, "flags": 0}, ACC),  # columns, and nothing asks for them
    *((k, -1, {"p4": N + 1}, "groups") for k in (NORM_S32, NORM_F32, NORM_BACK_S32, NORM_BACK_F32)),
    (NORM_S32, -1, {"p4": 2**32 - 1}, "groups"),
    *((k, 0, SMALLER, DIFFER) for k in (BATCH_NORM_F32, BATCH_NORM_BACK_F32)),
    *((k, 1, SMALLER, DIFFER) for k in (*NORMS, *BACKS)),
    *((k, 2, SMALLER, DIFFER) for k in BACKS),
    *((k, 2, {"axis": N - 1, "group": N - 1}, DIFFER) for k in NORMS),
    *((k, 3, {"axis": N - 1, "group": N - 1}, DIFFER) for k in (*NORMS, *BACKS)),
    *((k, -1, {"p3": 3}, DIFFER) for k in (*NORMS, *BACKS)),
    *((k, 1, {"rows": NO_ROWS, "axis": 2 * N * BATCH}, DIFFER) for k in (*NORMS, *BACKS)),
    *(
        (k, -1, {"p1": bits}, "eps")
        for k in (*NORMS, *BACKS, FOLD_NORM)
        for bits in (NAN, NEGATIVE)
    ),
    *((k, -1, {"p5": bits}, "momentum") for k in NORMS for bits in (SUBNORMAL, NEGATIVE, INF, NAN)),
    *((k, -1, {"p6": NAN}, "momentum") for k in NORMS),
    *((k, place, {"gone": True}, RUNNING) for k in NORMS for place in (5, 6, 7)),
    *((k, place, {"role": PARAMETER}, RUNNING) for k in NORMS for place in (5, 6, 7)),
    *((k, 5, {"axis": N - 1, "group": N - 1}, RUNNING) for k in NORMS),
    *((k, 7, {"axis": 2, "group": 2}, RUNNING) for k in NORMS),
    *((k, 1, {"rows": ROWS_OUTER}, ONE_SCALE) for k in (BATCH_NORM_S32, BATCH_NORM_BACK_S32)),
    (BATCH_NORM_BACK_S32, 2, {"rows": ROWS_OUTER}, ONE_SCALE),
    (BATCH_NORM_S32, 0, {"group": N}, ACC),
    (
        BATCH_NORM_S32,
        0,
        {"rows": ROWS_AXIS, "outer": 1, "axis": 2 * N, "group": 2 * N, "shared": 0},
        ACC,
    ),
    (BATCH_NORM_BACK_S32, 0, {"shared": 0}, ACC),
    (BATCH_NORM_S32, -1, {"p0": 25}, HEADROOM),
    *((BATCH_NORM_BACK_S32, -1, {"p0": f}, HEADROOM) for f in (5, 17)),
    (BATCH_NORM_BACK_S32, -1, {"p2": 32}, HEADROOM),
    (BATCH_NORM_S32, 4, {"axis": 5 * N - 1}, "scratch"),
    (BATCH_NORM_S32, 4, {"gone": True}, "scratch"),
    *((FOLD_NORM, i, {"axis": N - 1, "group": N - 1}, DIFFER) for i in range(6)),
    *((k, 1, {"axis": N - 1, "group": N - 1}, DIFFER) for k in (FOLD_S32, FOLD_F32)),
    *(
        (k, i, {"axis": N - 1, "group": N - 1}, DIFFER)
        for k in (FOLD_S32, FOLD_F32)
        for i in (2, 3)
    ),
    *((k, -1, {"p3": 3}, DIFFER) for k in (FOLD_S32, FOLD_F32)),
    (FOLD_S32, 1, {"rows": ROWS_OUTER, "group": 1}, SCALES),
    (FOLD_S32, 1, {"rows": ROWS_OUTER}, ACC),  # then every element has a scale
    (FOLD_S32, 0, {"group": N}, ACC),
    (FOLDED_SUMS, 0, {"rows": ROWS_AXIS, "group": N, "shared": 0}, ACC),
    (FOLD_S32, 4, {"axis": 5 * N - 1}, "scratch"),
    (FOLD_S32, 4, {"gone": True}, "scratch"),
]
