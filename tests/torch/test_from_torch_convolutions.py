"""from_torch: convolutions and what they were made with; weights there and back."""

import numpy as np
import pytest
import torch
from torch import nn as tnn

import pyqfw as q
from pyqfw import nn

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'.*:UserWarning")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


MADE = {
    "Conv1d": (lambda: tnn.Conv1d(3, 4, 3), (3, 7)),
    "Conv1d, everything": (
        lambda: tnn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False),
        (4, 9),
    ),
    "Conv1d, same": (lambda: tnn.Conv1d(3, 4, 4, padding="same", dilation=2), (3, 7)),
    "Conv1d, valid": (lambda: tnn.Conv1d(3, 4, 3, padding="valid"), (3, 7)),
    "Conv2d": (lambda: tnn.Conv2d(3, 4, 3), (3, 5, 6)),
    "Conv2d, everything": (
        lambda: tnn.Conv2d(
            *(4, 8, (3, 2)), stride=(2, 1), padding=(1, 2), dilation=(1, 3), groups=4
        ),
        (4, 7, 6),
    ),
    "Conv2d, same": (lambda: tnn.Conv2d(2, 3, (2, 4), padding="same"), (2, 4, 5)),
    "ConvTranspose1d": (lambda: tnn.ConvTranspose1d(3, 4, 3), (3, 5)),
    "ConvTranspose1d, everything": (
        lambda: tnn.ConvTranspose1d(
            *(4, 6, 3), stride=3, padding=1, output_padding=2, groups=2, bias=False, dilation=2
        ),
        (4, 5),
    ),
    "ConvTranspose2d": (lambda: tnn.ConvTranspose2d(3, 4, 2), (3, 3, 4)),
    "ConvTranspose2d, everything": (
        lambda: tnn.ConvTranspose2d(
            *(4, 6, (2, 3)), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2
        ),
        (4, 3, 2),
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_layer_as_it_was_made(name):
    make, shape = MADE[name]
    module = tnn.Sequential(make())
    net = q.from_torch(module, input_shape=shape)
    x = np.random.default_rng(0).normal(size=(5, *shape)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-5, atol=1e-6)
    for key, t in module.state_dict().items():
        assert net.state_dict()[key].tobytes() == t.numpy().tobytes()
    ours, theirs = net.plan.nodes[0].layer, module[0]
    for argument in ("kernel_size", "stride", "dilation", "groups", "padding"):
        assert getattr(ours, argument) == getattr(theirs, argument)


@pytest.mark.parametrize("name", MADE)
def test_weights_go_back(name):
    """What was trained here is what torch then has, in its own order."""
    make, shape = MADE[name]
    module = tnn.Sequential(make())
    given = {"loss": nn.MSELoss(), "optimizer": q.optim.SGD(0.05), "batch": 4}
    net = q.from_torch(module, input_shape=shape, policy=q.Policy.int8(), **given)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, *shape)).astype(np.float32)
    for _ in range(3):
        net.step(x, rng.normal(size=(4, *net.plan.nodes[-1].out_shape)))
    module.load_state_dict({n: torch.from_numpy(w) for n, w in net.state_dict().items()})
    twin = net.recompile(policy=q.Policy.float32())
    with torch.no_grad():
        expected = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(twin.predict(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_other_paddings_are_refused_by_name(mode):
    module = tnn.Sequential(tnn.ReLU(), tnn.Conv1d(3, 4, 3, padding=1, padding_mode=mode))
    with pytest.raises(q.QfwError, match=r"from_torch: layer '1'.*padding_mode must be 'zeros'"):
        q.from_torch(module, input_shape=(3, 7))


def test_a_small_network():
    module = tnn.Sequential(
        tnn.Conv2d(1, 4, 3, padding=1),
        tnn.ReLU(),
        tnn.Conv2d(4, 4, 3, stride=2, groups=4),
        tnn.Conv2d(4, 8, 1),
        tnn.ReLU(),
        tnn.ConvTranspose2d(8, 2, 2, stride=2),
        tnn.Flatten(),
        tnn.Linear(72, 10),
    )
    net = q.from_torch(module, input_shape=(1, 8, 8))
    x = np.random.default_rng(0).normal(size=(5, 1, 8, 8)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-5, atol=1e-5)
    assert list(net.state_dict()) == list(module.state_dict())
    for name, t in module.state_dict().items():
        assert net.state_dict()[name].tobytes() == t.numpy().tobytes()


@pytest.mark.parametrize("kind", ["Conv3d", "ConvTranspose3d", "LazyConv1d"])
def test_layers_that_there_are_not(kind):
    given = (4, 3) if kind.startswith("Lazy") else (3, 4, 3)
    module = tnn.Sequential(getattr(tnn, kind)(*given))
    with pytest.raises(q.QfwError, match=rf"layer '0' is a torch.nn.*\.{kind}; known are"):
        q.from_torch(module, input_shape=(3, 4, 5, 6))
