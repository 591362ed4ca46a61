"""Layers that change codes and no scales, or scales and no values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .. import nn
from .context import ABOVE_ZERO, INSIDE, Backward
from .ir import Op, Tensor
from .tape import Tape, Taped
from .trace import Node

RELU_FLAG = 1
WITH_RELU = (
    *("product_s32", "product_f32", "normalize_s32", "normalize_f32"),
    *("batch_norm_s32", "batch_norm_f32", "fold_s32", "fold_f32"),
)


class _Flatten:
    """Another shape of the same bytes."""

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        return x

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        return error


class _ReLU:
    """Part of the product before it where it can be. Errors pass where the stored code is > 0."""

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        last = tape.ops[-1]
        if x.raw and last.kernel in WITH_RELU and last.places[0] is x:
            last.flags |= RELU_FLAG
            y = x
        elif x.raw:
            tape.ops.append(Op("relu", node.path, (x, x)))
            y = x
        else:
            y = like(node, x)
            tape.ops.append(Op("relu", node.path, (y, x)))
        tape.taped.append(Taped(node, x, y))
        return y

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        return back.mask(error, back.tape.kept(taped.y), taped.node.path, ABOVE_ZERO)


class _LeakyReLU:
    """ReLU with another factor than 0 for what is not above it; with 0 it is ReLU."""

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        slope = _slope(node)
        if slope == 0.0:
            return RELU.forward(tape, node, x)
        y = raw_result(tape, node, x) if x.raw else like(node, x)
        tape.ops.append(Op("relu", node.path, (y, x), {0: slope}))
        tape.taped.append(Taped(node, x, y))
        return y

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        slope = _slope(taped.node)
        if slope == 0.0:
            return RELU.backward(back, taped, error, deeper)
        wire, path = back.tape.kept(taped.y), taped.node.path
        error = back.sums(error, path)
        back.ops.append(Op("mask", path, (error, wire), {0: ABOVE_ZERO, 1: slope}))
        return error


def _slope(node: Node) -> float:
    """As a float32; below the normal numbers it is 0."""
    assert isinstance(node.layer, nn.LeakyReLU)
    slope = np.float32(node.layer.negative_slope)
    return float(slope) if slope >= np.finfo(np.float32).tiny else 0.0


def like(node: Node, x: Tensor) -> Tensor:
    """The wire of a layer that changes codes and leaves their scales."""
    return replace(x, name=f"{node.path}:wire", role="wire", space="arena")


def raw_result(tape: Tape, node: Node, x: Tensor) -> Tensor:
    """Where a layer that changes sums writes: in place, unless backward reads what they were."""
    if x not in tape.needed:
        return x
    return tape.made(tape.makers[x], replace(x, name=f"{node.path}:sums"))


class _Quant:
    """A format. Errors pass as they are, but not where a fixed or hindsight range was left."""

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        assert isinstance(node.layer, nn.Quant)
        y = tape.store(x, node.in_shape, node.layer.fmt or node.policy.wires, node.path)
        tape.taped.append(Taped(node, x, y))
        return y

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        fmt = taped.y.fmt
        if fmt is not None and fmt.range != "dynamic":
            return back.mask(error, taped.y, taped.node.path, INSIDE)
        return error


FLATTEN, RELU, LEAKY_RELU, QUANT = _Flatten(), _ReLU(), _LeakyReLU(), _Quant()
