"""LayerNorm in a step, beside the oracle: no tolerance."""

from __future__ import annotations

import numpy as np
import pytest
from step_helpers import ARITHMETICS, Case, policy, same_trace

import pyqfw as q
from pyqfw import nn, optim

RANDOM = {"rounding": "stochastic"}
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
    "sym16": policy(q.Sym(16)),
    "tensor": policy(q.Sym(7, container=8, **RANDOM)),
    "floats in integers": policy(q.Float32(), "sym"),
    "integers in floats": policy(q.Sym(12, container=16), "float32"),
}


def chain(n: int, gamma: bool = True, beta: bool = True, eps: float = 1e-5) -> list:
    """Linear, LayerNorm, ReLU, Linear."""
    return [
        ("linear", "0", 5, n, True),
        ("norm", "1", (n,), eps, gamma, beta),
        ("relu", "2"),
        ("linear", "3", n, 3, True),
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy(name):
    Case(chain(11), POLICIES[name]).check()


@pytest.mark.parametrize("name", ["float32", "full_sym", "int8"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 31, 32, 33, 64, 100])
def test_every_tail(n, name):
    Case(chain(n), POLICIES[name]).check()


@pytest.mark.parametrize("name", ["float32", "full_sym", "int8", "fused", "asym"])
@pytest.mark.parametrize(("gamma", "beta"), [(True, False), (False, False), (False, True)])
def test_without_affine(gamma, beta, name):
    layers = chain(9, gamma, gamma and beta)
    Case(layers, POLICIES[name]).check()


@pytest.mark.parametrize("name", POLICIES)
def test_several_axes_and_positions(name):
    layers = [
        ("norm", "0", (4, 3), 1e-5, True, True),
        ("linear", "1", 3, 6, True),
        ("norm", "2", (6,), 1e-3, True, True),
        ("flatten", "3"),
        ("linear", "4", 2 * 4 * 6, 3, True),
    ]
    Case(layers, POLICIES[name], shape=(2, 4, 3)).check()


EXTREMES = [
    (name, size, eps)
    for name in ("full_sym", "int8")
    for size in (1e-30, 1e-6, 1e6, 1e30)
    for eps in (0.0, 1e-12, 1.0, 1e30)
]
EXTREMES += [("float32", size, eps) for size in (1e-6, 1e6) for eps in (1e-12, 1.0, 1e30)]


@pytest.mark.parametrize(("name", "size", "eps"), EXTREMES)
def test_sizes_and_eps(name, size, eps):
    Case([("norm", "n", (5,), eps, True, True), *chain(7)], POLICIES[name], size=size).check()


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("name", ["float32", "full_sym"])
def test_mixed_arithmetic(name, arithmetic):
    base = POLICIES[name]
    other = "sym" if name == "float32" else "float32"
    Case(chain(6), base.replace(**{arithmetic: other})).check()


@pytest.mark.parametrize("name", ["float32", "full_sym", "int8"])
@pytest.mark.parametrize("frozen", [["0"], ["1"], ["0", "1"], ["1", "3"]])
def test_frozen(frozen, name):
    net, _ = Case(chain(6), POLICIES[name], frozen=frozen).check()
    assert not any(grad.split(".")[0] in frozen for grad in net.grads)


@pytest.mark.parametrize("name", ["float32", "full_sym", "int8"])
def test_first_and_last(name):
    layers = [("norm", "0", (5,), 1e-5, True, True), ("linear", "1", 5, 4, True)]
    layers += [("norm", "2", (4,), 1e-5, True, True)]
    Case(layers, POLICIES[name]).check()


@pytest.mark.parametrize("name", ["full_sym", "int8"])
def test_a_trace_shows_what_the_oracle_has(name):
    case = Case(chain(6), POLICIES[name])
    net, session = case.net(), q.Session(case.plan())
    for x, y in case.data():
        same_trace(net, session, x, y)


@pytest.mark.parametrize("name", ["float32", "full_sym", "int8"])
def test_raw_and_quant_are_one_requantization(name):
    """Written with and without RAW: the same bytes."""

    def net(**output):
        model = nn.Sequential(
            *(nn.Linear(6, 8, **output), nn.Quant(), nn.LayerNorm(8, **output), nn.Quant()),
            nn.Linear(8, 3),
        )
        plan = q.compile(
            model,
            input_shape=6,
            loss=nn.CrossEntropyLoss(),
            optimizer=optim.SGD(0.1, momentum=0.9),
            policy=POLICIES[name],
            batch=4,
        )
        return q.Session(plan)

    plain, raw = net(), net(output=q.RAW)
    assert plain.plan.to_bytes() == raw.plan.to_bytes()
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, y = rng.normal(size=(4, 6)).astype(np.float32), rng.integers(0, 3, 4)
        assert plain.step(x, y) == raw.step(x, y)
    assert bytes(plain._spaces.arena[128:]) == bytes(raw._spaces.arena[128:])


def test_long_rows_are_refused():
    with pytest.raises(q.QfwError, match="65536"):
        nn.LayerNorm((256, 257))
    for wrong in (0, (), (3, -1), "a", 2.5):
        with pytest.raises(q.QfwError, match="normalized_shape"):
            nn.LayerNorm(wrong)
    for eps in (-1.0, float("nan"), float("inf"), "a"):
        with pytest.raises(q.QfwError, match="eps"):
            nn.LayerNorm(3, eps=eps)
    with pytest.raises(q.ShapeError, match=r"layer '0'.*last axes must be \(4,\)"):
        q.compile(nn.Sequential(nn.LayerNorm(4)), input_shape=5)


@pytest.mark.parametrize("name", ["full_sym", "int8"])
def test_the_longest_row(name):
    """65536 elements of full scale: nothing overflows."""
    n = 65536
    model = nn.Sequential(nn.LayerNorm(n), nn.Linear(n, 2))
    plan = q.compile(
        model,
        input_shape=n,
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.1),
        policy=POLICIES[name],
        batch=1,
    )
    net = q.Session(plan)
    for x in (np.ones(n), np.eye(1, n)[0], np.where(np.arange(n) % 2, 1.0, -1.0)):
        net.step(x[None].astype(np.float32), [1])
    assert np.isfinite(net.predict(np.ones((1, n), np.float32))).all()
