"""Compilers for a Cortex-M: arm-none-eabi-gcc, or the one that pip brings."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from ..errors import QfwError
from ..firmware.targets import WHOLE, Target

EXACT = ("-ffp-contract=off", "-fno-fast-math", "-fno-math-errno")
GCC = "arm-none-eabi-gcc"


@dataclass(frozen=True)
class Toolchain:
    """A command that compiles and links for a target."""

    name: str
    compile: tuple[str, ...]
    link: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()  # flags of a core that is compiled as one, and linked so

    def objects(
        self, build: Path, base: Path, sources: Sequence[Path], flags: Sequence[str]
    ) -> list[Path]:
        """Compiles sources below `base`, on all cores, into `build`."""

        def one(source: Path) -> Path:
            target = build / source.relative_to(base).with_suffix(".o")
            target.parent.mkdir(parents=True, exist_ok=True)
            command = [*self.compile, *flags, str(source)]
            text = _call([*command, "-E", "-P"])
            known = cache(self.compile[0], *self.compile[1:], *_plain(flags), text)
            if known is None or not known.is_file():
                _call([*command, "-c", "-o", str(target)])
                _keep(target, known)
            else:
                shutil.copyfile(known, target)
            return target

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(one, sources))

    def elf(self, objects: Sequence[Path], output: Path, flags: Sequence[str]) -> Path:
        """Links."""
        _call([*self.link, *map(str, objects), *flags, *self.libraries, "-o", str(output)])
        return output


def gcc(target: Target) -> Toolchain | None:
    """Where it is installed."""
    if shutil.which(GCC) is None:
        return None
    common = (GCC, *target.flags)
    return Toolchain(
        GCC,
        (*common, "-ffreestanding"),
        (*common, "-nostartfiles", "--specs=nano.specs"),
        ("-lm",),
        WHOLE,
    )


def zig(target: Target) -> Toolchain | None:
    """Where it is installed, for a core that it knows."""
    spec = find_spec("ziglang")
    if not target.zig or spec is None or spec.origin is None:
        return None
    command = (str(Path(spec.origin).parent / "zig"), "cc", *target.zig)
    headers = ("-I", str(Path(__file__).resolve().parent / "c" / "bare"))
    return Toolchain("zig cc", (*command, "-fno-sanitize=all", *headers), (*command, "-static"))


Find: TypeAlias = Callable[[Target], "Toolchain | None"]


def found(target: Target, *finds: Find) -> Toolchain | None:
    """The first of these that is there."""
    return next((t for t in (find(target) for find in finds) if t is not None), None)


def first(target: Target, *finds: Find) -> Toolchain:
    """The same, or what would bring it."""
    toolchain = found(target, *finds)
    if toolchain is not None:
        return toolchain
    raise QfwError(
        f"there is no compiler for {target.name}: pip install 'pyqfw[mcu]' brings one for all but "
        f"the Cortex-M55, the package gcc-arm-none-eabi (Debian's name) one for every core"
    )


def cache(compiler: str, *parts: str) -> Path | None:
    """Where an object is kept that was made of this text by these flags; None: nowhere."""
    program = shutil.which(compiler)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if program is None or not Path(home).is_absolute():
        return None
    made = os.stat(program)
    mark = "\0".join((program, str(made.st_mtime_ns), str(made.st_size), *parts))
    return Path(home) / "pyqfw" / "objects" / f"{sha256(mark.encode()).hexdigest()}.o"


def _plain(flags: Sequence[str]) -> list[str]:
    """Flags without the folders, which the text has been taken from."""
    return [flag for flag in flags if not flag.startswith("-I")]


def _keep(made: Path, known: Path | None) -> None:
    """Puts a copy there, whole or not at all."""
    if known is None:
        return
    with suppress(OSError):  # a home that cannot be written: compile again next time
        known.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=known.parent, delete=False) as part:
            part.write(made.read_bytes())
        os.replace(part.name, known)


def _call(command: Sequence[str]) -> str:
    """What it printed."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise QfwError(f"{Path(command[0]).name} fails on {Path(command[-1]).name}: {said}")
    return done.stdout
