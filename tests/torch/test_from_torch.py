"""from_torch: PyTorch's modules as ours; weights there and back."""

import collections
import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn as tnn

import pyqfw as q
from pyqfw import interop, nn


@pytest.fixture(autouse=True)
def seeded():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def outputs(module, x):
    with torch.no_grad():
        return module.eval()(torch.from_numpy(x)).numpy()


def rows(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def nested():
    body = tnn.Sequential(tnn.Linear(12, 8), tnn.Identity(), tnn.ReLU(inplace=True))
    parts = {"flat": tnn.Flatten(), "body": body, "head": tnn.Linear(8, 3, bias=False)}
    return tnn.Sequential(collections.OrderedDict(parts))


# --- modules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_a_nested_module_with_names(training):
    module = nested().train(training)
    net = q.from_torch(module, input_shape=(3, 4))
    x = rows(7, 3, 4)
    np.testing.assert_allclose(net.predict(x), outputs(module, x), rtol=1e-5, atol=1e-6)
    assert [n.path for n in net.plan.nodes] == ["flat", "body.0", "body.2", "head"]
    assert list(net.state_dict()) == list(module.state_dict())
    for name, t in module.state_dict().items():
        assert net.state_dict()[name].tobytes() == t.numpy().tobytes()
    assert net.plan.request.loss is None


def test_compiles_arguments():
    module = nested()
    given = {
        "loss": nn.CrossEntropyLoss(),
        "optimizer": q.optim.SGD(0.1, momentum=0.9),
        "policy": q.Policy.int8(),
        "batch": 5,
        "seed": 3,
    }
    net = q.from_torch(module, input_shape=(3, 4), **given)
    request = net.plan.request
    assert {name: getattr(request, name) for name in given} == given
    assert net.step(rows(5, 3, 4), np.arange(5) % 3) > 0
    for name, t in module.state_dict().items():
        stored = q.quantize(t.numpy(), q.Policy.int8().weights, rounding="half_away")
        fresh = q.from_torch(module, input_shape=(3, 4), **given)
        assert name.endswith("bias") or fresh.tensor(name).data == stored.data


def test_the_floats_of_torch_go_to_a_twin():
    """Nothing has moved them: a policy that comes later encodes what torch had."""
    module = nested()
    net = q.from_torch(module, input_shape=(3, 4), policy=q.Policy.int8())
    twin = net.recompile(policy=q.Policy.float32())
    for name, t in module.state_dict().items():
        assert twin.state_dict()[name].tobytes() == t.numpy().tobytes()


def test_frozen_layers_stay_frozen():
    module = nested()
    module.body[0].requires_grad_(False)
    net = q.from_torch(
        module, input_shape=(3, 4), loss=nn.CrossEntropyLoss(), optimizer=q.optim.SGD(0.1), batch=4
    )
    net.step(rows(4, 3, 4), np.arange(4) % 3)
    for name, t in module.state_dict().items():
        same = net.state_dict()[name].tobytes() == t.numpy().tobytes()
        assert same == name.startswith("body.0")
    module.body[0].weight.requires_grad_(True)
    with pytest.raises(q.QfwError, match=r"layer 'body\.0', Linear: some of its parameters"):
        q.from_torch(module, input_shape=(3, 4))


def test_a_layer_without_parameters_may_stand_twice():
    act = tnn.ReLU()
    module = tnn.Sequential(tnn.Linear(4, 5), act, tnn.Linear(5, 5), act)
    x = rows(3, 4)
    net = q.from_torch(module, input_shape=4)
    np.testing.assert_allclose(net.predict(x), outputs(module, x), rtol=1e-5, atol=1e-6)
    assert len(net.plan.nodes) == 4


def test_a_subclass_that_is_a_sequential():
    class Block(tnn.Sequential):
        def __init__(self, a, b):
            super().__init__(tnn.Linear(a, b), tnn.ReLU())

    module = tnn.Sequential(Block(4, 5), tnn.Sequential(tnn.Identity()), Block(5, 2))
    x = rows(3, 4)
    net = q.from_torch(module, input_shape=4)
    np.testing.assert_allclose(net.predict(x), outputs(module, x), rtol=1e-5, atol=1e-6)
    assert list(net.state_dict()) == list(module.state_dict())


KNOWN = {
    "Linear": (lambda: tnn.Linear(6, 4), (6,)),
    "Conv1d": (lambda: tnn.Conv1d(3, 4, 3, padding=1), (3, 6)),
    "Conv2d": (lambda: tnn.Conv2d(3, 4, (1, 3), groups=1), (3, 2, 6)),
    "ConvTranspose1d": (lambda: tnn.ConvTranspose1d(3, 4, 3, stride=2), (3, 6)),
    "ConvTranspose2d": (lambda: tnn.ConvTranspose2d(3, 4, 2, padding=1), (3, 2, 6)),
    "Linear without bias": (lambda: tnn.Linear(6, 4, bias=False), (6,)),
    "ReLU": (lambda: tnn.ReLU(), (6,)),
    "Flatten": (lambda: tnn.Flatten(1, 2), (2, 3, 6)),
    "Dropout": (lambda: tnn.Dropout(0.3), (6,)),
    "LeakyReLU": (lambda: tnn.LeakyReLU(0.2), (6,)),
    "ReLU6": (lambda: tnn.ReLU6(), (6,)),
    "Sigmoid": (lambda: tnn.Sigmoid(), (6,)),
    "Tanh": (lambda: tnn.Tanh(), (2, 6)),
    "Softmax": (lambda: tnn.Softmax(dim=-1), (6,)),
    "LayerNorm": (lambda: tnn.LayerNorm(6, eps=1e-3), (6,)),
    "LayerNorm over two axes": (lambda: tnn.LayerNorm((3, 6)), (3, 6)),
    "LayerNorm without bias": (lambda: tnn.LayerNorm(6, bias=False), (6,)),
    "LayerNorm without affine": (lambda: tnn.LayerNorm(6, elementwise_affine=False), (6,)),
    "MaxPool1d": (lambda: tnn.MaxPool1d(3, 2, 1, ceil_mode=True), (3, 6)),
    "MaxPool2d": (lambda: tnn.MaxPool2d((2, 1), dilation=(1, 2)), (3, 4, 6)),
    "AvgPool1d": (lambda: tnn.AvgPool1d(3, 2, 1, count_include_pad=False), (3, 6)),
    "AvgPool2d": (lambda: tnn.AvgPool2d(2, 1, ceil_mode=True, divisor_override=3), (3, 4, 6)),
    "AdaptiveAvgPool1d": (lambda: tnn.AdaptiveAvgPool1d(4), (3, 6)),
    "AdaptiveAvgPool2d": (lambda: tnn.AdaptiveAvgPool2d((None, 2)), (3, 4, 6)),
    "BatchNorm1d": (lambda: tnn.BatchNorm1d(6, 1e-3, None), (6,)),
    "BatchNorm1d over positions": (lambda: tnn.BatchNorm1d(4, momentum=0.3), (4, 6)),
    "BatchNorm2d without affine": (lambda: tnn.BatchNorm2d(4, affine=False), (4, 2, 6)),
    "GroupNorm": (lambda: tnn.GroupNorm(2, 4, 1e-3), (4, 6)),
    "GroupNorm without affine": (lambda: tnn.GroupNorm(3, 6, affine=False), (6,)),
}


def test_every_known_layer_is_tried():
    assert {name.split()[0] for name in KNOWN} == set(interop._LAYERS)


@pytest.mark.parametrize("case", KNOWN)
def test_each_layer(case):
    """Behind a Linear, with weights that are not the initial ones."""
    make, shape = KNOWN[case]
    module = tnn.Sequential(tnn.Linear(shape[-1], shape[-1]), make())
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape))
    net, x = q.from_torch(module, input_shape=shape), rows(5, *shape)
    np.testing.assert_allclose(net.predict(x), outputs(module, x), rtol=1e-4, atol=1e-5)
    assert list(net.state_dict()) == list(module.state_dict())


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Recorder(nn.Module):
    """Takes any argument of a layer that is looked up by its name."""

    given: dict

    def out_shape(self, in_shape, path=""):
        return in_shape


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (tnn.Dropout(0.25), {"p": 0.25}),
        (tnn.Softmax(dim=1), {"dim": 1}),
        (tnn.ReLU6(), {"inplace": False}),
        (tnn.ReLU6(inplace=True), {"inplace": True}),
        (tnn.Sigmoid(), {}),
        (tnn.Tanh(), {}),
        (tnn.LeakyReLU(0.3), {"negative_slope": 0.3}),
        (tnn.Linear(3, 2), {"in_features": 3, "out_features": 2, "bias": True}),
        (tnn.Linear(3, 2, bias=False), {"in_features": 3, "out_features": 2, "bias": False}),
        (
            tnn.LayerNorm((2, 3), 1e-3),
            {"normalized_shape": (2, 3), "eps": 1e-3, "elementwise_affine": True, "bias": True},
        ),
        (
            tnn.LayerNorm(3, bias=False),
            {"normalized_shape": (3,), "eps": 1e-5, "elementwise_affine": True, "bias": False},
        ),
        (
            tnn.LayerNorm(3, elementwise_affine=False),
            {"normalized_shape": (3,), "eps": 1e-5, "elementwise_affine": False, "bias": True},
        ),
        (
            tnn.BatchNorm2d(3, 1e-3, None, False),
            {
                **{"num_features": 3, "eps": 1e-3, "momentum": None, "affine": False},
                **{"track_running_stats": True, "bias": True},
            },
        ),
        (
            tnn.GroupNorm(2, 4),
            {"num_groups": 2, "num_channels": 4, "eps": 1e-5, "affine": True, "bias": True},
        ),
    ],
    ids=repr,
)
def test_arguments(layer, expected, monkeypatch):
    monkeypatch.setattr(nn, type(layer).__name__, lambda **g: Recorder(g), raising=False)
    made = interop._layer(layer, "0", torch)
    assert made.given == expected
    assert type(made.given.get("normalized_shape", ())) is tuple


# --- what is refused ------------------------------------------------------------------------------


class Mine(tnn.Module):
    def forward(self, x):
        return x


class Changed(tnn.Sequential):
    def forward(self, x):
        return super().forward(x) + 1


class OurLinear(tnn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    layer = tnn.Linear(4, 4)
    layer.register_forward_hook(lambda module, given, out: out + 1)
    return layer


def tied():
    first, second = tnn.Linear(4, 4), tnn.Linear(4, 4)
    second.weight = first.weight
    return tnn.Sequential(first, second)


def twice():
    layer = tnn.Linear(4, 4)
    return tnn.Sequential(layer, tnn.ReLU(), layer)


def weighted():
    layer = tnn.utils.parametrizations.weight_norm(tnn.Linear(4, 4))
    return tnn.Sequential(layer)


KNOWN_HERE = r"known are .*Flatten.*Linear.*ReLU.*Identity and Sequential"
REFUSED = {
    "an unknown layer": (
        lambda: tnn.Sequential(tnn.Sequential(collections.OrderedDict(odd=tnn.Conv3d(4, 4, 1)))),
        rf"layer '0\.odd' is a torch\.nn\.modules\.conv\.Conv3d; {KNOWN_HERE}",
    ),
    "a layer of one's own": (
        lambda: tnn.Sequential(Mine()),
        rf"layer '0' is a .*Mine; {KNOWN_HERE}",
    ),
    "a layer that was changed": (
        lambda: tnn.Sequential(OurLinear(4, 4)),
        r"layer '0' is a .*OurLinear",
    ),
    "a chain that was changed": (lambda: tnn.Sequential(Changed(tnn.ReLU())), "'0' is a .*Changed"),
    "weights that are computed": (weighted, "layer '0' is a .*ParametrizedLinear"),
    "hooks": (lambda: tnn.Sequential(hooked()), "layer '0', Linear, has hooks"),
    "one weight twice": (tied, r"'0\.weight' and '1\.weight' are one parameter"),
    "one layer twice": (twice, r"'0\.weight' and '2\.weight' are one parameter"),
    "one layer": (lambda: tnn.Linear(4, 4), r"not Linear, .*torch\.nn\.Sequential\(layer\)"),
    "a changed Sequential": (lambda: Changed(tnn.ReLU()), "not Changed, whose forward is code"),
    "our own": (lambda: nn.Sequential(nn.ReLU()), "takes a torch.nn.Sequential, not Sequential"),
    "nothing": (lambda: None, "not NoneType"),
    "an empty one": (lambda: tnn.Sequential(tnn.Identity()), "empty model"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_what_is_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(q.QfwError, match=message):
        q.from_torch(make(), input_shape=4)


def test_a_layer_that_is_known_here_but_not_yet_ours(monkeypatch):
    monkeypatch.delattr(nn, "Softmax", raising=False)
    with pytest.raises(q.QfwError, match=r"layer '0' is a .*Softmax; known are (?!.*Softmax)"):
        q.from_torch(tnn.Sequential(tnn.Softmax(1)), input_shape=4)


def test_weights_that_are_not_there():
    module = tnn.Sequential(tnn.Linear(3, 2, device="meta"))
    with pytest.raises(q.DTypeError, match=r"state_dict\['0\.weight'\]"):
        q.from_torch(module, input_shape=3)


def test_the_package_does_not_import_torch():
    code = """
import sys
import pyqfw as q
try:
    q.from_torch(3, input_shape=1)
except q.QfwError as e:
    print(e)
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout == "from_torch takes a torch.nn.Sequential, not int\n"


# --- state_dict -----------------------------------------------------------------------------------


def session(policy=None):
    layers = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    return q.Session(q.compile(layers, input_shape=5, policy=policy))


def theirs(**options):
    return tnn.Sequential(tnn.Linear(5, 4, **options), tnn.ReLU(), tnn.Linear(4, 3, **options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_state_dicts_of_torch(dtype):
    module, net = theirs(dtype=dtype), session()
    found = module.state_dict()
    assert hasattr(found, "_metadata")
    net.load_state_dict(found)
    for name, t in found.items():
        expected = t.to(torch.float64).numpy().astype(np.float32)
        assert net.state_dict()[name].tobytes() == expected.tobytes()


def test_parameters_that_require_a_gradient_and_views():
    module, net = theirs(), session()
    given = dict(module.named_parameters())
    assert given["0.weight"].requires_grad
    net.load_state_dict(given)
    for name, t in module.state_dict().items():
        assert net.state_dict()[name].tobytes() == t.numpy().tobytes()
    turned = {
        name: t.flip(0).T.contiguous().T for name, t in module.state_dict().items() if t.ndim == 2
    }
    assert not turned["0.weight"].is_contiguous()
    net.load_state_dict({**module.state_dict(), **turned})
    for name, t in turned.items():
        assert net.state_dict()[name].tobytes() == t.contiguous().numpy().tobytes()
    strided = torch.randn(8, 10)[::2, ::2].requires_grad_()
    net.load_state_dict({"0.weight": strided}, strict=False)
    np.testing.assert_array_equal(net.state_dict()["0.weight"], strided.detach().numpy())


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (torch.zeros(4, 5, dtype=torch.complex64), q.DTypeError, "must hold real numbers"),
        (torch.zeros(5, 4), q.ShapeError, r"must have the shape \(4, 5\), not \(5, 4\)"),
        (torch.full((4, 5), torch.nan, dtype=torch.bfloat16), q.NonFiniteError, r"\[0, 0\] is nan"),
        (torch.full((4, 5), 1e300, dtype=torch.float64), q.NonFiniteError, "is 1e"),
        (torch.zeros(4, 5).to_sparse(), q.DTypeError, "must be an array of numbers"),
    ],
)
def test_tensors_that_cannot_be_loaded(value, kind, message):
    net = session()
    before = net.state_dict()
    with pytest.raises(kind, match=r"state_dict\['0\.weight'\]" + ".*" + message):
        net.load_state_dict({"0.weight": value}, strict=False)
    assert all(net.state_dict()[name].tobytes() == w.tobytes() for name, w in before.items())


@pytest.mark.parametrize("policy", [None, q.Policy.full_sym(), q.Policy.int8()], ids=repr)
def test_our_state_dict_goes_into_torch(policy):
    net, module = session(policy), theirs()
    module.load_state_dict({name: torch.from_numpy(w) for name, w in net.state_dict().items()})
    for name, t in module.state_dict().items():
        assert t.numpy().tobytes() == net.state_dict()[name].tobytes()
    with torch.no_grad():  # theirs to write to
        module[0].weight += 1


def test_rows_and_labels_may_be_tensors():
    net = session().recompile(loss=nn.CrossEntropyLoss(), optimizer=q.optim.SGD(0.1), batch=6)
    x, y = torch.randn(6, 5), torch.arange(6) % 3
    twin = net.recompile()
    assert net.step(x.requires_grad_(), y) == twin.step(x.detach().numpy(), y.numpy())
    half = x.detach().to(torch.bfloat16)
    assert net.predict(half).tobytes() == net.predict(half.float().numpy()).tobytes()
