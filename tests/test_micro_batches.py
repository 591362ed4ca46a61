"""A step in micro-batches: gradients add up bit for bit as the oracle's, in any format."""

import itertools
import struct
from fractions import Fraction

import numpy as np
import oracle_accumulate as oa
import oracle_tensor as ot
import pytest
from every_format import CONTAINERS
from hypothesis import given, settings
from hypothesis import strategies as st
from session_helpers import BATCH, CLASSES, INPUTS, POLICIES, data, held, session, train
from step_helpers import FLOAT, Case, mlp, policy, same_floats, same_kept, same_trace
from strategies import fixed

import pyqfw as q
from pyqfw import Asym, Sym, nn, optim, quant
from pyqfw.errors import NonFiniteError, QfwError, ShapeError

INT8 = q.Policy.int8()
MOMENTUM = optim.SGD(0.05, momentum=0.9, weight_decay=0.01)
ARITHMETICS = ("sym", "float32")


def formats():
    """Every kind, width, container, granularity, range and rounding, though not all together."""
    grains = ({}, {"axis": 0}, {"axis": "row"}, {"group": 1}, {"group": 4}, {"group": 64})
    roundings = itertools.cycle(("half_away", "stochastic", "half_even"))
    found = [FLOAT]
    for kind, least in ((Sym, 2), (Asym, 1)):
        for bits in range(least, 17):
            found.append(kind(bits, rounding=next(roundings)))
            found.append(kind(bits, rounding=next(roundings), range=0.25))
        for bits, box in ((3, 8), (8, 16), (8, 32), (12, 16), (12, 32), (16, 32)):
            assert box in CONTAINERS
            found.append(kind(bits, container=box, rounding=next(roundings)))
            found.append(kind(bits, container=box, rounding=next(roundings), range=0.1))
        for grain, bits in itertools.product(grains, (5, 8, 16)):
            found.append(kind(bits, **grain, rounding=next(roundings)))
            found.append(kind(bits, **grain, rounding=next(roundings), scale="pow2"))
            found.append(kind(bits, **grain, rounding=next(roundings), range=0.25))
    return found


# ---- against the oracle --------------------------------------------------------------------------


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("fmt", formats(), ids=repr)
def test_every_gradient_format(fmt, arithmetic):
    rules = INT8.replace(grads=fmt, weight_grad=arithmetic, bias_grad=arithmetic)
    Case(mlp(9, 6, 4), rules, MOMENTUM, batch=5, micro_batches=3, rows=(5, 3)).check()


@pytest.mark.parametrize("fmt", [Sym(8, axis=1), Asym(5, axis=1), Sym(12, axis=-2)], ids=repr)
def test_axes_that_a_bias_has_not(fmt):
    layers = mlp(9, 6, 4, bias=False)
    Case(layers, policy(Sym(8), grads=fmt), batch=4, micro_batches=2, rows=(4, 4)).check()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rules", [INT8, q.Policy.full_sym(), q.Policy.float32()], ids=range(3))
def test_every_number_of_micro_batches(rules, k):
    Case(mlp(7, 5, 3), rules, batch=7, micro_batches=k, rows=(7, 6, 1, 3)).check()


def test_stochastic_wires_and_errors():
    """Each micro-batch has a seed of its own."""
    random = {"rounding": "stochastic"}
    rules = INT8.replace(wires=Sym(5, **random), errors=Sym(5, **random), grads=Sym(6, **random))
    Case(mlp(7, 8, 5, 3), rules, batch=6, micro_batches=3, rows=(6, 5, 6)).check()


@pytest.mark.parametrize("size", [1e-18, 1e-6, 1e6, 1e15])
@pytest.mark.parametrize("fmt", [Sym(8), Asym(16, axis=0), Sym(4, group=2), FLOAT], ids=repr)
def test_far_apart_scales(fmt, size):
    """Tiny and large data: an addend is far below the other's step, or the other way round."""
    for arithmetic in ARITHMETICS:
        rules = policy(Sym(8), arithmetic, grads=fmt)
        Case(mlp(6, 4, 3), rules, batch=4, micro_batches=4, rows=(4, 3), size=size).check()


def test_tiles():
    """More outputs than accumulators fit a tile, of every kind of gradient."""
    for fmt in (Sym(8, axis=0), Sym(6, group=64), Sym(8, axis=0, range=0.5), FLOAT):
        rules = INT8.replace(grads=fmt)
        Case(mlp(600, 30, 3), rules, batch=4, micro_batches=2, rows=(4,)).check()


@given(
    st.sampled_from(formats()),
    st.sampled_from(ARITHMETICS),
    *(st.integers(1, n) for n in (4, 9, 9)),
    st.integers(0, 2**20),
)
@settings(fixed, max_examples=60)
def test_any_mixture(fmt, arithmetic, k, inputs, outputs, seed):
    rules = INT8.replace(grads=fmt, weight_grad=arithmetic, bias_grad=arithmetic)
    case = Case(mlp(inputs, outputs, 3), rules, batch=4, micro_batches=k, rows=(4, 2), seed=seed)
    case.check()


@pytest.mark.parametrize("fmt", [FLOAT, Sym(8), Sym(12, range=1.0), Asym(8, axis=0)], ids=repr)
def test_step_and_trace_are_the_oracle_s(fmt):
    case = Case(mlp(7, 6, 3), INT8.replace(grads=fmt), batch=5, micro_batches=3, rows=(5, 4, 2))
    net, stepped = case.net(), q.Session(case.plan())
    for x, y in case.data():
        same_floats(np.float32(stepped.step(x, y)), net.step(x, y), "loss")
        same_kept(net, stepped)
    net, traced = case.net(), q.Session(case.plan())
    for x, y in case.data():
        same_trace(net, traced, x, y)


def test_joining_is_as_exact_as_the_page_says():
    """Each addend is off by less than 5/8 of a unit, 2^(28 - bits) of which are a step or more."""
    rng = np.random.default_rng(5)
    for bits, asymmetric in ((2, False), (8, False), (16, False), (1, True), (16, True)):
        fmt = (Asym if asymmetric else Sym)(bits)
        for spread in (1e-9, 1e-3, 1.0, 1e5):
            kept = ot.encode(ot.Acc(rng.normal(size=40).astype(np.float32)), fmt)
            values = rng.integers(-(2**31) + 1, 2**31, 40)
            sigma = np.full(40, np.float32(spread * 2.0**-31), np.float32)
            sums = oa.joined(kept, ot.Acc(values, sigma))
            pairs = [kept.pairs(), (values, sigma), sums.pairs()]
            for i in range(40):
                a, b, c = (Fraction(int(m[i])) * Fraction(float(s[i])) for m, s in pairs)
                assert abs(c - a - b) < Fraction(5, 4) * Fraction(float(sums.scale[i]))
            assert np.abs(sums.values).max() <= 2**28


# ---- a session -----------------------------------------------------------------------------------

PACKED = [name for name, policy in POLICIES.items() if policy.grads != "fused"]


def parts(net, x, y):
    m = net.plan.rows
    return [(x[i : i + m], y[i : i + m]) for i in range(0, len(x), m)]


def by_hand(net, x, y, rows):
    losses = []
    for x_i, y_i in parts(net, x, y):
        net.forward(x_i)
        losses.append(net.backward(y_i, *rows))
    net.update()
    return losses


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(("k", "n"), [(2, 8), (4, 8), (3, 8), (8, 8), (4, 5), (3, 2)])
def test_a_loop_by_hand_is_a_step(name, k, n):
    one, other = (session(name, micro_batches=k) for _ in range(2))
    for i in range(3):
        x, y = data(n, seed=i)
        loss = one.step(x, y)
        losses = by_hand(other, x, y, (n,))
        assert held(one) == held(other)
        weights = [len(y_i) for _, y_i in parts(other, x, y)]
        assert loss == pytest.approx(np.average(losses, weights=weights), rel=1e-6)


@pytest.mark.parametrize("name", PACKED)
def test_full_micro_batches_need_no_rows(name):
    one, other = (session(name, micro_batches=4) for _ in range(2))
    for i in range(3):
        one.step(*data(seed=i))
        by_hand(other, *data(seed=i), ())
        assert held(one) == held(other)


@pytest.mark.parametrize("name", POLICIES)
def test_one_micro_batch_changes_nothing(name):
    plain, one = session(name), session(name, micro_batches=1)
    assert plain.plan.to_bytes() == one.plan.to_bytes()
    assert held(train(plain)) == held(train(one))


@pytest.mark.parametrize("name", ["int8", "full_sym", "float32"])
def test_a_step_that_one_micro_batch_holds_is_that_of_a_smaller_batch(name):
    """Its keys, its mean and its sums are those of a plan without micro-batches."""
    many, small = session(name, micro_batches=4), session(name, batch=2)
    for i in range(3):
        assert many.step(*data(2, seed=i)) == small.step(*data(2, seed=i))
    assert held(many) == held(small)


def test_memory_is_for_a_micro_batch():
    for name in ("int8", "full_sym", "float32", "groups"):
        plans = [session(name, batch=64, micro_batches=k).plan for k in (1, 2, 4, 16, 64)]
        sizes = [plan.arena_bytes for plan in plans]
        assert sizes == sorted(set(sizes), reverse=True), name
        assert [plan.rows for plan in plans] == [64, 32, 16, 4, 1]
        kept = [[plan.memory()[what] for what in ("gradients", "lasting")] for plan in plans]
        assert all(k == kept[0] for k in kept)


def test_gradients_begin_anew_after_an_update_after_the_last_and_after_a_load():
    x, y = data(2)
    net = session("int8", micro_batches=4)

    def grads():
        return held(net)["0.weight:grad"]

    net.forward(x), net.backward(y)
    first = grads()
    net.forward(x), net.backward(y)
    assert grads() != first
    net.forward(x), net.backward(y)
    net.forward(x), net.backward(y)
    net.forward(x), net.backward(y)  # the fifth of four
    assert grads() == first
    net.load_state_dict(net.state_dict())
    net.forward(x), net.backward(y)
    assert grads() == first
    net.predict(x)
    net.update()
    other = session("int8", micro_batches=4)
    other.load_state_dict(other.state_dict())
    other.forward(x), other.backward(y), other.update()
    assert held(net) == held(other)
    net.forward(x), net.backward(y)
    net.step(x, y)  # forgets what waits
    other.step(x, y)
    assert held(net) == held(other)


def test_predictions_do_not_know_of_micro_batches():
    net = session("stochastic wires", micro_batches=4)
    x, y = data(2)
    before = net.predict(x)
    net.forward(x), net.backward(y)
    assert net.predict(x).tobytes() == before.tobytes()


def test_without_an_optimizer():
    net = session("float32", micro_batches=2, optimizer=None)
    x, y = data(4)
    found = []
    for _ in range(4):
        net.forward(x), net.backward(y)
        found.append(net.grad("0.weight").numpy())
    np.testing.assert_array_equal(found[0] + found[0], found[1])
    np.testing.assert_array_equal(found[:2], found[2:])


def test_wires_are_those_of_the_last_micro_batch():
    net = session("int8", micro_batches=4)
    net.step(*data(7))
    assert net.plan.rows == 2
    for _, written in net.trace(*data(7)):
        assert all(t.shape[0] in (1, 2) for name, t in written.items() if name == "input:wire")


# ---- what is refused, and what stays -------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in PACKED])
def test_fused_gradients_have_no_place_to_add(name):
    with pytest.raises(QfwError, match=r"fused.* moves .* 2 micro-batches"):
        session(name, micro_batches=2)
    assert session(name, micro_batches=1).plan.micro_batches == 1


@pytest.mark.parametrize("k", [0, -1, BATCH + 1, 2.0, True, None])
def test_numbers_of_micro_batches(k):
    with pytest.raises(QfwError, match="micro_batches must be"):
        session(micro_batches=k)


def test_rows_by_hand():
    net = session("int8", micro_batches=4)
    x, y = data(2)
    with pytest.raises(ShapeError, match=r"1 to 2 \(the rows of a micro-batch\)"):
        net.forward(data(3)[0])
    net.forward(x)
    for rows in (1, 9, 0, 2.0, True):
        with pytest.raises(QfwError, match="rows must be"):
            net.backward(y, rows)
    assert net.backward(y, rows=8) > 0
    with pytest.raises(ShapeError, match="1 to 8"):
        net.step(*data(9))


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("waiting", [False, True])
def test_an_error_in_a_later_micro_batch_changes_nothing(name, waiting):
    net, twin = (train(session(name, micro_batches=4), 2) for _ in range(2))
    x, y = data(8, seed=9)
    for n in (net, twin) if waiting else ():
        n.forward(x[:2]), n.backward(y[:2])
    bad_x, bad_y = x.copy(), y.copy()
    bad_x[5, 3], bad_y[6] = np.nan, CLASSES
    before = held(net)
    with pytest.raises(NonFiniteError, match=r"x\[5, 3\] is nan"):
        net.step(bad_x, y)
    assert held(net) == before
    with pytest.raises(QfwError, match=r"y\[6\] is 4"):
        net.step(x, bad_y)
    with pytest.raises(QfwError, match=r"y\[6\] is 4"):
        list(net.trace(x, bad_y))
    assert held(net) == before
    for n in (net, twin):  # and what waited still does
        n.forward(x[2:4]), n.backward(y[2:4]), n.update()
    assert held(net) == held(twin)


def test_a_network_that_diverges_in_a_later_micro_batch():
    """The second half overflows float32: nothing of the first half stays."""
    net = session("float32", micro_batches=2, model=nn.Linear(INPUTS, CLASSES))
    x, y = data(8)
    net.step(x, y)
    net.load_state_dict({name: 100 * value for name, value in net.state_dict().items()})
    before = held(net)
    x[6:] = 3e38
    for how in (net.step, lambda *given: list(net.trace(*given))):
        with pytest.raises(NonFiniteError, match="diverged"):
            how(x, y)
        assert held(net) == before


def test_recompile():
    net = train(session("int8", micro_batches=2), 3)
    again = net.recompile(micro_batches=4)
    assert (again.plan.micro_batches, again.plan.rows, again.steps) == (4, 2, 3)
    assert again.state_dict().keys() == net.state_dict().keys()
    np.testing.assert_array_equal(again.tensor("0.weight").codes, net.tensor("0.weight").codes)
    with pytest.raises(QfwError, match=r"micro_batches must be 1..1"):
        net.recompile(batch=1)
    assert net.recompile(batch=1, micro_batches=1).plan.rows == 1


def test_the_plan_says_it():
    plan = session("int8", micro_batches=4).plan
    assert "batch 8 in 4 micro-batches of 2" in str(plan)
    assert '"micro_batches": 4' in plan.to_json()
    assert struct.unpack_from("<I", plan.to_bytes(), 24)[0] == 2
    assert struct.unpack_from("<I", plan.to_bytes(), 92)[0] == 4


@pytest.mark.parametrize("name", PACKED)
def test_same_bits_on_every_isa(name):
    found = []
    for isa in quant.core_info()["isas"]:
        with quant.isa(isa):
            wide = nn.Sequential(nn.Linear(INPUTS, 37), nn.ReLU(), nn.Linear(37, CLASSES))
            nets = [session(name, micro_batches=k, model=m) for k in (2, 3) for m in (None, wide)]
            found.append([held(train(net, 2)) for net in nets])
    assert all(bits == found[0] for bits in found)
