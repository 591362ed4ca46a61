"""What the findings of q.validate say of a network is so: each is seen at work."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from validate_cases import INT8, LOSS, MOMENTUM, PLAIN, asked, chain

import pyqfw as q
from pyqfw import nn

STOCHASTIC = {"rounding": "stochastic"}


def codes(given):
    return {f.code for f in q.validate(**given)}


def session(given):
    return q.Session(q.compile(**given))


def rows(n=32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 12)).astype(np.float32), rng.integers(0, 4, n)


def made(net, x, y):
    """Every tensor of a step, by its name."""
    return {name: t for _, tensors in net.trace(x, y) for name, t in tensors.items()}


# --- wires ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, STOCHASTIC, {"axis": "row", **STOCHASTIC}], ids=repr)
def test_a_second_quant_of_the_same_format_copies(options):
    """Under stochastic rounding too."""
    fmt = q.Sym(8, **options)
    given = asked(chain(nn.Quant(fmt), nn.Quant(fmt)))
    (finding,) = q.validate(**given)
    assert "copies" in finding.message
    wires = made(session(given), *rows())
    assert wires["1:wire"].data == wires["2:wire"].data


@pytest.mark.parametrize("second", [q.Sym(8, axis="row"), q.Sym(8, range=9.0), q.Sym(6)], ids=repr)
def test_a_second_quant_of_another_format_rounds_again(second):
    given = asked(chain(nn.Quant(q.Sym(8)), nn.Quant(second)))
    (finding,) = (f for f in q.validate(**given) if f.code == "double-requantization")
    assert "rounds it again" in finding.message
    twice = made(session(given), *rows())["2:wire"]
    once = made(session(asked(chain(nn.Quant(second)))), *rows())["1:wire"]
    assert twice.format == once.format == second
    assert twice.data != once.data


@pytest.mark.parametrize(
    ("layers", "floor"), [([nn.Sigmoid()], 0.744), ([nn.Tanh()], 0.340), ([], 0.0)], ids=repr
)
def test_bounded_logits_have_a_floor(layers, floor):
    """log(1 + 3 / e) and log(1 + 3 / e^2) of four classes, whatever is learnt."""
    given = asked(nn.Sequential(nn.Linear(12, 4), *layers), policy=q.Policy.float32())
    assert ("bounded-logits" in codes(given)) == bool(layers)
    net, (x, y) = session(given), rows(4)
    losses = [net.step(x, y) for _ in range(2000)]
    assert floor <= losses[-1] < floor + 0.02


@pytest.mark.parametrize("by_policy", [True, False])
def test_errors_pass_where_a_wire_of_the_policy_saturated(by_policy):
    fmt = q.Sym(8, range=0.5)
    policy = INT8.replace(wires=fmt) if by_policy else INT8
    given = asked(chain(*[] if by_policy else [nn.Quant(fmt)]), policy=policy)
    assert ("mask-not-kept" in codes(given)) == by_policy
    tensors = made(session(given), *rows())
    wire, error = tensors["0:wire" if by_policy else "1:wire"], tensors["0:error"].codes
    saturated = np.abs(wire.codes) == fmt.qmax
    assert saturated.sum() > 10
    assert np.any(error[saturated] != 0) == by_policy


@pytest.mark.parametrize("axis", [None, "row"])
def test_few_bits_per_batch_are_two_networks(axis):
    policy = INT8.replace(input=q.Sym(8, axis="row"), wires=q.Sym(4, axis=axis))
    given = asked(policy=policy)
    net, x = session(given), rows()[0]
    same = net.forward(x).tobytes() == net.predict(x).tobytes()
    assert ("batch-granularity" in codes(given)) == (axis is None) == (not same)


# --- errors, gradients, state ---------------------------------------------------------------------


@pytest.mark.parametrize("reach", [8.0, 4.0])
@pytest.mark.parametrize("rounding", ["half_away", "stochastic"])
def test_a_range_that_has_no_code_for_an_error(reach, rounding):
    given = asked(policy=INT8.replace(errors=q.Sym(8, range=reach, rounding=rounding)))
    wide = "range-too-wide" in codes(given)
    assert wide == (reach == 8.0)
    x, y = rows()
    found = np.abs(made(session(given), 40 * x, y)["2:error"].codes).max()  # sure and wrong
    assert found == (int(rounding == "stochastic") if wide else 1)
    if not wide:
        fine = asked(policy=INT8.replace(errors=q.Sym(8, range=1 / 32, rounding=rounding)))
        assert np.abs(made(session(fine), 40 * x, y)["2:error"].codes).max() > 120


@pytest.mark.parametrize("fmt", [q.Asym(8, range=0.5), q.Asym(8), q.Sym(8, range=0.5)], ids=repr)
def test_a_fixed_range_of_asym_has_one_side(fmt):
    given = asked(policy=INT8.replace(grads=fmt))
    one_sided = "range-one-sided" in codes(given)
    net = session(given)
    net.step(*rows())
    values = net.grad("2.weight").numpy()
    assert values.max() > 0
    assert (values.min() >= 0) == one_sided


@pytest.mark.parametrize("rounding", ["half_away", "half_even", "stochastic"])
def test_small_codes_of_a_momentum_never_decay(rounding):
    """An input of zeros has no gradient: what is left is v' = 0.9 v."""
    given = asked(nn.Linear(12, 4), policy=INT8.replace(state=q.Sym(8, rounding=rounding)))
    notes = [f.message for f in q.validate(**given) if f.code == "state-dead-zone"]
    assert all("codes up to 4 of 127 never decay" in message for message in notes)
    assert len(notes) == (0 if rounding == "stochastic" else 2)
    net = session(given)
    for i in range(5):
        net.step(*rows(seed=i))
    before = net.tensor("0.weight:momentum")
    for i in range(150):
        net.step(np.zeros((32, 12), np.float32), rows(seed=i)[1])
    after = net.tensor("0.weight:momentum")
    assert np.array_equal(before.scale, after.scale)
    small = np.abs(before.codes) <= 4
    assert np.any(small & (before.codes != 0))
    if notes:
        assert np.array_equal(after.codes[small], before.codes[small])
        assert np.abs(after.codes).max() in (4, 5)  # 4.5 is as near to 4 as to 5
    else:
        assert not np.any(after.codes)


def test_fused_keeps_no_gradients():
    given = asked(policy=q.Policy.full_sym(), optimizer=PLAIN, batch=1)
    (note,) = q.validate(**given)
    fused = asked(policy=q.Policy.full_sym().replace(grads="fused"), optimizer=PLAIN, batch=1)
    stored, none = (q.compile(**g).memory() for g in (given, fused))
    assert note.message.startswith(f"{stored['gradients']} bytes")
    assert none["gradients"] == 0
    assert none["arena"] < stored["arena"]


# --- learning -------------------------------------------------------------------------------------


def score(weights, batch, optimizer, seed, epochs=15):
    """Test accuracy on digits in percent, the mean of the last three epochs; and what is found."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    given = {
        "model": nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        "input_shape": 64,
        "loss": LOSS,
        "optimizer": optimizer,
        "policy": INT8.replace(weights=weights),
        "batch": batch,
        "seed": seed,
    }
    net, rng, scores = session(given), np.random.default_rng(seed), []
    for _ in range(epochs):
        order = rng.permutation(1347)
        for i in range(0, 1347, batch):
            net.step(x[order[i : i + batch]], y[order[i : i + batch]])
        scores.append(100 * np.mean(net.predict(x[1347:]).argmax(axis=1) == y[1347:]))
    return np.mean(scores[-3:]), codes(given)


@pytest.mark.parametrize(
    ("code", "run"),
    [
        ("write-back-noise", (q.Sym(4, axis=0), 8, PLAIN)),
        ("scale-per-tensor", (q.Sym(4), 32, MOMENTUM)),
    ],
)
def test_four_bits_learn_less(code, run):
    """Than per channel with 32 rows and momentum: paired by seed, beyond three standard errors."""
    differences = []
    for seed in range(3):
        good, nothing = score(q.Sym(4, axis=0), 32, MOMENTUM, seed)
        less, found = score(*run, seed)
        assert (nothing, found) == (set(), {code})
        differences.append(good - less)
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert np.mean(differences) > 3 * error
