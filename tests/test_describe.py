"""Descriptions: what goes into JSON comes back, and nothing else is made."""

import dataclasses
import enum
import json

import numpy as np
import pytest
from every_format import EVERY
from hypothesis import given
from hypothesis import strategies as st
from session_helpers import POLICIES

import pyqfw as q
from pyqfw import nn, optim
from pyqfw.describe import from_json, to_json
from pyqfw.plan import Request


def there_and_back(value):
    """Through text, as in a file; the description of what comes back is the same text."""
    text = json.dumps(to_json(value, "it"), allow_nan=False)
    found = from_json(json.loads(text), "it")
    assert json.dumps(to_json(found, "it")) == text
    return found


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**70), 2**70),
            st.floats(allow_nan=False),
            st.text(),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(st.one_of(st.text(), st.integers(0, 9)), inner, max_size=4),
        ),
        max_leaves=12,
    )
)
def test_plain_values(value):
    found = there_and_back(value)
    assert repr(found) == repr(value)  # types, order, -0.0


@pytest.mark.parametrize(
    "value",
    [np.float32(0.1), np.float64(0.1), np.int64(-3), np.uint8(200), np.bool_(True), np.str_("a")],
    ids=repr,
)
def test_numpys_scalars_become_pythons(value):
    found = there_and_back((value,))[0]
    assert found == value
    assert type(found) in (float, int, bool, str)


def test_not_a_number():
    assert np.isnan(there_and_back(float("nan")))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays(dtype, shape):
    values = (np.random.default_rng(0).normal(size=shape) * 3).astype("int8")
    array = np.asarray(values, dtype)
    found = there_and_back(array)
    assert (found.dtype, found.shape, found.tobytes()) == (dtype, shape, array.tobytes())


def test_arrays_keep_every_bit():
    bits = np.array([0x3DCCCCCD, 0x80000000, 1, 0x7F7FFFFF, 0xFF800000], np.uint32)
    assert there_and_back(bits.view(np.float32)).view(np.uint32).tolist() == bits.tolist()


def test_formats():
    """Every 7th of all formats: each value of each field."""
    for fmt in EVERY[::7]:
        found = there_and_back(fmt)
        assert found == fmt
        assert repr(found) == repr(fmt)  # as it is spelt, too


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name):
    assert there_and_back(POLICIES[name]) == POLICIES[name]


@pytest.mark.parametrize(
    "sgd", [optim.SGD(), optim.SGD(np.float32(0.1), 0.9, nesterov=True, rounding="half_even")]
)
def test_optimizers(sgd):
    assert there_and_back(sgd) == sgd


def test_a_loss():
    assert there_and_back(nn.CrossEntropyLoss()) == nn.CrossEntropyLoss()


def big_model():
    inner = nn.Sequential(
        nn.Linear(6, 5, policy={"weights": q.Sym(4, axis=0), "grads": "fused"}, output=q.RAW),
        nn.ReLU(inplace=True),
        nn.Quant(q.Asym(7, range=3.5)),
    )
    return nn.Sequential(
        {
            "flat": nn.Flatten(1, -1),
            "body": nn.Sequential({"a b": nn.Linear(np.int64(12), 6, bias=False), "ü": inner}),
            "empty": nn.Sequential(),
            'na"me\\': nn.Linear(5, 4, policy=q.Policy.full_sym()).requires_grad_(False),
        }
    )


def test_a_model_with_everything():
    model = big_model()
    found = there_and_back(model)
    assert repr(found) == repr(model)
    pairs = zip(nn.named_layers(model), nn.named_layers(found), strict=True)
    for (path, layer), (path_found, layer_found) in pairs:
        assert (path, type(layer)) == (path_found, type(layer_found))
        assert layer.requires_grad == layer_found.requires_grad == (path != 'na"me\\')
        for f in dataclasses.fields(layer):
            assert repr(getattr(layer, f.name)) == repr(getattr(layer_found, f.name))
    assert found.body[1][0].output is q.RAW


def test_a_request_lacks_what_came_later_and_has_nothing_unknown():
    request = Request(big_model(), (3, 4), None, None, q.Policy.int8(), 2, 3, ("body",))
    assert there_and_back(request).train == ("body",)
    told = to_json(request, "it")
    del told["fields"]["train"]  # a file of before there was such a field
    assert from_json(told, "it").train is None
    told["fields"]["invented"] = 1
    with pytest.raises(q.QfwError, match="it: Request has no 'invented'"):
        from_json(told, "it")


# --- what is refused ------------------------------------------------------------------------------


class Mine(nn.ReLU):
    """A user's layer: its class is code."""


class Rows(nn.Sequential):
    """The same."""


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        Mine(),
        Rows(nn.ReLU()),
        Colour.RED,
        ValueError(),
        print,
        nn.Linear,
        {1, 2},
        b"bytes",
        1j,
        nn.Parameter("weight", (1,), 1),
        np.array(["a"]),
        np.array([1j]),
    ],
    ids=repr,
)
def test_what_cannot_be_written(value):
    model = nn.Sequential({"good": nn.ReLU(), "bad": value}) if isinstance(value, Mine) else value
    where = r"model\.bad: .*no code: Mine" if isinstance(value, Mine) else "model: "
    with pytest.raises(q.QfwError, match=where):
        to_json(model, "model")


RELU = {"type": "nn.ReLU", "fields": {}}
HOSTILE = {
    "an unknown class": {"type": "nn.Reactor", "fields": {}},
    "an unknown room": {"type": "os.system", "fields": {}},
    "a path": {"type": "nn.arrays.integer", "fields": {}},
    "a function": {"type": "nn.named_layers", "fields": {}},
    "a module": {"type": "nn.arrays", "fields": {}},
    "a private class": {"type": "formats._Stored", "fields": {"bits": 3}},
    "a class of another package": {"type": "nn.ABC", "fields": {}},
    "a class that is no description": {"type": "nn.QfwError", "fields": {}},
    "an abstract class": {"type": "nn.Module", "fields": {}},
    "a dunder": {"type": "nn.__class__", "fields": {}},
    "an unknown field": {"type": "nn.ReLU", "fields": {"_frozen": True}},
    "too few fields": {"type": "nn.Linear", "fields": {"in_features": 3}},
    "a wrong value": {"type": "formats.Sym", "fields": {"bits": 99}},
    "a wrong type": {"type": "nn.Linear", "fields": {"in_features": "3", "out_features": 2}},
    "more keys": {**RELU, "code": "print()"},
    "no fields": {"type": "nn.ReLU"},
    "a frozen optimizer": {"type": "optim.SGD", "fields": {}, "requires_grad": False},
    "frozen or not": {**RELU, "requires_grad": 1},
    "a member that is none": {"type": "nn.Raw", "name": "COOKED"},
    "a member by its value": {"type": "nn.Raw", "fields": {"value": "RAW"}},
    "a chain by its fields": {"type": "nn.Sequential", "fields": {}},
    "a chain of text": {"type": "nn.Sequential", "layers": ["ab"]},
    "a chain of numbers": {"type": "nn.Sequential", "layers": [["0", 3]]},
    "a name with a dot": {"type": "nn.Sequential", "layers": [["0.1", RELU]]},
    "an untyped object": {"fields": {}},
    "a type that is no text": {"type": 3},
    "a strange type": {"type": "set", "items": []},
    "pairs that are none": {"type": "dict", "items": [[1, 2, 3]]},
    "a key that cannot be one": {"type": "dict", "items": [[{"type": "list", "items": []}, 1]]},
    "a strange float": {"type": "float", "value": "1"},
    "objects in an array": {"type": "array", "dtype": "O", "shape": [1], "items": [1]},
    "an array of another size": {"type": "array", "dtype": "int8", "shape": [3], "items": [1]},
    "an array of negative size": {"type": "array", "dtype": "int8", "shape": [-1], "items": [1]},
    "an array of what is too large": {
        "type": "array",
        "dtype": "int8",
        "shape": [1],
        "items": [999],
    },
    "an array of text": {"type": "array", "dtype": "float32", "shape": [1], "items": ["1"]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_not_made(case):
    """Errors of these kinds are what a loader turns into its own."""
    with pytest.raises((ValueError, TypeError, OverflowError), match=r"."):
        from_json(HOSTILE[case], "it")


def test_a_description_deeper_than_the_stack():
    deep = RELU
    for _ in range(5000):
        deep = {"type": "nn.Sequential", "layers": [["0", deep]]}
    with pytest.raises(RecursionError):
        from_json(deep, "it")
