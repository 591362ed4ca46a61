"""The loss and the backward of a tape."""

from __future__ import annotations

from .. import nn
from .context import Backward, part_of
from .ir import Op, Tensor
from .losses import lower_loss
from .rules import rule_of
from .tape import Tape
from .trace import Node, users_of
from .update import Gradients


def backward(
    nodes: list[Node], tape: Tape, gradients: Gradients, loss: nn.Loss
) -> tuple[list[Op], Tensor, Tensor]:
    """The operations, the labels and the loss; nothing below the deepest layer that learns."""
    back = Backward(tape, gradients, loss)
    tape.operands.emit = back.ops.append
    error, labels, value = lower_loss(back, nodes[-1].out_shape)
    back.of_loss.add(error)
    taped = {t.node.path: t for t in tape.taped}
    users = users_of(nodes)
    last = len(nodes) - 1
    errors = {last: [back.arranged(nodes[last], error, tape.values[last].channels)]}
    for i in range(last, -1, -1):
        node = nodes[i]
        if i not in tape.wanted:
            continue
        error = back.joined(node, errors.pop(i))
        deeper = back.wanted = tuple(source in tape.wanted for source in node.sources)
        found: Tensor | tuple[Tensor, ...] = error
        if node.path in taped:
            for mask in reversed(taped[node.path].masks):
                masked = rule_of(mask.node).backward(back, mask, error, True)
                assert isinstance(masked, Tensor)
                error = masked
            found = rule_of(node).backward(back, taped[node.path], error, any(deeper))
        each = found if isinstance(found, tuple) else (found,) * len(node.sources)
        if sum(deeper) > 1 and not isinstance(found, tuple):
            back.shared.add(found)
        for source, wants, e in zip(node.sources, deeper, each, strict=True):
            if wants:
                others = errors.setdefault(source, [])
                part = part_of(len(others)) if len(users[source]) > 1 else ""
                channels = tape.values[source].channels
                others.append(back.arranged(nodes[source], e, channels, part))
    return back.ops, labels, value
