"""How fit ends early: what it refuses, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from session_helpers import BATCH, data, held, model, session, train
from test_session_errors import BAD_X, BAD_Y, X, Y

import pyqfw as q
from pyqfw.errors import DTypeError, QfwError, ShapeError


@pytest.fixture(autouse=True)
def interruptible():
    """A process that was started in the background may ignore SIGINT, and so would its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
