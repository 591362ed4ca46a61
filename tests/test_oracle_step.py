"""Is the second opinion on a training step right? Against fractions and backprop in float64."""

import zlib
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import oracle as o
import oracle_product as op
import oracle_tensor as ot
import oracle_twin as twin
import oracle_update as ou
import pytest
from oracle_step import Net
from oracle_twin import fractions, tensor
from oracle_update import SGD

from pyqfw.formats import BFP, Asym, Float32, Sym

FIELDS = ("input", "wires", "weights", "bias", "errors", "grads", "state")
KINDS = ("forward", "weight_grad", "bias_grad", "prop")
FLOAT = Float32()


def policy(fmt=FLOAT, arithmetic="float32", **changes):
    """One format and one arithmetic for all, but for the changes."""
    fields = dict.fromkeys(FIELDS, fmt) | dict.fromkeys(KINDS, arithmetic) | changes
    return SimpleNamespace(**fields)


# ---- the update ----------------------------------------------------------------------------------

RULES = [
    SGD(0.1),
    SGD(0.03, weight_decay=0.2, rounding="half_even"),
    SGD(0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
    SGD(0.7, 0.8, dampening=0.25, nesterov=True, weight_decay=0.1, rounding="half_away"),
]


def columns(sgd, first):
    """The table: (of v, of g, of w) without lr for w, then for v."""
    k, b, wd = 1.0 if first else 1 - sgd.dampening, sgd.momentum, sgd.weight_decay
    g = 1 + b * k
    row = (0, 1, wd) if not b else (b * b, g, g * wd) if sgd.nesterov else (b, k, k * wd)
    return [[Fraction(float(np.float32(f))) for f in fs] for fs in (row, (b, k, k * wd))]


@pytest.mark.parametrize("sgd", RULES, ids=repr)
@pytest.mark.parametrize("kind", [Sym(4, axis=0), Sym(16), Asym(8, axis=1), BFP(8, 3)], ids=repr)
@pytest.mark.parametrize("fused", [False, True])
def test_an_integer_step_is_the_fractions(sgd, kind, fused):
    rng = np.random.default_rng(10)
    w = tensor(kind, rng.normal(size=(5, 8)))
    v = tensor(Sym(8, axis=0, rounding="stochastic"), rng.normal(size=(5, 8)) * 0.1)
    v = v if sgd.momentum else None
    g = ot.Acc(rng.integers(-(2**29), 2**29, (5, 8)), np.full((5, 8), 2e-9, "f4"))
    g = g if fused else ot.encode(g, Sym(8, axis=1))
    for step in (0, 7):
        end, state = ou.updated(w, g, v, sgd, sgd.lr, ou.Streams(1, step, 2, 3))
        lr = Fraction(float(np.float32(sgd.lr)))
        of_w, of_v = columns(sgd, step == 0)
        of_w = [o.nearest(lr * f) for f in of_w]
        for i in range(40):
            codes = [None if t is None else t.pairs()[0].ravel()[i].item() for t in (v, g, w)]
            at = [None if t is None else fractions(t.pairs()[1])[i] for t in (v, g, w)]
            u = [o.uniform(o.key(1, step, n), i) for n in (2, 3)]
            terms = [twin.Term(*t) for t in zip(codes, of_w, at, strict=True) if t[0] is not None]
            terms[-1] = terms[-1]._replace(scale=None)
            f = (27 if kind.asymmetric else 28) - kind.bits
            assert ou.fraction_bits(w) == f
            n = twin.change(terms, at[2], f, sgd.rounding, u[0])
            lo, hi = (b.ravel()[i] for b in w.bounds)
            if end.scales.ravel()[i] == w.scales.ravel()[i]:
                assert end.ints().ravel()[i] == max(lo, min(hi, codes[2] - n))
            if v is not None and state.scales.ravel()[i] == v.scales.ravel()[i]:
                terms = [twin.Term(*t) for t in zip(codes, of_v, at, strict=True)]
                terms[0] = terms[0]._replace(scale=None)
                n = twin.change(terms, at[0], 20, "stochastic", u[1])
                assert state.codes.ravel()[i] == max(-127, min(127, n))


@pytest.mark.parametrize("gradient", [FLOAT, Sym(8)])
def test_write_back_is_unbiased_only_if_stochastic(gradient):
    w = tensor(Sym(4), np.linspace(-0.2, 1, 4000))
    g = tensor(gradient, np.full(4000, 0.02))

    def drift(rounding, seed):
        end = w
        for step in range(50):
            streams = ou.Streams(seed, step, 9, 0)
            end = ou.updated(end, g, None, SGD(0.1, rounding=rounding), 0.1, streams)[0]
        assert end.scale == w.scale
        return (w.codes - end.codes).mean() * float(w.scale)

    assert drift("half_away", 0) == drift("half_even", 0) == 0
    mean = np.mean([drift("stochastic", seed) for seed in range(8)])
    assert abs(mean - 50 * 0.1 * 0.02) < 0.0025  # 3.6 standard deviations


def test_a_code_that_leaves_the_range_halves_its_run():
    t = tensor(Sym(8, axis=0), [[1, 0.5] * 20, [1, 0.5] * 20, [0.3, 1] * 20])
    wanted = t.codes.copy()
    wanted[0, 0], wanted[1, 0], wanted[2, 1] = -128, 128, -129
    streams = ou.Streams(5, 3, 11, 0)
    end = ou.settled(t, wanted, streams, 11)
    assert (end.scale / t.scale).tolist() == [1, 2, 2]
    clipped = np.clip(wanted, -127, 127)
    assert end.codes[0].tolist() == clipped[0].tolist()
    bits = [o.uniform(o.key(5, 3, 11 ^ 0x57334833), i) >> 31 for i in range(120)]
    assert set(bits) == {0, 1}
    halves = (clipped.ravel() + bits) // 2
    assert end.codes[1:].ravel().tolist() == halves[40:].tolist()
    asym = tensor(Asym(8), [-1, 2])
    z = int(asym.zero)
    for value, factor in ((-z - 1, 1), (-z - 2, 2), (255 - z, 1), (256 - z, 2)):
        assert ou.settled(asym, np.array([value, 0]), streams, 11).scale == asym.scale * factor


def test_codes_are_doubled_in_steps_256_512():
    t = ot.Tensor(Sym(8, axis=0), np.array([[47, -47], [48, 0], [0, 0]]), np.full(3, 0.5, "f4"))
    t = replace(t, origin=(3, 2))
    for step, factor in ((0, 1), (255, 1), (256, 2), (257, 1), (512, 2)):
        end = ou.settled(t, t.codes, ou.Streams(0, step, 1, 0), 1)
        assert end.codes.tolist() == [[47 * factor, -47 * factor], [48, 0], [0, 0]]
        assert end.floats().tolist() == t.floats().tolist()
    small = replace(t, scale=np.full(3, 1.5 * 2.0**-126, "f4"))
    assert (
        ou.settled(small, t.codes, ou.Streams(0, 256, 1, 0), 1).codes.tolist() == t.codes.tolist()
    )


@pytest.mark.parametrize("sgd", RULES, ids=repr)
def test_a_scale_without_range_takes_one_from_the_gradient(sgd):
    w = tensor(Sym(8, axis=0), [[0, 0], [0, 0], [0.5, 1]])
    g = tensor(Sym(8), [[0.5, -1], [0, 0], [1, 1]])
    v = tensor(Sym(8), np.zeros((3, 2)))
    end, state = ou.updated(w, g, v if sgd.momentum else None, sgd, sgd.lr, ou.Streams(0, 0, 1, 2))
    of_g = float(columns(sgd, True)[0][1])
    assert end.scale[0] == pytest.approx(4 * sgd.lr * of_g / 127, rel=1e-6)
    assert end.scale[1:].tolist() == w.scale[1:].tolist()
    assert state is None or state.scale == pytest.approx(4 / 127, rel=1e-6)
    np.testing.assert_allclose(end.floats()[0], [-0.5 * sgd.lr * of_g, sgd.lr * of_g], rtol=0.05)


# ---- whole steps ---------------------------------------------------------------------------------

MLP = [("linear", "0", 12, 9, True), ("relu", "1"), ("linear", "2", 9, 5, True)]
DEEP = [("flatten", "f"), ("linear", "0", 12, 9, True), ("relu", "1"), ("quant", "2", None)]
DEEP += [("linear", "3", 9, 8, False), ("quant", "4", Sym(12)), ("relu", "5")]
DEEP += [("linear", "6", 8, 5, True), ("quant", "7", Sym(14))]
SYM12 = {"grads": FLOAT, "bias": FLOAT, "state": FLOAT}


def batches(n, rows=16, shape=(12,)):
    rng = np.random.default_rng(11)
    for _ in range(n):
        y = rng.integers(0, 5, rows)
        x = rng.normal(size=(rows, *shape)) + y.reshape(-1, *[1] * len(shape)) / 2
        yield x.astype("f4"), y


def shape_of(layers):
    return (3, 4) if layers[0][0] == "flatten" else (12,)


def values_of(tensors):
    return {name: t.floats().astype(np.float64) for name, t in tensors.items()}


def distance(found, expected):
    assert found.keys() == expected.keys()
    far = [np.linalg.norm(found[k] - v) / (np.linalg.norm(v) + 1e-9) for k, v in expected.items()]
    return max(far, default=0)


@pytest.mark.parametrize("sgd", RULES, ids=repr)
@pytest.mark.parametrize("layers", [MLP, DEEP])
def test_float32_is_backprop(sgd, layers):
    layers = [(*r[:2], FLOAT) if r[0] == "quant" else r for r in layers]
    net = Net(layers, policy(), sgd, shape=shape_of(layers), seed=1, batch=16)
    params, state = values_of(net.params), {}
    for x, y in batches(5, shape=shape_of(layers)):
        loss, grads = twin.backprop(layers, params, x, y)
        assert net.step(x, y) == pytest.approx(loss, rel=1e-5)
        assert distance(values_of(net.grads), grads) < 1e-5
        twin.descend(sgd, params, state, grads)
        assert distance(values_of(net.params), params) < 1e-5
    assert distance(values_of(net.state), state) < 1e-5


STRUCTURES = {
    "tensor": policy(Sym(12), "sym"),
    "row": policy(Sym(12, axis="row"), "sym", bias=FLOAT, grads=FLOAT),
    "channels": policy(Sym(12, axis=0), "sym", wires=Sym(12, axis=1), errors=Sym(12, axis=1)),
    "groups": policy(Sym(12, group=4), "sym"),
    "pow2": policy(BFP(14, 6), "sym"),
    "zero points": policy(Asym(12), "sym", weights=Asym(12, axis=0), state=Sym(12)),
    "16 bits": policy(Asym(16, axis="row"), "sym", bias=Asym(16), grads=Asym(16), state=Sym(16)),
    "fused": policy(Sym(12), "sym", grads="fused", weights=Sym(12, axis=0)),
    "float storage": policy(FLOAT, "sym"),
    "float arithmetic": policy(Sym(12, axis=0)),
    "random": policy(Sym(12, rounding="stochastic"), "sym"),
    **{f"float {kind}": policy(Sym(12), "sym", **{kind: "float32"}) for kind in KINDS},
    **{f"sym {kind}": policy(**{kind: "sym"}) for kind in KINDS},
}


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("layers", [MLP, DEEP])
@pytest.mark.parametrize("rows", [16, 5])
def test_integers_stay_near_backprop(name, layers, rows):
    sgd = SGD(0.05, momentum=0.9)
    net = Net(layers, STRUCTURES[name], sgd, shape=shape_of(layers), seed=1, batch=16)
    relus = [path for kind, path, *_ in layers if kind == "relu"]
    for x, y in batches(3, rows, (3, 4) if layers is DEEP else (12,)):
        params, state = values_of(net.params), values_of(net.state)
        old = net.params.copy()
        loss = net.step(x, y)
        masks = {path: net.wires[path].floats() > 0 for path in relus}
        expected, grads = twin.backprop(layers, params, x, y, masks)
        assert loss == pytest.approx(expected, rel=1e-3)
        assert distance(values_of(net.grads), grads) < 0.01
        twin.descend(sgd, params, state, grads)
        for key, t in net.params.items():
            far = np.abs(t.floats() - params[key])
            if t.format == FLOAT:
                assert far.max() < 0.01 * sgd.lr
            else:  # two roundings, where the clamp took nothing
                lo, hi = (b * old[key].scales for b in old[key].bounds)
                inside = (params[key] > lo) & (params[key] < hi)
                assert (far < 2 * t.scales)[inside].all()


INT8 = policy(
    Sym(8, axis=0, rounding="stochastic"),
    "sym",
    input=Sym(8),
    wires=Sym(8),
    bias=Sym(16, rounding="stochastic"),
    errors=Sym(8, rounding="stochastic"),
)


@pytest.mark.parametrize("layers", [MLP, DEEP])
def test_int8_learns_and_is_a_function_of_its_seed(layers):
    def train(seed, sections):
        sgd = SGD(0.05, momentum=0.9)
        net = Net(layers, INT8, sgd, shape=shape_of(layers), seed=seed, batch=16)
        losses = []
        for x, y in batches(40, shape=(3, 4)):
            x = x if layers is DEEP else x.reshape(16, 12)
            if sections:
                net.forward(x)
                losses.append(net.backward(y))
                net.update()
            else:
                losses.append(net.step(x, y))
        kept = [*net.params.values(), *net.state.values()]
        return losses, b"".join(t.data() for t in kept), net

    losses, data, net = train(1, False)
    assert np.mean(losses[-5:]) < 0.8 * losses[0]
    assert train(1, True)[:2] == (losses, data)
    assert train(2, False)[1] != data
    x = next(batches(1, 6, (3, 4) if layers is DEEP else (12,)))[0]
    alone = np.concatenate([net.predict(x[i : i + 1]) for i in (3, 1)])
    assert net.predict(x)[[3, 1]].tolist() == alone.tolist()


def test_masks_follow_the_stored_codes():
    coarse = policy(Sym(12), "sym", wires=Sym(2))
    net = Net(MLP, coarse, SGD(0.1), shape=(12,), batch=16)
    x, y = next(batches(1))
    net.step(x, y)
    kept = net.wires["1"]
    assert (kept.codes >= 0).all()
    assert net.wires["0"].data() == kept.data()
    assert set(np.unique(kept.codes)) == {0, 1}
    passed = net.raw_errors["0"].values != 0
    assert (passed == (kept.codes > 0)).mean() > 0.98  # an error may be 0 by itself
    assert not passed[kept.codes == 0].any()

    for fmt, ends in ((Sym(4, range=0.5), (-7, 7)), (Asym(4, range=0.5), (0, 15))):
        layers = [MLP[0], ("quant", "1", fmt), MLP[2]]
        net = Net(layers, policy(Sym(12), "sym"), SGD(0.1), shape=(12,), batch=16)
        net.step(x, y)
        codes, error = net.wires["1"].codes, net.raw_errors["0"].values
        assert net.wires["1"].saturated > 0
        assert set(ends) <= set(np.unique(codes))
        assert not error[np.isin(codes, ends)].any()
        assert error[~np.isin(codes, ends)].all()


def test_a_layer_has_its_own_policy():
    own = policy(Sym(8), "sym", weights=Sym(4), wires=Sym(6), errors=Sym(5), grads=Sym(7))
    policies = {"": policy(Sym(8), "sym"), "0": own}
    net = Net(MLP, policies, SGD(0.1, momentum=0.5), shape=(12,), batch=16)
    net.step(*next(batches(1)))
    assert net.wires["input"].format == net.params["2.weight"].format == Sym(8)
    assert net.params["0.weight"].format == Sym(4)
    assert net.wires["1"].format == Sym(6)
    assert net.errors["0"].format == Sym(5)
    assert net.errors["2"].format == Sym(8)
    assert net.grads["0.bias"].format == Sym(7)


def test_every_tensor_has_its_own_stream():
    fmt = Sym(4, rounding="stochastic")
    net = Net(MLP, policy(fmt, "sym", bias=FLOAT), SGD(0.1), shape=(12,), seed=8, batch=16)
    x, y = next(batches(1))
    net.step(x, y)
    net.forward(x)
    before = net.params.copy()
    net.backward(y)

    def key(name):
        return o.key(8, 1, zlib.crc32(name.encode()))

    def same(found, source, name):
        assert found.data() == ot.encode(source, fmt, key(name)).data()

    same(net.wires["input"], ot.Acc(x), "input:wire")
    first = op.forward(net.wires["input"], before["0.weight"], before["0.bias"])
    same(net.wires["1"], first.relu(), "0:wire")
    for path, wire in (("0", "input"), ("2", "1")):
        same(net.errors[path], net.raw_errors[path], f"{path}:error")
        grad = op.weight_gradient(net.errors[path], net.wires[wire], 16)
        same(net.grads[f"{path}.weight"], grad, f"{path}.weight:grad")
    net.update()
    for name in ("0.weight", "2.weight"):
        streams = ou.Streams(8, 1, zlib.crc32(f"{name}:update".encode()), 0)
        end = ou.updated(before[name], net.grads[name], None, SGD(0.1), 0.1, streams)[0]
        assert net.params[name].data() == end.data()
