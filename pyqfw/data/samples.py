"""Samples with labels and groups; windows over recordings; splits that leak nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _arrays as arrays
from .._arrays import Array
from ..errors import QfwError, ShapeError


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """Rows with what belongs to each: a label, whose it is, which recording it was cut from.

    ``samples[rows]`` takes some of them, by numbers, a slice or a mask. `about` says where they
    come from.
    """

    x: Array  # [n, ...] float32
    y: Array  # [n] int64, 0 .. classes
    classes: tuple[str, ...] = ()
    groups: Array | None = None  # [n]: the person, ...
    recordings: Array | None = None  # [n]; windows of one follow each other in time
    about: str = ""

    def __post_init__(self) -> None:
        for name in ("y", "groups", "recordings"):
            values = getattr(self, name)
            if values is not None and np.shape(values) != (len(self.x),):
                raise ShapeError(
                    f"Samples: {name} must have one number for each of {len(self.x)} rows, not "
                    f"the shape {np.shape(values)}"
                )

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> Samples:
        groups = None if self.groups is None else self.groups[rows]
        recordings = None if self.recordings is None else self.recordings[rows]
        x, y = self.x[rows], self.y[rows]
        return Samples(x, y, self.classes, groups, recordings, self.about)

    def __repr__(self) -> str:
        parts = [f"{len(self)} of {'x'.join(map(str, self.x.shape[1:]))}"]
        parts += [f"{len(self.classes)} classes"] if self.classes else []
        parts += [] if self.groups is None else [f"{len(np.unique(self.groups))} groups"]
        return f"<Samples {', '.join(parts)}{f': {self.about}' if self.about else ''}>"


class Split(NamedTuple):
    """Samples to learn from, and samples to measure with."""

    train: Samples
    test: Samples


def windows(
    recordings: Sequence[npt.ArrayLike] | Array,
    width: int,
    step: int | None = None,
) -> tuple[Array, Array]:
    """Windows [n, channels, width] over recordings [time, channels], every `step` samples, and the
    number of the recording of each.

    step None: `width`, no overlap. The rest of a recording that fills no window is left out, and so
    is a recording that is shorter.
    """
    width = arrays.integer(width, "windows: width", 1, 2**31)
    step = width if step is None else arrays.integer(step, "windows: step", 1, 2**31)
    if isinstance(recordings, np.ndarray) and recordings.ndim == 2:
        raise ShapeError("windows: recordings must be a list of them: write [recording] for one")
    found: list[Array] = []
    numbers: list[int] = []
    for i, given in enumerate(recordings):
        signal = np.asarray(given, np.float32)
        if signal.ndim != 2 or (found and signal.shape[1] != found[0].shape[0]):
            channels = "channels" if not found else str(found[0].shape[0])
            raise ShapeError(
                f"windows: recording {i} must have the shape (time, {channels}), not {signal.shape}"
            )
        starts = range(0, len(signal) - width + 1, step)
        found += [signal[at : at + width].T for at in starts]
        numbers += [i] * len(starts)
    if not found:
        raise QfwError(f"windows: no recording has the {width} samples of a window")
    return np.ascontiguousarray(np.stack(found)), np.array(numbers)


def leave_groups_out(
    groups: npt.ArrayLike, count: int = 1
) -> Iterator[tuple[tuple[Any, ...], Array, Array]]:
    """(groups left out, rows of the others, rows of these), until each group was left out once.

    `count` groups at a time, neighbours in their order; the last time, those that are left.
    """
    given = np.asarray(groups)
    if given.ndim != 1 or not given.size:
        raise ShapeError(f"leave_groups_out: one group for each row, not the shape {given.shape}")
    names = np.unique(given)
    count = arrays.integer(count, "leave_groups_out: count", 1, len(names))
    if len(names) <= count:
        raise QfwError(f"leave_groups_out: there are {len(names)} groups: none would be left")
    for first in range(0, len(names), count):
        out = names[first : first + count]
        inside = np.isin(given, out)
        yield tuple(out.tolist()), np.flatnonzero(~inside), np.flatnonzero(inside)


def split_recordings(
    recordings: npt.ArrayLike, fraction: float, gap: int = 0
) -> tuple[Array, Array]:
    """Rows of the first part of each recording, and of the rest, `gap` windows later.

    Windows overlap: with a gap the two parts share no sample. A recording of one window is all
    rest.
    """
    given = np.asarray(recordings)
    if given.ndim != 1:
        raise ShapeError(f"split_recordings: one number for each row, not the shape {given.shape}")
    fraction = arrays.number(fraction, "split_recordings: fraction", 0, 1)
    gap = arrays.integer(gap, "split_recordings: gap", 0, 2**31)
    first, rest = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
    for name in np.unique(given):
        rows = np.flatnonzero(given == name)
        cut = round(fraction * len(rows)) if len(rows) > 1 else 0
        first.append(rows[:cut])
        rest.append(rows[cut + gap if cut else 0 :])
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(rest))
