"""Pools: the largest or the mean of each window of an image. docs/numerics.md section 35."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

from .. import nn
from ..errors import QfwError
from ..formats import Float32, Sym
from .context import Backward
from .headroom import INT32_MAX, largest
from .ir import ACCUMULATOR, Op, Role, Tensor, ordered, picks
from .tape import Tape, Taped
from .trace import Node
from .windows import Window

PADDING_COUNTS, ADAPTIVE = 1, 2
DIVISOR, FRACTION = 0, 1  # params


def window_of(node: Node) -> Window:
    """How a pool goes over its image; of an adaptive one only the sizes count."""
    layer, image, result = node.layer, node.in_shape[1:], node.out_shape[1:]
    given, made = _both(image, 1), _both(result, 1)
    if isinstance(layer, (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)):
        return Window(*given, *made, 1, 1)
    assert isinstance(layer, (nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d))
    kernel, stride, apart = (
        _both(layer.axes(name), 1) for name in ("kernel_size", "stride", "dilation")
    )
    return Window(*given, *made, *kernel, *stride, *_both(layer.axes("padding"), 0), *apart)


def _both(axes: tuple[int, ...], usual: int) -> tuple[int, int]:
    """Of two axes; one is two with a height of 1."""
    return (usual, axes[0]) if len(axes) == 1 else (axes[0], axes[1])


def _image(like: Tensor, name: str, shape: tuple[int, ...], role: Role) -> Tensor:
    """Another image in the format of one, its channels last."""
    made = replace(like, name=name, shape=shape, role=role, rows=True, space="arena", lead=0)
    made.channels = ordered(shape[0], made.size)
    return made


def _sums(name: str, shape: tuple[int, ...], floats: bool) -> Tensor:
    t = Tensor(name, shape, "scratch", Float32() if floats else ACCUMULATOR, rows=True)
    t.spread, t.channels = "format" if floats else "tensor", ordered(shape[0], t.size)
    return t


# --- the largest ----------------------------------------------------------------------------------


class _MaxPool:
    """Selects sums before they are stored, where it can, else codes. A pick for each says which."""

    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        window, path = window_of(node), node.path
        masks = _masks(tape, x) if _is_even(x, node) else None
        if masks is not None:
            y = tape.made(tape.makers[x], _image(x, f"{path}:sums", node.out_shape, x.role))
            y.positions = window.out_positions if x.spread == "columns" else 1
        else:
            x = _stored(tape, node, x)
            y = _image(x, f"{path}:wire", node.out_shape, "wire")
        pick = None
        if tape.training and node.sources[0] in tape.wanted:
            pick = Tensor(f"{path}:pick", node.out_shape, "wire", rows=True)
            pick.channels, pick.numbers = y.channels, picks(window.taps)
        op = Op("max_pool", path, (y, x, pick), writes=(0, 2), window=window)
        op.over = 1 if window.pad_h == window.pad_w == 0 else None
        tape.ops.append(op)
        kept = {} if pick is None else {"pick": pick}
        first = tuple(replace(t, x=y, y=y) for t in masks or ())
        tape.taped.append(Taped(node, x, y, made=kept, masks=first))
        return y

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """Each error goes to the pixel that was picked: codes, or sums where windows overlap."""
        node, make, path = taped.node, back.operands, taped.node.path
        stored, window = back.stored(taped, error), window_of(taped.node)
        floats = isinstance(stored.fmt, Float32)
        if window.apart:
            e = stored if floats else make.single(stored, path)
            dx = _image(e, f"{path}:dX", node.in_shape, "error")
        else:
            floats = node.policy.prop == "float32"
            e = make.floats(stored, path) if floats else make.single(stored, path)
            dx = _sums(f"{path}:dX", node.in_shape, floats)
        back.ops.append(Op("max_pool_back", path, (dx, e, taped.made["pick"]), window=window))
        return back.follows(error, dx)


def _is_even(x: Tensor, node: Node) -> bool:
    """Whether these are sums with channels last that share a scale wherever they meet."""
    channels = node.in_shape[0]
    by_channel = x.spread == "columns" and x.size // x.positions == channels
    one = isinstance(x.fmt, Float32) or x.spread == "tensor" or by_channel
    return x.raw and x.channels == ordered(channels, x.size) and one


def _masks(tape: Tape, x: Tensor) -> list[Taped] | None:
    """Layers off the tape's end that made x of itself, growing with it, so that their masks can be
    told by the largest alone; None if another layer wants x as it is kept."""
    at = len(tape.taped)
    while at > 0 and tape.taped[at - 1].y is x and tape.taped[at - 1].node.layer.monotone:
        at -= 1
    others = [t.node.layer for t in tape.taped[:at] if t.y is x]
    dropped = any(isinstance(layer, nn.Dropout) for layer in others)  # a step's x is another then
    needed = x in tape.needed and at == len(tape.taped) and not dropped
    if needed or any(layer.monotone for layer in others):
        return None
    found = tape.taped[at:]
    del tape.taped[at:]
    return found


def _stored(tape: Tape, node: Node, x: Tensor) -> Tensor:
    """Floats, or codes with one scale, with channels last."""
    maker = tape.makers.get(x) if x.raw else None
    if maker is not None and getattr(maker.layer, "output", None) is nn.RAW:
        raise QfwError(
            f"layer '{maker.path}' has output=RAW, but '{node.path}' ({node.layer}) cannot take "
            f"its sums as they are: put an nn.Quant in between, or leave output out"
        )
    wire = tape.arranged(x, node.in_shape, node.in_shape[0], node.path)
    floats = isinstance(wire.fmt, Float32)
    return wire if floats else tape.operands.single(wire, node.path)


# --- the mean -------------------------------------------------------------------------------------


class _Mean:
    """What the sums of a node's windows are divided by, and how far they are from leaving int32."""

    def __init__(self, node: Node) -> None:
        layer, self.node, self.window = node.layer, node, window_of(node)
        self.adaptive = isinstance(layer, (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d))
        self.padding_counts = getattr(layer, "count_include_pad", False)
        given = getattr(layer, "divisor", None)
        counts = [set(map(axis.count, range(axis.windows))) for axis in self._axes()]
        alike = all(len(found) == 1 for found in counts)
        self.divisor = given or (prod(max(found) for found in counts) if alike else None)

    def _axes(self) -> tuple[_Axis, _Axis]:
        w = self.window
        high = (w.in_h, w.out_h, w.kernel_h, w.stride_h, w.pad_h)
        wide = (w.in_w, w.out_w, w.kernel_w, w.stride_w, w.pad_w)
        flags = self.adaptive, self.padding_counts
        return _Axis(*high, *flags), _Axis(*wide, *flags)

    @property
    def apart(self) -> bool:
        """Whether no two windows have a pixel in common."""
        return all(axis.meeting == 1 for axis in self._axes())

    def forward_bits(self, codes: Tensor) -> int:
        """F: a quotient is at most the largest code, 2^F times. The sums before it fit too."""
        most = self._held(codes, prod(axis.longest for axis in self._axes()), "codes")
        return 0 if self.divisor is not None else _most_bits(most)

    def backward_bits(self, error: Tensor) -> int:
        """F: so many quotients meet at a pixel."""
        terms = prod(axis.meeting for axis in self._axes())
        most = self._held(error, terms, "errors")
        return 0 if self.divisor is not None else _most_bits(terms * most)

    def _held(self, t: Tensor, terms: int, what: str) -> int:
        """The largest code, of which so many add up to an int32."""
        assert t.fmt is not None
        most = largest(t.fmt.bits)
        if terms * most > INT32_MAX:
            raise QfwError(
                f"layer '{self.node.path}', {self.node.layer}: {terms} {what} of {t.fmt.bits} bits "
                f"can leave int32 when summed; at most {INT32_MAX // most} fit: take smaller "
                f"windows, or fewer bits"
            )
        return most

    def op(self, kernel: str, places: tuple[Tensor, Tensor], extra: int) -> Op:
        op = Op(kernel, self.node.path, places, {DIVISOR: self.divisor or 0}, window=self.window)
        op.flags = ADAPTIVE if self.adaptive else 0
        op.note = f"divided by {self.divisor}"
        if self.divisor is None:
            op.flags |= PADDING_COUNTS if self.padding_counts else 0
            op.note = "divided by what each window has"
        if kernel.endswith("s32"):
            op.params[FRACTION] = extra
            op.note += f", {extra} bits of fraction" if extra else ""
        return op


class _Axis(NamedTuple):
    """Windows along one axis of an image."""

    size: int
    windows: int
    kernel: int
    stride: int
    pad: int
    adaptive: bool
    padding_counts: bool

    def count(self, window: int) -> int:
        """What a window has: PyTorch's rule."""
        if self.adaptive:
            return -(-(window + 1) * self.size // self.windows) - window * self.size // self.windows
        begin = window * self.stride - self.pad
        end = min(begin + self.kernel, self.size + self.pad)
        return end - begin if self.padding_counts else min(end, self.size) - max(begin, 0)

    @property
    def longest(self) -> int:
        """No window has more pixels."""
        if not self.adaptive:
            return self.kernel
        return self.size // self.windows + (2 if self.size % self.windows else 0)

    @property
    def meeting(self) -> int:
        """No pixel is in more windows."""
        if not self.adaptive:
            return min(self.windows, -(-self.kernel // self.stride))
        return 1 if self.size % self.windows == 0 else -(-self.windows // self.size) + 1


def _most_bits(most: int) -> int:
    """The largest F with most 2^F in int32."""
    return (INT32_MAX // most).bit_length() - 1


class _AvgPool:
    def forward(self, tape: Tape, node: Node, x: Tensor) -> Tensor:
        path, mean = node.path, _Mean(node)
        wire = tape.arranged(x, node.in_shape, node.in_shape[0], path)
        floats = node.policy.forward == "float32"
        codes = tape.operands.floats(wire, path) if floats else tape.operands.single(wire, path)
        y = _sums(f"{path}:sums", node.out_shape, floats)
        extra = 0 if floats else mean.forward_bits(codes)
        tape.ops.append(mean.op(f"avg_pool_{'f32' if floats else 's32'}", (y, codes), extra))
        tape.taped.append(Taped(node, codes, y))
        return tape.made(node, y)

    def backward(self, back: Backward, taped: Taped, error: Tensor, deeper: bool) -> Tensor:
        """Every pixel of a window gets its share: codes at a smaller scale, or sums."""
        node, make, path = taped.node, back.operands, taped.node.path
        stored, mean = back.stored(taped, error), _Mean(taped.node)
        if node.policy.prop == "float32":
            dx = _sums(f"{path}:dX", node.in_shape, True)
            back.ops.append(mean.op("avg_pool_back_f32", (dx, make.floats(stored, path)), 0))
            return back.follows(error, dx)
        e = make.single(stored, path)
        extra = mean.backward_bits(e)
        if mean.apart and mean.divisor is not None:
            dx = _image(e, f"{path}:dX", node.in_shape, "error")
            assert isinstance(e.fmt, Sym)
            dx.fmt = replace(e.fmt, scale="float", range="dynamic")
        else:
            dx = _sums(f"{path}:dX", node.in_shape, False)
        back.ops.append(mean.op("avg_pool_back_s32", (dx, e), extra))
        return back.follows(error, dx)


MAX_POOL, AVG_POOL = _MaxPool(), _AvgPool()
