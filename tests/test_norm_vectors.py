"""BatchNorm and GroupNorm in float32 beside numbers that PyTorch made: tests/normvectors.py."""

from __future__ import annotations

import json

import numpy as np
import pytest
from normvectors import CASES, FILE, LR, OUTPUTS, ROWS

import pyqfw as q
from pyqfw import nn, optim

VECTORS = json.loads(FILE.read_text())


def near(found, expected, what):
    a, b = (np.asarray(v, np.float64).reshape(-1) for v in (found, expected))
    assert a.shape == b.shape, what
    assert np.linalg.norm(a - b) <= 1e-5 * max(np.linalg.norm(b), 1e-2), what


@pytest.mark.parametrize("case", CASES)
def test_steps_and_inference(case):
    layer, given, shape = CASES[case]
    told, inputs = VECTORS[case], (shape[0] + 2, *shape[1:])
    products = {1: nn.Linear, 2: nn.Conv1d, 3: nn.Conv2d}
    kernel = [] if len(shape) == 1 else [1]
    model = nn.Sequential(
        products[len(shape)](inputs[0], shape[0], *kernel, bias=False),
        *(getattr(nn, layer)(*given), nn.Flatten()),
        nn.Linear(int(np.prod(shape)), OUTPUTS),
    )
    plan = q.compile(
        model,
        input_shape=inputs,
        loss=nn.MSELoss(),
        optimizer=optim.SGD(LR),
        batch=ROWS,
    )
    net = q.Session(plan)
    shapes = {name: v.shape for name, v in net.state_dict().items()}
    begin = {n: np.float32(v).reshape(shapes[n]) for n, v in told["begin"].items()}
    net.load_state_dict(begin, strict=False)
    for i, step in enumerate(told["steps"]):
        x = np.float32(step["x"]).reshape(ROWS, *inputs)
        y = np.float32(step["y"]).reshape(ROWS, OUTPUTS)
        near(net.forward(x), step["output"], f"output {i}")
        near(net.backward(y), step["loss"], f"loss {i}")
        for name, expected in step["gradients"].items():
            near(net.grad(name).numpy(), expected, f"gradient of {name} {i}")
        net.update()
        state = net.state_dict()
        assert list(state) == list(step["state"])
        for name, expected in step["state"].items():
            near(state[name], expected, f"{name} {i}")
    x = np.float32(told["x"]).reshape(ROWS, *inputs)
    near(net.predict(x), told["inference"], "inference")
