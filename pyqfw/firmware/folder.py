"""The files of a firmware: the core's sources, the image, a program, what a board needs."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from string import Template
from textwrap import fill

from ..features import features
from .image import Image, header_text, order, source_text
from .sources import needed
from .targets import WHOLE, Target, board_for, csrc

BOARD = ("startup.c", "memory.c", "semihost.h", "stack.h")
MEMORY = Path("board/cross/memory.c")  # by itself: a call of it may come up when all else is made
STACK_ROOM = 8 << 10  # of link.ld, and the frame of the reset
TEMPLATES = Path(__file__).resolve().parent / "templates"
IMAGE = Path("model_image.c")
CONFIG = Path("base/config.h")


@dataclass(frozen=True)
class Folder:
    """A folder that builds by itself."""

    path: Path
    image: Image
    target: Target
    core: list[Path]  # the core's .c files, relative to path


def linker_script(target: Target) -> str:
    """link.ld with a board's memory in it: not every linker takes numbers by command."""
    text = (csrc() / "cross" / "link.ld").read_text()
    for name, place in {"FLASH": target.flash, "RAM": target.ram}.items():
        for part, value in zip(("ORG", "LEN"), place, strict=True):
            text = text.replace(f" = {name}_{part}", f" = {value:#x}")
    return text


def write(path: Path, image: Image, target: Target) -> Folder:
    """Writes the sources into an empty folder."""
    target = board_for(target, image.ram + STACK_ROOM)
    core = []
    for file in needed(image.operations):
        local = Path("qfw") / file.relative_to(csrc())
        _copy(file, path / local)
        core += [local] if file.suffix == ".c" else []
    values = features(image.plan_bytes) | {"QFW_NARROW_PLAN": int(image.is_narrow)}
    (path / "qfw" / CONFIG).write_text(config_text(values))
    cross = csrc() / "cross"
    if not target.is_host:
        for name in BOARD:  # their includes name the room
            _copy(cross / name, path / "board" / "cross" / name)
        (path / "board" / "link.ld").write_text(linker_script(target))
    _copy(TEMPLATES / ("train.c" if image.trains else "infer.c"), path / "main.c")
    (path / "model_image.h").write_text(header_text(image))
    (path / IMAGE).write_text(source_text(image))
    folder = Folder(path, image, target, core)
    (path / "Makefile").write_text(_makefile(folder))
    return folder


def config_text(values: dict[str, int]) -> str:
    """The core's config.h with other values than its own."""
    text = (csrc() / CONFIG).read_text()
    for name, value in values.items():
        text, changed = re.subn(rf"(#define {name}) \d+", rf"\1 {value:#x}", text)
        assert changed == 1, name
    return text


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)


def _template(name: str, **fields: str) -> str:
    text = (TEMPLATES / name).read_text()
    return Template(text).substitute(fields)


def _makefile(folder: Folder) -> str:
    target = folder.target
    program = ["main.c"]
    if not target.is_host:
        program += ["board/cross/startup.c", str(MEMORY)]
    sources = [*program, *map(str, (IMAGE, *folder.core))]
    link = apart = ""
    run, size, compiler = "", "size", "cc"
    if not target.is_host:
        link = "-nostartfiles --specs=nano.specs -Wl,-T,board/link.ld"
        run = emulator(target)
        apart = f"build/{MEMORY.with_suffix('.o')}: WHOLE =\n"
        size, compiler = "arm-none-eabi-size", "arm-none-eabi-gcc"
    return _template(
        "Makefile.in",
        target=target.name,
        where=where(target),
        compiler=compiler,
        whole="" if target.is_host else " ".join(WHOLE),
        flags=" ".join(target.flags),
        sources=" \\\n  ".join(sources),
        board="" if target.is_host else "-Iboard -ffreestanding",
        link=link,
        apart=apart,
        run=run,
        size=size,
    )


def where(target: Target) -> str:
    return "" if target.is_host else f" on QEMU's {target.machine}"


def emulator(target: Target) -> str:
    """QEMU with the firmware's text and exit code as its own."""
    return (
        f"qemu-system-arm -M {target.machine} -display none -monitor none -serial none "
        f"-chardev stdio,id=text -semihosting-config enable=on,target=native,chardev=text "
        f"-kernel"
    )


_TRAIN = """\
qfw_step(net, x, y, rows, &loss);                    /* learns from 1 .. MODEL_ROWS rows */
qfw_infer(net, x, rows, out);                        /* any number of rows, each by itself */
"""
_INFER = """\
qfw_infer(net, x, rows, out);                        /* any number of rows, each by itself */
"""


def readme(folder: Folder, cost: str) -> str:
    """README.md"""
    image, target = folder.image, folder.target
    plan = image.plan
    labels = plan.program.labels
    if labels is None:
        told = "There are no labels."
    elif labels.fmt is None:
        told = "A row of y is one int32_t, the number of its class."
    else:
        told = f"A row of y is {labels.size} float32 values, the target."
    return _template(
        "README.md.in",
        title="training and inference" if image.trains else "inference",
        target=target.name,
        compiler="cc" if target.is_host else "arm-none-eabi-gcc",
        where=where(target),
        cost=cost,
        calls=_TRAIN if image.trains else _INFER,
        inputs=str(image.input_elements),
        order=f" ({order(image)})",
        labels=fill(f"{told} An output row is {image.output_elements} float32 values.", 110),
        keeping=_template("STATE.md.in") if image.trains else "",
    )
