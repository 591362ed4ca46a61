"""Losses of what a convolution or a join makes: the sums themselves, and an error that stays as it
is stored; beside the oracle."""

import pytest
from oracle_window import Conv
from step_helpers import Case, policy, same_trace

import pyqfw as q
from pyqfw import nn

RANDOM = {"rounding": "stochastic"}
HINDSIGHT = q.Sym(8, range="hindsight", **RANDOM)
POLICIES = {
    "float32": q.Policy.float32(),
    "full_sym": q.Policy.full_sym(),
    "int8": q.Policy.int8(),
    "int4": q.Policy.int8().replace(wires=q.Sym(4), errors=q.Sym(4, **RANDOM)),
    "rows": q.Policy.int8().replace(wires=q.Asym(7, axis="row"), errors=q.Asym(7, axis="row")),
    "hindsight": q.Policy.int8().replace(wires=HINDSIGHT, errors=HINDSIGHT),
    "coarse wires": q.Policy.float32().replace(wires=q.Sym(3)),
    "sym over floats": policy(),
}
CONV = ("conv", "a", Conv(2, 2, (3,), padding=(1,)))
LAST = {
    "convolution": ([CONV, ("conv", "b", Conv(2, 2, (3,)))], {}),
    "activation": ([CONV, ("conv", "b", Conv(2, 2, (3,))), ("relu", "r")], {}),
    "sum": ([CONV, ("conv", "b", Conv(2, 2, (3,), padding=(1,))), ("add", "s")], {"s": ("b", "a")}),
    "beside": ([CONV, ("conv", "b", Conv(2, 1, (1,))), ("concat", "s", 1)], {"s": ("b", "a")}),
    "along": ([CONV, ("conv", "b", Conv(2, 2, (4,))), ("concat", "s", 2)], {"s": ("b", "a")}),
    "transposed": ([CONV, ("conv", "b", Conv(2, 2, (2,), transposed=True))], {}),
}
LOSSES = {
    "classes": nn.CrossEntropyLoss(),
    "smooth": nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=1),
    "numbers": nn.MSELoss(),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("rules", POLICIES)
def test_what_comes_last(rules, last, loss):
    layers, sources = LAST[last]
    flat = [("flatten", "f")] if loss != "numbers" else []
    options = {"shape": (2, 4), "sources": sources, "loss": LOSSES[loss]}
    case = Case([*layers, *flat], POLICIES[rules], ignoring=loss == "smooth", **options)
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


def test_the_logits_are_those_of_the_sums():
    """In 16 bits, whatever the wires are, and then in the order of the classes."""
    layers, _ = LAST["convolution"]
    case = Case([*layers, ("flatten", "f")], POLICIES["int4"], shape=(2, 4))
    ops = [op for op in case.plan().ops if op.layer == "loss"]
    assert [op.kernel for op in ops] == ["convert", "transpose", "cross_entropy_s16"]
    assert ops[0].places[1].name == "b:sums"
    assert ops[0].places[0].fmt == q.Sym(16)


def test_the_error_of_the_loss_has_no_gain():
    """Neither as it is stored by a join nor in another order."""
    for last, (layers, sources) in LAST.items():
        case = Case(
            [*layers, ("flatten", "f")], POLICIES["hindsight"], shape=(2, 4), sources=sources
        )
        program = case.plan().program
        wide = [t for t in program.tensors if t.role == "error" and t.fmt == HINDSIGHT]
        assert program.gains, last
        assert {f"{t.name} gain" for t in wide} <= program.gains.keys(), last
        assert not {"f:error gain", "r:error gain", "s:error gain"} & program.gains.keys(), last


@pytest.mark.parametrize("rules", ["float32", "int8", "rows"])
@pytest.mark.parametrize("axes", [(1, 2), (1, 3), (2, 3), ()], ids=repr)
def test_numbers_of_another_shape_than_the_sums(axes, rules):
    """Targets have the shape of the output, and the order of the sums it was flattened from."""
    layers = [("conv", "a", Conv(2, 2, (1, 2))), ("conv", "b", Conv(2, 3, (2, 1)))]
    layers += [("flatten", "f", *axes)]
    case = Case(layers, POLICIES[rules], shape=(2, 4, 3), loss=nn.MSELoss(), size=0.05)
    net, session = case.check()
    same_trace(net, session, *next(case.data()))
