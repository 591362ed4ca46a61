"""BatchNorm: docs/numerics.md section 36. In a step a channel is normalised over the rows of the
micro-batch; in inference, and where it is frozen, it is a factor and a bias of the channel."""

from __future__ import annotations

from math import prod

import numpy as np

from .. import nn
from ..errors import QfwError
from ..formats import Float32
from .context import Backward
from .headroom import INT32_MAX, largest
from .ir import ACCUMULATOR, Op, Tensor, ordered
from .norm import (
    EPS,
    FRACTION,
    POSITIONS,
    Normalization,
    back_steps,
    eps_of,
    fits,
    fraction,
    one_scale,
    seeds_for,
)
from .operands import accumulator, by_matrix_row, per_tensor
from .tape import Tape, Taped
from .trace import Node
from .update import Sums

MOMENTUM, REST = 5, 6  # params
CUMULATIVE = 2
BY_COLUMN_FLAG = 4  # of a product: a scale for each column of its sums


class _BatchNorm(Normalization):
    kernel = "batch_norm"

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        layer = _layer(node)
        if not layer.track_running_stats:
            raise QfwError(
                f"layer '{node.path}', {layer}: without running statistics inference would take "
                f"those of a batch, and here each row is alone: choose track_running_stats=True, "
                f"or nn.GroupNorm"
            )
        if tape.training and not node.frozen:
            return self._normalized(tape, node, x)
        return _folded(tape, node, x)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        if taped.node.frozen:
            return _fold_back(back, taped, error) if deeper else error
        return super().backward(back, taped, error, deeper)

    def params(self, node: Node) -> dict[int, int | float]:
        return {EPS: eps_of(node), POSITIONS: _positions(node)}

    def across(self, node: Node) -> Sums:
        return Sums(_channels(node), 1, _positions(node), diagonal=True)

    def sums(
        self, tape: Tape, node: Node, x: Tensor, affine: tuple[Tensor | None, ...], name: str
    ) -> Op:
        (weight, bias), path = affine, node.path
        f = fraction(tape.batch * _positions(node), 1)
        by_column = weight is not None or bias is not None
        y = accumulator(name, node.out_shape, False, by_column, _positions(node))
        seeds = seeds_for(bias, path, _channels(node))
        places = (y, _codes(tape, node, x), weight, bias, seeds)
        params = {FRACTION: f, **self.params(node)}
        op = Op("batch_norm_s32", path, places, params, writes=(0, 4))
        op.note = f"{f} bits of fraction"
        return op

    def error_s32(self, back: Backward, taped: Taped, error: Tensor) -> Tensor:
        node, positions = taped.node, _positions(taped.node)
        e, x = (_codes(back.tape, node, t) for t in (error, taped.x))
        assert e.fmt is not None
        dx = accumulator(f"{node.path}:dX", node.in_shape, False, True, positions)
        params = {**back_steps(back.tape.batch * positions, e.fmt.bits), **self.params(node)}
        places = (dx, e, x, taped.parameters.get("weight"))
        back.ops.append(Op("batch_norm_back_s32", node.path, places, params))
        return dx

    def _normalized(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        """In a step, over the rows of the micro-batch."""
        if tape.batch * _positions(node) == 1:
            raise QfwError(
                f"layer '{node.path}', {node.layer}: a step of one row has one value a channel, "
                f"which has no variance: choose a batch of 2 rows or more in a micro-batch, "
                f"nn.GroupNorm or nn.LayerNorm, or freeze the layer with requires_grad_(False)"
            )
        wire = _arranged(tape, node, x)
        order = _own_order(node, wire)
        parameters = {p.name: tape.parameter(node, p.name, order) for p in node.layer.parameters()}
        running = [tape.statistic(node, b, order) for b in node.layer.buffers()]
        affine = parameters.get("weight"), parameters.get("bias")
        op = self.made(tape, node, wire, affine, f"{node.path}:sums")
        op.places += (None,) * (5 - len(op.places)) + tuple(running)
        op.writes = (0, 4, 5, 6, 7)
        op.params |= _momentum(node)
        op.flags = CUMULATIVE if _layer(node).momentum is None else 0
        tape.ops.append(op)
        y = op.used[0]
        y.channels = wire.channels
        tape.taped.append(Taped(node, wire, y, parameters))
        return tape.made(node, y)


BATCH_NORM = _BatchNorm()


def _layer(node: Node) -> nn.BatchNorm1d | nn.BatchNorm2d:
    assert isinstance(node.layer, (nn.BatchNorm1d, nn.BatchNorm2d))
    return node.layer


def _channels(node: Node) -> int:
    return node.in_shape[0]


def _positions(node: Node) -> int:
    return prod(node.in_shape[1:])


def _arranged(tape: Tape, node: Node, x: Tensor) -> Tensor:
    """The wire, channels last; samples of one axis may have any order, which all follow."""
    channels = _channels(node) if len(node.in_shape) > 1 else x.channels
    return tape.arranged(x, node.in_shape, channels, node.path)


def _own_order(node: Node, x: Tensor) -> int:
    """The order of parameters and statistics."""
    return x.channels if len(node.in_shape) == 1 else 0


# --- in a step ------------------------------------------------------------------------------------


def _momentum(node: Node) -> dict[int, int | float]:
    """As float32 numbers, 0 where they are below the normal ones."""
    momentum = _layer(node).momentum
    if momentum is None:
        return {}
    tiny = np.finfo(np.float32).tiny
    both = {MOMENTUM: momentum, REST: 1.0 - momentum}
    return {at: value if np.float32(value) >= tiny else 0.0 for at, value in both.items()}


def _codes(tape: Tape, node: Node, t: Tensor) -> Tensor:
    """Codes with one scale."""
    make, path, n, columns = (
        tape.operands,
        node.path,
        tape.batch * _positions(node),
        _channels(node),
    )
    codes = make.codes(t, path) if per_tensor(t.fmt) else one_scale(make, t, path, n, columns)
    assert codes.fmt is not None
    bits = codes.fmt.bits
    if not fits(n, bits):
        most = INT32_MAX // largest(bits) // _positions(node)
        legal = f"a micro-batch of at most {most} rows, or " if most else ""
        raise QfwError(
            f"layer '{path}', {node.layer}: {n} values a channel of {bits} bits are too many for "
            f"one mean: choose {legal}fewer bits for {t.role}s"
        )
    return codes


# --- with statistics that are known: y = a x + b --------------------------------------------------


def _folded(tape: Tape, node: Node, x: Tensor) -> Tensor:
    """On the sums of the product before it where these are at hand, else on the wire."""
    path, shape = node.path, (_channels(node),)
    direct = sum(taped.y is x for taped in tape.taped) == 1  # no activation in between
    at_hand = direct and _took_columns(tape.ops, node, x, node.policy.forward)
    wire = x if at_hand else _arranged(tape, node, x)
    order = _own_order(node, wire)
    parameters = {p.name: tape.parameter(node, p.name, order) for p in node.layer.parameters()}
    running = [tape.statistic(node, b, order) for b in node.layer.buffers()]
    a, b = (Tensor(f"{path} {name}", shape, "scratch", Float32()) for name in ("factor", "bias"))
    places = (a, b, *running[:2], parameters.get("weight"), parameters.get("bias"))
    tape.ops.append(Op("fold_norm", path, places, {EPS: eps_of(node)}, writes=(0, 1)))
    y = _fold(tape, tape.ops, node, wire, a, b, node.policy.forward, f"{path}:sums")
    tape.taped.append(Taped(node, wire, y, parameters, {"a": a}))
    return tape.made(node, y)


def _fold_back(back: Backward, taped: Taped, error: Tensor) -> Tensor:
    """dx = a e."""
    node = taped.node
    alone = error not in back.shared
    at_hand = alone and _took_columns(back.ops, node, error, node.policy.prop)
    e = error if at_hand else back.stored(taped, error)
    name = f"{node.path}:dX"
    return _fold(back.tape, back.ops, node, e, taped.made["a"], None, node.policy.prop, name)


def _took_columns(ops: list[Op], node: Node, t: Tensor, arithmetic: str) -> bool:
    """Gives sums of a product a scale for each channel; False if t is none in this arithmetic, or
    its columns are no channels."""
    made = next((op for op in ops if op.places[0] is t), None)
    kernel = "product_s32" if arithmetic == "sym" else "product_f32"
    order = ordered(_channels(node), t.size) if len(node.in_shape) > 1 else t.channels
    if made is None or made.kernel != kernel or not t.raw or t.channels != order:
        return False
    if t.fmt is ACCUMULATOR:
        if t.positions != _positions(node):
            return False
        if t.spread in ("tensor", "rows"):
            made.flags |= BY_COLUMN_FLAG
            t.spread = "columns" if t.spread == "tensor" else "grid"
    return True


def _fold(
    tape: Tape,
    ops: list[Op],
    node: Node,
    x: Tensor,
    a: Tensor,
    b: Tensor | None,
    arithmetic: str,
    name: str,
) -> Tensor:
    make, path, positions = tape.operands, node.path, _positions(node)
    params: dict[int, int | float] = {POSITIONS: positions}
    if x.raw:
        kernel = "fold_s32" if x.fmt is ACCUMULATOR else "fold_f32"
        y = source = x
    elif arithmetic == "sym":
        kernel, columns = "fold_s32", _channels(node)
        plain = by_matrix_row(x, columns)
        source = make.codes(x, path) if plain else one_scale(make, x, path, 1, columns)
        y = accumulator(name, node.out_shape, plain and not per_tensor(x.fmt), True, positions)
    else:
        kernel, source = "fold_f32", make.floats(x, path)
        y = Tensor(name, node.out_shape, "scratch", Float32(), rows=True)
    y.channels = x.channels
    scratch = None
    if kernel == "fold_s32" and b is not None:
        scratch = Tensor(f"{path} seeds", (5 * _channels(node),), "scratch")
    ops.append(Op(kernel, path, (y, source, a, b, scratch), params, writes=(0, 4)))
    return y
