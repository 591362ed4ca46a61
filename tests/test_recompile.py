"""What a session takes along: recompile, state_dict, frozen layers, fused gradients, lr."""

import numpy as np
import pytest
from session_helpers import (
    BATCH,
    FUSED,
    INT8,
    MOMENTUM,
    POLICIES,
    data,
    held,
    model,
    session,
    train,
)

import pyqfw as q
from pyqfw import nn, optim

every_policy = pytest.mark.parametrize("policy", POLICIES)


def without(holds, *ends):
    return {name: value for name, value in holds.items() if not name.endswith(ends)}


# --- recompile ------------------------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("steps", [0, 3])
def test_nothing_changes_if_nothing_is_changed(policy, steps):
    net = train(session(policy), steps)
    again = net.recompile()
    assert again.plan.to_bytes() == net.plan.to_bytes()
    assert without(held(again), ":grad") == without(held(net), ":grad")
    assert held(train(again, seed=1)) == held(train(net, seed=1))


@every_policy
def test_twins_begin_with_the_same_floats(policy):
    """Every policy from every other, before training: what `compile` would have given."""
    net = session(policy)
    for other in POLICIES:
        assert held(net.recompile(policy=POLICIES[other])) == held(session(other))


@every_policy
def test_after_training_values_carry_over(policy):
    net = train(session(policy))
    floats = net.recompile(policy=q.Policy.float32())
    for name, values in net.state_dict().items():
        assert floats.tensor(name).numpy().tobytes() == values.tobytes()
    assert floats.steps == net.steps == 3
    wide = net.recompile(policy=INT8.replace(weights=q.Sym(16), bias=q.Sym(16)))
    for name, values in net.state_dict().items():
        assert wide.tensor(name).format == q.Sym(16)
        np.testing.assert_allclose(
            wide.tensor(name).numpy(), values, atol=np.abs(values).max() / 3e4
        )


def test_bits_carry_over_where_the_format_is_the_same():
    net = train(session("int8"))
    other = net.recompile(policy=INT8.replace(bias=q.Float32(), wires=q.Sym(12), grads=q.Float32()))
    for name in net.state_dict():
        same = name.endswith("weight")
        assert (other.tensor(name).data == net.tensor(name).data) == same
        assert other.tensor(f"{name}:momentum").data == net.tensor(f"{name}:momentum").data


def test_codes_carry_over_where_only_container_or_rounding_differ():
    net = train(session("4 bits"))
    other = net.recompile(policy=INT8.replace(weights=q.Sym(4, axis=0, container=16)))
    for name in ("0.weight", "2.weight", "5.weight"):
        assert (other.tensor(name).codes == net.tensor(name).codes).all()
        assert (other.tensor(name).scale == net.tensor(name).scale).all()


def test_the_floats_that_were_loaded_go_to_a_twin_until_the_first_update():
    net, other = session("4 bits"), session(seed=3).state_dict()
    net.load_state_dict(other)
    x, y = data()
    net.forward(x)
    net.backward(y)
    net.predict(x)
    twin = net.recompile(policy=q.Policy.float32())
    assert all(twin.state_dict()[name].tobytes() == other[name].tobytes() for name in other)
    net.update()
    twin = net.recompile(policy=q.Policy.float32())
    stored = net.state_dict()
    assert all(twin.state_dict()[name].tobytes() == stored[name].tobytes() for name in other)


@pytest.mark.parametrize("policy", FUSED)
def test_a_fused_backward_is_an_update(policy):
    net, (x, y) = session(policy), data()
    net.forward(x)
    net.backward(y)
    moved = net.state_dict()
    floats = net.recompile(policy=q.Policy.float32()).state_dict()
    assert all(floats[name].tobytes() == moved[name].tobytes() for name in moved)


def test_a_step_that_is_traced_is_an_update():
    net = session("4 bits")
    list(net.trace(*data()))
    moved = net.state_dict()
    floats = net.recompile(policy=q.Policy.float32()).state_dict()
    assert all(floats[name].tobytes() == moved[name].tobytes() for name in moved)


@every_policy
def test_another_batch(policy):
    net = train(session(policy))
    one = net.recompile(batch=1)
    assert one.plan.batch == 1
    assert one.plan.arena_bytes < net.plan.arena_bytes
    assert without(held(one), ":grad") == without(held(net), ":grad")
    x, y = data(1)
    assert np.isfinite(one.step(x, y))
    assert one.predict(x).shape == (1, 4)


def test_the_optimizers_state_stays_with_the_optimizer():
    net = train(session("int8"))
    net.lr = 0.01
    same = net.recompile(optimizer=optim.SGD(0.1, momentum=0.9), batch=4)
    assert same.lr == 0.01
    for name in net.state_dict():
        assert same.tensor(f"{name}:momentum").data == net.tensor(f"{name}:momentum").data
    for other in (optim.SGD(0.1, momentum=0.8), optim.SGD(0.2, momentum=0.9)):
        changed = net.recompile(optimizer=other)
        assert changed.lr == other.lr
        assert changed.steps == 3
        for name in net.state_dict():
            assert not changed.tensor(f"{name}:momentum").numpy().any()
            assert changed.tensor(name).data == net.tensor(name).data
    plain = net.recompile(optimizer=optim.SGD(0.1))
    with pytest.raises(q.QfwError, match="momentum"):
        plain.tensor("0.weight:momentum")


def test_the_first_update_of_another_optimizer_is_a_first_update():
    """With dampening the first one is different: recompile begins again, or goes on."""
    sgd = optim.SGD(0.1, momentum=0.9, dampening=0.5)
    net = train(session())
    changed = net.recompile(optimizer=sgd)
    fresh = session(optimizer=sgd)
    fresh.load_state_dict(net.state_dict())
    train(changed, 2, seed=5)
    train(fresh, 2, seed=5)
    assert without(held(changed), "steps") == without(held(fresh), "steps")


def test_state_in_another_format_keeps_its_values():
    net = train(session("int8"))
    floats = net.recompile(policy=INT8.replace(state=q.Float32()))
    for name in net.state_dict():
        state = net.tensor(f"{name}:momentum").numpy()
        assert state.any()
        assert floats.tensor(f"{name}:momentum").numpy().tobytes() == state.tobytes()


def test_the_original_is_untouched():
    net = train(session("int8"))
    before = held(net)
    train(net.recompile(batch=3, policy=q.Policy.float32()), 0).step(*data(3))
    assert held(net) == before


def test_other_arguments():
    net = train(session("int8"))
    assert net.recompile(seed=7).plan.seed == 7
    assert net.recompile(policy=None).plan.policy == q.Policy.float32()
    looked = net.recompile(optimizer=None)
    x, y = data()
    looked.forward(x)
    looked.backward(y)
    assert looked.grad("0.weight").shape == (9, 10)
    axes = q.Session(q.compile(nn.Linear(5, 3), input_shape=5)).recompile(input_shape=(2, 5))
    assert axes.predict(np.zeros((4, 2, 5))).shape == (4, 2, 3)


# --- frozen layers --------------------------------------------------------------------------------


@every_policy
def test_only_the_layers_named_learn(policy):
    net = train(session(policy))
    head = net.recompile(train=["5"])
    before = held(head)
    train(head, 4)
    after = held(head)
    assert {name for name in net.state_dict() if before[name] != after[name]} == {
        "5.weight",
        "5.bias",
    }
    program = head.plan.program
    assert {n: t.space for n, t in program.parameters.items()} == {
        "0.weight": "const",
        "0.bias": "const",
        "2.weight": "const",
        "5.weight": "arena",
        "5.bias": "arena",
    }
    assert set(program.states) == {"5.weight:momentum", "5.bias:momentum"}
    with pytest.raises(q.QfwError, match=r"0\.weight.*frozen"):
        head.grad("0.weight")
    assert head.plan.arena_bytes < net.plan.arena_bytes
    assert head.plan.macs < net.plan.macs
    assert without(held(head.recompile(batch=2)), ":grad") == without(after, ":grad")  # stays so


@every_policy
def test_a_frozen_layer_passes_errors_on(policy):
    """The first layer learns the same whether or not those after it do, for one step."""
    net, first = session(policy), session(policy).recompile(train=["0"])
    x, y = data()
    assert net.step(x, y) == first.step(x, y)
    for name in ("0.weight", "0.bias"):
        assert net.tensor(name).data == first.tensor(name).data
    assert first.tensor("5.weight").data == session(policy).tensor("5.weight").data
    both = first.recompile(train=["0", "2", "5"])
    assert without(held(both), ":grad", "momentum") != without(
        held(train(both)), ":grad", "momentum"
    )


def test_layers_frozen_by_hand_and_modules_by_name():
    layers = model()
    layers[0].requires_grad_(False)
    net = session("int8", model=layers)
    before = held(net)
    train(net)
    assert held(net)["0.weight"] == before["0.weight"]
    assert held(net)["2.weight"] != before["2.weight"]
    nested = nn.Sequential(
        {"body": nn.Sequential(nn.Linear(10, 6), nn.ReLU()), "head": nn.Linear(6, 4)}
    )
    body = session("int8", model=nested).recompile(train=["body"])
    before = held(body)
    train(body)
    assert {n for n in body.state_dict() if held(body)[n] != before[n]} == {
        "body.0.weight",
        "body.0.bias",
    }


# --- fused gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", FUSED)
def test_fused_backward_moves_and_update_does_not(policy):
    net, (x, y) = session(policy), data()
    before = held(net)
    net.forward(x)
    assert held(net) == before
    net.backward(y)
    moved = held(net)
    assert all(moved[name] != before[name] for name in net.state_dict())
    net.update()
    assert without(held(net), "steps") == without(moved, "steps")
    assert (before["steps"], moved["steps"], net.steps) == (0, 0, 1)
    with pytest.raises(q.QfwError, match=r"'0\.weight'.*fused.*stores none"):
        net.grad("0.weight")
    assert not net.plan.memory()["gradients"]


def test_one_layer_fused():
    layers = nn.Sequential(nn.Linear(10, 6, policy={"grads": "fused"}), nn.ReLU(), nn.Linear(6, 4))
    net, (x, y) = session("int8", model=layers), data()
    before = held(net)
    net.forward(x)
    net.backward(y)
    moved = {name for name in net.state_dict() if held(net)[name] != before[name]}
    assert moved == {"0.weight", "0.bias"}
    net.update()
    moved = {name for name in net.state_dict() if held(net)[name] != before[name]}
    assert moved == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert net.grad("2.weight").shape == (4, 6)


def test_fused_float32_is_float32():
    """The same numbers, with and without a place for gradients."""
    fused, stored = session("float32 fused"), session()
    for i in range(4):
        assert fused.step(*data(seed=i)) == stored.step(*data(seed=i))
    assert held(fused) == without(held(stored), ":grad")


# --- the learning rate ----------------------------------------------------------------------------


@every_policy
def test_the_learning_rate(policy):
    net = session(policy, optimizer=optim.SGD(0.1))
    assert net.lr == 0.1
    before = held(net)
    net.lr = 0
    net.step(*data())
    assert all(held(net)[name] == before[name] for name in net.state_dict())
    assert net.steps == 1
    net.lr = 0.025
    assert net.lr == 0.025
    net.step(*data())
    assert any(held(net)[name] != before[name] for name in net.state_dict())


def test_a_learning_rate_set_is_one_compiled():
    a, b = session("int8"), session("int8", optimizer=optim.SGD(0.03, momentum=0.9))
    a.lr = np.float64(0.03)
    assert held(train(a)) == held(train(b))


# --- state_dict -----------------------------------------------------------------------------------


@every_policy
def test_a_state_dict_round_trip(policy):
    """Floats exactly; integers encoded at their absmax, and the second time with the same codes."""
    net = train(session(policy))
    values = net.state_dict()
    assert list(values) == ["0.weight", "0.bias", "2.weight", "5.weight", "5.bias"]
    other = session(policy, seed=9)
    other.load_state_dict(values)
    for name, value in values.items():
        t = other.tensor(name)
        assert t.data == q.quantize(value, t.format, rounding="half_away").data
    codes = {name: other.tensor(name).codes for name in values}
    other.load_state_dict(other.state_dict())
    assert all((other.tensor(name).codes == codes[name]).all() for name in values)


def test_loading_some():
    net, values = session(), session(seed=4).state_dict()
    before = net.state_dict()
    net.load_state_dict({"2.weight": values["2.weight"], "unknown": 3}, strict=False)
    after = net.state_dict()
    assert after.pop("2.weight").tobytes() == values["2.weight"].tobytes()
    assert all(after[name].tobytes() == before[name].tobytes() for name in after)
    net.load_state_dict({name: value.tolist() for name, value in values.items()})
    assert all(net.state_dict()[n].tobytes() == values[n].tobytes() for n in values)


def test_loading_leaves_state_and_steps():
    net = train(session("int8"))
    before = held(net)
    net.load_state_dict(session(seed=4).state_dict())
    names = tuple(net.state_dict())
    kept = {k: v for k, v in before.items() if k not in names}
    assert kept.items() <= held(net).items()


def test_frozen_parameters_are_loaded_too():
    head = session("int8").recompile(train=["5"])
    head.load_state_dict(session(seed=4).state_dict())
    assert head.tensor("0.weight").data == session("int8", seed=4).tensor("0.weight").data
    assert repr(head) == f"<Session of {head.plan!r}, 0 steps>"
    assert (head.plan.batch, MOMENTUM.lr) == (BATCH, head.lr)
