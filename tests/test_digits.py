"""scikit-learn's digits: integers learn as well as floats, from the same weights in the same order.

The MLP 64-32-10, and the chain 64-64-10 with a LayerNorm between Quants; the first 1347 images to
train, the last 450 to test. The score of a run is its test accuracy in percent, the mean of the
last three epochs.
"""

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_digits

import pyqfw as q
from pyqfw import nn

SEEDS, EPOCHS, BATCH = range(5), 30, 32
WITHIN = {  # points that the mean score may be away from float32's
    q.Policy.full_sym(): 0.5,
    q.Policy.int8(): 1.0,
    q.Policy.int8().replace(grads="fused"): 1.0,
}


@cache
def digits():
    data = load_digits()
    x, y = (data.data / 16).astype(np.float32), data.target
    return (x[:1347], y[:1347]), (x[-450:], y[-450:])


def mlp():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def chain(**output):
    return nn.Sequential(
        *(nn.Linear(64, 64, **output), nn.Quant(), nn.LayerNorm(64, **output), nn.Quant()),
        nn.Linear(64, 10),
    )


MODELS = {"mlp": mlp, "chain": chain}


def session(seed, policy=None, model=mlp):
    plan = q.compile(
        model(),
        input_shape=(64,),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr=0.05, momentum=0.9),
        policy=policy,
        batch=BATCH,
        seed=seed,
    )
    return q.Session(plan)


def score(net, seed):
    """Trains; the seed decides the order of the images."""
    (x, y), (x_test, y_test) = digits()
    rng = np.random.default_rng(seed)
    accuracies = []
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for i in range(0, len(order), BATCH):
            rows = order[i : i + BATCH]  # the last of an epoch has 3
            net.step(x[rows], y[rows])
        accuracies.append(100 * np.mean(net.predict(x_test).argmax(axis=1) == y_test))
    return np.mean(accuracies[-3:])


@cache
def float_scores(model):
    return [score(session(seed, model=MODELS[model]), seed) for seed in SEEDS]


@pytest.mark.parametrize("model", MODELS)
def test_float32_learns(model):
    """Else there is nothing to be compared with."""
    assert np.mean(float_scores(model)) > 92


@pytest.mark.parametrize("policy", WITHIN, ids=repr)
@pytest.mark.parametrize("model", MODELS)
def test_integers_learn_as_well(policy, model):
    begun = [session(seed, model=MODELS[model]) for seed in SEEDS]
    scores = [score(n.recompile(policy=policy), seed) for seed, n in zip(SEEDS, begun, strict=True)]
    difference = np.mean(scores) - np.mean(float_scores(model))
    assert abs(difference) <= WITHIN[policy], f"{scores} against {float_scores(model)}"


@pytest.mark.parametrize("policy", WITHIN, ids=repr)
def test_the_chain_with_raw_is_the_chain(policy):
    """Two ways of writing it: the same bytes, after an epoch too."""
    nets = [session(0, policy, model) for model in (chain, lambda: chain(output=q.RAW))]
    (x, y), _ = digits()
    for i in range(0, len(x), BATCH):
        losses = [net.step(x[i : i + BATCH], y[i : i + BATCH]) for net in nets]
        assert losses[0] == losses[1]
    plain, raw = (bytes(net._spaces.lasting()) for net in nets)
    assert plain == raw


@pytest.mark.parametrize("policy", WITHIN, ids=repr)
def test_twins_begin_with_the_same_floats(policy):
    """Whichever is compiled first; and a recompiled session is the compiled one."""
    floats = session(0)
    twin, compiled = floats.recompile(policy=policy), session(0, policy)
    back = compiled.recompile(policy=q.Policy.float32())
    for name, values in floats.state_dict().items():
        assert twin.tensor(name).data == compiled.tensor(name).data
        assert back.tensor(name).data == floats.tensor(name).data
        stored = twin.tensor(name)
        assert stored.data == q.quantize(values, stored.format, rounding="half_away").data
