"""Pools in hostile plans: what their rules refuse, and random plans around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plan_bytes import NO_ROWS, PICK, ROWS_AXIS, ROWS_OUTER
from plan_cases import (
    AVG_POOL_BACK_F32,
    AVG_POOL_BACK_S32,
    AVG_POOL_F32,
    AVG_POOL_S32,
    BATCH,
    MAX_POOL,
    MAX_POOL_BACK,
    PIXELS,
    POSITIONS,
    N,
)

if TYPE_CHECKING:
    from plan_random import Maker

POOLS = range(MAX_POOL, AVG_POOL_BACK_F32 + 1)

# Flags and params of docs/format.md, section 7.
FIELDS: dict[int, tuple[int, set[int]]] = {
    MAX_POOL: (0, {13}),
    MAX_POOL_BACK: (0, {13}),
    AVG_POOL_S32: (3, {0, 1, 13}),
    AVG_POOL_F32: (3, {0, 13}),
    AVG_POOL_BACK_S32: (3, {0, 1, 13}),
    AVG_POOL_BACK_F32: (3, {0, 13}),
}

DIFFER, FORMATS, ONE = "the sizes differ", "the formats differ", "more than one scale"
BY_ROW = {"rows": ROWS_OUTER}  # a scale for each
NONE = {"axis": PIXELS * BATCH, "group": PIXELS * BATCH, "rows": NO_ROWS}

# kernel, place (or -1: params), what changes there, the rule
RULES: list[tuple[int, int, dict[str, Any], str]] = [
    *((kernel, -1, {"p13": 0}, "window") for kernel in POOLS),
    (MAX_POOL, 0, {"axis": POSITIONS - 1, "group": POSITIONS - 1}, DIFFER),
    (MAX_POOL, 1, {"axis": PIXELS - 1, "group": PIXELS - 1}, DIFFER),
    (MAX_POOL, 1, {"axis": PIXELS - N, "group": PIXELS - N}, DIFFER),
    (MAX_POOL, 1, NONE, DIFFER),
    (MAX_POOL, 0, {"bits": 7}, FORMATS),
    (MAX_POOL, 0, {"pow2": 1}, FORMATS),
    (MAX_POOL, 0, {"range": 1, "limit": 1.0}, FORMATS),
    (MAX_POOL, 0, BY_ROW, ONE),
    (MAX_POOL, 1, BY_ROW, ONE),
    (MAX_POOL, 2, {"axis": POSITIONS - 1, "group": POSITIONS - 1}, "picks"),
    (
        MAX_POOL,
        2,
        {"axis": POSITIONS * BATCH, "group": POSITIONS * BATCH, "rows": NO_ROWS},
        "picks",
    ),
    (MAX_POOL_BACK, 0, {"axis": PIXELS - 1, "group": PIXELS - 1}, DIFFER),
    (MAX_POOL_BACK, 0, NONE, DIFFER),
    (MAX_POOL_BACK, 1, {"axis": POSITIONS - 1, "group": POSITIONS - 1}, DIFFER),
    (MAX_POOL_BACK, 2, {"axis": POSITIONS - 1, "group": POSITIONS - 1}, "picks"),
    (MAX_POOL_BACK, 0, {"bits": 5}, FORMATS),
    (MAX_POOL_BACK, 0, BY_ROW, ONE),
    (MAX_POOL_BACK, 1, BY_ROW, ONE),
    (AVG_POOL_S32, 0, {"axis": POSITIONS - 1, "group": POSITIONS - 1}, DIFFER),
    (AVG_POOL_F32, 1, {"axis": PIXELS - 1, "group": PIXELS - 1}, DIFFER),
    (AVG_POOL_S32, 0, BY_ROW, ONE),
    (AVG_POOL_S32, 1, BY_ROW, ONE),
    (AVG_POOL_S32, -1, {"p0": 2**31}, "divisor"),
    (AVG_POOL_F32, -1, {"p0": 2**32 - 1}, "divisor"),
    (AVG_POOL_S32, -1, {"flags": 1}, "divisor"),  # padding counts where windows do
    (AVG_POOL_BACK_F32, -1, {"flags": 1}, "divisor"),
    (AVG_POOL_F32, -1, {"flags": 2}, "window"),  # that of no adaptive pool
    (AVG_POOL_BACK_S32, -1, {"flags": 2}, "window"),
    (AVG_POOL_S32, -1, {"p1": 1}, "headroom"),  # bits of a quotient that there is not
    (AVG_POOL_S32, -1, {"p0": 0, "p1": 25}, "headroom"),  # 127 * 2^25 > 2^31
    (AVG_POOL_S32, -1, {"p0": 0, "p1": 31}, "headroom"),
    (AVG_POOL_S32, -1, {"p0": 0, "p1": 2**32 - 1}, "headroom"),
    (AVG_POOL_BACK_S32, 0, {"bits": 7}, FORMATS),
    (AVG_POOL_BACK_S32, 0, {"pow2": 1}, FORMATS),
    (AVG_POOL_BACK_S32, 0, {"range": 1, "limit": 1.0}, FORMATS),
    (AVG_POOL_BACK_S32, 0, BY_ROW, ONE),
    (AVG_POOL_BACK_S32, -1, {"p0": 0}, "windows overlap"),  # as if: shares are no codes
    (AVG_POOL_BACK_S32, -1, {"p1": 1}, "headroom"),
]


def random_pool(maker: Maker, kernel: int) -> None:
    """One over a small image; windows, divisors and layouts are seldom wrong."""
    rng, plan = maker.rng, maker.plan
    size = [int(n) for n in rng.integers(1, 6, 2)]
    kernels, strides = ([int(n) for n in rng.integers(1, 5, 2)] for _ in range(2))
    pads = [int(rng.integers(0, k // 2 + 1)) for k in kernels]
    apart = [maker.pick(1, 1, 2) if kernel <= MAX_POOL_BACK else 1 for _ in range(2)]
    adaptive = kernel > MAX_POOL_BACK and maker.chance(0.3)
    if adaptive:
        kernels, strides, pads = [1, 1], [1, 1], [0, 0]
    out = [
        max(1, (n + 2 * p - d * (k - 1) - 1) // s + 1)
        for n, p, d, k, s in zip(size, pads, apart, kernels, strides, strict=True)
    ]
    if adaptive or maker.chance(0.1):  # windows that hang over, or lie behind, are windows
        out = [int(n) for n in rng.integers(1, 6, 2)]
    window = plan.window(
        **{"in_h": size[0], "in_w": size[1], "out_h": out[0], "out_w": out[1]},
        **{"kernel_h": kernels[0], "kernel_w": kernels[1]},
        **{"stride_h": strides[0], "stride_w": strides[1], "pad_h": pads[0], "pad_w": pads[1]},
        **{"dilation_h": apart[0], "dilation_w": apart[1]},
        groups=1 if maker.chance(0.97) else 2,
    )
    channels = maker.a
    pixels, positions = size[0] * size[1] * channels, out[0] * out[1] * channels
    meet = [k > s and n > 1 for k, s, n in zip(kernels, strides, out, strict=True)]
    params: dict[str, int] = {"p13": window}
    if kernel <= MAX_POOL_BACK:
        taps = kernels[0] * kernels[1]
        bits = max(1, (taps - 1).bit_length()) + maker.pick(0, 0, 0, 1, -1)
        _largest(maker, kernel, (pixels, positions), max(bits, 1), params)
        return
    params |= {"p0": maker.pick(0, 0, 1, 6, 2**31 - 1), "flags": 2 if adaptive else 0}
    if params["p0"] == 0 and not adaptive:
        params["flags"] = maker.pick(0, 1)
    _mean(maker, kernel, (pixels, positions), any(meet) or adaptive, params)


def _whole(maker: Maker, n: int) -> dict[str, Any]:
    return {**maker.whole(n)} if maker.chance(0.95) else {}


def _largest(
    maker: Maker, kernel: int, sizes: tuple[int, int], bits: int, params: dict[str, int]
) -> None:
    from plan_random import F32, S8, S16, S32  # which imports this

    plan, (pixels, positions) = maker.plan, sizes
    fields = {"kind": PICK, "bits": bits, "container": 0, "rows": ROWS_AXIS}
    pick = plan.tensor(positions, **fields)
    if kernel == MAX_POOL:
        kind = maker.pick(F32, S8, S16, S32)
        x = maker.ready(pixels, kind, True, **_whole(maker, pixels))
        y = _alike(maker, x, positions)
        if kind == S32 and plan.tensors[x]["rows"] != ROWS_AXIS:
            y = maker.new(positions, S32, True, **maker.whole(positions))
        if maker.chance(0.3):
            plan.tensors[y]["codes"] = plan.tensors[x]["codes"]
        plan.op(kernel, y, x, maker.some(pick, 0.7), **params)
        return
    kind = maker.pick(F32, S8, S16)
    image, own = maker.new(pixels, F32, True), maker.new(positions, F32, True)
    plan.op(4, image, plan.input, maker.lasting(pixels, F32))
    plan.op(MAX_POOL, own, image, pick, p13=params["p13"])
    e = maker.ready(positions, kind, True, **_whole(maker, positions))
    sums = kind != F32 and maker.chance(0.7)
    dx = maker.new(pixels, S32, True, **_whole(maker, pixels)) if sums else _alike(maker, e, pixels)
    plan.op(kernel, dx, e, pick, **params)


def _alike(maker: Maker, t: int, n: int) -> int:
    """A tensor of the same format and one scale."""
    same = {**maker.plan.tensors[t], **maker.whole(n)}
    for name in ("space", "codes", "scale", "zero_point", "absmax"):
        same[name] = 0
    return maker.plan.tensor(n, **same)


def _mean(
    maker: Maker, kernel: int, sizes: tuple[int, int], meet: bool, params: dict[str, int]
) -> None:
    from plan_random import F32, S8, S16, S32  # which imports this

    plan, back = maker.plan, kernel >= AVG_POOL_BACK_S32
    n, m = sizes if back else (sizes[1], sizes[0])  # of the result and of what enters
    if kernel in (AVG_POOL_F32, AVG_POOL_BACK_F32):
        plan.op(kernel, maker.new(n, F32, True), maker.ready(m, F32), **params)
        return
    x = maker.ready(m, maker.pick(S8, S16), True, **_whole(maker, m))
    if params["p0"] == 0:
        most = int(2 ** (plan.tensors[x]["bits"] - 1)) - 1
        room = ((2**31 - 1) // (most * (36 if back else 1))).bit_length() - 1
        params["p1"] = maker.pick(0, room, room, min(30, room), 31)
    codes = back and not meet and params["p0"] != 0 and maker.chance(0.6)
    y = _alike(maker, x, n) if codes else maker.new(n, S32, True, **_whole(maker, n))
    if codes:
        plan.tensors[y] |= {"pow2": 0, "range": 0, "limit": 0.0}
    plan.op(kernel, y, x, **params)
