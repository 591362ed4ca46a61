"""Heartbeats: ECG5000 in the forms it is published in, and synthetic ones."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .._arrays import Array, integer
from ..errors import FileError
from .fetch import fetched, forget
from .files import MOST, PathName, blamed, content, npz, samples
from .samples import Samples, Split

CLASSES = ("Normal", "R-on-T PVC", "PVC", "SP or EB", "UB")
LENGTH = 140
URL = "https://www.timeseriesclassification.com/aeon-toolkit/ECG5000.zip"
# SHA-256 of the published numbers, whatever their form: see `digest`.
PUBLISHED = "f5f9e52e1ea12f9316f0e5191efad932ce1e99b9e6472617d964b57182a9a683"
_PARTS = ("TRAIN", "TEST")
_FORMS = (".txt", ".tsv", ".ts", ".arff")


def ecg5000(path: PathName | None = None, *, progress: bool | None = None) -> Split:
    """ECG5000: 500 and 4500 beats of 140 samples, class 0 normal (UCR archive).

    From a folder, a zip or one file of its published forms (ECG5000_TRAIN and ECG5000_TEST as .txt,
    .tsv, .ts or .arff), or an .npz. Without a path it is fetched once and its numbers are compared
    with those that were published; FileError if it cannot be.
    """
    if path is not None:
        with blamed(path):
            return _read(Path(path))
    name = URL.rpartition("/")[2]
    file = fetched(URL, name, progress)
    try:
        with blamed(file):
            found = _read(file)
            if digest(found) != PUBLISHED:
                raise FileError("these are not the numbers that were published as ECG5000")
    except FileError:
        forget(name)
        raise
    return found


def beats(path: PathName | None = None, *, progress: bool | None = None) -> Split:
    """ECG5000 from a path, or as it can be fetched, or else synthetic beats: `about` says which."""
    try:
        return ecg5000(path, progress=progress)
    except FileError:
        if path is not None:
            raise
        return Split(synthetic_beats(500, seed=0), synthetic_beats(4500, seed=1))


def digest(beats: Split) -> str:
    """SHA-256 of float32 samples and labels as bytes, little-endian: training ones first."""
    found = hashlib.sha256()
    for part in beats:
        found.update(np.ascontiguousarray(part.x, "<f4").tobytes())
        found.update(part.y.astype(np.uint8).tobytes())
    return found.hexdigest()


# --- its forms ------------------------------------------------------------------------------------


def _read(path: Path) -> Split:
    if path.suffix == ".npz":
        return _checked(npz(path))
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            form = _form(names, path)
            return _split({part: _unpacked(archive, names, part, form) for part in _PARTS}, form)
    if path.is_dir():
        form = _form([file.name for file in path.iterdir()], path)
        return _split({p: content(path / f"ECG5000_{p}{form}") for p in _PARTS}, form)
    part = next((p for p in _PARTS if path.stem == f"ECG5000_{p}"), None)
    if part is None or path.suffix not in _FORMS:
        raise FileError(f"{path}: ECG5000_TRAIN or ECG5000_TEST as {', '.join(_FORMS)}, or an .npz")
    form = path.suffix
    return _split({p: content(path.with_name(f"ECG5000_{p}{form}")) for p in _PARTS}, form)


def _form(names: Iterable[str], path: Path) -> str:
    """The first form of which there are both parts."""
    have = {Path(name).name for name in names}
    for form in _FORMS:
        if have >= {f"ECG5000_{part}{form}" for part in _PARTS}:
            return form
    raise FileError(f"{path}: there is no ECG5000_TRAIN with ECG5000_TEST as {', '.join(_FORMS)}")


def _unpacked(archive: zipfile.ZipFile, names: list[str], part: str, form: str) -> bytes:
    name = next(n for n in names if Path(n).name == f"ECG5000_{part}{form}")
    if archive.getinfo(name).file_size > MOST:
        raise FileError(f"{name}: more than {MOST} bytes")
    return archive.read(name)


def _split(parts: dict[str, bytes], form: str) -> Split:
    found = {}
    for part, data in parts.items():
        try:
            found[part] = _samples(data.decode("ascii"), form)
        except (FileError, UnicodeDecodeError, ValueError) as e:
            raise FileError(f"ECG5000_{part}{form}: {e}") from e
    return Split(found["TRAIN"], found["TEST"])


def _samples(text: str, form: str) -> Samples:
    """Rows with the label first (.txt, .tsv) or last (.ts, .arff), from 1 to 5."""
    lines = text.splitlines()
    if form in (".ts", ".arff"):
        marks = [i for i, line in enumerate(lines) if line.strip().lower() == "@data"]
        if not marks:
            raise FileError("there is no line @data")
        lines = [line.replace(":", ",") for line in lines[marks[0] + 1 :]]
    rows = [line.replace(",", " ").split() for line in lines if line.strip()]
    for number, row in enumerate(rows):
        if len(row) != LENGTH + 1:
            raise FileError(f"row {number} has {len(row)} numbers, not {LENGTH} and a label")
    if not rows:
        raise FileError("there are no rows")
    values = np.array(rows, np.float64)
    at = -1 if form in (".ts", ".arff") else 0
    x = np.delete(values, at, axis=1)
    about = f"ECG5000 ({form})"
    return samples(x, values[:, at] - 1, about, classes=CLASSES, about=about)


def _checked(found: Split) -> Split:
    for part in found:
        if part.x.shape[1:] not in ((LENGTH,), (1, LENGTH)) or part.y.max() >= len(CLASSES):
            raise FileError(f"rows of {part.x.shape[1:]}, not of {LENGTH} samples in 5 classes")
    flat = [s.x.reshape(len(s), LENGTH) for s in found]
    about = "ECG5000 (.npz)"
    return Split(*(Samples(x, s.y, CLASSES, about=about) for x, s in zip(flat, found, strict=True)))


# --- synthetic ------------------------------------------------------------------------------------

# Waves P, Q, R, S, T: place and width as parts of the beat, height. From R to R, as ECG5000.
_WAVES = {
    0: ((0.0, 0.020, 3.0), (0.045, 0.020, -3.6), (0.33, 0.080, 1.0), (0.82, 0.030, 0.6)),
    1: ((0.0, 0.050, 2.0), (0.10, 0.060, -3.0), (0.42, 0.110, -1.2), (0.70, 0.060, 1.8)),
    2: ((0.0, 0.055, 2.6), (0.12, 0.070, -2.4), (0.50, 0.120, -0.9)),
    3: ((0.0, 0.020, 2.6), (0.045, 0.020, -3.0), (0.28, 0.070, 0.7), (0.62, 0.030, 0.6)),
    4: ((0.0, 0.030, 1.2), (0.30, 0.150, 1.0), (0.75, 0.080, -0.8)),
}
_SHARES = (0.584, 0.353, 0.039, 0.019, 0.005)  # of ECG5000's classes
_NEXT = (0.97, 0.025, 2.2)  # the R of the next beat


def synthetic_beats(count: int, *, seed: int = 0) -> Samples:
    """Beats made of Gaussian waves PQRST, no one's recording: for trying things out, never for
    results. Shape, classes and their shares are ECG5000's; each beat has mean 0 and variance 1."""
    count = integer(count, "synthetic_beats: count", 1, 2**20)
    rng = np.random.default_rng(integer(seed, "synthetic_beats: seed", 0, 2**32 - 1))
    shares = np.array(_SHARES) / sum(_SHARES)
    y = rng.choice(len(CLASSES), count, p=shares)
    x = np.stack([_beat(int(label), rng) for label in y])
    x -= x.mean(1, keepdims=True)
    x /= x.std(1, keepdims=True)
    about = "synthetic PQRST beats, not recorded from anyone"
    return Samples(x.astype(np.float32), y.astype(np.int64), CLASSES, about=about)


def _beat(label: int, rng: np.random.Generator) -> Array:
    at = np.linspace(0, 1, LENGTH)
    wander = np.sin(2 * np.pi * (at + rng.random()))
    beat = rng.normal(0, 0.08, LENGTH) + rng.normal(0, 0.3) * wander
    for place, width, height in (*_WAVES[label], _NEXT):
        where = place + rng.normal(0, 0.012)
        size, wide = height * rng.normal(1, 0.12), width * rng.normal(1, 0.1)
        beat += size * np.exp(-0.5 * ((at - where) / wide) ** 2)
    return beat
