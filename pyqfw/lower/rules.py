"""One rule for each kind of layer: its forward as operations, and its error's way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .. import nn
from ..errors import QfwError
from . import (
    activations,
    batch_norm,
    dropout,
    joins,
    norm,
    pointwise,
    pools,
    product,
    softmax,
)
from .context import Backward
from .ir import Tensor
from .tape import Taped
from .trace import Node


class Rule(Protocol):
    """What a module of this folder offers for a kind of layer."""

    @property
    def forward(self) -> Callable[..., Tensor]:
        """forward(tape, node, *x): the layer's output. What backward needs goes onto the tape."""

    def backward(
        self, back: Backward, taped: Taped, error: Tensor, deeper: bool
    ) -> Tensor | tuple[Tensor, ...]:
        """The error of the layer's input, where a layer below it learns (`deeper`); the same for
        all that entered, or one for each."""


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: product.PRODUCT,
    nn.Conv1d: product.PRODUCT,
    nn.Conv2d: product.PRODUCT,
    nn.ConvTranspose1d: product.PRODUCT,
    nn.ConvTranspose2d: product.PRODUCT,
    nn.MaxPool1d: pools.MAX_POOL,
    nn.MaxPool2d: pools.MAX_POOL,
    nn.AvgPool1d: pools.AVG_POOL,
    nn.AvgPool2d: pools.AVG_POOL,
    nn.AdaptiveAvgPool1d: pools.AVG_POOL,
    nn.AdaptiveAvgPool2d: pools.AVG_POOL,
    nn.Add: joins.ADD,
    nn.Concat: joins.CONCAT,
    nn.LayerNorm: norm.NORM,
    nn.GroupNorm: norm.NORM,
    nn.BatchNorm1d: batch_norm.BATCH_NORM,
    nn.BatchNorm2d: batch_norm.BATCH_NORM,
    nn.ReLU: pointwise.RELU,
    nn.ReLU6: activations.RELU6,
    nn.LeakyReLU: pointwise.LEAKY_RELU,
    nn.Sigmoid: activations.SIGMOID,
    nn.Tanh: activations.TANH,
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
