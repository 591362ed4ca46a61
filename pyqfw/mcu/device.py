"""A Cortex-M in Unicorn: the harness of c/, its calls and its instructions counted."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import quant
from ..errors import QfwError
from ..firmware.targets import Target

PAGE = 1 << 12
PAINT = b"\xc3\x5a\xc3\x5a"


@dataclass(frozen=True)
class Elf:
    """An executable: what is loaded where, its symbols and its bytes of flash and RAM."""

    segments: list[tuple[int, bytes]]
    symbols: dict[str, tuple[int, int]]  # address, size
    flash: int
    ram: int


def read_elf(path: Path) -> Elf:
    """Reads what a linker wrote."""
    from elftools.elf.elffile import ELFFile  # of the extra `mcu`

    with path.open("rb") as file:
        elf = ELFFile(file)
        loaded = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        segments = [(int(s["p_paddr"]), bytes(s.data())) for s in loaded if s["p_filesz"]]
        table = elf.get_section_by_name(".symtab")
        symbols = {s.name: (int(s["st_value"]), int(s["st_size"])) for s in table.iter_symbols()}
        sections = [s for s in elf.iter_sections() if int(s["sh_flags"]) & 2]  # allocated
        flash = sum(int(s["sh_size"]) for s in sections if s["sh_type"] != "SHT_NOBITS")
        writable = [s for s in sections if int(s["sh_flags"]) & 1]
        ram = sum(int(s["sh_size"]) for s in writable)
    return Elf(segments, symbols, flash, ram)


class Device:
    """Memory and registers of one; functions are called by their names."""

    def __init__(self, target: Target, elf: Elf) -> None:
        import unicorn
        import unicorn.arm_const as arm

        if not target.unicorn:
            raise QfwError(f'{target.name} is not in Unicorn: use backend="qemu"')
        self._arm, self._elf = arm, elf
        self._uc = uc = unicorn.Uc(
            unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS
        )
        uc.ctl_set_cpu_model(getattr(arm, f"UC_CPU_ARM_{target.unicorn}"))
        for origin, length in (target.flash, target.ram):
            uc.mem_map(origin, -(-length // PAGE) * PAGE)
        for at, data in elf.segments:
            uc.mem_write(at, data)
        if "hard" in " ".join(target.flags):
            self._enable_fpu()
        self._top = sum(target.ram)
        self._stop = sum(target.flash) - 4
        self._ram = target.ram
        self._flash = target.flash
        self._blocks = quant.Blocks(*target.flash)
        self._lengths = np.zeros(target.flash[1] // 2, np.uint64)  # instructions of each block
        self._load_data()
        self._paint()

    # --- memory -----------------------------------------------------------------------------------

    def read(self, symbol: str, bytes_: int | None = None) -> bytes:
        at, size = self._symbol(symbol)
        return bytes(self._uc.mem_read(at, size if bytes_ is None else bytes_))

    def write(self, symbol: str, data: bytes) -> None:
        at, size = self._symbol(symbol)
        if len(data) > size:
            raise QfwError(f"{symbol} has room for {size} bytes, not {len(data)}")
        self._uc.mem_write(at, data)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What happens inside leaves no trace in memory, but on the stack."""
        begin, size = self._ram[0], self._address("qfw_bss_end") - self._ram[0]
        before = bytes(self._uc.mem_read(begin, size))
        try:
            yield
        finally:
            self._uc.mem_write(begin, before)

    @property
    def stack(self) -> int:
        """Bytes that calls have used so far, at most."""
        limit = self._address("qfw_stack_limit")
        left = bytes(self._uc.mem_read(limit, self._top - limit))
        untouched = len(left) - len(left.lstrip(PAINT))
        return len(left) - untouched // 4 * 4

    # --- calls ------------------------------------------------------------------------------------

    def call(self, function: str, *arguments: int) -> int:
        """Runs a function to its end; what it returns."""
        arm, uc = self._arm, self._uc
        for register, value in zip(("R0", "R1", "R2", "R3"), arguments, strict=False):
            uc.reg_write(getattr(arm, f"UC_ARM_REG_{register}"), value)
        uc.reg_write(arm.UC_ARM_REG_SP, self._top)
        uc.reg_write(arm.UC_ARM_REG_LR, self._stop | 1)
        try:
            uc.emu_start(self._address(function) | 1, self._stop)
        except Exception as e:
            at = uc.reg_read(arm.UC_ARM_REG_PC)
            raise QfwError(f"{function} faults at {at:#x} on the emulated device: {e}") from e
        return int(uc.reg_read(arm.UC_ARM_REG_R0))

    def counted(self, function: str, *arguments: int) -> tuple[int, int]:
        """The same, and how many instructions it took."""
        blocks = self._blocks
        blocks.entered[:] = 0
        with self._hooked():
            result = self.call(function, *arguments)
        if blocks.strays:
            raise QfwError(f"{function} runs code outside the flash: it cannot be counted")
        ran = np.flatnonzero(blocks.entered)
        for i in ran[self._lengths[ran] == 0]:
            self._lengths[i] = self._instructions(int(i), int(blocks.bytes[i]))
        return result, int(blocks.entered[ran] @ self._lengths[ran])

    def address(self, symbol: str) -> int:
        return self._address(symbol)

    # --- inside -----------------------------------------------------------------------------------

    def _symbol(self, name: str) -> tuple[int, int]:
        if name not in self._elf.symbols:
            raise QfwError(f"the firmware has no {name}")
        return self._elf.symbols[name]

    def _address(self, name: str) -> int:
        return self._symbol(name)[0] & ~1 if name.startswith("mcu_") else self._symbol(name)[0]

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """Every block of code is counted. What was translated before is forgotten, since it does
        not know of the hook; and so afterwards."""
        from unicorn import UC_HOOK_BLOCK, UcError
        from unicorn.unicorn_py3.unicorn import uclib  # a hook in C: its Python takes Python's

        uc, handle = self._uc, ctypes.c_size_t()
        user = ctypes.c_void_p(self._blocks.user)
        status = uclib.uc_hook_add(
            *(uc._uch, ctypes.byref(handle), UC_HOOK_BLOCK),
            *(ctypes.c_void_p(self._blocks.hook), user, 1, 0),
        )
        if status:
            raise UcError(status)
        uc.ctl_flush_tb()
        try:
            yield
        finally:
            uclib.uc_hook_del(uc._uch, handle)
            uc.ctl_flush_tb()

    def _instructions(self, slot: int, size: int) -> int:
        return _instructions(bytes(self._uc.mem_read(self._flash[0] + 2 * slot, size)))

    def _enable_fpu(self) -> None:
        register = self._arm.UC_ARM_REG_FPEXC
        self._uc.reg_write(register, self._uc.reg_read(register) | 0x40000000)

    def _load_data(self) -> None:
        """As the reset does."""
        begin, end = self._address("qfw_data_start"), self._address("qfw_data_end")
        data = bytes(self._uc.mem_read(self._address("qfw_data_load"), end - begin))
        self._uc.mem_write(begin, data)

    def _paint(self) -> None:
        limit = self._address("qfw_stack_limit")
        self._uc.mem_write(limit, PAINT * ((self._top - limit) // 4))


def _instructions(code: bytes) -> int:
    """Thumb instructions: two bytes, or four from 0xE800 on."""
    at = count = 0
    while at < len(code):
        at += 4 if code[at + 1] >= 0xE8 else 2
        count += 1
    return count
