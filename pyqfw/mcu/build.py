"""From the files of a firmware to executables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..firmware.folder import IMAGE, MEMORY, Folder, linker_script
from .toolchain import EXACT, Toolchain

HERE = Path(__file__).resolve().parent / "c"
FLAGS = ("-O2", "-std=c99", *EXACT, "-ffunction-sections", "-fdata-sections")
ROOM = (1 << 22, 1 << 22)  # flash and RAM of a board in Unicorn, whatever the core's own has


@dataclass(frozen=True)
class Build:
    """A firmware and a compiler for it. What is common to programs is compiled once."""

    folder: Folder
    toolchain: Toolchain
    core: tuple[Path, ...] = ()  # objects of the whole core; none: those of its files are made

    def firmware(self) -> Path:
        """The program that `make` builds."""
        own = [self.folder.path / "main.c", self._startup]
        return self._program("firmware", own, self.toolchain.whole)

    def harness(self, *files: str) -> Path:
        """A program that an emulator drives: files of this package, whose functions stay apart
        from the core's."""
        return self._program("harness", [HERE / name for name in files])

    def harness_with_reset(self, *files: str) -> Path:
        """The same for an emulator that starts as a board does."""
        return self._program("harness", [*(HERE / name for name in files), self._startup])

    @property
    def _startup(self) -> Path:
        return self.folder.path / "board" / "cross" / "startup.c"

    @cached_property
    def roomy(self) -> Build:
        """For a board with more memory than the core's own."""
        target, (flash, ram) = self.folder.target, ROOM
        wide = replace(target, flash=(target.flash[0], flash), ram=(target.ram[0], ram))
        return replace(self, folder=replace(self.folder, target=wide))

    @cached_property
    def _common(self) -> list[Path]:
        path = self.folder.path
        needed = [IMAGE] if self.core else [IMAGE, *self.folder.core]
        sources = [path / source for source in needed]
        flags = [*self._flags, *self.toolchain.whole]
        made = self.toolchain.objects(path / "build" / "common", path, sources, flags)
        memory = [path / MEMORY]
        made += self.toolchain.objects(path / "build" / "common", path, memory, self._flags)
        return [*made, *self.core]

    @property
    def _flags(self) -> list[str]:
        path = self.folder.path
        rooms = [f"-I{p}" for p in (path, path / "qfw", path / "board", HERE)]
        return [*FLAGS, *rooms]

    def _program(self, name: str, sources: Sequence[Path], whole: Sequence[str] = ()) -> Path:
        build = self.folder.path / "build"
        own = []
        flags = [*self._flags, *whole]
        for source in sources:
            own += self.toolchain.objects(build / name, source.parent, [source], flags)
        script = build / f"{name}.ld"
        script.write_text(linker_script(self.folder.target))
        flags = [*FLAGS, *self.toolchain.whole]
        link = [*flags, "-Wl,--gc-sections", "-Wl,-e,qfw_reset", f"-Wl,-T,{script}"]
        return self.toolchain.elf([*own, *self._common], build / f"{name}.elf", link)
