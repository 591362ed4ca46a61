"""The second opinion on sums over micro-batches: docs/numerics.md section 24."""

from __future__ import annotations

from math import prod

import numpy as np
import oracle as o
from oracle_product import lift
from oracle_tensor import (
    Acc,
    Array,
    Format,
    Tensor,
    encode,
    extremes,
    is_float,
    is_floating,
    quotients,
    rescaled,
    uniforms,
)

JOINT_BITS = 28


def micro_seed(seed: int, number: int) -> int:
    """The generator's seed in a micro-batch of a step."""
    return (seed + number * 0x9E3779B9) % o.WORD


def share(error: Acc, rows: int, step_rows: int) -> Acc:
    """The error of a mean over rows as a part of one over the step's."""
    if rows == step_rows:
        return error
    part = np.float32(rows) / np.float32(step_rows)
    if error.scale is None:
        return Acc(error.values * part)
    return Acc(error.values, error.scale * part)


def mean_loss(losses: list[tuple[np.float32, int]]) -> np.float32:
    """Of a step, from the means of its micro-batches and their rows."""
    if len(losses) == 1:
        return losses[0][0]
    total = np.float32(0)
    for loss, rows in losses:
        total += loss * np.float32(rows)
    return np.float32(total / np.float32(sum(rows for _, rows in losses)))


def added(kept: Tensor, new: Acc, fmt: Format, key: o.Key) -> Tensor:
    """A stored gradient and what the next micro-batch gives."""
    if is_float(fmt):
        return Tensor(fmt, kept.codes + new.floats(), origin=kept.origin)
    if not isinstance(fmt.range, str):
        return _moved(kept, new, fmt, key)
    if is_floating(new):
        return encode(Acc(new.floats() + kept.floats()), fmt, key)
    return encode(joined(kept, new), fmt, key)


def joined(kept: Tensor, new: Acc) -> Acc:
    """Both as integers at one scale for each run, with room for their sum."""
    fmt = kept.format
    index, runs = kept.index, prod(kept.scale.shape) if kept.scale is not None else 0
    sizes = [
        max(abs(v) for v in both)
        for both in (
            (*a, *b)
            for a, b in zip(extremes(kept, index, runs), extremes(new, index, runs), strict=True)
        )
    ]
    top = o.top_code(fmt.bits, fmt.asymmetric)
    found = [float(o.scale_above(size / top)) for size in sizes]
    width = fmt.bits + (1 if fmt.asymmetric else 0)
    scale = lift(np.array(found, np.float32), width - JOINT_BITS)[index]
    zero = np.zeros_like(index)
    sums = [
        rescaled(m, s, scale, JOINT_BITS, "half_away", zero) for m, s in (kept.pairs(), new.pairs())
    ]
    return Acc(sums[0] + sums[1], scale)


def _moved(kept: Tensor, new: Acc, fmt: Format, key: o.Key) -> Tensor:
    """Codes of a fixed range: each addend is rounded to whole steps of it."""
    u: Array = uniforms(key, prod(kept.shape)).reshape(kept.shape)
    if is_floating(new):
        steps = quotients(new.floats(), kept.scales, fmt.rounding, u)
    else:
        width = fmt.bits + (1 if fmt.asymmetric else 0)
        steps = rescaled(*new.pairs(), kept.scales, width, fmt.rounding, u)
    return kept.with_ints(np.clip(kept.ints() + steps, *kept.bounds))
