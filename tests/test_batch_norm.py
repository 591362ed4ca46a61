"""BatchNorm and GroupNorm in steps of chains, beside the oracle: no tolerance."""

from __future__ import annotations

import pytest
from norm_helpers import NormCase
from step_helpers import ARITHMETICS, policy

import pyqfw as q
from pyqfw import optim

RANDOM = {"rounding": "stochastic"}
HINDSIGHT = {"range": "hindsight"}
POLICIES = {
    "float32": q.Policy.float32(),
    "full_sym": q.Policy.full_sym(),
    "int8": q.Policy.int8(),
    "fused": q.Policy.int8().replace(grads="fused"),
    "rows": q.Policy.int8().replace(
        wires=q.Sym(8, axis="row"), errors=q.Sym(8, axis="row", **RANDOM)
    ),
    "groups": q.Policy.int8().replace(
        wires=q.BFP(7, 3), errors=q.Sym(6, group=4, **RANDOM), weights=q.BFP(6, 2, **RANDOM)
    ),
    "asym": q.Policy.int8().replace(
        wires=q.Asym(8), errors=q.Asym(9, **RANDOM), weights=q.Asym(8, **RANDOM), grads=q.Asym(8)
    ),
    "asym16": policy(q.Asym(16)),
    "asym16 rows": policy(q.Asym(16)).replace(wires=q.Asym(16, axis="row")),
    "sym16": policy(q.Sym(16)),
    "tensor": policy(q.Sym(7, container=8, **RANDOM)),
    "tensor, rows": q.Policy.int8().replace(
        weights=q.Sym(8, **RANDOM), wires=q.Sym(8, axis="row"), errors=q.Sym(8, axis="row")
    ),
    "fixed": q.Policy.int8().replace(wires=q.Sym(8, range=2.0), errors=q.Sym(8, range=0.1)),
    "hindsight": q.Policy.int8().replace(
        wires=q.Sym(8, **HINDSIGHT), errors=q.Sym(8, **HINDSIGHT, **RANDOM)
    ),
    "floats in integers": policy(q.Float32(), "sym"),
    "integers in floats": policy(q.Sym(12, container=16), "float32"),
}
MAIN = ("float32", "full_sym", "int8")


def batch(n: int = 7, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True) -> list:
    """Linear, BatchNorm, ReLU, Linear, BatchNorm, Linear."""
    return [
        ("linear", "0", 5, n, True),
        ("batch", "1", n, eps, momentum, affine),
        ("relu", "2"),
        ("linear", "3", n, 6, False),
        ("batch", "4", 6, eps, momentum, affine),
        ("linear", "5", 6, 3, True),
    ]


def group(n: int = 6, groups: int = 3, eps: float = 1e-5, affine: bool = True) -> list:
    return [
        ("linear", "0", 5, n, True),
        ("group", "1", groups, n, eps, affine),
        ("relu", "2"),
        ("linear", "3", n, 3, True),
    ]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("layers", [batch(), group()], ids=["batch", "group"])
def test_every_policy(layers, name):
    NormCase(layers, POLICIES[name]).check()


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 32, 33, 64, 65])
def test_every_tail_of_channels(n, name):
    NormCase(batch(n), POLICIES[name]).check()


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("rows", [2, 3, 7, 8, 9, 17])
def test_every_tail_of_rows(rows, name):
    NormCase(batch(3), POLICIES[name], batch=rows, rows=(rows, 2, rows)).check()


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize(("n", "groups"), [(1, 1), (4, 4), (4, 1), (33, 3), (64, 2), (40, 8)])
def test_every_division_into_groups(n, groups, name):
    NormCase(group(n, groups), POLICIES[name]).check()


@pytest.mark.parametrize("name", [*MAIN, "fused", "asym", "rows"])
@pytest.mark.parametrize("layers", [batch(affine=False), group(affine=False)], ids=["b", "g"])
def test_without_affine(layers, name):
    NormCase(layers, POLICIES[name]).check()


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("momentum", [None, 0.0, 1.0, 0.3, 1e-40])
def test_momentum(momentum, name):
    NormCase(batch(momentum=momentum), POLICIES[name]).check()


@pytest.mark.parametrize("name", [*POLICIES])
@pytest.mark.parametrize("frozen", [["1"], ["4"], ["1", "4"], ["0", "1"], ["1", "3"]])
def test_frozen(frozen, name):
    """The running statistics are those of the layer, in a step too, and stay."""
    net, session = NormCase(batch(), POLICIES[name], frozen=frozen).check()
    assert not any(grad.split(".")[0] in frozen for grad in net.grads)
    for path in {"1", "4"} & set(frozen):
        for what in ("weight", "running_mean", "num_batches_tracked"):
            assert session.plan.program.kept[f"{path}.{what}"].space == "const"


@pytest.mark.parametrize("name", [*MAIN, "rows", "groups", "asym16", "hindsight"])
def test_frozen_after_an_activation_and_a_quant(name):
    """What backward needs stored is stored before the layer; and codes are folded."""
    layers = [
        *(("linear", "0", 5, 7, True), ("relu", "1"), ("batch", "2", 7, 1e-5, 0.1, True)),
        *(("linear", "3", 7, 6, True), ("quant", "4", None), ("batch", "5", 6, 1e-3, 0.1, True)),
        *(("relu", "6"), ("linear", "7", 6, 3, True)),
    ]
    NormCase(layers, POLICIES[name], frozen=["2", "5"]).check()
    NormCase(layers, POLICIES[name]).check()


@pytest.mark.parametrize("name", [*MAIN, "asym", "hindsight"])
@pytest.mark.parametrize("micro_batches", [2, 3])
def test_micro_batches(micro_batches, name):
    """Statistics are those of each micro-batch, and follow each."""
    for layers in (batch(), group()):
        case = NormCase(layers, POLICIES[name], batch=9, rows=(9, 8, 9))
        case.micro_batches = micro_batches
        net, _ = case.check()
        if net.running:
            assert net.running["1"].tracked == sum(-(-n // net.batch) for n in case.rows)


@pytest.mark.parametrize("name", ["int8", "float32"])
@pytest.mark.parametrize("sgd", [optim.AdamW(0.01), optim.SGD(0.1, max_grad_norm=0.5)])
def test_optimizers(sgd, name):
    NormCase(batch(), POLICIES[name], sgd=sgd).check()


EXTREMES = [
    (name, size, eps)
    for name in ("full_sym", "int8")
    for size in (1e-30, 1e-6, 1e6, 1e30)
    for eps in (0.0, 1e-12, 1.0, 1e30)
]
EXTREMES += [("float32", size, eps) for size in (1e-6, 1e6) for eps in (1e-12, 1.0, 1e30)]


@pytest.mark.parametrize(("name", "size", "eps"), EXTREMES)
def test_sizes_and_eps(name, size, eps):
    first = [("batch", "b", 5, eps, 0.1, True), ("group", "g", 5, 5, eps, True)]
    tail = [("linear", "0", 5, 4, True), ("batch", "1", 4, eps, 0.1, True)]
    tail += [("linear", "2", 4, 3, True)]
    NormCase([first[0], *tail], POLICIES[name], size=size).check()
    NormCase([first[1], *tail], POLICIES[name], size=size).check()


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("name", ["float32", "full_sym"])
@pytest.mark.parametrize("frozen", [[], ["1"]])
def test_mixed_arithmetic(frozen, name, arithmetic):
    other = "sym" if name == "float32" else "float32"
    own = {"1": {arithmetic: other}}
    NormCase(batch(), POLICIES[name], own=own, frozen=frozen).check()
    NormCase(group(), POLICIES[name], own=own).check()


@pytest.mark.parametrize("name", MAIN)
def test_first_and_last(name):
    for kind, rest in (("batch", (1e-5, 0.1, True)), ("group", (1e-5, True))):
        sizes = {"batch": ((5,), (4,)), "group": ((5, 5), (2, 4))}[kind]
        layers = [(kind, "0", *sizes[0], *rest), ("linear", "1", 5, 4, True)]
        layers.append((kind, "2", *sizes[1], *rest))
        NormCase(layers, POLICIES[name]).check()


@pytest.mark.parametrize("name", ["full_sym", "int8", "float32"])
def test_seeds_that_need_room(name):
    """Biases beyond the sums, factors of 0, and variances of next to nothing."""
    spoilt = {"1.running_var": 1e-30, "1.bias": 1e20, "4.weight": 0.0, "4.running_mean": 1e10}
    case = NormCase(batch(), POLICIES[name], frozen=["1", "4"], spoilt=spoilt)
    net, session = case.opened()
    for x, _ in case.data():
        found, expected = session.predict(x), net.predict(x)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("affine", [True, False])
def test_hindsight_ranges_of_a_layer_norm(affine):
    """Relative to 1 forward, to the scale of the error backward."""
    layers = [
        *(("linear", "0", 5, 7, True), ("norm", "1", (7,), 1e-5, affine, affine), ("relu", "2")),
        *(("linear", "3", 7, 3, True),),
    ]
    NormCase(layers, POLICIES["hindsight"]).check()
