"""What the compiler made of the core: instructions of the DSP extension, calls of float helpers."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import device_nets
import pytest

from pyqfw.firmware import folder as folders
from pyqfw.firmware.image import image_of
from pyqfw.firmware.sources import portable
from pyqfw.firmware.targets import csrc, target
from pyqfw.mcu import toolchain
from pyqfw.mcu.build import FLAGS, Build

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


# ---- floats --------------------------------------------------------------------------------------

HELPER = re.compile(
    r"\t(?:bl?|blx|b\.[nw])\s+[0-9a-f]+ <(__aeabi_(?:u?[il]2f|f\w+|cf\w+)|__\w+sf\d?)>"
)
# What finds a scale may compare or make floats: one of a tensor, a row or a column, not an element.
OF_SCALES = {"qfw_encode_runs", "encode_singles", "qfw_norm_eps"}


def callers_of_floats(kind: str, policy: str, core: str, folder: Path) -> set[str]:
    """Functions of a firmware that call the compiler's soft floats."""
    written = folders.write(folder, image_of(device_nets.session(kind, policy)), target(core))
    apart = replace(toolchain.first(target(core), toolchain.gcc), whole=())  # by their own names
    elf = Build(written, apart).firmware()
    listing = subprocess.run(
        ["arm-none-eabi-objdump", "-d", "--no-show-raw-insn", str(elf)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found, function = set(), ""
    for line in listing.splitlines():
        if line.endswith(">:"):
            function = re.sub(r"\.(isra|constprop|part)\.\d+", "", line.split("<")[1][:-2])
        elif HELPER.search(line) and not function.startswith("__"):
            found.add(function)
    return found


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m4"])
def test_a_step_of_integers_has_no_float(core: str, tmp_path: Path) -> None:
    assert callers_of_floats("mlp", "int8", core, tmp_path) == set()


@pytest.mark.parametrize("kind", ["chain", "har", "depthwise"])
@pytest.mark.parametrize("policy", ["int8", "full_sym"])
def test_kernels_of_integers_have_no_float(kind: str, policy: str, tmp_path: Path) -> None:
    kernels = "\n".join(f.read_text() for f in (csrc() / "kernels").glob("*.c"))
    calls = callers_of_floats(kind, policy, "cortex-m4", tmp_path) - OF_SCALES
    inside = {name for name in calls if re.search(rf"\b{name}\(.*\n?.*\n?.*\)\n{{", kernels)}
    assert {name for name in inside if "_f32" not in name} == set()


def test_floats_are_found(tmp_path: Path) -> None:
    assert "qfw_gemm_f32_scalar" in callers_of_floats("mlp", "float32", "cortex-m4", tmp_path)
