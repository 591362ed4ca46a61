"""A model as layers in the order they run, with shapes and policies."""

from __future__ import annotations

from dataclasses import dataclass

from .. import nn
from ..errors import QfwError
from ..graph import INPUT, Call, traced
from ..policy import Policy

# They leave an accumulator one.
TRANSPARENT = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Dropout, nn.Flatten),
    *(nn.MaxPool1d, nn.MaxPool2d),
)


@dataclass(frozen=True)
class Node:
    """A layer in its place."""

    path: str
    layer: nn.Layer
    sources: tuple[int, ...]  # numbers of the nodes whose output enters, or INPUT
    in_shapes: tuple[tuple[int, ...], ...]
    out_shape: tuple[int, ...]
    policy: Policy
    frozen: bool  # a step leaves its parameters and statistics as they are

    @property
    def learns(self) -> bool:
        """It has parameters, and a step moves them."""
        return not self.frozen and bool(self.layer.parameters())

    @property
    def tracks(self) -> bool:
        """It has statistics, and a step moves them."""
        return not self.frozen and bool(self.layer.buffers())

    @property
    def trains_otherwise(self) -> bool:
        """A step runs it otherwise than inference."""
        known = self.frozen and bool(self.layer.buffers())
        return self.layer.trains_otherwise and not known

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.in_shapes[0]

    @property
    def call(self) -> Call:
        """What the forward said."""
        return Call(self.path, self.layer, self.sources, self.in_shapes, self.out_shape)

    def __str__(self) -> str:
        shapes = " and ".join(map(str, self.in_shapes))
        return f"{self.path}: {self.layer} {shapes} -> {self.out_shape}"


def trace(
    model: nn.Module,
    input_shape: tuple[int, ...],
    policy: Policy,
    train: tuple[str, ...] | None = None,
) -> list[Node]:
    """The layers in order, with the shapes that each one gets and gives.

    `train`: paths of the layers that learn; None: those that require a gradient.
    """
    nodes: list[Node] = []
    for call in traced(model, input_shape):
        own = policy.override(getattr(call.layer, "policy", None))
        wanted = call.layer.requires_grad if train is None else _named(call.path, train)
        nodes.append(Node(*call, own, not wanted))
    _check_raw(nodes)
    return nodes


def users_of(nodes: list[Node]) -> dict[int, list[int]]:
    """Which nodes read what a node (or INPUT) makes; the last one's output is the caller's."""
    users: dict[int, list[int]] = {i: [] for i in range(INPUT, len(nodes))}
    for i, node in enumerate(nodes):
        for source in node.sources:
            users[source].append(i)
    return users


def leading(nodes: list[Node]) -> set[int]:
    """Nodes whose output's error leads to something that learns."""
    found: set[int] = set()
    for i, node in enumerate(nodes):
        if node.learns or any(source in found for source in node.sources):
            found.add(i)
    return found


def input_channels(nodes: list[Node]) -> int:
    """Channels of the network's input if what reads it first wants them last; else 0."""
    users, waiting = users_of(nodes), [INPUT]
    while waiting:
        for i in users[waiting.pop()]:
            layer = nodes[i].layer
            if layer.channels_last and len(nodes[i].in_shape) > 1:
                return nodes[i].in_shape[0]
            if layer.any_order:
                waiting.append(i)
    return 0


def _named(path: str, names: tuple[str, ...]) -> bool:
    """Whether the layer or a module that it is in is among the names."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _check_raw(nodes: list[Node]) -> None:
    """output=RAW needs a Quant behind it, with only scale-transparent layers in between."""
    users = users_of(nodes)
    for i, node in enumerate(nodes):
        at = i
        while getattr(node.layer, "output", None) is nn.RAW:
            after = [nodes[j] for j in users[at]]
            if not after:
                raise QfwError(f"layer '{node.path}' has output=RAW, but no nn.Quant follows it")
            if len(after) > 1:
                told = " and ".join(f"'{n.path}'" for n in after)
                raise QfwError(
                    f"layer '{node.path}' has output=RAW, but {told} read it: put an nn.Quant in "
                    f"between, or leave output out"
                )
            if isinstance(after[0].layer, nn.Quant):
                break
            if not isinstance(after[0].layer, TRANSPARENT):
                raise QfwError(
                    f"layer '{node.path}' has output=RAW, but '{after[0].path}' ({after[0].layer}) "
                    f"reads it: put an nn.Quant in between, or leave output out"
                )
            at = users[at][0]
