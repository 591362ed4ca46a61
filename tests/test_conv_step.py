"""A Session with convolutions is the oracle's Net, bit for bit: geometries, policies, batches."""

import pytest
from conv_cases import GEOMETRIES, MOMENTUM, RANDOM, case
from oracle_window import Conv
from step_helpers import ARITHMETICS, FLOAT, Case, policy, same_trace

import pyqfw as q
from pyqfw import BFP, Asym, Sym, optim

INT8, FULL_SYM, FLOAT32 = q.Policy.int8(), q.Policy.full_sym(), q.Policy.float32()
POLICIES = {
    "float32": FLOAT32,
    "full_sym": FULL_SYM,
    "int8": INT8,
    "floats": policy(),
    "fused": INT8.replace(grads="fused", weights=Sym(4, axis=0, **RANDOM)),
    "rows": policy(
        Sym(5, axis=0, **RANDOM),
        input=Asym(8, axis="row"),
        wires=Asym(7, axis="row", **RANDOM),
        weights=Sym(6, group=4, **RANDOM),
        bias=Asym(16, **RANDOM),
        errors=Sym(10, axis="row", **RANDOM),
    ),
    "narrow": policy(
        Sym(4, **RANDOM), wires=Asym(4, range=1.5), weights=Sym(3, axis=-1), bias=FLOAT
    ),
    "groups": policy(BFP(8, 4, **RANDOM), errors=Asym(16, group=3), wires=Asym(16, group=3)),
    "hindsight": INT8.replace(
        wires=Sym(8, range="hindsight"), errors=Sym(8, range="hindsight", **RANDOM)
    ),
    "fixed": INT8.replace(wires=Sym(8, range=2.0), errors=Sym(12, container=16, range=0.25)),
    "16 bits": policy(Sym(16), weights=Sym(16, axis=0), bias=Sym(16)),
}


@pytest.mark.parametrize("rules", POLICIES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries(name, rules):
    made = case(name, POLICIES[rules])
    net, session = made.check()
    same_trace(net, session, *next(made.data()))


@pytest.mark.parametrize("rules", ["float32", "full_sym", "int8", "fused", "hindsight"])
@pytest.mark.parametrize("batch", [1, 9])
@pytest.mark.parametrize("name", list(GEOMETRIES)[::3])
def test_tiles_for_short_and_for_long_batches(name, batch, rules):
    case(name, POLICIES[rules], batch=batch, rows=(batch, max(1, batch - 2))).check()


@pytest.mark.parametrize("rules", ["float32", "full_sym", "int8", "rows", "groups", "fixed"])
@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("name", ["padded", "groups", "each channel", "transposed, strides"])
def test_micro_batches(name, parts, rules):
    """A gradient adds a tile at a time, and has patches as well."""
    case(name, POLICIES[rules], batch=5, rows=(5, 4, 1), micro_batches=parts).check()


OPTIMIZERS = {
    "plain": optim.SGD(0.1),
    "nesterov": optim.SGD(0.05, momentum=0.9, nesterov=True, rounding="half_even"),
    "clipped": optim.SGD(0.1, momentum=0.5, max_grad_norm=0.1, groups={"c": {"lr": 0.03}}),
    "adamw": optim.AdamW(0.01),
    "adamw, clipped": optim.AdamW(0.01, max_grad_norm=1.0),
}


@pytest.mark.parametrize("rules", ["float32", "full_sym", "int8", "fused", "rows"])
@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("name", ["padded", "plane, each channel", "transposed, groups"])
def test_optimizers(name, rule, rules):
    if OPTIMIZERS[rule].max_grad_norm is not None and rules == "fused":
        return
    case(name, POLICIES[rules], sgd=OPTIMIZERS[rule]).check()


@pytest.mark.parametrize("rules", ["float32", "int8", "rows"])
@pytest.mark.parametrize("choice", range(16))
def test_each_product_in_either_arithmetic(choice, rules):
    kinds = {a: ("sym", "float32")[choice >> i & 1] for i, a in enumerate(ARITHMETICS)}
    for name in ("padded", "transposed", "plane, each channel"):
        case(name, POLICIES[rules].replace(**kinds)).check()


def test_layers_with_policies_of_their_own():
    own = {
        "in": {"weights": Sym(4), "wires": Sym(6), "errors": Asym(5), "grads": "fused"},
        "c": {"weights": FLOAT, "state": FLOAT, "forward": "float32", "weight_grad": "float32"},
        "out": {"bias": FLOAT, "errors": FLOAT, "grads": Sym(7), "prop": "float32"},
    }
    for base in ("int8", "full_sym", "float32", "rows"):
        for name in ("strides and padding", "groups", "plane, transposed"):
            case(name, POLICIES[base], own=own).check()


@pytest.mark.parametrize("frozen", [["in"], ["c"], ["out"], ["in", "c"], ["c", "out"]], ids=repr)
@pytest.mark.parametrize("rules", ["float32", "int8", "rows"])
def test_frozen(frozen, rules):
    for name in ("padded", "transposed, each channel"):
        net, session = case(name, POLICIES[rules], frozen=frozen).check()
        assert not {g.split(".")[0] for g in net.grads} & set(frozen)
        assert set(session.plan.program.gradients) == set(net.grads)


@pytest.mark.parametrize("size", [0, 1e-30, 1e-12, 1e4, 1e9])
@pytest.mark.parametrize("rules", ["float32", "int8", "rows", "groups"])
def test_data_of_any_size(size, rules):
    sgd = optim.SGD(1e-3, momentum=0.5)
    case("groups, strides", POLICIES[rules], sgd=sgd, size=size).check()


@pytest.mark.parametrize("rules", ["float32", "full_sym", "int8", "floats"])
def test_patches_that_take_less_than_the_seeds_of_a_bias(rules):
    """A gather without a bias has scratch for patches alone."""
    layers = [
        ("conv", "a", Conv(2, 9, (1,))),
        ("conv", "b", Conv(9, 1, (1,), padding=(1,), bias=False, transposed=True)),
        ("flatten", "f"),
    ]
    made = Case(layers, POLICIES[rules], MOMENTUM, shape=(2, 4), batch=1, rows=(1, 1))
    net, session = made.check()
    same_trace(net, session, *next(made.data()))
