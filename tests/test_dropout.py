"""Dropout: steps of chains against the oracle, bit for bit; inference has none of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import oracle as o
import pytest
from oracle_layers import kept_by
from oracle_tensor import stream
from session_helpers import POLICIES, held
from step_helpers import Case, same_floats, same_trace

import pyqfw as q
from pyqfw import nn

MSE = nn.MSELoss()
INT8 = POLICIES["int8"]


def dropping(p: float = 0.4) -> list[tuple]:
    """On the input, on sums, after ReLU, on what a Quant stored, on the output."""
    return [
        ("dropout", "z", p),
        ("linear", "a", 7, 9, True),
        ("dropout", "b", p),
        ("relu", "c"),
        ("linear", "d", 9, 6, False),
        ("relu", "e"),
        ("dropout", "f", p),
        ("quant", "g", None),
        ("dropout", "h", p),
        ("leaky", "i", 0.1),
        ("linear", "j", 6, 4, True),
        ("dropout", "k", p),
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_a_step_with_dropout_under_every_policy(name: str) -> None:
    case = Case(dropping(), POLICIES[name])
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("p", [0.0, 1.0, 0.5, 0.1, 0.999, 1e-12, 1 - 2.0**-40, 2.0**-33])
@pytest.mark.parametrize("name", ["int8", "float32", "asym", "groups"])
def test_probabilities(name: str, p: float) -> None:
    Case(dropping(p), POLICIES[name], loss=MSE, rows=(4, 3)).check()


@pytest.mark.parametrize("name", ["int8", "float32", "rows", "full_sym"])
def test_after_softmax_backward_has_the_probabilities_themselves(name: str) -> None:
    layers = [
        ("linear", "a", 5, 6, True),
        ("softmax", "b", -1),
        ("dropout", "c", 0.5),
        ("dropout", "d", 0.2),
        ("linear", "e", 6, 3, True),
    ]
    Case(layers, POLICIES[name]).check()


def test_other_granularities_and_positions() -> None:
    layers = [
        ("linear", "a", 3, 5, True),
        ("dropout", "b", 0.3),
        ("flatten", "c"),
        ("quant", "d", q.BFP(6, 4)),
        ("dropout", "e", 0.3),
        ("linear", "f", 20, 3, True),
    ]
    for name in ("int8", "rows", "float32"):
        Case(layers, POLICIES[name], shape=(4, 3), batch=5, rows=(5, 2)).check()


# ---- which elements ------------------------------------------------------------------------------


def session(policy: str = "int8", p: float = 0.5, **changes: Any) -> q.Session:
    model = nn.Sequential(
        nn.Linear(6, 33), nn.ReLU(), nn.Dropout(p), nn.Linear(33, 4), nn.Dropout(p)
    )
    given: dict[str, Any] = {"loss": nn.CrossEntropyLoss(), "optimizer": q.optim.SGD(0.1)}
    given |= {"batch": 8, "policy": POLICIES[policy], **changes}
    return q.Session(q.compile(model, input_shape=6, **given))


X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
Y = np.arange(8) % 4


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_draws_are_those_of_the_page(p: float) -> None:
    """The output in float32: zeros exactly where the oracle says."""
    net = session("float32", p, seed=9)
    for _ in range(3):
        out = net.forward(X)
        key = o.key(9, net.steps, stream("4", "dropout"))
        keeps = kept_by(key, p, out.shape)
        np.testing.assert_array_equal(out == 0, ~keeps)
        net.backward(Y)
        net.update()


def test_a_share_is_dropped_and_the_mean_stays() -> None:
    model = nn.Sequential(nn.Linear(1, 1000, bias=False), nn.Dropout(0.3))
    plan = q.compile(model, input_shape=1, loss=MSE, optimizer=q.optim.SGD(0.0), batch=64)
    net, x = q.Session(plan), np.ones((64, 1), np.float32)
    net.load_state_dict({"0.weight": np.ones((1000, 1))})
    out = net.forward(x)
    assert (out == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert out.mean() == pytest.approx(1, abs=0.015)
    assert set(np.unique(out)) == {0, np.float32(1 / 0.7)}
    net.backward(np.zeros_like(out))
    net.update()
    assert not np.array_equal(net.forward(x) == 0, out == 0)  # another step, other draws


def test_the_same_seed_drops_the_same() -> None:
    runs = []
    for seed in (1, 1, 2):
        net = session(seed=seed)
        runs.append([net.step(X, Y) for _ in range(4)])
    assert runs[0] == runs[1] != runs[2]


# ---- inference -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["int8", "full_sym", "float32", "rows", "stochastic wires"])
def test_predictions_have_no_dropout(policy: str) -> None:
    """They are those of the network without it, for a row alone and among 512."""
    net = session(policy)
    for _ in range(3):
        net.step(X, Y)
    bare = nn.Sequential({"0": nn.Linear(6, 33), "1": nn.ReLU(), "3": nn.Linear(33, 4)})
    plan = q.compile(bare, input_shape=6, policy=POLICIES[policy], loss=nn.CrossEntropyLoss())
    other = q.Session(plan)
    for name in net.plan.program.parameters:
        other._spaces.write(other.plan.program.parameters[name], net.tensor(name))
    progress = other._get()
    progress.step = net.steps
    other._done(q._core.lib.qfw_set_progress(other._net, progress), "test")
    x = np.random.default_rng(5).normal(size=(512, 6)).astype(np.float32)
    many = net.predict(x)
    same_floats(many, other.predict(x), "predictions")
    for i in (0, 7, 511):
        same_floats(net.predict(x[i : i + 1]), many[i : i + 1], "a row alone")
    assert (net.forward(X) != net.predict(X)).any()


def test_a_prediction_leaves_a_step_as_it_is() -> None:
    """Nothing that lasts changes, and the steps after it are the same."""
    nets = [session(), session()]
    for _ in range(3):
        assert nets[0].step(X, Y) == nets[1].step(X, Y)
        before = held(nets[0])
        nets[0].predict(X)
        assert held(nets[0]) == before
    nets[0].forward(X)
    nets[0].predict(X)
    with pytest.raises(q.QfwError, match="backward needs a forward right before it"):
        nets[0].backward(Y)
    with pytest.raises(q.QfwError, match="there is none before a forward, or after a predict"):
        nets[0].wire("0")


def test_a_plan_without_a_loss_has_none() -> None:
    plan = session(loss=None, optimizer=None).plan
    assert "dropout" not in str(plan)
    assert plan.program.sections["infer"] == []


def test_the_plan_shows_both_ways() -> None:
    plan = session().plan
    kernels = {name: [op.kernel for op in ops] for name, ops in plan.program.sections.items()}
    assert kernels["forward"].count("dropout") == kernels["backward"].count("dropout") == 2
    assert "dropout" not in kernels["infer"]
    assert kernels["infer"][-1] == "convert"
    text = str(plan)
    assert text.index("\nupdate\n") < text.index("\ninfer\n")
    content = json.loads(plan.to_json())
    assert len(content["sections"]["infer"]) == len(kernels["infer"])
    memory = plan.memory()
    assert memory["arena"] == plan.arena_bytes
    assert q.Session(plan).plan.section("update").stop == len(plan.ops)


def test_trace_and_wire_show_what_a_step_dropped() -> None:
    net = session()
    net.forward(X)
    codes = net.wire("2").codes
    keeps = kept_by(o.key(0, 0, stream("2", "dropout")), 0.5, codes.shape)
    assert not codes[~keeps].any()
    assert codes[keeps].any()
    names = [op.kernel for op, _ in session().trace(X, Y)]
    assert names.count("dropout") == 4


def test_recompiling_without_dropout_keeps_the_weights() -> None:
    net = session()
    net.step(X, Y)
    again = net.recompile(policy=POLICIES["float32"], batch=2)
    assert again.steps == 1
    again.step(X[:2], Y[:2])


# ---- names and errors ----------------------------------------------------------------------------


def test_it_prints_as_in_pytorch() -> None:
    assert repr(nn.Dropout()) == "Dropout(p=0.5, inplace=False)"
    assert repr(nn.Dropout(0.1, True)) == "Dropout(p=0.1, inplace=True)"


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan, np.inf, "0.5", None, True])
def test_probabilities_that_are_none(p: object) -> None:
    with pytest.raises(q.QfwError, match="Dropout: p must be a number between 0 and 1, not"):
        nn.Dropout(p)  # type: ignore[arg-type]


def test_raw_passes_through_it_to_a_quant() -> None:
    def bits(output: object) -> bytes:
        model = nn.Sequential(nn.Linear(6, 5, output=output), nn.Dropout(), nn.Quant())
        plan = q.compile(
            nn.Sequential(model, nn.Linear(5, 4)),
            input_shape=6,
            loss=nn.CrossEntropyLoss(),
            optimizer=q.optim.SGD(0.1),
            policy=INT8,
            batch=8,
        )
        net = q.Session(plan)
        net.step(X, Y)
        return bytes(net.tensor("0.0.weight").data)

    assert bits(nn.RAW) == bits(None)
