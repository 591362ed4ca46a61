"""Images: idx files, Fashion-MNIST and scikit-learn's digits."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from .._arrays import Array
from ..errors import FileError
from .files import PathName, blamed, content, existing, samples
from .samples import Samples, Split

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def idx(path: PathName) -> Array:
    """The array of an idx file (MNIST's form), packed by gzip or not."""
    with blamed(path):
        data = content(path)
        if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
            raise FileError("this is no idx file")
        dtype, rank = np.dtype(_TYPES[data[2]]), data[3]
        start = 4 + 4 * rank
        if len(data) < start:
            raise FileError("the file is cut: its sizes are missing")
        shape = tuple(np.frombuffer(data[4:start], ">u4").tolist())
        wanted = start + prod(shape) * dtype.itemsize
        if len(data) != wanted:
            raise FileError(f"the file has {len(data)} bytes, and {shape} of it would be {wanted}")
        array = np.frombuffer(data[start:], dtype).reshape(shape)
        return array.astype(dtype.newbyteorder("="))


def idx_images(path: PathName, classes: tuple[str, ...] = (), about: str = "idx files") -> Split:
    """Images (1, height, width) from 0 to 1 with labels: the four idx files of MNIST's names."""
    with blamed(path):
        return Split(*(_part(path, part, classes, about) for part in ("train", "t10k")))


def fashion_mnist(path: PathName | None = None) -> Split:
    """Fashion-MNIST: 60000 and 10000 images (1, 28, 28) from 0 to 1, ten classes.

    From a folder with its idx files; without a path, where Debian's package
    dataset-fashion-mnist puts them.
    """
    if path is None and not DEBIAN.is_dir():
        raise FileError(
            f"{DEBIAN}: there is no such folder: apt install dataset-fashion-mnist, or give the "
            f"folder with the idx files"
        )
    return idx_images(DEBIAN if path is None else path, CLASSES, "Fashion-MNIST")


def digits() -> Split:
    """scikit-learn's handwritten digits (1, 8, 8) from 0 to 1: the first 1347, and the last 450."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as e:
        raise FileError("the digits are in scikit-learn: pip install scikit-learn") from e
    data = load_digits()
    x, names = data.images[:, None] / 16, tuple("0123456789")
    whole = samples(x, data.target, "digits", classes=names, about="scikit-learn's digits")
    return Split(whole[:1347], whole[1347:])


def _part(path: PathName, part: str, classes: tuple[str, ...], about: str) -> Samples:
    names = {kind: f"{part}-{kind}-idx{rank}" for kind, rank in (("images", 3), ("labels", 1))}
    x, y = (idx(existing(path, _spellings(name))) for name in names.values())
    if x.ndim != 3 or x.dtype != np.uint8:
        raise FileError(f"{names['images']}-ubyte: {x.dtype} of {x.shape}, not bytes of images")
    scaled = x[:, None].astype(np.float32) / np.float32(255)
    return samples(scaled, y, f"{path}, {part}", classes=classes, about=about)


def _spellings(name: str) -> tuple[str, str]:
    """As published, and as some unpack it."""
    return f"{name}-ubyte", f"{name.replace('-idx', '.idx')}-ubyte"
