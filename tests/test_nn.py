"""Layers: arguments, printing, shapes, parameters, paths, and what is refused."""

import copy
import pickle
from collections import OrderedDict
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from pyqfw import nn
from pyqfw.errors import QfwError, ShapeError
from pyqfw.formats import Asym, Float32, Sym, SymInt32
from pyqfw.nn import RAW
from pyqfw.policy import Policy


def small():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(12, 8),
        nn.Sequential(nn.ReLU(), nn.Quant(), nn.Linear(8, 4, bias=False)),
        nn.ReLU(),
    )


LAYERS = [nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Quant(), small()]


def refusal(make, error=QfwError):
    with pytest.raises(error) as info:
        make()
    return str(info.value)


# --- printing ----------------------------------------------------------------------------

OWN = {"weights": Sym(4, axis=0)}


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Linear(3, 4), "Linear(in_features=3, out_features=4, bias=True)"),
        (nn.Linear(3, 4, False), "Linear(in_features=3, out_features=4, bias=False)"),
        (
            nn.Linear(3, 4, policy=OWN, output=RAW),
            "Linear(in_features=3, out_features=4, bias=True, "
            "policy={'weights': Sym(4, axis=0)}, output=RAW)",
        ),
        (
            nn.Linear(3, 4, policy=Policy.int8()),
            "Linear(in_features=3, out_features=4, bias=True, policy=Policy.int8())",
        ),
        (nn.ReLU(), "ReLU()"),
        (nn.ReLU(True), "ReLU(inplace=True)"),
        (nn.Flatten(), "Flatten(start_dim=1, end_dim=-1)"),
        (nn.Flatten(2, 3), "Flatten(start_dim=2, end_dim=3)"),
        (nn.Quant(), "Quant()"),
        (nn.Quant(Sym(4, range="hindsight")), "Quant(Sym(4, range='hindsight'))"),
        (nn.CrossEntropyLoss(), "CrossEntropyLoss()"),
        (nn.Sequential(), "Sequential()"),
        (nn.Sequential(nn.Sequential()), "Sequential(\n  (0): Sequential()\n)"),
        (
            nn.Sequential(nn.Flatten(), nn.Sequential({"fc": nn.Linear(2, 3), "act": nn.ReLU()})),
            "Sequential(\n"
            "  (0): Flatten(start_dim=1, end_dim=-1)\n"
            "  (1): Sequential(\n"
            "    (fc): Linear(in_features=2, out_features=3, bias=True)\n"
            "    (act): ReLU()\n"
            "  )\n"
            ")",
        ),
    ],
)
def test_repr(module, text):
    assert repr(module) == str(module) == text


def test_raw_is_one_object():
    assert repr(RAW) == "RAW"
    assert copy.deepcopy(RAW) is pickle.loads(pickle.dumps(RAW)) is RAW
    assert nn.Linear(1, 1, output=RAW).output is RAW
    assert nn.Linear(1, 1).output is None


# --- descriptions ------------------------------------------------------------------------


def test_layers_compare_by_identity():
    assert nn.ReLU() != nn.ReLU()
    assert len({*LAYERS, *LAYERS}) == len(LAYERS)


def test_losses_compare_by_value():
    assert nn.CrossEntropyLoss() == nn.CrossEntropyLoss(reduction="mean")
    assert hash(nn.CrossEntropyLoss()) == hash(nn.CrossEntropyLoss())


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        *((nn.Linear(3, 4), n) for n in ("in_features", "bias", "policy", "output")),
        *((nn.Linear(3, 4), n) for n in ("requires_grad", "_frozen", "weight")),
        (nn.ReLU(), "inplace"),
        (nn.Flatten(), "start_dim"),
        (nn.Quant(), "fmt"),
        (nn.CrossEntropyLoss(), "reduction"),
        (nn.Sequential(nn.ReLU()), "0"),
        (nn.Sequential(nn.ReLU()), "_children"),
    ],
)
def test_layers_are_read_only(layer, name):
    with pytest.raises(FrozenInstanceError):
        setattr(layer, name, 1)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_layers_are_copied_and_pickled(layer):
    for same in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(same) is type(layer)
        assert repr(same) == repr(layer)
        assert same.parameters() == layer.parameters()


def test_a_layers_policy_is_copied_with_it():
    layer = nn.Linear(2, 2, policy=OWN)
    for same in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert same.policy == layer.policy == OWN


def test_sizes_become_ints():
    layer = nn.Linear(np.int64(3), np.int8(4))
    assert [type(n) for n in (layer.in_features, layer.out_features)] == [int, int]


def test_requires_grad():
    for layer in LAYERS:
        assert layer.requires_grad is True
        assert layer.requires_grad_(False) is layer
        assert layer.requires_grad is False
        assert copy.deepcopy(layer).requires_grad is False
        assert layer.requires_grad_() is layer
        assert layer.requires_grad is True


def test_a_sequential_freezes_what_is_in_it():
    model = small().requires_grad_(False)
    assert not any(layer.requires_grad for _, layer in nn.named_layers(model))
    model[2][2].requires_grad_()
    assert model.requires_grad
    assert [p for p, layer in nn.named_layers(model) if layer.requires_grad] == ["2.2"]


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.0, True, "3", None, (3,)])
def test_sizes_of_a_linear(value):
    for name, args in {"in_features": (value, 3), "out_features": (3, value)}.items():
        message = refusal(lambda args=args: nn.Linear(*args))
        assert message.startswith(f"Linear: {name} must be ")
        assert message.endswith(f"not {value!r}")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"bias": 1}, "Linear: bias must be True or False, not 1"),
        ({"output": "raw"}, "Linear: output must be None or RAW, not 'raw'"),
        ({"output": Sym(8)}, "Linear: output must be None or RAW, not Sym(8)"),
        ({"policy": {"weight": Sym(4)}}, "Linear: policy has no field 'weight' (did you mean"),
        ({"policy": {"weights": SymInt32()}}, "Linear: policy: weights=SymInt32(12): SymInt32 is"),
        ({"policy": {"wires": Sym(8, axis=0)}}, "Linear: policy: wires=Sym(8, axis=0): axis=0 "),
        ({"policy": {"input": Sym(8)}}, "Linear: policy has 'input', which is the network's"),
        ({"policy": "int8"}, "Linear: policy must be a Policy, or a mapping of its fields"),
    ],
)
def test_arguments_of_a_linear(given, text):
    assert refusal(lambda: nn.Linear(3, 4, **given)).startswith(text)


@pytest.mark.parametrize("name", ["start_dim", "end_dim"])
@pytest.mark.parametrize("value", [1.0, "1", None, True, 65])
def test_arguments_of_a_flatten(name, value):
    message = refusal(lambda: nn.Flatten(**{name: value}))
    assert message.startswith(f"Flatten: {name} must be ")


def test_formats_of_a_quant():
    for fmt in (None, Float32(), Sym(4, axis="row"), Asym(8, group=4), Sym(8, range=2.0)):
        assert nn.Quant(fmt).fmt is fmt
    assert refusal(lambda: nn.Quant(Sym(8, axis=1))).startswith("Quant: fmt=Sym(8, axis=1): axis=1")
    message = refusal(lambda: nn.Quant(SymInt32()))
    assert message.startswith("Quant: fmt=SymInt32(12): SymInt32 is a compute format")
    legal = "Float32(), Sym(bits) or Asym(bits)"
    assert message.endswith(f"choose {legal}")
    assert refusal(lambda: nn.Quant(8)) == f"Quant: fmt must be {legal}, not 8"


@pytest.mark.parametrize(
    ("name", "default", "value"),
    [
        ("reduction", "mean", "sum"),
        ("reduction", "mean", "none"),
        ("reduction", "mean", None),
    ],
)
def test_cross_entropy_has_its_defaults_only(name, default, value):
    assert nn.CrossEntropyLoss(**{name: default}) == nn.CrossEntropyLoss()
    assert refusal(lambda: nn.CrossEntropyLoss(**{name: value})) == (
        f"CrossEntropyLoss: {name} must be {default!r}, not {value!r}: others are not supported yet"
    )


def test_cross_entropy_has_its_arguments():
    loss = nn.CrossEntropyLoss(np.array([1, 0, 2]), ignore_index=-1, label_smoothing=0.1)
    assert loss.weight == (1.0, 0.0, 2.0)
    assert (
        repr(loss)
        == "CrossEntropyLoss(weight=(1.0, 0.0, 2.0), ignore_index=-1, label_smoothing=0.1)"
    )
    assert hash(loss) != hash(nn.CrossEntropyLoss())
    for weight in ([-1, 1], [np.nan, 1], [np.inf, 1], [0, 0], [1e39, 1]):
        assert "weight must be finite numbers >= 0" in refusal(
            lambda weight=weight: nn.CrossEntropyLoss(weight)
        )
    for name, value in (("label_smoothing", 1.1), ("label_smoothing", -1), ("ignore_index", 0.5)):
        assert f"CrossEntropyLoss: {name} must be" in refusal(
            lambda name=name, value=value: nn.CrossEntropyLoss(**{name: value})
        )


@pytest.mark.parametrize(
    ("layer", "hint"),
    [
        (nn.CrossEntropyLoss(), "a loss is no layer: give it to compile as loss"),
        (nn.ReLU, "that is a class: write ReLU(...)"),
        ([nn.ReLU()], "write Sequential(*layers)"),
        ((nn.ReLU(),), "write Sequential(*layers)"),
        (None, "such as Linear(4, 2)"),
        (3, "such as Linear(4, 2)"),
    ],
)
def test_what_is_no_layer(layer, hint):
    text = f"must be a layer, not {layer!r}; {hint}"
    assert refusal(lambda: nn.Sequential(layer)) == f"Sequential: layer '0' {text}"
    assert refusal(lambda: nn.Sequential({"a": layer})) == f"Sequential: layer 'a' {text}"
    assert refusal(lambda: nn.named_layers(layer)) == f"model {text}"


def test_names_of_layers():
    for name in ("", "a.b", ".", 0, None):
        message = refusal(lambda name=name: nn.Sequential({name: nn.ReLU()}))
        assert message == f"Sequential: a layer's name must be text without a dot, not {name!r}"
    for name in ("out_shape", "parameters", "requires_grad", "__len__"):
        message = refusal(lambda name=name: nn.Sequential({name: nn.ReLU()}))
        assert message.startswith(f"Sequential: {name!r} is no name for a layer")


def test_the_bases_are_not_layers():
    for base in (nn.Layer, nn.Loss):
        with pytest.raises(TypeError):
            base()


# --- Sequential --------------------------------------------------------------------------


def test_a_sequential_is_a_sequence():
    layers = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4)]
    model = nn.Sequential(*layers)
    assert len(model) == 3
    assert list(model) == layers
    assert [model[i] for i in (0, 1, -1, np.int64(1))] == [layers[i] for i in (0, 1, 2, 1)]
    assert not nn.Sequential()
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"layer {index} of a Sequential with 3"):
            model[index]
    with pytest.raises(TypeError):
        model["0"]


def test_a_slice_keeps_its_names():
    model = small()
    part = model[1:3]
    assert isinstance(part, nn.Sequential)
    assert [name for name, _ in part.named_children()] == ["1", "2"]
    assert list(part) == [model[1], model[2]]


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_layers_by_name(kind):
    fc, act = nn.Linear(2, 3), nn.ReLU()
    model = nn.Sequential(kind([("fc", fc), ("act", act)]))
    assert (model.fc, model.act, model[0]) == (fc, act, fc)
    assert [p for p, _ in nn.named_layers(model)] == ["fc", "act"]
    assert [p.name for p in model.parameters()] == ["fc.weight", "fc.bias"]
    with pytest.raises(AttributeError, match="Sequential has no layer or attribute 'fd'"):
        _ = model.fd
    assert getattr(nn.Sequential(fc), "0") is fc


# --- paths and parameters ----------------------------------------------------------------


def test_paths():
    model = small()
    assert [(path, type(layer).__name__) for path, layer in nn.named_layers(model)] == [
        ("0", "Flatten"),
        ("1", "Linear"),
        ("2.0", "ReLU"),
        ("2.1", "Quant"),
        ("2.2", "Linear"),
        ("3", "ReLU"),
    ]
    assert dict(nn.named_layers(model))["2.2"] is model[2][2]
    assert nn.named_layers(model[1]) == (("0", model[1]),)


def test_an_empty_model():
    for model in (nn.Sequential(), nn.Sequential(nn.Sequential(), nn.Sequential())):
        assert refusal(lambda model=model: nn.named_layers(model)).startswith("empty model: ")
    assert len(nn.named_layers(nn.Sequential(nn.Sequential(), nn.ReLU()))) == 1


@pytest.mark.parametrize("layer", [nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False)])
def test_a_layer_that_keeps_something_used_twice(layer):
    model = nn.Sequential(layer, nn.Quant(), nn.Sequential(layer))
    assert refusal(lambda: nn.named_layers(model)) == (
        f"layers '0' and '2.0' are one object, {layer!r}: make two, shared weights are not "
        "supported yet"
    )
    block = nn.Sequential(layer)
    with pytest.raises(QfwError, match=r"layers '0\.0' and '1\.0' are one object"):
        nn.named_layers(nn.Sequential(block, block))


def test_parameters():
    weight, bias = nn.Parameter("weight", (5, 3), 3), nn.Parameter("bias", (5,), 3)
    assert nn.Linear(3, 5).parameters() == (weight, bias)
    (weight,) = nn.Linear(3, 5, bias=False).parameters()
    assert (weight.name, weight.shape, weight.fan_in) == ("weight", (5, 3), 3)
    for layer in (nn.ReLU(), nn.Flatten(), nn.Quant(), nn.Sequential()):
        assert layer.parameters() == ()
    assert [(p.name, p.shape, p.fan_in) for p in small().parameters()] == [
        ("1.weight", (8, 12), 12),
        ("1.bias", (8,), 12),
        ("2.2.weight", (4, 8), 8),
    ]


# --- shapes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "taken", "given"),
    [
        (nn.Linear(3, 5), (3,), (5,)),
        (nn.Linear(3, 5), (7, 2, 3), (7, 2, 5)),
        (nn.ReLU(), (2, 3), (2, 3)),
        (nn.Quant(), (2, 3), (2, 3)),
        (nn.Flatten(), (2, 3, 4), (24,)),
        (nn.Flatten(), (2,), (2,)),
        (nn.Flatten(2), (2, 3, 4), (2, 12)),
        (nn.Flatten(1, 2), (2, 3, 4), (6, 4)),
        (nn.Flatten(-2), (2, 3, 4), (2, 12)),
        (nn.Flatten(-3, -2), (2, 3, 4), (6, 4)),
        (nn.Flatten(2, 2), (2, 3, 4), (2, 3, 4)),
        (nn.Flatten(0, 0), (2, 3, 4), (2, 3, 4)),
        (nn.Sequential(), (2, 3), (2, 3)),
        (small(), (3, 4), (4,)),
    ],
)
def test_out_shape(layer, taken, given):
    assert layer.out_shape(taken) == layer.out_shape(taken, "0") == given


@pytest.mark.parametrize(
    ("layer", "shape", "remedy"),
    [
        (nn.Linear(3, 5), (4,), "the last axis must have 3 elements, or write in_features=4"),
        (nn.Linear(3, 5), (3, 1), "the last axis must have 3 elements: put Flatten() before it"),
        (nn.Linear(3, 5), (), "the last axis must have 3 elements"),
        (nn.Flatten(), (), "with the batch it has 1 axes: dims must be -1 to 0"),
        (nn.Flatten(3), (2, 3), "with the batch it has 3 axes: dims must be -3 to 2"),
        (nn.Flatten(1, -4), (2, 3), "with the batch it has 3 axes: dims must be -3 to 2"),
        (nn.Flatten(2, 1), (2, 3), "start_dim must not come after end_dim"),
        (nn.Flatten(0), (2, 3), "axis 0 is the batch: start_dim must be 1 or more"),
        (nn.Flatten(-3, 1), (2, 3), "axis 0 is the batch: start_dim must be 1 or more"),
    ],
)
def test_shapes_that_do_not_fit(layer, shape, remedy):
    text = f"{layer!r}: what enters it has the shape {shape} (no batch axis); {remedy}"
    assert refusal(lambda: layer.out_shape(shape, "2.1"), ShapeError) == f"layer '2.1', {text}"
    assert refusal(lambda: layer.out_shape(shape), ShapeError) == text


def test_a_sequential_names_the_layer_that_does_not_fit():
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(6, 5), nn.Linear(4, 2)))
    message = refusal(lambda: model.out_shape((2, 3)), ShapeError)
    assert message.startswith("layer '1.1', Linear(in_features=4, out_features=2, bias=True): ")
    assert "(5,)" in message


def test_the_output_that_cross_entropy_takes():
    loss = nn.CrossEntropyLoss()
    assert loss.target_shape((10,)) == ()
    for shape in ((), (2, 3)):
        with pytest.raises(ShapeError, match=r"it must be \(classes,\): end with a Linear"):
            loss.target_shape(shape)
