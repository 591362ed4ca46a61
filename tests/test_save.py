"""Save and load: a resumed run is the uninterrupted one, byte for byte."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as safetensors
from save_helpers import kept, run, saved
from session_helpers import INPUTS, MOMENTUM, POLICIES, data, model, session, train

import pyqfw as q
from pyqfw import nn, optim, quant

every_policy = pytest.mark.parametrize("policy", POLICIES)
ISAS = quant.core_info()["isas"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


# --- resuming -------------------------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_resumed_run_is_the_uninterrupted_one(policy, steps, path):
    net = train(session(policy), steps)
    net.epochs = steps
    other = saved(net, path)
    assert kept(other) == kept(net)
    assert run(other, 5, seed=1) == run(net, 5, seed=1)


@pytest.mark.parametrize("policy", ["float32", "full_sym", "int8", "int8 fused"])
@pytest.mark.parametrize(
    "sgd",
    [
        optim.SGD(0.1),
        optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        optim.SGD(0.1, momentum=0.9, dampening=0.5),  # its first update is another than the rest
    ],
    ids=["plain", "nesterov", "dampened"],
)
def test_optimizers_and_a_changed_learning_rate(policy, sgd, path):
    net = train(session(policy, optimizer=sgd), 1)
    net.lr = 0.0123
    other = saved(net, path)
    assert other.lr == 0.0123
    assert run(other, 4) == run(net, 4)


@pytest.mark.parametrize("policy", ["float32", "full_sym", "int8", "int8 fused"])
@pytest.mark.parametrize("there", ISAS)
@pytest.mark.parametrize("back", ISAS)
def test_from_one_isa_to_another(policy, there, back, path):
    with quant.isa(there):
        net = train(session(policy))
        net.save(path)
        expected = run(net, 4)
    with quant.isa(back):
        assert run(q.Session.load(path), 4) == expected


def formats_to_keep(rounding):
    grain = st.sampled_from([{}, {"axis": 0}, {"group": 3}, {"axis": "row"}])
    rest = {"rounding": rounding, "scale": st.sampled_from(["float", "pow2"])}

    def made(kind, low):
        box = st.sampled_from(["packed", 16, 32])
        return st.builds(
            lambda bits, box, grain, **rest: kind(bits, container=box, **grain, **rest),
            st.integers(low, 16),
            box,
            grain,
            **rest,
        )

    return st.one_of(st.just(q.Float32()), made(q.Sym, 2), made(q.Asym, 1))


def any_policy():
    rounding = st.sampled_from(["half_away", "half_even", "stochastic"])
    wires = st.sampled_from(
        [q.Float32(), q.Sym(8), q.Sym(12, container=16), q.Asym(7), q.Sym(8, axis="row")]
    )
    store = formats_to_keep(rounding)
    arithmetic = st.sampled_from(["float32", "sym"])
    return st.builds(
        q.Policy,
        input=wires,
        wires=wires,
        errors=wires,
        weights=store,
        bias=store,
        grads=st.one_of(st.just("fused"), st.just(q.Float32()), st.just(q.Sym(8))),
        state=store,
        forward=arithmetic,
        weight_grad=arithmetic,
        bias_grad=arithmetic,
        prop=arithmetic,
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    any_policy(),
    st.sampled_from([optim.SGD(0.05), MOMENTUM, optim.SGD(0.1, 0.5, rounding="half_even")]),
    st.integers(0, 3),
    st.sets(st.sampled_from(["0", "2", "5"]), min_size=1),
    st.integers(0, 2**32 - 1),
)
def test_any_policy(tmp_path_factory, policy, sgd, steps, trained, seed):
    net = session(policy, optimizer=sgd, seed=seed).recompile(train=sorted(trained))
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    train(net, steps)
    net.epochs = seed
    other = saved(net, path)
    assert kept(other) == kept(net)
    assert run(other, 2, seed=1) == run(net, 2, seed=1)


def test_floats_keep_every_bit(path):
    """Negative zero, the smallest and the largest."""
    net = session(optimizer=None, loss=None)
    values = net.state_dict()
    odd = np.array([0x80000000, 1, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x3DCCCCCD], np.uint32)
    values["2.weight"][:, 0] = odd.view(np.float32)
    net.load_state_dict(values)
    found = saved(net, path).state_dict()["2.weight"]
    assert found.tobytes() == values["2.weight"].tobytes()


def test_what_a_session_is_asked_after_a_load(path):
    """Gradients are no part of it: there must be a backward before an update."""
    net = session("int8")
    net.forward(data()[0])
    net.backward(data()[1])
    other = saved(net, path)
    with pytest.raises(q.QfwError, match="update needs a backward"):
        other.update()
    with pytest.raises(q.QfwError, match="no backward has run yet"):
        other.grad("0.weight")
    assert repr(other) == repr(net)
    assert str(other.plan) == str(net.plan)


def test_a_plan_without_loss_and_one_without_optimizer(path):
    x, y = data()
    for less in ({"loss": None, "optimizer": None}, {"optimizer": None}):
        net = session("int8", **less)
        other = saved(net, path)
        assert other.predict(x).tobytes() == net.predict(x).tobytes()
        assert other.plan.request.optimizer is None
    other.forward(x)
    assert other.backward(y) > 0


# --- the model ------------------------------------------------------------------------------------


def odd_model():
    body = nn.Sequential(
        nn.Linear(INPUTS, 9, policy={"weights": q.Sym(4, axis=0), "grads": "fused"}, output=q.RAW),
        nn.ReLU(),
        nn.Quant(q.Sym(7, range=3.5)),
    )
    head = nn.Linear(6, 4, policy=q.Policy.full_sym())
    middle = nn.Linear(9, 6, bias=False).requires_grad_(False)
    return nn.Sequential({"body ü": body, 'm"\\': middle, "head": head})


def test_names_overrides_raw_and_frozen_layers(path):
    net = train(session("int8", model=odd_model(), seed=np.uint32(7), batch=np.int64(8)))
    other = saved(net, path)
    assert repr(other.plan.request.model) == repr(net.plan.request.model)
    assert [n.learns for n in other.plan.nodes] == [n.learns for n in net.plan.nodes]
    assert other.plan.program.parameters['m"\\.weight'].space == "const"
    assert run(other, 4) == run(net, 4)


def test_a_bare_layer_and_more_axes(path):
    plan = q.compile(nn.Linear(5, 3), input_shape=(2, 5), policy=q.Policy.int8())
    net = q.Session(plan)
    x = np.random.default_rng(0).normal(size=(4, 2, 5))
    assert saved(net, path).predict(x).tobytes() == net.predict(x).tobytes()


def test_layers_frozen_after_the_plan_was_made(path):
    """The file is of the net there is, not of what its layers say since."""
    layers = model()
    net = train(session("int8", model=layers))
    layers[0].requires_grad_(False)
    other = saved(net, path)
    assert other.plan.request.train == ("0", "2", "5")
    assert run(other, 3) == run(net, 3)
    thawed = session("int8", model=layers)
    layers[0].requires_grad_(True)
    assert run(saved(thawed, path), 3) == run(thawed, 3)


def test_of_a_class_of_ones_own_the_calls_are_saved(path):
    class Mine(nn.Module):
        """A forward that is code."""

        def __init__(self) -> None:
            self.first, self.second = nn.Linear(INPUTS, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.second(self.first(x))

    net = train(session(model=nn.Sequential(nn.ReLU(), Mine())), 2)
    other = saved(net, path)
    assert kept(net) == kept(other)
    assert net.plan.to_bytes() == other.plan.to_bytes()
    names = [f"1.{layer}.{name}" for layer in ("first", "second") for name in ("weight", "bias")]
    assert list(net.state_dict()) == names


# --- recompile ------------------------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("steps", [0, 2])
def test_what_is_recompiled_after_a_load(policy, loaded, steps, path):
    """Until an update the floats that parameters were made of: every policy, and back."""
    net = session(policy)
    if loaded:
        net.load_state_dict(session(seed=5).state_dict())
    other = saved(train(net, steps), path)
    for change in ("float32", "4 bits", "asym"):
        a, b = (n.recompile(policy=POLICIES[change], batch=3) for n in (net, other))
        assert kept(a) == kept(b)
        a, b = (n.recompile(policy=q.Policy.float32()) for n in (a, b))
        assert kept(a) == kept(b)


def test_some_parameters_have_their_floats_still(path):
    net = train(session("4 bits"))
    net.load_state_dict({"2.weight": session(seed=5).state_dict()["2.weight"]}, strict=False)
    other = saved(net, path)
    assert set(safetensors.load(path.read_bytes())) >= {"2.weight:source"}
    a, b = (n.recompile(policy=q.Policy.float32()) for n in (net, other))
    assert kept(a) == kept(b)
    train(net)
    net.save(path)
    assert not any(":source" in name for name in safetensors.load(path.read_bytes()))
