"""MSE: steps of chains against the oracle, bit for bit; what the targets may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from session_helpers import POLICIES
from step_helpers import Case, mlp, same_trace

import pyqfw as q
from pyqfw import nn

MSE = nn.MSELoss()


@pytest.mark.parametrize("name", POLICIES)
def test_a_step_with_mse_under_every_policy(name: str) -> None:
    case = Case(mlp(7, 6, 5), POLICIES[name], loss=MSE)
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("reach", [0.0, 1e-38, 1e-20, 1e-5, 1e-4, 3e-3, 100.0, 1e10, 1e30])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 1e5])
def test_scales_far_apart(size: float, reach: float) -> None:
    """The joined codes of the smaller side go to 0 bit by bit; a side of zeros has no say."""
    for name in ("full_sym", "int8"):
        layers = [("linear", "a", 5, 3, False)]
        Case(layers, POLICIES[name], loss=MSE, size=size, reach=reach, rows=(3, 1)).check()


@pytest.mark.parametrize("shape", [(1,), (2, 3), (2, 2, 5)])
@pytest.mark.parametrize("name", ["int8", "float32", "rows"])
def test_outputs_of_any_shape(shape: tuple[int, ...], name: str) -> None:
    layers = [("linear", "a", shape[-1], 3, True), ("leaky", "b", 0.1)]
    Case(layers, POLICIES[name], loss=MSE, shape=shape, batch=5, rows=(5, 1, 2)).check()


def test_an_output_that_a_quant_stored() -> None:
    layers = [("linear", "a", 4, 5, True), ("quant", "b", q.Sym(8, range=1.0))]
    Case(layers, POLICIES["int8"], loss=MSE).check()


def test_differences_by_the_finite_difference() -> None:
    """The gradient of the mean, of the smallest network, in float32."""
    plan = q.compile(nn.Linear(1, 1, bias=False), input_shape=1, loss=MSE, batch=4)
    net, x, y = q.Session(plan), np.float32([[1], [2], [-1], [3]]), np.float32([[2], [1], [0], [4]])
    losses = []
    for w in (0.5 - 2**-7, 0.5 + 2**-7, 0.5):
        net.load_state_dict({"0.weight": [[w]]})
        out = net.forward(x)
        losses.append(net.backward(y))
        assert losses[-1] == pytest.approx(MSE.metrics(out, y)["loss"], rel=1e-6)
    assert net.grad("0.weight").numpy()[0, 0] == pytest.approx(
        (losses[1] - losses[0]) / 2**-6, rel=1e-4
    )


# ---- what y may be -------------------------------------------------------------------------------


def session(policy: str, **changes: Any) -> q.Session:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    given: dict[str, Any] = {"optimizer": q.optim.SGD(0.1), "loss": MSE, "batch": 4, **changes}
    return q.Session(q.compile(model, input_shape=4, policy=POLICIES[policy], **given))


X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


def with_value(value: float) -> np.ndarray:
    y = Y.astype(np.float64)
    y[2, 1] = value
    return y


WRONG = {
    "NaN": (with_value(np.nan), q.NonFiniteError, r"y\[2, 1\] is nan"),
    "infinity": (with_value(-np.inf), q.NonFiniteError, r"y\[2, 1\] is -inf"),
    "too large for float32": (with_value(1e39), q.NonFiniteError, r"y\[2, 1\] is 1e\+39"),
    "labels": (np.arange(4), q.ShapeError, r"y must have the shape \(4, 3\), .*not \(4,\)"),
    "other rows": (Y[:3], q.ShapeError, r"\(4, 3\), .* not \(3, 3\)"),
    "complex": (Y + 0j, q.DTypeError, "y must be an array of real numbers, not complex"),
    "text": (Y.astype(str), q.DTypeError, "y must be an array of real numbers"),
    "ragged": ([[1, 2, 3], [1]], q.DTypeError, "y must be an array of numbers"),
}


@pytest.mark.parametrize("policy", ["float32", "int8", "int8 fused"])
@pytest.mark.parametrize("name", WRONG)
def test_targets_that_are_none_change_nothing(policy: str, name: str) -> None:
    y, error, text = WRONG[name]
    net = session(policy)
    net.step(X, Y)
    before = {n: bytes(net.tensor(n).data) for n in net.plan.program.parameters}
    with pytest.raises(error, match=text):
        net.step(X, y)
    net.forward(X)
    with pytest.raises(error, match=text):
        net.backward(y)
    with pytest.raises(error, match=text):
        net.trace(X, y)
    assert {n: bytes(net.tensor(n).data) for n in net.plan.program.parameters} == before
    assert net.steps == 1
    net.step(X, Y)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8, np.uint16])
def test_targets_of_other_types(dtype: type) -> None:
    whole = np.round(4 * np.abs(Y))
    nets = [session("int8"), session("int8")]
    assert nets[0].step(X, whole) == nets[1].step(X, whole.astype(dtype))
    assert nets[0].step(X, whole[:, ::-1]) == nets[1].step(X, whole[:, ::-1].tolist())


def test_a_diverged_network_is_not_blamed_on_y() -> None:
    net = session("float32")
    net.load_state_dict({n: np.full(v.shape, 1e38) for n, v in net.state_dict().items()})
    with pytest.raises(q.NonFiniteError, match="diverged"):
        net.step(np.full((4, 4), 100), Y)


def test_it_prints_as_in_pytorch_and_has_its_metric() -> None:
    assert repr(MSE) == "MSELoss()"
    assert nn.MSELoss() == nn.MSELoss(reduction="mean")
    assert MSE.metrics(np.float32([[1, 2]]), np.float32([[0, 4]])) == {"loss": 2.5}
    with pytest.raises(q.QfwError, match="MSELoss: reduction must be 'mean', not 'sum'"):
        nn.MSELoss(reduction="sum")
    with pytest.raises(q.QfwError, match="a loss is no layer"):
        nn.Sequential(nn.MSELoss())  # type: ignore[call-overload]


def test_another_loss_by_recompiling() -> None:
    """The same weights; y is what the other loss takes."""
    net = session("int8")
    other = net.recompile(loss=nn.CrossEntropyLoss())
    other.step(X, [0, 1, 2, 0])
    again = other.recompile(loss=MSE)
    again.step(X, Y)
    assert again.steps == 2


# ---- cross-entropy with its arguments ------------------------------------------------------------

WEIGHT = (0.3, 2.0, 0.0, 1.0, 5e-4)
LOSSES = {
    "ignored": nn.CrossEntropyLoss(),
    "another ignored": nn.CrossEntropyLoss(ignore_index=3),
    "weight": nn.CrossEntropyLoss(WEIGHT),
    "smoothing": nn.CrossEntropyLoss(label_smoothing=0.1),
    "uniform": nn.CrossEntropyLoss(label_smoothing=1.0),
    "all": nn.CrossEntropyLoss(WEIGHT, ignore_index=-1, label_smoothing=0.3),
    "large weights": nn.CrossEntropyLoss((1e30, 1e29, 0, 1e28, 3e30), label_smoothing=0.01),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["int8", "full_sym", "float32", "rows", "int8 fused"])
def test_a_step_with_arguments_of_cross_entropy(name: str, loss: str) -> None:
    case = Case(mlp(7, 6, 5), POLICIES[name], loss=LOSSES[loss], ignoring=True, rows=(4, 3, 2))
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("size", [0.0, 1e-10, 1e3, 1e8])
def test_logits_of_any_size_with_weights(size: float) -> None:
    Case(mlp(7, 5), POLICIES["int8"], loss=LOSSES["all"], size=size, ignoring=True).check()


def test_the_table_is_a_constant_and_no_parameter() -> None:
    net = session("int8", loss=nn.CrossEntropyLoss((1, 2, 3)))
    table, values = net.plan.program.constants["loss.weight"]
    assert values.tolist() == [1, 2, 3]
    assert net._spaces.read(table, 1).numpy().tolist() == pytest.approx([1, 2, 3], rel=1e-4)
    assert table.space == "const"
    assert set(net.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert net.plan.layout.const_bytes > 0
    assert "loss.weight" not in net.recompile(loss=MSE).plan.to_json()


def test_labels_that_do_not_count() -> None:
    net = session("int8", loss=nn.CrossEntropyLoss((1, 0, 3), ignore_index=7))
    net.step(X, [0, 7, 2, 7])
    with pytest.raises(q.QfwError, match="every label is 7, the ignore_index: no row counts"):
        net.step(X, [7, 7, 7, 7])
    with pytest.raises(q.QfwError, match="class has the weight 0: no row counts"):
        net.step(X, [1, 7, 1, 1])
    with pytest.raises(q.QfwError, match=r"y\[1\] is -100: labels must be 0 to 2"):
        net.step(X, [0, -100, 1, 1])
    with pytest.raises(q.ShapeError, match="weight must have 3 elements"):
        session("int8", loss=nn.CrossEntropyLoss((1, 2)))
