"""Pools in float32 beside PyTorch, over geometries that hypothesis draws; and its refusals."""

import json

import numpy as np
import poolgold
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn as tnn

import pyqfw as q
from pyqfw import nn

NEAR = 1e-5  # relative, norm-wise per tensor
fixed = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def near(ours, theirs, what):
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape, what
    assert np.linalg.norm(a - b) <= NEAR * max(np.linalg.norm(b), 1e-30), what


def sizes(dims, low, high):
    """A number, or one for each axis."""
    each = st.tuples(*[st.integers(low, high)] * dims)
    return st.one_of(st.integers(low, high), each)


def halves(kernel, dims):
    """Padding of at most half a kernel."""
    axes = kernel if isinstance(kernel, tuple) else (kernel,) * dims
    each = st.tuples(*(st.integers(0, k // 2) for k in axes))
    return each if isinstance(kernel, tuple) else st.one_of(st.integers(0, kernel // 2), each)


@st.composite
def windows(draw, dims):
    kernel = draw(sizes(dims, 1, 4))
    found = {"kernel_size": kernel, "padding": draw(halves(kernel, dims))}
    if draw(st.booleans()):
        found["stride"] = draw(sizes(dims, 1, 5))
    return {**found, "ceil_mode": draw(st.booleans())}


@st.composite
def cases(draw, name):
    """Arguments and the shape of a sample."""
    dims = int(name[-2])
    shape = (draw(st.integers(1, 5)), *(draw(st.integers(1, 11)) for _ in range(dims)))
    if name.startswith("Adaptive"):
        optional = st.one_of(st.none(), st.integers(1, 9)) if dims == 2 else st.integers(1, 9)
        size = draw(st.one_of(st.integers(1, 9), st.tuples(*[optional] * dims)))
        return {"output_size": size}, shape
    found = draw(windows(dims))
    if name.startswith("Max"):
        found["dilation"] = draw(sizes(dims, 1, 3))
    else:
        found["count_include_pad"] = draw(st.booleans())
        if dims == 2 and draw(st.integers(0, 3)) == 0:
            found["divisor_override"] = draw(st.integers(1, 9))
    return found, shape


TRIED = {}


def agrees(name, arguments, shape):
    """Output and gradients of a convolution and the pool, with a ReLU between them or not; where
    PyTorch refuses, or gives minus infinity, so do we."""
    ours, theirs = getattr(nn, name)(**arguments), getattr(tnn, name)(**arguments)
    assert repr(ours) == repr(theirs)
    rng = np.random.default_rng(len(TRIED.setdefault(name, [])))
    x = rng.normal(size=(3, *shape)).astype(np.float32)
    try:
        bad = not torch.isfinite(theirs(torch.from_numpy(x))).all()
    except RuntimeError:
        bad = True
    if bad:
        with pytest.raises(q.ShapeError, match="layer '0'"):
            q.compile(ours, input_shape=shape)
        return
    relu = bool(rng.integers(2))
    module = tnn.Sequential(
        (tnn.Conv1d if len(shape) == 2 else tnn.Conv2d)(shape[0], shape[0], 1),
        *([tnn.ReLU()] if relu else []),
        theirs,
    )
    first = (nn.Conv1d if len(shape) == 2 else nn.Conv2d)(shape[0], shape[0], 1)
    plan = q.compile(
        nn.Sequential(first, *([nn.ReLU()] if relu else []), ours),
        input_shape=shape,
        loss=nn.MSELoss(),
        optimizer=q.optim.SGD(0.1),
        batch=3,
        seed=len(TRIED[name]),
    )
    net = q.Session(plan)
    module.load_state_dict({n: torch.from_numpy(w) for n, w in net.state_dict().items()})
    out = module(torch.from_numpy(x))
    assert out.shape[1:] == plan.nodes[-1].out_shape
    near(net.forward(x), out.detach().numpy(), "output")
    y = rng.normal(size=out.shape).astype(np.float32)
    torch.nn.functional.mse_loss(out, torch.from_numpy(y)).backward()
    net.backward(y)
    for key, p in module.named_parameters():
        near(net.grad(key).numpy(), p.grad.numpy(), f"gradient {key}")
    near(net.predict(x), out.detach().numpy(), "prediction")
    TRIED[name].append((arguments, shape))


def holds(name):
    TRIED[name] = []

    @fixed
    @given(cases(name))
    def check(case):
        agrees(name, *case)

    check()
    assert len({repr(case) for case in TRIED[name]}) >= 40


def test_max_pool_1d():
    holds("MaxPool1d")


def test_max_pool_2d():
    holds("MaxPool2d")


def test_avg_pool_1d():
    holds("AvgPool1d")


def test_avg_pool_2d():
    holds("AvgPool2d")


def test_adaptive_avg_pool_1d():
    holds("AdaptiveAvgPool1d")


def test_adaptive_avg_pool_2d():
    holds("AdaptiveAvgPool2d")


def test_ties_go_to_the_first():
    x = np.repeat(np.array([[[1, 1, 2, 2, 0, 0]]], np.float32), 2, axis=0)
    plan = q.compile(
        nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), nn.MaxPool1d(3, 1)),
        input_shape=(1, 6),
        loss=nn.MSELoss(),
        optimizer=q.optim.SGD(0.1),
        batch=2,
    )
    net, module = (
        q.Session(plan),
        tnn.Sequential(tnn.Conv1d(1, 1, 1, bias=False), tnn.MaxPool1d(3, 1)),
    )
    net.load_state_dict({"0.weight": np.ones((1, 1, 1), np.float32)})
    with torch.no_grad():
        module[0].weight.fill_(1)
    data = torch.from_numpy(x).requires_grad_()
    y = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    torch.nn.functional.mse_loss(module(data), torch.from_numpy(y)).backward()
    for op, written in net.trace(x, y):
        if op.kernel == "max_pool_back":
            (dx,) = written.values()
    near(dx.numpy(), data.grad.numpy(), "dX")


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel_size": 3, "padding": 2},
        {"kernel_size": 1, "padding": 1},
        {"kernel_size": 2, "padding": 2, "dilation": 4},
        {"kernel_size": 0},
        {"kernel_size": 2, "stride": 0},
        {"kernel_size": 2, "dilation": 0},
    ],
)
@pytest.mark.parametrize("name", ["MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d"])
def test_what_pytorch_refuses_we_refuse(name, arguments):
    if "dilation" in arguments and name.startswith("Avg"):
        arguments = {k: v for k, v in arguments.items() if k != "dilation"} | {"padding": 2}
    x = torch.ones(1, 2, *[12] * int(name[-2]))
    with pytest.raises(RuntimeError):
        getattr(tnn, name)(**arguments)(x)
    with pytest.raises(q.QfwError, match=f"^{name}: "):
        getattr(nn, name)(**arguments)


def test_the_recorded_numbers_are_pytorchs():
    found = json.loads(poolgold.FILE.read_text())
    assert len(found) == len(poolgold.CASES)
    for i, case in enumerate(found):
        again = json.loads(json.dumps(poolgold.record(i)))
        for key in ("x", "y", "error", "dx"):
            near(case.pop(key), again.pop(key), (i, key))
        assert case == again


def har(module):
    return module.Sequential(
        module.Conv1d(9, 16, 7, padding=3),
        module.ReLU(),
        module.MaxPool1d(2),
        module.Conv1d(16, 32, 5, padding=2),
        module.ReLU(),
        module.MaxPool1d(2),
        module.Conv1d(32, 64, 3, padding=1),
        module.ReLU(),
        module.AdaptiveAvgPool1d(1),
        module.Flatten(),
        module.Linear(64, 6),
    )


def test_a_whole_network():
    """Three steps of the CNN for activity recognition: losses, gradients and parameters."""
    plan = q.compile(
        har(nn),
        input_shape=(9, 128),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.05, momentum=0.9),
        batch=8,
    )
    net, module = q.Session(plan), har(tnn)
    module.load_state_dict({n: torch.from_numpy(w) for n, w in net.state_dict().items()})
    sgd = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    rng = np.random.default_rng(0)
    for step in range(3):
        x = rng.normal(size=(8 - step, 9, 128)).astype(np.float32)
        y = rng.integers(0, 6, 8 - step)
        sgd.zero_grad()
        value = torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
        value.backward()
        sgd.step()
        near(net.step(x, y), value.item(), f"loss {step}")
        for name, p in module.named_parameters():
            near(net.grad(name).numpy(), p.grad.numpy(), f"gradient {name} {step}")
            near(net.tensor(name).numpy(), p.detach().numpy(), f"{name} {step}")
