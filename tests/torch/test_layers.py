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


SQUASHES = ("ReLU6", "Sigmoid", "Tanh")


@pytest.mark.parametrize("name", SQUASHES)
@pytest.mark.parametrize("shape", [(6,), (3, 6)])
def test_activations(name, shape):
    """Between layers, after a norm, and at the end."""

    def made(module):
        layer = getattr(module, name)
        return module.Sequential(
            *(module.Linear(6, 9), layer(), module.Linear(9, 8), module.LayerNorm(8), layer()),
            *(module.Linear(8, 4), layer()),
        )

    check(made, mse, shape, numbers(*shape[:-1], 4))
    if len(shape) == 1:
        check(made, cross_entropy, shape, classes(4))


@pytest.mark.parametrize("name", SQUASHES)
@pytest.mark.parametrize("size", [1e-6, 0.1, 1.0, 5.0, 30.0])
def test_one_activation_beside_autograd(name, size):
    """The output, and the error of what enters, which is the gradient of a bias of one row; 1e-6
    norm-wise."""
    n = 257
    plan = q.compile(
        nn.Sequential(nn.Linear(1, n), getattr(nn, name)()),
        input_shape=1,
        loss=nn.MSELoss(),
        optimizer=q.optim.SGD(LR),
    )
    net, rng = q.Session(plan), np.random.default_rng(3)
    bias = (size * rng.normal(size=n)).astype(np.float32)
    bias[:3] = 0, 6, -6
    net.load_state_dict({"0.weight": np.zeros((n, 1)), "0.bias": bias})
    x = torch.from_numpy(bias.copy()).requires_grad_()
    targets = rng.normal(size=(1, n)).astype(np.float32)
    out = getattr(torch.nn, name)()(x)
    torch.nn.functional.mse_loss(out[None], torch.from_numpy(targets)).backward()
    found = net.forward(np.zeros((1, 1)))[0]
    net.backward(targets)
    for ours, theirs in ((found, out.detach().numpy()), (net.grad("0.bias").numpy(), x.grad)):
        a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


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
