"""Clipping, groups and AdamW are the oracle's, bit for bit, in every format."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_helpers import FLOAT, Case, gradients, mlp, policy, same_step
from strategies import fixed
from test_step_formats import ALL, FIELDS, MOVING

import pyqfw as q
from pyqfw import Asym, Sym, optim

INT8 = q.Policy.int8()
SGDS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "dampening": {"momentum": 0.8, "dampening": 0.25, "weight_decay": 0.05},
}
GROUPS = {
    "l0": {"lr": 0.013, "momentum": 0.5},
    "l1.bias": {"weight_decay": 0.2, "momentum": 0.0, "nesterov": False},
}
ADAM_GROUPS = {"l0": {"lr": 0.003, "betas": (0.5, 0.9)}, "l1.bias": {"weight_decay": 0, "eps": 0.1}}
ADAM = optim.AdamW(0.02, max_grad_norm=0.7, groups=ADAM_GROUPS)
CLIPPED = optim.SGD(0.1, momentum=0.9, weight_decay=0.01, max_grad_norm=0.05, groups=GROUPS)


def check(rules, optimizer, **options):
    return Case(mlp(9, 6, 4), rules, optimizer, batch=3, rows=(3, 2, 3), **options).check()


@pytest.mark.parametrize("rules", [INT8, q.Policy.float32(), q.Policy.full_sym()], ids=repr)
@pytest.mark.parametrize("norm", [None, 1e-3, 0.5, 100.0])
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["all alike", "groups"])
@pytest.mark.parametrize("name", SGDS)
def test_sgd(name, groups, norm, rules):
    check(rules, optim.SGD(0.1, **SGDS[name], max_grad_norm=norm, groups=groups))


@pytest.mark.parametrize("rules", [INT8, q.Policy.float32(), q.Policy.full_sym()], ids=repr)
@pytest.mark.parametrize("norm", [None, 0.1])
@pytest.mark.parametrize("rounding", ["stochastic", "half_away", "half_even"])
def test_adamw(rounding, norm, rules):
    check(rules, optim.AdamW(0.05, max_grad_norm=norm, rounding=rounding))
    check(rules, optim.AdamW(0.01, (0.0, 0.5), 1e-3, 0, rounding=rounding, groups=ADAM_GROUPS))


@pytest.mark.parametrize("fmt", ALL, ids=repr)
def test_every_format_of_a_gradient(fmt):
    check(INT8.replace(grads=fmt), CLIPPED)
    check(INT8.replace(grads=fmt), ADAM)


@pytest.mark.parametrize("fmt", ALL, ids=repr)
def test_every_format_of_a_state(fmt):
    check(INT8.replace(state=fmt), CLIPPED)
    check(INT8.replace(state=fmt), ADAM)
    check(INT8.replace(state=fmt, grads="fused"), optim.AdamW(0.02))


@pytest.mark.parametrize("fmt", ALL, ids=repr)
def test_every_format_of_a_parameter(fmt):
    check(INT8.replace(weights=fmt, bias=fmt), ADAM)


@pytest.mark.parametrize("rules", [INT8, INT8.replace(weight_grad="float32", bias_grad="float32")])
@pytest.mark.parametrize("state", [FLOAT, Sym(8), Asym(16, rounding="stochastic")], ids=repr)
def test_adamw_fused(state, rules):
    adam = optim.AdamW(0.02, groups=ADAM_GROUPS)
    check(rules.replace(grads="fused", state=state), adam)


@pytest.mark.parametrize("state", [FLOAT, Sym(8, rounding="stochastic"), Asym(16)], ids=repr)
def test_many_steps_of_adamw(state):
    """Past the 256 steps after which scales may shrink."""
    rows = [3] * 260
    Case(mlp(5, 4, 3), INT8.replace(state=state), optim.AdamW(0.01), batch=3, rows=rows).check()


@pytest.mark.parametrize("optimizer", [CLIPPED, ADAM], ids=["SGD", "AdamW"])
def test_zeros_find_a_range(optimizer):
    """Parameters without a range take one from the first step."""
    case = Case(mlp(9, 6, 4), INT8.replace(bias=Asym(8)), optimizer)
    net, session = case.net(), q.Session(case.plan())
    zeros = {name: np.zeros_like(w) for name, w in session.state_dict().items()}
    zeros["l1.weight"] += np.float32(0.1)
    net.load(zeros)
    session.load_state_dict(zeros)
    for x, y in case.data():
        same_step(net, session, x, y)
    assert session.tensor("l1.bias").numpy().any()


# ---- any mixture ---------------------------------------------------------------------------------


@st.composite
def optimizers(draw):
    norm = draw(st.sampled_from([None, 1e-4, 0.3, 50.0]))
    rounding = draw(st.sampled_from(["stochastic", "half_away", "half_even"]))
    rest = {"rounding": rounding, "max_grad_norm": norm}
    lr = draw(st.sampled_from([0.1, 0.01, 1.0]))
    if draw(st.booleans()):
        groups = draw(st.sampled_from([None, ADAM_GROUPS]))
        betas = draw(st.sampled_from([(0.9, 0.999), (0.0, 0.9), (0.99, 0.5)]))
        decay = draw(st.sampled_from([0, 0.01]))
        return optim.AdamW(
            lr, betas, draw(st.sampled_from([1e-8, 0.1])), decay, groups=groups, **rest
        )
    groups = draw(st.sampled_from([None, GROUPS]))
    return optim.SGD(lr, **SGDS[draw(st.sampled_from(sorted(SGDS)))], groups=groups, **rest)


@st.composite
def cases(draw):
    rules = q.Policy(**draw(st.fixed_dictionaries(FIELDS | {"input": MOVING})))
    optimizer = draw(optimizers())
    if rules.grads == "fused" and optimizer.max_grad_norm is not None:
        rules = rules.replace(grads=Sym(8))
    size = draw(st.sampled_from([1.0, 1e-3, 1e3, 0.0]))
    seed = draw(st.integers(0, 2**32 - 1))
    return Case(mlp(5, 6, 3), rules, optimizer, rows=(4, 1, 3), seed=seed, size=size)


@given(cases(), st.sampled_from(q.quant.core_info()["isas"]))
@fixed
def test_any_mixture(case, isa):
    with q.quant.isa(isa):
        case.check()


# ---- gradients stay ------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ALL, ids=repr)
@pytest.mark.parametrize("optimizer", [CLIPPED, ADAM], ids=["SGD", "AdamW"])
def test_an_update_writes_no_gradient(optimizer, fmt):
    case = Case(mlp(9, 6, 4), INT8.replace(grads=fmt), optimizer)
    session = q.Session(case.plan())
    x, y = next(case.data())
    session.forward(x)
    session.backward(y)
    before = gradients(session)
    assert len(before) == 4
    for _ in range(2):
        session.update()
        assert gradients(session) == before


def test_the_norm_that_is_held():
    """A step of plain SGD is as long as max_grad_norm allows, whatever the format."""
    for fmt, norm in itertools.product([FLOAT, Sym(8), Sym(4, axis=0), Asym(7)], [1e-3, 0.02]):
        rules = q.Policy.float32().replace(grads=fmt)
        case = Case(mlp(9, 6, 4), rules, optim.SGD(1.0, max_grad_norm=norm))
        session = q.Session(case.plan())
        before = session.state_dict()
        session.step(*next(case.data()))
        after = session.state_dict()
        moved = sum(float(((after[n] - before[n]) ** 2).sum()) for n in before) ** 0.5
        assert moved == pytest.approx(norm, rel=2e-3)


def test_one_policy_of_formats_for_the_rest():
    check(policy(Sym(8), grads=Sym(8)), ADAM)
