"""Convolutions in float32 are PyTorch's, by the numbers that it gave once (torch_vectors.py)."""

import json
from pathlib import Path

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn

NEAR = 1e-6  # norm-wise, per tensor
VECTORS = json.loads((Path(__file__).parent / "vectors" / "convolutions.json").read_text())


def told(vector):
    """A readable name."""
    options = ", ".join(f"{k}={v}" for k, v in vector["options"].items())
    return f"{vector['kind']}({vector['sizes']}, {options})"


def arrays(vector):
    pairs = {k: v for k, v in vector.items() if isinstance(v, list) and k != "sizes"}
    return {k: np.array(v, np.float32).reshape(shape) for k, (shape, v) in pairs.items()}


def tuples(value):
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("vector", VECTORS, ids=told)
def test_output_loss_and_gradients(vector):
    numbers = arrays(vector)
    shape = numbers["x"].shape[1:]
    first = (nn.Conv1d if len(shape) == 2 else nn.Conv2d)(shape[0], shape[0], 1, bias=False)
    options = {name: tuples(value) for name, value in vector["options"].items()}
    layer = getattr(nn, vector["kind"])(*map(tuples, vector["sizes"]), **options)
    given = {"input_shape": shape, "loss": nn.MSELoss(), "batch": 2}
    net = q.Session(q.compile(nn.Sequential(first, layer), **given))
    values = {k.removeprefix("value "): v for k, v in numbers.items() if k.startswith("value")}
    net.load_state_dict(values)
    near(net.forward(numbers["x"]), numbers["output"])
    near(net.backward(numbers["y"]), vector["loss"])
    for name in values:
        near(net.grad(name).numpy(), numbers[f"gradient {name}"])


def near(ours, theirs):
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape
    assert np.linalg.norm(a - b) <= NEAR * np.linalg.norm(b)
