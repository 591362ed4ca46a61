"""The same bits on every core:  tools/same_bits.py [CORE ...]

Trains each network of tests/device_nets.py under each policy for 20 steps: on this machine with the
portable kernels and with the fastest, and with the same core compiled for each CORE (m0, m4f, ...;
else all) in QEMU. Parameters, scales, optimizer state, progress and losses must be the same bytes;
prints a hash of them, and ends with 1 on a difference. Needs arm-none-eabi-gcc, qemu-system-arm and
the extra `mcu`.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import device_nets as nets  # noqa: E402
import numpy as np  # noqa: E402

from pyqfw import quant, state  # noqa: E402
from pyqfw._bar import bar  # noqa: E402
from pyqfw._batches import Arrays, permutation  # noqa: E402
from pyqfw.firmware import folder as folders  # noqa: E402
from pyqfw.firmware.image import image_of  # noqa: E402
from pyqfw.firmware.sources import portable  # noqa: E402
from pyqfw.firmware.targets import csrc, target, targets  # noqa: E402
from pyqfw.mcu import qemu, toolchain  # noqa: E402
from pyqfw.mcu.build import FLAGS, Build  # noqa: E402
from pyqfw.mcu.steps import steps_of  # noqa: E402

CASES = [(kind, policy) for kind in nets.KINDS for policy in nets.POLICIES]


def digest(lasting: bytes, progress: tuple[object, ...], losses: list[float]) -> str:
    text = repr(progress).encode() + np.array(losses, np.float32).tobytes()
    return f"{zlib.crc32(lasting):08x}{zlib.crc32(text):08x}"


def on_host(kind: str, policy: str, isa: str) -> str:
    """A hash of what the steps leave on this machine."""
    with quant.isa(isa):
        net = nets.session(kind, policy)
        x, y = nets.data(kind)
        order = permutation(len(x), net.plan.seed, 0).reshape(nets.STEPS, -1)
        losses = [net.step(x[rows], y[rows]) for rows in order]
        now = state.of(net)
    return digest(now.lasting, (now.step, now.updates, now.lr, now.micro), losses)


def on_core(kind: str, policy: str, name: str, objects: tuple[Path, ...], folder: Path) -> str:
    """The same on an emulated board, by a core for any plan: it reads none in narrow records."""
    net = nets.session(kind, policy)
    image = image_of(net)
    image = replace(image, own_plan=image.plan_bytes)
    core = target(name)
    compiler = toolchain.first(core, toolchain.gcc)
    build = Build(folders.write(folder, image, core), compiler, objects)
    steps = steps_of(net, Arrays(net, *nets.data(kind)), 1, nets.STEPS)
    out = qemu.Trainer(net, build).train(steps, 0, bar(False))
    return digest(out.lasting, out.progress, out.losses)


def core_objects(name: str, folder: Path) -> tuple[Path, ...]:
    """The whole core for a target."""
    core = target(name)
    flags = (*FLAGS, "-DQFW_DIRECT=1", f"-I{csrc()}")
    found = toolchain.first(core, toolchain.gcc).objects(folder, csrc(), portable(), flags)
    return tuple(found)


def main(arguments: list[str]) -> int:
    cores = [f"cortex-{name}" for name in arguments] or [n for n in targets() if n != "host"]
    isas = quant.core_info()["isas"]
    wrong = 0
    wanted = {case: on_host(*case, "portable") for case in CASES}
    for isa in isas:
        wrong += report(f"host, {isa}", {case: on_host(*case, isa) for case in CASES}, wanted)
    for name in cores:
        with tempfile.TemporaryDirectory(prefix="same-bits-") as path:
            folder = Path(path)
            objects = core_objects(name, folder / "core")
            found = {c: on_core(*c, name, objects, folder / "-".join(c)) for c in CASES}
        wrong += report(name, found, wanted)
    for (kind, policy), text in wanted.items():
        print(f"  {kind:<12} {policy:<9} {text}")
    print(f"{len(CASES) * (len(isas) + len(cores)) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


def report(
    where: str, found: dict[tuple[str, str], str], wanted: dict[tuple[str, str], str]
) -> int:
    different = [" ".join(case) for case in CASES if found[case] != wanted[case]]
    told = (
        f"DIFFERENT: {', '.join(different)}"
        if different
        else f"{len(found)} networks, the same bytes"
    )
    print(f"{where}: {told}", flush=True)
    return len(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
