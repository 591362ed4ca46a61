"""A product that writes codes has the bits of the product and the conversion after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn, quant
from pyqfw.lower import requantize

ISAS = quant.core_info()["isas"]
INT8 = q.Policy.int8()
RANDOM: dict[str, Any] = {"rounding": "stochastic"}
FORMATS = {
    "int8": (q.Sym(8, range=2.0), q.Sym(8, range=0.05, **RANDOM)),
    "stochastic": (q.Sym(8, range=0.7, **RANDOM), q.Sym(8, range=0.01, **RANDOM)),
    "half even": (q.Sym(8, range=1.0, rounding="half_even"), q.Sym(8, range=0.1)),
    "int16": (q.Sym(12, container=16, range=2.0, **RANDOM), q.Sym(16, range=0.1, **RANDOM)),
    "powers of two": (q.Sym(8, range=2.0, scale="pow2"), q.Sym(8, range=0.1, scale="pow2")),
    "5 bits": (q.Sym(5, container=8, range=2.0), q.Sym(5, container=16, range=0.1, **RANDOM)),
}
POLICIES = {
    name: INT8.replace(wires=wires, errors=errors) for name, (wires, errors) in FORMATS.items()
}
POLICIES["one scale"] = POLICIES["stochastic"].replace(weights=q.Sym(8, **RANDOM))
POLICIES["by column"] = POLICIES["stochastic"].replace(weights=q.Sym(8, axis=1))
POLICIES["by row"] = POLICIES["stochastic"].replace(input=q.Sym(8, axis="row"))
POLICIES["by row, one scale"] = POLICIES["one scale"].replace(input=q.Sym(8, axis="row"))
POLICIES["wide"] = POLICIES["int16"].replace(input=q.Sym(16), weights=q.Sym(16), bias=q.Float32())


def compiled(policy: q.Policy, sizes: tuple[int, ...], batch: int, bias: bool = True) -> q.Plan:
    shape = (sizes[0],) if len(sizes) == 3 else (sizes[3], sizes[0])
    positions = [] if len(sizes) == 3 else [nn.Flatten()]
    between = sizes[1] * (1 if len(sizes) == 3 else sizes[3])
    return q.compile(
        nn.Sequential(
            nn.Linear(sizes[0], sizes[1], bias=bias),
            nn.ReLU(),
            *positions,
            nn.Linear(between, sizes[1], bias=bias),
            nn.Linear(sizes[1], sizes[2]),
        ),
        input_shape=shape,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.1, momentum=0.9),
        policy=policy,
        batch=batch,
    )


def written(plan: q.Plan) -> list[bool]:
    """Of each product: whether it writes codes."""
    products = [op for op in plan.ops if op.kernel == "product_s32"]
    return [op.places[0].fmt != q.SymInt32(32) for op in products if op.places[0]]


def run(plan: q.Plan, isa: str, rows: tuple[int, ...]) -> tuple[list[float], dict[str, bytes]]:
    """Losses, and every wire, error, gradient, parameter and state of every step."""
    rng = np.random.default_rng(plan.batch)
    found, losses = {}, []
    shape, classes = plan.request.input_shape, plan.nodes[-1].out_shape[-1]
    with quant.isa(isa):
        net = q.Session(plan)
        for i, n in enumerate(rows):
            x = rng.standard_normal((n, *shape)).astype(np.float32)
            x[0] = 0.0
            for _, tensors in net.trace(x, rng.integers(0, classes, n)):
                for name, t in tensors.items():
                    if name.endswith((":wire", ":error", ":grad", ":momentum", "weight", "bias")):
                        found[f"{i} {name}"] = bytes(t.data)
            losses.append(net._read_loss())
        found["output"] = net.predict(x).tobytes()
    return losses, found


def both(monkeypatch: pytest.MonkeyPatch, *args: Any) -> tuple[q.Plan, q.Plan]:
    """The plan, and the same with sums that are kept and converted."""
    plan = compiled(*args)
    with monkeypatch.context() as patch:
        patch.setattr(requantize, "_fusable", lambda *_: None)
        apart = compiled(*args)
    assert not any(written(apart))
    return plan, apart


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_tail(monkeypatch: pytest.MonkeyPatch, name: str, isa: str) -> None:
    for n in (*range(1, 20), 31, 32, 33, 47, 64, 65, 70):
        batch = 1 + n % 11
        args = (POLICIES[name], (1 + n % 7, n, 2 + n % 3), batch, n % 2 == 0)
        plan, apart = both(monkeypatch, *args)
        assert written(plan) == [True, True, False, True, True]
        rows = (batch, 1 + batch // 2)
        assert run(plan, isa, rows) == run(apart, isa, rows), n


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", POLICIES)
def test_several_tiles_and_positions(monkeypatch: pytest.MonkeyPatch, name: str, isa: str) -> None:
    plan, apart = both(monkeypatch, POLICIES[name], (5, 40, 3, 3), 37)
    assert any(written(plan))
    products = [op for op in plan.ops if op.kernel == "product_s32" and op.places[6:]]
    tiles = [op.places[6] for op in products]
    assert all(t is not None and t.shape[0] < 37 for t in tiles)
    assert run(plan, isa, (37, 20)) == run(apart, isa, (37, 20))
    assert plan.memory()["scratch"] < apart.memory()["scratch"]
    assert plan.arena_bytes <= apart.arena_bytes


def test_isas_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = both(monkeypatch, POLICIES["stochastic"], (33, 45, 4), 19)
    first = run(plan, "portable", (19, 7))
    assert all(run(plan, isa, (19, 7)) == first for isa in ISAS)


def test_a_split_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than an int32 holds, brought back by a shift, then requantized."""
    plan, apart = both(monkeypatch, POLICIES["wide"], (700, 9, 3), 5)
    assert "split" in str(plan)
    for isa in ISAS:
        assert run(plan, isa, (5, 3)) == run(apart, isa, (5, 3))


def test_the_plan_says_so() -> None:
    plan = compiled(POLICIES["int8"], (9, 8, 4), 8)
    lines = [line for line in str(plan).splitlines() if "product_s32" in line]
    assert "bias + ReLU + requantize" in lines[0]
    assert "mask + requantize" in lines[4]
    assert "requantize" not in lines[2]  # the loss reads sums
    dynamic = compiled(INT8, (9, 8, 4), 8)
    assert "requantize" not in str(dynamic)
    assert not any(written(dynamic))


KEPT = {
    "packed": q.Sym(4, range=2.0),
    "asym": q.Asym(8, range=2.0),
    "rows": q.Sym(8, axis="row", range=2.0),
    "groups": q.Sym(8, group=4, range=2.0),
    "int32 slots": q.Sym(8, container=32, range=2.0),
    "dynamic": q.Sym(8),
}


@pytest.mark.parametrize("fmt", KEPT.values(), ids=KEPT)
def test_other_formats_keep_their_sums(fmt: q.Format) -> None:
    """More scales than one, or codes in other slots."""
    plan = compiled(INT8.replace(wires=fmt), (9, 8, 4), 8)
    assert not any(written(plan))


def test_a_relu_apart_keeps_the_sums() -> None:
    """Where a mask or another operation stands between, the sums are kept."""
    model = nn.Sequential(
        nn.Linear(6, 5), nn.Quant(q.Sym(8, range=1.0)), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)
    )
    plan = q.compile(
        model,
        input_shape=6,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.1),
        policy=POLICIES["int8"],
        batch=4,
    )
    # forward 0, 2, 4; then dX of 4, whose mask is ReLU's, and of 2, whose mask is the Quant's
    assert written(plan) == [True, True, False, True, False]
