"""A model as a chain of layers with shapes and policies."""

from __future__ import annotations

from dataclasses import dataclass

from .. import nn
from ..errors import QfwError
from ..policy import Policy

TRANSPARENT = (nn.ReLU, nn.LeakyReLU, nn.Dropout, nn.Flatten)  # they leave an accumulator one


@dataclass(frozen=True)
class Node:
    """A layer in its place."""

    path: str
    layer: nn.Module
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    policy: Policy
    learns: bool  # it has parameters, and a step moves them

    def __str__(self) -> str:
        return f"{self.path}: {self.layer} {self.in_shape} -> {self.out_shape}"


def trace(
    model: nn.Module,
    input_shape: tuple[int, ...],
    policy: Policy,
    train: tuple[str, ...] | None = None,
) -> list[Node]:
    """The layers in order, with the shape that each one gets and gives.

    `train`: paths of the layers that learn; None: those that require a gradient.
    """
    nodes: list[Node] = []
    shape = input_shape
    for path, layer in nn.named_layers(model):
        out = layer.out_shape(shape, path)
        own = policy.override(getattr(layer, "policy", None))
        learns = layer.requires_grad if train is None else _named(path, train)
        nodes.append(Node(path, layer, shape, out, own, learns and bool(layer.parameters())))
        shape = out
    _check_raw(nodes)
    return nodes


def _named(path: str, names: tuple[str, ...]) -> bool:
    """Whether the layer or a module that it is in is among the names."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _check_raw(nodes: list[Node]) -> None:
    """output=RAW needs a Quant behind it, with only scale-transparent layers in between."""
    for i, node in enumerate(nodes):
        if getattr(node.layer, "output", None) is not nn.RAW:
            continue
        for after in nodes[i + 1 :]:
            if isinstance(after.layer, nn.Quant):
                break
            if not isinstance(after.layer, TRANSPARENT):
                raise QfwError(
                    f"layer '{node.path}' has output=RAW, but '{after.path}' ({after.layer}) reads "
                    f"it: put an nn.Quant in between, or leave output out"
                )
        else:
            raise QfwError(f"layer '{node.path}' has output=RAW, but no nn.Quant follows it")
