"""BatchNorm and GroupNorm in float32 against PyTorch, over many geometries: outputs, gradients,
parameters and running statistics of steps, and inference; and how near integers come."""

import re

import normvectors
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pyqfw as q
from pyqfw import nn

MORE = 3
LIMITS = {"full_sym": 0.01, "int8": 0.05}  # of what is stored in 12 and in 8 bits
NEAR = 1e-5  # relative, norm-wise per tensor
fixed = settings(derandomize=True, deadline=None, database=None, max_examples=50)


def near(ours, theirs, what, limit=NEAR, least=1e-4):
    """Relative to their norm, or to `least` where that is larger."""
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape, what
    assert np.linalg.norm(a - b) <= limit * max(np.linalg.norm(b), least), what


def network(module, shape, norm, relu=True):
    """A product without bias from MORE channels, a normalisation of `shape`, ReLU, a product: what
    came back through it is in the gradient of the first."""
    channels, outputs = shape[0], 3
    last = module.Linear(int(np.prod(shape)), outputs)
    if len(shape) == 1:
        first = module.Linear(channels + MORE, channels, bias=False)
    else:
        conv = module.Conv1d if len(shape) == 2 else module.Conv2d
        first = conv(channels + MORE, channels, 1, bias=False)
    between = [module.ReLU()] if relu else []
    return module.Sequential(first, norm(module), *between, module.Flatten(), last)


def compiled(shape, norm, batch, relu=True, **given):
    return q.Session(
        q.compile(
            network(nn, shape, norm, relu),
            input_shape=(shape[0] + MORE, *shape[1:]),
            loss=nn.MSELoss(),
            optimizer=q.optim.SGD(0.05, momentum=0.9),
            batch=batch,
            **given,
        )
    )


def twins(shape, norm, batch, seed, relu=True):
    """Both, with the same made-up values."""
    net, model = compiled(shape, norm, batch, relu), network(torch.nn, shape, norm, relu)
    rng, values = np.random.default_rng(seed), net.state_dict()
    assert list(values) == list(model.state_dict())
    for name, v in values.items():
        if name.startswith("1.") and v.shape:
            noise = 0.4 * rng.normal(size=v.shape)
            values[name] = (np.exp(noise) if name.endswith("var") else v + noise).astype(np.float32)
    net.load_state_dict(values)
    model.load_state_dict({name: torch.from_numpy(np.array(v)) for name, v in values.items()})
    return net, model, rng


def data(rng, rows, shape, size, offset):
    inputs = (rows, shape[0] + MORE, *shape[1:])
    return (size * rng.normal(size=inputs) + offset).astype(np.float32)


def check(shape, norm, rows, seed, size=1.0, offset=0.0):
    net, model, rng = twins(shape, norm, rows, seed)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model.train()
    for step in range(3):
        x, y = data(rng, rows, shape, size, offset), rng.normal(size=(rows, 3)).astype(np.float32)
        out = model(torch.from_numpy(x))
        near(net.forward(x), out.detach(), f"output {step}")
        sgd.zero_grad()
        loss = torch.nn.functional.mse_loss(out, torch.from_numpy(y))
        loss.backward()
        sgd.step()
        near(net.backward(y), loss.item(), f"loss {step}")
        net.update()
        for name, p in model.named_parameters():
            near(net.grad(name).numpy(), p.grad, f"gradient of {name} {step}")
        for name, value in model.state_dict().items():
            near(net.state_dict()[name], value, f"{name} {step}", least=1e-2)
    model.eval()
    x = data(rng, rows + 2, shape, size, offset)
    near(net.predict(x), model(torch.from_numpy(x)).detach(), "inference")


sizes = st.sampled_from([0.1, 1.0, 20.0])
eps = st.sampled_from([1e-5, 1e-3, 0.1])
momentum = st.sampled_from([None, 0.0, 0.1, 0.7, 1.0])


@st.composite
def geometries(draw, axes):
    """A sample's shape and rows of a batch with eight values a channel or more."""
    channels = draw(st.integers(1, 9))
    shape = (channels, *(draw(st.integers(1, 6)) for _ in range(axes)))
    least = -(-8 // int(np.prod(shape[1:])))
    return shape, draw(st.integers(least, least + 6))


def batch_norm(name, *given):
    return lambda module: getattr(module, name)(*given)


@pytest.mark.parametrize(
    ("name", "axes"), [("BatchNorm1d", 0), ("BatchNorm1d", 1), ("BatchNorm2d", 2)]
)
def test_batch_norm(name, axes):
    @given(geometries(axes), eps, momentum, st.booleans(), sizes, st.integers(0, 2**16))
    @fixed
    def one(geometry, eps, momentum, affine, size, seed):
        shape, rows = geometry
        norm = batch_norm(name, shape[0], eps, momentum, affine)
        check(shape, norm, rows, seed, size, offset=size)

    one()


@pytest.mark.parametrize("axes", [0, 1, 2])
def test_group_norm(axes):
    @given(geometries(axes), st.data(), eps, st.booleans(), sizes, st.integers(0, 2**16))
    @fixed
    def one(geometry, choice, eps, affine, size, seed):
        (channels, *rest), rows = geometry
        wide = channels * int(np.prod(rest))
        divides = [g for g in range(1, channels + 1) if channels % g == 0 and wide // g >= 4]
        groups = choice.draw(st.sampled_from(divides or [1]))
        shape = (channels, *rest) if divides else (8, *rest)  # with two values all is 0
        check(shape, batch_norm("GroupNorm", groups, shape[0], eps, affine), rows, seed, size, size)

    one()


@pytest.mark.parametrize("policy", ["full_sym", "int8"])
@pytest.mark.parametrize(
    ("name", "shape", "given"),
    [
        ("BatchNorm1d", (16,), (16,)),
        ("BatchNorm1d", (8, 12), (8,)),
        ("BatchNorm2d", (6, 7, 5), (6,)),
        ("GroupNorm", (8, 6, 6), (2, 8)),
        ("GroupNorm", (12,), (3, 12)),
    ],
)
def test_integers_are_near_floats(name, shape, given, policy):
    """A step from the same floats, and inference; without a ReLU, whose mask is all or nothing."""
    limit = LIMITS[policy]
    rows, norm = 32, batch_norm(name, *given)
    net, model, rng = twins(shape, norm, rows, 1, relu=False)
    own = net.recompile(policy=getattr(q.Policy, policy)().replace(grads=q.Float32()))
    x, y = data(rng, rows, shape, 1.5, 0.5), rng.normal(size=(rows, 3)).astype(np.float32)
    near(own.predict(x), net.predict(x), "inference", limit)
    model.train()
    out = model(torch.from_numpy(x))
    near(own.forward(x), out.detach(), "output", limit)
    torch.nn.functional.mse_loss(out, torch.from_numpy(y)).backward()
    own.backward(y)
    for key, p in model.named_parameters():
        near(own.grad(key).numpy(), p.grad, f"gradient of {key}", limit)
    for key, value in model.state_dict().items():
        if "running" in key:
            near(own.state_dict()[key], value, key, limit)


@pytest.mark.parametrize(
    ("name", "given", "options"),
    [
        ("BatchNorm1d", (3,), {}),
        ("BatchNorm2d", (7,), {"eps": 1e-3, "momentum": None, "affine": False}),
        ("BatchNorm1d", (4, 0.5, 0.25, True, False), {}),
        ("GroupNorm", (2, 6), {}),
        ("GroupNorm", (3, 6, 0.1, False), {}),
    ],
)
def test_the_same_words(name, given, options):
    """Arguments, printing, parameters and buffers with their shapes and initial values."""
    ours, theirs = (getattr(m, name)(*given, **options) for m in (nn, torch.nn))
    plain = [re.sub(r", bias=\w+", "", str(layer)) for layer in (ours, theirs)]
    assert plain[0] == plain[1]  # newer versions of PyTorch print the bias too
    named = {p.name: p for p in ours.parameters()}
    assert {n: tuple(p.shape) for n, p in theirs.named_parameters()} == {
        n: p.shape for n, p in named.items()
    }
    for n, p in theirs.named_parameters():
        assert (p == named[n].value).all()
    if getattr(theirs, "track_running_stats", False):
        kept = {b.name: b for b in ours.buffers()}
        assert list(kept) == [n for n, _ in theirs.named_buffers()]
        for n, b in theirs.named_buffers():
            assert tuple(b.shape) == kept[n].shape
            assert (b == kept[n].value).all()
            assert b.is_floating_point() != kept[n].integer


def test_both_refuse_one_value_a_channel():
    net = compiled((4,), batch_norm("BatchNorm1d", 4), 2)
    model = network(torch.nn, (4,), batch_norm("BatchNorm1d", 4))
    x = np.zeros((1, 4 + MORE), np.float32)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model(torch.from_numpy(x))
    with pytest.raises(q.QfwError, match=r"layer '1': .*one value a channel"):
        net.forward(x)


def test_the_vectors_are_what_torch_makes():
    """Those that tests/test_norm_vectors.py reads where there is no PyTorch."""
    assert normvectors.main(["--check"]) == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_from_torch_takes_running_statistics(frozen):
    """And a layer that does not learn is frozen: its statistics are those of a step too."""
    model = torch.nn.Sequential(
        *(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4, 1e-3, 0.3), torch.nn.ReLU()),
        *(torch.nn.GroupNorm(2, 4), torch.nn.Linear(4, 2)),
    )
    rng = np.random.default_rng(0)
    for _ in range(3):
        model(torch.from_numpy(rng.normal(size=(8, 5)).astype(np.float32) * 3 + 1))
    for p in model[1].parameters():
        p.requires_grad_(not frozen)
    given = {"loss": nn.MSELoss(), "optimizer": q.optim.SGD(0.1), "batch": 4}
    net = q.from_torch(model, input_shape=5, **given)
    for name, value in model.state_dict().items():
        near(net.state_dict()[name], value, name)
    x, y = (rng.normal(size=(4, n)).astype(np.float32) for n in (5, 2))
    model.eval()
    near(net.predict(x), model(torch.from_numpy(x)).detach(), "inference")
    if frozen:
        near(net.forward(x), model(torch.from_numpy(x)).detach(), "a step's forward")
        return
    net.step(x, y)
    model.load_state_dict({n: torch.from_numpy(np.array(v)) for n, v in net.state_dict().items()})
    near(net.predict(x), model(torch.from_numpy(x)).detach(), "there and back")


def test_from_torch_without_running_statistics_is_refused_by_name():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(q.QfwError, match=r"layer '0', BatchNorm1d.*track_running_stats=True"):
        q.from_torch(model, input_shape=3)


@pytest.mark.parametrize("norm", ["BatchNorm1d", "GroupNorm"])
def test_features_of_an_image_keep_their_order(norm):
    """After a Flatten channels are not last as in memory: each feature has its own numbers."""

    def made(module):
        last = module.BatchNorm1d(24) if norm == "BatchNorm1d" else module.GroupNorm(3, 24)
        return module.Sequential(
            *(module.Conv2d(2, 4, 2, bias=False), module.Flatten(), last),
            *(module.ReLU(), module.Linear(24, 3)),
        )

    given = {"loss": nn.MSELoss(), "optimizer": q.optim.SGD(0.1, momentum=0.9), "batch": 12}
    net = q.Session(q.compile(made(nn), input_shape=(2, 3, 4), **given))
    model, rng, values = made(torch.nn), np.random.default_rng(0), net.state_dict()
    for name, v in values.items():
        if name.startswith("2.") and v.shape:
            values[name] = np.abs(v + 0.5 * rng.normal(size=v.shape)).astype(np.float32)
    net.load_state_dict(values)
    model.load_state_dict({n: torch.from_numpy(np.array(v)) for n, v in values.items()})
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        x = rng.normal(size=(12, 2, 3, 4)).astype(np.float32)
        y = rng.normal(size=(12, 3)).astype(np.float32)
        sgd.zero_grad()
        loss = torch.nn.functional.mse_loss(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        sgd.step()
        near(net.step(x, y), loss.item(), f"loss {step}")
        for name, p in model.named_parameters():
            near(net.grad(name).numpy(), p.grad, f"gradient of {name} {step}")
        for name, value in model.state_dict().items():
            near(net.state_dict()[name], value, f"{name} {step}", least=1e-2)
    model.eval()
    near(net.predict(x), model(torch.from_numpy(x)).detach(), "inference")
