"""Training in Unicorn, which pip brings."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from .._bar_tqdm import Bar
from ..lower.memory import NET_BYTES
from ..session import Session
from .build import Build
from .device import Device, read_elf
from .steps import Outcome, Step, checked, walks_of

PROGRESS = struct.Struct("<IIfI")


class Trainer:
    """The harness, loaded and open."""

    def __init__(self, net: Session, build: Build) -> None:
        roomy = build.roomy
        self._net = net
        self._device = Device(
            roomy.folder.target, read_elf(roomy.harness("harness.c", "harness_unicorn.c"))
        )
        checked(self._device.call("mcu_open"), "open")

    def train(self, steps: Iterable[Step], count: int, shown: Bar) -> Outcome:
        """All steps; the first `count` are counted, as a whole and by operation."""
        device, out = self._device, Outcome()
        for i, step in enumerate(steps):
            device.write("mcu_x", step.x)
            device.write("mcu_y", step.y)
            if i < count:
                with device.undone():
                    out.walks += self._walk(step.rows)
                status, instructions = device.counted("mcu_step", step.rows)
                out.steps.append(instructions)
            else:
                status = device.call("mcu_step", step.rows)
            checked(status, f"step {i}")
            out.losses.append(*struct.unpack("<f", device.read("mcu_loss")))
            shown.set_postfix_str(f"loss={out.losses[-1]:.4g}", refresh=False)
            shown.update()
        self._end(out)
        return out

    def infer(self, step: Step) -> Outcome:
        """One row, counted."""
        out = Outcome()
        self._device.write("mcu_x", step.x)
        status, out.inference = self._device.counted("mcu_infer")
        checked(status, "inference")
        size = self._net.plan.program.output.size
        out.outputs = np.frombuffer(self._device.read("mcu_out", 4 * size), np.float32)
        self._end(out)
        return out

    def _walk(self, rows: int) -> list[int]:
        """Instructions of each operation of a step."""
        counts = []
        for walk in walks_of(self._net.plan, rows):
            self._device.write("mcu_command", struct.pack("<5I", *walk))
            status, instructions = self._device.counted("mcu_walk")
            checked(status, f"operation {walk.first}")
            counts.append(instructions)
        return counts

    def _end(self, out: Outcome) -> None:
        device = self._device
        end = self._net.plan.layout.persistent_bytes
        out.lasting = device.read("mcu_arena")[NET_BYTES:end]
        out.progress = PROGRESS.unpack(device.read("mcu_progress"))
        out.stack = device.stack
