"""A Session is the oracle's Net, bit for bit: networks, optimizers, short batches, long runs."""

from dataclasses import replace

import numpy as np
import pytest
from oracle_tensor import divided
from sklearn.datasets import load_digits
from step_helpers import ARITHMETICS, FLOAT, Case, mlp, policy, same_floats, same_kept, same_trace

import pyqfw as q
from pyqfw import BFP, Asym, Sym, nn, optim, quant

INT8, FULL_SYM = q.Policy.int8(), q.Policy.full_sym()
POLICIES = {"float32": q.Policy.float32(), "full_sym": FULL_SYM, "int8": INT8}
RANDOM = {"rounding": "stochastic"}
ROWS = policy(  # a scale a row or a group wherever that can be, zero points, packed widths
    Sym(5, axis=0, **RANDOM),
    input=Asym(8, axis="row"),
    wires=Asym(7, axis="row", **RANDOM),
    weights=Sym(6, group=4, **RANDOM),
    bias=Asym(16, **RANDOM),
    errors=Sym(10, axis="row", **RANDOM),
)
NARROW = policy(  # codes that saturate, few of them
    Sym(4, **RANDOM), wires=Asym(4, range=1.5), weights=Sym(3, axis=1), bias=FLOAT, grads="fused"
)
RULES = {
    "plain": optim.SGD(0.1),
    "momentum": optim.SGD(0.05, momentum=0.9),
    "nesterov": optim.SGD(0.05, momentum=0.9, nesterov=True),
    "decay": optim.SGD(0.1, weight_decay=0.01),
    "dampening": optim.SGD(0.05, momentum=0.8, dampening=0.3),
    "all": optim.SGD(0.05, momentum=0.8, dampening=0.3, weight_decay=0.02, rounding="half_even"),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", POLICIES)
def test_mlp(name, rule):
    rows = (32,) * 4 + (1, 31, 7)
    Case(mlp(64, 32, 10), POLICIES[name], RULES[rule], batch=32, rows=rows).check()


@pytest.mark.parametrize("isa", quant.core_info()["isas"])
@pytest.mark.parametrize("rules", [FULL_SYM, INT8, INT8.replace(grads="fused"), ROWS, NARROW])
def test_every_instruction_set(isa, rules):
    with quant.isa(isa):
        case = Case(mlp(40, 33, 18, 5), rules, RULES["all"], batch=17, rows=(17, 5, 17))
        net, session = case.check()
        same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("rules", [q.Policy.float32(), INT8, NARROW])
def test_step_is_its_parts(rules):
    """And a learning rate that is set in between is the next step's."""
    case = Case(mlp(7, 5, 3), rules, rows=(4, 2, 4, 4))
    net, session = case.net(), q.Session(case.plan())
    for x, y in case.data():
        session.lr = net.lr = session.lr * 0.7
        same_floats(np.float32(session.step(x, y)), net.step(x, y), "loss")
        same_kept(net, session)


# ---- structures ----------------------------------------------------------------------------------

BACK = ("linear", "out", 5, 3, True)
LAYERS = {
    "one layer": [("linear", "0", 7, 3, True)],
    "one output feature": [("linear", "0", 7, 1, True), ("relu", "1"), ("linear", "2", 1, 3, True)],
    "one class": [("linear", "0", 7, 1, True)],
    "one input": [("linear", "0", 1, 5, True), BACK],
    "no bias": mlp(7, 5, 4, 3, bias=False),
    "no activation": [("linear", "0", 7, 6, True), ("linear", "1", 6, 5, False), BACK],
    "two activations": [("linear", "0", 7, 5, True), ("relu", "1"), ("relu", "2"), BACK],
    "activation first": [("relu", "0"), ("linear", "1", 7, 5, True), ("relu", "2"), BACK],
    "activation last": [("linear", "0", 7, 5, True), BACK, ("relu", "r")],
    "quant first": [("quant", "q", Sym(6)), ("linear", "0", 7, 5, True), BACK],
    "quant last": [("linear", "0", 7, 5, True), BACK, ("quant", "q", Sym(9, **RANDOM))],
    "quant and activation last": [BACK, ("quant", "q", Asym(9)), ("relu", "r")],
    "quant after": [("linear", "0", 7, 5, True), ("quant", "q", None), BACK],
    "quant between": [("linear", "0", 7, 5, True), ("quant", "q", Asym(6)), ("relu", "r"), BACK],
    "quant behind": [("linear", "0", 7, 5, True), ("relu", "r"), ("quant", "q", BFP(8, 2)), BACK],
    "quants": [
        ("linear", "0", 7, 5, True),
        *(("quant", "a", Sym(8, range=0.5)), ("relu", "b"), ("quant", "c", Sym(8))),
        *(("relu", "d"), ("quant", "e", Sym(8, container=32)), ("quant", "f", FLOAT)),
        BACK,
    ],
    "quants that differ for many rows only": [
        ("linear", "0", 7, 5, True),
        *(("quant", "a", Sym(8)), ("relu", "b"), ("quant", "c", Sym(8, axis="row"))),
        BACK,
    ],
}
SHAPED = {
    "flatten": ((2, 3, 2), [("flatten", "f"), ("linear", "0", 12, 5, True), ("relu", "r"), BACK]),
    "flatten later": (
        (2, 6),
        [("quant", "q", None), ("relu", "r"), ("flatten", "f"), ("linear", "0", 12, 5, True), BACK],
    ),
    "flatten in part": (
        (2, 3, 4),
        [
            *(("flatten", "f", 1, 2), ("linear", "0", 4, 5, True), ("relu", "r")),
            *(("flatten", "g"), ("linear", "1", 30, 3, True)),
        ],
    ),
    "positions": (
        (3, 4),
        [
            *(("linear", "0", 4, 6, True), ("relu", "r"), ("linear", "1", 6, 2, True)),
            *(("flatten", "f"), ("relu", "s"), ("linear", "2", 6, 3, True)),
        ],
    ),
    "one position": ((1, 4), [("linear", "0", 4, 5, True), ("flatten", "f"), BACK]),
    "positions of one": ((5, 1), [("linear", "0", 1, 1, False), ("flatten", "f"), BACK]),
}
GRAINS = {
    "int8": INT8,
    "full_sym": FULL_SYM,
    "float32": q.Policy.float32(),
    "rows": ROWS,
    "narrow": NARROW,
    "groups": policy(BFP(8, 4, **RANDOM), errors=Asym(16, group=3), wires=Asym(16, group=3)),
    "long groups": policy(Sym(9, group=64), input=Asym(16, group=64)),
}


@pytest.mark.parametrize("rules", GRAINS)
@pytest.mark.parametrize("name", [*LAYERS, *SHAPED])
def test_structures(name, rules):
    shape, layers = SHAPED[name] if name in SHAPED else (None, LAYERS[name])
    case = Case(layers, GRAINS[rules], RULES["momentum"], shape=shape, rows=(4, 3, 1))
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("rules", GRAINS)
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batches(batch, rules):
    rows = (batch, 1, batch, max(1, batch - 1))
    Case(mlp(9, 6, 4), GRAINS[rules], RULES["nesterov"], batch=batch, rows=rows).check()


ONE_ROW = {
    "int8": INT8,
    "half away": INT8.replace(grads=Sym(8, axis=0), state=Sym(8, axis=0)),
    "half even": INT8.replace(grads=Sym(8, axis=0, rounding="half_even")),
    "pow2": INT8.replace(grads=Sym(8, axis=0, scale="pow2", **RANDOM)),
    "seven bits": INT8.replace(grads=Sym(7, axis=0, container=8, **RANDOM)),
    "a row is a group": INT8.replace(grads=Sym(8, group=64, **RANDOM)),
    "wires that do not reach their last code": INT8.replace(
        input=Sym(8, range=8.0), wires=Sym(8, range=8.0), grads=Sym(8, axis=0, **RANDOM)
    ),
    "fused": INT8.replace(grads="fused"),
    "float gradients": FULL_SYM,
}


@pytest.mark.parametrize("isa", quant.core_info()["isas"])
@pytest.mark.parametrize("rule", ["plain", "momentum"])
@pytest.mark.parametrize("rules", ONE_ROW)
def test_one_row(rules, rule, isa):
    """Gradients are outer products; rows of weights whose error is 0, and single elements."""
    with quant.isa(isa):
        case = Case(mlp(67, 37, 5), ONE_ROW[rules], RULES[rule], batch=1, rows=(1,) * 6, seed=3)
        net, session = case.check()
        same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("rules", GRAINS)
@pytest.mark.parametrize("frozen", [["l0"], ["l2"], ["l1"], ["l0", "l2"]], ids=repr)
def test_frozen(frozen, rules):
    case = Case(mlp(9, 6, 5, 4), GRAINS[rules], RULES["all"], frozen=frozen)
    net, session = case.check()
    assert set(net.grads) == {f"l{i}.{p}" for i in range(3) for p in ("weight", "bias")} - {
        f"{path}.{p}" for path in frozen for p in ("weight", "bias")
    }
    for path in frozen:
        same = case.net().params[f"{path}.weight"].data()
        assert bytes(session.tensor(f"{path}.weight").data) == same


def test_fixed_ranges_saturate_and_stop_errors():
    for fmt in (Sym(4, range=0.25), Asym(4, range=0.25), Sym(8, range=0.3, scale="pow2")):
        layers = [("linear", "0", 7, 5, True), ("quant", "q", fmt), BACK]
        net, session = Case(layers, INT8, rows=(4,) * 3).check()
        x, y = next(Case(layers, INT8).data())
        same_trace(net, session, x, y)
        codes = net.wires["q"].codes
        ends = (codes == fmt.qmax) | (codes == fmt.qmin)
        assert 0 < ends.sum() < codes.size
        assert not net.errors["0"].ints()[ends].any()
        assert net.errors["0"].ints()[~ends].any()


@pytest.mark.parametrize("rules", [q.Policy.float32(), INT8, ROWS], ids=["float32", "int8", "rows"])
@pytest.mark.parametrize("choice", range(16))
def test_each_product_in_either_arithmetic(choice, rules):
    kinds = {a: ("sym", "float32")[choice >> i & 1] for i, a in enumerate(ARITHMETICS)}
    Case(mlp(9, 6, 4), rules.replace(**kinds), RULES["momentum"]).check()


def test_layers_with_policies_of_their_own():
    own = {
        "l0": {"weights": Sym(4), "wires": Sym(6), "errors": Asym(5), "grads": "fused"},
        "l1": {"weights": FLOAT, "state": FLOAT, "forward": "float32", "weight_grad": "float32"},
        "l2": {"bias": FLOAT, "errors": FLOAT, "grads": Sym(7), "prop": "float32"},
    }
    for base in (INT8, FULL_SYM, q.Policy.float32(), ROWS):
        Case(mlp(9, 7, 6, 5, 4), base, RULES["momentum"], own).check()
    last = {"l1": {"forward": "float32"}}  # which also is the loss's arithmetic
    Case(mlp(9, 6, 4), INT8, own=last).check()
    Case([*mlp(9, 6, 4), ("relu", "r")], q.Policy.float32(), own={"l1": {"forward": "sym"}}).check()


@pytest.mark.parametrize("size", [0, 1e-30, 1e-12, 1e-4, 1e4, 1e9])
@pytest.mark.parametrize("rules", GRAINS)
def test_data_of_any_size(size, rules):
    Case(mlp(9, 6, 4), GRAINS[rules], optim.SGD(1e-3, momentum=0.5), size=size).check()


TILED = {
    "rows": INT8,
    "packed": INT8.replace(grads=Asym(5, axis=0, **RANDOM), weights=Sym(3, axis="row")),
    "groups": INT8.replace(grads=Sym(8, group=50, **RANDOM)),
    "floats": INT8.replace(grads=FLOAT, state=FLOAT),
    "whole": INT8.replace(grads=Sym(8)),
    "fused": INT8.replace(grads="fused", weights=Asym(5, group=64), state=Asym(9, axis="row")),
    "fused whole": INT8.replace(grads="fused", weights=Sym(4), state=Sym(8, axis=0)),
}


@pytest.mark.parametrize("rules", TILED)
def test_gradients_in_tiles(rules):
    """8, 8 and 3 outputs at a time, where no scale spans them."""
    layers = [("linear", "0", 600, 19, True), ("relu", "1"), ("linear", "2", 19, 3, True)]
    _, session = Case(layers, TILED[rules], RULES["all"], rows=(4, 1)).check()
    program = session.plan.program
    tile = next(t for t in program.tensors if t.name == "0.weight:sums")
    assert tile.shape == ((19 if "whole" in rules else 8), 600)


def test_paths_are_those_of_the_model():
    """Streams and initial values come from names: "a.0.weight"."""
    layers = [("linear", "a.0", 9, 6, True), ("relu", "a.x"), ("linear", "b.0", 6, 4, True)]
    _, session = Case(layers, INT8).check()
    assert list(session.state_dict()) == ["a.0.weight", "a.0.bias", "b.0.weight", "b.0.bias"]


def test_an_accumulator_is_what_a_quant_reads_anyway():
    def plan(output):
        layers = (nn.Linear(7, 5, output=output), nn.ReLU(), nn.Quant(Sym(6)), nn.Linear(5, 3))
        sgd = {"loss": nn.CrossEntropyLoss(), "optimizer": optim.SGD(0.1)}
        return q.compile(nn.Sequential(*layers), input_shape=7, policy=INT8, **sgd)

    assert plan(q.RAW).to_bytes() == plan(None).to_bytes()


@pytest.mark.parametrize("rules", GRAINS)
def test_a_row_is_predicted_alone(rules):
    case = Case(mlp(9, 6, 4), GRAINS[rules], rows=(4, 4))
    net, session = case.check()
    x = np.random.default_rng(4).normal(size=(512, 9)).astype(np.float32)
    found = session.predict(x)
    for i in (0, 1, 255, 511):
        same_floats(found[i : i + 1], net.predict(x[i : i + 1]), "predict")
        same_floats(session.predict(x[i : i + 1]), found[i : i + 1], "predict")


@pytest.mark.parametrize("size", [10.0**-n for n in range(7, 15)])
def test_a_state_far_below_its_parameter(size):
    """Its term is shifted by any number of bits, beside that of a whole accumulator."""
    rules = INT8.replace(weights=Sym(12, axis=0), bias=Sym(16), grads="fused")
    sgd = optim.SGD(1.0, momentum=0.9, weight_decay=0.1, rounding="half_even")
    Case(mlp(3, 3, 3), rules, sgd, size=size, rows=(4,) * 4).check()


# ---- long runs -----------------------------------------------------------------------------------


def test_a_long_run_halves_and_doubles():
    kept = Sym(8, axis=0, **RANDOM)
    rules = policy(Sym(8, **RANDOM), weights=Sym(4, axis=0), bias=Sym(16), state=kept)
    sgd = optim.SGD(0.5, momentum=0.5, weight_decay=0.02)
    case = Case(mlp(4, 3, 2), rules, sgd, batch=2, rows=(2,) * 530, seed=5)
    net, session = case.net(), q.Session(case.plan())
    names = ("l0.weight", "l0.weight:momentum", "l1.weight", "l1.weight:momentum")
    halved, doubled = {n: set() for n in names}, {n: set() for n in names}
    for step, (x, y) in enumerate(case.data()):
        if step == 120:
            session.lr = net.lr = 0.1
        before = {name: session.tensor(name).scale for name in names}
        same_floats(np.float32(session.step(x, y)), net.step(x, y), "loss")
        same_kept(net, session)
        for name in names:
            ratio = session.tensor(name).scale / before[name]
            halved[name] |= {step} if (ratio == 2).any() else set()
            doubled[name] |= {step} if (ratio == 0.5).any() else set()
    assert all(len(halved[name]) >= 3 for name in names)
    assert doubled["l0.weight"] == {256}
    assert doubled["l1.weight"] == {512}
    assert all(doubled[f"{layer}.weight:momentum"] == {256, 512} for layer in ("l0", "l1"))


# ---- a sum that leaves int32 ---------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_a_wide_layer_is_split(bias):
    wide = Sym(12, container=16)
    rules = policy(wide, weights=wide, bias=FLOAT, grads=FLOAT)
    case = Case([("linear", "0", 4000, 3, bias)], rules, optim.SGD(0.01), batch=2, rows=(2, 1))
    net, session = case.check()
    plan = session.plan
    line = next(text for text in str(plan).splitlines() if "product_s32" in text)
    shift = 4 if bias else 3
    assert f"split: int32 chunks of 512, sum >> {shift}" in line
    assert [(f.code, f.severity, f.layer) for f in plan.findings] == [
        ("split-accumulation", "note", "0")
    ]
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 4000)).astype(np.float32)
    values = {"0.weight": np.sign(x[[0, 1, 0]])} | ({"0.bias": np.zeros(3)} if bias else {})
    values = {name: value.astype(np.float32) for name, value in values.items()}
    session.load_state_dict(values)
    net.load(values)
    same_floats(session.forward(x), net.forward(x), "output")
    total = session.wire("input").codes.astype(np.int64) @ session.tensor("0.weight").codes.T
    assert np.abs(total).max() > 2**31
    found = session.wire("0")
    assert found.codes.tolist() == divided(total, shift, "half_away").tolist()
    scale = session.wire("input").scale * session.tensor("0.weight").scale
    np.testing.assert_array_equal(found.scale, np.broadcast_to(scale * 2**shift, found.scale.shape))


# ---- what 4 bits lose ----------------------------------------------------------------------------


def moves(rounding, steps=300):
    """(parameters that ever had a gradient, those of them that never moved, the share of the
    movement asked for that was made)"""
    data = load_digits()
    rules = INT8.replace(weights=Sym(4, axis=0), grads=FLOAT)
    case = Case(mlp(64, 32, 10), rules, optim.SGD(0.05, rounding=rounding), batch=32)
    session, name = q.Session(case.plan()), "l0.weight"
    first = session.tensor(name)
    asked, pushed, moved = np.zeros(first.shape), *np.zeros((2, *first.shape), bool)
    for i in range(steps):
        rows = slice(i * 32 % 1280, i * 32 % 1280 + 32)
        session.step((data.data[rows] / 16).astype(np.float32), data.target[rows])
        gradient = session.grad(name).numpy()
        asked -= 0.05 * gradient.astype(np.float64)
        pushed |= gradient != 0
        moved |= session.tensor(name).codes != first.codes
    made = session.tensor(name).numpy() - first.numpy()
    return pushed.sum(), (pushed & ~moved).sum(), (made * asked).sum() / (asked**2).sum()


def test_4_bits_need_stochastic_rounding():
    pushed, still, share = moves("half_away")  # 1745, 1745, 0
    assert pushed > 1700
    assert still == pushed
    assert share == 0
    pushed, still, share = moves("stochastic")  # 1769, 151, 0.95
    assert pushed > 1700
    assert still < 0.12 * pushed
    assert share == pytest.approx(1, abs=0.15)


def test_a_plan_is_a_function_of_its_seed():
    case = Case(mlp(9, 6, 4), INT8)
    runs = [case.check()[1] for case in (case, case, replace(case, seed=2))]
    data = [b"".join(bytes(s.tensor(n).data) for n in ("l0.weight", "l1.bias")) for s in runs]
    assert data[0] == data[1] != data[2]
