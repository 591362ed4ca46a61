"""A plan's bytes: docs/format.md."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from .formats import ROUNDINGS, Asym, Float32
from .lower.ir import ROLES, SECTIONS, SPACES, Op, Program, Tensor
from .lower.memory import Memory
from .lower.windows import Window

MAGIC = 0x50574651  # "QFWP"
VERSION = 1
HEADER = struct.Struct("<IHH II IIII II 5I5I 4H f II 28x")
TENSOR = struct.Struct("<12B 4I 4I I f")
OPERATION = struct.Struct("<HH 8H 60s")
WINDOW = struct.Struct("<4I 9H 6x")
NO_TENSOR = 0xFFFF
PLACES, PARAMS = 8, 15
WINDOW_PARAM = 13
POOL_PARAM = 4  # of product_pool_s32

KINDS = {"float32": 0, "sym": 1, "asym": 2, "index": 3, "bytes": 4, "pick": 5}
NO_ROWS, ROWS_OUTER, ROWS_AXIS = range(3)
DYNAMIC, FIXED, HINDSIGHT = range(3)

# The numbers of kernels.def.
KERNELS = {
    "convert": 1,
    "widen": 2,
    "product_s32": 3,
    "product_f32": 4,
    "relu": 5,
    "mask": 6,
    "cross_entropy_s16": 7,
    "cross_entropy_f32": 8,
    "gradient_s32": 9,
    "gradient_f32": 10,
    "update": 11,
    "gradient_update_s32": 12,
    "normalize_s32": 13,
    "normalize_f32": 14,
    "normalize_back_s32": 15,
    "normalize_back_f32": 16,
    "columns_s32": 17,
    "mse_s16": 20,
    "mse_f32": 21,
    "softmax_s16": 22,
    "softmax_f32": 23,
    "softmax_back_s32": 24,
    "softmax_back_f32": 25,
    "dropout": 26,
    "weighted_cross_entropy_s16": 27,
    "weighted_cross_entropy_f32": 28,
    "square_sum": 30,
    "clip_factor": 31,
    "adamw": 32,
    "gradient_adamw_s32": 33,
    "commit": 35,
    "accumulate": 37,
    "sigmoid_s32": 38,
    "sigmoid_f32": 39,
    "tanh_s32": 40,
    "tanh_f32": 41,
    "sigmoid_back": 42,
    "tanh_back": 43,
    "join_s32": 46,
    "join_f32": 47,
    "transpose": 48,
    "part": 49,
    "max_pool": 50,
    "max_pool_back": 51,
    "avg_pool_s32": 52,
    "avg_pool_f32": 53,
    "avg_pool_back_s32": 54,
    "avg_pool_back_f32": 55,
    "batch_norm_s32": 57,
    "batch_norm_f32": 58,
    "batch_norm_back_s32": 59,
    "batch_norm_back_f32": 60,
    "fold_norm": 61,
    "fold_s32": 62,
    "fold_f32": 63,
    "product_pool_s32": 64,
    "product_fold_s32": 65,
}


def to_bytes(program: Program, memory: Memory, seed: int, lr: float) -> bytes:
    """The whole plan, its CRC included."""
    tensors = program.tensors
    numbers = {id(t): i for i, t in enumerate(tensors)}
    given = (w for op in program.all_ops for w in (op.window, op.pool) if w is not None)
    windows = list(dict.fromkeys(given))
    records = b"".join(_tensor(t, memory) for t in tensors)
    operations = b"".join(_op(op, numbers, windows) for op in program.all_ops)
    geometry = b"".join(WINDOW.pack(*window) for window in windows)
    total = HEADER.size + len(records) + len(operations) + len(geometry)
    counts = [len(program.sections[name]) for name in SECTIONS[:4]]
    firsts = [sum(counts[:i]) for i in range(4)]
    own = len(program.sections["infer"])
    infer = range(sum(counts), sum(counts) + own) if own else range(counts[0] + counts[1])

    def number(t: Tensor | None) -> int:
        return NO_TENSOR if t is None else numbers[id(t)]

    ends = (program.input, program.labels, program.output, program.loss)
    fields = (
        *(memory.arena_bytes, memory.const_bytes, program.batch, seed),
        *(len(tensors), len(program.all_ops)),
        *(*firsts, infer.start, *counts, len(infer)),
        *(number(t) for t in ends),
        *(lr, program.micro_batches if program.micro_batches > 1 else 0, len(windows)),
    )
    blank = HEADER.pack(MAGIC, VERSION, HEADER.size, total, 0, *fields)
    body = blank[16:] + records + operations + geometry
    return HEADER.pack(MAGIC, VERSION, HEADER.size, total, zlib.crc32(body), *fields)[:16] + body


def _tensor(t: Tensor, memory: Memory) -> bytes:
    layout = t.layout(1)
    rows = NO_ROWS
    outer, axis, group = layout.outer, layout.axis, layout.group
    if t.rows:
        two = t.layout(2)
        rows = ROWS_OUTER if two.outer != outer else ROWS_AXIS
    kind, bits, container, pow2, fixed, rounding = _format(t)
    enums = (SPACES.index(t.space), ROLES.index(t.role), kind, bits, container, pow2)
    shared = int(layout.shared) if rows != ROWS_AXIS else 0
    return TENSOR.pack(
        *enums,
        *(_range(t, fixed), rounding, rows, shared, 0, 0),
        *(outer, axis, layout.inner, min(group, 2**32 - 1)),
        *memory.of(t),
        t.stream,
        0.0 if fixed is None else fixed,
    )


def _range(t: Tensor, fixed: float | None) -> int:
    if fixed is not None:
        return FIXED
    return HINDSIGHT if t.fmt is not None and t.fmt.range == "hindsight" else DYNAMIC


def _format(t: Tensor) -> tuple[int, int, int, int, float | None, int]:
    """kind, bits, container, pow2, the fixed range or None, rounding."""
    fmt = t.fmt
    if fmt is None:
        return KINDS[t.numbers.kind], t.numbers.bits, t.numbers.container, 0, None, 0
    if isinstance(fmt, Float32):
        return KINDS["float32"], 32, 32, 0, None, 0
    kind = KINDS["asym" if isinstance(fmt, Asym) else "sym"]
    container = 0 if fmt.container == "packed" else int(fmt.container)
    if container == 0 and fmt.bits in (8, 16):
        container = fmt.bits
    fixed = None if isinstance(fmt.range, str) else float(np.float32(fmt.range))
    return kind, fmt.bits, container, int(fmt.pow2), fixed, ROUNDINGS.index(fmt.rounding)


def _op(op: Op, numbers: dict[int, int], windows: list[Window]) -> bytes:
    places = [NO_TENSOR if t is None else numbers[id(t)] for t in op.places]
    places += [NO_TENSOR] * (PLACES - len(places))
    params = bytearray(4 * PARAMS)
    for at, window in ((WINDOW_PARAM, op.window), (POOL_PARAM, op.pool)):
        if window is not None:
            struct.pack_into("<I", params, 4 * at, windows.index(window) + 1)
    for i, value in op.params.items():
        struct.pack_into("<f" if isinstance(value, float) else "<I", params, 4 * i, value)
    return OPERATION.pack(KERNELS[op.kernel], op.flags, *places, bytes(params))
