"""fit and numbers that break: named with step, layer and tensor, and undone."""

import re

import numpy as np
import pytest
from session_helpers import BATCH, CLASSES, data, held, session, train

import pyqfw as q
from pyqfw import _rewind, nn, optim
from pyqfw._batches import permutation
from pyqfw.errors import NonFiniteError

X, Y = data()


def broken(net, *given, **arguments):
    """The message of the run's end; nothing in the net is other than finite."""
    with pytest.raises(NonFiniteError) as caught:
        q.fit(net, *given, **arguments)
    assert all(np.isfinite(v).all() for v in net.state_dict().values())
    return str(caught.value)


def calm(i):
    x, y = data(seed=i)
    return 1e-6 * x, y


WILD = (np.full((BATCH, 10), 1e35, np.float32), np.arange(BATCH) % 2)


def steep(policy="float32"):
    """Weights that move by a tenth in a calm step; a wild one leaves infinite ones."""
    layers = nn.Linear(10, CLASSES, bias=False)
    net = session(policy, model=layers, optimizer=optim.SGD(1e5, momentum=0.5))
    net.load_state_dict({"0.weight": np.zeros((CLASSES, 10))})
    return net


def test_the_wild_step_has_a_finite_loss():
    net = steep()
    assert np.isfinite(net.step(*WILD))
    assert not np.isfinite(net.state_dict()["0.weight"]).all()


@pytest.mark.parametrize("before", [0, 3, 63, 64, 70])
@pytest.mark.parametrize("after", [0, 1])
def test_the_step_that_broke_is_undone(before, after):
    """It is found a step later, when the copy would have been renewed, or when the epoch ends."""
    net, twin = steep(), steep()
    batches = [calm(i) for i in range(before)] + [WILD] + [calm(99)] * after
    for batch in batches[:before]:
        twin.step(*batch)
    message = broken(net, batches, epochs=1)
    place = r"operation \d+, update of layer '0'"
    start = rf"epoch 0: batch {before}, step {before}: '0\.weight.*' has become -?inf in {place}: "
    assert re.match(start, message), message
    assert held(net) == held(twin)
    assert (net.steps, net.epochs) == (before, 0)
    assert net.step(*calm(5)) == twin.step(*calm(5))
    assert held(net) == held(twin)


def test_arrays_and_a_later_epoch():
    x, y = data(5 * BATCH)

    def poison(net, history):
        if len(history) == 2:
            net.lr = 3e38

    net, twin = steep(), steep()
    message = broken(net, x, y, epochs=9, callbacks=[poison])
    assert re.match(r"epoch 2: batch \d, step 1\d: '.*' has become .* of layer '0': ", message)
    q.fit(twin, x, y, epochs=2)
    order = permutation(len(x), 0, 2)
    twin.lr = 3e38
    for i in range(net.steps - 10):
        rows = order[BATCH * i : BATCH * i + BATCH]
        twin.step(x[rows], y[rows])
    assert held(net) == held(twin)


@pytest.mark.parametrize(
    ("policy", "lr", "scale", "found"),
    [
        ("float32", 1e30, 1.0, "'3:wire' has become nan in operation 2, product_f32 of layer '2'"),
        ("float32 fused", 1.0, 1e30, "'0:wire' has become inf in .*, product_f32 of layer '0'"),
        ("float32", 1e30, 1e30, "'5.weight' has become inf in operation .*, update of layer '5'"),
        ("full_sym", 3e38, 1.0, "'5.bias' has become -inf in operation .*, update of layer '5'"),
        ("full_sym fused", 3e38, 1.0, "'5.bias' .*, gradient_update_s32 of layer '5'"),
        ("integers stored, floats computed", 1e30, 1e30, "'0:wire' .*, product_f32 of layer '0'"),
        ("floats stored, integers computed", 1.0, 1e30, "'0:wire' .*, convert of layer '0'"),
    ],
)
def test_what_broke_first_is_named(policy, lr, scale, found):
    net = session(policy, optimizer=optim.SGD(lr, momentum=0.9))
    message = broken(net, (scale * X).astype(np.float32), Y, epochs=99)
    assert re.search(found, message), message
    assert "smaller lr; the net is as it was before this step" in message
    steps = net.steps
    net.lr = 0.0
    net.load_state_dict(session().state_dict())
    assert np.isfinite(q.fit(net, X, Y, epochs=1).loss[0])
    assert net.steps == steps + 1


def test_what_is_in_no_tensor_is_named_by_its_operation(monkeypatch):
    monkeypatch.setattr(_rewind, "_odd", lambda tensor: None)
    net = session("float32", optimizer=optim.SGD(1e30))
    message = broken(net, X, Y, epochs=9)
    assert re.match(r"epoch 1: batch 0, step 1: trace at operation \d+, convert of layer", message)
    wild = broken(steep(), [WILD], epochs=1)
    assert wild.startswith("epoch 0: batch 0, step 0: a value in the network is not finite: ")


def test_a_loss_that_is_infinite():
    """The core goes on with it: outputs are finite, their difference is not."""
    make = {"model": nn.Linear(10, CLASSES, bias=False), "optimizer": optim.SGD(1e-30)}
    net, twin = session("float32", **make), session("float32", **make)
    weights = np.zeros((CLASSES, 10), np.float32)
    weights[:2, 0] = -3e38, 3e38
    x = np.zeros((2, 10), np.float32)
    x[:, 0] = 1.0
    for n in (net, twin):
        n.load_state_dict({"0.weight": weights})
    assert twin.step(x, [0, 0]) == np.inf
    before = held(net)
    message = broken(net, x, [0, 0], epochs=1)
    assert re.match(r"epoch 0: batch 0, step 0: '.*' has become inf in .*, cross_entropy", message)
    assert held(net) == before


@pytest.mark.parametrize(
    ("wild", "found"), [(WILD[0], 4), (np.full_like(WILD[0], 3e38), 3)], ids=["later", "at once"]
)
def test_batches_that_are_written_over(wild, found):
    """A loader with one buffer: the steps cannot be repeated, and that is said."""
    buffer = np.empty((BATCH, 10), np.float32)

    def stream():
        for i in range(5):
            buffer[:] = wild if i == 3 else calm(i)[0]
            yield buffer, WILD[1]

    net = steep()
    net.load_state_dict({"0.weight": np.linspace(1, 2, CLASSES * 10).reshape(CLASSES, 10)})
    before = held(net)
    message = broken(net, stream(), epochs=1)
    assert message.startswith(f"epoch 0: batch {found}: a value in the network is not finite: ")
    assert "as it was before step 0: batches have been written over since" in message
    assert held(net) == before


def test_many_bytes_of_batches_are_not_kept(monkeypatch):
    monkeypatch.setattr(_rewind, "HELD", 4 * WILD[0].nbytes)
    made = []
    mark = q.Session._mark
    monkeypatch.setattr(q.Session, "_mark", lambda net: made.append(net.steps) or mark(net))
    q.fit(steep(), [(calm(i)[0].astype(np.float32), Y) for i in range(12)], epochs=1)
    assert made == [0, 5, 10]


def test_data_that_are_not_finite_are_blamed_themselves():
    net, twin = train(session("int8"), 1), train(session("int8"), 2)
    x = X.copy()
    x[2, 3] = np.nan
    batches = [data(seed=1), (x, Y)]
    with pytest.raises(NonFiniteError, match=r"^epoch 0: batch 1: x\[2, 3\] is nan"):
        q.fit(net, batches, epochs=1)
    assert held(net) == held(twin)


def test_a_net_that_is_broken_already():
    net = steep()
    net.step(*WILD)
    before = held(net)
    with pytest.raises(NonFiniteError, match=r"'0\.weight' is not finite before the first step"):
        q.fit(net, [calm(0)], epochs=1)
    assert held(net) == before
    with pytest.raises(NonFiniteError, match="diverged"):
        q.evaluate(net, *calm(0))


def test_a_validation_that_overflows():
    net = steep()
    wild = (np.full((2, 10), 3e38), Y[:2])
    with pytest.raises(NonFiniteError, match=r"^validation after epoch 0: batch 0: predict: "):
        q.fit(net, [calm(i) for i in range(20)], epochs=1, validation=wild, schedule=lambda *_: 1e7)
    assert (net.steps, net.epochs) == (20, 1)
