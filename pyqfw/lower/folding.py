"""Operands that are widened a few positions at a time, by the product that reads them.

The bits are those of two operations, so this is a pass over a program that is whole otherwise.
"""

from __future__ import annotations

from .ir import Op, Program, Tensor
from .operands import BY_COLUMN, is_plain, per_tensor
from .windows import LONG, Window

FOLDED_B = 2
BITS = 4  # param: of the widened codes
ROOM_BYTES = {False: 2048, True: 1024}  # of widened positions; for a tile of sums


def fold(program: Program) -> None:
    """The way back of a convolution over a line, for a short batch without stored gradients: RAM
    is what counts then."""
    if program.batch >= LONG or program.gradients:
        return
    users = program.users
    for ops in program.sections.values():
        for op in [op for op in ops if op.kernel == "widen"]:
            product = _reader(op, ops, users)
            if product is not None:
                _fuse(product, op)
                ops.remove(op)


def _reader(op: Op, ops: list[Op], users: dict[Tensor, int]) -> Op | None:
    """The product that can widen its operand itself: nothing else reads that."""
    dst, src, by = op.places[:3]
    assert dst is not None
    assert src is not None
    if by is None or op.params[0] != BY_COLUMN or users[dst] != 2:
        return None
    at = ops.index(op)
    reader = next((i for i in range(at + 1, len(ops)) if ops[i].places[1] is dst), None)
    if reader is None or any(src in other.written for other in ops[at:reader]):
        return None
    product = ops[reader]
    narrow = is_plain(src) and src.fmt is not None and src.fmt.element_bits == 8
    wide = dst.fmt is not None and dst.fmt.element_bits == 16 and dst.fmt.bits > 8
    one = per_tensor(src.fmt) and per_tensor(dst.fmt) and by.layout(1).n_scales == op.params[1]
    known = product.kernel == "product_s32" and product.places[2] is by
    return product if narrow and wide and one and known and _is_line(product) else None


def _is_line(product: Op) -> bool:
    """Whether it goes back over a line, and makes no copies of its own."""
    w = product.window
    if w is None or product.flags != FOLDED_B or product.params[0] != 1 or product.patches:
        return False
    line = w.in_h == w.out_h == w.kernel_h == w.groups == w.dilation_w == 1 and w.pad_h == 0
    return line and w.stride_w <= w.kernel_w and product.places[3] is None


def positions_met(w: Window) -> int:
    """The most that a pixel meets."""
    return -(-w.kernel_w // w.stride_w)


def _fuse(product: Op, op: Op) -> None:
    dst, src = op.places[:2]
    w, columns = product.window, int(op.params[1])
    assert dst is not None
    assert dst.fmt is not None
    assert w is not None
    some = ROOM_BYTES[len(product.places) > 6] // (2 * columns)
    room = max(positions_met(w), min(w.out_w, some))
    scratch = Tensor(f"{dst.name}, some", ((16 + 2 * room) * columns,), "scratch")
    y, _, b, bias, mask = product.places[:5]
    product.kernel, product.folded = "product_fold_s32", dst
    product.params[BITS] = dst.fmt.bits
    product.places = (y, src, b, bias, mask, scratch, *product.places[6:])
    product.writes = (0, 5, *range(6, len(product.places)))
