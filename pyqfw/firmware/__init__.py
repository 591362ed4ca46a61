"""Firmware: a net as a folder of plain C that builds without Python."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _arrays as arrays
from ..errors import FileError, QfwError
from ..session import Session
from . import folder as folders
from .image import image_of
from .targets import Target
from .targets import target as target_of

if TYPE_CHECKING:
    from ..mcu.costs import Cost

MARK = "model_image.h"  # by which a folder of ours is known
MOST = 1 << 32


def export(
    net: Session,
    path: str | os.PathLike[str],
    *,
    target: str,
    ram: int | None = None,
    flash: int | None = None,
    overwrite: bool = False,
) -> Cost:
    """Writes a folder that builds with `make`: the core's sources that this net needs, the net as
    it stands (`model_image.c`), a program (`main.c`), what an emulated board needs, a README.

    `ram` and `flash`: the bytes there are; a net that takes more is refused, with the table of
    what takes them, and nothing is written. What only a compiler and an emulator know (code, stack,
    instructions) is measured where they are installed (`pyqfw[mcu]`). An older export at `path` is
    replaced if `overwrite`; another folder never is.
    """
    from ..mcu import cost_of  # which needs this module

    core = target_of(target)
    limits = {
        name: None if value is None else arrays.integer(value, name, 1, MOST)
        for name, value in (("ram", ram), ("flash", flash))
    }
    for name in net._unset("wire gain" if net.plan.request.optimizer is None else "gain"):
        raise QfwError(
            f"export: '{name}' is not known yet: a hindsight range needs a step() on a batch before"
        )
    to = Path(path)
    _check_place(to, overwrite)
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{to.name}-", dir=to.parent) as name:
        made = Path(name) / "firmware"
        folder = folders.write(made, image_of(net), core)
        cost = cost_of(net, folder, None)
        _check_fit(cost, limits)
        (made / "README.md").write_text(folders.readme(folder, _indented(str(cost))))
        shutil.rmtree(made / "build", ignore_errors=True)
        if to.exists():
            to.rename(Path(name) / "before")
        made.rename(to)
    return cost


def _indented(text: str) -> str:
    return "\n".join("    " + line if line else "" for line in text.split("\n"))


def _check_place(to: Path, overwrite: bool) -> None:
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return
    if not (to / MARK).is_file():
        raise FileError(f"{to} is there, and is no export: choose a new or an empty folder")
    if not overwrite:
        raise FileError(f"{to} holds an older export: overwrite=True replaces it")


def _check_fit(cost: Cost, limits: dict[str, int | None]) -> None:
    for name, taken in (("ram", cost.ram_bytes), ("flash", cost.flash_bytes)):
        limit = limits[name]
        if limit is not None and taken > limit:
            raise QfwError(
                f"the net takes {taken} bytes of {name}, and there are {limit}; what takes them:\n"
                f"{cost}"
            )


__all__ = ["Target", "export"]
