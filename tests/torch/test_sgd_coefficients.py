"""SGD against torch.optim.SGD: arguments, refusals, and trajectories by the coefficients."""

import inspect
import itertools

import numpy as np
import pytest
import torch

from pyqfw.errors import QfwError
from pyqfw.optim import SGD

CASES = [
    {"lr": lr, "momentum": m, "dampening": d, "weight_decay": w, "nesterov": n}
    for lr, m, d, w, n in itertools.product(
        (0.05, 1.0), (0.0, 0.5, 0.9, 1.1), (0.0, 0.25, 1.0), (0.0, 1e-3, 0.3), (False, True)
    )
    if not n or (m > 0 and d == 0)
]


def test_the_same_arguments_in_the_same_order():
    theirs = list(inspect.signature(torch.optim.SGD).parameters.values())[1:]  # after params
    positional = [(p.name, p.default) for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD]
    ours = inspect.signature(SGD).parameters.values()
    assert [(p.name, p.default) for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD] == positional


@pytest.mark.parametrize(
    "given",
    [
        {"lr": -1.0},
        {"momentum": -0.1},
        {"weight_decay": -0.1},
        {"nesterov": True},
        {"nesterov": True, "momentum": 0.9, "dampening": 0.1},
    ],
)
def test_what_torch_refuses_is_refused(given):
    with pytest.raises(ValueError, match=r"."):
        torch.optim.SGD([torch.zeros(1)], **given)
    with pytest.raises(QfwError):
        SGD(**given)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_coefficients_give_torchs_trajectory(case):
    """In float64, where the float32 rounding of the factors (2^-24 each) is all that differs."""
    opt, c = SGD(**case), SGD(**case).coefficients()
    rng = np.random.default_rng(7)
    w, v = rng.normal(size=11), np.zeros(11)
    theirs = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    torch_opt = torch.optim.SGD([theirs], **case)
    for step in range(6):
        g = rng.normal(size=11)
        theirs.grad = torch.tensor(g)
        torch_opt.step()
        g_of, w_of = (c.step_g, c.step_w) if step else (c.step_g1, c.step_w1)
        g_to, w_to = (c.state_g, c.state_w) if step else (c.state_g1, c.state_w1)
        d = float(c.step_v) * v + float(g_of) * g + float(w_of) * w
        v = float(c.state_v) * v + float(g_to) * g + float(w_to) * w
        w = w - opt.lr * d
        np.testing.assert_allclose(w, theirs.detach().numpy(), rtol=3e-6, atol=3e-6)
        buffer = torch_opt.state[theirs].get("momentum_buffer")
        assert (buffer is not None) == opt.has_state
        if buffer is not None:
            np.testing.assert_allclose(v, buffer.numpy(), rtol=3e-6, atol=3e-6)
