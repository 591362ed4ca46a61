"""Networks as PyTorch's users write them: the same code here and there, the same numbers."""

import numpy as np
import pytest
import torch
from blocks import BLOCKS

import pyqfw as q
from pyqfw import nn

NEAR = 1e-5  # relative, norm-wise per tensor
STEPS, LR = 5, 0.05


def near(ours, theirs, what):
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape, what
    assert np.linalg.norm(a - b) <= NEAR * np.linalg.norm(b), what


class Concat(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, *values):
        return torch.cat(values, self.dim)


def both(name, optimizer):
    make, shape = BLOCKS[name]
    numbers = name == "autoencoder"
    loss = nn.MSELoss() if numbers else nn.CrossEntropyLoss()
    plan = q.compile(
        make(nn, nn.Concat), input_shape=shape, loss=loss, optimizer=optimizer, batch=6, seed=3
    )
    net, model = q.Session(plan), make(torch.nn, Concat)
    model.load_state_dict({n: torch.from_numpy(w) for n, w in net.state_dict().items()})
    return net, model, shape, numbers


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", BLOCKS)
def test_steps(name, momentum):
    net, model, shape, numbers = both(name, q.optim.SGD(LR, momentum=momentum))
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=momentum)
    criterion = torch.nn.MSELoss() if numbers else torch.nn.CrossEntropyLoss()
    assert list(net.state_dict()) == list(model.state_dict())
    rng = np.random.default_rng(1)
    for step in range(STEPS):
        x = rng.normal(size=(6 - step % 2, *shape)).astype(np.float32)
        out = model(torch.from_numpy(x))
        y = rng.normal(size=out.shape).astype(np.float32) if numbers else rng.integers(0, 4, len(x))
        near(net.predict(x), out.detach().numpy(), f"prediction {step}")
        near(net.forward(x), out.detach().numpy(), f"output {step}")
        sgd.zero_grad()
        value = criterion(out, torch.from_numpy(y))
        value.backward()
        sgd.step()
        near(net.step(x, y), value.item(), f"loss {step}")
        for key, p in model.named_parameters():
            near(net.grad(key).numpy(), p.grad.numpy(), f"gradient {key} {step}")
            near(net.tensor(key).numpy(), p.detach().numpy(), f"{key} {step}")


@pytest.mark.parametrize("name", BLOCKS)
def test_integers_stay_near(name):
    """16-bit wires and errors, 12-bit weights: outputs and gradients within a percent or so."""
    net, model, shape, numbers = both(name, q.optim.SGD(LR))
    fine = q.Policy.full_sym().replace(
        **dict.fromkeys(("input", "wires", "errors"), q.Sym(16)), weights=q.Sym(12, axis=0)
    )
    net = net.recompile(policy=fine)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(6, *shape)).astype(np.float32)
    out = model(torch.from_numpy(x))
    y = rng.normal(size=out.shape).astype(np.float32) if numbers else rng.integers(0, 4, 6)
    criterion = torch.nn.MSELoss() if numbers else torch.nn.CrossEntropyLoss()
    criterion(out, torch.from_numpy(y)).backward()
    theirs = out.detach().numpy()
    assert np.linalg.norm(net.forward(x) - theirs) <= 5e-3 * np.linalg.norm(theirs)
    net.backward(y)
    for key, p in model.named_parameters():
        far = np.linalg.norm(net.grad(key).numpy() - p.grad.numpy())
        assert far <= 2e-2 * np.linalg.norm(p.grad.numpy()), key
