"""SGD and AdamW with clipping and groups against PyTorch, in float32, from the same weights."""

import numpy as np
import pytest
import torch
from train_twins import BATCH, FIRST, LAST, STEPS, batches, error, layers

import pyqfw as q
from pyqfw import nn

SGDS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "weight decay": {"weight_decay": 0.01},
    "all": {"momentum": 0.8, "dampening": 0.25, "weight_decay": 0.02},
}
ADAMS = {
    "defaults": {},
    "other betas": {"betas": (0.8, 0.95), "eps": 1e-6},
    "no decay": {"weight_decay": 0.0},
    "much decay": {"weight_decay": 0.3, "betas": (0.0, 0.999)},
}
# Of weights with which no ReLU's input comes so near 0 (1e-8) that rounding decides its sign:
# there the gradients of the two libraries differ by a whole path.
SEED = 3
ROLES = ("exp_avg", "exp_avg_sq")
NORMS = (None, 0.05, 1.0)
SGD_GROUPS = {"0": {"lr": 0.01}, "2.weight": {"weight_decay": 0.1}, "4.bias": {"lr": 0.2}}
ADAM_GROUPS = {"0": {"lr": 0.001}, "2.weight": {"weight_decay": 0.0}, "4.bias": {"lr": 0.02}}


class Twins:
    """One network in both libraries; `step` gives the relative error of everything kept."""

    def __init__(self, name, lr, given, norm, groups):
        self.norm, groups = norm, groups or {}
        ours = getattr(q.optim, name)(lr=lr, max_grad_norm=norm, groups=groups, **given)
        plan = q.compile(
            layers(nn),
            input_shape=20,
            loss=nn.CrossEntropyLoss(),
            optimizer=ours,
            batch=BATCH,
            seed=SEED,
        )
        self.net, self.torch = q.Session(plan), layers(torch.nn)
        weights = {n: torch.from_numpy(w) for n, w in self.net.state_dict().items()}
        self.torch.load_state_dict(weights)
        parts = []
        for n, p in self.torch.named_parameters():
            own = [groups[key] for key in (n, n.split(".")[0]) if key in groups]
            parts.append({"params": [p], **(own[0] if own else {})})
        self.optimizer = getattr(torch.optim, name)(parts, lr=lr, **given)

    def step(self, x, y):
        self.optimizer.zero_grad()
        out = self.torch(torch.from_numpy(x))
        torch.nn.functional.cross_entropy(out, torch.from_numpy(y)).backward()
        if self.norm is not None:
            torch.nn.utils.clip_grad_norm_(self.torch.parameters(), self.norm)
        self.optimizer.step()
        self.net.step(x, y)
        found = {}
        for name, p in self.torch.named_parameters():
            found[name] = error(self.net.tensor(name).numpy(), p.detach().numpy())
            kept = self.optimizer.state[p]
            for role, ours in (("momentum_buffer", "momentum"), *((r, r) for r in ROLES)):
                if kept.get(role) is not None:
                    state = self.net.tensor(f"{name}:{ours}").numpy()
                    found[f"{name} {role}"] = error(state, kept[role].numpy())
        return found


def follow(twins):
    for i, (x, y) in enumerate(batches()):
        errors = twins.step(x, y)
        worst = max(errors, key=errors.__getitem__)
        limit = FIRST if i == 0 else LAST
        assert errors[worst] <= limit, f"step {i}: {worst} is off by {errors[worst]:.1e}"
    assert twins.net.steps == STEPS


@pytest.mark.parametrize("groups", [None, SGD_GROUPS], ids=["all alike", "groups"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", SGDS)
def test_sgd(name, norm, groups):
    follow(Twins("SGD", 0.05, SGDS[name], norm, groups))


@pytest.mark.parametrize("groups", [None, ADAM_GROUPS], ids=["all alike", "groups"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ADAMS)
def test_adamw(name, norm, groups):
    follow(Twins("AdamW", 0.005, ADAMS[name], norm, groups))


def test_a_schedule_moves_all_groups_alike():
    twins = Twins("AdamW", 0.005, {}, 0.5, ADAM_GROUPS)
    schedule = q.optim.LinearWarmup(5, start=0.2, then=q.optim.CosineAnnealingLR(40))
    base = [group["lr"] for group in twins.optimizer.param_groups]
    for epoch, (x, y) in enumerate(batches()):
        twins.net.lr = schedule(0.005, epoch)
        for group, lr in zip(twins.optimizer.param_groups, base, strict=True):
            group["lr"] = schedule(lr, epoch)
        assert max(twins.step(x, y).values()) <= LAST


@pytest.mark.parametrize("grads", [q.Sym(8), q.Sym(6, axis=0), q.Asym(12)], ids=repr)
def test_the_factor_of_packed_gradients(grads):
    """The step of plain SGD is what PyTorch makes of the values that the packed gradients have."""
    policy = q.Policy.float32().replace(grads=grads)
    plan = q.compile(
        layers(nn),
        input_shape=20,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.5, max_grad_norm=0.1),
        policy=policy,
        batch=BATCH,
    )
    net = q.Session(plan)
    before = net.state_dict()
    net.step(*next(batches()))
    held = {n: torch.zeros(w.shape, requires_grad=True) for n, w in before.items()}
    for n, p in held.items():
        p.grad = torch.from_numpy(net.grad(n).numpy().copy())
    torch.nn.utils.clip_grad_norm_(held.values(), 0.1)
    for n, p in held.items():
        expected = before[n] - np.float32(0.5) * p.grad.numpy()
        assert error(net.tensor(n).numpy(), expected) <= FIRST
