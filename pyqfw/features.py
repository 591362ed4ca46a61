"""What of the core a plan uses: the macros of csrc/base/config.h, from the plan's bytes."""

from __future__ import annotations

from typing import NamedTuple

from . import wire
from .formats import ROUNDINGS
from .lower.ir import ALIGN, ROLES, SPACES
from .lower.memory import NET_BYTES
from .narrow import has_short_tensors, narrow, places_of
from .plan import Plan

_SYM, _ASYM, _FLOAT32 = (wire.KINDS[kind] for kind in ("sym", "asym", "float32"))
_HALF_EVEN = ROUNDINGS.index("half_even")
_NAMES = {number: name for name, number in wire.KERNELS.items()}
# The places of the parameter, of the gradient if it is stored, and of the state of an update.
_UPDATES = {"update": (0, 1, 2), "gradient_update_s32": (0, None, 4)}
_MOVERS = ("update", "gradient_update_s32", "adamw", "gradient_adamw_s32")
_FOLDING = "product_fold_s32"
_PRODUCTS = ("product_s32", "product_pool_s32", _FOLDING)
_GRADIENTS = ("gradient_s32", "gradient_update_s32", "gradient_adamw_s32")
_STOCHASTIC = ROUNDINGS.index("stochastic")
_HALF_AWAY = ROUNDINGS.index("half_away")
_DIAGONAL = 32
_RELU, _FOLDED, _COLUMNS = 1, 2, 4  # flags of products
_BY_W = (2, 5, 6, 8)  # params of an update: factors of the parameter itself


class _Tensor(NamedTuple):
    kind: int
    bits: int
    container: int
    pow2: int
    range: int
    rounding: int
    rows: int
    shared: int
    outer: int  # the sizes are those without the rows of a step
    axis: int
    inner: int
    group: int

    @property
    def row(self) -> int:
        return self.outer * self.axis * self.inner

    @property
    def slot(self) -> int:
        """Bits of an element's place, 0 if they are no whole bytes."""
        return self.container or (self.bits if self.bits in (8, 16) else 0)

    @property
    def one_scale(self) -> bool:
        """Whatever the rows."""
        alone = self.outer == 1 and self.rows != wire.ROWS_OUTER
        return (self.shared != 0 or alone) and self.group >= self.axis

    def has_rows(self, bits: int, row: int) -> bool:
        """Sym codes of so many bits with one scale, or one for each row of a matrix."""
        plain = (self.kind, self.bits, self.slot) == (_SYM, bits, bits)
        each = self.outer == 1 and self.group == 1 and self.inner == row
        return plain and (self.one_scale or each)

    @property
    def quantized(self) -> bool:
        return self.kind in (_SYM, _ASYM)


def _lasting(data: bytes, at: int, tensors: int) -> int:
    """Bytes from the core's own to the end of what lasts, for one row."""
    end = NET_BYTES
    for i in range(tensors):
        field = wire.TENSOR.unpack_from(data, at + i * wire.TENSOR.size)
        space, role, kind, bits, container = field[:5]
        outer, axis, inner, group, codes, scale, zero_point = field[12:19]
        if space != SPACES.index("arena") or role > ROLES.index("state"):
            continue
        scales = (1 if field[9] else outer) * -(-axis // group) if kind in (_SYM, _ASYM) else 0
        width = container or bits if scales else 32
        end = max(end, codes + (outer * axis * inner * width + 7) // 8, scale + 4 * scales)
        end = max(end, zero_point + 2 * scales if kind == _ASYM else 0)
    return -(-end // ALIGN) * ALIGN - NET_BYTES


class _Op(NamedTuple):
    name: str
    flags: int
    at: tuple[_Tensor | None, ...]
    params: tuple[int, ...]
    window: tuple[int, ...] | None

    def has(self, place: int | None) -> bool:
        return place is not None and self.at[place] is not None

    def of(self, place: int) -> _Tensor:
        t = self.at[place]
        assert t is not None
        return t


class _Plan(NamedTuple):
    crc: int
    batch: int
    micro_batches: int
    tensors: list[_Tensor]
    ops: list[_Op]
    lasting: int


def _read(data: bytes) -> _Plan:
    header = wire.HEADER.unpack_from(data)
    crc, batch = header[4], header[7]
    tensors, ops, windows = header[9], header[10], header[27]
    at = wire.HEADER.size
    found = []
    for _ in range(tensors):
        field = wire.TENSOR.unpack_from(data, at)
        kind, bits, container, pow2, reach, rounding, rows, shared = field[2:10]
        found.append(
            _Tensor(kind, bits, container, pow2, reach, rounding, rows, shared, *field[12:16])
        )
        at += wire.TENSOR.size
    lasting = _lasting(data, wire.HEADER.size, tensors)
    geometry = at + ops * wire.OPERATION.size
    looks = [wire.WINDOW.unpack_from(data, geometry + i * wire.WINDOW.size) for i in range(windows)]
    run = []
    for _ in range(ops):
        kernel, flags, *places, raw = wire.OPERATION.unpack_from(data, at)
        params = tuple(int.from_bytes(raw[4 * i : 4 * i + 4], "little") for i in range(wire.PARAMS))
        number = params[wire.WINDOW_PARAM]
        of = tuple(None if p == wire.NO_TENSOR else found[p] for p in places)
        run.append(_Op(_NAMES[kernel], flags, of, params, looks[number - 1] if number else None))
        at += wire.OPERATION.size
    return _Plan(crc, batch, max(header[26], 1), found, run, lasting)


def _terms(plan: _Plan, op: _Op) -> tuple[int, int, int]:
    """The most terms of a sum of products, the terms of a chunk, and the shift."""
    if op.name in _PRODUCTS:
        positions = op.params[3] or 1
        if op.window is None:
            return op.of(1).row // positions, op.params[1], op.params[2]
        in_h, in_w, out_h, out_w, high, wide = op.window[:6]
        image = in_h * in_w if op.params[0] == 0 else out_h * out_w
        return high * wide * (op.of(1).row // image), op.params[1], op.params[2]
    return plan.batch * (op.params[11] or 1), op.params[9], op.params[10]


def _a_bits(op: _Op) -> int:
    """Of a product's first operand, as it is widened."""
    return op.params[4] if op.name == _FOLDING else op.of(1).bits


def _is_far(plan: _Plan, op: _Op) -> bool:
    """Of integer products: whether weights in range of their slots could leave the proved sum."""
    a, b = (1 << (_a_bits(op) - 1)) - 1, 1 << (op.of(2).slot - 1 if op.of(2).slot else 31)
    return _terms(plan, op)[0] * a * b >= 1 << 30


def _splits(plan: _Plan, op: _Op) -> bool:
    if op.name not in (*_PRODUCTS, *_GRADIENTS):
        return False
    terms, chunk, shift = _terms(plan, op)
    return shift != 0 or chunk < terms


def _is_shared(t: _Tensor, batch: int) -> bool:
    """Whether a scale has several stretches."""
    return t.shared != 0 and t.outer * (batch if t.rows == wire.ROWS_OUTER else 1) > 1


def _is_float(op: _Op) -> bool:
    places = _UPDATES.get(op.name, ())
    return any(p is not None and op.has(p) and op.of(p).kind == _FLOAT32 for p in places)


def _is_one_row(plan: _Plan, op: _Op) -> bool:
    """Of updates: by one row of int8 errors, int8 weights or an int16 bias, and an int8 state."""
    if op.name != "gradient_update_s32" or plan.batch != 1 or op.window or op.flags & _DIAGONAL:
        return False
    param, e, x, state = op.of(0), op.of(1), op.at[2], op.at[4]
    single = op.params[10] == 0 and (op.params[11] or 1) == 1
    by_w = any(op.params[i] for i in _BY_W)
    row = 1 if x is None else x.row
    own = param.has_rows(8, row) if x else param.has_rows(16, row) and param.one_scale
    codes = all(t is None or (t.kind, t.slot) == (_SYM, 8) for t in (e, x))
    held = state is None or (state.has_rows(8, row) and state.rounding == _STOCHASTIC)
    return single and not by_w and own and codes and held and op.flags >> 3 & 3 == _STOCHASTIC


def _recomputes(op: _Op) -> bool:
    """Of products: whether it makes its sums twice."""
    return op.of(0).bits != 32 and op.of(0).range == wire.DYNAMIC


def _is_along_rows(op: _Op) -> bool:
    """Of products: whether it is a forward, which goes along the rows of both."""
    return op.name == "product_s32" and op.window is None and op.params[0] == 0


def _rounds_plainly(op: _Op) -> bool:
    """Of conversions and products: by column only to whole bytes, without random words."""
    dst, src = op.of(0), op.of(1)
    return dst.bits == 32 or (
        (dst.kind, src.kind) == (_SYM, _SYM)
        and dst.slot in (8, 16)
        and src.slot in (8, 16, 32)
        and dst.rounding != _STOCHASTIC
    )


def _is_one_by_four(plan: _Plan, op: _Op) -> bool:
    """Of sums of integer products: of one row, by at least four columns of int8 that a row's codes
    meet in order: int8 along their rows, or any across."""
    if not _is_single(plan, op) or _splits(plan, op):
        return False
    codes = op.of(2).slot == 8 and (op.params[0] != 0 or op.of(1).slot == 8)
    return codes and op.of(0).row >= 4 and op.of(1).row >= 1


def _is_single(plan: _Plan, op: _Op) -> bool:
    """Of products: whether it has one row in each row of the step, and no more."""
    single = op.name == "product_s32" and plan.batch == 1 and op.params[3] <= 1
    return single and op.window is None


def _masks_plainly(op: _Op) -> bool:
    """Of products: no mask, or one of int8 on sums of one scale without a bias or a ReLU."""
    if not op.has(4):
        return True
    alone = not op.has(3) and not op.flags & (_RELU | _COLUMNS)
    return op.of(4).slot == 8 and op.of(4).quantized and _is_of_one_scale(op) and alone


def _is_one_row_of_ratios(plan: _Plan, op: _Op) -> bool:
    """Of operations with a ratio a column: of one row, half away, to int8 or int16."""
    dst, src = op.of(0), op.of(1)
    single = op.params[1] in (0, src.row) if op.name == "widen" else src.outer == 1
    return (
        plan.batch == 1
        and single
        and (dst.kind, src.kind) == (_SYM, _SYM)
        and (dst.slot, src.slot) in (((16, 8),) if op.name == "widen" else ((8, 32), (16, 32)))
        and (op.name == "widen" or dst.rounding == _HALF_AWAY)
    )


def _finishes_plainly(plan: _Plan, op: _Op) -> bool:
    """Of products: one row by columns that have a bias of int16 with one scale, or sums of one
    scale with no more than a mask."""
    if not _is_single(plan, op) or op.params[2] != 0:
        return False
    if op.has(3):
        bias = op.of(3)
        return not op.has(4) and (bias.kind, bias.slot) == (_SYM, 16) and bias.one_scale
    return _masks_plainly(op) and not op.flags & (_RELU | _COLUMNS) and _is_of_one_scale(op)


def _is_of_one_scale(op: _Op) -> bool:
    """Of products without a bias: whether their sums have no scale a column."""
    return bool(op.flags & _FOLDED) or op.of(2).one_scale


def _fits_instructions(plan: _Plan, op: _Op) -> bool:
    """Of operations on rows of int8: products of eights of terms by twos of columns along rows, of
    twos by fours across; floats and updates of fours, the latter of three of them or more."""
    if op.name in _PRODUCTS:
        n, k = op.of(0).row, op.of(1).row
        return k % 8 == n % 2 == 0 if op.params[0] == 0 else k % 2 == n % 4 == 0
    if op.name == "convert":
        return op.of(1).kind != _FLOAT32 or op.of(1).row % 4 == 0
    row = op.of(2).row if op.has(2) else 12
    return op.name not in _MOVERS or (row % 4 == 0 and row >= 12)


def _is_usual(op: _Op) -> bool:
    """Of conversions: floats to int8 in order, sums to int8 or, by columns, to codes of one scale,
    and to floats."""
    src, dst = op.of(1), op.of(0)
    if dst.kind == _FLOAT32:
        return src.kind == _SYM and src.bits == 32
    if dst.kind != _SYM or op.has(3):
        return False
    if src.kind == _FLOAT32:
        return dst.slot == 8 and (dst.shared == 0 or dst.outer == 1)
    columns = op.has(2) and src.group == 1 and src.inner == 1
    return (
        (src.kind, src.bits, dst.range) == (_SYM, 32, wire.DYNAMIC)
        and dst.one_scale
        and (columns or (src.one_scale and dst.slot == 8 and not op.has(2)))
    )


def _has_each(op: _Op) -> bool:
    """Of conversions: whether each element of a row has a scale of its own."""
    return op.of(1).group == op.of(1).inner == 1


def _is_folded(op: _Op) -> bool:
    """Of widenings: one scale in, one out, and one folded in a column."""
    return (
        op.params[0] == 1
        and op.has(3)
        and op.of(0).one_scale
        and op.of(1).one_scale
        and not op.of(2).one_scale
    )


# Operations that encode nothing but by convert, and products that leave their sums.
_PLAIN = (
    "convert",
    "widen",
    "product_s32",
    "product_fold_s32",
    "product_f32",
    "cross_entropy_s16",
    "cross_entropy_f32",
    "gradient_update_s32",
    "gradient_f32",
    "max_pool",
    "max_pool_back",
    "relu",
)


# Of those, what leaves integer kernels to no other operation than those that are looked at below.
_SIMPLE = ("convert", "widen", "product_s32", "cross_entropy_s16", "gradient_update_s32")


def _pair(op: _Op) -> tuple[int, int]:
    """The widths of the operands of an integer product."""
    return 16 if op.name == _FOLDING else op.of(1).slot, op.of(2).slot


def _sums(plan: _Plan) -> list[_Op]:
    """Operations that sum integer products; an update by one row does not."""
    two = [op for op in plan.ops if op.name in (*_PRODUCTS, *_GRADIENTS) and op.has(2)]
    return [op for op in two if not _is_one_row(plan, op)]


def features(plan: Plan | bytes, counters: bool = False) -> dict[str, int]:
    """Macros for a core that runs this plan and no other; `counters`: and that counts."""
    data = plan if isinstance(plan, bytes) else plan.to_bytes()
    p = _read(data)
    codes = [t for t in p.tensors if t.quantized]
    movers = [op for op in p.ops if op.name in _MOVERS]
    products = [op for op in p.ops if op.name in _PRODUCTS]
    summed, any_window = _sums(p), any(op.window is not None for op in p.ops)
    widths = {_pair(op) for op in summed}
    converts = [op for op in p.ops if op.name == "convert"]
    widens = [op for op in p.ops if op.name == "widen"]
    requantizes = any(op.of(0).bits != 32 for op in products)
    plain = all(op.name in _PLAIN for op in p.ops) and not requantizes
    uses = {
        "ASYM": any(t.kind == _ASYM for t in codes),
        "PACKED": any(t.container == 0 for t in codes),
        "POW2": any(t.pow2 for t in codes),
        "HALF_EVEN": any(t.rounding == _HALF_EVEN for t in codes)
        or any(op.flags >> 3 & 3 == _HALF_EVEN for op in movers),
        "WINDOWS": any_window,
        "SPLIT": any(_splits(p, op) for op in p.ops),
        "DIAGONAL": any(op.name.startswith("gradient") and op.flags & _DIAGONAL for op in p.ops),
        "COUNTERS": counters,
        "MICRO": p.micro_batches > 1,
        "FLOAT_STEP": any(_is_float(op) for op in p.ops),
        "STATE": any(op.has(_UPDATES[op.name][2]) for op in p.ops if op.name in _UPDATES),
        "REQUANTIZE": requantizes,
        "RECOMPUTE": any(_recomputes(op) for op in products),
        "POOLED": any(op.name == "product_pool_s32" for op in p.ops),
        "HINDSIGHT": any(t.range == wire.HINDSIGHT for t in codes),
        "FIXED": any(t.range == wire.FIXED for t in codes),
        "GROUPS": any(1 < t.group < t.axis for t in codes),
        "ROW_SCALES": any(t.rows == wire.ROWS_OUTER and not t.shared for t in codes),
        "SHARED": any(_is_shared(t, p.batch) for t in codes),
        "ADAMW": any(op.name.endswith("adamw") or "_adamw_" in op.name for op in p.ops),
        "FAR_CODES": any(_is_far(p, op) for op in products),
        "F32_BIAS": not plain or any(op.has(3) and op.of(3).kind == _FLOAT32 for op in products),
        "F32_MASK": any(op.has(4) and op.of(4).kind == _FLOAT32 for op in products),
        "S8_S16": (8, 16) in widths or ((16, 8) in widths and any_window),
        "S16_S8": (16, 8) in widths or ((8, 16) in widths and any_window),
        "S16_S16": (16, 16) in widths,
        "F32_PRODUCT": any(op.name in ("product_f32", "gradient_f32") for op in p.ops),
        "ANY_CONVERT": not (plain and all(_is_usual(op) for op in converts)),
        "PANELS": any_window or p.batch > 3 or any(op.params[3] > 1 for op in products),
        "ANY_WIDEN": not all(_is_folded(op) for op in widens),
        "ANY_QUANTIZE": not plain
        or any(op.of(1).kind == _FLOAT32 and op.of(0).rounding != _HALF_AWAY for op in converts),
        "ANY_ROWS": not all(
            _rounds_plainly(op) for op in [*widens, *products] + [c for c in converts if c.has(2)]
        ),
        "BATCH": p.batch > 1,
        "FEW_COLUMNS": any_window
        or p.batch > 1
        or any(op.of(0).row // (op.params[3] or 1) < 4 or op.params[3] > 1 for op in products),
        "BYTE_ROWS": any_window
        or any(not _is_along_rows(op) for op in summed if _pair(op) == (8, 8)),
        "WIDE_DOTS": any_window or any(_is_along_rows(op) and _pair(op) != (8, 8) for op in summed),
        "ODD_ROWS": any_window
        or any(_is_along_rows(op) and (_terms(p, op)[0] % 4 or _splits(p, op)) for op in products),
        "ANY_MOVE": counters or not all(_is_one_row(p, op) for op in movers),
    }
    simple = not uses["ANY_CONVERT"] and all(op.name in _SIMPLE for op in p.ops)
    by_column = widens + [c for c in converts if c.has(2)]
    nearest = [c for c in converts if c.of(0).rounding != _STOCHASTIC and not c.has(2)]
    uses |= {
        "ANY_GEMM": not (simple and all(_is_one_by_four(p, op) for op in summed)),
        "ANY_MASK": not (simple and all(_masks_plainly(op) for op in products)),
        "ANY_FINISH": not (simple and all(_finishes_plainly(p, op) for op in products)),
        "ANY_FLOATS": not simple
        or any(c.of(0).kind == _FLOAT32 and not _has_each(c) for c in converts),
        "FLOAT_RUNS": not simple
        or any(c.of(1).kind == _FLOAT32 and not c.of(0).one_scale for c in converts),
        "NEAREST_S8": not simple or any(c.of(1).kind == c.of(0).kind == _SYM for c in nearest),
        "MANY_ROWS": not (simple and all(_is_one_row_of_ratios(p, op) for op in by_column)),
    }
    one_row = not (uses["ANY_GEMM"] or uses["ANY_MOVE"])
    uses["OUTER"] = not one_row or p.batch > 1 or any(t.outer != 1 for t in p.tensors)
    uses["RESTS"] = not (one_row and all(_fits_instructions(p, op) for op in p.ops))
    own = narrow(data)
    macros = {f"QFW_HAS_{name}": int(used) for name, used in uses.items()}
    return {
        "QFW_DIRECT": 1,
        "QFW_ANY_PLAN": 0,
        "QFW_PLAN_CRC": p.crc,
        "QFW_LASTING_BYTES": p.lasting,
        "QFW_PLACES": places_of(data),
        "QFW_NARROW_PLAN": int(own is not None),
        "QFW_SHORT_TENSORS": int(own is not None and has_short_tensors(own)),
    } | macros
