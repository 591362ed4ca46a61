"""export: folders that build with make, what they say, what is refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import device_nets
import numpy as np
import pytest
from narrow_bytes import widened

import pyqfw as q
from pyqfw import nn
from pyqfw.firmware import folder
from pyqfw.firmware.sources import needed, portable
from pyqfw.firmware.targets import csrc, target, targets


@pytest.fixture(scope="module")
def net() -> q.Session:
    return device_nets.session("mlp", "int8")


def inference() -> q.Session:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return q.Session(q.compile(model, input_shape=(64,), policy=q.Policy.int8()))


def make(folder: Path, *goals: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-s", *goals], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("kind", ["mlp", "har"])
def test_builds_and_trains_without_python(tmp_path: Path, kind: str) -> None:
    """For this machine; also where a linker keeps what nothing calls."""
    q.export(device_nets.session(kind, "int8"), tmp_path / "fw", target="host")
    assert make(tmp_path / "fw").stderr == ""
    done = make(tmp_path / "fw", "run")
    assert (done.returncode, done.stderr) == (0, "")
    plain = make(tmp_path / "fw", "-B", "LDFLAGS=")
    assert (plain.returncode, plain.stderr) == (0, "")


def test_inference_alone(tmp_path: Path) -> None:
    cost = q.export(inference(), tmp_path / "fw", target="host")
    assert cost.step is None
    assert make(tmp_path / "fw", "run").returncode == 0
    assert "qfw_step" not in (tmp_path / "fw" / "README.md").read_text()


def test_cost_adds_up(net: q.Session, tmp_path: Path) -> None:
    cost = q.export(net, tmp_path / "fw", target="cortex-m4")
    arena = [cost.ram[n] for n in list(cost.ram)[:3]]
    assert sum(n for n in arena if n) == net.plan.arena_bytes
    assert str(cost.flash_bytes) in (tmp_path / "fw" / "README.md").read_text()
    assert cost.step is not None
    assert cost.inference is not None


def test_programs_are_short() -> None:
    for file in folder.TEMPLATES.glob("*.c"):
        assert len(file.read_text().splitlines()) <= 60


def test_only_what_the_plan_needs() -> None:
    files = {f.name for f in needed(["product_s32", "convert"])}
    assert {"product.c", "convert.c", "gemm.c", "net.c", "store.c", "qfw.h"} <= files
    assert not files & {"pool.c", "softmax.c", "batch_norm.c", "mse.c", "check.c", "squash.c"}
    assert {f.name for f in needed(["max_pool"])} >= {"pool.c"}


def test_every_operation_finds_its_files() -> None:
    """Nothing that is named is left out, whatever the plan."""
    names = re.findall(r"^QFW_OP\(\d+, (\w+),", (csrc() / "kernels/kernels.def").read_text(), re.M)
    known = {f.name for f in portable()}
    everything = {f.name for f in needed(names) if f.suffix == ".c"}
    assert len(names) > 50
    assert everything <= known
    # What only a check or the affine family needs may stay at home.
    assert known - everything <= {
        "check.c",
        "ops.c",
        "spaces.c",
        "status.c",
        "table.c",
        "affine.c",
    } | {
        "affine_run.c",
        "gradient_rule.c",
        "half.c",
    }


def test_the_image_is_the_net(net: q.Session, tmp_path: Path) -> None:
    """The plan's bytes and the parameters stand in the source."""
    q.export(net, tmp_path / "fw", target="host")
    text = (tmp_path / "fw" / "model_image.c").read_text()
    arrays = {
        name: bytes(int(n) for n in re.findall(r"\d+", body))
        for name, body in re.findall(r"uint8_t (\w+)\[\d+\] = \{([^}]*)\}", text)
    }
    assert widened(arrays["plan"]) == net.plan.to_bytes()
    assert net.tensor("0.weight").codes.tobytes() in arrays["state"]
    lines = re.findall(r"QFW_OP_LINE\((\w+)\)", text)
    assert sorted(lines) == sorted({op.kernel for op in net.plan.program.all_ops})


def test_refused_with_the_table(net: q.Session, tmp_path: Path) -> None:
    with pytest.raises(q.QfwError, match=r"bytes of ram, and there are 4000(.|\n)*stack") as e:
        q.export(net, tmp_path / "fw", target="cortex-m4", ram=4000)
    assert "wires, errors, scratch" in str(e.value)
    with pytest.raises(q.QfwError, match="bytes of flash, and there are 5000"):
        q.export(net, tmp_path / "fw", target="cortex-m4", flash=5000)
    assert list(tmp_path.iterdir()) == []


def test_an_older_export_is_replaced_if_asked(net: q.Session, tmp_path: Path) -> None:
    to = tmp_path / "fw"
    q.export(net, to, target="host")
    (to / "own.txt").write_text("mine")
    with pytest.raises(q.FileError, match="overwrite=True"):
        q.export(net, to, target="host")
    q.export(net, to, target="cortex-m4", overwrite=True)
    assert (to / "board").is_dir()
    assert not (to / "own.txt").exists()


def test_another_folder_is_left_alone(net: q.Session, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(q.FileError, match="is no export"):
        q.export(net, tmp_path, target="host", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_unknown_targets_and_limits(net: q.Session, tmp_path: Path) -> None:
    with pytest.raises(q.QfwError, match=r"target must be one of cortex-m0, .*, not 'z80'"):
        q.export(net, tmp_path / "fw", target="z80")
    with pytest.raises(q.QfwError, match="ram"):
        q.export(net, tmp_path / "fw", target="host", ram=0)


def test_hindsight_needs_its_gains(tmp_path: Path) -> None:
    policy = q.Policy.int8().replace(wires=q.Sym(8, range="hindsight"))
    net = device_nets.session("mlp", "int8").recompile(policy=policy)
    with pytest.raises(q.QfwError, match=r"hindsight range needs a step"):
        q.export(net, tmp_path / "fw", target="host")
    x, y = device_nets.data("mlp")
    net.step(x[:1], y[:1])
    q.export(net, tmp_path / "fw", target="host")
    assert make(tmp_path / "fw", "run").returncode == 0


def test_targets_are_the_cross_files() -> None:
    cores = {"m0", "m3", "m4", "m4f", "m7", "m33", "m55"}
    assert set(targets()) == {f"cortex-{name}" for name in cores} | {"host"}
    m33 = target("cortex-m33")
    assert m33.machine == "mps2-an505"
    assert m33.ram == (0x38000000, 2 << 20)
    assert "-mcpu=cortex-m33" in m33.flags
    assert np.prod(m33.flash) > 0
