"""Layers and losses in float32 against PyTorch: outputs, gradients, parameters after steps."""

import numpy as np
import pytest
import torch

import pyqfw as q
from pyqfw import nn

NEAR = 1e-5  # relative, norm-wise per tensor
LR, STEPS = 0.05, 10


def near(ours, theirs, what):
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape, what
    assert np.linalg.norm(a - b) <= NEAR * np.linalg.norm(b), what


def check(made, loss, shape, targets, *, batch=8, seed=5):
    """made(module) is the network of either library, loss(module) its loss; targets(rng, rows)."""
    plan = q.compile(
        made(nn),
        input_shape=shape,
        loss=loss(nn),
        optimizer=q.optim.SGD(LR, momentum=0.9),
        batch=batch,
        seed=seed,
    )
    net, model, criterion = q.Session(plan), made(torch.nn), loss(torch.nn)
    model.load_state_dict({n: torch.from_numpy(w) for n, w in net.state_dict().items()})
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    rng = np.random.default_rng(seed)
    for step in range(STEPS):
        rows = batch - step % 3
        x = rng.normal(size=(rows, *shape)).astype(np.float32)
        y = targets(rng, rows)
        out = model(torch.from_numpy(x))
        near(net.forward(x), out.detach().numpy(), f"output {step}")
        near(net.predict(x), out.detach().numpy(), f"prediction {step}")
        sgd.zero_grad()
        value = criterion(out, torch.from_numpy(y))
        value.backward()
        sgd.step()
        near(net.step(x, y), value.item(), f"loss {step}")
        for name, p in model.named_parameters():
            near(net.grad(name).numpy(), p.grad.numpy(), f"gradient {name} {step}")
            near(net.tensor(name).numpy(), p.detach().numpy(), f"{name} {step}")


def classes(n):
    return lambda rng, rows: rng.integers(0, n, rows)


def cross_entropy(module):
    return module.CrossEntropyLoss()


@pytest.mark.parametrize("slope", [0.01, 0.0, 0.3, 1.0, 2.5])
def test_leaky_relu(slope):
    def made(module):
        return module.Sequential(
            module.Linear(7, 11), module.LeakyReLU(slope), module.Linear(11, 4), module.LeakyReLU()
        )

    check(made, cross_entropy, (7,), classes(4))


def numbers(*shape):
    return lambda rng, rows: rng.normal(size=(rows, *shape)).astype(np.float32)


def mse(module):
    return module.MSELoss()


@pytest.mark.parametrize("shape", [(5,), (1,), (3, 4)])
def test_mse(shape):
    def made(module):
        return module.Sequential(
            module.Linear(shape[-1], 8), module.ReLU(), module.Linear(8, shape[-1])
        )

    check(made, mse, shape, numbers(*shape))


@pytest.mark.parametrize("shape", [(6,), (3, 6)])
def test_softmax(shape):
    def made(module):
        return module.Sequential(
            module.Linear(6, 9), module.Softmax(dim=-1), module.Linear(9, 4), module.Softmax(-1)
        )

    check(made, mse, shape, numbers(*shape[:-1], 4))


@pytest.mark.parametrize("weight", [None, (0.5, 2.0, 0.0, 1.5)])
@pytest.mark.parametrize("ignored", [-100, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
def test_cross_entropy(weight, ignored, smoothing):
    def made(module):
        return module.Sequential(module.Linear(6, 9), module.ReLU(), module.Linear(9, 4))

    def loss(module):
        theirs = weight is not None and module is torch.nn
        given = torch.tensor(weight) if theirs else weight
        return module.CrossEntropyLoss(given, ignore_index=ignored, label_smoothing=smoothing)

    def labels(rng, rows):
        y = rng.integers(0, 4, rows)
        y[1], y[0] = ignored, 3
        return y

    check(made, loss, (6,), labels)
