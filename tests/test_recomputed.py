"""Dynamic ranges whose product is computed twice: the bits of stored sums, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn
from pyqfw.policy import Policy

SHAPES = {
    "mlp": (20,),
    "norms": (20,),
    "har": (9, 128),
    "image": (3, 12, 12),
    "depthwise": (8, 10, 10),
    "autoencoder": (1, 12, 12),
}


def _mlp() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 17, bias=False), nn.ReLU()),
        nn.Linear(17, 5),
    )


def _norms() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(20, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16)),
        *(nn.LayerNorm(16), nn.Linear(16, 5)),
    )


def _har() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv1d(9, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1)),
        *(nn.Flatten(), nn.Linear(64, 5)),
    )


def _image() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 7, 3, padding=1, bias=False), nn.MaxPool2d(2)),
        *(nn.Conv2d(7, 7, 3), nn.ReLU(), nn.Flatten(), nn.Linear(7, 5)),
    )


def _depthwise() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 6, 1), nn.ReLU()),
        *(nn.Conv2d(6, 6, 3, stride=2, groups=6), nn.Flatten(), nn.Linear(96, 5)),
    )


def _autoencoder() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1)),
        *(nn.ReLU(), nn.ConvTranspose2d(6, 1, 2, stride=2)),
    )


NETS: dict[str, Callable[[], nn.Sequential]] = {
    "mlp": _mlp,
    "norms": _norms,
    "har": _har,
    "image": _image,
    "depthwise": _depthwise,
    "autoencoder": _autoencoder,
}
POLICIES = {
    "int8": Policy.int8(),
    "fused": Policy.int8().replace(grads="fused"),
    "full_sym": Policy.full_sym(),
    "pow2": Policy.int8().replace(
        wires=q.Sym(8, scale="pow2"), errors=q.Sym(8, scale="pow2", rounding="stochastic")
    ),
}


def compiled(name: str, policy: Policy, batch: int = 1, micro: int = 1) -> q.Plan:
    loss = nn.MSELoss() if name == "autoencoder" else nn.CrossEntropyLoss()
    return q.compile(
        NETS[name](),
        input_shape=SHAPES[name],
        loss=loss,
        optimizer=q.optim.SGD(0.02),
        policy=policy,
        batch=batch,
        micro_batches=micro,
        seed=3,
    )


def trained(plan: q.Plan, name: str, steps: int = 6, **session: Any) -> tuple[list[float], bytes]:
    """Losses, and every byte of the net that lasts."""
    net, rng = q.Session(plan, **session), np.random.default_rng(7)
    rows, losses = plan.request.batch, []
    for _ in range(steps):
        x = rng.standard_normal((rows, *SHAPES[name])).astype(np.float32)
        y = x if name == "autoencoder" else rng.integers(0, 5, rows)
        losses.append(net.step(x, y))
    held = net.state_dict()
    codes = b"".join(
        np.asarray(getattr(t, part)).tobytes()
        for t in held.values()
        for part in (("codes", "scale") if hasattr(t, "codes") else ("T",))
    )
    return losses, codes + np.asarray(net.predict(x)).tobytes()


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NETS)
def test_same_bits(name: str, policy: str, batch: int) -> None:
    given = POLICIES[policy]
    stored = compiled(name, given, batch)
    twice = compiled(name, given.replace(sums="recomputed"), batch)
    windows = name in ("har", "image", "depthwise")  # more sums than are made at a time
    assert any(op.recomputed for op in twice.program.ops) or not windows
    assert not any(op.recomputed for op in stored.program.ops)
    assert twice.arena_bytes <= stored.arena_bytes
    assert trained(twice, name) == trained(stored, name)


@pytest.mark.parametrize("name", ["mlp", "har"])
def test_micro_batches(name: str) -> None:
    plans = [
        compiled(name, Policy.int8().replace(sums=sums), batch=4, micro=2)
        for sums in ("stored", "recomputed")
    ]
    assert trained(plans[0], name) == trained(plans[1], name)


def test_threads() -> None:
    plan = compiled("har", Policy.int8().replace(sums="recomputed"), batch=16)
    assert trained(plan, "har", 3, threads=2) == trained(plan, "har", 3)


def test_rows_with_scales_of_their_own() -> None:
    wires = q.Sym(8, axis="row")
    changes = {"wires": q.Sym(8)}
    nets = []
    for sums in ("stored", "recomputed"):
        model = nn.Sequential(
            *(nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 9, policy=changes), nn.ReLU()),
            nn.Linear(9, 5),
        )
        plan = q.compile(
            model,
            input_shape=(20,),
            loss=nn.CrossEntropyLoss(),
            optimizer=q.optim.SGD(0.02),
            policy=Policy.int8().replace(wires=wires, sums=sums),
            batch=4,
            seed=3,
        )
        nets.append(trained(plan, "mlp"))
    assert nets[0] == nets[1]


def test_the_har_network_has_less_ram() -> None:
    fused = POLICIES["fused"]
    stored, twice = (compiled("har", fused.replace(sums=s)) for s in ("stored", "recomputed"))
    assert twice.arena_bytes < stored.arena_bytes - 4096
    once = {op.layer: op.macs for op in stored.ops if op.kernel == "product_s32"}
    assert all(op.macs == 2 * once[op.layer] for op in twice.ops[:4] if op.macs)
    assert twice.macs < 2 * stored.macs
    assert "requantize, recomputed" in str(twice)
    assert "recomputed" not in str(stored)


def test_a_layer_of_its_own() -> None:
    """The setting is that of the layer whose product it is, forward and back."""
    model = nn.Sequential(
        *(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU()),
        *(nn.Conv1d(8, 8, 3, padding=1, policy={"sums": "recomputed"}), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(800, 5)),
    )
    plan = q.compile(
        model,
        input_shape=(4, 100),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.02),
        policy=Policy.int8(),
        batch=1,
    )
    assert [op.layer for op in plan.program.ops if op.recomputed] == ["2", "2"]


def test_sums_that_others_read_are_stored() -> None:
    """LayerNorm's input is a wire; the logits stay sums."""
    plan = compiled("norms", Policy.int8().replace(sums="recomputed"))
    logits = next(op for op in plan.program.ops if op.layer == "5")
    assert not logits.recomputed


def test_other_values_are_refused() -> None:
    with pytest.raises(q.QfwError, match=r"Policy: sums.*'stored'.*'recomputed'"):
        Policy.int8().replace(sums="twice")
    with pytest.raises(q.QfwError, match="sums"):
        nn.Linear(2, 2, policy={"sums": 1})


def test_saved_and_recompiled(tmp_path: Any) -> None:
    plan = compiled("mlp", Policy.int8().replace(sums="recomputed"))
    net = q.Session(plan)
    net.save(tmp_path / "net.safetensors")
    again = q.Session.load(tmp_path / "net.safetensors")
    assert again.plan.request.policy == plan.request.policy
    assert again.plan.to_bytes() == plan.to_bytes()
