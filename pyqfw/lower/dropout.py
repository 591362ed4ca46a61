"""Dropout: in a step alone, the same draws forward and back."""

from __future__ import annotations

from dataclasses import replace
from math import floor

import numpy as np

from .. import nn
from ..formats import Asym, Sym
from .context import Backward
from .ir import Op, Tensor, stream_of
from .pointwise import raw_result
from .tape import Tape, Taped
from .trace import Node

ALL = 1


class _Dropout:
    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        assert isinstance(node.layer, nn.Dropout)
        if node.layer.p == 0.0:
            return x
        if not tape.training:
            tape.taped.append(Taped(node, x, x))  # layers after it go the way they go in a step
            return x
        y = _result(tape, node, x)
        tape.ops.append(_op(node, y, x))
        tape.taped.append(Taped(node, x, y))
        return y

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        error = back.sums(error, taped.node.path)
        back.ops.append(_op(taped.node, error, error))
        return error


DROPOUT = _Dropout()


def _result(tape: Tape, node: Node, x: Tensor) -> Tensor:
    """Sums in place, unless backward needs them; what is stored, with scales that can be any."""
    if x.raw:
        return raw_result(tape, node, x)
    fmt = x.fmt
    if isinstance(fmt, (Sym, Asym)):
        fmt = replace(fmt, scale="float", range="dynamic")
    return replace(x, name=f"{node.path}:wire", role="wire", fmt=fmt)


def _op(node: Node, y: Tensor, x: Tensor) -> Op:
    """Drops where a draw is below the threshold; what is kept grows by 1 / (1 - p)."""
    assert isinstance(node.layer, nn.Dropout)
    p = node.layer.p
    threshold, factor = floor(p * 2.0**32 + 0.5), np.float32(1.0 if p == 1.0 else 1.0 / (1.0 - p))
    everything = threshold >= 2**32
    params = {
        0: 0 if everything else threshold,
        1: float(factor),
        2: stream_of(node.path, "dropout"),
    }
    return Op("dropout", node.path, (y, x), params, ALL if everything else 0)
