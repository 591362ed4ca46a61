"""Files that are read whole: what is wrong with one is a FileError that names it."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .._arrays import Array
from ..errors import FileError, QfwError
from .samples import Samples, Split

PathName: TypeAlias = str | PathLike[str]

MOST = 1 << 30  # bytes of a file after it was unpacked
_DAMAGE = (  # what readers of damaged files run into
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error, RecursionError, NotImplementedError),
)


@contextmanager
def blamed(path: PathName) -> Iterator[None]:
    """What goes wrong in the block is the file's fault."""
    try:
        yield
    except FileNotFoundError as e:
        raise FileError(f"{e.filename or path}: there is no such file") from e
    except FileError as e:
        told = str(e)
        raise FileError(told if told.startswith(str(path)) else f"{path}: {told}") from e
    except QfwError:
        raise
    except _DAMAGE as e:
        raise FileError(f"{path}: the file is damaged or of another kind: {e}") from e


def content(path: PathName) -> bytes:
    """The bytes of a file; one that gzip packed is unpacked."""
    data = Path(path).read_bytes()
    if data[:2] == b"\x1f\x8b":
        with gzip.open(path) as file:
            data = file.read(MOST + 1)
    if len(data) > MOST:
        raise FileError(f"{path}: more than {MOST} bytes")
    return data


def existing(path: PathName, names: tuple[str, ...]) -> Path:
    """The first of the names that is in a folder, packed by gzip or not."""
    for name in names:
        for ending in ("", ".gz"):
            found = Path(path) / (name + ending)
            if found.is_file():
                return found
    raise FileError(f"{path}: there is no {' or '.join(names)}")


def cache_folder() -> Path:
    """Where fetched files stay: PYQFW_CACHE, or pyqfw in the user's cache folder."""
    own = os.environ.get("PYQFW_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(home) / "pyqfw"


def samples(x: Array, y: Array, what: str, **more: Any) -> Samples:
    """Samples of what a file had, checked: rows, numbers, labels from 0 on."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind not in "fiu" or y.dtype.kind not in "fiu":
        raise FileError(f"{what}: x and y must be numbers, not {x.dtype} and {y.dtype}")
    if x.ndim < 2 or not x.size or y.shape != x.shape[:1]:
        raise FileError(f"{what}: x {x.shape} and y {y.shape} are no rows with a label each")
    rows = np.ascontiguousarray(x, np.float32)
    if not np.isfinite(rows).all():
        raise FileError(f"{what}: x has a NaN or an infinity")
    whole = y.astype(np.int64)
    if (whole != y).any() or whole.min() < 0:
        raise FileError(f"{what}: labels must be whole numbers >= 0")
    classes = more.get("classes", ())
    if classes and int(whole.max()) >= len(classes):
        raise FileError(f"{what}: the label {int(whole.max())} is none of {len(classes)} classes")
    return Samples(rows, whole, **more)


# --- npz ------------------------------------------------------------------------------------------


def npz(path: PathName) -> Split:
    """Arrays of numpy's savez: x_train, y_train, x_test and y_test; x and y alone are both: the
    test part is then the very object of the training part.

    Optional: scale (a number for each channel that x is multiplied by), subject_train and
    subject_test (groups), class_names. No pickles.
    """
    with blamed(path):
        with open(path, "rb") as opened:
            found = np.load(opened, allow_pickle=False)
            if isinstance(found, np.ndarray):
                raise FileError(f"{path}: an .npy with one array, not an .npz")
            arrays = {name: found[name] for name in found.files}
        train = _part(path, arrays, "train")
        alone = "x" in arrays and "x_train" not in arrays
        return Split(train, train if alone else _part(path, arrays, "test"))


def _part(path: PathName, arrays: dict[str, Array], part: str) -> Samples:
    whole = "x" in arrays and "x_train" not in arrays
    ending = "" if whole else f"_{part}"
    for name in ("x", "y"):
        if name + ending not in arrays:
            have = ", ".join(sorted(arrays)) or "nothing"
            raise FileError(f"{path}: there is no {name}{ending}; there are {have}")
    x, y = arrays["x" + ending], arrays["y" + ending]
    if "scale" in arrays:
        scale = np.asarray(arrays["scale"], np.float32)
        if x.ndim < 2 or scale.shape != x.shape[1:2]:
            raise FileError(f"{path}: scale {scale.shape} is not one number a channel of {x.shape}")
        x = x.astype(np.float32) * scale.reshape(-1, *[1] * (x.ndim - 2))
    names = tuple(str(v) for v in arrays.get("class_names", ()))
    groups = arrays.get("subject" + ending)
    if groups is not None and groups.shape != x.shape[:1]:
        raise FileError(f"{path}: subject{ending} is not one number for each of {len(x)} rows")
    return samples(x, y, str(path), classes=names, groups=groups, about=Path(path).name)
