"""Scratch that can be smaller: tiles of sums, patches of images, positions that are widened.

For a short batch without stored gradients RAM is what counts. What the busiest operation cannot do
without is the floor; all others keep as much scratch as there is room for under it. Sizes of
scratch change no bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from .folding import positions_met
from .ir import Op, Program, Tensor
from .memory import live_bytes
from .windows import LONG

FEW_PATCHES = 8  # of a gradient: its sums are over them


@dataclass
class Room:
    """Scratch for `count` of something, each of `unit` bytes or rows, behind `fixed` of them: work
    goes on with `least` as well."""

    tensor: Tensor
    fixed: int
    unit: int
    count: int
    least: int

    @property
    def extra(self) -> int:
        return self.count - self.least

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes(1)

    def shrink(self, count: int) -> None:
        """Leaves so many."""
        self.count, size = count, self.fixed + self.unit * count
        if self.tensor.fmt is None:
            self.tensor.shape = (size,)
        else:
            self.tensor.shape = (size, self.tensor.shape[1])
            self.tensor.positions = size if self.tensor.spread == "columns" else 1

    @property
    def saved(self) -> int:
        """Bytes that are free with the least."""
        now, shape, positions = self.nbytes, self.tensor.shape, self.tensor.positions
        count = self.count
        self.shrink(self.least)
        least = self.nbytes
        self.tensor.shape, self.tensor.positions, self.count = shape, positions, count
        return now - least


def tighten(program: Program) -> None:
    """Makes scratch of the busiest operations smaller, where that makes the arena smaller."""
    if program.batch >= LONG or program.gradients or program.watched:
        return
    live = live_bytes(program)
    ops = program.all_ops
    rooms = [_rooms(op) for op in ops]
    least = [
        bytes_ - sum(room.saved for group in groups for room in group)
        for bytes_, groups in zip(live, rooms, strict=False)
    ]
    floor = max(least, default=0)
    for bytes_, groups in zip(live, rooms, strict=False):
        _fit(groups, bytes_ - floor)


def _fit(groups: list[list[Room]], excess: int) -> None:
    """Frees so many bytes: of the first group as much as there is, evenly, then of the next."""
    for group in filter(None, groups):
        while excess > 0:
            room = max(group, key=lambda r: r.extra)
            if room.extra <= 0:
                break
            before = room.nbytes
            room.shrink(room.count - 1)
            excess -= before - room.nbytes


def _rooms(op: Op) -> list[list[Room]]:
    """Those of an operation over a window, the first to be made smaller first; without one there
    is little."""
    if op.window is None:
        return []
    if op.kernel.startswith("gradient_") and op.kernel.endswith("_s32"):
        return [_outputs(op), _patches(op, FEW_PATCHES)]
    if op.kernel.startswith("product_"):
        return [[*_rows(op), *_positions(op), *_patches(op, 1)]]
    return []


def _outputs(op: Op) -> list[Room]:
    tile = op.places[3]
    if not op.tiled or tile is None:
        return []
    return [Room(tile, 0, op.tiled, tile.shape[0] // op.tiled, 1)]


def _rows(op: Op) -> list[Room]:
    tile, w = (op.places[6] if len(op.places) > 6 else None), op.pool
    if tile is None or (w is not None and w.kernel_h > 1):
        return []
    if w is None:
        return [Room(tile, 0, 1, tile.shape[0], 1)]
    before = w.kernel_w - w.stride_w
    return [Room(tile, before, w.stride_w, (tile.shape[0] - before) // w.stride_w, 1)]


def _positions(op: Op) -> list[Room]:
    if op.kernel != "product_fold_s32":
        return []
    by, scratch, w = op.places[2], op.places[5], op.window
    assert by is not None
    assert scratch is not None
    assert w is not None
    columns = by.layout(1).n_scales
    count = scratch.size // (2 * columns) - 8
    return [Room(scratch, 16 * columns, 2 * columns, count, positions_met(w))]


def _patches(op: Op, least: int) -> list[Room]:
    """The patches that fit; where a line has room with its padding, that comes first."""
    if not op.patches or op.window is None or (op.kernel[0] == "p" and op.params[0] != 0):
        return []
    image = op.places[1] if op.kernel[0] == "p" else op.places[2]
    scratch = next(t for t in reversed(op.used) if t.fmt is None and t.numbers.kind == "bytes")
    assert image is not None
    assert image.fmt is not None
    channels = image.size // op.window.in_positions
    patch = op.window.taps * (channels // op.window.groups) * image.fmt.element_bits // 8
    count = op.patches // patch
    return [Room(scratch, scratch.size - op.patches, patch, count, min(least, count))]
