"""A small valid plan for each operation, with any class of format at any of its places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plan_bytes import (
    ASYM,
    BYTES,
    GRADIENT,
    NO_ROWS,
    NO_TENSOR,
    PARAMETER,
    PICK,
    ROWS_AXIS,
    ROWS_OUTER,
    SCRATCH,
    STATE,
    SYM,
    Builder,
)

from pyqfw import wire as wire_bytes
from pyqfw._core import ffi, lib

CONVERT, WIDEN, PRODUCT_S32, PRODUCT_F32, RELU, MASK, LOSS_S16, LOSS_F32 = range(1, 9)
GRADIENT_S32, GRADIENT_F32, UPDATE, FUSED = range(9, 13)
MSE_S16, MSE_F32 = 20, 21
SOFTMAX_S16, SOFTMAX_F32, SOFTMAX_BACK_S32, SOFTMAX_BACK_F32 = range(22, 26)
DROPOUT, WEIGHTED_S16, WEIGHTED_F32 = 26, 27, 28
NORM_S32, NORM_F32, NORM_BACK_S32, NORM_BACK_F32, COLUMNS_S32 = range(13, 18)
SQUARE_SUM, CLIP_FACTOR, ADAMW, FUSED_ADAMW = range(30, 34)
COMMIT, ACCUMULATE = 35, 37
SIGMOID_S32, SIGMOID_F32, TANH_S32, TANH_F32, SIGMOID_BACK, TANH_BACK = range(38, 44)
MAX_POOL, MAX_POOL_BACK, AVG_POOL_S32, AVG_POOL_F32 = range(50, 54)
AVG_POOL_BACK_S32, AVG_POOL_BACK_F32 = 54, 55
BATCH_NORM_S32, BATCH_NORM_F32, BATCH_NORM_BACK_S32, BATCH_NORM_BACK_F32 = range(57, 61)
FOLD_NORM, FOLD_S32, FOLD_F32 = range(61, 64)
JOIN_S32, JOIN_F32, TRANSPOSE, PART = range(46, 50)
PRODUCT_POOL, PRODUCT_FOLD = 64, 65
ADDING = (GRADIENT_S32, GRADIENT_F32, ACCUMULATE)  # over micro-batches
KERNELS = sorted(wire_bytes.KERNELS.values())
# Other forms of an operation: a product that writes codes, and conversions that have a gain.
VARIANT = 0x100
CODES, RANGED, FOLLOWING = PRODUCT_S32 + VARIANT, CONVERT + VARIANT, CONVERT + 2 * VARIANT
FOLDED_SUMS = FOLD_S32 + VARIANT  # a fold in place
FOLD_CODES = PRODUCT_FOLD + VARIANT
# And with a window: an image with weights, its way back, the gradient of the weights.
GATHER, SCATTER, GATHER_F32 = (k + 2 * VARIANT for k in (PRODUCT_S32, PRODUCT_S32 + VARIANT, 4))
WINDOWED = {
    k: k + 2 * VARIANT for k in (PRODUCT_F32, GRADIENT_S32, GRADIENT_F32, FUSED, FUSED_ADAMW)
}
OVER_IMAGE, OVER_IMAGE_F32 = WINDOWED[GRADIENT_S32], WINDOWED[GRADIENT_F32]
OVER_IMAGE_FUSED, OVER_IMAGE_ADAMW = WINDOWED[FUSED], WINDOWED[FUSED_ADAMW]

K, N, BATCH = 3, 2, 2  # inputs, outputs, rows


def sym(bits: int, container: int) -> dict[str, int]:
    return {"kind": SYM, "bits": bits, "container": container}


def asym(bits: int, container: int) -> dict[str, int]:
    return {"kind": ASYM, "bits": bits, "container": container}


# Formats and the class that each is of.
FORMATS: dict[str, tuple[int, dict[str, int]]] = {
    "f32": (lib.QFW_AS_F32, {}),
    "s8": (lib.QFW_AS_S8, sym(8, 8)),
    "s8 packed": (lib.QFW_AS_S8, sym(8, 0)),
    "s8 of 5 bits": (lib.QFW_AS_S8, sym(5, 8)),
    "s16": (lib.QFW_AS_S16, sym(12, 16)),
    "s16 packed": (lib.QFW_AS_S16, sym(16, 0)),
    "s32": (lib.QFW_AS_S32, sym(32, 32)),
    "sym packed": (lib.QFW_AS_SYM, sym(5, 0)),
    "sym in 32": (lib.QFW_AS_SYM, sym(7, 32)),
    "asym": (lib.QFW_AS_ASYM, asym(8, 8)),
    "asym packed": (lib.QFW_AS_ASYM, asym(3, 0)),
    "asym in 32": (lib.QFW_AS_ASYM, asym(9, 32)),
    "index": (lib.QFW_AS_INDEX, {}),
    "bytes": (lib.QFW_AS_BYTES, {"kind": BYTES, "bits": 8, "container": 8}),
    "pick": (lib.QFW_AS_PICK, {"kind": PICK, "bits": 3, "container": 0}),
}


@dataclass
class Place:
    """What stands at a place of a valid plan: elements (of a row), format, and where it is from."""

    n: int
    format: str = "f32"
    rows: int = NO_ROWS
    role: int = SCRATCH
    made: bool = False  # an operation before wrote it
    layout: dict[str, int] = field(default_factory=dict)


def wire(n: int, fmt: str, **layout: int) -> Place:
    """Read, with rows."""
    return Place(n, fmt, ROWS_AXIS, made=True, layout=layout)


def result(n: int, fmt: str, **layout: int) -> Place:
    """Written, with rows."""
    return Place(n, fmt, ROWS_AXIS, layout=layout)


def scratch(n: int) -> Place:
    return Place(n, "bytes")


LABELS = Place(1, "index")
COLUMNS = {"rows": ROWS_OUTER, "outer": 1, "axis": N, "group": 1, "shared": 1}
BY_ROW = {"rows": ROWS_OUTER, "outer": 1, "axis": N, "group": N, "shared": 0}
TILE = {"outer": BATCH, "axis": N, "group": 1, "shared": 1}
HINDSIGHT = {"range": 2}
TWICE = {"rows": ROWS_OUTER, "outer": 2, "axis": N, "group": 1, "shared": 1}  # at two positions
STEP = {f"p{i}": 0x3F000000 for i in range(9)}
# Of lines of four pixels and two channels, every other pixel meets the two taps at two positions.
WINDOW = {"in_w": 4, "out_w": 2, "kernel_w": 2, "dilation_w": 2}
# Of the two positions the larger; and, of such lines, each pixel meets two taps at three positions.
LARGEST, LINE = {"in_w": 2, "out_w": 1, "kernel_w": 2}, {"in_w": 4, "out_w": 3, "kernel_w": 2}
PIXELS, POSITIONS, TAPS = 4, 2, 2
IMAGE, MADE, KERNEL = PIXELS * N, POSITIONS * N, TAPS * N * N
SPOTS = {"rows": ROWS_OUTER, "outer": POSITIONS, "axis": N, "group": 1, "shared": 1}
MOMENTS = {f"p{i}": 0x3F000000 for i in range(8)}


def window_places(kernel: int) -> list[Place | None]:
    """The places of an operation that goes over an image."""
    weight = [Place(KERNEL, fmt, role=PARAMETER) for fmt in ("s8", "f32")]
    bias, floats = Place(N, "s16", role=PARAMETER), Place(N, "f32", role=PARAMETER)
    gradient, tile = Place(KERNEL, "f32", role=GRADIENT), Place(KERNEL, "s32")
    both = [wire(MADE, "s8"), wire(IMAGE, "s8")]
    state, second = (Place(KERNEL, "s8", role=STATE) for _ in range(2))
    patch = scratch(2 * TAPS * N)
    gain = Place(2, "f32", role=STATE)
    by_row = {"axis": N, "inner": KERNEL // N, "group": 1}
    back = [wire(3 * N, "s8"), Place(KERNEL, "s8", role=PARAMETER, layout=by_row), None]
    back += [wire(IMAGE, "f32"), scratch(16 * N + 2 * N * TAPS)]
    return {
        PRODUCT_POOL: [
            *(result(N, "s8", **HINDSIGHT), wire(IMAGE, "s8"), weight[0], bias),
            *(Place(N, "pick", ROWS_AXIS), scratch(48 + 16 + 2 * TAPS * N)),
            *(Place(POSITIONS * N, "s32", layout={**TILE, "outer": POSITIONS}), gain),
        ],
        PRODUCT_FOLD: [result(IMAGE, "s32"), *back],
        FOLD_CODES: [result(IMAGE, "s8", **HINDSIGHT), *back, Place(3 * N, "s32"), gain],
        GATHER: [
            *(result(MADE, "s32", **SPOTS), wire(IMAGE, "s8"), weight[0], bias),
            *(wire(MADE, "f32"), scratch(16 + 2 * TAPS * N)),
        ],
        SCATTER: [
            *(result(IMAGE, "s32"), wire(MADE, "s8"), weight[0]),
            *(None, wire(IMAGE, "f32")),
        ],
        GATHER_F32: [
            *(result(MADE, "f32"), wire(IMAGE, "f32"), weight[1], floats),
            *(wire(MADE, "f32"), scratch(4 * TAPS * N)),
        ],
        OVER_IMAGE: [gradient, *both, tile, scratch(4), patch],
        OVER_IMAGE_F32: [
            *(gradient, wire(MADE, "f32"), wire(IMAGE, "f32")),
            *(Place(TAPS * N), scratch(4 * TAPS * N)),
        ],
        OVER_IMAGE_FUSED: [weight[0], *both, tile, state, scratch(2), patch],
        OVER_IMAGE_ADAMW: [weight[0], *both, tile, state, second, scratch(3), patch],
    }[kernel]


def places(kernel: int) -> list[Place | None]:
    """The places of a valid plan."""
    if kernel in OF_WINDOWS:
        return window_places(kernel)
    weight, parameter = Place(K * N, "s8", role=PARAMETER), Place(K * N, "s8", role=PARAMETER)
    state, tile = Place(K * N, "s8", role=STATE), Place(K * N, "s32")
    error, inputs = wire(N, "s8"), wire(K, "s8")
    floats = [wire(N, "f32"), wire(K, "f32")]
    gradient, second = Place(K * N, "f32", role=GRADIENT), Place(K * N, "s8", role=STATE)
    factor = Place(1, "f32", role=PARAMETER)  # what lasts need not be made
    gain = Place(2, "f32", role=STATE)
    return {
        CONVERT: [result(K, "s8"), wire(K, "f32"), scratch(16 * K * BATCH)],
        WIDEN: [result(K, "s16"), wire(K, "s8"), wire(N, "s8"), scratch(16 * K)],
        PRODUCT_S32: [
            *(result(N, "s32", **COLUMNS), inputs, weight),
            *(Place(N, "s16", role=PARAMETER), wire(N, "f32"), scratch(5 * N)),
        ],
        CODES: [
            *(result(N, "s8", **HINDSIGHT), inputs, weight, Place(N, "s16", role=PARAMETER)),
            *(wire(N, "f32"), scratch(21 * N), Place(BATCH * N, "s32", layout=TILE), gain),
        ],
        RANGED: [result(K, "s8", **HINDSIGHT), wire(K, "s16"), None, gain],
        FOLLOWING: [result(K, "s8", **HINDSIGHT), wire(K, "s16"), None, gain, wire(K, "s8")],
        COMMIT: [gain] * 8,
        PRODUCT_F32: [
            *(result(N, "f32"), floats[1], Place(K * N, "f32", role=PARAMETER)),
            *(Place(N, "f32", role=PARAMETER), wire(N, "f32")),
        ],
        RELU: [result(K, "s8"), wire(K, "s8")],
        MASK: [wire(K, "f32"), wire(K, "s8")],
        LOSS_S16: [result(N, "s32"), wire(N, "s16"), LABELS, Place(1)],
        LOSS_F32: [result(N, "f32"), floats[0], LABELS, Place(1)],
        GRADIENT_S32: [Place(K * N, "f32", role=GRADIENT), error, inputs, tile, scratch(4)],
        GRADIENT_F32: [Place(K * N, "f32", role=GRADIENT), *floats, Place(K, "f32")],
        UPDATE: [parameter, gradient, state, scratch(2), factor],
        FUSED: [parameter, error, inputs, tile, state, scratch(2)],
        NORM_S32: [
            *(result(N, "s32", **COLUMNS), error, Place(N, "s8", role=PARAMETER)),
            *(Place(N, "s16", role=PARAMETER), scratch(5 * N)),
        ],
        NORM_F32: [result(N, "f32"), floats[0], *[Place(N, "f32", role=PARAMETER)] * 2],
        NORM_BACK_S32: [result(N, "s32", **BY_ROW), error, wire(N, "s8")],
        NORM_BACK_F32: [
            *(result(N, "f32"), floats[0], wire(N, "f32")),
            Place(N, "f32", role=PARAMETER),
        ],
        COLUMNS_S32: [result(N, "s32"), error, Place(N, "s8", role=PARAMETER)],
        SQUARE_SUM: [Place(1), gradient, factor],
        CLIP_FACTOR: [Place(1), factor],
        ADAMW: [parameter, gradient, state, second, scratch(3), factor],
        FUSED_ADAMW: [parameter, error, inputs, tile, state, second, scratch(3)],
        ACCUMULATE: [Place(K * N, "s8", role=GRADIENT), Place(K * N, "f32", made=True)],
        SOFTMAX_S16: [result(N, "s32"), wire(N, "s16")],
        SOFTMAX_F32: [result(N, "f32"), floats[0]],
        SOFTMAX_BACK_S32: [result(N, "s32"), wire(N, "s8"), wire(N, "s16")],
        SOFTMAX_BACK_F32: [result(N, "f32"), floats[0], wire(N, "f32")],
        DROPOUT: [result(K, "s8"), wire(K, "s8")],
        WEIGHTED_S16: [
            *(result(N, "s32"), wire(N, "s16"), LABELS, Place(1), Place(N, "s16", role=PARAMETER)),
        ],
        WEIGHTED_F32: [
            *(result(N, "f32"), floats[0], LABELS, Place(1), Place(N, "f32", role=PARAMETER)),
        ],
        **norm_places(),
        MSE_S16: [result(N, "s32"), wire(N, "s16"), wire(N, "s16"), Place(1)],
        MSE_F32: [result(N, "f32"), floats[0], wire(N, "f32"), Place(1)],
        **{key: [result(K, "s32"), wire(K, "s8")] for key in (SIGMOID_S32, TANH_S32)},
        **{key: [result(K, "f32"), wire(K, "f32")] for key in (SIGMOID_F32, TANH_F32)},
        **{key: [wire(K, "s32"), wire(K, "s8")] for key in (SIGMOID_BACK, TANH_BACK)},
        MAX_POOL: [result(MADE, "s8"), wire(IMAGE, "s8"), result(MADE, "pick")],
        MAX_POOL_BACK: [result(IMAGE, "s8"), wire(MADE, "s8"), wire(MADE, "pick")],
        AVG_POOL_S32: [result(MADE, "s32"), wire(IMAGE, "s8")],
        AVG_POOL_F32: [result(MADE, "f32"), wire(IMAGE, "f32")],
        AVG_POOL_BACK_S32: [result(IMAGE, "s8"), wire(MADE, "s8")],
        AVG_POOL_BACK_F32: [result(IMAGE, "f32"), wire(MADE, "f32")],
        JOIN_S32: [result(K, "s32"), *(wire(K, fmt) for fmt in ("s8", "s16") * 3), wire(K, "s8")],
        JOIN_F32: [result(K, "f32"), *[wire(K, "f32")] * 7],
        TRANSPOSE: [result(2 * K, "s8"), wire(2 * K, "s8")],
        PART: [result(2, "s8"), wire(2 * K, "s8")],
    }[kernel]


def norm_places() -> dict[int, list[Place | None]]:
    """Of BatchNorm, at two positions: a row has two values a channel."""
    gamma, beta = Place(N, "s8", role=PARAMETER), Place(N, "s16", role=PARAMETER)
    floats = Place(N, "f32", role=PARAMETER)
    running = [*[Place(N, "f32", role=STATE)] * 2, Place(1, "f32", role=STATE)]
    sums, x = result(2 * N, "s32", **TWICE), wire(2 * N, "s8")
    y, z = result(2 * N, "f32"), wire(2 * N, "f32")
    acc = result(N, "s32", **COLUMNS)
    return {
        BATCH_NORM_S32: [sums, x, gamma, beta, scratch(5 * N), *running],
        BATCH_NORM_F32: [y, z, floats, floats, None, *running],
        BATCH_NORM_BACK_S32: [sums, x, wire(2 * N, "s16"), gamma],
        BATCH_NORM_BACK_F32: [y, z, wire(2 * N, "f32"), floats],
        FOLD_NORM: [Place(N), Place(N), floats, floats, gamma, beta],
        FOLD_S32: [acc, wire(N, "s8"), floats, floats, scratch(5 * N)],
        FOLDED_SUMS: [acc, wire(N, "s32", **COLUMNS), floats, floats, scratch(5 * N)],
        FOLD_F32: [result(N, "f32"), wire(N, "f32"), floats, floats],
    }


PARAMS: dict[int, dict[str, int]] = {
    WIDEN: {"p0": 2, "p1": K},
    PRODUCT_S32: {"p1": K, "p3": 1},
    CODES: {"p1": K, "p3": 1},
    PRODUCT_F32: {"p3": 1},
    GRADIENT_S32: {"p9": BATCH, "p11": 1},
    GRADIENT_F32: {"p11": 1},
    UPDATE: STEP,
    WEIGHTED_S16: {"p0": 2**29, "p1": 2**28, "p2": 2**32 - 100},
    WEIGHTED_F32: {"p0": 0x3F000000, "p1": 0x3E800000, "p2": 2**32 - 100},
    DROPOUT: {"p0": 2**31, "p1": 0x40000000, "p2": 7},
    FUSED: {**STEP, "p9": BATCH, "p11": 1},
    NORM_S32: {"p0": 10, "p1": 0x3F000000, "p3": 1},
    NORM_F32: {"p1": 0x3F000000, "p3": 1},
    NORM_BACK_S32: {"p0": 10, "p1": 0x3F000000, "p2": 1, "p3": 1},
    NORM_BACK_F32: {"p1": 0x3F000000, "p3": 1},
    COLUMNS_S32: {"p3": 1},
    CLIP_FACTOR: {"p0": 0x3F000000},
    BATCH_NORM_S32: {"p0": 10, "p1": 0x3F000000, "p3": 2, "p5": 0x3F000000, "p6": 0x3F000000},
    BATCH_NORM_F32: {"p1": 0x3F000000, "p3": 2, "p5": 0x3F000000, "p6": 0x3F000000},
    BATCH_NORM_BACK_S32: {"p0": 10, "p1": 0x3F000000, "p2": 1, "p3": 2},
    BATCH_NORM_BACK_F32: {"p1": 0x3F000000, "p3": 2},
    FOLD_NORM: {"p1": 0x3F000000},
    **{kernel: {"p3": 1} for kernel in (FOLD_S32, FOLDED_SUMS, FOLD_F32)},
    ADAMW: MOMENTS,
    FUSED_ADAMW: {**MOMENTS, "p9": BATCH, "p11": 1},
    **{kernel: {"p0": 2} for kernel in range(AVG_POOL_S32, AVG_POOL_BACK_F32 + 1)},
    TRANSPOSE: {"p0": 2, "p1": K},
    PART: {"p0": 2, "p1": 1},
}
OVER = {"p9": BATCH * POSITIONS, "p11": POSITIONS, "p13": 1}
FOLDING = {"p0": 1, "p1": TAPS * N, "p3": PIXELS, "p4": 15, "p13": 1, "flags": 2}
OF_WINDOWS: dict[int, dict[str, int]] = {  # their params: a window is the plan's first
    GATHER: {"p1": TAPS * N, "p3": POSITIONS, "p13": 1},
    SCATTER: {"p0": 1, "p1": TAPS * N, "p3": PIXELS, "p13": 1},
    GATHER_F32: {"p3": POSITIONS, "p13": 1},
    PRODUCT_POOL: {"p1": TAPS * N, "p3": POSITIONS, "p4": 2, "p13": 1},
    PRODUCT_FOLD: FOLDING,
    FOLD_CODES: FOLDING,
    OVER_IMAGE: OVER,
    OVER_IMAGE_F32: {"p11": POSITIONS, "p13": 1},
    OVER_IMAGE_FUSED: {**STEP, **OVER},
    OVER_IMAGE_ADAMW: {**MOMENTS, **OVER},
}
PARAMS |= OF_WINDOWS

# Windows that do not meet, the first one partly in the padding.
POOLED = {"in_w": 4, "out_w": 2, "kernel_w": 2, "stride_w": 3, "pad_w": 1}
WINDOWS = dict.fromkeys(range(MAX_POOL, AVG_POOL_BACK_F32 + 1), POOLED)
# Operations whose result has the format of what enters; of some, sums instead.
ALIKE = (RELU, DROPOUT, TRANSPOSE, PART, MAX_POOL, MAX_POOL_BACK, AVG_POOL_BACK_S32)


def together(kernel: int, place: int, name: str) -> dict[int, str]:
    """The places that have a format where one of them has."""
    if kernel not in ALIKE or place > 1:
        return {place: name}
    masks = lib_places(kernel)
    cls = FORMATS[name][0]
    both = kernel in (RELU, DROPOUT, TRANSPOSE, PART) or masks[0] & masks[1] & cls
    return {0: name, 1: name} if both else {place: name}


def lib_places(kernel: int) -> list[int]:
    """What an operation takes."""
    places = ffi.new("uint16_t[8]")
    lib.qfw_op_name(kernel, places)
    return list(places)


@dataclass
class Case:
    """A plan, the number of the operation in question and of the tensors at its places."""

    plan: Builder
    op: int
    tensors: list[int]

    def build(self) -> bytes:
        return self.plan.build()


def case(kernel: int, formats: dict[int, str] | None = None, bare: bool = False) -> Case:
    """The valid plan of an operation, with other formats at some of its places.

    A format that cannot last, or cannot have rows, stands there without. bare: nothing makes what
    the operation reads, which is the last thing that is found wrong.
    """
    kernel = _form(kernel, formats or {})
    adds = kernel % VARIANT in ADDING
    plan = Builder(BATCH, gap=64, **({"micro_batches": 2} if adds else {}))
    labels = plan.add_labels()
    if kernel in OF_WINDOWS:
        plan.window(**(LINE if kernel % VARIANT == PRODUCT_FOLD else WINDOW))
    if kernel == PRODUCT_POOL:
        plan.window(**LARGEST)
    wanted = places(kernel)
    tensors: list[int] = []
    for i, place in enumerate(wanted):
        if place is None:
            tensors.append(NO_TENSOR)
            continue
        name = (formats or {}).get(i, place.format)
        tensors.append(labels if name == "index" else _tensor(plan, place, name, bare))
    op = sum(map(len, plan.ops.values()))
    if kernel == FOLDED_SUMS:
        tensors[0] = tensors[1]
    window = {"p13": plan.window(**WINDOWS[kernel])} if kernel in WINDOWS else {}
    plan.op(kernel % VARIANT, *tensors, **PARAMS.get(kernel, {}), **window)
    return Case(plan, op, tensors)


def _form(kernel: int, formats: dict[int, str]) -> int:
    """The form of an operation that has these places."""
    classes = {place: FORMATS[name][0] for place, name in formats.items()}
    if kernel == PRODUCT_S32:
        codes = classes.get(0) in (lib.QFW_AS_S8, lib.QFW_AS_S16)
        return CODES if codes or 6 in formats or 7 in formats else kernel
    if kernel == PRODUCT_FOLD:
        codes = classes.get(0) in (lib.QFW_AS_S8, lib.QFW_AS_S16)
        return FOLD_CODES if codes or 6 in formats or 7 in formats else kernel
    if kernel == CONVERT and (3 in formats or 4 in formats):
        return FOLLOWING
    if kernel == FOLD_S32 and classes.get(1) == lib.QFW_AS_S32:
        return FOLDED_SUMS
    patches = {PRODUCT_F32: 5, GRADIENT_S32: 5, GRADIENT_F32: 4, FUSED: 6, FUSED_ADAMW: 7}
    return WINDOWED[kernel] if patches.get(kernel) in formats else kernel


def _tensor(plan: Builder, place: Place, name: str, bare: bool) -> int:
    cls, fmt = FORMATS[name]
    fields: dict[str, Any] = {"rows": place.rows, "role": place.role, **fmt, **place.layout}
    if fmt.get("kind") not in (SYM, ASYM) or fmt["bits"] == 32:
        fields.pop("range", None)  # only codes have one
    if cls in (lib.QFW_AS_S32, lib.QFW_AS_BYTES, lib.QFW_AS_PICK):
        fields["role"] = SCRATCH
    if cls == lib.QFW_AS_BYTES:
        return plan.scratch(place.n)
    made = plan.tensor(place.n, **fields)
    if place.made and not bare:
        _write(plan, made, cls, place)
    return made


def _write(plan: Builder, t: int, cls: int, place: Place) -> None:
    """An operation that gives a tensor its elements."""
    n = place.n
    if place.rows == NO_ROWS:
        if cls == lib.QFW_AS_F32:
            plan.op(CONVERT, t, plan.tensor(n, role=PARAMETER))
        return
    if cls == lib.QFW_AS_PICK:
        one = plan.window()
        plan.op(MAX_POOL, plan.tensor(n, rows=ROWS_AXIS), _floats(plan, n), t, p13=one)
        return
    if cls == lib.QFW_AS_S32:
        a = plan.sym(1, rows=ROWS_AXIS)
        plan.op(CONVERT, a, plan.input)
        by_column = 4 if place.layout.get("shared") else 0
        plan.op(PRODUCT_S32, t, a, plan.sym(n, role=PARAMETER), p1=1, flags=by_column)
        return
    floats = _floats(plan, n, t if cls == lib.QFW_AS_F32 else None)
    if floats != t:
        plan.op(CONVERT, t, floats)


def _floats(plan: Builder, n: int, t: int | None = None) -> int:
    """Floats that were written, with rows."""
    made = plan.tensor(n, rows=ROWS_AXIS) if t is None else t
    plan.op(PRODUCT_F32, made, plan.input, plan.tensor(n, role=PARAMETER))
    return made
