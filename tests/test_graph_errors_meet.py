"""Errors of several layers that read one output: each has its own stream, range and counters."""

import numpy as np
import pytest
from oracle_window import Conv
from step_helpers import Case, same_trace

import pyqfw as q

RANDOM = {"rounding": "stochastic"}
HINDSIGHT = q.Sym(8, range="hindsight", **RANDOM)
LAYERS = [
    ("conv", "a", Conv(2, 3, (3,), padding=(1,))),
    *(("conv", "b", Conv(3, 3, (1,))), ("conv", "c", Conv(3, 3, (1,))), ("add", "s")),
    *(("flatten", "f"), ("linear", "l", 15, 3, True)),
]
SOURCES = {"c": ("a",), "s": ("b", "c")}


def case(policy, **options):
    return Case(LAYERS, policy, shape=(2, 5), sources=SOURCES, **options)


@pytest.mark.parametrize("errors", [q.Sym(8, **RANDOM), HINDSIGHT], ids=["dynamic", "hindsight"])
def test_no_two_have_a_name_or_a_stream(errors):
    program = case(q.Policy.int8().replace(errors=errors)).plan().program
    stored = [t for t in program.tensors if t.role == "error"]
    assert {"a+1:error", "a+2:error", "a:error"} <= {t.name for t in stored}
    assert len({t.name for t in stored}) == len({t.stream for t in stored}) == len(stored)


@pytest.mark.parametrize("errors", [q.Sym(8, **RANDOM), q.Asym(6), HINDSIGHT], ids=repr)
def test_steps(errors):
    net, session = case(q.Policy.int8().replace(errors=errors)).check()
    same_trace(net, session, *next(case(q.Policy.int8()).data()))
    assert {"a+1", "a+2", "a"} <= set(net.errors)


def test_each_has_a_gain():
    plan = case(q.Policy.int8().replace(errors=HINDSIGHT)).plan()
    gains = {name for name in plan.program.gains if name.startswith("a")}
    assert gains == {"a+1:error gain", "a+2:error gain", "a:error gain"}
    one = [op for op in plan.ops for t in op.used if t.name == "a:error gain"]
    assert [op.kernel for op in one] == ["convert", "commit"]


def test_each_is_counted():
    given = case(q.Policy.int8())
    session = q.Session(given.plan(), counters=True)
    x, y = next(given.data())
    session.step(x, y)
    counted = session.counters()
    sizes = {name: counted[f"{name}:error"].written for name in ("a+1", "a+2", "a")}
    assert sizes == dict.fromkeys(sizes, np.prod((len(x), 3, 5)))


TURNED = [  # the errors of a Linear's output, in C order, come from a join and a layer behind it
    ("linear", "a", 6, 2, True),
    *(("conv", "c", Conv(2, 2, (1,))), ("concat", "s", 1), ("flatten", "f")),
    ("linear", "l", 12, 3, True),
]
RANGED = [
    q.Asym(8, range="hindsight"),
    q.Asym(5, range=0.5),
    q.Asym(6, **RANDOM),
    q.Sym(4, **RANDOM),
]


@pytest.mark.parametrize("errors", [*RANGED, q.Sym(6, axis="row"), q.Asym(7, group=3)], ids=repr)
def test_an_error_is_stored_once_before_it_is_turned(errors):
    """Widened codes with one scale, in another order, are what was stored."""
    rules = q.Policy.int8().replace(errors=errors)
    case = Case(TURNED, rules, shape=(2, 6), sources={"c": ("a",), "s": ("a", "a", "c")})
    names = [op.places[0].name for op in case.plan().ops if op.kernel == "convert"]
    errors_of_a = sorted(n for n in names if n.startswith("a") and n.endswith(":error"))
    assert errors_of_a == ["a+1:error", "a+2:error", "a+3:error", "a:error"]
    net, session = case.check()
    same_trace(net, session, *next(case.data()))
