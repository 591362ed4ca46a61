"""Networks with a forward of their own: saved and loaded, recompiled, and taken apart by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import BLOCKS
from save_helpers import kept
from step_helpers import Case
from test_graph_step import GRAPHS, POLICIES, made

import pyqfw as q
from pyqfw import nn, optim

MOMENTUM = optim.SGD(0.05, momentum=0.9)
FORMATS = q.Policy.int8().replace(
    weights=q.Sym(5, axis=-1), bias=q.Sym(16), grads=q.Sym(8), state=q.Asym(7, group=4)
)


def session(name: str, policy: q.Policy) -> tuple[q.Session, Any]:
    make, shape = BLOCKS[name]
    numbers = name == "autoencoder"
    loss = nn.MSELoss() if numbers else nn.CrossEntropyLoss()
    own = {"input_shape": shape, "loss": loss, "optimizer": MOMENTUM, "batch": 4, "seed": 3}
    net = q.Session(q.compile(make(nn, nn.Concat), policy=policy, **own))

    def data(seed: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(4, *shape)).astype(np.float32)
        y = (
            rng.normal(size=(4, *net.plan.nodes[-1].out_shape))
            if numbers
            else rng.integers(0, 4, 4)
        )
        return x, y

    return net, data


@pytest.mark.parametrize(
    "policy", [q.Policy.float32(), q.Policy.int8(), FORMATS], ids=["f", "i", "o"]
)
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_loaded_net_goes_on(name: str, steps: int, policy: q.Policy, tmp_path: Path) -> None:
    """A forward that is code is saved as the calls that it made; every bit goes on."""
    net, data = session(name, policy)
    for i in range(steps):
        net.step(*data(i))
    net.save(tmp_path / "net")
    other = q.Session.load(tmp_path / "net")
    assert kept(other) == kept(net)
    assert [n.path for n in other.plan.nodes] == [n.path for n in net.plan.nodes]
    for key, value in net.state_dict().items():
        assert other.state_dict()[key].tobytes() == value.tobytes()
    for i in range(2):
        assert other.step(*data(10 + i)) == net.step(*data(10 + i))
    assert kept(other) == kept(net)
    other.save(tmp_path / "again")
    net.save(tmp_path / "net")
    assert (tmp_path / "again").stat().st_size > 0
    assert kept(q.Session.load(tmp_path / "again")) == kept(net)


def test_what_is_a_chain_is_saved_as_one(tmp_path: Path) -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            self.conv, self.flat, self.out = nn.Conv1d(2, 3, 1), nn.Flatten(), nn.Linear(15, 2)

        def forward(self, x: Any) -> Any:
            return self.out(self.flat(self.conv(x)))

    net = q.Session(q.compile(Chain(), input_shape=(2, 5)))
    net.save(tmp_path / "net")
    model = q.Session.load(tmp_path / "net").plan.request.model
    assert isinstance(model, nn.Sequential)
    assert [name for name, _ in model.named_children()] == ["conv", "flat", "out"]


def test_modules_of_pyqfw_stay_what_they_are(tmp_path: Path) -> None:
    body = nn.Sequential(nn.Conv1d(2, 2, 3, padding="same"), nn.ReLU())
    model = nn.Sequential(nn.Residual(body, nn.Conv1d(2, 2, 1)), nn.Flatten(), nn.Linear(10, 2))
    net = q.Session(q.compile(model, input_shape=(2, 5)))
    net.save(tmp_path / "net")
    loaded = q.Session.load(tmp_path / "net")
    assert repr(loaded.plan.request.model) == repr(model)


def test_frozen_branches_stay_frozen(tmp_path: Path) -> None:
    net, data = session("resnet", q.Policy.int8())
    net = net.recompile(train=["blocks.1", "head"])
    frozen = [n for n, t in net.plan.program.parameters.items() if t.space == "const"]
    assert {n.split(".")[0] for n in frozen} == {"stem", "blocks"}
    assert all(n.startswith(("stem", "blocks.0")) for n in frozen)
    before = {n: net.state_dict()[n].tobytes() for n in frozen}
    net.step(*data(0))
    net.save(tmp_path / "net")
    other = q.Session.load(tmp_path / "net")
    assert other.step(*data(1)) == net.step(*data(1))
    assert kept(other) == kept(net)
    assert before == {n: other.state_dict()[n].tobytes() for n in frozen}
    assert not [n for n in net.plan.program.gradients if n in frozen]
    assert not [n for n in net.plan.program.states if n.split(":")[0] in frozen]


# ---- recompile -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCKS)
def test_recompile_keeps_values_in_pytorch_s_order(name: str) -> None:
    net, data = session(name, q.Policy.int8())
    net.step(*data(0))
    values = net.state_dict()
    twin = net.recompile(policy=q.Policy.float32())
    for key, value in values.items():
        assert twin.state_dict()[key].tobytes() == value.tobytes(), key
    back = twin.recompile(policy=q.Policy.int8())
    x, _ = data(1)
    assert np.abs(back.predict(x) - net.predict(x)).max() <= 0.2 * np.abs(net.predict(x)).max()


@pytest.mark.parametrize("policy", [q.Policy.int8(), FORMATS], ids=["int8", "others"])
@pytest.mark.parametrize("name", BLOCKS)
def test_recompile_without_a_change_keeps_every_bit(name: str, policy: q.Policy) -> None:
    """Before the first update, and after."""
    net, data = session(name, policy)
    for i in range(2):
        again = net.recompile()
        assert kept(again) == kept(net)
        assert again.step(*data(i)) == net.step(*data(i))
        assert kept(again) == kept(net)


def test_twins_begin_with_the_same_floats() -> None:
    """Whatever the order of memory: an axis that moves, or one that was flattened."""
    for name in BLOCKS:
        first, _ = session(name, FORMATS)
        for policy in (q.Policy.float32(), q.Policy.int8(), FORMATS):
            fresh, _ = session(name, policy)
            twin = first.recompile(policy=policy)
            assert {k: v.tobytes() for k, v in twin.state_dict().items()} == {
                k: v.tobytes() for k, v in fresh.state_dict().items()
            }


@pytest.mark.parametrize("name", GRAPHS)
def test_another_batch_has_the_same_bits(name: str) -> None:
    """Tiles differ between short and long batches, numbers do not."""
    case: Case = made(name, POLICIES["int8"])
    net = q.Session(case.plan())
    other = net.recompile(batch=9)
    x, y = next(case.data())
    assert other.step(x, y) == net.step(x, y)
    for key, value in net.state_dict().items():
        assert other.state_dict()[key].tobytes() == value.tobytes(), key


def test_weights_are_loaded_in_pytorch_s_order() -> None:
    """And what does not fit is named."""
    net, _ = session("dense", q.Policy.float32())
    values = {
        k: np.arange(v.size, dtype=np.float32).reshape(v.shape) for k, v in net.state_dict().items()
    }
    net.load_state_dict(values)
    for key, value in values.items():
        assert net.state_dict()[key].tolist() == value.tolist()
        assert net.tensor(key).numpy().tolist() == value.tolist()
    with pytest.raises(q.ShapeError, match=r"'first\.weight'.*must have the shape \(3, 2, 3\)"):
        net.load_state_dict({**values, "first.weight": np.zeros((3, 3, 2))})
