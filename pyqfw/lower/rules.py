"""One rule for each kind of layer: its forward as operations, and its error's way back."""

from __future__ import annotations

from typing import Protocol

from .. import nn
from ..errors import QfwError
from . import dropout, linear, norm, pointwise, softmax
from .context import Backward
from .ir import Tensor
from .tape import Tape, Taped
from .trace import Node


class Rule(Protocol):
    """What a module of this folder offers for a kind of layer."""

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        """The layer's output. What backward needs goes onto the tape."""

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """The error of the layer's input, where a layer below it learns (`deeper`)."""


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear.LINEAR,
    nn.LayerNorm: norm.LAYER_NORM,
    nn.ReLU: pointwise.RELU,
    nn.LeakyReLU: pointwise.LEAKY_RELU,
    nn.Softmax: softmax.SOFTMAX,
    nn.Dropout: dropout.DROPOUT,
    nn.Flatten: pointwise.FLATTEN,
    nn.Quant: pointwise.QUANT,
}


def rule_of(node: Node) -> Rule:
    rule = RULES.get(type(node.layer))
    if rule is None:
        known = ", ".join(kind.__name__ for kind in RULES)
        raise QfwError(
            f"layer '{node.path}': {type(node.layer).__name__} has no rule; known: {known}"
        )
    return rule
