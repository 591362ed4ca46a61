"""Firmware for boards: built by make, run in QEMU, counted."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import device_nets
import numpy as np
import pytest
from device_runs import check_same, trained_here

import pyqfw as q
from pyqfw import mcu, nn, state


def make(folder: Path, *goals: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-s", *goals], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", ["cortex-m0", "cortex-m3", "cortex-m4", "cortex-m55"])
def test_builds_and_trains_without_python(tmp_path: Path, name: str) -> None:
    q.export(device_nets.session("mlp", "int8"), tmp_path / "fw", target=name)
    assert make(tmp_path / "fw").stderr == ""
    done = make(tmp_path / "fw", "run")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_large_net_on_a_larger_board(tmp_path: Path) -> None:
    q.export(device_nets.session("har", "int8"), tmp_path / "fw", target="cortex-m0")
    assert make(tmp_path / "fw", "run").returncode == 0


def test_flash_is_what_cost_said(tmp_path: Path) -> None:
    cost = q.export(device_nets.session("mlp", "int8"), tmp_path / "fw", target="cortex-m4")
    make(tmp_path / "fw")
    size = subprocess.run(
        ["arm-none-eabi-size", tmp_path / "fw/build/firmware.elf"], capture_output=True, text=True
    ).stdout.split()
    assert int(size[6]) + int(size[7]) == cost.flash_bytes  # text and data


def test_a_small_net_takes_little_flash(tmp_path: Path) -> None:
    """The training firmware of the MLP 64-32-10 by gcc: what AIfES has for it takes 18.4 KB."""
    cost = q.export(device_nets.session("mlp", "int8"), tmp_path / "fw", target="cortex-m4")
    assert cost.flash["code"] + cost.flash["plan"] <= 12_288


TOLD = """
#include "cross/stack.h"

int main(void)
{
    const int code = trained();
    return code != 0 ? code : (int)(stack_used() / 8);
}
"""


def test_stack_is_what_cost_said(tmp_path: Path) -> None:
    """By painting, from the reset on; the emulator's exit code has a byte: eights of bytes."""
    cost = q.export(device_nets.session("mlp", "int8"), tmp_path / "fw", target="cortex-m4")
    main = tmp_path / "fw" / "main.c"
    main.write_text(main.read_text().replace("int main(void)", "static int trained(void)") + TOLD)
    told = cost.ram["stack"]
    assert told is not None
    assert told <= 1024
    code = re.search(r"Error (\d+)", make(tmp_path / "fw", "run").stderr)
    assert code is not None
    assert 512 <= 8 * int(code[1]) <= told


def test_same_bits_and_counts_in_qemu() -> None:
    check_same("mlp", "int8", "cortex-m55", "qemu")
    check_same("har", "int8", "cortex-m0", "qemu")  # on a larger board


@pytest.mark.parametrize("size", [1e-37, 1e-40, 1e38])
def test_inputs_of_any_size(size: float) -> None:
    """Scales at the ends of the floats, which are not done four at a time."""
    net = device_nets.session("mlp", "int8")
    x, y = device_nets.data("mlp")
    x = np.asarray(x / np.abs(x).max() * size, np.float32)
    run = mcu.run(net, x, y, target="cortex-m4", backend="unicorn", progress=False)
    assert run.losses == trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)


@pytest.mark.parametrize("lr", [0.003, 0.7])
@pytest.mark.parametrize("sizes", [(64, 32, 10), (37, 13, 10)])
def test_momentum_in_a_core_of_its_own(sizes: tuple[int, int, int], lr: float) -> None:
    """Rows that are whole blocks of random words and others, with an error and without."""
    model = nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:]))
    plan = q.compile(
        model,
        input_shape=sizes[:1],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr, momentum=0.9),
        policy=device_nets.POLICIES["int8"],
        batch=1,
        seed=3,
    )
    net, source = q.Session(plan), np.random.default_rng(6)
    x = np.maximum(source.standard_normal((40, sizes[0])), 0).astype(np.float32)
    y = source.integers(0, 10, len(x)).astype(np.int32)
    run = mcu.run(net, x, y, target="cortex-m4", backend="unicorn", progress=False)
    assert run.losses == trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)


def test_both_emulators_count_the_same(tmp_path: Path) -> None:
    net = device_nets.session("mlp", "int8")
    one, other = (mcu.cost(net, target="cortex-m4", backend=b) for b in ("unicorn", "qemu"))
    assert one.compiler == other.compiler == "arm-none-eabi-gcc"
    own = 12  # instructions of the harness between the marks of the one, at most
    for mine, its in ((one.step, other.step), (one.inference, other.inference)):
        assert mine is not None
        assert its is not None
        assert 0 <= its - mine <= own
    for op, same in zip(one.by_op, other.by_op, strict=True):
        assert op[:3] == same[:3]
        assert 0 <= same.instructions - op.instructions <= own
    assert one.flash == other.flash
    again = mcu.cost(net, target="cortex-m4", backend="unicorn")
    assert again == one
