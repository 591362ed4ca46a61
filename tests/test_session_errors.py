"""What a session refuses: by name, saying what would be right, and unchanged afterwards."""

import numpy as np
import pytest
from session_helpers import BATCH, CLASSES, INPUTS, data, held, session, train

import pyqfw as q
from pyqfw import nn, optim
from pyqfw.errors import DTypeError, NonFiniteError, QfwError, ShapeError

X, Y = data()


def changed(array, at, value, dtype=None):
    array = np.array(array, dtype or array.dtype)
    array[at] = value
    return array


BAD_X = {
    "text": (X.astype(str), DTypeError, r"x must be an array of real numbers, not <U"),
    "complex": (X.astype(complex), DTypeError, "x must be .* real numbers, not complex128"),
    "bool": (X > 0, DTypeError, "x must be .* real numbers, not bool"),
    "objects": (X.astype(object), DTypeError, "x must be .* real numbers, not object"),
    "None": (None, DTypeError, "x must be .* real numbers, not object"),
    "dates": (X.astype("M8[s]"), DTypeError, "x must be .* real numbers, not datetime64"),
    "ragged": ([[1.0] * INPUTS, [1.0]], DTypeError, "x must be an array of numbers"),
    "one row without its axis": (X[0], ShapeError, r"x must have the shape \(n, 10\)"),
    "a number": (1.0, ShapeError, r"x must have the shape \(n, 10\).*not \(\)"),
    "an axis too many": (X[None], ShapeError, r"\(n, 10\).*not \(1, 8, 10\)"),
    "a column too few": (X[:, 1:], ShapeError, r"\(n, 10\).*not \(8, 9\)"),
    "transposed": (X.T, ShapeError, r"\(n, 10\).*not \(10, 8\)"),
    "NaN": (changed(X, (2, 3), np.nan), NonFiniteError, r"x\[2, 3\] is nan"),
    "infinity": (changed(X, (0, 9), -np.inf), NonFiniteError, r"x\[0, 9\] is -inf"),
    "too large for float32": (
        changed(X, (7, 0), 1e300, np.float64),
        NonFiniteError,
        r"x\[7, 0\] is 1e\+300: data must be finite in float32",
    ),
}
BAD_ROWS = {
    "no rows": (X[:0], ShapeError, "x has 0 rows: the plan takes 1 to 8"),
    "too many rows": (data(BATCH + 1)[0], ShapeError, "x has 9 rows: the plan takes 1 to 8"),
}
BAD_Y = {
    "floats": (Y.astype(np.float32), DTypeError, "y must be an array of integers.*not float32"),
    "bool": (Y > 0, DTypeError, "y must be .* integers .*not bool"),
    "text": (Y.astype(str), DTypeError, "y must be .* integers"),
    "complex": (Y.astype(complex), DTypeError, "y must be .* integers"),
    "objects": (Y.astype(object), DTypeError, "y must be .* integers .*not object"),
    "ragged": ([[1], [1, 2]], DTypeError, "y must be an array of numbers"),
    "None": (None, ShapeError, r"y must have the shape \(8,\)"),
    "a label": (1, ShapeError, r"y must have the shape \(8,\).*not \(\)"),
    "one-hot": (np.eye(CLASSES, dtype=int)[Y], ShapeError, r"\(8,\).*not \(8, 4\)"),
    "a column": (Y[:, None], ShapeError, r"\(8,\).*not \(8, 1\)"),
    "a label too few": (Y[1:], ShapeError, r"\(8,\).*not \(7,\)"),
    "none": ([], ShapeError, r"\(8,\).*not \(0,\)"),
    "too large": (changed(Y, 5, CLASSES), QfwError, r"y\[5\] is 4: labels must be 0 to 3"),
    "negative": (changed(Y, 2, -1), QfwError, r"y\[2\] is -1: labels must be 0 to 3"),
    "far too large": (changed(Y, 7, 2**63, np.uint64), QfwError, r"y\[7\] is 9223372036854775808"),
    "wraps to a class": (changed(Y, 1, 2**32), QfwError, r"y\[1\] is 4294967296"),
    "PyTorch's ignored one alone": (np.full(8, -100), QfwError, "every label is -100, the ignore"),
}
some_policies = pytest.mark.parametrize("policy", ["float32", "full_sym", "int8", "int8 fused"])


def refused(net, twin, call, kind, message):
    """The call raises, and the net goes on as its twin does."""
    before = held(net)
    with pytest.raises(kind, match=message) as caught:
        call(net)
    assert type(caught.value) is kind
    assert held(net) == before == held(twin)
    assert net.step(X, Y) == twin.step(X, Y)
    assert held(net) == held(twin)


def pair(policy):
    return train(session(policy)), train(session(policy))


# --- data -----------------------------------------------------------------------------------------


@some_policies
@pytest.mark.parametrize("case", BAD_X | BAD_ROWS)
def test_bad_x(policy, case):
    x, kind, message = (BAD_X | BAD_ROWS)[case]
    net, twin = pair(policy)
    refused(net, twin, lambda net: net.step(x, Y), kind, message)
    refused(net, twin, lambda net: net.forward(x), kind, message)
    refused(net, twin, lambda net: net.trace(x, Y), kind, message)
    if case in BAD_X:
        refused(net, twin, lambda net: net.predict(x), kind, message)
        refused(net, twin, lambda net: net(x), kind, message)


@some_policies
@pytest.mark.parametrize("case", BAD_Y)
def test_bad_y(policy, case):
    y, kind, message = BAD_Y[case]
    net, twin = pair(policy)
    refused(net, twin, lambda net: net.step(X, y), kind, message)
    refused(net, twin, lambda net: net.trace(X, y), kind, message)
    net.forward(X)
    twin.forward(X)
    with pytest.raises(kind, match=message):
        net.backward(y)
    assert net.backward(Y) == twin.backward(Y)  # the forward is still there
    net.update()
    twin.update()
    assert held(net) == held(twin)


# --- order ----------------------------------------------------------------------------------------


@some_policies
def test_order(policy):
    net = session(policy)
    with pytest.raises(QfwError, match="backward needs a forward"):
        net.backward(Y)
    with pytest.raises(QfwError, match="update needs a backward"):
        net.update()
    net.forward(X)
    with pytest.raises(QfwError, match="update needs a backward"):
        net.update()
    net.predict(X)
    with pytest.raises(QfwError, match="backward needs a forward right before"):
        net.backward(Y)
    net.forward(X)
    net.load_state_dict(session().state_dict())
    with pytest.raises(QfwError, match="backward needs a forward right before"):
        net.backward(Y)
    net.forward(X)
    net.backward(Y)
    with pytest.raises(QfwError, match="backward needs a forward right before"):
        net.backward(Y)
    net.update()
    with pytest.raises(QfwError, match="backward needs a forward right before"):
        net.backward(Y)
    assert held(net) == held(train(session(policy), 1))


def test_a_refused_load_or_prediction_keeps_the_forward():
    net, twin = pair("int8")
    net.forward(X)
    with pytest.raises(QfwError):
        net.load_state_dict({})
    with pytest.raises(QfwError):
        net.predict(X[0])
    assert net.backward(Y) == twin.step(X, Y)


def test_looking_too_early():
    net = session("int8")
    with pytest.raises(QfwError, match=r"wire\('0'\): there is none before a forward"):
        net.wire("0")
    with pytest.raises(QfwError, match=r"grad\('0\.weight'\): no backward has run yet"):
        net.grad("0.weight")
    net.forward(X)
    net.predict(X)
    with pytest.raises(QfwError, match=r"wire\('0'\): there is none .* after a predict"):
        net.wire("0")
    with pytest.raises(QfwError, match="no backward has run yet"):
        train(net).recompile().grad("0.weight")


def test_a_plan_without_a_loss():
    net = session("int8", loss=None, optimizer=None)
    for call in (net.step, net.trace):
        with pytest.raises(QfwError, match="this plan was compiled without a loss"):
            call(X, Y)
    with pytest.raises(QfwError, match=r"backward: .* without a loss"):
        net.backward(Y)
    with pytest.raises(QfwError, match=r"update: .* without a loss"):
        net.update()
    with pytest.raises(QfwError, match=r"grad\('0.weight'\): .* without a loss"):
        net.grad("0.weight")
    with pytest.raises(QfwError, match=r"lr: .* without an optimizer"):
        net.lr = 0.1
    assert net.predict(X).shape == (BATCH, CLASSES)


def test_a_plan_without_an_optimizer():
    net = session("int8", optimizer=None)
    with pytest.raises(QfwError, match=r"step: .* without an optimizer"):
        net.step(X, Y)
    net.forward(X)
    net.backward(Y)
    with pytest.raises(QfwError, match=r"update: .* without an optimizer"):
        net.update()
    assert len(list(net.trace(X, Y))) == len(net.plan.ops)
    assert net.steps == 0


# --- names, numbers, state dicts ------------------------------------------------------------------


GOOD = session(seed=8).state_dict()
BAD_STATES = {
    "empty": ({}, QfwError, r"missing '0\.weight', '0\.bias'.*strict=False"),
    "one missing": (
        dict(list(GOOD.items())[:-1]),
        QfwError,
        "missing '5.bias'",
    ),
    "one unknown": ({**GOOD, "6.bias": 0}, QfwError, r"unknown '6\.bias'"),
    "a shape": ({**GOOD, "5.bias": np.zeros(5)}, ShapeError, r"\['5.bias'\].*\(4,\), not \(5,\)"),
    "transposed": (
        {**GOOD, "5.weight": GOOD["5.weight"].T},
        ShapeError,
        r"\['5\.weight'\] must have the shape \(4, 6\), not \(6, 4\)",
    ),
    "NaN": (
        {**GOOD, "5.bias": changed(GOOD["5.bias"], 1, np.nan)},
        NonFiniteError,
        r"state_dict\['5\.bias'\]\[1\] is nan",
    ),
    "too large": ({**GOOD, "5.bias": np.full(4, 1e300)}, NonFiniteError, r"'5\.bias'.*1e\+300"),
    "text": ({**GOOD, "5.bias": ["a"] * 4}, DTypeError, r"'5\.bias'.*real numbers"),
    "complex": ({**GOOD, "5.bias": np.ones(4) * 1j}, DTypeError, r"'5\.bias'.*not complex128"),
    "bool": ({**GOOD, "5.bias": np.ones(4, bool)}, DTypeError, r"'5\.bias'.*not bool"),
    "None": ({**GOOD, "5.bias": None}, DTypeError, r"'5\.bias'.*not object"),
    "ragged": ({**GOOD, "5.bias": [[1], [2, 3]]}, DTypeError, r"'5\.bias'.*array of numbers"),
    "a list": (list(GOOD.items()), QfwError, r"must be a mapping .*'0\.weight'.*not list"),
    "nothing": (None, QfwError, "must be a mapping .* not NoneType"),
}


@some_policies
@pytest.mark.parametrize("case", BAD_STATES)
def test_bad_state_dicts(policy, case):
    values, kind, message = BAD_STATES[case]
    net, twin = pair(policy)
    refused(net, twin, lambda net: net.load_state_dict(values), kind, message)
    if kind is not QfwError:
        refused(net, twin, lambda net: net.load_state_dict(values, strict=False), kind, message)


@pytest.mark.parametrize(
    "name", ["weight", "0", "0.weight ", "7.weight", "", None, ["0.weight"], 3]
)
def test_unknown_names(name):
    net, twin = pair("int8")
    legal = r".*no such name; there are '0\.weight', '0\.bias'"
    refused(net, twin, lambda net: net.tensor(name), QfwError, r"tensor\(" + legal)
    refused(net, twin, lambda net: net.grad(name), QfwError, r"grad\(" + legal)
    if name != "0":
        legal = r".*no such name; there are 'input', '0', '1'"
        refused(net, twin, lambda net: net.wire(name), QfwError, r"wire\(" + legal)


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf"), 1e-40, 1e39, "0.1", None, True])
def test_bad_learning_rates(lr):
    net, twin = pair("int8")
    message = "lr must be 0 or a positive normal float32"
    refused(net, twin, lambda net: setattr(net, "lr", lr), QfwError, message)


BAD_CHANGES = {
    "an unknown one": ({"model": 1}, QfwError, "model cannot be changed; what can: loss, .*train"),
    "a typing error": ({"polcy": None}, QfwError, "polcy cannot be changed"),
    "a layer that is none": (
        {"train": ["7"]},
        QfwError,
        "train: there is no layer '7'; .* 0, 1, 2",
    ),
    "a parameter": ({"train": ["5.weight"]}, QfwError, r"train: there is no layer '5\.weight'"),
    "a number": ({"train": [5]}, QfwError, "train: there is no layer 5"),
    "a text": (
        {"train": "5"},
        QfwError,
        r"train must be a list of layers such as \['5'\], not '5'",
    ),
    "no layer": ({"train": []}, QfwError, "nothing learns"),
    "a layer that has nothing to learn": ({"train": ["1"]}, QfwError, "nothing learns"),
    "a batch": ({"batch": 0}, QfwError, "batch must be 1.."),
    "a policy": ({"policy": "int8"}, QfwError, "policy must be a q.Policy.*not 'int8'"),
    "an optimizer": ({"optimizer": 0.1}, QfwError, r"optimizer must be optim.SGD\(.*not 0.1"),
    "a seed": ({"seed": -1}, QfwError, r"seed must be 0\.\."),
    "a shape": ({"input_shape": (9,)}, ShapeError, "layer '0'.*in_features=9"),
    "no loss": ({"loss": None}, QfwError, "an optimizer needs a loss"),
}


@pytest.mark.parametrize("case", BAD_CHANGES)
def test_bad_changes(case):
    changes, kind, message = BAD_CHANGES[case]
    net, twin = pair("int8")
    refused(net, twin, lambda net: net.recompile(**changes), kind, message)


@pytest.mark.parametrize("plan", [None, b"QFWP", nn.Linear(2, 2)], ids=repr)
def test_a_session_of_something_else(plan):
    with pytest.raises(QfwError, match=r"a Session needs a Plan from q\.compile, not"):
        q.Session(plan)


# --- numbers that are lost ------------------------------------------------------------------------


def by_step(net, x, y):
    net.step(x, y)


def by_hand(net, x, y):
    net.forward(x)
    net.backward(y)


def by_trace(net, x, y):
    list(net.trace(x, y))


def by_prediction(net, x, y):
    net.predict(x)


def ten_steps(net):
    for i in range(10):
        assert np.isfinite(net.step(*data(seed=i)))


@pytest.mark.parametrize(
    ("policy", "sgd"),
    [("float32", optim.SGD(1e30)), ("full_sym", optim.SGD(3.4e38, momentum=0.9))],
)
def test_training_that_diverges_says_so(policy, sgd):
    """In floats soon; beside integers when a bias, which is a float, is infinite."""
    net = session(policy, optimizer=sgd)
    with pytest.raises(NonFiniteError, match=r"diverged.*smaller lr"):
        ten_steps(net)
    before = held(net)
    for way in (by_step, by_hand, by_trace, by_prediction):
        with pytest.raises(NonFiniteError, match="diverged"):
            way(net, X, Y)
        assert held(net) == before
    net.load_state_dict(session().state_dict())
    ten_steps(net.recompile(optimizer=optim.SGD(0.1)))  # it goes on, and finds nothing of it


def test_parameters_that_are_infinite_can_be_looked_at():
    net = session(optimizer=optim.SGD(3e38))
    net.step(1e3 * X, Y)
    values = net.state_dict()["0.weight"]
    assert not np.isfinite(values).all()
    with pytest.raises(NonFiniteError, match=r"'0\.weight'.*inf"):
        net.recompile(policy=q.Policy.int8())
    same = net.recompile(batch=2)
    assert same.state_dict()["0.weight"].tobytes() == values.tobytes()


@pytest.mark.parametrize("grads", ["fused", q.Sym(8)], ids=repr)
@pytest.mark.parametrize("way", [by_step, by_hand, by_trace])
def test_an_error_half_way_moves_nothing(grads, way):
    """The error overflows on its way to the first layer, when the second has been dealt with."""
    policy = q.Policy(weights=q.Sym(8), errors=q.Sym(8), grads=grads)
    layers = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    net = session(policy, model=layers, input_shape=2)
    net.load_state_dict({"0.weight": np.eye(2) * 1e-37, "2.weight": [[-3e38] * 2, [3e38] * 2]})
    net.step([[0.0, 0.0]], [1])
    before = held(net)
    with pytest.raises(NonFiniteError, match="diverged"):
        way(net, [[1.0, 1.0]], [0])
    assert held(net) == before
