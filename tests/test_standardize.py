"""Standardize: an operation of the plan, so that a net takes what was recorded."""

from fractions import Fraction

import numpy as np
import pytest
from session_helpers import POLICIES, held

import pyqfw as q
from pyqfw import nn
from pyqfw.data import Standardize

SHAPES = {"flat": (10,), "signals": (3, 16), "images": (2, 6, 5), "one channel": (1, 6, 6)}


def model(shape, flat):
    if len(shape) == 1 or flat:
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 5), nn.ReLU(), _head(5))
    conv, norm = (nn.Conv1d, nn.BatchNorm1d) if len(shape) == 2 else (nn.Conv2d, nn.BatchNorm2d)
    pool = nn.AdaptiveAvgPool1d if len(shape) == 2 else nn.AdaptiveAvgPool2d
    body = (conv(shape[0], 4, 3, padding=1), norm(4), nn.ReLU(), pool(1))
    return nn.Sequential(*body, nn.Flatten(), _head(4))


def _head(n):
    return nn.Linear(n, 3)


def session(shape, policy, preprocess, flat=False):
    return q.Session(
        q.compile(
            model(shape, flat),
            input_shape=shape,
            loss=nn.CrossEntropyLoss(),
            optimizer=q.optim.SGD(0.05, momentum=0.9),
            policy=policy,
            batch=6,
            preprocess=preprocess,
            seed=3,
        )
    )


def data(shape, rows=6, seed=0):
    rng = np.random.default_rng(seed)
    channel = np.arange(1, shape[0] + 1).reshape(-1, *[1] * (len(shape) - 1))
    x = rng.normal(50 * channel, channel**2, (rows, *shape)).astype(np.float32)
    return x, rng.integers(0, 3, rows)


def first_wire(net, x, y):
    """What the first layer got, in a step that is traced."""
    found = [made["input:wire"] for _, made in net.trace(x, y) if "input:wire" in made]
    return found[-1].data.tobytes()


# --- in a net -------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [True, False], ids=["each channel", "all alike"])
@pytest.mark.parametrize("flat", [False, True], ids=["as it is", "flattened"])
@pytest.mark.parametrize("policy", ["float32", "full_sym", "int8", "asym", "rows of the input"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_net_with_it_is_a_net_that_is_fed_with_what_it_makes(shape, policy, flat, each):
    shape, policy = SHAPES[shape], POLICIES[policy]
    prep = Standardize.fit(data(shape, 40)[0], each_channel=each)
    net, plain = (session(shape, policy, p, flat) for p in (prep, None))
    for i, rows in enumerate((6, 4, 6)):
        x, y = data(shape, rows, i)
        assert net.step(x, y) == plain.step(prep(x), y)
    x, y = data(shape, 6, 9)
    assert first_wire(net, x, y) == first_wire(plain, prep(x), y)
    assert held(net) == held(plain)
    np.testing.assert_array_equal(net.predict(x), plain.predict(prep(x)))


def test_the_values_are_a_product_and_a_sum_in_float32():
    """Each rounded to nearest even: exact fractions are the second opinion."""
    prep = Standardize((1 / 3, -7e4), (0.3, 123.0))
    x = np.random.default_rng(0).normal(0, 1e3, (50, 2)).astype(np.float32)
    found = prep(x)
    for row, made in zip(x, found, strict=True):
        for c in range(2):
            a, b = (Fraction(float(v[c])) for v in (prep.factor, prep.offset))
            product = Fraction(float(np.float32(float(Fraction(float(row[c])) * a))))
            assert float(made[c]) == float(np.float32(float(product + b)))
    assert prep.factor[0] == np.float32(1 / 0.3)
    assert prep.offset[1] == np.float32(7e4 / 123.0)
    assert found.dtype == np.float32


def test_it_travels_with_the_net(tmp_path):
    shape = SHAPES["signals"]
    x, y = data(shape)
    net = session(shape, q.Policy.int8(), Standardize.fit(x))
    net.step(x, y)
    net.save(tmp_path / "net.safetensors")
    again = q.Session.load(tmp_path / "net.safetensors")
    assert again.plan.request.preprocess == net.plan.request.preprocess
    one = net.recompile(batch=1, policy=q.Policy.float32())
    assert one.plan.request.preprocess == net.plan.request.preprocess
    np.testing.assert_array_equal(again.predict(x), net.predict(x))
    assert again.step(x, y) == net.step(x, y)
    bare = net.recompile(preprocess=None)
    np.testing.assert_array_equal(bare.predict(net.plan.request.preprocess(x)), net.predict(x))


def test_it_is_shown():
    shape = SHAPES["signals"]
    plan = session(shape, q.Policy.int8(), Standardize([1, 2, 3], [1, 2, 3])).plan
    assert "fold_f32" in str(plan).splitlines()[3]
    assert "Standardize(mean=(1.0, 2.0, 3.0)" in plan.to_json()


@pytest.mark.parametrize("policy", ["float32", "int8"])
def test_a_nan_is_named(policy):
    shape = SHAPES["signals"]
    x, y = data(shape)
    net = session(shape, POLICIES[policy], Standardize.fit(x))
    x[2, 1, 5] = np.nan
    for run in (lambda: net.step(x, y), lambda: net.predict(x)):
        with pytest.raises(q.NonFiniteError, match="x"):
            run()


# --- by itself ------------------------------------------------------------------------------------


def test_fit():
    x = np.random.default_rng(1).normal([3, -8], [2, 5], (4000, 2)).astype(np.float32)
    prep = Standardize.fit(x)
    made = prep(x)
    np.testing.assert_allclose(made.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(made.std(0), 1, atol=1e-5)
    assert Standardize.fit(np.full((3, 2), 7)).std == (1.0, 1.0)
    assert Standardize.fit(x, each_channel=False).channels == 1
    assert Standardize(0, 255).mean == (0.0,)


BAD = {
    "no array": (lambda: Standardize.fit("abc"), q.DTypeError, "real numbers"),
    "one axis": (lambda: Standardize.fit([1.0, 2.0]), q.ShapeError, r"\(n, channels, ...\)"),
    "no rows": (lambda: Standardize.fit(np.zeros((0, 3))), q.ShapeError, "a row at least"),
    "a NaN": (lambda: Standardize.fit([[np.nan, 1.0]]), q.NonFiniteError, "NaN"),
    "lengths": (lambda: Standardize([1, 2], [1]), q.ShapeError, "2 means and 1"),
    "std 0": (lambda: Standardize(0, 0), q.QfwError, "above 0"),
    "std -1": (lambda: Standardize(0, -1.0), q.QfwError, "above 0"),
    "std NaN": (lambda: Standardize(0, np.nan), q.NonFiniteError, "finite"),
    "words": (lambda: Standardize("a", 1), q.QfwError, "must be a number"),
    "tiny std": (lambda: Standardize(0, 1e-300), q.QfwError, "finite in float32"),
    "samples": (lambda: Standardize([1, 2], [1, 1])(np.zeros((3, 4))), q.ShapeError, "first axis"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_it_refuses(case):
    make, kind, message = BAD[case]
    with pytest.raises(kind, match=message):
        make()
