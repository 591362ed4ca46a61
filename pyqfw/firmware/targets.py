"""The cores that firmware is made for: what csrc/cross says of each."""

from __future__ import annotations

import ast
from configparser import ConfigParser
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..errors import QfwError

HOST = "host"
# Of gcc: what it makes of a core when it links, which it then sees as a whole. A function that is
# called in one place becomes part of its caller unless that deepens the stack. The numbers are of
# integers, or EXACT's: bits do not depend on these.
WHOLE = (
    "-flto",
    "-fno-inline-functions",
    "-fno-reorder-blocks",
    "-fno-schedule-insns",
    "-fno-tree-dominator-opts",
    "-fno-tree-pre",
    "--param=large-stack-frame=60",
    "--param=large-stack-frame-growth=60",
)


@cache
def csrc() -> Path:
    """The sources of the core: installed inside the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "csrc", package.parent / "csrc"):
        if (folder / "include" / "qfw.h").is_file():
            return folder
    raise QfwError(f"the core's sources are missing: there is no csrc in {package}")


@dataclass(frozen=True)
class Target:
    """A core, and the board that emulates it."""

    name: str
    flags: tuple[str, ...] = ()  # of gcc
    zig: tuple[str, ...] = ()  # of zig cc; empty: it has none
    unicorn: str = ""  # the model; empty: none
    machine: str = ""  # of QEMU
    flash: tuple[int, int] = (0, 0)  # origin and length, of that board
    ram: tuple[int, int] = (0, 0)

    @property
    def is_host(self) -> bool:
        return self.name == HOST


@cache
def targets() -> dict[str, Target]:
    """All there are, by name."""
    files = sorted((csrc() / "cross").glob("cortex-*.ini"))
    found = {file.stem: _read(file) for file in files}
    return {**found, HOST: Target(HOST)}


def target(name: object) -> Target:
    """The one of that name."""
    known = targets()
    if not isinstance(name, str) or name not in known:
        raise QfwError(f"target must be one of {', '.join(known)}, not {name!r}")
    return known[name]


def board_for(core: Target, ram: int) -> Target:
    """The core on a board with so many bytes of RAM: its own or, where that has less, a larger one
    that runs the same code."""
    if core.is_host or ram <= core.ram[1]:
        return core
    larger = target("cortex-m3")
    return replace(core, machine=larger.machine, flash=larger.flash, ram=larger.ram)


def _read(file: Path) -> Target:
    """A cross file of meson's."""
    parser = ConfigParser(interpolation=None)
    parser.read_string(file.read_text())
    properties = parser["properties"]

    def literal(section: str, key: str, default: str = "()") -> tuple[str, ...]:
        return tuple(ast.literal_eval(parser.get(section, key, fallback=default)))

    def size(key: str) -> int:
        text = str(ast.literal_eval(properties[key]))
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
        return int(text if unit == 1 else text[:-1], 0) * unit

    wrapper = literal("binaries", "exe_wrapper")
    return Target(
        file.stem,
        literal("constants", "flags"),
        literal("properties", "zig"),
        str(ast.literal_eval(properties.get("unicorn", "''"))),
        wrapper[wrapper.index("-M") + 1],
        (size("flash_org"), size("flash_len")),
        (size("ram_org"), size("ram_len")),
    )
