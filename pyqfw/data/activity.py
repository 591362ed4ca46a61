"""Activity recognition: seglearn's smart watch, and the UCI HAR folder."""

from __future__ import annotations

import pickle
from importlib import util
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array
from ..errors import FileError
from .files import PathName, blamed, content, existing, npz, samples
from .samples import Samples, Split, windows

_KINDS = ("body_acc", "body_gyro", "total_acc")
CHANNELS = tuple(f"{kind}_{axis}" for kind in _KINDS for axis in "xyz")
_WIDTH = 128


# --- seglearn's watch -----------------------------------------------------------------------------


def watch(path: PathName | None = None, *, width: int = 128, step: int = 64) -> Samples:
    """140 recordings of ten people's shoulder exercises, six channels at 50 Hz, as windows.

    From seglearn's own file (`pip install seglearn`), or one of that form. Groups are the people.
    """
    file = _installed() if path is None else Path(path)
    with blamed(file):
        data = _recordings(content(file))
        signals, labels = data["X"], np.asarray(data["y"])
        people = np.asarray(data["subject"])
        if not len(signals) == len(labels) == len(people):
            raise FileError("recordings, labels and people are not of one number")
        x, of = windows(signals, width, step)
        classes = tuple(str(name) for name in data["y_labels"])
        given = {"classes": classes, "groups": people[of], "recordings": of}
        return samples(x, labels[of], str(file), about="seglearn's smart watch", **given)


def _installed() -> Path:
    spec = util.find_spec("seglearn")
    if spec is None or spec.origin is None:
        raise FileError("the watch data are in the package seglearn: pip install seglearn")
    return Path(spec.origin).parent / "data" / "watch_dataset.npy"


class _Plain(pickle.Unpickler):
    """Arrays of numbers in dicts and lists: no other code runs."""

    _KNOWN = frozenset({"_reconstruct", "ndarray", "dtype", "scalar", "encode"})

    def find_class(self, module: str, name: str) -> Any:
        home = module.replace("numpy._core", "numpy.core")
        if home in ("numpy", "numpy.core.multiarray", "_codecs") and name in self._KNOWN:
            return super().find_class(module, name)
        raise FileError(f"it wants {module}.{name}, and may have arrays of numbers only")


def _recordings(data: bytes) -> dict[str, Any]:
    """The dict in an .npy of one object."""
    file = BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise FileError(f"an .npy of version {version}, not 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if shape != () or not dtype.hasobject:
        raise FileError("not the dict of recordings that seglearn has")
    try:
        found = _Plain(file).load()
    except pickle.UnpicklingError as e:
        raise FileError(f"the file is damaged: {e}") from e
    item = found.item() if isinstance(found, np.ndarray) and found.shape == () else found
    if not isinstance(item, dict) or not {"X", "y", "subject", "y_labels"} <= item.keys():
        raise FileError("there is no dict with X, y, subject and y_labels")
    return item


# --- UCI HAR --------------------------------------------------------------------------------------


def uci_har(path: PathName) -> Split:
    """The UCI HAR data: windows of 9 x 128, six activities, groups being people.

    From the folder as it is published ("UCI HAR Dataset", with train/Inertial Signals), or an .npz
    (`q.data.npz`).
    """
    if Path(path).suffix == ".npz":
        return npz(path)
    with blamed(path):
        folder = Path(path)
        names = _activities(folder)
        return Split(_part(folder, "train", names), _part(folder, "test", names))


def _activities(folder: Path) -> tuple[str, ...]:
    lines = content(existing(folder, ("activity_labels.txt",))).decode("ascii").split("\n")
    pairs = [line.split() for line in lines if line.strip()]
    if [pair[0] for pair in pairs] != [str(i + 1) for i in range(len(pairs))]:
        raise FileError("activity_labels.txt: not a number from 1 on and a name in each line")
    return tuple(pair[1] for pair in pairs)


def _part(folder: Path, part: str, names: tuple[str, ...]) -> Samples:
    inside = folder / part
    signals = [
        _table(existing(inside / "Inertial Signals", (f"{name}_{part}.txt",)), _WIDTH)
        for name in CHANNELS
    ]
    labels, people = (
        _table(existing(inside, (f"{name}_{part}.txt",)), 1)[:, 0] for name in ("y", "subject")
    )
    if len({len(rows) for rows in (*signals, labels, people)}) > 1:
        told = ", ".join(str(len(rows)) for rows in (*signals, labels, people))
        raise FileError(f"{inside}: signals, labels and people are not of one number: {told}")
    x = np.stack(signals, axis=1)
    more = {"classes": names, "groups": people.astype(np.int64), "about": "UCI HAR"}
    return samples(x, labels - 1, str(inside), **more)


def _table(path: Path, columns: int) -> Array:
    """A text file of so many numbers in each line."""
    with blamed(path):
        rows = [line.split() for line in content(path).decode("ascii").splitlines()]
        rows = [row for row in rows if row]
        for number, row in enumerate(rows):
            if len(row) != columns:
                _refuse(f"row {number} has {len(row)} numbers, not {columns}")
        if not rows:
            _refuse("there are no rows")
        return np.array(rows, np.float64)


def _refuse(why: str) -> NoReturn:
    raise FileError(why)
