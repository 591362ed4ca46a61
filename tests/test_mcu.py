"""mcu.run and mcu.cost: the same bits as on this machine, counts that repeat, what is refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import device_nets
import numpy as np
import pytest
from device_runs import check_same, trained_here
from test_pools_har import FUSED, HINDSIGHT

import pyqfw as q
from pyqfw import cli, mcu, nn, state
from pyqfw._batches import permutation
from pyqfw.firmware import folder as folders
from pyqfw.firmware.image import image_of
from pyqfw.firmware.targets import target
from pyqfw.mcu import toolchain, unicorn_
from pyqfw.mcu.build import Build
from pyqfw.mcu.device import read_elf
from pyqfw.mcu.steps import sample


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m0"])
@pytest.mark.parametrize("policy", device_nets.POLICIES)
@pytest.mark.parametrize("kind", device_nets.KINDS)
def test_same_bits_with_pip_alone(kind: str, policy: str, target: str) -> None:
    check_same(kind, policy, target, "unicorn")


@pytest.mark.parametrize("target", ["cortex-m4f", "cortex-m7", "cortex-m33", "cortex-m3"])
def test_the_other_models(target: str) -> None:
    check_same("mlp", "float32", target, "unicorn")


# What a core of one plan leaves to definitions, or leaves out: columns, rounding, slots, errors.
LEAST = q.Policy.int8().replace(grads="fused")
CORES = {
    "plain": ((19, 9, 4), LEAST, 0.05),
    "few columns": ((7, 3, 4), LEAST, 0.05),
    "two classes": ((5, 4, 2), LEAST, 0.05),
    "one input": ((1, 4, 4), LEAST, 0.05),
    "three layers": ((9, 5, 6, 7), LEAST, 0.05),
    "far steps": ((33, 13, 9), LEAST, 30.0),
    "errors to the nearest": ((9, 5, 4), LEAST.replace(errors=q.Sym(8)), 0.05),
    "half even": ((9, 5, 4), LEAST.replace(wires=q.Sym(8, rounding="half_even")), 0.05),
    "wide wires": ((9, 5, 4), LEAST.replace(wires=q.Sym(12, container=16)), 0.05),
    "one scale": ((9, 5, 4), LEAST.replace(weights=q.Sym(8, rounding="stochastic")), 0.05),
    "hindsight": ((9, 5, 4), LEAST.replace(wires=q.Sym(8, range="hindsight")), 0.05),
}


@pytest.mark.parametrize("name", CORES)
def test_a_core_of_one_plan(name: str) -> None:
    sizes, policy, lr = CORES[name]
    layers: list[nn.Module] = []
    for into, out in itertools.pairwise(sizes):
        layers += [nn.Linear(into, out), nn.ReLU()]
    plan = q.compile(
        nn.Sequential(*layers[:-1]),
        input_shape=(sizes[0],),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr),
        policy=policy,
    )
    net, rng = q.Session(plan), np.random.default_rng(3)
    far = 10.0 ** rng.integers(-6, 6, size=(6, 1))
    x = (rng.normal(size=(6, sizes[0])) * far).astype(np.float32)
    y = rng.integers(0, sizes[-1], size=6)
    run = q.mcu.run(net, x, y, target="cortex-m4", epochs=1, count_steps=0, progress=False)
    assert run.losses == trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)


# Parameters that move row by row: by one row of errors, by sums of several, by those of a window;
# batch, momentum.
ROWS = {
    "momentum": (False, 1, 0.9),
    "sums": (False, 5, 0.0),
    "sums, momentum": (False, 8, 0.9),
    "window": (True, 1, 0.0),
    "window, momentum": (True, 3, 0.9),
}


@pytest.mark.parametrize("far", [0, 5])
@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m0"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_move(name: str, target: str, far: int) -> None:
    window, batch, momentum = ROWS[name]
    dense = (nn.Linear(45, 13), nn.ReLU(), nn.Linear(13, 6))
    conv = (nn.Conv1d(5, 7, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(63, 6))
    plan = q.compile(
        nn.Sequential(*(conv if window else dense)),
        input_shape=(5, 9) if window else (45,),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.05, momentum=momentum),
        policy=LEAST,
        batch=batch,
    )
    net, rng = q.Session(plan), np.random.default_rng(5)
    shape = (12, 5, 9) if window else (12, 45)
    size = 10.0 ** rng.integers(-far, far + 1, size=(12, *(1,) * (len(shape) - 1)))
    x = (rng.normal(size=shape) * size).astype(np.float32)
    y = rng.integers(0, 6, size=12)
    run = q.mcu.run(net, x, y, target=target, epochs=1, count_steps=0, progress=False)
    assert run.losses == trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)


@pytest.mark.parametrize("far", [0, 5])
@pytest.mark.parametrize("batch", [5, 8])
def test_rows_that_move_by_a_panel(batch: int, far: int) -> None:
    """Rows in fours of weights, and momentum: the wire of a step is brought into a panel."""
    plan = q.compile(
        nn.Sequential(nn.Linear(44, 12), nn.ReLU(), nn.Linear(12, 6)),
        input_shape=(44,),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.05, momentum=0.9),
        policy=LEAST,
        batch=batch,
    )
    net, rng = q.Session(plan), np.random.default_rng(7)
    size = 10.0 ** rng.integers(-far, far + 1, size=(160, 1))
    x = (rng.normal(size=(160, 44)) * size).astype(np.float32)
    x[:, ::9] = 0
    y = rng.integers(0, 6, size=160)
    run = q.mcu.run(net, x, y, target="cortex-m4", epochs=1, count_steps=0, progress=False)
    assert run.losses == trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)


def test_operations_add_up_to_the_step() -> None:
    run = check_same("chain", "int8", "cortex-m4", "unicorn")
    total = sum(op.instructions for op in run.by_op)
    assert run.instructions is not None
    assert [op.number for op in run.by_op] == list(range(len(run.net.plan.ops)))
    # Each walk of one operation has an entry and an exit of its own.
    assert 0 < total - run.instructions < 1000 * len(run.by_op)


def test_stack_is_within_what_cost_says() -> None:
    net = device_nets.session("mlp", "int8")
    x, y = device_nets.data("mlp")
    run = q.mcu.run(net, x, y, target="cortex-m4", epochs=2, progress=False)
    told = mcu.cost(net, target="cortex-m4").ram["stack"]
    assert told is not None
    assert 0 < run.stack <= told + 256  # another compiler's


def test_micro_batches_and_short_batches() -> None:
    net = device_nets.session("mlp", "full_sym").recompile(batch=8, micro_batches=3)
    x, y = device_nets.data("mlp")
    run = q.mcu.run(net, x, y, target="cortex-m4", epochs=2, count_steps=2, progress=False)
    for epoch in range(2):
        net.epochs = epoch
        trained_here(net, x, y)
    assert state.of(run.net) == state.of(net)
    assert run.net.epochs == 2
    assert len(run.losses) == 2 * 3  # batches of 8, 8 and 4


def test_hindsight_gains_go_along() -> None:
    wires = q.Sym(8, range="hindsight")
    net = device_nets.session("mlp", "int8").recompile(policy=q.Policy.int8().replace(wires=wires))
    x, y = device_nets.data("mlp")
    run = q.mcu.run(net, x, y, target="cortex-m4", steps=4, progress=False)
    order = permutation(len(x), net.plan.seed, 0)[:4]
    assert run.losses == [net.step(x[[i]], y[[i]]) for i in order]


def test_steps_end_a_run() -> None:
    net = device_nets.session("mlp", "int8")
    x, y = device_nets.data("mlp")
    run = q.mcu.run(net, x, y, target="cortex-m4", steps=3, count_steps=0, progress=False)
    assert len(run.losses) == run.net.steps == 3
    assert run.instructions is None
    assert run.by_op == []
    assert "3 steps on cortex-m4" in repr(run)


def test_what_is_refused() -> None:
    net = device_nets.session("mlp", "int8")
    x, y = device_nets.data("mlp")
    with pytest.raises(q.QfwError, match="there is nothing to emulate"):
        q.mcu.run(net, x, y, target="host")
    with pytest.raises(q.QfwError, match="backend must be one of"):
        q.mcu.run(net, x, y, target="cortex-m4", backend="simics")  # type: ignore[arg-type]
    with pytest.raises(q.QfwError, match='use backend="qemu"'):
        q.mcu.run(net, x, y, target="cortex-m55")
    with pytest.raises(q.ShapeError):
        q.mcu.run(net, x[:, :5], y, target="cortex-m4")
    with pytest.raises(q.QfwError, match="without an optimizer"):
        q.mcu.run(net.recompile(optimizer=None, policy=q.Policy.int8()), x, y, target="cortex-m4")


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = tmp_path / "m.safetensors", tmp_path / "d.npz"
    net = device_nets.session("mlp", "int8")
    net.save(model)
    x, y = device_nets.data("mlp")
    np.savez(data, x=x, y=y)
    out = tmp_path / "tuned.safetensors"
    train = ["mcu", "train", str(model), "--data", str(data), "--target", "cortex-m4"]
    assert cli.main([*train, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["losses"] == trained_here(net, x, y)
    tuned = q.Session.load(out)
    assert state.of(tuned).lasting == state.of(net).lasting
    assert tuned.steps == net.steps
    assert told["cost"]["ram_bytes"] > net.plan.arena_bytes

    assert cli.main(["mcu", "cost", str(model), "--target", "cortex-m0,cortex-m4"]) == 0
    text = capsys.readouterr().out
    assert "cortex-m0, " in text
    assert "gradient_update_s32" in text
    folder = tmp_path / "fw"
    assert cli.main(["export", str(model), str(folder), "--target", "cortex-m4"]) == 0
    assert (folder / "Makefile").is_file()
    capsys.readouterr()
    assert cli.main(["mcu", "cost", str(data), "--target", "cortex-m4"]) == 1
    assert capsys.readouterr().err.startswith("pyqfw: ")
    bad = ["mcu", "train", str(model), "--data", str(model), "--target", "cortex-m4"]
    assert cli.main(bad) == 1
    assert "m.safetensors" in capsys.readouterr().err


MEASURED = {
    "mlp": ("mlp", device_nets.POLICIES["int8"], None),
    "mlp, float32": ("mlp", device_nets.POLICIES["float32"], None),
    "har, dynamic": ("har", FUSED, None),
    "har, hindsight": ("har", HINDSIGHT, None),
    "har, head": ("har", HINDSIGHT, ["10"]),
}


@pytest.mark.parametrize("name", MEASURED)
def test_cost_is_what_the_device_used(name: str, tmp_path: Path) -> None:
    """The objects of a firmware, and the bytes of its arena that a step writes, to its last 16."""
    kind, policy, train = MEASURED[name]
    net = device_nets.session(kind, "int8")
    net = net.recompile(policy=policy, train=train)
    cost = mcu.cost(net, target="cortex-m4", backend="unicorn", count_steps=1)
    arena = sum(cost.ram[part] or 0 for part in list(cost.ram)[:3])
    assert arena == net.plan.arena_bytes
    x, y = device_nets.data(kind)
    net.step(x[:1], y[:1])  # gains
    finds = (toolchain.gcc, toolchain.zig)
    core = target("cortex-m4")
    apart = replace(toolchain.first(core, *finds), whole=())  # objects by their own names
    build = Build(folders.write(tmp_path, image_of(net), core), apart)
    symbols = read_elf(build.roomy.firmware()).symbols
    assert symbols["arena"][1] == arena
    assert sum(symbols[at][1] for at in ("x", "y", "out")) == cost.ram["samples, labels, outputs"]

    lasting = net.plan.layout.persistent_bytes
    device = unicorn_.Trainer(net, build)._device
    used = np.zeros(arena - lasting, bool)
    for fill in (0x5A, 0xA5):  # a byte that is written has another value than one of them
        before = bytes([fill]) * (arena - lasting)
        device.write("mcu_arena", device.read("mcu_arena", lasting) + before)
        step = sample(net, 1, 0)
        device.write("mcu_x", step.x)
        device.write("mcu_y", step.y)
        assert device.call("mcu_step", 1) == 0
        used |= np.frombuffer(device.read("mcu_arena")[lasting:], np.uint8) != fill
    assert -(-(np.flatnonzero(used)[-1] + 1) // 16) * 16 == arena - lasting


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m0"])
@pytest.mark.parametrize("train", [None, ["10"]])
def test_the_small_form_of_a_cnn(train: list[str] | None, target: str) -> None:
    """Sums that are pooled, and errors that are widened, a few at a time."""
    net = device_nets.session("har", "int8").recompile(policy=HINDSIGHT, train=train)
    x, y = device_nets.data("har")
    run = q.mcu.run(net, x, y, target=target, steps=3, count_steps=0, progress=False)
    order = permutation(len(x), net.plan.seed, 0)[:3]
    assert run.losses == [net.step(x[[i]], y[[i]]) for i in order]
    assert state.of(run.net).lasting == state.of(net).lasting
