"""Gradients of whole networks against differences of their losses, along random directions.

The loss in float32 has a noise of about 1e-7, so that with steps of 5e-4 an element a central
difference is off by some 5e-5; a ReLU that changes sides within the step adds up to a few percent.
"""

import numpy as np
import pytest
from blocks import BLOCKS

import pyqfw as q
from pyqfw import nn

STEP, DIRECTIONS, NEAR, NOISE = 5e-4, 6, 5e-2, 5e-5


@pytest.mark.parametrize("name", BLOCKS)
def test_directional_derivatives(name):
    """Of each parameter by itself: the mean over directions of how far they are, by the norm."""
    make, shape = BLOCKS[name]
    numbers = name == "autoencoder"
    loss = nn.MSELoss() if numbers else nn.CrossEntropyLoss()
    plan = q.compile(make(nn, nn.Concat), input_shape=shape, loss=loss, batch=8, seed=1)
    net, rng = q.Session(plan), np.random.default_rng(4)
    x = rng.normal(size=(8, *shape)).astype(np.float32)
    y = rng.normal(size=(8, *plan.nodes[-1].out_shape)) if numbers else rng.integers(0, 4, 8)
    net.forward(x)
    net.backward(y)
    values = net.state_dict()
    found = {key: net.grad(key).numpy().astype(np.float64) for key in values}

    def measured(key, change):
        net.load_state_dict({key: values[key] + change}, strict=False)
        net.forward(x)
        return float(net.backward(y))

    for key, gradient in found.items():
        off = []
        for _ in range(DIRECTIONS):
            d = rng.normal(size=gradient.shape)
            d *= STEP * np.sqrt(d.size) / np.linalg.norm(d)
            slope = (measured(key, d) - measured(key, -d)) / 2
            off.append(abs(slope - (gradient * d).sum()) / np.linalg.norm(d))
        net.load_state_dict({key: values[key]}, strict=False)
        assert np.mean(off) <= NEAR * np.linalg.norm(gradient) + NOISE, key
