"""Convolutions to try, each between two others, and how they are trained."""

from __future__ import annotations

from math import prod
from typing import Any

from oracle_graph import Graph, Layer
from oracle_window import Conv
from step_helpers import Case

import pyqfw as q
from pyqfw import optim

RANDOM = {"rounding": "stochastic"}
MOMENTUM = optim.SGD(0.05, momentum=0.9, weight_decay=0.01)

ONE: dict[str, tuple[tuple[int, ...], Conv]] = {  # the sizes of an image, a convolution of it
    "plain": ((7,), Conv(3, 4, (3,))),
    "pointwise": ((5,), Conv(3, 4, (1,))),
    "pointwise, strides": ((6,), Conv(3, 4, (1,), stride=(2,))),
    "padded": ((5,), Conv(3, 4, (3,), padding=(1,))),
    "padded more than the kernel": ((3,), Conv(2, 3, (2,), padding=(3,))),
    "same": ((5,), Conv(3, 4, (4,), same=True)),
    "same, dilated": ((6,), Conv(2, 2, (2,), dilation=(3,), same=True)),
    "strides": ((9,), Conv(3, 4, (3,), stride=(2,))),
    "strides beyond the kernel": ((11,), Conv(2, 3, (2,), stride=(4,))),
    "strides and padding": ((8,), Conv(3, 4, (5,), stride=(3,), padding=(2,))),
    "dilated": ((9,), Conv(3, 4, (3,), dilation=(3,))),
    "dilated and padded": ((4,), Conv(3, 2, (3,), dilation=(3,), padding=(3,))),
    "groups": ((5,), Conv(6, 4, (3,), padding=(1,), groups=2)),
    "groups, strides": ((7,), Conv(6, 9, (3,), stride=(2,), groups=3)),
    "each channel": ((6,), Conv(5, 5, (3,), padding=(1,), groups=5)),
    "each channel, strides": ((9,), Conv(5, 5, (3,), stride=(2,), dilation=(2,), groups=5)),
    "each channel twice": ((5,), Conv(3, 6, (3,), padding=(2,), groups=3)),
    "one channel": ((6,), Conv(1, 1, (3,))),
    "from one channel": ((6,), Conv(1, 3, (3,), padding=(1,))),
    "to one channel": ((6,), Conv(3, 1, (3,), bias=False)),
    "one position": ((3,), Conv(4, 5, (3,))),
    "one pixel": ((1,), Conv(4, 5, (3,), padding=(1,))),
    "kernel beyond the image": ((2,), Conv(3, 4, (5,), padding=(2,))),
    "pixels that nothing meets": ((8,), Conv(2, 3, (1,), stride=(3,))),
    "transposed": ((4,), Conv(3, 4, (3,), transposed=True)),
    "transposed, strides": ((4,), Conv(3, 4, (3,), stride=(2,), padding=(1,), transposed=True)),
    "transposed, more": (
        (3,),
        Conv(3, 4, (3,), stride=(3,), output_padding=(2,), bias=False, transposed=True),
    ),
    "transposed, dilated": ((3,), Conv(2, 3, (3,), dilation=(2,), padding=(1,), transposed=True)),
    "transposed, groups": ((4,), Conv(6, 4, (2,), stride=(2,), groups=2, transposed=True)),
    "transposed, each channel": ((4,), Conv(5, 5, (3,), stride=(2,), groups=5, transposed=True)),
    "transposed, to one channel": ((4,), Conv(3, 1, (3,), transposed=True)),
    "transposed, one pixel": ((1,), Conv(3, 2, (2,), transposed=True)),
}
TWO: dict[str, tuple[tuple[int, ...], Conv]] = {
    "plane": ((4, 5), Conv(2, 3, (3, 2))),
    "plane, padded": ((3, 4), Conv(2, 3, (3, 3), padding=(1, 1))),
    "plane, pointwise": ((3, 2), Conv(3, 4, (1, 1))),
    "plane, odd": ((6, 5), Conv(2, 3, (2, 3), stride=(3, 2), padding=(1, 2), dilation=(2, 1))),
    "plane, lines": ((3, 6), Conv(2, 3, (1, 3), stride=(2, 1))),
    "plane, padded lines": ((3, 5), Conv(2, 3, (1, 3), stride=(2, 2), padding=(0, 1))),
    "plane, columns": ((6, 3), Conv(2, 3, (3, 1), padding=(1, 0), dilation=(2, 1))),
    "plane, groups": ((3, 3), Conv(4, 6, (2, 2), groups=2, padding=(1, 0))),
    "plane, each channel": ((4, 3), Conv(3, 3, (3, 3), padding=(1, 1), groups=3)),
    "plane, each channel, odd": (
        (5, 4),
        Conv(3, 3, (2, 3), stride=(2, 1), padding=(1, 2), dilation=(2, 2), groups=3),
    ),
    "plane, same": ((3, 4), Conv(2, 3, (2, 4), same=True)),
    "plane, to one": ((3, 3), Conv(2, 4, (3, 3))),
    "plane, transposed": (
        (2, 3),
        Conv(3, 2, (3, 2), stride=(2, 1), padding=(1, 0), output_padding=(1, 0), transposed=True),
    ),
    "plane, transposed groups": (
        (2, 2),
        Conv(4, 6, (2, 3), stride=(1, 2), groups=2, bias=False, transposed=True),
    ),
    "plane, transposed each channel": (
        (3, 2),
        Conv(3, 3, (3, 3), stride=(2, 2), padding=(1, 1), groups=3, transposed=True),
    ),
}
GEOMETRIES = ONE | TWO


def between(name: str) -> tuple[tuple[int, ...], list[Layer]]:
    """The input's shape, and the convolution behind a pointwise one, so that its own error goes
    back; a ReLU and a Linear follow."""
    sizes, conv = GEOMETRIES[name]
    shape = (2, *sizes)
    layers: list[Layer] = [
        ("conv", "in", Conv(2, conv.inputs, (1,) * len(sizes))),
        *(("conv", "c", conv), ("relu", "r"), ("flatten", "f")),
    ]
    size = prod(Graph(layers, shape).places["f"].shape)
    return shape, [*layers, ("linear", "out", size, 3, True)]


def case(name: str, policy: q.Policy, **options: Any) -> Case:
    """A few steps of it, some of them short."""
    shape, layers = between(name)
    given: dict[str, Any] = {"sgd": MOMENTUM, "batch": 3, "rows": (3, 2)} | options
    return Case(layers, policy, shape=shape, **given)
