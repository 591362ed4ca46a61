"""LayerNorm in float32 against PyTorch: output, input gradient, parameters and their gradients."""

import numpy as np
import pytest
import torch

import pyqfw as q
from pyqfw import nn

BATCH, CLASSES = 8, 3
FIRST, LAST = 1e-5, 1e-3
# the sample, normalized_shape, what else
CASES = {
    "vector": ((12,), 12, {}),
    "one": ((1,), 1, {}),
    "seven": ((7,), (7,), {"eps": 1e-3}),
    "long": ((513,), 513, {}),
    "positions": ((5, 9), 9, {}),
    "several axes": ((2, 3, 5), (3, 5), {}),
    "all axes": ((2, 3, 5), (2, 3, 5), {}),
    "no bias": ((12,), 12, {"bias": False}),
    "not affine": ((4, 6), 6, {"elementwise_affine": False}),
}


def error(ours, theirs):
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape
    size = np.linalg.norm(b)
    return np.linalg.norm(a - b) / (size if size > 1e-6 else 1.0)


def network(module, case):
    """Linear on the last axis, LayerNorm, ReLU, a layer for the classes."""
    shape, normalized, options = CASES[case]
    return module.Sequential(
        module.Linear(shape[-1], shape[-1]),
        module.LayerNorm(normalized, **options),
        module.ReLU(),
        module.Flatten(),
        module.Linear(int(np.prod(shape)), CLASSES),
    )


@pytest.mark.parametrize("case", CASES)
def test_steps(case):
    shape = CASES[case][0]
    plan = q.compile(
        network(nn, case),
        input_shape=shape,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.05, momentum=0.9),
        batch=BATCH,
    )
    net, twin = q.Session(plan), network(torch.nn, case)
    rng = np.random.default_rng(0)
    begin = net.state_dict()
    for name in ("1.weight", "1.bias"):
        if name in begin:
            begin[name] += rng.normal(scale=0.3, size=begin[name].shape).astype(np.float32)
    net.load_state_dict(begin)
    twin.load_state_dict({name: torch.from_numpy(v) for name, v in begin.items()})
    sgd = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    for i in range(30):
        x = rng.normal(size=(BATCH, *shape)).astype(np.float32) * 2 + 1
        y = rng.integers(0, CLASSES, BATCH)
        out = twin(torch.from_numpy(x))
        assert error(net.forward(x), out.detach()) <= (FIRST if i == 0 else LAST)
        sgd.zero_grad()
        loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(y))
        loss.backward()
        sgd.step()
        assert error(net.backward(y), loss.item()) <= (FIRST if i == 0 else LAST)
        net.update()
        for name, p in twin.named_parameters():
            limit = FIRST if i == 0 else LAST
            assert error(net.grad(name).numpy(), p.grad) <= limit, (i, name)
            assert error(net.tensor(name).numpy(), p.detach()) <= limit, (i, name)


@pytest.mark.parametrize("case", CASES)
def test_the_same_words(case):
    """Arguments, parameter names, shapes and initial values."""
    _, normalized, options = CASES[case]
    ours, theirs = nn.LayerNorm(normalized, **options), torch.nn.LayerNorm(normalized, **options)
    named = {p.name: p for p in ours.parameters()}
    assert {n: tuple(p.shape) for n, p in theirs.named_parameters()} == {
        n: p.shape for n, p in named.items()
    }
    for n, p in theirs.named_parameters():
        assert (p == named[n].value).all()
