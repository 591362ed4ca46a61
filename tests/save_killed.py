"""A program: processes that save in a loop are killed at random moments, and the file is loaded.

    python save_killed.py folder kills seed whole|plain

Each version of the file has one number everywhere, in its parameters and in `epochs`. A process
tells when a save begins and when it is done, so that it is known which version must be there: the
last that was done, or the one that was being written. Only kills during a save count. `plain`
writes over the file instead, to show that this finds what it looks for. Prints JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import pyqfw as q
from pyqfw import nn, saving

MOST = 500  # processes that are tried
BEGUN, DONE = b"b", b"d"


def session() -> q.Session:
    return q.Session(q.compile(nn.Linear(200, 300), input_shape=200))


def become(net: q.Session, version: int) -> None:
    shapes = {name: value.shape for name, value in net.state_dict().items()}
    net.load_state_dict({name: np.full(shape, version) for name, shape in shapes.items()})
    net.epochs = version


def version_of(path: Path) -> int:
    """The one number that is everywhere in the file."""
    net = q.Session.load(path)
    for name, values in net.state_dict().items():
        if not (values == net.epochs).all():
            raise q.FileError(f"{name} is not of version {net.epochs}")
    return net.epochs


def write_over(path: saving.PathName, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        for i in range(0, len(data), 512):
            file.write(data[i : i + 512])


def save_for_ever(path: Path, version: int, pipe: int) -> None:
    net = session()
    while True:
        version += 1
        become(net, version)
        os.write(pipe, BEGUN)
        net.save(path)
        os.write(pipe, DONE)


def kill_one(path: Path, version: int, delay: float) -> tuple[int, int]:
    """Saves that a process began, and those that it did, when it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            save_for_ever(path, version, writer)
        finally:
            os._exit(1)
    os.close(writer)
    told = os.read(reader, 1)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    while more := os.read(reader, 1 << 16):
        told += more
    os.close(reader)
    return told.count(BEGUN), told.count(DONE)


def delays(path: Path, seed: int) -> Iterator[float]:
    """Moments in the first two saves or so."""
    net = session()
    become(net, 0)
    net.save(path)
    begin = time.perf_counter()
    net.save(path)
    longest = 2 * (time.perf_counter() - begin)
    rng = np.random.default_rng(seed)
    return (float(rng.uniform(0, longest)) for _ in range(MOST))


def main(folder: str, kills: str, seed: str, how: str) -> None:
    path = Path(folder) / "net.safetensors"
    if how == "plain":
        saving.replace_file = write_over
    found = {"kills": 0, "tried": 0, "wrong": [], "old": 0, "new": 0, "left": 0}
    version = 0
    for delay in delays(path, int(seed)):
        if found["kills"] == int(kills):
            break
        begun, done = kill_one(path, version, delay)
        found["tried"] += 1
        found["kills"] += begun > done
        try:
            there = version_of(path)
            if not version + done <= there <= version + begun:
                raise q.FileError(f"{there} is neither {version + done} nor {version + begun}")
            if begun > done:
                found["new" if there == version + begun else "old"] += 1
            version = there
        except q.FileError as e:
            found["wrong"].append(str(e))
            version += begun
        for other in path.parent.iterdir():
            if other != path:
                found["left"] += 1
                other.unlink()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
