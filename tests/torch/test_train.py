"""Training in float32 against PyTorch, from the same weights, one thread."""

import numpy as np
import pytest
import torch
from train_twins import BATCH, FIRST, LAST, LR, SIZES, STEPS, batches, error, layers

import pyqfw as q
from pyqfw import nn

OPTIMIZERS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "weight decay": {"weight_decay": 0.01},
    "dampening": {"momentum": 0.9, "dampening": 0.5},
    "all": {"momentum": 0.8, "dampening": 0.25, "weight_decay": 0.02},
    "nesterov and decay": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
}


def session(given, seed=3, policy=None, micro_batches=1):
    plan = q.compile(
        layers(nn),
        input_shape=SIZES[:1],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr=LR, **given),
        policy=policy,
        batch=BATCH,
        micro_batches=micro_batches,
        seed=seed,
    )
    return q.Session(plan)


class Twins:
    """One network in both libraries; `step` gives the relative error of everything."""

    def __init__(self, given, **options):
        self.net = session(given, **options)
        self.torch = layers(torch.nn)
        weights = {name: torch.from_numpy(w) for name, w in self.net.state_dict().items()}
        self.torch.load_state_dict(weights)
        self.optimizer = torch.optim.SGD(self.torch.parameters(), lr=LR, **given)

    def step(self, x, y):
        self.optimizer.zero_grad()
        out = self.torch(torch.from_numpy(x))
        loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(y))
        loss.backward()
        self.optimizer.step()
        found = {"loss": error(self.net.step(x, y), loss.item())}
        for name, p in self.torch.named_parameters():
            found[f"{name} gradient"] = error(self.net.grad(name).numpy(), p.grad.numpy())
            found[name] = error(self.net.tensor(name).numpy(), p.detach().numpy())
            buffer = self.optimizer.state[p].get("momentum_buffer")
            if buffer is not None:
                state = self.net.tensor(f"{name}:momentum").numpy()
                found[f"{name} momentum"] = error(state, buffer.numpy())
        return found


@pytest.mark.parametrize("rows", [(BATCH,), (BATCH, 7, 1, 31)], ids=["full", "short batches"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_trajectory(name, rows):
    """Loss, gradients, parameters and momentum, after the first step and after the last."""
    twins = Twins(OPTIMIZERS[name])
    for i, (x, y) in enumerate(batches(rows)):
        errors = twins.step(x, y)
        worst = max(errors, key=errors.__getitem__)
        limit = FIRST if i == 0 else LAST
        assert errors[worst] <= limit, f"step {i}: {worst} is off by {errors[worst]:.1e}"
    assert twins.net.steps == STEPS


@pytest.mark.parametrize("k", [2, 3, 8, 32])
@pytest.mark.parametrize("rows", [(BATCH,), (BATCH, 7, 1, 31)], ids=["full", "short batches"])
def test_micro_batches_are_the_whole_batch(k, rows):
    """PyTorch's step is over all rows at once."""
    twins = Twins(OPTIMIZERS["all"], micro_batches=k)
    for i, (x, y) in enumerate(batches(rows)):
        errors = twins.step(x, y)
        worst = max(errors, key=errors.__getitem__)
        limit = FIRST if i == 0 else LAST
        assert errors[worst] <= limit, f"step {i}: {worst} is off by {errors[worst]:.1e}"


def test_accumulation_by_hand_is_pytorch_s_idiom():
    """loss / k in each of k backwards, where ours takes the rows of the step by default."""
    k = 4
    twins = Twins(OPTIMIZERS["momentum"], micro_batches=k)
    x, y = next(iter(batches()))
    for x_i, y_i in zip(np.split(x, k), np.split(y, k), strict=True):
        out = twins.torch(torch.from_numpy(x_i))
        loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(y_i))
        (loss / k).backward()
        twins.net.forward(x_i)
        assert error(twins.net.backward(y_i), loss.item()) <= FIRST
    twins.optimizer.step()
    twins.net.update()
    for name, p in twins.torch.named_parameters():
        assert error(twins.net.grad(name).numpy(), p.grad.numpy()) <= FIRST
        assert error(twins.net.tensor(name).numpy(), p.detach().numpy()) <= FIRST


def test_the_output_of_forward_and_predict():
    twins = Twins(OPTIMIZERS["momentum"])
    for i, (x, y) in enumerate(batches()):
        expected = twins.torch(torch.from_numpy(x)).detach().numpy()
        assert error(twins.net.forward(x), expected) <= (FIRST if i == 0 else LAST)
        assert error(twins.net.predict(x), expected) <= (FIRST if i == 0 else LAST)
        twins.step(x, y)


@pytest.mark.parametrize("shape", [(4, 5), (2, 2, 5)])
def test_inputs_of_more_axes(shape):
    """Linear on the last axis, Flatten in PyTorch's order: every gradient of the first step."""

    def made(module):
        inner = int(np.prod(shape[:-1])) * 6
        head = module.Linear(inner, 3)
        return module.Sequential(module.Linear(5, 6), module.ReLU(), module.Flatten(), head)

    plan = q.compile(
        made(nn), input_shape=shape, loss=nn.CrossEntropyLoss(), optimizer=q.optim.SGD(), batch=8
    )
    net, model = q.Session(plan), made(torch.nn)
    model.load_state_dict({n: torch.from_numpy(w) for n, w in net.state_dict().items()})
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(8, *shape)).astype(np.float32), rng.integers(0, 3, 8)
    loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
    loss.backward()
    assert error(net.step(x, y), loss.item()) <= FIRST
    for name, p in model.named_parameters():
        assert error(net.grad(name).numpy(), p.grad.numpy()) <= FIRST


def test_a_learning_rate_that_changes():
    twins = Twins(OPTIMIZERS["nesterov"])
    for i, (x, y) in enumerate(batches()):
        twins.net.lr = twins.optimizer.param_groups[0]["lr"] = LR / (1 + i)
        assert max(twins.step(x, y).values()) <= LAST


def test_torchs_weights_go_in_and_ours_come_out():
    """Names, shapes and bits, as tensors and as arrays."""
    net = session({})
    torch.manual_seed(0)
    theirs = layers(torch.nn).state_dict()
    for given in (theirs, {name: t.numpy() for name, t in theirs.items()}):
        net.load_state_dict(session({}, seed=9).state_dict())
        net.load_state_dict(given)
        ours = net.state_dict()
        assert list(ours) == list(theirs)
        for name, t in theirs.items():
            assert ours[name].tobytes() == t.numpy().tobytes()
    back = layers(torch.nn)
    back.load_state_dict({name: torch.from_numpy(w) for name, w in net.state_dict().items()})


@pytest.mark.parametrize("policy", [q.Policy.full_sym(), q.Policy.int8()], ids=repr)
def test_integer_policies_load_torchs_weights_to_half_a_step(policy):
    net = session({}, policy=policy)
    torch.manual_seed(0)
    theirs = {name: t.numpy() for name, t in layers(torch.nn).state_dict().items()}
    net.load_state_dict(theirs)
    for name, w in theirs.items():
        t = net.tensor(name)
        assert t.shape == w.shape
        if t.scale is not None:
            limit = 0.5001 * t.scale.reshape(-1, *[1] * (w.ndim - 1))
            assert (np.abs(t.numpy() - w) <= limit).all()
        else:
            assert t.numpy().tobytes() == w.tobytes()
