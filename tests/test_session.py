"""A session at work: steps by three ways, predictions, what can be looked at."""

import numpy as np
import pytest
from session_helpers import (
    BATCH,
    CLASSES,
    FUSED,
    INPUTS,
    POLICIES,
    data,
    held,
    session,
    train,
)

import pyqfw as q
from pyqfw import nn, optim, quant

ROWS = (BATCH, 3, 1, BATCH, 7)  # of each step
OPTIMIZERS = {
    "plain": optim.SGD(0.1),
    "momentum": optim.SGD(0.1, momentum=0.9),
    "nesterov": optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
}
every_policy = pytest.mark.parametrize("policy", POLICIES)


# --- steps ----------------------------------------------------------------------------------------


def by_step(net, x, y):
    return net.step(x, y)


def by_hand(net, x, y):
    net.forward(x)
    loss = net.backward(y)
    net.update()
    return loss


def by_trace(net, x, y):
    loss = None
    for _, tensors in net.trace(x, y):
        loss = tensors.get("loss", loss)
    return float(loss.numpy())


WAYS = (by_step, by_hand, by_trace)


@every_policy
@pytest.mark.parametrize("sgd", OPTIMIZERS)
def test_a_step_a_loop_by_hand_and_a_trace_give_the_same_bytes(policy, sgd):
    nets = [session(policy, optimizer=OPTIMIZERS[sgd], seed=5) for _ in range(3)]
    for i, rows in enumerate(ROWS):
        x, y = data(rows, i)
        losses = [run(net, x, y) for run, net in zip(WAYS, nets, strict=True)]
        assert losses[0] == losses[1] == losses[2]
        assert held(nets[0]) == held(nets[1]) == held(nets[2])
        assert nets[0].steps == i + 1


@pytest.mark.parametrize("policy", ["float32", "full_sym", "int8", "rows"])
def test_every_isa_gives_the_same_bytes(policy):
    found = []
    for isa in quant.core_info()["isas"]:
        with quant.isa(isa):
            net = train(session(policy), 5)
        found.append((held(net), net.predict(data(20)[0]).tobytes()))
    assert all(each == found[0] for each in found)


@every_policy
def test_a_session_learns(policy):
    net, (x, y) = session(policy), data()
    first = net.step(x, y)
    for _ in range(60):
        last = net.step(x, y)
    assert last < 0.5 * first


@every_policy
def test_the_seed_and_the_data_decide_everything(policy):
    a, b = train(session(policy)), train(session(policy))
    assert held(a) == held(b)
    assert held(a) != held(train(session(policy, seed=1)))


def test_a_short_batch_is_a_smaller_batch():
    """In float32, where nothing depends on the compiled batch."""
    wide, narrow = session(), session(batch=3)
    for i in range(4):
        x, y = data(3, i)
        assert wide.step(x, y) == narrow.step(x, y)
        assert held(wide) == held(narrow)


@every_policy
def test_the_loss_is_the_mean_over_the_rows_given(policy):
    x, y = data(5)
    net = session(policy, optimizer=optim.SGD(0.0))
    z = net.forward(x).astype(np.float64)
    expected = np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(5), y])
    assert net.backward(y) == pytest.approx(expected, rel=1e-3)


def test_a_trace_names_operations_and_what_they_wrote():
    net, (x, y) = session("int8"), data()
    traced = list(net.trace(x, y))
    assert [op for op, _ in traced] == net.plan.ops
    last = {name: t for _, tensors in traced for name, t in tensors.items()}
    for name in net.plan.program.parameters:
        assert last[name].data == net.tensor(name).data
        assert last[f"{name}:grad"].data == net.grad(name).data
        assert last[f"{name}:momentum"].data == net.tensor(f"{name}:momentum").data
    assert last["0:wire"].format == net.plan.policy.wires
    assert last["5:error"].shape == (BATCH, CLASSES)


def test_a_trace_that_is_left_or_disturbed():
    net, (x, y) = session("int8"), data()
    abandoned = net.trace(x, y)
    next(abandoned)
    assert net.step(x, y) == session("int8").step(x, y)  # nothing had been moved
    with pytest.raises(q.QfwError, match="used otherwise"):
        next(abandoned)
    a, b = net.trace(x, y), net.trace(x, y)
    next(a)
    next(b)
    with pytest.raises(q.QfwError, match="used otherwise"):
        next(a)
    assert len(list(b)) == len(net.plan.ops) - 1
    assert net.steps == 2


def test_update_may_come_again_and_later():
    """As PyTorch's: gradients stay until the next backward."""
    one, two = session("int8"), session("int8")
    x, y = data()
    for net in (one, two):
        net.forward(x)
        net.backward(y)
    gradients = {k: v for k, v in held(one).items() if k.endswith(":grad")}
    one.predict(x)
    one.update()
    two.update()
    assert held(one) == held(two)
    assert gradients.items() <= held(one).items()
    one.update()
    assert one.steps == 2
    assert held(one) != held(two)


# --- predictions ----------------------------------------------------------------------------------


@every_policy
def test_a_prediction_does_not_depend_on_its_neighbours(policy):
    net = train(session(policy))
    x = data(512, 7)[0] * np.geomspace(0.01, 100, 512, dtype=np.float32)[:, None]
    together = net.predict(x)
    assert together.dtype == np.float32
    assert together.shape == (512, CLASSES)
    alone = np.concatenate([net.predict(x[i : i + 1]) for i in range(512)])
    assert alone.tobytes() == together.tobytes()
    order = np.random.default_rng(3).permutation(512)
    assert net(x[order]).tobytes() == together[order].tobytes()
    assert net.predict(x[:0]).shape == (0, CLASSES)


@every_policy
def test_the_forward_of_one_row_is_its_prediction(policy):
    net, (x, _) = train(session(policy)), data(1, 9)
    assert net.forward(x).tobytes() == net.predict(x).tobytes()


@every_policy
def test_predict_touches_nothing(policy):
    net, twin = train(session(policy)), train(session(policy))
    before = held(net)
    net.predict(data(20, 4)[0])
    assert held(net) == before
    assert held(train(net, seed=2)) == held(train(twin, seed=2))


@every_policy
def test_the_same_prediction_from_an_inference_plan(policy):
    net, (x, _) = train(session(policy)), data(20, 4)
    asked = net.recompile(loss=None, optimizer=None)
    assert asked.predict(x).tobytes() == net.predict(x).tobytes()
    assert asked.plan.arena_bytes < net.plan.arena_bytes
    assert asked.plan.memory()["const"] > 0


# --- looking --------------------------------------------------------------------------------------


@every_policy
def test_tensors_have_the_policys_formats(policy):
    net, p = train(session(policy), 1), POLICIES[policy]
    for name, values in net.state_dict().items():
        t = net.tensor(name)
        assert t.format == (p.bias if name.endswith("bias") else p.weights)
        assert t.shape == values.shape
        assert values.dtype == np.float32
        assert t.numpy().tobytes() == values.tobytes()
        assert net.tensor(f"{name}:momentum").format == p.state
        if policy not in FUSED:
            assert net.grad(name).format == p.grads
            assert net.grad(name).shape == t.shape


@every_policy
def test_the_update_leaves_gradients_alone(policy):
    net, (x, y) = train(session(policy)), data()
    net.forward(x)
    net.backward(y)
    before = held(net)
    net.update()
    after = held(net)
    assert {k: v for k, v in before.items() if k.endswith(":grad")}.items() <= after.items()


def wires_as_they_are_made(net, x, y):
    """The last that is written of each tensor, before the backward begins."""
    layers = {id(t): layer for layer, t in reversed(net.plan.program.wires.items())}
    made = {}
    for i, (op, _) in enumerate(net.trace(x, y)):
        if i not in net.plan.section("backward"):
            for t in op.written:
                if id(t) in layers:
                    made[id(t)] = net.wire(layers[id(t)])
    return {layer: made[id(t)] for layer, t in net.plan.program.wires.items()}


@every_policy
def test_wires(policy):
    """Of every layer, as they are made; later the same bytes, or a refusal."""
    net, (x, y) = session(policy), data(5)
    out = net.forward(x)
    seen = wires_as_they_are_made(net, x, y)
    p = POLICIES[policy]
    assert seen["input"].format == p.input
    assert seen["0"].format == seen["3"].format == p.wires
    shapes = {"input": INPUTS, "0": 9, "1": 9, "2": 6, "3": 6, "4": 6, "5": CLASSES}
    assert {layer: t.shape for layer, t in seen.items()} == {k: (5, n) for k, n in shapes.items()}
    assert seen["0"].data == seen["1"].data  # one operation
    assert (seen["4"].numpy() == np.maximum(seen["3"].numpy(), 0)).all()
    assert seen["5"].numpy().tobytes() == out.tobytes()
    np.testing.assert_allclose(seen["input"].numpy(), x, atol=0.05 * np.abs(x).max())
    assert readable(session(policy), seen, x)["5"]
    there = readable(session("int8"), None, x)
    assert all(there[layer] for layer in ("input", "0", "1", "4", "5"))  # backward reads them
    net = session(policy)
    net.step(x, y)
    readable(net, seen)


def readable(net, seen, x=None):
    """Which wires are there still, after a forward of x if that is given; each must be as seen."""
    if x is not None:
        net.forward(x)
    found = {}
    for layer in net.plan.program.wires:
        try:
            t = net.wire(layer)
        except q.QfwError:
            with pytest.raises(q.QfwError, match=r"used again since.*trace\(\)"):
                net.wire(layer)
            t = None
        assert t is None or seen is None or t.data == seen[layer].data
        found[layer] = t is not None
    return found


def test_wires_of_an_inference_plan():
    net, (x, _) = session("int8", loss=None, optimizer=None), data(5)
    out = net.forward(x)
    assert net.wire("5").numpy().tobytes() == out.tobytes()
    assert [op for op, _ in net.trace(x)] == net.plan.ops


def test_what_is_read_is_a_copy():
    net = session()
    before = held(net)
    t, values = net.tensor("0.weight"), net.state_dict()["0.weight"]
    values[:] = 0
    assert not t.codes.flags.writeable
    train(net, 1)
    assert bytes(t.data) == before["0.weight"]


def test_inputs_of_every_kind():
    """Layouts and types that hold the same numbers give the same bytes."""
    x, y = data()
    x = np.round(4 * x)
    backwards = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    frozen = x.copy()
    frozen.flags.writeable = False
    kinds = [
        x.tolist(),
        x.astype(np.float64),
        x.astype(np.float16),
        x.astype(np.int8),
        x.astype(">f4"),
        np.asfortranarray(x),
        np.repeat(x, 2, axis=1)[:, ::2],
        backwards,
        frozen,
    ]
    expected = session("int8")
    loss = expected.step(x, y)
    for kind in kinds:
        net = session("int8")
        assert net.step(kind, y) == loss
        assert net.predict(kind).tobytes() == expected.predict(x).tobytes()
    for labels in (y.tolist(), y.astype(np.uint8), y.astype(">i8"), np.repeat(y, 3)[::3]):
        assert session("int8").step(x, labels) == loss


@every_policy
def test_layers_on_more_axes(policy):
    layers = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, CLASSES))
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(BATCH, 4, 5)), rng.integers(0, CLASSES, BATCH)
    nets = [session(policy, model=layers, input_shape=(4, 5)) for _ in WAYS]
    losses = [run(net, x, y) for run, net in zip(WAYS, nets, strict=True)]
    assert losses[0] == losses[1] == losses[2]
    assert held(nets[0]) == held(nets[1]) == held(nets[2])
    assert nets[0].forward(x[:3]).shape == (3, CLASSES)
    assert nets[0].predict(x).tobytes() == b"".join(
        nets[0].predict(row[None]).tobytes() for row in x
    )


@pytest.mark.parametrize("policy", ["float32", "full_sym", "int8"])
def test_a_wire_has_its_layers_shape(policy):
    layers = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, CLASSES))
    net = session(policy, model=layers, input_shape=(4, 5))
    net.forward(np.ones((2, 4, 5)))
    assert net.wire("0").shape == net.wire("1").shape == (2, 4, 3)
    assert net.wire("2").shape == (2, 12)
    assert net.wire("0").data == net.wire("2").data
