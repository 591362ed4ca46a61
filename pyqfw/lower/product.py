"""Layers that are products: Linear and the convolutions. y = x W + b, dX = e W, dW = e x.

A convolution is a product over a window. The forward of a transposed one is the other's way back,
and the other way round: each has a form in which the window gathers what it meets, and one in which
it scatters.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .. import nn
from ..formats import Float32
from .context import Backward
from .headroom import largest, prove
from .ir import ALIGN, Op, Tensor, ordered
from .operands import (
    BY_COLUMN,
    Operands,
    accumulator,
    by_matrix_row,
    folded_extra,
    per_tensor,
    signed_bits,
    weight_scales,
)
from .tape import Tape, Taped
from .trace import Node
from .update import Sums
from .windows import Window, patch_bytes, turned_bytes

GATHER, SCATTER = 0, 1  # acc = a b^T, acc = a b
FOLDED_B = 2


@dataclass(frozen=True)
class Form:
    """What a layer multiplies, of one row of the step."""

    inputs: int  # channels of a position that goes in
    outputs: int
    in_positions: int
    out_positions: int
    window: Window | None = None
    transposed: bool = False

    @property
    def group(self) -> tuple[int, int]:
        """Inputs and outputs of a group."""
        groups = 1 if self.window is None else self.window.groups
        return self.inputs // groups, self.outputs // groups

    @property
    def taps(self) -> int:
        return 1 if self.window is None else self.window.taps

    @property
    def macs(self) -> int:
        """Of the forward: each position that gathers meets every tap."""
        positions = self.in_positions if self.transposed else self.out_positions
        return positions * self.taps * self.inputs * self.group[1]

    def sums(self) -> Sums:
        """The weight's gradient."""
        if self.transposed:
            return Sums(self.inputs, self.taps * self.group[1], self.in_positions, self.window)
        return Sums(self.outputs, self.taps * self.group[0], self.out_positions, self.window)


def form_of(node: Node) -> Form:
    layer = node.layer
    if isinstance(layer, nn.Linear):
        positions = prod(node.out_shape[:-1])
        return Form(layer.in_features, layer.out_features, positions, positions)
    transposed = isinstance(layer, (nn.ConvTranspose1d, nn.ConvTranspose2d))
    image, result = node.in_shape[1:], node.out_shape[1:]
    assert isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d))
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
        pads = tuple(before for before, _ in layer.pads())
    else:
        pads = layer.axes("padding")
    ends = (image, result) if not transposed else (result, image)
    names = ("kernel_size", "stride", "dilation")
    kernel, stride, dilation = (_plane(layer.axes(name), 1) for name in names)
    sizes = (*_plane(ends[0], 1), *_plane(ends[1], 1), *kernel, *stride, *_plane(pads, 0))
    window = Window(*sizes, *dilation, layer.groups)
    channels = node.in_shape[0], node.out_shape[0]
    return Form(*channels, prod(image), prod(result), window, transposed)


def _plane(given: tuple[int, ...], plain: int) -> tuple[int, int]:
    """One axis is two with a plain height."""
    return (given[-2] if len(given) == 2 else plain, given[-1])


class _Product:
    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        form, path = form_of(node), node.path
        channels = form.inputs
        if form.window is None:  # columns of the weight can follow any order of a flat row
            channels = x.channels if len(node.in_shape) == 1 else 0
        wire = tape.arranged(x, node.in_shape, channels, path)
        inner = wire.channels
        if form.window is not None:
            inner = form.group[1] if form.transposed else form.group[0]
        parameters = {"weight": tape.parameter(node, "weight", inner, lead=1)}
        if any(p.name == "bias" for p in node.layer.parameters()):
            parameters["bias"] = tape.parameter(node, "bias")
        weight, bias = parameters["weight"], parameters.get("bias")
        step = _Step(
            tape.operands, path, form, f"{path}:sums", node.out_shape, form.transposed, tape.batch
        )
        op = step.lowered(node.policy.forward, wire, weight, bias)
        op.twice = node.policy.sums == "recomputed"
        tape.ops.append(op)
        y = op.used[0]
        if form.window is not None:
            y.channels = ordered(form.outputs, y.size)
        tape.taped.append(Taped(node, wire, y, parameters))
        return tape.made(node, y)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """The error is propagated before the weights are updated."""
        node, form = taped.node, form_of(taped.node)
        stored = back.stored(taped, error)
        dx = error
        if deeper:
            name, shape, batch = f"{node.path}:dX", node.in_shape, back.tape.batch
            step = _Step(back.operands, node.path, form, name, shape, not form.transposed, batch)
            op = step.lowered(node.policy.prop, stored, taped.parameters["weight"], None)
            op.twice = node.policy.sums == "recomputed"
            back.ops.append(op)
            dx = op.used[0]
            dx.channels = taped.x.channels
        if taped.learns:
            weight, bias = taped.parameters["weight"], taped.parameters.get("bias")
            factors = (taped.x, stored) if form.transposed else (stored, taped.x)
            back.gradients.lower(back.tape, back.ops, node, weight, *factors, form.sums())
            if bias is not None:
                sums = Sums(form.outputs, 1, form.out_positions)
                back.gradients.lower(back.tape, back.ops, node, bias, stored, None, sums)
        return dx


PRODUCT = _Product()


@dataclass(frozen=True)
class _Step:
    """One product of a layer: its forward, or its error's way back."""

    make: Operands
    path: str
    form: Form
    name: str
    shape: tuple[int, ...]  # of the result
    scatters: bool
    batch: int

    @property
    def ahead(self) -> bool:
        """Whether it goes from the layer's input to its output."""
        return self.scatters == self.form.transposed

    @property
    def positions(self) -> int:
        return self.form.out_positions if self.ahead else self.form.in_positions

    @property
    def columns(self) -> int:
        return self.form.outputs if self.ahead else self.form.inputs

    @property
    def channels(self) -> int:
        """Of a position of operand a."""
        return self.form.inputs if self.ahead else self.form.outputs

    @property
    def terms(self) -> int:
        return self.form.taps * self.form.group[0 if self.ahead else 1]

    def lowered(self, arithmetic: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Op:
        op = (self._s32 if arithmetic == "sym" else self._f32)(x, weight, bias)
        op.window, op.macs = self.form.window, self.form.macs
        return op

    def _f32(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Op:
        make, path = self.make, self.path
        y = Tensor(self.name, self.shape, "scratch", Float32(), rows=True)
        b = None if bias is None else make.floats(bias, path)
        places = (y, make.floats(x, path), make.floats(weight, path), b, None)
        op = Op("product_f32", path, places, self._params())
        self._room(op, 4)
        return op

    def _s32(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Op:
        biased = bias is not None
        flags = 0
        if self.scatters:
            a, b, flags = self._scattered(x, weight, biased)
        else:
            a, b = self._gathered(x, weight, biased)
        assert a.fmt is not None
        assert b.fmt is not None
        by_column = biased or (not flags and b.layout(1).n_scales > 1)
        y = accumulator(self.name, self.shape, not per_tensor(a.fmt), by_column, self.positions)
        most = largest(signed_bits(a.fmt)), largest(signed_bits(b.fmt))
        proof = prove(self.terms, *most, bias=biased)
        seeds = Tensor(f"{self.path} seeds", (5 * self.columns,), "scratch") if biased else None
        params = self._params() | {1: proof.chunk, 2: proof.shift}
        op = Op("product_s32", self.path, (y, a, b, bias, None, seeds), params, flags)
        op.writes, op.note = (0, 5), str(proof)
        self._room(op, a.fmt.element_bits // 8)
        return op

    def _params(self) -> dict[int, int | float]:
        return {0: SCATTER if self.scatters else GATHER, 3: self.positions}

    def _room(self, op: Op, size: int) -> None:
        """Scratch for patches of the image, behind the seeds."""
        window = self.form.window
        if window is None:
            return
        if self.scatters:
            weight = op.places[2]
            assert weight is not None
            assert weight.fmt is not None
            own = weight.size * weight.fmt.element_bits // 8
            sums = op.kernel == "product_s32" and op.params[2] == 0
            op.patches = turned_bytes(window, self.channels, size, own, self.batch) if sums else 0
        else:
            op.patches = patch_bytes(window, self.channels, size, self.batch)
        if op.patches:
            seeds = op.places[5] if len(op.places) > 5 else None
            before = 0 if seeds is None else -(-seeds.size // ALIGN) * ALIGN
            scratch = Tensor(f"{self.path} patches", (before + op.patches,), "scratch")
            op.places, op.writes = (*op.places[:5], scratch), (0, 5)

    def _gathered(self, x: Tensor, weight: Tensor, biased: bool) -> tuple[Tensor, Tensor]:
        """Operands whose scales do not lie along the sum: a's over its rows, b's over its rows."""
        make, path, terms = self.make, self.path, self.terms
        widen_a = not self._has_rows(x)
        widen_b = weight_scales(weight) in ("in", "mixed")
        a = make.source(x, path) if widen_a else make.codes(x, path)
        b = make.source(weight, path) if widen_b else make.codes(weight, path)
        if widen_a:
            extra = folded_extra(terms, a, b, biased)
            a = make.widened(a, path, extra=extra, columns=self.channels)
        if widen_b:
            b = make.widened(b, path, extra=folded_extra(terms, b, a, biased), columns=terms)
        return a, b

    def _scattered(self, x: Tensor, weight: Tensor, biased: bool) -> tuple[Tensor, Tensor, int]:
        """Operands of a b, where scales of b's rows lie along the sum: they are folded into a."""
        make, path, terms, columns = self.make, self.path, self.terms, self.channels
        scales, by_row = weight_scales(weight), self._has_rows(x)
        if scales == "in" and self.form.window is not None and self.form.window.groups > 1:
            scales = "mixed"
        folds = scales == "out"
        a = make.codes(x, path) if by_row and not folds else make.source(x, path)
        b = make.source(weight, path) if scales == "mixed" else make.codes(weight, path)
        extra = folded_extra(terms, a, b, biased)
        if folds:
            rows = by_row and not per_tensor(x.fmt)
            fold = {"by": b, "mode": BY_COLUMN, "keep_rows": rows, "columns": columns}
            return make.widened(a, path, extra=extra, **fold), b, FOLDED_B  # type: ignore[arg-type]
        if not by_row:
            a = make.widened(a, path, extra=extra, columns=columns)
        if scales == "mixed":
            extra = folded_extra(terms, b, a, biased)
            b = make.widened(b, path, extra=extra, columns=self.columns)
        return a, b, 0

    def _has_rows(self, x: Tensor) -> bool:
        """Whether operand a can enter as it is: one scale, or one for each row of the matrix."""
        return per_tensor(x.fmt) if self.form.window else by_matrix_row(x, self.channels)
