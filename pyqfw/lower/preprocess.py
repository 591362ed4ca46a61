"""What is done to the input before a layer sees it: docs/numerics.md section 37."""

from __future__ import annotations

import numpy as np

from ..data.standardize import Standardize
from ..formats import Float32
from .ir import Op, Tensor
from .norm import POSITIONS
from .operands import convert
from .tape import Tape

NAME = "input"


def taken(tape: Tape, x: Tensor, first: Tensor, preprocess: Standardize | None) -> None:
    """The caller's rows as the net's first wire."""
    if preprocess is None:
        tape.ops.append(convert(x, first, NAME))
    elif isinstance(first.fmt, Float32):
        tape.ops.append(convert(x, first, NAME))
        tape.ops.append(_standardized(tape, first, first, preprocess))
    else:
        y = Tensor(f"{NAME}:standardized", x.shape, "scratch", Float32(), rows=True)
        y.channels = x.channels
        tape.ops += [_standardized(tape, y, x, preprocess), convert(y, first, NAME)]


def _standardized(tape: Tape, y: Tensor, x: Tensor, preprocess: Standardize) -> Op:
    """y = x a + b, with the columns that memory has: channels, if they are last; one, if all have
    the same numbers; else every element."""
    a, b = preprocess.factor, preprocess.offset
    if preprocess.channels > 1 and not x.channels:
        a, b = (np.repeat(v, x.size // preprocess.channels) for v in (a, b))
    tables = [
        tape.constant(f"{NAME}:{name}", v, Float32()) for name, v in (("factor", a), ("offset", b))
    ]
    return Op("fold_f32", NAME, (y, x, *tables), {POSITIONS: x.size // len(a)})
