"""The device, emulated: a net trains on a Cortex-M, and what that costs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _arrays as arrays
from .. import state
from .._arrays import Array
from .._bar import bar
from .._batches import Arrays
from ..errors import QfwError
from ..firmware import folder as folders
from ..firmware.image import image_of
from ..firmware.targets import Target, target
from ..session import Session
from . import qemu, toolchain, unicorn_
from .build import Build
from .costs import Cost, OpCount, by_op, flash_of, ram_of
from .device import read_elf
from .steps import Outcome, sample, steps_of

Backend: TypeAlias = Literal["unicorn", "qemu"]
BACKENDS = ("unicorn", "qemu")
__all__ = ["BACKENDS", "Cost", "OpCount", "Run", "cost", "run"]


@dataclass(frozen=True)
class Run:
    """What the device did, and what it took."""

    net: Session  # as the device left it
    losses: list[float]  # of every step
    instructions: float | None  # of a step: the mean of those that were counted
    by_op: list[OpCount]
    ram: int  # bytes: arena, samples, stack
    flash: int  # bytes: code, plan, constants, initial parameters
    stack: int
    cost: Cost

    def __repr__(self) -> str:
        told = "" if self.instructions is None else f", {self.instructions:.0f} instructions a step"
        last = f", loss {self.losses[-1]:.4g}" if self.losses else ""
        return (
            f"<Run of {len(self.losses)} steps on {self.cost.target}{last}{told}, RAM {self.ram}, "
            f"flash {self.flash}, stack {self.stack}>"
        )


def run(
    net: Session,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    target: str,
    epochs: int | None = None,
    steps: int | None = None,
    backend: Backend = "unicorn",
    count_steps: int = 3,
    progress: bool | None = None,
) -> Run:
    """Trains a net on an emulated core: the steps that `q.fit` would make, with the same bits.

    For `epochs` passes (one, if nothing is said), or the first `steps` steps of them. The firmware
    is what `q.export` writes, with a harness for a program. The first `count_steps` steps are
    counted, as a whole and by operation. ``backend="unicorn"`` needs `pyqfw[mcu]` alone;
    ``"qemu"`` arm-none-eabi-gcc and qemu-system-arm. `net` itself stays as it is.
    """
    core = _core(target, backend)
    if net.plan.request.optimizer is None:
        raise QfwError("mcu.run: this plan was compiled without an optimizer")
    data = Arrays(net, x, y)
    passes = arrays.integer(1 if epochs is None else epochs, "epochs", 1, 1 << 24)
    most = None if steps is None else arrays.integer(steps, "steps", 1, 1 << 31)
    if steps is not None and epochs is None:
        passes = most or 1
    counted = arrays.integer(count_steps, "count_steps", 0, 1 << 20)
    if net._unset("gain"):
        net._calibrate(data.x[: net.plan.batch], data.y[: net.plan.batch])
    a_pass = -(-len(data.x) // net.plan.batch)
    total = min(passes * a_pass, most or passes * a_pass)
    full = min(counted, total, len(data.x) // net.plan.batch)  # short batches cost less
    with tempfile.TemporaryDirectory(prefix="pyqfw-") as name:
        build = _build(net, core, Path(name), backend)
        trainer = _trainer(net, build, backend)
        with bar(progress, total=total, unit="step", desc=f"training on {core.name}") as shown:
            out = trainer.train(steps_of(net, data, passes, most), full, shown)
        made = _cost(net, build, out)
    trained = _restored(net, out)
    trained.epochs = net.epochs + total // a_pass
    return Run(
        trained,
        out.losses,
        made.step,
        made.by_op,
        made.ram_bytes,
        made.flash_bytes,
        out.stack,
        made,
    )


def cost(
    net: Session, *, target: str, backend: Backend | None = None, count_steps: int = 3
) -> Cost:
    """What the net takes of a core, before anything is flashed: built, and run on noise.

    The backend is one that is there, unless it is named.
    """
    core = _core(target, backend)
    if net._unset("gain"):  # of hindsight ranges: any that fit noise will do
        net = net.recompile()
        net._calibrate(*_noise(net))
    with tempfile.TemporaryDirectory(prefix="pyqfw-") as name:
        return cost_of(net, folders.write(Path(name), image_of(net), core), backend, count_steps)


def cost_of(
    net: Session, folder: folders.Folder, backend: Backend | None, count_steps: int = 3
) -> Cost:
    """The same, of a firmware whose files are written; None for what no tool is there for."""
    core = folder.target
    chosen = backend or _available(core)
    compilers = (toolchain.gcc,) if chosen == "qemu" else (toolchain.gcc, toolchain.zig)
    compiler = None if core.is_host else toolchain.found(core, *compilers)
    image = folder.image
    if compiler is None:
        flash = flash_of(None, image.own_plan, image.constants, image.state)
        return Cost(core.name, None, ram_of(net.plan, None), flash)
    build, out = Build(folder, compiler), Outcome()
    if chosen is not None:
        trainer = _trainer(net, build, chosen)
        row = sample(net, 1, 0)
        asked = trainer.infer(row)
        noise = [sample(net, net.plan.batch, i) for i in range(count_steps)]
        out = trainer.train(noise, count_steps, bar(False)) if image.trains else Outcome()
        out = replace(out, inference=asked.inference, stack=max(out.stack, asked.stack))
    return _cost(net, build, out)


def _noise(net: Session) -> tuple[Array, Array]:
    """Rows of a step, as arrays."""
    step, program, rows = sample(net, net.plan.batch, 0), net.plan.program, net.plan.batch
    x = np.frombuffer(step.x, np.float32).reshape(rows, *program.input.storage_shape)
    labels = program.labels
    if labels is None:
        return program.input.from_storage(x), np.empty(0, np.int32)
    kind = np.int32 if labels.fmt is None else np.float32
    y = np.frombuffer(step.y, kind).reshape(rows, *labels.shape)
    return program.input.from_storage(x), y


def _available(core: Target) -> Backend | None:
    """An emulator that is installed, with a compiler for it."""
    if core.unicorn and find_spec("unicorn") and find_spec("elftools"):
        return "unicorn"
    ready = qemu.is_there() and toolchain.gcc(core) is not None
    return "qemu" if ready else None


def _core(name: str, backend: object) -> Target:
    core = target(name)
    if core.is_host:
        raise QfwError("target 'host' is this machine: there is nothing to emulate")
    if backend is not None:
        arrays.choice(backend, "backend", BACKENDS)
    return core


def _restored(net: Session, out: Outcome) -> Session:
    """A copy of a net, as a device left it."""
    step, updates, lr, micro = out.progress
    copy = net.recompile()
    before = state.of(copy)
    after = replace(before, step=step, updates=updates, lr=lr, micro=micro)
    state.into(copy, replace(after, lasting=out.lasting, gradients=step > 0))
    return copy


def _build(net: Session, core: Target, path: Path, backend: str) -> Build:
    folder = folders.write(path, image_of(net), core)
    finds = (toolchain.gcc,) if backend == "qemu" else (toolchain.zig, toolchain.gcc)
    return Build(folder, toolchain.first(core, *finds))


def _trainer(net: Session, build: Build, backend: str) -> unicorn_.Trainer | qemu.Trainer:
    if backend == "unicorn":
        return unicorn_.Trainer(net, build)
    return qemu.Trainer(net, build)


def _cost(net: Session, build: Build, out: Outcome) -> Cost:
    image = build.folder.image
    arrays_ = (image.own_plan, image.constants, image.state)
    elf = read_elf(build.roomy.firmware())
    code = elf.flash - sum(map(len, arrays_))
    steps = len(out.steps)
    return Cost(
        build.folder.target.name,
        build.toolchain.name,
        ram_of(net.plan, out.stack or None),
        flash_of(code, *arrays_),
        sum(out.steps) / steps if steps else None,
        float(out.inference) if out.inference else None,
        by_op(net.plan, out.walks, steps),
    )
