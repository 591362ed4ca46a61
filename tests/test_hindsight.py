"""Hindsight ranges: a Session is the oracle's Net bit for bit, gains too; and how gains behave."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from step_helpers import Case, mlp, same_floats, same_trace

import pyqfw as q
from pyqfw import nn, optim, quant
from pyqfw.lower import requantize

ISAS = quant.core_info()["isas"]
INT8 = q.Policy.int8()
RANDOM: dict[str, Any] = {"rounding": "stochastic"}
HIND: dict[str, Any] = {"range": "hindsight"}
WIRES, ERRORS = q.Sym(8, **HIND), q.Sym(8, **HIND, **RANDOM)
BOTH = INT8.replace(wires=WIRES, errors=ERRORS)
POLICIES = {
    "both": BOTH,
    "fused": BOTH.replace(grads="fused"),
    "wires": INT8.replace(wires=WIRES),
    "errors": INT8.replace(errors=ERRORS),
    "int16": BOTH.replace(
        wires=q.Sym(12, container=16, **HIND, **RANDOM), errors=q.Sym(16, **HIND)
    ),
    "packed": BOTH.replace(wires=q.Sym(5, **HIND), errors=q.Sym(6, **HIND, **RANDOM)),
    "powers of two": BOTH.replace(
        wires=q.Sym(8, scale="pow2", **HIND), errors=q.Sym(7, scale="pow2", **HIND)
    ),
    "asym": BOTH.replace(wires=q.Asym(8, **HIND)),
    "groups": BOTH.replace(wires=q.Sym(8, group=4, **HIND), weights=q.Sym(8, group=3)),
    "one scale": BOTH.replace(weights=q.Sym(8, **RANDOM)),
    "by input": BOTH.replace(weights=q.Sym(8, axis=1)),
    "float forward": BOTH.replace(forward="float32"),
    "float back": BOTH.replace(prop="float32"),
    "float bias": BOTH.replace(bias=q.Float32()),
}
SIZES = {"small": 1e-20, "one": 1.0, "large": 1e3}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", POLICIES)
def test_steps(name: str, isa: str) -> None:
    case = Case(mlp(9, 6, 5, 4), POLICIES[name], rows=(4, 3, 4, 1, 2))
    with quant.isa(isa):
        net, session = case.check()
        same_trace(net, session, *next(case.data()))
    assert session.plan.program.gains.keys() >= {
        f"{path}:{role} gain"
        for path in ("l0", "l1")
        for role, fmt in (("wire", case.policy.wires), ("error", case.policy.errors))
        if fmt.range == "hindsight"
    }


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_sizes_of_data(size: float) -> None:
    Case(mlp(9, 6, 5, 4), BOTH, size=size, rows=(4,) * 6).check()


QUANTS = {
    "of sums": [("linear", "0", 6, 5, True), ("quant", "1", WIRES), ("linear", "2", 5, 3, True)],
    "past ReLU": [
        *(("linear", "0", 6, 5, True), ("relu", "1"), ("quant", "2", q.Sym(4, **HIND))),
        *(("linear", "3", 5, 4, False), ("quant", "4", None), ("relu", "5")),
        ("linear", "6", 4, 3, True),
    ],
    "of a wire": [
        *(("linear", "0", 6, 5, True), ("quant", "1", q.Sym(8)), ("relu", "2")),
        *(("quant", "3", WIRES), ("quant", "4", q.Sym(8, container=16, **HIND))),
        *(("quant", "5", q.Sym(6, **HIND)), ("linear", "6", 5, 3, True)),
    ],
    "of the input": [("quant", "0", WIRES), ("linear", "1", 6, 3, True)],
    "last": [("linear", "0", 6, 5, True), ("linear", "1", 5, 3, True), ("quant", "2", WIRES)],
}


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("policy", [INT8, BOTH], ids=["dynamic", "hindsight"])
def test_quants(name: str, policy: q.Policy) -> None:
    """Errors pass where the code is inside the range."""
    case = Case(QUANTS[name], policy, rows=(4, 4, 3, 4, 4))
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("grain", [{"axis": "row"}, {"group": 3}])
def test_one_gain_for_several_scales(grain: dict[str, Any]) -> None:
    rules = INT8.replace(wires=q.Sym(8, **grain, **HIND), errors=q.Sym(8, **grain))
    Case(mlp(9, 6, 4), rules).check()


def test_positions() -> None:
    layers = [
        *(("linear", "0", 5, 4, True), ("relu", "1"), ("flatten", "2")),
        *(("linear", "3", 12, 6, True), ("relu", "4"), ("linear", "5", 6, 3, True)),
    ]
    Case(layers, BOTH, shape=(3, 5), batch=21, rows=(21, 5, 20)).check()


def test_the_two_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of a product, or sums that are kept and converted."""
    case = Case(mlp(19, 33, 17, 5), BOTH, batch=23, rows=(23, 11, 23))
    plan = case.plan()
    products = [op for op in plan.ops if op.kernel == "product_s32"]
    assert [op.places[0].fmt != q.SymInt32(32) for op in products if op.places[0]] == [
        *(True, True, False),
        *(True, True),
    ]
    monkeypatch.setattr(requantize, "_fusable", lambda *_: None)
    apart = case.plan()
    assert len(apart.ops) == len(plan.ops) + 4
    assert apart.arena_bytes > plan.arena_bytes
    for isa in ISAS:
        with quant.isa(isa):
            nets = q.Session(plan), q.Session(apart)
            for x, y in case.data():
                assert len({net.step(x, y) for net in nets}) == 1
                for name in (*plan.program.parameters, *plan.program.gains):
                    assert len({bytes(net.tensor(name).data) for net in nets}) == 1
            assert nets[0].predict(x).tobytes() == nets[1].predict(x).tobytes()


# ---- how gains behave ----------------------------------------------------------------------------


def gains(net: q.Session) -> dict[str, Any]:
    return {name: net.tensor(name).codes.tolist() for name in net.plan.program.gains}


def started() -> tuple[q.Session, Case]:
    case = Case(mlp(9, 6, 5, 4), BOTH)
    return q.Session(case.plan()), case


def test_a_gain_grows_at_once_and_decays_slowly() -> None:
    net, case = started()
    x, y = next(case.data())
    net.lr = 0.0
    net.step(x, y)
    before = gains(net)["l0:wire gain"][0]
    x[1, 0] = 0.0
    wide = np.where(np.arange(9) % 2, 1.0, -1.0).astype(np.float32) * np.abs(x).max()
    net.step(np.stack([wide] * 4), y)
    grown = gains(net)["l0:wire gain"][0]
    for _ in range(10):
        net.step(x * np.float32(1e-3) + x, y)
    after = gains(net)["l0:wire gain"][0]
    assert max(before, grown) >= after >= min(before, grown * (63 / 64) ** 10 * 0.999)
    assert all(following == 0 for _, following in gains(net).values())


def test_only_an_update_commits() -> None:
    net, case = started()
    x, y = next(case.data())
    net.forward(x)
    first = gains(net)
    assert all(first[n][0] > 0 for n in first if "wire" in n)
    assert all(first[n][0] == 0 for n in first if "error" in n)
    net.forward(3 * x)
    second = gains(net)
    for n in first:
        assert first[n][0] == second[n][0]  # in force
        assert first[n][1] <= second[n][1]  # the larger of both asks
    net.backward(y)
    pending = gains(net)
    assert all(g > 0 and following > 0 for g, following in pending.values())
    net.predict(100 * x)
    assert gains(net) == pending
    net.update()
    assert gains(net) == {n: [following, 0.0] for n, (_, following) in pending.items()}
    net.update()  # by the same gradients: no pass, so nothing to commit
    assert gains(net) == {n: [following, 0.0] for n, (_, following) in pending.items()}


def test_parts_are_a_step() -> None:
    (whole, case), (parts, _), (traced, _) = started(), started(), started()
    for x, y in case.data():
        loss = whole.step(x, y)
        parts.forward(x)
        assert parts.backward(y) == loss
        parts.update()
        list(traced.trace(x, y))
        for name in (*whole.plan.program.parameters, *gains(whole)):
            data = {bytes(net.tensor(name).data) for net in (whole, parts, traced)}
            assert len(data) == 1


def test_a_session_has_no_gain_before_a_batch() -> None:
    net, case = started()
    x, y = next(case.data())
    assert set(map(tuple, gains(net).values())) == {(0.0, 0.0)}
    with pytest.raises(q.QfwError, match=r"predict: 'l0:wire gain' is not known yet: .*step\(\)"):
        net.predict(x)
    before = {n: bytes(net.tensor(n).data) for n in net.plan.program.parameters}
    with pytest.raises(q.NonFiniteError):
        net.step(np.full_like(x, np.nan), y)
    with pytest.raises(q.QfwError, match=r"label|classes"):
        net.step(x, y + 100)
    assert set(map(tuple, gains(net).values())) == {(0.0, 0.0)}
    assert before == {n: bytes(net.tensor(n).data) for n in net.plan.program.parameters}
    net.step(x, y)
    net.predict(x)
    kept = gains(net)
    with pytest.raises(q.QfwError, match=r"label|classes"):
        net.step(2 * x, y + 100)  # found after the forward: the next gain is put back
    assert gains(net) == kept


def test_zeros_are_no_range() -> None:
    """The first gain is 1 where nothing but zeros was seen."""
    case = Case(mlp(4, 3, 2, bias=False), BOTH, size=0.0)
    _, session = case.check()
    assert gains(session)["l0:wire gain"][0] < 1
    session = q.Session(case.plan())
    session.forward(np.zeros((4, 4), np.float32))
    assert gains(session)["l0:wire gain"][0] == 1


def test_recompile_carries_gains_where_they_mean_the_same() -> None:
    net, case = started()
    for x, y in case.data():
        net.step(x, y)
    twin = net.recompile(batch=2, optimizer=optim.SGD(0.01))
    assert gains(twin) == gains(net)
    same_floats(twin.predict(x), net.predict(x), "predict")
    other = net.recompile(policy=BOTH.replace(wires=q.Sym(6, **HIND)))
    mine = gains(other)
    assert mine["l0:wire gain"] == [0.0, 0.0]
    assert mine["l0:error gain"] == gains(net)["l0:error gain"]
    other.step(x, y)
    assert gains(other)["l0:wire gain"][0] > 0


def test_an_inference_plan_is_calibrated_by_a_forward() -> None:
    net, case = started()
    x, y = next(case.data())
    net.step(x, y)
    asked = net.recompile(loss=None, optimizer=None)
    same_floats(asked.predict(x), net.predict(x), "predict")
    fresh = q.Session(asked.plan)
    fresh.forward(x)
    fresh.predict(x)


def test_an_inference_of_its_own_has_the_same_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    net, case = started()
    monkeypatch.setattr(nn.ReLU, "trains_otherwise", True)
    own = q.Session(case.plan())
    assert len(own.plan.program.sections["infer"]) == 5
    assert own.plan.program.gains.keys() == net.plan.program.gains.keys()
    for x, y in case.data():
        assert own.step(x, y) == net.step(x, y)
        kept = gains(own)
        assert own.predict(5 * x).tobytes() == net.predict(5 * x).tobytes()
        assert gains(own) == kept == gains(net)


def test_the_core_refuses_what_is_no_gain() -> None:
    for bad in ((0.0, 0.0), (-1.0, 0.0), (np.nan, 0.0), (1.0, np.inf), (1.0, -1.0), (1e-40, 0.0)):
        net, case = started()
        x, y = next(case.data())
        net.step(x, y)
        held = net._gains["l0:wire gain"].view(np.float32)
        held[:] = bad
        with pytest.raises(q.QfwError, match="scale"):
            net._run("forward", len(x), x=x)


REFUSED = {
    "the input": ({"input": WIRES}, r"input=.*hindsight.*choose range=\"dynamic\" or a number"),
    "rows": ({"input": q.Sym(8, axis="row")}, "layer 'l0': wires=.*'input:wire' has several"),
    "errors by row": (
        {"errors": q.Sym(8, axis="row", **HIND)},
        "layer 'l1': errors=.* has several",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_one_scale_is_refused(name: str) -> None:
    changes, words = REFUSED[name]
    with pytest.raises(q.QfwError, match=words):
        Case(mlp(9, 6, 5, 4), BOTH.replace(**changes)).plan()


# ---- digits --------------------------------------------------------------------------------------

SEEDS, EPOCHS, BATCH = range(3), 20, 32


@cache
def digits() -> tuple[Any, Any]:
    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target


def score(policy: q.Policy, seed: int) -> float:
    """Test accuracy in percent, the mean of the last three epochs."""
    x, y = digits()
    net = q.Session(digits_plan(policy, BATCH, seed))
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(EPOCHS):
        order = rng.permutation(1347)
        for i in range(0, 1347, BATCH):
            net.step(x[order[i : i + BATCH]], y[order[i : i + BATCH]])
        found.append(100 * np.mean(net.predict(x[-450:]).argmax(axis=1) == y[-450:]))
    return float(np.mean(found[-3:]))


def digits_plan(policy: q.Policy, batch: int, seed: int = 0) -> q.Plan:
    return q.compile(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        input_shape=64,
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.05, momentum=0.9),
        policy=policy,
        batch=batch,
        seed=seed,
    )


def test_digits_are_learnt_as_well() -> None:
    floats = np.mean([score(q.Policy.float32(), seed) for seed in SEEDS])
    scores = [score(BOTH, seed) for seed in SEEDS]
    assert floats > 90
    assert abs(np.mean(scores) - floats) <= 1.0, f"{scores} against {floats}"


@pytest.mark.parametrize("batch", [128, 512])
def test_there_are_no_sums_in_memory(batch: int) -> None:
    """Where those of a layer are the most that a step has at a time."""
    hindsight, dynamic = (digits_plan(p.replace(grads="fused"), batch) for p in (BOTH, INT8))
    assert hindsight.arena_bytes < dynamic.arena_bytes
    sums = 4 * 32 * batch
    shapes = [t.nbytes(batch) for op in hindsight.ops for t in op.used if t.fmt == q.SymInt32(32)]
    assert sums not in shapes
    assert max(shapes) < sums
