"""Loaders on small files that the test writes; what is damaged is a FileError by name."""

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

import pyqfw as q
from pyqfw import data
from pyqfw.data import activity, images

RNG = np.random.default_rng(0)


# --- UCI HAR --------------------------------------------------------------------------------------


def write_har(folder):
    (folder / "activity_labels.txt").write_text("1 WALKING\n2 SITTING\n")
    made = {}
    for part, n in (("train", 4), ("test", 3)):
        inside = folder / part / "Inertial Signals"
        inside.mkdir(parents=True)
        x = RNG.normal(size=(n, 9, 128)).astype(np.float32)
        for c, name in enumerate(activity.CHANNELS):
            lines = [" ".join(f" {v:.8e}" for v in row) for row in x[:, c]]
            (inside / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n")
        y = np.arange(n) % 2
        (folder / part / f"y_{part}.txt").write_text("\n".join(map(str, y + 1)) + "\n")
        (folder / part / f"subject_{part}.txt").write_text("\n".join(map(str, y + 7)) + "\n")
        made[part] = (x, y)
    return made


def test_uci_har_as_it_is_published(tmp_path):
    made = write_har(tmp_path)
    for part, (x, y) in zip(data.uci_har(tmp_path), made.values(), strict=True):
        np.testing.assert_array_equal(part.x, x)
        assert part.y.tolist() == y.tolist()
        assert part.groups.tolist() == (y + 7).tolist()
        assert part.classes == ("WALKING", "SITTING")


def _cut(path: Path) -> None:
    path.write_text(path.read_text()[:-30])


HAR_DAMAGE = {
    "a signal is missing": (
        "train/Inertial Signals/body_gyro_y_train.txt",
        Path.unlink,
        "there is no body_gyro_y_train.txt",
    ),
    "a signal is cut": (
        "test/Inertial Signals/total_acc_z_test.txt",
        _cut,
        "total_acc_z_test.txt: row 2 has 1.. numbers, not 128",
    ),
    "a label too few": (
        "train/y_train.txt",
        lambda path: path.write_text("1\n2\n1\n"),
        "are not of one number: 4, .*, 3, 4",
    ),
    "a label too many": (
        "train/y_train.txt",
        lambda path: path.write_text("1\n2\n1\n3\n"),
        "label 2 is none of 2 classes",
    ),
    "no names": (
        "activity_labels.txt",
        lambda path: path.write_text("WALKING\n"),
        "a name in each",
    ),
    "words": ("test/subject_test.txt", lambda path: path.write_text("a\nb\nc\n"), "subject_test"),
    "empty": ("test/y_test.txt", lambda path: path.write_text(""), "there are no rows"),
}


@pytest.mark.parametrize("case", HAR_DAMAGE)
def test_uci_har_damaged(tmp_path, case):
    name, damage, message = HAR_DAMAGE[case]
    write_har(tmp_path)
    damage(tmp_path / name)
    with pytest.raises(q.FileError, match=message):
        data.uci_har(tmp_path)


# --- seglearn's watch -----------------------------------------------------------------------------


def watch_file(path, **changes):
    lengths = (300, 100, 200)
    content = {
        "X": [RNG.normal(size=(n, 6)) for n in lengths],
        "y": np.array([1, 0, 2]),
        "subject": np.array([4, 4, 9]),
        "y_labels": ["a", "b", "c"],
        "side": np.array([0, 1, 1]),
        **changes,
    }
    np.save(path, np.array(content), allow_pickle=True)
    return path, content


def test_watch(tmp_path):
    path, content = watch_file(tmp_path / "watch.npy")
    found = data.watch(path)
    assert found.x.shape == (5, 6, 128)
    assert found.recordings.tolist() == [0, 0, 0, 2, 2]
    assert found.groups.tolist() == [4, 4, 4, 9, 9]
    assert found.y.tolist() == [1, 1, 1, 2, 2]
    np.testing.assert_array_equal(found.x[1], content["X"][0][64:192].T.astype(np.float32))


def test_the_watch_of_seglearn():
    found = data.watch()
    assert (len(found), found.x.shape[1:]) == (3605, (6, 128))
    assert np.unique(found.groups).tolist() == list(range(1, 11))
    assert len(found.classes) == 7


class Evil:
    def __reduce__(self):
        return (print, ("code of a file ran",))


BAD_WATCH = {
    "people": ({"subject": np.array([1, 2])}, "not of one number"),
    "a key": ({"y_labels": None, "extra": 1}, "damaged or of another kind"),
    "channels": ({"X": [np.zeros((300, 6)), np.zeros((300, 5)), np.zeros((300, 6))]}, "time, 6"),
    "short": ({"X": [np.zeros((9, 6))] * 3}, "no recording has the 128 samples"),
    "a NaN": ({"X": [np.full((300, 6), np.nan)] * 3}, "NaN"),
    "labels": ({"y": np.array([1, 0, 3])}, "label 3 is none of 3"),
    "code": ({"side": Evil()}, r"it wants builtins\.print"),
}


@pytest.mark.parametrize("case", BAD_WATCH)
def test_bad_watch_files(tmp_path, case, capsys):
    changes, message = BAD_WATCH[case]
    path, _ = watch_file(tmp_path / "watch.npy", **changes)
    with pytest.raises(q.QfwError, match=message):
        data.watch(path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("keep", [0, 5, 60, 200, -1])
def test_a_cut_watch_file(tmp_path, keep):
    path, _ = watch_file(tmp_path / "watch.npy")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(q.FileError, match=r"watch\.npy: "):
        data.watch(path)


def test_another_npy_is_no_watch(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(q.FileError, match="not the dict of recordings"):
        data.watch(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.array([1, "x", None], object), allow_pickle=True)
    with pytest.raises(q.FileError, match="not the dict of recordings"):
        data.watch(tmp_path / "b.npy")
    (tmp_path / "c.pkl").write_bytes(pickle.dumps({"X": []}))
    with pytest.raises(q.FileError, match="damaged or of another kind"):
        data.watch(tmp_path / "c.pkl")


# --- idx ------------------------------------------------------------------------------------------

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx_bytes(array):
    code = CODES[array.dtype.str[1:]]
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return (
        bytes([0, 0, code, array.ndim])
        + sizes
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


@pytest.mark.parametrize("kind", CODES)
def test_idx_of_every_type(tmp_path, kind):
    array = RNG.integers(0, 100, (3, 4, 5)).astype(kind)
    path = tmp_path / "a.idx"
    path.write_bytes(idx_bytes(array))
    np.testing.assert_array_equal(data.idx(path), array)
    assert data.idx(path).dtype == array.dtype
    path.write_bytes(gzip.compress(idx_bytes(array)))
    np.testing.assert_array_equal(data.idx(path), array)


GOOD_IDX = idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
BAD_IDX = {
    "empty": (b"", "no idx file"),
    "text": (b"hello, this is text", "no idx file"),
    "type": (b"\0\0\7" + GOOD_IDX[3:], "no idx file"),
    "sizes cut": (GOOD_IDX[:9], "sizes are missing"),
    "numbers cut": (GOOD_IDX[:-1], "has 39 bytes, and .* would be 40"),
    "too long": (GOOD_IDX + b"x", "has 41 bytes"),
    "huge": (GOOD_IDX[:4] + b"\xff" * 12 + GOOD_IDX[16:], "would be"),
    "gzip cut": (gzip.compress(GOOD_IDX)[:-9], "damaged"),
    "gzip damaged": (gzip.compress(GOOD_IDX)[:12] + b"\0\1\2\3", "damaged"),
}


@pytest.mark.parametrize("case", BAD_IDX)
def test_bad_idx(tmp_path, case):
    content, message = BAD_IDX[case]
    path = tmp_path / "bad.idx"
    path.write_bytes(content)
    with pytest.raises(q.FileError, match=rf"bad\.idx: .*{message}"):
        data.idx(path)


def write_fashion(folder):
    made = []
    for part, n in (("train", 6), ("t10k", 3)):
        x = RNG.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        y = RNG.integers(0, 10, n).astype(np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(x)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(y))
        made.append((x, y))
    return made


def test_fashion_mnist(tmp_path):
    made = write_fashion(tmp_path)
    for part, (x, y) in zip(data.fashion_mnist(tmp_path), made, strict=True):
        assert part.x.shape == (len(x), 1, 28, 28)
        np.testing.assert_array_equal(np.rint(part.x[:, 0] * 255), x)
        assert part.y.tolist() == y.tolist()
        assert (part.x.max() <= 1, part.about) == (True, "Fashion-MNIST")


def test_fashion_mnist_where_debian_puts_it(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "DEBIAN", tmp_path / "none")
    with pytest.raises(q.FileError, match="apt install dataset-fashion-mnist"):
        data.fashion_mnist()
    write_fashion(tmp_path)
    monkeypatch.setattr(images, "DEBIAN", tmp_path)
    assert len(data.fashion_mnist().train) == 6


def test_fashion_mnist_damaged(tmp_path):
    write_fashion(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.full(3, 10, np.uint8)))
    with pytest.raises(q.FileError, match="label 10 is none of 10"):
        data.fashion_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(2, np.uint8)))
    with pytest.raises(q.FileError, match="no rows with a label each"):
        data.fashion_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(q.FileError, match="there is no t10k-labels-idx1-ubyte"):
        data.fashion_mnist(tmp_path)


def test_digits():
    train, test = data.digits()
    assert (len(train), len(test), train.x.shape[1:]) == (1347, 450, (1, 8, 8))
    assert (train.x.min(), train.x.max()) == (0, 1)
