"""SGD and AdamW: PyTorch's arguments, what is legal, groups, and the coefficients of
docs/numerics.md section 17."""

import copy
import inspect
import itertools
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from fractions import Fraction

import numpy as np
import pytest

from pyqfw.errors import QfwError
from pyqfw.optim import SGD, Coefficients

FLT_MIN = 2.0**-126
FLT_MAX = float(np.finfo(np.float32).max)

# --- arguments ---------------------------------------------------------------------------


def test_defaults_and_order():
    assert [(p.name, p.default) for p in inspect.signature(SGD).parameters.values()] == [
        ("lr", 1e-3),
        ("momentum", 0.0),
        ("dampening", 0.0),
        ("weight_decay", 0.0),
        ("nesterov", False),
        ("rounding", "stochastic"),
        ("max_grad_norm", None),
        ("groups", None),
    ]
    given = SGD(0.1, 0.9, 0, 1e-4, True)
    assert given == SGD(lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    with pytest.raises(TypeError):
        SGD(0.1, 0.9, 0, 1e-4, True, "half_even")


def test_it_is_a_frozen_value_printed_as_the_code_that_makes_it():
    opt = SGD(lr=np.float32(0.5), momentum=1, rounding="half_even")
    assert repr(opt) == (
        "SGD(lr=0.5, momentum=1.0, dampening=0.0, weight_decay=0.0, nesterov=False, "
        "rounding='half_even', max_grad_norm=None, groups=None)"
    )
    for same in (eval(repr(opt)), copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        assert same == opt
        assert hash(same) == hash(opt)
    with pytest.raises(FrozenInstanceError):
        opt.lr = 1.0
    assert replace(opt, lr=2).lr == 2.0
    with pytest.raises(QfwError, match="lr"):
        replace(opt, lr=-2)


def test_numbers_become_floats():
    opt = SGD(1, np.float64(0.5), Fraction(1, 4), np.int64(2), np.bool_(False))
    values = (opt.lr, opt.momentum, opt.dampening, opt.weight_decay, opt.nesterov)
    assert values == (1.0, 0.5, 0.25, 2.0, False)
    assert [type(v) for v in values] == [float] * 4 + [bool]
    assert repr(SGD(-0.0).lr) == "0.0"


@pytest.mark.parametrize("name", ["lr", "momentum", "dampening", "weight_decay"])
@pytest.mark.parametrize(
    "value",
    [
        *(-0.1, -1, float("nan"), float("inf"), -float("inf"), 1e39, 10**400),
        *(1e-40, 1e-300, None, "0.1", True, [0.1], np.zeros(1), 1j),
    ],
)
def test_numbers_that_are_refused(name, value):
    with pytest.raises(QfwError) as info:
        SGD(**{name: value})
    legal = "0 or a positive normal float32"
    assert str(info.value) == f"SGD: {name} must be {legal}, not {value!r}"


@pytest.mark.parametrize("value", [0.0, FLT_MIN, 1.0, FLT_MAX])
def test_the_ends_are_legal(value):
    assert SGD(lr=value).lr == value
    assert SGD(momentum=value).momentum == value
    assert SGD(weight_decay=value).weight_decay == value


def test_dampening_is_a_fraction():
    assert SGD(momentum=0.9, dampening=1).dampening == 1.0
    with pytest.raises(QfwError, match=r"^SGD: dampening must be 0..1, not 1.5$"):
        SGD(momentum=0.9, dampening=1.5)


@pytest.mark.parametrize(("momentum", "dampening"), [(0.0, 0.0), (0.9, 0.1), (0.0, 0.1)])
def test_nesterov_needs_momentum_and_no_dampening(momentum, dampening):
    with pytest.raises(QfwError) as info:
        SGD(momentum=momentum, dampening=dampening, nesterov=True)
    assert str(info.value) == (
        "SGD: nesterov needs momentum > 0 and dampening = 0, not "
        f"momentum={momentum} and dampening={dampening}"
    )


@pytest.mark.parametrize("value", [1, 0, None, "yes", 0.9])
def test_nesterov_is_a_truth_value(value):
    with pytest.raises(QfwError, match=r"^SGD: nesterov must be True or False, not "):
        SGD(momentum=0.9, nesterov=value)


@pytest.mark.parametrize("value", ["nearest", "", None, 0, ["stochastic"]])
def test_roundings(value):
    for legal in ("half_away", "half_even", "stochastic"):
        assert SGD(rounding=legal).rounding == legal
    with pytest.raises(QfwError, match=r"^SGD: rounding must be one of 'half_away', 'half_even'"):
        SGD(rounding=value)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"momentum": 1e30, "nesterov": True}, "step_v"),
        ({"momentum": 1e-30, "nesterov": True}, "step_v"),
        ({"momentum": 1e10, "weight_decay": 1e30, "nesterov": True}, "step_w"),
        ({"momentum": 0.9, "dampening": 1 - 2.0**-20, "weight_decay": FLT_MIN}, "step_w"),
    ],
)
def test_factors_that_float32_does_not_hold(given, name):
    with pytest.raises(QfwError, match=f"the factor {name} = .* must be 0 or a normal float32$"):
        SGD(**given)


def test_state():
    assert not SGD().has_state
    assert not SGD(dampening=0.5, weight_decay=0.1).has_state
    assert SGD(momentum=0.9).has_state


# --- coefficients ------------------------------------------------------------------------

GRID = [
    SGD(momentum=m, dampening=d, weight_decay=w, nesterov=n)
    for m, d, w, n in itertools.product(
        (0.0, 0.3, 0.9, 1.0, 1.5), (0.0, 0.1, 0.7, 1.0), (0.0, 1e-4, 0.05, 3.0), (False, True)
    )
    if not n or (m > 0 and d == 0)
]


def table(opt, kappa):
    """The table of section 17 without lr: {row: (of v, of g, of w)}, in exact numbers.

    kappa is exact as float64 has it, 1 - dampening rounded.
    """
    beta, wd, kappa = Fraction(opt.momentum), Fraction(opt.weight_decay), Fraction(kappa)
    if beta == 0:
        return {"step": (0, 1, wd), "state": (0, 0, 0)}
    state = (beta, kappa, kappa * wd)
    if opt.nesterov:
        return {"step": (beta * beta, 1 + beta * kappa, (1 + beta * kappa) * wd), "state": state}
    return {"step": state, "state": state}


def assert_factor(got, exact):
    """float32, and the exact value rounded once, a float64 rounding before it allowed for."""
    assert type(got) is np.float32
    near = float(exact)
    assert got in {np.float32(x) for x in (near, np.nextafter(near, 0), np.nextafter(near, 9))}


@pytest.mark.parametrize("opt", GRID, ids=repr)
def test_the_table(opt):
    c = opt.coefficients()
    for kappa, end in ((1.0 - opt.dampening, ""), (1.0, "1")):
        for row, exact in table(opt, kappa).items():
            for term, value in zip("vgw", exact, strict=True):
                if not (end and term == "v"):
                    assert_factor(getattr(c, f"{row}_{term}{end}"), value)


@pytest.mark.parametrize("opt", GRID, ids=repr)
def test_the_formulas(opt):
    """The linear map against g', v', d of section 17, one update after the other."""
    c = {f.name: float(getattr(opt.coefficients(), f.name)) for f in fields(Coefficients)}
    rng = np.random.default_rng(1)
    w, v = rng.normal(size=7), np.zeros(7)
    for t in range(4):
        g, kappa, end = rng.normal(size=7), 1 - opt.dampening if t else 1.0, "" if t else "1"
        g_ = g + opt.weight_decay * w
        v_ = opt.momentum * v + kappa * g_
        d = (g_ + opt.momentum * v_ if opt.nesterov else v_) if opt.momentum else g_
        step = c["step_v"] * v + c["step_g" + end] * g + c["step_w" + end] * w
        np.testing.assert_allclose(step, d, rtol=1e-6, atol=1e-6)
        if opt.momentum:
            state = c["state_v"] * v + c["state_g" + end] * g + c["state_w" + end] * w
            np.testing.assert_allclose(state, v_, rtol=1e-6, atol=1e-6)
        w, v = w - 0.1 * d, v_


def test_the_learning_rate_is_in_no_coefficient():
    for opt in GRID:
        assert replace(opt, lr=7.0).coefficients() == opt.coefficients()


def test_coefficients_rounded_by_hand():
    c = SGD(momentum=0.9, dampening=0.1, weight_decay=0.01).coefficients()
    f = np.float32
    assert c == Coefficients(
        step_v=f(0.9),
        step_g=f(0.9),
        step_w=f(0.9 * 0.01),
        state_v=f(0.9),
        state_g=f(0.9),
        state_w=f(0.9 * 0.01),
        step_g1=f(1),
        step_w1=f(0.01),
        state_g1=f(1),
        state_w1=f(0.01),
    )
