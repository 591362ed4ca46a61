"""Training in QEMU, on its boards: every core, the Cortex-M55 too."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._bar_tqdm import Bar
from ..errors import QfwError
from ..lower.memory import NET_BYTES
from ..session import Session
from .build import HERE, Build
from .steps import Outcome, Step, Walk, checked, walks_of
from .unicorn_ import PROGRESS

QEMU = "qemu-system-arm"
COMMAND = struct.Struct("<8I")
ANSWER = struct.Struct("<If")
END, STEP, WALK, INFER = range(4)
WAIT = 0.05  # seconds between two looks at the answers


class Command(NamedTuple):
    """A record of the file "commands": c/harness_qemu.c."""

    kind: int
    walk: Walk
    x: bytes = b""
    y: bytes = b""

    def encoded(self) -> bytes:
        return COMMAND.pack(self.kind, *self.walk, len(self.x), len(self.y)) + self.x + self.y


NOTHING = Walk(0, 0, 0, 0, 0)


def is_there() -> bool:
    return shutil.which(QEMU) is not None


class Trainer:
    """The harness for a board, built."""

    def __init__(self, net: Session, build: Build) -> None:
        if not is_there():
            raise QfwError(f'backend="qemu" needs {QEMU} (Debian: the package qemu-system-arm)')
        self._net = net
        self._elf = build.harness_with_reset("harness.c", "harness_qemu.c")
        self._machine = build.folder.target.machine
        self._outputs = 4 * net.plan.program.output.size

    def train(self, steps: Iterable[Step], count: int, shown: Bar) -> Outcome:
        """All steps; the first `count` are counted, as a whole and by operation."""
        out, known = Outcome(), list(steps)
        commands = [Command(STEP, Walk(0, s.rows, s.rows, 0, 0), s.x, s.y) for s in known]
        answers, counts = self._run(commands, out, shown)
        out.losses = [loss for _, loss in answers]
        out.steps = counts[:count]
        if count:
            self._train_walks(known[:count], out)
        return out

    def _train_walks(self, steps: Sequence[Step], out: Outcome) -> None:
        """The same steps once more, operation by operation."""
        commands = []
        for step in steps:
            first, *others = walks_of(self._net.plan, step.rows)
            commands.append(Command(WALK, first, step.x, step.y))
            commands += [Command(WALK, walk) for walk in others]
        _, out.walks = self._run(commands, Outcome(), None)

    def infer(self, step: Step) -> Outcome:
        """One row, counted, by the net as it was at first."""
        out = Outcome()
        _, counts = self._run([Command(INFER, NOTHING, step.x)], out, None)
        out.inference = counts[0]
        return out

    def _run(
        self, commands: Sequence[Command], out: Outcome, shown: Bar | None
    ) -> tuple[list[tuple[int, float]], list[int]]:
        """Answers and counts of commands, from the open net on."""
        with tempfile.TemporaryDirectory(prefix="pyqfw-") as name:
            folder = Path(name)
            records = [c.encoded() for c in commands]
            (folder / "commands").write_bytes(b"".join(records) + bytes(COMMAND.size))
            self._emulate(folder, len(commands), shown)
            answers = self._answers((folder / "answers").read_bytes(), commands, out)
            counts = [int(line) for line in (folder / "counts").read_text().split()]
        return answers, counts

    def _emulate(self, folder: Path, total: int, shown: Bar | None) -> None:
        plugin = _plugin(folder)
        command = [
            *(QEMU, "-M", self._machine, "-display", "none", "-monitor", "none"),
            *("-serial", "none", "-chardev", "stdio,id=text", "-semihosting-config"),
            *("enable=on,target=native,chardev=text", "-plugin", f"{plugin},out=counts"),
            *("-kernel", str(self._elf)),
        ]
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            while process.poll() is None:
                time.sleep(WAIT)
                self._show(folder / "answers", total, shown)
        finally:
            process.kill()
            text = process.communicate()[0]
        if process.returncode:
            raise QfwError(f"{QEMU} -M {self._machine} ended with {process.returncode}: {text}")
        self._show(folder / "answers", total, shown)

    @staticmethod
    def _show(answers: Path, total: int, shown: Bar | None) -> None:
        if shown is not None and answers.exists():
            done = min(answers.stat().st_size // ANSWER.size - 1, total)
            shown.update(max(done - shown.n, 0))

    def _answers(
        self, data: bytes, commands: Sequence[Command], out: Outcome
    ) -> list[tuple[int, float]]:
        checked(ANSWER.unpack_from(data)[0], "open")
        at, answers = ANSWER.size, []
        for i, command in enumerate(commands):
            status, loss = ANSWER.unpack_from(data, at)
            checked(status, f"step {i}")
            answers.append((status, loss))
            at += ANSWER.size
            if command.kind == INFER:
                out.outputs = np.frombuffer(data, np.float32, self._outputs // 4, at)
                at += self._outputs
        out.progress = PROGRESS.unpack_from(data, at)
        out.stack = struct.unpack_from("<I", data, at + PROGRESS.size)[0]
        arena = data[at + PROGRESS.size + 4 :]
        out.lasting = arena[NET_BYTES : self._net.plan.layout.persistent_bytes]
        return answers


def _plugin(folder: Path) -> Path:
    """The counter, compiled for this machine."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise QfwError('backend="qemu" counts instructions by a plugin and needs a C compiler, cc')
    plugin = folder / "qemu_count.so"
    source = HERE / "qemu_count.c"
    command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(plugin)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise QfwError(f"{' '.join(command)}: {done.stderr}")
    return plugin
