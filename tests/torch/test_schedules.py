"""Schedules against torch.optim.lr_scheduler over 50 epochs."""

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from pyqfw import optim

EPOCHS = 50


def warm(optimizer, epochs, start, then):
    first = lr_scheduler.LinearLR(optimizer, start_factor=start, total_iters=epochs)
    return lr_scheduler.SequentialLR(optimizer, [first, then(optimizer)], milestones=[epochs])


PAIRS = {
    "step": (optim.StepLR(7, 0.3), lambda o: lr_scheduler.StepLR(o, 7, 0.3)),
    "step, defaults": (optim.StepLR(20), lambda o: lr_scheduler.StepLR(o, 20)),
    "exponential": (optim.ExponentialLR(0.93), lambda o: lr_scheduler.ExponentialLR(o, 0.93)),
    "cosine": (optim.CosineAnnealingLR(50), lambda o: lr_scheduler.CosineAnnealingLR(o, 50)),
    "cosine, short": (
        optim.CosineAnnealingLR(12, eta_min=0.003),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 12, eta_min=0.003),
    ),
    "warm-up": (
        optim.LinearWarmup(8, start=0.1),
        lambda o: lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=8),
    ),
    "warm-up, defaults": (
        optim.LinearWarmup(5),
        lambda o: lr_scheduler.LinearLR(o, total_iters=5),
    ),
    "warm-up, then cosine": (
        optim.LinearWarmup(5, start=0.2, then=optim.CosineAnnealingLR(45)),
        lambda o: warm(o, 5, 0.2, lambda o: lr_scheduler.CosineAnnealingLR(o, 45)),
    ),
    "warm-up, then steps": (
        optim.LinearWarmup(6, start=0.5, then=optim.StepLR(10, 0.5)),
        lambda o: warm(o, 6, 0.5, lambda o: lr_scheduler.StepLR(o, 10, 0.5)),
    ),
}


@pytest.mark.parametrize("lr", [0.1, 3.0, 1e-4])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_fifty_epochs(name, lr):
    """To float32; where the rate all but vanishes, to float32 of what it began with."""
    ours, theirs = PAIRS[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    schedule = theirs(optimizer)
    for epoch in range(EPOCHS):
        expected = optimizer.param_groups[0]["lr"]
        np.testing.assert_allclose(ours(lr, epoch), expected, rtol=2**-23, atol=lr * 2**-24)
        optimizer.step()
        schedule.step()
