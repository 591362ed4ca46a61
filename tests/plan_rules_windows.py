"""Faults of operations that go over an image, of joins, and of what moves codes."""

from __future__ import annotations

from plan_bytes import NO_ROWS, ROWS_OUTER
from plan_cases import (
    BATCH,
    GATHER,
    GATHER_F32,
    IMAGE,
    JOIN_F32,
    JOIN_S32,
    KERNEL,
    MADE,
    OVER_IMAGE,
    OVER_IMAGE_ADAMW,
    OVER_IMAGE_F32,
    OVER_IMAGE_FUSED,
    PART,
    PIXELS,
    POSITIONS,
    SCATTER,
    TAPS,
    TRANSPOSE,
    K,
    N,
)
from plan_rules import (
    ALONG,
    DIFFER,
    GRADIENT_SIZES,
    HEADROOM,
    PRODUCT,
    Change,
)

WINDOW_FIELDS = -2  # a place: the window's fields change
ALONG_B, FORMATS, ONE = "b has scales along the sum", "the formats differ", "more than one scale"
SPLIT_TERMS = BATCH * POSITIONS - 1
SIZES = ("in_h", "in_w", "out_h", "out_w", "kernel_h", "kernel_w")


def each(kernels: tuple[int, ...], place: int, change: Change, rule: str) -> list[Rule]:
    return [(kernel, place, change, rule) for kernel in kernels]


Rule = tuple[int, int, Change, str]
PRODUCTS, GRADIENTS = (GATHER, SCATTER, GATHER_F32), (OVER_IMAGE, OVER_IMAGE_F32, OVER_IMAGE_FUSED)
GRADIENTS = (*GRADIENTS, OVER_IMAGE_ADAMW)
PATCHES = {OVER_IMAGE: 5, OVER_IMAGE_F32: 4, OVER_IMAGE_FUSED: 6, OVER_IMAGE_ADAMW: 7}

# kernel, place (-1: params, -2: the window), what changes there, the rule
WINDOW_RULES: list[Rule] = [
    # every size of the window is one of the operands'
    *(r for name in SIZES for r in each(PRODUCTS, WINDOW_FIELDS, {name: 3}, PRODUCT)),
    *(r for name in SIZES for r in each(GRADIENTS, WINDOW_FIELDS, {name: 3}, GRADIENT_SIZES)),
    *each(PRODUCTS, WINDOW_FIELDS, {"groups": 3}, PRODUCT),
    *each(PRODUCTS, WINDOW_FIELDS, {"groups": 65535}, PRODUCT),
    *each(GRADIENTS, WINDOW_FIELDS, {"groups": 3}, GRADIENT_SIZES),
    *each(GRADIENTS, WINDOW_FIELDS, {"groups": 65535}, GRADIENT_SIZES),
    *each(PRODUCTS, WINDOW_FIELDS, {"in_w": 2**30}, PRODUCT),
    *each(PRODUCTS, WINDOW_FIELDS, {"out_w": 2**29}, PRODUCT),
    *each(GRADIENTS, WINDOW_FIELDS, {"in_w": 2**30}, GRADIENT_SIZES),
    *each(GRADIENTS, WINDOW_FIELDS, {"out_w": 2**29}, GRADIENT_SIZES),
    *each(PRODUCTS, WINDOW_FIELDS, {"kernel_h": 2**15, "kernel_w": 2**15}, PRODUCT),
    *each(GRADIENTS, WINDOW_FIELDS, {"kernel_h": 2**15, "kernel_w": 2**15}, GRADIENT_SIZES),
    *each(PRODUCTS, -1, {"p3": 3}, PRODUCT),
    *each(PRODUCTS, -1, {"p3": 0}, PRODUCT),
    *each(GRADIENTS, -1, {"p11": 0}, GRADIENT_SIZES),
    *each(GRADIENTS, -1, {"p11": 1}, GRADIENT_SIZES),
    # operands of other sizes
    *each((GATHER, GATHER_F32), 1, {"axis": IMAGE - 1, "group": IMAGE - 1}, PRODUCT),
    *each((GATHER, GATHER_F32), 1, {"axis": PIXELS - 1, "group": PIXELS - 1}, PRODUCT),
    *each(PRODUCTS, 2, {"axis": KERNEL - 1, "group": KERNEL - 1}, PRODUCT),
    *each(PRODUCTS, 2, {"axis": KERNEL + 1, "group": KERNEL + 1}, PRODUCT),
    (SCATTER, 1, {"axis": MADE - 1, "group": MADE - 1}, PRODUCT),
    (SCATTER, 0, {"axis": IMAGE - 1, "group": IMAGE - 1}, PRODUCT),
    *each(GRADIENTS, 2, {"axis": IMAGE - 1, "group": IMAGE - 1}, GRADIENT_SIZES),
    *each(GRADIENTS, 2, {"axis": PIXELS - 1, "group": PIXELS - 1}, GRADIENT_SIZES),
    *each(GRADIENTS, 1, {"axis": MADE - 1, "group": MADE - 1}, GRADIENT_SIZES),
    *each(GRADIENTS, 2, {"gone": True}, GRADIENT_SIZES),
    *each(GRADIENTS, -1, {"flags": 32}, GRADIENT_SIZES),
    # scales
    (GATHER, 1, {"rows": ROWS_OUTER}, "a has more than a scale a row"),
    (
        GATHER,
        1,
        {"rows": ROWS_OUTER, "outer": PIXELS, "axis": N, "group": N},
        "a has more than a scale a row",
    ),
    (SCATTER, 1, {"rows": ROWS_OUTER}, "a has more than a scale a row"),
    (GATHER, 2, {"group": 2}, ALONG_B),
    (GATHER, 2, {"outer": TAPS * N, "axis": N, "group": 1, "shared": 1}, ALONG_B),
    (SCATTER, 2, {"group": KERNEL // N}, ALONG_B),
    (SCATTER, 2, {"group": 2}, ALONG_B),
    (OVER_IMAGE, 1, {"rows": ROWS_OUTER}, ALONG),
    (OVER_IMAGE, 2, {"rows": ROWS_OUTER}, ALONG),
    (OVER_IMAGE, -1, {"flags": 4}, ALONG),
    # room for a patch, and for sums in 64 bits where they are split
    (GATHER, 5, {"axis": 15 + TAPS * N}, "scratch"),
    (GATHER, 5, {"gone": True}, "scratch"),
    (GATHER_F32, 5, {"axis": 4 * TAPS * N - 1}, "scratch"),
    (GATHER_F32, 5, {"gone": True}, "scratch"),
    *((kernel, PATCHES[kernel], {"axis": TAPS * N - 1}, "scratch") for kernel in GRADIENTS),
    *((kernel, PATCHES[kernel], {"gone": True}, "scratch") for kernel in GRADIENTS),
    *each((OVER_IMAGE, OVER_IMAGE_FUSED), -1, {"p9": SPLIT_TERMS}, "scratch"),
    (OVER_IMAGE, -1, {"p10": 1}, "scratch"),
    (GATHER, -1, {"p1": 0}, HEADROOM),
    (SCATTER, -1, {"p1": 2**31 // 127**2 + 1}, HEADROOM),
    (OVER_IMAGE, -1, {"p9": 2**31 // 127**2 + 1}, HEADROOM),
    # joins
    *each((JOIN_S32, JOIN_F32), 3, {"axis": K - 1, "group": K - 1}, DIFFER),
    *each((JOIN_S32, JOIN_F32), 0, {"axis": K - 1, "group": K - 1}, DIFFER),
    *each((JOIN_S32, JOIN_F32), 7, {"axis": K * BATCH, "rows": NO_ROWS}, DIFFER),
    *each((JOIN_S32, JOIN_F32), -1, {"p0": 1}, DIFFER),
    *each((JOIN_S32, JOIN_F32), -1, {"p0": 2}, DIFFER),
    *each((JOIN_S32, JOIN_F32), -1, {"p0": 2**32 - 1}, DIFFER),
    *(
        (k, i, {"gone": True}, "a gap between operands")
        for k in (JOIN_S32, JOIN_F32)
        for i in (2, 6)
    ),
    *((JOIN_S32, place, {"rows": ROWS_OUTER}, ONE) for place in (0, 1, 7)),
    # codes in other places
    *each((TRANSPOSE, PART), 0, {"bits": 7}, FORMATS),
    *each((TRANSPOSE, PART), 0, {"pow2": 1}, FORMATS),
    *each((TRANSPOSE, PART), 0, {"range": 1, "limit": 1.0}, FORMATS),
    *each((TRANSPOSE, PART), 0, {"container": 0}, FORMATS),
    *each((TRANSPOSE, PART), 0, {"rows": ROWS_OUTER}, ONE),
    *each((TRANSPOSE, PART), 1, {"rows": ROWS_OUTER}, ONE),
    (TRANSPOSE, 0, {"axis": K, "group": K}, DIFFER),
    *((TRANSPOSE, -1, {"p0": n}, DIFFER) for n in (0, 3, 2**32 - 1)),
    (TRANSPOSE, -1, {"p1": 0}, DIFFER),
    (TRANSPOSE, -1, {"p0": 2**32 - 1, "p1": 2**32 - 1}, DIFFER),
    *((PART, -1, {"p0": n}, DIFFER) for n in (0, 3, 4, 2**32 - 1)),
    *((PART, -1, {"p1": n}, DIFFER) for n in (3, 2**32 - 1)),
    (PART, 0, {"axis": 3, "group": 3}, DIFFER),
    (PART, 1, {"axis": 5, "group": 5}, DIFFER),
    (PART, 0, {"axis": 2 * BATCH, "group": 2 * BATCH, "rows": NO_ROWS}, ONE),
    (JOIN_F32, 0, {"axis": K * BATCH, "group": 1, "rows": NO_ROWS}, DIFFER),
]
