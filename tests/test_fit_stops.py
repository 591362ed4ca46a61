"""How fit ends early: what it refuses, Ctrl-C, and numbers that break."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from session_helpers import BATCH, CLASSES, data, held, model, session, train
from test_session_errors import BAD_X, BAD_Y, X, Y, changed

import pyqfw as q
from pyqfw import _rewind, nn, optim
from pyqfw._batches import permutation
from pyqfw.errors import DTypeError, NonFiniteError, QfwError, ShapeError

# --- what it refuses ------------------------------------------------------------------------------


def refused(call, kind, message, policy="int8"):
    """Before anything is trained; and the net is as it was."""
    net = train(session(policy))
    before = held(net)
    with pytest.raises(kind, match=message) as caught:
        call(net)
    assert type(caught.value) is kind
    assert held(net) == before
    assert net.epochs == 0


@pytest.mark.parametrize("case", BAD_X)
def test_bad_x(case):
    x, kind, message = BAD_X[case]
    if x is None:
        kind, message = DTypeError, "x must be .* real numbers"
    refused(lambda net: q.fit(net, x, Y, epochs=1), kind, message)
    refused(lambda net: q.evaluate(net, x, Y), kind, message)
    both = f"^validation: .*{message}"
    refused(lambda net: q.fit(net, X, Y, epochs=1, validation=(x, Y)), kind, both)
    refused(lambda net: q.fit(net, [(x, Y)], epochs=1), kind, f"^epoch 0: batch 0: .*{message}")


@pytest.mark.parametrize("case", [case for case in BAD_Y if case != "None"])
def test_bad_y(case):
    y, kind, message = BAD_Y[case]
    refused(lambda net: q.fit(net, X, y, epochs=1), kind, message)
    refused(lambda net: q.evaluate(net, X, y), kind, message)
    both = f"^validation: .*{message}"
    refused(lambda net: q.fit(net, X, Y, epochs=1, validation=(X, y)), kind, both)
    refused(lambda net: q.fit(net, [(X, y)], epochs=1), kind, f"^epoch 0: batch 0: .*{message}")


def generator():
    yield X, Y


BAD_DATA = {
    "no rows": ((X[:0], Y[:0]), ShapeError, "x has no rows"),
    "lengths": ((X, Y[:-1]), ShapeError, r"y must have the shape \(8,\), .*not \(7,\)"),
    "no y": ((X,), QfwError, "y is missing: x is an array"),
    "a number": ((3,), QfwError, "x must be an array, or an iterable of batches .*not 3"),
    "a function": ((generator,), QfwError, "x must be an array, or an iterable of batches"),
    "no batches": (([],), QfwError, "x gave no batch"),
    "triples": (([(X, Y, Y)],), QfwError, r"batch 0: .* must be a pair \(x, y\), not a tuple"),
    "rows": (([X, X],), QfwError, r"batch 0: .* must be a pair \(x, y\), not a ndarray"),
    "a dict": (({"x": X, "y": Y},), QfwError, "batch 0: .* not a str"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(case):
    given, kind, message = BAD_DATA[case]
    refused(lambda net: q.fit(net, *given, epochs=1), kind, message)
    refused(lambda net: q.evaluate(net, *given), kind, message)
    if len(given) == 1:
        fit = {"epochs": 1, "validation": given[0]}
        net = session("int8")
        with pytest.raises(kind, match=f"^validation.*{message}"):
            q.fit(net, X, Y, **fit)


def test_evaluate_no_rows_at_all():
    refused(lambda net: q.evaluate(net, [(X[:0], Y[:0])]), QfwError, "x has no rows")


def test_an_iterator_is_not_good_for_two_epochs():
    message = r"x is a one-shot iterator \(generator\), and there are 2 passes"
    refused(lambda net: q.fit(net, generator(), epochs=2), QfwError, message)
    message = "^validation: x is a one-shot iterator"
    call = {"epochs": 2, "validation": generator()}
    refused(lambda net: q.fit(net, X, Y, **call), QfwError, message)


class Once:
    """Looks like a loader, and is spent after a pass."""

    def __init__(self):
        self._items = generator()

    def __iter__(self):
        return self._items


def test_an_iterator_in_disguise():
    net = session("int8")
    with pytest.raises(QfwError, match=r"^epoch 1: x gave no batch: .* only once"):
        q.fit(net, Once(), epochs=2)
    assert (net.steps, net.epochs) == (1, 1)


def test_a_batch_that_is_too_large():
    large = data(BATCH + 1)
    message = "^epoch 0: batch 0: x has 9 rows: the plan takes 1 to 8"
    refused(lambda net: q.fit(net, [large], epochs=1), ShapeError, message)
    net, twin = train(session("int8"), 1), train(session("int8"), 2)
    with pytest.raises(ShapeError, match=r"^epoch 0: batch 1: x has 9 rows"):
        q.fit(net, [data(seed=1), large], epochs=1)
    assert held(net) == held(twin)  # what came before is trained
    assert set(q.evaluate(net, [large])) == {"loss", "accuracy"}


BAD_ARGUMENTS = {
    "epochs": (-1, "epochs must be 0"),
    "shuffle": ("yes", "shuffle must be True or False, not 'yes'"),
    "schedule": (0.1, "schedule must be a callable .*not 0.1"),
    "patience": (0, "patience must be 1"),
    "callbacks": ([print, 3], r"callbacks\[1\] must be callable \(net, history\), not 3"),
    "validation": (3, "validation: x must be an array, or an iterable of batches"),
    "progress": ("bar", "progress must be None, True or False"),
}
MORE_BAD_ARGUMENTS = [
    ("epochs", 1.0, "epochs must be an integer"),
    ("epochs", None, "epochs must be an integer"),
    ("patience", 1.5, "patience must be an integer"),
    ("callbacks", print, r"callbacks must be a list of callables: write \[<built-in"),
    ("callbacks", None, "callbacks must be a list of callables, not None"),
    ("validation", X, "validation: y is missing"),
    ("validation", (X, None), "validation: y is missing"),
    ("schedule", lambda base, epoch: -1, r"schedule\(0.1, 0\): .*lr must be 0 or a positive"),
    ("schedule", lambda base, epoch: None, r"schedule\(0.1, 0\): .*not None"),
]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [(name, *rest) for name, rest in BAD_ARGUMENTS.items()] + MORE_BAD_ARGUMENTS,
)
def test_bad_arguments(name, value, message):
    refused(lambda net: q.fit(net, X, Y, **{"epochs": 1, name: value}), QfwError, message)


def test_nets_that_cannot_learn():
    for net in (None, model(), session().plan):
        with pytest.raises(QfwError, match=r"fit needs a q\.Session, not"):
            q.fit(net, X, Y, epochs=1)
        with pytest.raises(QfwError, match=r"evaluate needs a q\.Session, not"):
            q.evaluate(net, X, Y)
    net = session(loss=None, optimizer=None)
    with pytest.raises(QfwError, match="fit: this plan was compiled without a loss"):
        q.fit(net, X, Y, epochs=1)
    with pytest.raises(QfwError, match="evaluate: this plan was compiled without a loss"):
        q.evaluate(net, X, Y)
    net = session(optimizer=None)
    with pytest.raises(QfwError, match="fit: this plan was compiled without an optimizer"):
        q.fit(net, X, Y, epochs=1)
    assert set(q.evaluate(net, X, Y)) == {"loss", "accuracy"}


# --- Ctrl-C ---------------------------------------------------------------------------------------

CHILD = """
import sys, numpy as np, pyqfw as q
from pyqfw import nn
rng = np.random.default_rng(0)
x, y = rng.normal(size=(64 * 40, 64)).astype(np.float32), rng.integers(0, 10, 64 * 40)
def make():
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return q.Session(q.compile(layers, input_shape=64, loss=nn.CrossEntropyLoss(), batch=64,
                               optimizer=q.optim.SGD(0.05, momentum=0.9), policy=q.Policy.int8()))
def state(net):
    return {n: bytes(net.tensor(n).data) for n in ("0.weight", "2.bias", "0.weight:momentum")}
net = make()
def ready(net, history):
    if len(history) == 1:
        print("ready", flush=True)
"""
CLEAN = """
history = q.fit(net, x, y, epochs=10**6, callbacks=[ready])
assert history.stopped == "interrupted", history
assert len(history) == net.epochs >= 1
assert 0 <= net.steps - 40 * net.epochs < 40, (net.steps, net.epochs)
twin = make()
while twin.epochs < net.epochs:
    q.fit(twin, x, y, epochs=1)
from pyqfw._batches import permutation
order = permutation(len(x), 0, net.epochs)
for i in range(net.steps - twin.steps):
    rows = order[64 * i : 64 * i + 64]
    twin.step(x[rows], y[rows])
assert state(net) == state(twin)
q.fit(net, x, y, epochs=1)
import signal
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print("done", repr(history), flush=True)
"""
STUBBORN = """
import time
def hang(net, history):
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
try:
    q.fit(net, x, y, epochs=10, callbacks=[hang])
except KeyboardInterrupt:
    assert (net.steps, net.epochs) == (40, 1)
    q.fit(net, x, y, epochs=1)
    print("done", flush=True)
"""


def child(tmp_path, program, signals):
    run = [sys.executable, "-W", "error", "-c", CHILD + program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(run, cwd=tmp_path, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            for _ in range(signals):
                time.sleep(0.1)
                process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (err, process.returncode) == ("", 0)
    return out


def test_ctrl_c_in_a_process(tmp_path):
    """The net has done whole steps, and nothing but steps; it goes on."""
    out = child(tmp_path, CLEAN, 1)
    assert out.startswith("done <History ")
    assert out.endswith("stopped: interrupted>\n")


def test_a_second_ctrl_c(tmp_path):
    assert child(tmp_path, STUBBORN, 2) == "done\n"


def press(*_):
    os.kill(os.getpid(), signal.SIGINT)


def feed_and_press():
    for i in range(10):
        if i == 3:
            press()
        yield data(seed=i)


def test_ctrl_c_between_steps():
    net, twin = session("int8"), train(session("int8"), 3)
    history = q.fit(net, feed_and_press(), epochs=1)
    assert (history.stopped, len(history), net.steps, net.epochs) == ("interrupted", 0, 3, 0)
    assert held(net) == held(twin)


@pytest.mark.parametrize("epochs", [1, 3])
def test_ctrl_c_in_a_callback_ends_after_the_epoch(epochs):
    net = session("int8")
    history = q.fit(net, X, Y, epochs=epochs, callbacks=[press])
    assert (history.stopped, len(history), net.epochs) == ("interrupted", 1, 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_callers_own_stays(monkeypatch):
    seen = []
    before = signal.signal(signal.SIGINT, lambda *args: seen.append(1))
    try:
        mine = signal.getsignal(signal.SIGINT)
        history = q.fit(session("int8"), X, Y, epochs=2, callbacks=[press])
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)
    assert (history.stopped, seen) == (None, [1, 1])


def test_a_handler_that_a_callback_sets_stays():
    def mine(*_):
        raise AssertionError

    try:
        q.fit(
            session(),
            X,
            Y,
            epochs=1,
            callbacks=[lambda *_: signal.signal(signal.SIGINT, mine) and 0],
        )
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_in_another_thread():
    net, twin = session("int8"), session("int8")
    thread = threading.Thread(target=q.fit, args=(net, X, Y), kwargs={"epochs": 2})
    thread.start()
    thread.join()
    q.fit(twin, X, Y, epochs=2)
    assert held(net) == held(twin)


# --- numbers that break ---------------------------------------------------------------------------


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


@pytest.mark.parametrize("wild", [0, 1])
def test_batches_that_are_written_over(wild):
    """A loader with one buffer: the steps cannot be repeated, and that is said."""
    buffer = np.empty((BATCH, 10), np.float32)

    def stream():
        for i in range(5):
            buffer[:] = WILD[0] if i == 3 else calm(i)[0]
            yield buffer, Y
        buffer[:] = WILD[0] * wild

    net = steep()
    before = held(net)
    message = broken(net, stream(), epochs=1)
    assert "batch 4: a value in the network is not finite" in message
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
    batches = [data(seed=1), (changed(X, (2, 3), np.nan), Y)]
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
