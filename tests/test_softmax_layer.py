"""Softmax as a layer: steps of chains against the oracle, bit for bit; which axis it takes."""

from __future__ import annotations

import numpy as np
import pytest
from session_helpers import POLICIES
from step_helpers import Case, policy, same_trace

import pyqfw as q
from pyqfw import nn

MSE = nn.MSELoss()
INT8 = POLICIES["int8"]


def attention(n: int = 6) -> list[tuple]:
    """Between layers, and as the output."""
    return [
        ("linear", "a", 5, n, True),
        ("softmax", "b", -1),
        ("linear", "c", n, 4, True),
        ("softmax", "d", None),
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_a_step_of_softmaxes_under_every_policy(name: str) -> None:
    case = Case(attention(), POLICIES[name], loss=MSE)
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("loss", [MSE, nn.CrossEntropyLoss()], ids=repr)
@pytest.mark.parametrize("forward", ["sym", "float32"])
@pytest.mark.parametrize("prop", ["sym", "float32"])
def test_mixed_arithmetic(forward: str, prop: str, loss: nn.Loss) -> None:
    rules = INT8.replace(forward=forward, prop=prop)
    Case(attention(), rules, loss=loss).check()
    Case(attention(), rules.replace(wires=q.Float32(), errors=q.Float32()), loss=loss).check()


@pytest.mark.parametrize("n", [1, 2, 33, 256, 257, 513, 700])
@pytest.mark.parametrize("bits", [3, 8, 16])
def test_columns_and_widths(n: int, bits: int) -> None:
    fmt = q.Sym(bits, container=16, rounding="stochastic")
    rules = policy(fmt, bias=q.Sym(16))
    Case(attention(n), rules, loss=MSE, rows=(3, 4), batch=4).check()


@pytest.mark.parametrize(
    "fmt",
    [q.Asym(8), q.Asym(16), q.Sym(8, axis="row"), q.BFP(8, 4), q.Sym(7), q.Sym(8, range=0.5)],
    ids=repr,
)
def test_wires_and_errors_of_any_format(fmt: q.Format) -> None:
    Case(attention(), INT8.replace(wires=fmt, errors=fmt), loss=MSE).check()


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e-3, 1e4, 1e20])
def test_extreme_scales(size: float) -> None:
    Case(attention(), INT8, loss=MSE, size=size).check()


def test_rows_of_a_matrix_and_what_a_quant_stored() -> None:
    layers = [
        ("linear", "a", 3, 5, True),
        ("quant", "b", q.Sym(8)),
        ("softmax", "c", 2),
        ("quant", "d", q.Sym(8, range=1.0)),
        ("leaky", "e", 0.1),
        ("flatten", "f"),
        ("linear", "g", 20, 3, True),
    ]
    for name in ("int8", "rows", "float32"):
        Case(layers, POLICIES[name], shape=(4, 3)).check()


def test_the_gradient_is_that_of_floats() -> None:
    """full_sym against float32, from the same weights, within what 16 bits lose."""
    made = [Case(attention(), POLICIES[name], loss=MSE) for name in ("full_sym", "float32")]
    sessions = [q.Session(case.plan()) for case in made]
    x, y = next(made[0].data())
    for net in sessions:
        net.forward(x)
        net.backward(y)
    for name in ("a.weight", "c.weight", "a.bias"):
        a, b = (net.grad(name).numpy() for net in sessions)
        assert np.linalg.norm(a - b) < 0.01 * np.linalg.norm(b)


# ---- names and errors ----------------------------------------------------------------------------


def test_it_prints_as_in_pytorch() -> None:
    assert repr(nn.Softmax(dim=-1)) == "Softmax(dim=-1)"
    assert repr(nn.Softmax()) == "Softmax(dim=None)"


def test_axes() -> None:
    for dim in (None, -1, 1):
        assert nn.Softmax(dim).out_shape((7,)) == (7,)
    for dim in (-1, 3):
        assert nn.Softmax(dim).out_shape((2, 3, 7)) == (2, 3, 7)
    for dim in (0, -2, 2, 5):
        with pytest.raises(q.ShapeError, match=r"layer '0', Softmax.*dim must be the last axis"):
            nn.Softmax(dim).out_shape((7,), "0")
    with pytest.raises(q.ShapeError, match="write dim=-1"):
        nn.Softmax().out_shape((2, 7))
    with pytest.raises(q.ShapeError, match="1 to 65536 elements"):
        nn.Softmax(-1).out_shape((65537,))
    with pytest.raises(q.QfwError, match="Softmax: dim must be"):
        nn.Softmax(1.5)  # type: ignore[arg-type]


def test_raw_does_not_pass_through_it() -> None:
    model = nn.Sequential(nn.Linear(3, 4, output=nn.RAW), nn.Softmax(), nn.Quant())
    with pytest.raises(q.QfwError, match="output=RAW, but '1'"):
        q.compile(model, input_shape=3)
