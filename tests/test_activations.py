"""ReLU6, Sigmoid and Tanh: steps of chains against the oracle, bit for bit; names and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from session_helpers import POLICIES, held
from step_helpers import Case, policy, same_kept, same_step, same_trace

import pyqfw as q
from pyqfw import nn, optim, quant

KINDS = ("relu6", "sigmoid", "tanh")
ISAS = quant.core_info()["isas"]
MSE = nn.MSELoss()
INT8 = POLICIES["int8"]
RANDOM: dict[str, Any] = {"rounding": "stochastic"}
HIND: dict[str, Any] = {"range": "hindsight"}
CLASSES = {"relu6": nn.ReLU6, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


def chain(kind: str, n: int = 6) -> list[tuple]:
    """After a product, after what is stored, after a Quant, and at the end."""
    return [
        ("linear", "a", 5, n, True),
        (kind, "b"),
        ("linear", "c", n, 7, False),
        ("quant", "d", None),
        (kind, "e"),
        ("linear", "f", 7, 4, True),
        (kind, "g"),
    ]


def crowd(kind: str) -> list[tuple]:
    """Beside every other layer, and twice in a row."""
    return [
        (kind, "a"),
        ("linear", "b", 5, 6, True),
        ("norm", "c", (6,), 1e-5, True, True),
        (kind, "d"),
        ("dropout", "e", 0.3),
        ("linear", "f", 6, 6, True),
        ("leaky", "g", 0.3),
        (kind, "h"),
        ("leaky", "i", 0.2),
        ("relu", "j"),
        ("linear", "k", 6, 6, True),
        (kind, "l"),
        ("norm", "m", (6,), 1e-5, True, False),
        ("softmax", "n", -1),
        (kind, "o"),
        (kind, "p"),
        ("linear", "q", 6, 5, True),
        ("tanh", "r"),
        ("relu6", "s"),
        ("dropout", "t", 0.2),
        ("sigmoid", "u"),
    ]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_step_under_every_policy(name: str, kind: str, isa: str) -> None:
    with quant.isa(isa):
        case = Case(chain(kind), POLICIES[name], size=4.0)
        net, session = case.check()
        same_trace(net, session, *next(case.data()))
        Case(chain(kind), POLICIES[name], loss=MSE, size=0.5).check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", POLICIES)
def test_beside_every_other_layer(name: str, kind: str) -> None:
    case = Case(crowd(kind), POLICIES[name], loss=MSE, size=3.0)
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("forward", ["sym", "float32"])
@pytest.mark.parametrize("prop", ["sym", "float32"])
def test_mixed_arithmetic(forward: str, prop: str, kind: str) -> None:
    rules = INT8.replace(forward=forward, prop=prop)
    for fmt in (q.Sym(8), q.Float32()):
        case = Case(chain(kind), rules.replace(wires=fmt, errors=fmt), size=4.0)
        case.check()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_with_an_arithmetic_of_their_own(kind: str) -> None:
    """Floats that integers read, and integers that floats read."""
    for name, other in (("full_sym", "float32"), ("float32", "sym")):
        own = {path: {"forward": other, "prop": other} for path in ("a", "f")}
        case = Case(chain(kind), POLICIES[name], own=own, loss=MSE, size=4.0)
        case.check()


FORMATS = [
    *(q.Asym(8), q.Asym(16), q.Asym(3), q.Asym(1), q.Asym(9, container=32)),
    *(q.Sym(2), q.Sym(7), q.Sym(16), q.Sym(12, container=16), q.Sym(5, container=32, **RANDOM)),
    *(q.Sym(8, axis="row"), q.Asym(7, axis="row"), q.Sym(8, group=4), q.Asym(5, group=3)),
    *(q.BFP(8, 4), q.BFP(3, 2), q.Sym(8, scale="pow2"), q.Sym(8, rounding="half_even")),
    *(q.Sym(8, range=0.5), q.Sym(8, range=8.0), q.Asym(6, range=1.5), q.Sym(4, range=0.7)),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_wires_and_errors_of_any_format(fmt: q.Format, kind: str) -> None:
    Case(chain(kind), INT8.replace(wires=fmt, errors=fmt), loss=MSE, size=3.0).check()
    Case(chain(kind), INT8.replace(input=fmt, wires=fmt, forward="float32")).check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [2, 3, 8, 16])
@pytest.mark.parametrize("n", [1, 31, 33, 70])
def test_columns_and_widths(n: int, bits: int, kind: str) -> None:
    rules = policy(q.Sym(bits, container=16, **RANDOM), bias=q.Sym(16))
    Case(chain(kind, n), rules, loss=MSE, rows=(3, 4), batch=4).check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-20, 1e-6, 1e3, 1e10, 1e25])
def test_extreme_sizes(size: float, kind: str) -> None:
    for name in ("int8", "full_sym", "floats stored, integers computed"):
        Case(chain(kind), POLICIES[name], loss=MSE, size=size).check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reach", [1e-36, 1e-30, 1e30])
def test_errors_of_extreme_sizes(reach: float, kind: str) -> None:
    """Scales near the end of the normal numbers are not made smaller than these."""
    layers = [("linear", "a", 5, 6, True), (kind, "b"), ("linear", "c", 6, 4, False), (kind, "d")]
    Case(layers, INT8, loss=MSE, size=reach, reach=reach).check()


@pytest.mark.parametrize("kind", KINDS)
def test_scales_by_row_and_by_column_of_the_errors(kind: str) -> None:
    row = q.Sym(8, axis="row", **RANDOM)
    for weights in (q.Sym(8, axis=1), q.Sym(8), q.Sym(6, group=3)):
        rules = INT8.replace(wires=row, errors=row, weights=weights, bias=q.Float32())
        rules = rules.replace(state=q.Sym(8), grads=q.Sym(8))
        Case(chain(kind), rules, size=3.0).check()


@pytest.mark.parametrize("kind", KINDS)
def test_positions(kind: str) -> None:
    layers = [
        ("linear", "a", 3, 5, True),
        (kind, "b"),
        ("quant", "c", q.Sym(8, range=3.0)),
        (kind, "d"),
        ("flatten", "e"),
        ("linear", "f", 20, 3, True),
    ]
    for name in ("int8", "rows", "groups", "float32"):
        Case(layers, POLICIES[name], shape=(4, 3), size=4.0).check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["float32", "full_sym", "int8", "groups", "asym", "fixed ranges"])
@pytest.mark.parametrize("parts", [2, 3])
def test_micro_batches(name: str, kind: str, parts: int) -> None:
    case = Case(crowd(kind), POLICIES[name], loss=MSE, micro_batches=parts, size=2.0)
    net, session = case.net(), q.Session(case.plan())
    for x, y in case.data():
        assert np.float32(session.step(x, y)).tobytes() == net.step(x, y).tobytes()
        same_kept(net, session)


WIRES, ERRORS = q.Sym(8, **HIND), q.Sym(8, **HIND, **RANDOM)
BOTH = INT8.replace(wires=WIRES, errors=ERRORS)
HINDSIGHT = {
    "both": BOTH,
    "wires": INT8.replace(wires=WIRES),
    "errors": INT8.replace(errors=ERRORS),
    "packed": BOTH.replace(wires=q.Sym(5, **HIND), errors=q.Sym(6, **HIND)),
    "asym": BOTH.replace(wires=q.Asym(8, **HIND)),
    "powers of two": BOTH.replace(wires=q.Sym(8, scale="pow2", **HIND)),
    "float forward": BOTH.replace(forward="float32"),
    "float back": BOTH.replace(prop="float32"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HINDSIGHT)
def test_hindsight_ranges(name: str, kind: str) -> None:
    case = Case(chain(kind), HINDSIGHT[name], rows=(4, 3, 4, 1, 2), size=3.0)
    net, session = case.net(), q.Session(case.plan())
    for x, y in case.data():
        same_step(net, session, x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_optimizers_and_fused_gradients(kind: str) -> None:
    fused = INT8.replace(grads="fused")
    Case(chain(kind), fused, optim.SGD(0.1), size=3.0).check()
    Case(chain(kind), INT8, optim.AdamW(0.01, max_grad_norm=0.5), size=3.0).check()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_frozen_layer_made(kind: str) -> None:
    layers = [("linear", "a", 5, 6, True), (kind, "b"), ("linear", "c", 6, 3, True), (kind, "d")]
    for frozen in ("a", "c"):
        Case(layers, INT8, frozen=(frozen,), size=3.0).check()


# ---- what the layers do --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full_sym", "int8", "asym", "rows", "groups"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_floats(kind: str, name: str) -> None:
    """Integers against float32 from the same weights, within what their bits lose."""
    made = [Case(chain(kind, 16), POLICIES[n], loss=MSE, size=2.0) for n in (name, "float32")]
    sessions = [q.Session(case.plan()) for case in made]
    x, y = next(made[0].data())
    for net in sessions:
        net.forward(x)
        net.backward(y)
    most = 0.02 if name == "full_sym" else 0.2
    for parameter in ("a.weight", "c.weight", "f.weight"):
        a, b = (net.grad(parameter).numpy() for net in sessions)
        assert np.linalg.norm(a - b) < most * np.linalg.norm(b), parameter


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["float32", "full_sym", "int8"])
def test_they_learn(kind: str, name: str) -> None:
    """Which of two numbers is larger, from their signs and sizes: no linear function of them."""
    model = nn.Sequential(
        nn.Linear(2, 16), CLASSES[kind](), nn.Linear(16, 16), CLASSES[kind](), nn.Linear(16, 2)
    )
    plan = q.compile(
        model,
        input_shape=2,
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.2, momentum=0.9),
        policy=POLICIES[name],
        batch=32,
    )
    net, rng = q.Session(plan), np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(2048, 2)).astype(np.float32)
    y = (np.abs(x[:, 0]) > np.abs(x[:, 1])).astype(np.int64)
    for epoch in range(25):
        for i in range(0, len(x), 32):
            net.step(x[i : i + 32], y[i : i + 32])
        if epoch == 20:
            net.lr = 0.02
    assert (net.predict(x).argmax(1) == y).mean() > 0.93


@pytest.mark.parametrize("kind", KINDS)
def test_raw_and_what_reads_it(kind: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4, output=nn.RAW), CLASSES[kind](), nn.Quant())
    if kind == "relu6":
        assert q.Session(q.compile(model, input_shape=3)).predict(np.ones((2, 3))).shape == (2, 4)
    else:
        with pytest.raises(q.QfwError, match="output=RAW, but '1'"):
            q.compile(model, input_shape=3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["int8", "float32"])
def test_a_saved_net_goes_on(kind: str, name: str, tmp_path: Any) -> None:
    case = Case(chain(kind), POLICIES[name], size=3.0)
    net = q.Session(case.plan())
    data = list(case.data())
    net.step(*data[0])
    net.save(tmp_path / "net")
    again = q.Session.load(tmp_path / "net")
    assert repr(again.plan.request.model) == repr(net.plan.request.model)
    for x, y in data:
        assert net.step(x, y) == again.step(x, y)
    assert held(net) == held(again)


def test_names() -> None:
    assert repr(nn.ReLU6()) == "ReLU6()"
    assert repr(nn.ReLU6(inplace=True)) == repr(nn.ReLU6(True)) == "ReLU6(inplace=True)"
    assert repr(nn.Sigmoid()) == "Sigmoid()"
    assert repr(nn.Tanh()) == "Tanh()"
    for layer in (nn.ReLU6(), nn.Sigmoid(), nn.Tanh()):
        assert layer.out_shape((2, 3)) == (2, 3)
        assert layer.parameters() == ()


def test_a_plan_names_them() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU6(), nn.Tanh(), nn.Linear(4, 2), nn.Sigmoid())
    plan = q.compile(model, input_shape=3, loss=MSE, optimizer=optim.SGD(0.1), policy=INT8, batch=2)
    text = str(plan)
    for words in ("at most 6", "below 6", "tanh_s32", "tanh_back", "sigmoid_s32", "sigmoid_back"):
        assert words in text
    floats = str(q.compile(model, input_shape=3))
    assert "tanh_f32" in floats
    assert "sigmoid_f32" in floats


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
@pytest.mark.parametrize("name", ["float32", "full_sym"])
def test_sums_that_overflowed(kind: str, name: str) -> None:
    """Floats, read by either arithmetic."""
    linear = nn.Linear(2, 2, bias=False, policy=q.Policy.float32())
    plan = q.compile(
        nn.Sequential(linear, CLASSES[kind]()),
        input_shape=2,
        loss=MSE,
        optimizer=optim.SGD(0.1),
        policy=POLICIES[name],
    )
    net = q.Session(plan)
    kernels = [op.kernel for op in plan.ops]
    assert f"{kind}_{'f32' if name == 'float32' else 's32'}" in kernels
    assert "product_f32" in kernels
    net.load_state_dict({"0.weight": np.full((2, 2), 3e38)})
    with pytest.raises(q.NonFiniteError, match="infinite or NaN"):
        net.step(np.full((1, 2), 3e38), np.zeros((1, 2)))
