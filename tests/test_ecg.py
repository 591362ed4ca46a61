"""ECG5000 in the forms it is published in, and arrays of numpy; damaged ones are a FileError."""

import zipfile

import numpy as np
import pytest

import pyqfw as q
from pyqfw import data
from pyqfw.data import ecg

RNG = np.random.default_rng(0)


# --- ECG5000 --------------------------------------------------------------------------------------

BEATS = {
    "TRAIN": (RNG.normal(size=(6, 140)).astype(np.float32), np.array([1, 1, 2, 3, 5, 4])),
    "TEST": (RNG.normal(size=(4, 140)).astype(np.float32), np.array([1, 2, 1, 5])),
}
HEADERS = {
    ".ts": "#comment\n@problemName ECG5000\n@classLabel true 1 2 3 4 5\n@data\n",
    ".arff": "@relation ECG5000\n@attribute att1 numeric\n@attribute target {1,2,3,4,5}\n\n@data\n",
}


def text_of(part, form):
    lines = []
    for row, label in zip(*BEATS[part], strict=True):
        values = [f"{v:.9g}" for v in row]
        match form:
            case ".txt":
                lines.append("  " + "  ".join([f"{label:.7e}", *(f"{v:.9e}" for v in row)]))
            case ".tsv":
                lines.append("\t".join([str(label), *values]))
            case ".ts":
                lines.append(",".join(values) + f":{label}")
            case ".arff":
                lines.append(",".join([*values, str(label)]))
    return HEADERS.get(form, "") + "\n".join(lines) + "\n"


def write_beats(folder, form, change=lambda text: text):
    for part in BEATS:
        (folder / f"ECG5000_{part}{form}").write_text(change(text_of(part, form)))
    return folder


def same_beats(found):
    for part, (x, y) in zip(found, BEATS.values(), strict=True):
        np.testing.assert_array_equal(part.x, x)
        np.testing.assert_array_equal(part.y, y - 1)
        assert part.classes == ecg.CLASSES
        assert (part.x.dtype, part.y.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("form", [".txt", ".tsv", ".ts", ".arff"])
def test_ecg5000_in_every_form(tmp_path, form):
    folder = write_beats(tmp_path, form)
    same_beats(data.ecg5000(folder))
    same_beats(data.ecg5000(folder / f"ECG5000_TEST{form}"))
    packed = tmp_path / "x.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for part in BEATS:
            archive.write(folder / f"ECG5000_{part}{form}", f"ECG5000/ECG5000_{part}{form}")
    same_beats(data.ecg5000(packed))


def npz_of(path, **changes):
    arrays = {}
    for part, (x, y) in BEATS.items():
        arrays |= {f"x_{part.lower()}": x, f"y_{part.lower()}": (y - 1).astype(np.uint8)}
    np.savez(path, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})
    return path


def test_ecg5000_as_npz(tmp_path):
    found = data.ecg5000(npz_of(tmp_path / "ecg.npz"))
    same_beats(found)
    three = npz_of(tmp_path / "three.npz", x_train=BEATS["TRAIN"][0][:, None])
    same_beats(data.ecg5000(three))


DAMAGED_TEXT = {
    "cut": (lambda text: text[: len(text) // 2], "row 2|row 3|row 1"),
    "a number too few": (lambda text: text.replace("\t", " ", 0).rsplit("\t", 1)[0], "row"),
    "no numbers": (lambda text: text.replace("1", "x"), "could not convert"),
    "a NaN": (lambda text: text.replace("\t-", "\tnan\t-", 1).replace("\t", "\t", 1), "row 0"),
    "empty": (lambda text: "", "there are no rows"),
    "not ASCII": (lambda text: "\u00e9" + text, "ascii"),
    "label 6": (lambda text: "6" + text[1:], "label 5 is none of 5"),
    "label 1.5": (lambda text: "1.5" + text[1:], "whole numbers"),
    "label 0": (lambda text: "0" + text[1:], "whole numbers >= 0"),
}


@pytest.mark.parametrize("case", DAMAGED_TEXT)
def test_ecg5000_damaged(tmp_path, case):
    change, message = DAMAGED_TEXT[case]
    write_beats(tmp_path, ".tsv", change)
    with pytest.raises(q.FileError, match=rf"{tmp_path}: ECG5000_TRAIN.tsv: .*({message})"):
        data.ecg5000(tmp_path)


def test_ecg5000_with_a_nan(tmp_path):
    write_beats(
        tmp_path, ".tsv", lambda t: "\t".join([t.split("\t")[0], "nan", *t.split("\t")[2:]])
    )
    with pytest.raises(q.FileError, match="NaN or an infinity"):
        data.ecg5000(tmp_path)


def test_ecg5000_that_is_not_there(tmp_path):
    with pytest.raises(q.FileError, match="there is no ECG5000_TRAIN with ECG5000_TEST"):
        data.ecg5000(tmp_path)
    write_beats(tmp_path, ".ts")
    (tmp_path / "ECG5000_TEST.ts").unlink()
    with pytest.raises(q.FileError, match=r"ECG5000_TEST\.ts: there is no such file"):
        data.ecg5000(tmp_path / "ECG5000_TRAIN.ts")
    with pytest.raises(q.FileError, match="nothing: ECG5000_TRAIN or"):
        data.ecg5000(tmp_path / "nothing")
    (tmp_path / "bad.zip").write_bytes(b"PK\3\4 and no more")
    with pytest.raises(q.FileError, match=r"bad\.zip: the file is damaged"):
        data.ecg5000(tmp_path / "bad.zip")
    write_beats(tmp_path, ".ts", lambda text: text.replace("@data", ""))
    with pytest.raises(q.FileError, match="no line @data"):
        data.ecg5000(tmp_path)


def test_synthetic_beats_say_what_they_are():
    found = data.synthetic_beats(300, seed=3)
    assert found.about.startswith("synthetic")
    assert "synthetic" in repr(found)
    assert found.x.shape == (300, 140)
    np.testing.assert_allclose(found.x.std(1), 1, atol=1e-5)
    assert 0.4 < np.mean(found.y == 0) < 0.75
    np.testing.assert_array_equal(found.x, data.synthetic_beats(300, seed=3).x)
    assert not np.array_equal(found.x, data.synthetic_beats(300, seed=4).x)
    with pytest.raises(q.QfwError, match="count must be"):
        data.synthetic_beats(0)


# --- npz ------------------------------------------------------------------------------------------

BAD_NPZ = {
    "y_test": ({"y_test": None}, "there is no y_test; there are"),
    "rows": ({"y_train": np.arange(5)}, "no rows with a label each"),
    "words": ({"x_train": np.full((6, 140), "a")}, "must be numbers"),
    "pickles": ({"x_train": np.array([{}] * 6)}, "damaged or of another kind: .*allow_pickle"),
    "infinity": ({"x_train": np.full((6, 140), np.inf)}, "NaN or an infinity"),
    "other rows": ({"x_train": np.zeros((6, 9))}, "not of 140 samples"),
    "label 7": ({"y_train": np.full(6, 7)}, "in 5 classes"),
    "label -1": ({"y_train": np.full(6, -1)}, "whole numbers >= 0"),
    "no rows": ({"x_train": np.zeros((0, 140)), "y_train": np.zeros(0)}, "no rows with a label"),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_npz(tmp_path, case):
    changes, message = BAD_NPZ[case]
    with pytest.raises(q.FileError, match=rf"bad\.npz: .*{message}"):
        data.ecg5000(npz_of(tmp_path / "bad.npz", **changes))


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_a_cut_npz(tmp_path, keep):
    whole = npz_of(tmp_path / "whole.npz").read_bytes()
    cut = tmp_path / "cut.npz"
    cut.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(q.FileError, match=r"cut\.npz: the file is damaged or of another kind"):
        data.npz(cut)


def test_npz_of_codes(tmp_path):
    path = tmp_path / "har.npz"
    codes = RNG.integers(-(2**15), 2**15, (5, 9, 128)).astype(np.int16)
    scale = np.linspace(1e-4, 5e-4, 9).astype(np.float32)
    names = np.array(["sit", "walk"])
    labels, people = np.array([0, 1, 0, 1, 1], np.uint8), np.array([3, 3, 4, 4, 4])
    arrays = {"x": codes, "y": labels, "scale": scale, "class_names": names, "subject": people}
    np.savez(path, **arrays)
    train, test = data.uci_har(path)
    np.testing.assert_array_equal(train.x, codes.astype(np.float32) * scale[:, None])
    assert (train.classes, train.groups.tolist()) == (("sit", "walk"), people.tolist())
    np.testing.assert_array_equal(test.x, train.x)
    np.savez(path, **{**arrays, "scale": scale[:3]})
    with pytest.raises(q.FileError, match=r"scale .* is not one number a channel"):
        data.npz(path)
    np.savez(path, **{**arrays, "subject": people[:3]})
    with pytest.raises(q.FileError, match="subject is not one number for each of 5 rows"):
        data.npz(path)
    np.save(tmp_path / "one.npy", codes)
    with pytest.raises(q.FileError, match=r"one array, not an \.npz"):
        data.npz(tmp_path / "one.npy")
    with pytest.raises(q.FileError, match="no such file"):
        data.npz(tmp_path / "none.npz")
