"""Policies: the presets field by field, what is legal where, how they print and change."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from pyqfw.errors import QfwError
from pyqfw.formats import BFP, Asym, Float32, Sym, SymInt32
from pyqfw.policy import Override, Policy, layer_policy

NAMES = (
    "input",
    "wires",
    "weights",
    "bias",
    "errors",
    "grads",
    "state",
    "forward",
    "weight_grad",
    "bias_grad",
    "prop",
    "sums",
)
MOVING = ("input", "wires", "errors")
PARAMETERS = ("weights", "bias", "state")
STORED = (*MOVING, *PARAMETERS, "grads")
COMPUTED = ("forward", "weight_grad", "bias_grad", "prop")

F32 = Float32()
S8 = Sym(8, axis=0, rounding="stochastic")
S12 = Sym(12, container=16)
E12 = Sym(12, container=16, rounding="stochastic")
PRESETS = {
    "float32": [F32] * 7 + ["float32"] * 4 + ["stored"],
    "full_sym": [S12, S12, S8, F32, E12, F32, F32] + ["sym"] * 4 + ["stored"],
    "int8": [
        Sym(8),
        Sym(8),
        S8,
        Sym(16, rounding="stochastic"),
        Sym(8, rounding="stochastic"),
        S8,
        S8,
        *["sym"] * 4,
        "stored",
    ],
}


def refusal(field, value):
    """The message with which a policy refuses a field, however it is given."""
    with pytest.raises(QfwError) as direct:
        Policy(**{field: value})
    with pytest.raises(QfwError) as changed:
        Policy.int8().replace(**{field: value})
    assert str(direct.value) == str(changed.value)
    return str(direct.value)


# --- presets -----------------------------------------------------------------------------


def test_the_fields_and_their_order():
    assert tuple(f.name for f in fields(Policy)) == NAMES


@pytest.mark.parametrize("name", PRESETS)
def test_preset_field_by_field(name):
    policy = getattr(Policy, name)()
    for field, value in zip(NAMES, PRESETS[name], strict=True):
        assert getattr(policy, field) == value, field
        assert repr(getattr(policy, field)) == repr(value), field


def test_the_default_is_float32():
    assert Policy() == Policy.float32()


def test_a_policy_is_a_frozen_value():
    policy = Policy.int8()
    assert policy == Policy.int8()
    assert hash(policy) == hash(Policy.int8())
    assert len({Policy.float32(), Policy.full_sym(), policy, Policy.int8()}) == 3
    with pytest.raises(FrozenInstanceError):
        policy.weights = Sym(4)
    with pytest.raises(TypeError):
        Policy(Sym(8))
    for same in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert same == policy


# --- printing ----------------------------------------------------------------------------

PRINTED = [
    (Policy.float32(), "Policy.float32()"),
    (Policy.full_sym(), "Policy.full_sym()"),
    (Policy.int8(), "Policy.int8()"),
    (Policy.int8().replace(grads="fused"), "Policy.int8().replace(grads='fused')"),
    (
        Policy.full_sym().replace(prop="float32", weights=Sym(4, axis=0)),
        "Policy.full_sym().replace(weights=Sym(4, axis=0), prop='float32')",
    ),
    (Policy(wires=Asym(4, group=32)), "Policy.float32().replace(wires=Asym(4, group=32))"),
    (
        Policy(
            input=Asym(3),
            wires=Asym(3),
            weights=Asym(3),
            bias=Asym(3),
            errors=Asym(3),
            grads="fused",
            state=Asym(3),
            prop="sym",
        ),
        "Policy(input=Asym(3), wires=Asym(3), weights=Asym(3), bias=Asym(3), errors=Asym(3), "
        "grads='fused', state=Asym(3), forward='float32', weight_grad='float32', "
        "bias_grad='float32', prop='sym', sums='stored')",
    ),
]


@pytest.mark.parametrize(("policy", "text"), PRINTED)
def test_repr(policy, text):
    assert repr(policy) == text


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("count", range(len(NAMES) + 1))
def test_a_policy_prints_as_the_code_that_makes_it(preset, count):
    other = dict.fromkeys(STORED, BFP(5, 16)) | dict.fromkeys(COMPUTED, "float32")
    other["sums"] = "recomputed"
    for start in range(len(NAMES)):
        names = [(NAMES * 2)[start + i] for i in range(count)]
        policy = getattr(Policy, preset)().replace(**{name: other[name] for name in names})
        assert eval(repr(policy)) == policy


# --- changes -----------------------------------------------------------------------------


@pytest.mark.parametrize("change", [Policy.replace, lambda p, **c: p.override(c)])
def test_changes_touch_nothing_else(change):
    base = Policy.int8()
    for name, value in {"weights": Sym(4, axis=0), "grads": "fused", "forward": "float32"}.items():
        policy = change(base, **{name: value})
        assert getattr(policy, name) == value
        assert all(getattr(policy, n) == getattr(base, n) for n in NAMES if n != name)
    assert change(base) == base == Policy.int8()


def test_override_by_a_policy_or_by_nothing():
    base = Policy.int8()
    assert base.override(None) is base
    assert base.override(Policy.float32()) == Policy.float32()
    assert base.override(Override({"bias": F32})) == base.replace(bias=F32)


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("weight", "weights"),
        ("wire", "wires"),
        ("gradients", "grads"),
        ("colour", None),
        ("error", "errors"),
    ],
)
def test_unknown_fields_are_refused(name, close):
    change = {name: Sym(8)}
    hint = f" (did you mean {close!r}?)" if close else ""
    for owner, legal, make in (
        ("Policy", NAMES, lambda: Policy().replace(**change)),
        ("Policy", NAMES, lambda: Policy().override(change)),
        ("Linear: policy", NAMES[1:], lambda: layer_policy("Linear", change)),
    ):
        with pytest.raises(QfwError) as info:
            make()
        text = f"{owner} has no field {name!r}{hint}; legal are {', '.join(legal)}"
        assert str(info.value) == text


@pytest.mark.parametrize("value", [3, "int8", [("weights", Sym(4))], Sym(4), Policy])
def test_what_is_no_override(value):
    for make in (Policy().override, lambda v: layer_policy("Linear", v)):
        with pytest.raises(QfwError, match=r"must be a Policy, or a mapping of its fields"):
            make(value)


def test_names_that_are_no_text():
    with pytest.raises(QfwError, match="has no field 1"):
        Policy().override({1: Sym(8)})


# --- a layer's own -----------------------------------------------------------------------


def test_a_layers_policy_is_checked_copied_and_read_only():
    given = {"weights": Sym(4, axis=0), "forward": np.str_("sym")}
    own = layer_policy("Linear", given)
    given["weights"] = SymInt32()
    assert own == {"weights": Sym(4, axis=0), "forward": "sym"}
    assert list(own) == ["weights", "forward"]
    assert len(own) == 2
    assert repr(own) == "{'weights': Sym(4, axis=0), 'forward': 'sym'}"
    with pytest.raises(TypeError):
        own["weights"] = Sym(8)
    for same in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert same == own


def test_a_layers_policy_may_be_a_whole_policy_or_none():
    assert layer_policy("Linear", None) is None
    assert layer_policy("Linear", Policy.int8()) == Policy.int8()


def test_a_layer_has_no_input_of_its_own():
    with pytest.raises(QfwError, match=r"Linear: policy has 'input', which is the network's"):
        layer_policy("Linear", {"input": Sym(8)})


def test_a_layers_policy_names_its_owner():
    with pytest.raises(QfwError, match=r"^Linear: policy: weights=SymInt32\(12\): "):
        layer_policy("Linear", {"weights": SymInt32()})


# --- what is legal -----------------------------------------------------------------------


@pytest.mark.parametrize("field", STORED)
@pytest.mark.parametrize("fmt", [F32, Sym(2), Sym(16, axis="row"), Asym(1, group=7), BFP(4, 8)])
def test_storage_formats_are_legal_everywhere(field, fmt):
    assert getattr(Policy(**{field: fmt}), field) is fmt


@pytest.mark.parametrize("bits", [2, 12, 16, 32])
@pytest.mark.parametrize("field", STORED)
def test_symint32_is_refused_by_name(field, bits):
    message = refusal(field, SymInt32(bits))
    assert message.startswith(f"Policy: {field}=SymInt32({bits}): SymInt32 is a compute format, ")
    assert message.endswith("; choose Float32(), Sym(bits) or Asym(bits)")
    assert ("never storage" in message) == (field not in MOVING)
    assert ("output=RAW and nn.Quant" in message) == (field in MOVING)


@pytest.mark.parametrize("value", [None, 8, "Sym(8)", "float32", "sym", Sym, Float32, [Sym(8)]])
@pytest.mark.parametrize("field", STORED)
def test_what_is_no_format_is_refused(field, value):
    legal = "Float32(), Sym(bits) or Asym(bits)"
    if field == "grads":
        legal = "Float32(), Sym(bits), Asym(bits) or 'fused'"
    assert refusal(field, value) == f"Policy: {field} must be {legal}, not {value!r}"


def test_fused_is_for_gradients_alone():
    assert Policy(grads=np.str_("fused")).grads == "fused"
    assert repr(Policy(grads=np.str_("fused")).grads) == "'fused'"
    for field in STORED:
        if field != "grads":
            assert "not 'fused'" in refusal(field, "fused")


@pytest.mark.parametrize("value", ["int8", "", None, True, Float32(), ["sym"], np.zeros(2)])
@pytest.mark.parametrize("field", COMPUTED)
def test_arithmetics(field, value):
    for legal in ("float32", "sym"):
        assert getattr(Policy(**{field: legal}), field) == legal
    assert (
        refusal(field, value) == f"Policy: {field} must be one of 'float32', 'sym', not {value!r}"
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [Sym, Asym])
def test_an_integer_axis_is_for_what_has_no_batch(kind, axis):
    fmt = kind(8, axis=axis)
    for field in (*PARAMETERS, "grads"):
        assert getattr(Policy(**{field: fmt}), field) == fmt
    for field in MOVING:
        message = refusal(field, fmt)
        assert message.startswith(f"Policy: {field}={fmt!r}: axis={axis} ")
        assert message.endswith("choose axis=None, axis='row' or group=n")


@pytest.mark.parametrize("value", ["hindsight", 1, 0.5])
@pytest.mark.parametrize("kind", [Sym, Asym])
def test_ranges(kind, value):
    fmt = kind(8, range=value)
    for field in MOVING:
        assert getattr(Policy(**{field: fmt}), field) == fmt
    for field in PARAMETERS:
        message = refusal(field, fmt)
        assert message.startswith(f"Policy: {field}={fmt!r}: range={value!r} ")
        assert message.endswith("choose range='dynamic'")
    if value == "hindsight":
        assert refusal("grads", fmt).endswith("choose range='dynamic' or a number")
    else:
        assert Policy(grads=fmt).grads == fmt
