"""The second opinion on values that meet: docs/numerics.md section 33."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import oracle as o
from oracle_layers import one_scale
from oracle_product import Operand, lift
from oracle_tensor import Acc, Array, Tensor, is_float, rescaled

WIDE = 28  # bits of an operand at the common scale


class Codes:
    """The format of codes that were widened: Sym, one scale."""

    asymmetric, axis, group = False, None, None
    scale, pow2, range, rounding, container = "float", False, "dynamic", "half_away", "packed"

    def __init__(self, bits: int) -> None:
        self.bits = bits


def at_one_scale(t: Tensor) -> Tensor:
    """Codes with one scale; floats stay as they are."""
    f = t.format
    if is_float(f) or (f.axis is f.group is None and not f.asymmetric):
        return t
    op = one_scale(t)
    scale = np.array(op.scale.flat[0], np.float32)
    return Tensor(Codes(op.bits), op.m, scale, origin=t.shape)


def _met(operands: Sequence[Tensor]) -> tuple[list[Array], Array]:
    """The operands at the common scale, and that."""
    ops: list[Operand] = [one_scale(t) for t in operands]
    bits = max(op.bits for op in ops)
    known = [op.scale.flat[0] for op in ops if not op.rangeless.all()]
    common = lift(max(known), bits - 27) if known else np.float32(1)
    top = 2 ** (WIDE - 1) - 1
    found = []
    for op in ops:
        to = np.broadcast_to(common, op.m.shape)
        v = rescaled(op.m, op.scale, to, WIDE, "half_away", np.zeros_like(op.m))
        found.append(np.clip(v, -top, top))
    return found, common


def _sums(values: Array, scale: Array) -> Acc:
    assert np.abs(values).max(initial=0) <= o.INT32_MAX
    return Acc(values, np.broadcast_to(scale, values.shape))


def added(operands: Sequence[Tensor], in_floats: bool) -> Acc:
    """The sum, in the order of the operands."""
    if in_floats:
        total = operands[0].floats()
        with np.errstate(under="ignore"):
            for t in operands[1:]:
                total = total + t.floats()
        return Acc(total)
    values, scale = _met(operands)
    return _sums(sum(values[1:], values[0]), scale)


def beside(operands: Sequence[Tensor], positions: int, in_floats: bool) -> Acc:
    """[rows, positions, ...]: the operands side by side at each position."""

    def laid(parts: Sequence[Array]) -> Array:
        return np.concatenate([p.reshape(len(p), positions, -1) for p in parts], axis=2)

    if in_floats:
        return Acc(laid([t.floats() for t in operands]))
    values, scale = _met(operands)
    return _sums(laid(values), scale)


def parts(error: Tensor, positions: int, sizes: Sequence[int]) -> list[Tensor]:
    """Of each position's codes, those of each operand: [rows, positions, size]."""
    whole = at_one_scale(error)
    codes = whole.codes.reshape(len(whole.codes), positions, -1)
    found, begin = [], 0
    for size in sizes:
        piece = codes[:, :, begin : begin + size]
        found.append(Tensor(whole.format, piece, whole.scale, origin=piece.shape))
        begin += size
    return found
