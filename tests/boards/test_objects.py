"""What the compiler made of the core for cores without the DSP extension, and with it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pyqfw.firmware.sources import portable
from pyqfw.firmware.targets import csrc, target
from pyqfw.mcu import toolchain
from pyqfw.mcu.build import FLAGS

# Multiplications of halfwords, and arithmetic on two or four values in a register. QEMU runs some
# of them on a Cortex-M3, which has none.
DSP = re.compile(
    r"\t(smla[bt][bt]|smlad|smladx|smlald|smlsd|smuad|smusd|smul[bt][bt]|smulw[bt]|smlaw[bt]"
    r"|[us]x?tab16|[us]xta[bh]|[us]xtb16|pkh(bt|tb)|[su]?q?h?(add|sub)(8|16)|[us]sat16"
    r"|smmla|smmls|smmul|sel|q(d?add|d?sub))r?\b"
)


def dsp_instructions(name: str, folder: Path) -> set[str]:
    """The mnemonics of the extension in the whole core."""
    core = target(name)
    flags = (*FLAGS, "-DQFW_DIRECT=1", f"-I{csrc()}")
    objects = toolchain.first(core, toolchain.gcc).objects(folder, csrc(), portable(), flags)
    text = subprocess.run(
        ["arm-none-eabi-objdump", "-d", "--no-show-raw-insn", *map(str, objects)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert text.count("\n") > 10_000
    return {match[1] for match in DSP.finditer(text)}


@pytest.mark.parametrize("name", ["cortex-m0", "cortex-m3"])
def test_no_dsp_where_there_is_none(name: str, tmp_path: Path) -> None:
    assert dsp_instructions(name, tmp_path) == set()


def test_dsp_where_there_is(tmp_path: Path) -> None:
    assert "smlad" in dsp_instructions("cortex-m4", tmp_path)
