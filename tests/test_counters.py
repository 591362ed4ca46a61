"""Counters against the oracle, exactly; and that nothing else depends on them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from math import isnan, log2, nan
from typing import Any

import numpy as np
import pytest
from oracle_counters import Count, Counting
from plan_net import NAMES, TABLES, Net
from session_helpers import POLICIES, data, held, session, train
from step_helpers import FLOAT, Case, mlp, policy, same_kept

import pyqfw as q
from pyqfw import nn, optim
from pyqfw._core import ffi, lib
from pyqfw.counters import RECORD, Counters

INT8 = q.Policy.int8()
WITH_QUANT = [*mlp(9, 6), ("quant", "q", q.Sym(8, range=0.25)), *mlp(6, 4)]
WITH_QUANT[2] = ("linear", "end", 6, 4, True)

# ---- against the oracle --------------------------------------------------------------------------


def same(found: Counters, expected: dict[str, Count]) -> None:
    """Every number of every tensor; a tensor that nothing encodes has zeros."""
    assert set(expected) <= set(found)
    for name, counter in found.items():
        count = expected.get(name, Count())
        for f in fields(Count):
            want = getattr(count, f.name)
            want = nan if f.name in ("least", "most") and not count.most else want
            np.testing.assert_equal(getattr(counter, f.name), want, f"{name}: {f.name}")


def counted(case: Case, end: int = 0) -> tuple[Counters, dict[str, Count]]:
    """Both opinions after the steps of a case; `end`: the steps that were done before them."""
    oracle, net = Counting(case.net()), q.Session(case.plan(), counters=True)
    if end:
        oracle.net.steps = end
        net._progress.step = net._progress.updates = end
        net._progress.lr = case.sgd.lr
        assert lib.qfw_set_progress(net._net, net._progress) == lib.QFW_OK
    for x, y in case.data():
        oracle.step(x, y)
        net.step(x, y)
    same_kept(oracle.net, net)
    return net.counters(), dict(oracle.counts)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "sgd",
    [
        optim.SGD(0.1),
        optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        optim.SGD(0.003, momentum=0.9, dampening=0.5, rounding="half_even"),
        optim.SGD(1e-6, weight_decay=1.0, rounding="half_away"),
    ],
    ids=repr,
)
def test_counts_are_the_oracles(name: str, sgd: optim.SGD) -> None:
    same(*counted(Case(mlp(9, 6, 4), POLICIES[name], sgd, rows=(4, 3, 4, 4, 1))))


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("kind", [q.Sym, q.Asym])
@pytest.mark.parametrize("grads", [q.Sym(8), FLOAT], ids=repr)
def test_widths(kind: type[q.Format], bits: int, grads: q.Format) -> None:
    """Of the integer step and of the float32 step."""
    fmt = kind(bits, rounding="stochastic")
    rules = policy(q.Sym(8), weights=fmt, bias=fmt, state=fmt, grads=grads)
    same(*counted(Case(mlp(9, 6, 4), rules, rows=(4,) * 6, size=4.0)))


def test_fixed_ranges_saturate() -> None:
    rules = INT8.replace(
        input=q.Sym(8, range=1.0),
        wires=q.Asym(6, range=0.5),
        errors=q.Sym(8, range=0.1),
        grads=q.Sym(4, rounding="stochastic", range=0.01),
    )
    found, expected = counted(Case(mlp(9, 6, 4), rules, rows=(4,) * 6))
    same(found, expected)
    for name in ("input:wire", "l0:wire", "l1:error", "l1.weight:grad"):
        assert 0 < found[name].saturated < found[name].written, name


def test_a_quant_counts_as_a_wire() -> None:
    found, expected = counted(Case(WITH_QUANT, INT8, rows=(4,) * 3))
    same(found, expected)
    assert found["q:wire"].saturated_fraction > 0


@pytest.mark.parametrize("steps", [255, 256])
def test_halved_scales(steps: int) -> None:
    """Every 256 steps the codes of a range that is used too little are doubled."""
    sgd = optim.SGD(1e-6, momentum=0.9)
    rules = INT8.replace(weights=q.Sym(8, axis=0), state=q.Sym(8))
    case = Case(mlp(9, 6, 4), rules, sgd, rows=(4,))
    found, expected = counted(case, end=steps)
    same(found, expected)
    assert (sum(c.halved for c in found.values()) > 0) == (steps == 256)


# ---- what they tell ------------------------------------------------------------------------------


def four_bits(rounding: str) -> Counters:
    rules = INT8.replace(weights=q.Sym(4, axis=0, rounding="stochastic"))
    net = session(rules, optimizer=optim.SGD(0.05, rounding=rounding))
    net.count()
    return train(net, 20).counters()


def test_deterministic_rounding_loses_updates() -> None:
    """At 4 bits a step is far below half a code: to nearest nearly all are lost, at random none."""
    nearest, random = four_bits("half_even"), four_bits("stochastic")
    for name in ("0.weight", "2.weight", "5.weight"):
        assert nearest[name].zero_update_fraction > 0.99
        assert nearest[name].dead == nearest[name].unmoved
        assert random[name].zero_update_fraction < nearest[name].zero_update_fraction
        assert random[name].dead_fraction < 0.001
        moved = {n: c[name].asked - c[name].unmoved for n, c in (("n", nearest), ("r", random))}
        assert moved["r"] > 5 * moved["n"]


def test_tiny_steps_are_dead_at_random_too() -> None:
    """Below the resolution of the draws no draw helps."""
    net = session(INT8, optimizer=optim.SGD(1e-12))
    net.count()
    found = train(net, 4).counters()["0.weight"]
    assert 0.3 < found.dead_fraction < 0.7  # a negative step is rounded down by some draw
    assert found.zero_update_fraction == 1


def test_drift_is_the_scale_against_the_first() -> None:
    net = session("int8", optimizer=optim.SGD(1.0))
    before = {n: net.tensor(n).scale for n in net.plan.program.parameters}
    net.count()
    for name, c in train(net, 30).counters().items():
        if name in before:
            now = net.tensor(name).scale
            assert c.drift == np.mean(np.log2(now / before[name]))
            assert c.least <= np.min(before[name])
            assert c.most >= np.max(now)
            assert c.spread == log2(c.most) - log2(c.least)
        else:
            assert isnan(c.drift)
    assert net.counters()["0.weight"].drift > 0


def test_a_tensor_of_zeros_has_no_scale_to_see() -> None:
    net = session("int8")
    net.count()
    net.forward(np.zeros((3, 10)))
    wire = net.counters()["input:wire"]
    assert (wire.written, wire.saturated) == (30, 0)
    assert isnan(wire.least)
    assert isnan(wire.most)
    assert isnan(wire.spread)


# ---- that nothing depends on them ----------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_bits_on_and_off(name: str) -> None:
    off, on = session(name), session(name)
    for i in range(12):
        if i % 4 == 0:
            on.count(on=i != 4)
        x, y = data(seed=i)
        assert off.step(x, y) == on.step(x, y)
        assert held(off) == held(on)
        assert off.predict(x).tobytes() == on.predict(x).tobytes()
    assert off._spaces.arena[lib.QFW_NET_BYTES :].tobytes() == (
        on._spaces.arena[lib.QFW_NET_BYTES :].tobytes()
    )


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", ["int8", "4 bits", "integers stored, floats computed"])
def test_counts_do_not_depend_on_the_kernels(name: str, table: Any) -> None:
    plan = session(name).plan
    x, y = data()
    seen = []
    for kernels in (TABLES[0], table):
        net = Net(plan.to_bytes(), kernels)
        records = np.zeros(len(plan.program.tensors), RECORD)
        with q.quant.float_mode():
            assert net.open() == "OK"
            assert net.attach(records) == "OK"
            for _ in range(3):
                assert net.step(x, y.astype(np.int32), len(x))[0] == "OK"
        seen.append(records.tobytes())
        assert records["written"].sum() > 0
    assert seen[0] == seen[1]


def test_parts_and_trace_count_as_a_step_does() -> None:
    nets = [session("int8 fused") for _ in range(3)]
    for net in nets:
        net.count()
    x, y = data()
    nets[0].step(x, y)
    nets[1].forward(x)
    nets[1].backward(y)
    nets[1].update()
    list(nets[2].trace(x, y))
    assert nets[0].counters() == nets[1].counters() == nets[2].counters()


def test_predictions_count() -> None:
    net = session("int8")
    net.count()
    net.predict(data(rows=5)[0])
    found = net.counters()
    assert found["input:wire"].written == 50
    assert found["0.weight"].written == 0


# ---- the interface -------------------------------------------------------------------------------


def test_off_unless_asked() -> None:
    net = session("int8")
    with pytest.raises(q.QfwError, match=r"count\(\).*Session\(plan, counters=True\)"):
        net.counters()
    net.count()
    train(net)
    assert net.counters()["0.weight"].written > 0
    for other in (net.recompile(batch=4), q.Session(net.plan)):
        with pytest.raises(q.QfwError, match="nothing is counted"):
            other.counters()
    net.count(False)
    with pytest.raises(q.QfwError, match="nothing is counted"):
        net.counters()
    train(net)


def test_from_zero_again() -> None:
    net = q.Session(session("int8").plan, counters=True)
    kept = train(net).counters(reset=True)
    assert kept["0.weight"].written == 3 * 90
    assert net.counters()["0.weight"].written == 0
    train(net, 1)
    assert net.counters()["0.weight"].written == 90
    assert kept["0.weight"].written == 3 * 90  # what was read stays
    net.count()
    assert net.counters()["0.weight"].written == 0


def test_a_mapping_by_name() -> None:
    net = session("int8")
    net.count()
    found = train(net).counters()
    program = net.plan.program
    assert {*program.parameters, *(t.name for t in program.states.values())} <= set(found)
    assert {"input:wire", "0:wire", "5:error", "0.weight:grad"} <= set(found)
    assert len(found) == len(list(found))
    assert {c.role for c in found.values()} == {"parameter", "gradient", "state", "wire", "error"}
    with pytest.raises(FrozenInstanceError):
        found["0.weight"].written = 1  # type: ignore[misc]
    with pytest.raises(KeyError):
        found["0.weights"]
    never = found["4:wire"]  # ReLU on stored codes: nothing is rounded
    assert isnan(never.saturated_fraction)
    assert isnan(never.zero_update_fraction)
    assert isnan(never.dead_fraction)


def test_a_table_to_read() -> None:
    net = session("fixed ranges")
    net.count()
    text = str(train(net).counters())
    head, *rows = text.splitlines()
    assert " ".join(head.split()) == "tensor codes saturated updates zero dead drift scales"
    assert [row.split()[0] for row in rows] == list(net.counters())
    c = net.counters()["0.weight"]
    line = next(row for row in rows if row.startswith("0.weight ")).split()
    assert line[1:4] == [str(c.written), f"{c.saturated_fraction:.2%}", str(c.asked)]
    assert line[4:7] == [
        f"{c.zero_update_fraction:.2%}",
        f"{c.dead_fraction:.2%}",
        f"{c.drift:+.2f}",
    ]
    assert repr(net.counters()) == text


def test_frozen_layers_and_floats_are_not_counted() -> None:
    net = session("int8").recompile(train=["5"])
    net.count()
    found = train(net).counters()
    assert "0.weight" not in found
    assert found["5.weight"].asked > 0
    floats = session("float32")
    floats.count()
    assert dict(train(floats).counters()) == {}


def test_a_plan_for_inference() -> None:
    plan = q.compile(nn.Linear(3, 2), input_shape=3, policy=INT8.replace(input=q.Sym(8, range=1.0)))
    net = q.Session(plan, counters=True)
    net.predict([[2.0, 0.5, -7.0]])
    assert net.counters()["input:wire"].saturated_fraction == 2 / 3


# ---- the core ------------------------------------------------------------------------------------


def test_the_record_is_the_cores() -> None:
    assert ffi.sizeof("qfw_counter") == RECORD.itemsize
    for name, field in ffi.typeof("qfw_counter").fields:
        assert field.offset == RECORD.fields[name][1]
        assert ffi.sizeof(field.type) == RECORD[name].itemsize


def test_the_core_wants_a_record_for_each_tensor() -> None:
    plan = session("int8").plan
    net = Net(plan.to_bytes())
    with q.quant.float_mode():
        assert net.open() == "OK"
    n = len(plan.program.tensors)
    for size in (0, n - 1, n + 1):
        assert net.attach(np.zeros(size, RECORD)) == "SIZE"
    assert net.attach(np.zeros(n, RECORD)) == "OK"
    assert net.attach(None) == "OK"
    assert NAMES[lib.qfw_set_counters(ffi.NULL, ffi.NULL, 0)] == "NULL"
