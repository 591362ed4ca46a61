"""Sums that become codes as a part of their product, some at a time.

A fixed range is known before; a hindsight range is but for its gain, which is state; a dynamic one
is found by computing the sums twice, where the policy says so. The bits are those of two
operations, so this is a pass over a program that is whole otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import QfwError
from ..formats import Float32
from .context import INSIDE
from .ir import ACCUMULATOR, ALIGN, Op, Program, Tensor, Watch
from .operands import as_dynamic, is_hindsight, is_plain, per_tensor
from .windows import LONG, Window

GAINS = 8  # of a commit
ABSOLUTE = 0  # param of a convert: its range is relative to 1
# What makes sums of the operand at place 1, in proportion to it.
MAKERS = ("product_s32", "normalize_back_s32", "batch_norm_back_s32", "fold_s32")
NORMS = ("normalize_s32", "batch_norm_s32", "fold_s32")
TILE_BYTES = 1024  # of accumulators
LONG_ROWS = 16  # of a long batch, at least so many are summed at a time


def settle(program: Program, commits: bool) -> None:
    """Gives hindsight ranges their gains, and products the codes that their sums become."""
    for op, ops in _ranged(program):
        dst, src, scratch = op.places[:3]
        assert dst is not None
        _, incoming = _relative_to(op, ops)
        if _is_normal(op, ops):
            op.params[ABSOLUTE] = 1
        made = Tensor(f"{dst.name} gain", (2,), "state", Float32())
        gain = program.gains.setdefault(made.name, made)
        op.places, op.writes = (dst, src, scratch, gain, incoming), (0, 2, 3)
    users = program.users
    for ops in program.sections.values():
        for op in [op for op in ops if op.kernel == "convert"]:
            product = _fusable(op, ops, users, program.batch)
            if product is not None:
                _fuse(product, op, program.batch)
                ops.remove(op)
                continue
            pool = _poolable(op, ops, users, program.batch)
            if pool is not None:
                _fuse_pool(pool, op, ops, program.batch)
    gains = list(program.gains.values()) if commits else []
    for i in range(0, len(gains), GAINS):
        some = tuple(gains[i : i + GAINS])
        writes = tuple(range(len(some)))
        program.sections["update"].append(Op("commit", "gains", some, writes=writes))


def watch(program: Program) -> None:
    """Dynamic ranges instead of hindsight ones, and what tells the gains that these would have."""
    for op, ops in _ranged(program):
        dst, src = op.places[:2]
        assert dst is not None
        assert src is not None
        maker, incoming = _relative_to(op, ops)
        absolute = _is_normal(op, ops)
        program.watched.append(Watch(f"{dst.name} gain", op, src, maker, incoming, absolute))
    for ops in program.sections.values():
        ops[:] = [op for op in ops if not _masks_hindsight(op)]
    for t in program.tensors:
        if is_hindsight(t.fmt):
            assert t.fmt is not None
            t.fmt = as_dynamic(t.fmt)


def _masks_hindsight(op: Op) -> bool:
    """A dynamic range is never left."""
    inside = op.kernel == "mask" and op.params[0] == INSIDE
    return inside and op.places[1] is not None and is_hindsight(op.places[1].fmt)


def _ranged(program: Program) -> list[tuple[Op, list[Op]]]:
    """Conversions that find their range in hindsight, with the operations of their section."""
    found = []
    for ops in program.sections.values():
        for op in ops:
            dst, src = op.places[0], op.places[1] if len(op.places) > 1 else None
            if op.kernel == "convert" and dst is not None and src is not None:
                ranged = is_hindsight(dst.fmt) and not _carries(src, dst)
                found += [(op, ops)] if ranged else []
    return found


def _carries(src: Tensor, dst: Tensor) -> bool:
    """Whether two stored tensors differ in slots and rounding only, so that scales carry over."""
    a, b = src.fmt, dst.fmt
    if a is None or b is None or a is ACCUMULATOR or isinstance(a, Float32):
        return False
    kinds = [(f.asymmetric, f.bits, f.scale, f.range) for f in (a, b)]
    layouts = [
        [replace(y, group=min(y.group, y.axis)) for y in (t.layout(1), t.layout(2))]
        for t in (src, dst)
    ]
    return kinds[0] == kinds[1] and layouts[0] == layouts[1]


def _is_normal(op: Op, ops: list[Op]) -> bool:
    """Whether it stores what a normalisation made: that follows no scale of what came in."""
    dst, src = op.places[:2]
    assert dst is not None
    assert src is not None
    origin = _selected_from(ops, src)
    normal = any(o.kernel in NORMS and o.places[0] is origin for o in ops)
    return normal and dst.role == "wire"


def _relative_to(op: Op, ops: list[Op]) -> tuple[Op | None, Tensor | None]:
    """What made the sums, and its operand, which has one scale; or nothing, where the source itself
    has one, or the range is relative to 1."""
    dst, src = op.places[:2]
    assert dst is not None
    assert src is not None
    if _is_normal(op, ops):
        return None, None
    origin = _selected_from(ops, src)
    makers = (o for o in ops if o.kernel in MAKERS and o.places[0] is origin is not o.places[1])
    maker = next(makers, None)
    incoming = None if maker is None else maker.places[1]
    scaled = incoming or src
    one = scaled.spread == "tensor" or (scaled.spread == "format" and per_tensor(scaled.fmt))
    if not one:
        raise QfwError(
            f"layer '{op.layer}': {dst.role}s={dst.fmt!r}: a hindsight range follows the one scale "
            f"of what comes in, and '{scaled.name}' has several: choose range=\"dynamic\" or a "
            f"number, or one scale there"
        )
    return maker, incoming


def _product(ops: list[Op], t: Tensor) -> Op | None:
    """What made these sums, if it is one."""
    return next((op for op in ops if op.kernel == "product_s32" and op.places[0] is t), None)


def _selected_from(ops: list[Op], t: Tensor) -> Tensor:
    """The sums that some are the largest of; these themselves if they are not."""
    found = next((op for op in ops if op.kernel == "max_pool" and op.places[0] is t), None)
    if found is None or found.places[1] is None:
        return t
    return _selected_from(ops, found.places[1])


def _fusable(op: Op, ops: list[Op], users: dict[Tensor, int], batch: int) -> Op | None:
    """The product that can write what the conversion writes: nothing else has its sums."""
    dst, src = op.places[:2]
    assert dst is not None
    assert src is not None
    if src.fmt is not ACCUMULATOR or users[src] != 2:
        return None
    product = _product(ops, src)
    writes = product is not None and _can_write(product, dst, src, _tile_rows(src, batch), batch)
    return product if writes else None


def _can_write(product: Op, dst: Tensor, sums: Tensor, rows: int, batch: int) -> bool:
    """Whether a product can write these codes: of one scale, which is known, or which so many rows
    of sums at a time find in less memory than all of them take."""
    if dst.fmt is None or not is_plain(dst) or not per_tensor(dst.fmt):
        return False
    ratios = 16 * _by_column(sums) * (sums.size // sums.positions)
    less = _tile(sums, rows).nbytes(1) + ratios < sums.nbytes(batch)
    return dst.fmt.range != "dynamic" or (product.twice and less)


def _poolable(op: Op, ops: list[Op], users: dict[Tensor, int], batch: int) -> Op | None:
    """The pool of a convolution's sums that the convolution can do before it writes codes: nothing
    else has the sums, and no window leaves them or shares any with another."""
    dst, src = op.places[:2]
    assert dst is not None
    assert src is not None
    if src.fmt is not ACCUMULATOR:
        return None
    pool = next((o for o in ops if o.kernel == "max_pool" and o.places[0] is src), None)
    if pool is None or users[src] != 2 or pool.window is None:
        return None
    sums, w = pool.places[1], pool.window
    assert sums is not None
    maker = _product(ops, sums)
    if maker is None or users[sums] != 2 or maker.window is None or maker.params[0] != 0:
        return None
    plain = (w.pad_h, w.pad_w, w.dilation_h, w.dilation_w) == (0, 0, 1, 1)
    free = maker.places[4] is None and _can_write(maker, dst, sums, _band(sums, w, batch), batch)
    return pool if plain and w.apart and w.covered and free else None


def _fuse_pool(pool: Op, op: Op, ops: list[Op], batch: int) -> None:
    """The product, its pool and the conversion as one operation."""
    src, w = pool.places[1], pool.window
    assert src is not None
    assert w is not None
    product = _product(ops, src)
    assert product is not None
    _, a, b, bias, _, seeds = product.places[:6]
    columns = src.size // src.positions
    tile = _tile(src, _band(src, w, batch))
    ends = _seeds_end(src, bias) + 4 * columns
    name = seeds.name if seeds else f"{src.name} ratios"
    scratch = Tensor(name, (-(-ends // ALIGN) * ALIGN + product.patches,), "scratch")
    gain = op.places[3] if len(op.places) > 3 else None
    product.kernel, product.pool = "product_pool_s32", w
    product.places = (op.places[0], a, b, bias, pool.places[2], scratch, tile, gain)
    product.writes = (0, 4, 5, 6, 7)
    product.macs *= 1 + product.recomputed
    ops.remove(pool)
    ops.remove(op)


def _fuse(product: Op, op: Op, batch: int) -> None:
    """Codes instead of sums; of these there is room for some rows."""
    _, a, b, bias, mask, seeds = product.places[:6]
    dst, sums = op.places[:2]
    assert sums is not None
    columns = sums.size // sums.positions
    tile = _tile(sums, _tile_rows(sums, batch))
    need = (16 * _by_column(sums) + 5 * (bias is not None)) * columns
    need = need if not product.patches else -(-need // ALIGN) * ALIGN + product.patches
    name = seeds.name if seeds else f"{sums.name} ratios"
    scratch = Tensor(name, (need,), "scratch") if need else None
    gain = op.places[3] if len(op.places) > 3 else None
    product.places = (dst, a, b, bias, mask, scratch, tile, gain)
    product.writes = (0, 5, 6, 7)
    product.macs *= 1 + product.recomputed


def _tile_rows(sums: Tensor, batch: int) -> int:
    """Rows of sums that are made at a time."""
    if sums.spread not in ("tensor", "columns"):
        return 1
    rows = max(TILE_BYTES // (4 * (sums.size // sums.positions)), LONG_ROWS if batch >= LONG else 1)
    return min(rows, batch * sums.positions)


def _band(sums: Tensor, w: Window, batch: int) -> int:
    """And of those that are pooled: whole windows."""
    if w.kernel_h > 1:
        return w.kernel_h * w.in_w
    most = max(TILE_BYTES // (4 * (sums.size // sums.positions)), LONG_ROWS if batch >= LONG else 1)
    rows = max(1, (min(most, w.in_w) - w.kernel_w) // w.stride_w + 1)
    return (rows - 1) * w.stride_w + w.kernel_w


def _by_column(sums: Tensor) -> bool:
    return sums.spread in ("columns", "grid")


def _tile(sums: Tensor, rows: int) -> Tensor:
    """So many rows of sums."""
    shape = (rows, sums.size // sums.positions)
    tile = Tensor(f"{sums.name} of {rows} rows", shape, "scratch", ACCUMULATOR)
    tile.spread, tile.positions = "columns" if _by_column(sums) else "tensor", rows
    return tile


def _seeds_end(sums: Tensor, bias: Tensor | None) -> int:
    """Bytes of scratch for ratios and seeds, up to what is aligned."""
    need = (16 * _by_column(sums) + 5 * (bias is not None)) * (sums.size // sums.positions)
    return -(-need // ALIGN) * ALIGN
