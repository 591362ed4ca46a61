"""AdamW's arguments, groups, and what an optimizer refuses; in plans and in sessions."""

import copy
import inspect
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from step_helpers import Case, mlp

import pyqfw as q
from pyqfw import nn, optim
from pyqfw.errors import NonFiniteError, QfwError
from pyqfw.optim import SGD, AdamW

INT8 = q.Policy.int8()


def plan(optimizer, policy=None, **options):
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    options = {"loss": nn.CrossEntropyLoss(), "batch": 4, **options}
    return q.compile(model, input_shape=5, optimizer=optimizer, policy=policy, **options)


def data(size=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return (size * rng.normal(size=(4, 5))).astype(np.float32), rng.integers(0, 3, 4)


# --- AdamW's arguments ----------------------------------------------------------------------------


def test_defaults_and_order():
    assert [(p.name, p.default) for p in inspect.signature(AdamW).parameters.values()] == [
        ("lr", 1e-3),
        ("betas", (0.9, 0.999)),
        ("eps", 1e-8),
        ("weight_decay", 0.01),
        ("rounding", "stochastic"),
        ("max_grad_norm", None),
        ("groups", None),
    ]
    assert AdamW(betas=[0, np.float32(0.5)]).betas == (0.0, 0.5)
    assert AdamW().states == ("exp_avg", "exp_avg_sq")
    assert AdamW().has_state


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"lr": -1}, r"^AdamW: lr must be 0 or a positive normal float32, not -1$"),
        ({"weight_decay": float("nan")}, r"^AdamW: weight_decay must be"),
        ({"eps": 0}, r"^AdamW: eps must be positive"),
        ({"betas": 0.9}, r"^AdamW: betas must be a pair of numbers, not 0\.9$"),
        ({"betas": (0.9, 0.99, 0.999)}, r"^AdamW: betas must be a pair"),
        ({"betas": (0.9, 1.0)}, r"^AdamW: betas must be 0\.\.1 - 2\^-32"),
        ({"betas": (1 - 2.0**-34, 0.9)}, r"^AdamW: betas must be 0\.\.1 - 2\^-32"),
        ({"betas": (-0.1, 0.9)}, r"^AdamW: betas must be 0 or a positive"),
        ({"rounding": "nearest"}, r"^AdamW: rounding must be one of"),
        ({"max_grad_norm": 0}, r"^AdamW: max_grad_norm must be None or positive, not 0$"),
        ({"max_grad_norm": -1}, r"^AdamW: max_grad_norm must be 0 or a positive normal"),
    ],
)
def test_what_adamw_refuses(given, text):
    with pytest.raises(QfwError, match=text):
        AdamW(**given)


def test_the_largest_beta():
    assert AdamW(betas=(1 - 2.0**-32, 0.999)).fixed_betas()[0] == 2**32 - 1


@pytest.mark.parametrize("norm", [0, 0.0, -1, "1", float("inf"), True])
def test_norms_that_sgd_refuses(norm):
    with pytest.raises(QfwError, match=r"^SGD: max_grad_norm must be"):
        SGD(max_grad_norm=norm)


# --- groups ---------------------------------------------------------------------------------------

GROUPS = {"a": {"lr": 0.5}, "a.b": {"momentum": 0.9, "lr": 2}, "a.b.bias": {"weight_decay": 0.0}}


def test_the_longest_name_wins():
    opt = SGD(0.1, weight_decay=0.3, groups=GROUPS)
    assert opt.of("a.c.weight") == SGD(0.5, weight_decay=0.3)
    assert opt.of("a.b.weight") == SGD(2, weight_decay=0.3, momentum=0.9)
    assert opt.of("a.b.bias") == SGD(0.1)  # the groups that it is also in have no say
    assert opt.of("ab.weight") == opt.of("b.weight") == SGD(0.1, weight_decay=0.3)
    assert [opt.ratio(f"a.{name}") for name in ("c.weight", "b.weight", "b.bias")] == [5, 20, 1]


@pytest.mark.parametrize(
    "opt",
    [
        SGD(0.1, groups=GROUPS, max_grad_norm=2),
        AdamW(groups={"0": {"betas": [0.5, 0.9]}, "1.bias": {"weight_decay": 0}}),
        AdamW(groups={}),
    ],
    ids=repr,
)
def test_it_is_a_frozen_value_printed_as_the_code_that_makes_it(opt):
    plain = json.loads(json.dumps(vars(opt)))
    again = type(opt)(**plain)
    for same in (eval(repr(opt)), copy.deepcopy(opt), pickle.loads(pickle.dumps(opt)), again):
        assert same == opt
        assert hash(same) == hash(opt)
        assert same.groups == opt.groups
    assert replace(opt, rounding="half_even").groups == opt.groups


def test_the_order_of_groups_does_not_matter():
    turned = {k: dict(reversed(v.items())) for k, v in reversed(GROUPS.items())}
    assert SGD(0.1, groups=GROUPS) == SGD(0.1, groups=turned)
    assert SGD(0.1, groups=GROUPS) != SGD(0.1, groups={**GROUPS, "c": {"lr": 1}})
    assert SGD(0.1, groups={}) == SGD(0.1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SGD(groups=3), r"SGD: groups must map names to options such as .* not 3$"),
        (lambda: SGD(groups={"0": 0.1}), r"SGD: groups must map names to options"),
        (lambda: SGD(groups={0: {"lr": 1}}), r"SGD: groups\[0\]: a name must be a layer's"),
        (
            lambda: SGD(groups={"0": {"betas": 1}}),
            r"\['0'\]: no option 'betas'; there are lr",
        ),
        (lambda: AdamW(groups={"0": {"momentum": 1}}), r"no option 'momentum'; .* betas, eps"),
        (lambda: SGD(groups={"0": {"rounding": "half_even"}}), r"no option 'rounding'"),
        (lambda: SGD(groups={"0": {"lr": -1}}), r"groups\['0'\]: SGD: lr must be 0 or a positive"),
        (lambda: SGD(groups={"0": {"nesterov": True}}), r"groups\['0'\]: SGD: nesterov needs"),
        (lambda: SGD(0.1, groups={"0": {"lr": 0}}), r"groups\['0'\]: lr is kept as a ratio"),
        (lambda: SGD(0, groups={"0": {"lr": 0.1}}), r"neither may be 0; freeze"),
        (lambda: SGD(1e30, groups={"0": {"lr": 1e-30}}), r"lr / 1e\+30 must be a normal float32"),
    ],
)
def test_what_groups_refuse(make, text):
    with pytest.raises(QfwError, match=text):
        make()


def test_a_rate_of_zero_and_groups_without_rates():
    assert SGD(0, groups={"0": {"weight_decay": 1}}).ratio("0.weight") == 1.0


@pytest.mark.parametrize("name", ["1", "3", "0.weights", "0.weight.x", "00"])
def test_names_that_a_model_has_not(name):
    with pytest.raises(QfwError) as info:
        plan(SGD(groups={name: {"lr": 1}}))
    assert str(info.value) == (
        f"optimizer: groups['{name}']: no layer or parameter of that name; there are '0', '2', "
        "'0.weight', '0.bias', '2.weight', '2.bias'"
    )


def test_names_of_modules():
    model = nn.Sequential({"a": nn.Sequential(nn.Linear(5, 4)), "b": nn.Linear(4, 3)})
    options = {"input_shape": 5, "loss": nn.CrossEntropyLoss()}
    made = q.compile(model, optimizer=SGD(0.1, groups={"a": {"momentum": 0.9}}), **options)
    assert list(made.program.states) == ["a.0.weight:momentum", "a.0.bias:momentum"]


# --- in sessions ----------------------------------------------------------------------------------


def test_a_rate_scales_all_groups():
    """Halving net.lr halves every step of plain SGD, that of a group too."""
    moves = []
    for lr in (0.5, 0.25):
        net = q.Session(plan(SGD(1.0, groups={"0.weight": {"lr": 0.125}})))
        before = net.state_dict()
        net.lr = lr
        net.step(*data())
        grads = {n: net.grad(n).numpy() for n in before}
        after = net.state_dict()
        moves.append({n: before[n] - after[n] for n in before})
        for n in before:
            rate = lr * (0.125 if n == "0.weight" else 1)
            np.testing.assert_allclose(moves[-1][n], rate * grads[n], atol=2e-7)
    net.lr = 0
    assert net.lr == 0


@pytest.mark.parametrize("optimizer", [SGD(0.1, max_grad_norm=1), AdamW(max_grad_norm=1)])
def test_fused_gradients_have_no_norm(optimizer):
    with pytest.raises(QfwError, match=r"^layer '0': grads=\"fused\" .* max_grad_norm"):
        plan(optimizer, INT8.replace(grads="fused"))


@pytest.mark.parametrize("optimizer", [SGD(0.1, max_grad_norm=1), AdamW(max_grad_norm=1)])
def test_a_norm_that_is_infinite(optimizer):
    """The error names it, and everything is as it was."""
    net = q.Session(plan(optimizer))
    net.step(*data())
    before = bytes(net._spaces.lasting())
    with pytest.raises(NonFiniteError, match=r"^step: the norm of all gradients is infinite"):
        net.step(*data(size=1e25))
    assert bytes(net._spaces.lasting()) == before
    assert net.steps == 1
    net.step(*data())
    assert net.steps == 2


@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.1, 0.9, max_grad_norm=0.1, groups={"0": {"lr": 1}}), AdamW(0.01), AdamW(0.1, eps=1)],
)
@pytest.mark.parametrize("policy", [INT8, q.Policy.float32()], ids=repr)
def test_state_survives_recompile(optimizer, policy):
    """With the same optimizer a run goes on as if nothing had been; with another it begins anew."""
    one = q.Session(plan(optimizer, policy))
    for i in range(3):
        one.step(*data(seed=i))
    two = one.recompile(optimizer=copy.deepcopy(optimizer))
    for name in one.plan.program.states:
        assert bytes(two.tensor(name).data) == bytes(one.tensor(name).data)
    assert any(two.tensor(name).numpy().any() for name in one.plan.program.states)
    for i in range(3):
        assert one.step(*data(seed=10 + i)) == two.step(*data(seed=10 + i))
    assert bytes(two._spaces.lasting()) == bytes(one._spaces.lasting())
    other = one.recompile(optimizer=replace(optimizer, weight_decay=0.5))
    assert not any(other.tensor(name).numpy().any() for name in other.plan.program.states)


def test_what_is_not_an_optimizer():
    with pytest.raises(QfwError, match=r"^optimizer must be optim\.SGD\(\) or optim\.AdamW\(\), "):
        plan(optim.StepLR(3))


def test_a_note_on_narrow_second_moments():
    def notes(state):
        found = plan(AdamW(), INT8.replace(state=state)).findings
        return [f for f in found if f.code == "second-moment-bits"]

    assert {f.layer for f in notes(q.Sym(8))} == {"0", "2"}
    assert "'0.weight:exp_avg_sq' is Sym(8)" in " ".join(f.message for f in notes(q.Sym(8)))
    assert notes(q.Asym(16)) == notes(q.Float32()) == []


def test_low_bit_moments_divide_by_no_less_than_half_a_step():
    """A gradient that vanishes leaves a momentum over a second moment whose code is 0."""
    case = Case(mlp(6, 5, 3), INT8.replace(state=q.Sym(4)), AdamW(0.01, eps=1e-30), rows=(4,) * 40)
    net = q.Session(case.plan())
    for i, (x, y) in enumerate(case.data()):
        before = net.state_dict()
        net.step(x * np.float32(10.0 ** -(i % 7)), y)
        after = net.state_dict()
        assert max(float(np.abs(after[n] - before[n]).max()) for n in before) < 0.2
