"""fit, evaluate and History: the steps of a loop by hand, in an order that the oracle knows."""

import copy
import fcntl
import json
import os
import pickle
import pty
import struct
import subprocess
import sys
import termios
import threading
import zlib
from itertools import islice

import numpy as np
import oracle
import pytest
from session_helpers import BATCH, CLASSES, INPUTS, POLICIES, data, held, session

import pyqfw as q
from pyqfw import nn
from pyqfw.errors import QfwError

ROWS = 3 * BATCH + 5  # the last batch is short
X, Y = data(ROWS)
XT, YT = data(13, seed=1)


def order(n, seed, epoch):
    """docs/numerics.md section 18, in Python integers."""
    key = oracle.key(seed, epoch, zlib.crc32(b"fit:order"))
    return sorted(range(n), key=lambda i: (oracle.draw(key, i), i))


def batches(x=X, y=Y, size=BATCH, rows=None):
    rows = list(range(len(x))) if rows is None else rows
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [(x[part], y[part]) for part in parts]


def by_hand(net, epochs, seed=0):
    """Mean losses of the epochs."""
    means = []
    for epoch in range(epochs):
        losses = [(net.step(x, y), len(x)) for x, y in batches(rows=order(ROWS, seed, epoch))]
        means.append(sum(loss * n for loss, n in losses) / ROWS)
    return means


# --- the steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_bits_as_by_hand(policy):
    net, twin = session(policy, seed=5), session(policy, seed=5)
    history = q.fit(net, X, Y, epochs=3)
    assert history.loss == by_hand(twin, 3, seed=5)
    assert held(net) == held(twin)
    assert (net.steps, net.epochs, len(history)) == (12, 3, 3)


def test_more_steps_than_a_copy_serves():
    x, y = data(300 * BATCH - 1)
    net, twin = session("int8"), session("int8")
    q.fit(net, x, y, epochs=1, shuffle=False)
    for batch in batches(x, y):
        twin.step(*batch)
    assert held(net) == held(twin)
    assert net.steps == 300


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("policy", ["float32", "int8 fused"])
def test_validation_and_looking_change_nothing(policy, shuffle):
    net, twin = session(policy), session(policy)
    arguments = {"epochs": 2, "shuffle": shuffle}
    q.fit(net, X, Y, validation=(XT, YT), callbacks=[lambda net, _: net.predict(X)], **arguments)
    q.fit(twin, X, Y, **arguments)
    assert held(net) == held(twin)


def test_the_order_depends_on_seed_and_epoch_alone():
    seen = [order(ROWS, seed, epoch) for seed in (0, 1, 2**32 - 1) for epoch in (0, 1, 7)]
    assert len({tuple(o) for o in seen}) == len(seen)
    assert all(sorted(o) == list(range(ROWS)) for o in seen)


def test_a_run_in_pieces_is_the_run():
    whole, pieces = session("int8"), session("int8")
    history = q.fit(whole, X, Y, epochs=5)
    parts = [q.fit(pieces, X, Y, epochs=n) for n in (2, 0, 3)]
    assert held(whole) == held(pieces)
    assert [v for part in parts for v in part.loss] == history.loss
    again = pieces.recompile(batch=BATCH)
    assert again.epochs == 5
    q.fit(again, X, Y, epochs=1)
    q.fit(whole, X, Y, epochs=1)
    assert held(again)["0.weight"] == held(whole)["0.weight"]
    assert pieces.recompile(optimizer=q.optim.SGD(0.2)).epochs == 0


def test_what_arrays_may_be():
    expected = session("int8")
    q.fit(expected, X, Y, epochs=2)
    forms = [
        (X.tolist(), Y.tolist()),
        (X.astype(np.float64), Y.astype(np.uint8)),
        (np.asfortranarray(X), Y[::-1][::-1]),
        (memoryview(X), memoryview(Y)),
    ]
    for x, y in forms:
        net = session("int8")
        q.fit(net, x, y, epochs=2)
        assert held(net) == held(expected)


class Loader:
    """Something that can be iterated again, and may have no length."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class Sequence:
    """The old protocol."""

    def __getitem__(self, i):
        return batches()[i]


@pytest.mark.parametrize("make", [list, Loader, lambda items: Sequence(), tuple])
def test_iterables_of_batches(make):
    net, twin = session("int8"), session("int8")
    history = q.fit(net, make(batches()), epochs=2, validation=make(batches()))
    expected = q.fit(twin, X, Y, epochs=2, shuffle=False, validation=(X, Y))
    assert held(net) == held(twin)
    assert (history.loss, history.val_loss) == (expected.loss, expected.val_loss)
    assert net.epochs == 2


def test_an_iterator_is_good_for_one_epoch():
    net, twin = session("int8"), session("int8")
    q.fit(net, (list(b) for b in batches()), epochs=1)
    q.fit(twin, X, Y, epochs=1, shuffle=False)
    assert held(net) == held(twin)
    q.fit(net, islice(iter(batches()), 2), epochs=1)
    assert net.steps == 6


# --- schedule, callbacks, patience ----------------------------------------------------------------


def test_a_schedule_sets_lr_at_the_beginning_of_an_epoch():
    asked = []

    def schedule(base, epoch):
        asked.append((base, epoch))
        return base / (1 + epoch)

    net, twin = session("float32"), session("float32")
    q.fit(net, X, Y, epochs=1)
    history = q.fit(net, X, Y, epochs=3, schedule=schedule)
    assert asked == [(0.1, 1), (0.1, 2), (0.1, 3)]
    assert history.lr == [0.05, 0.033333335, 0.025]
    assert net.lr == 0.025
    for epoch in range(4):
        twin.lr = 0.1 / (1 + epoch)
        for batch in batches(rows=order(ROWS, 0, epoch)):
            twin.step(*batch)
    assert held(net) == held(twin)


def test_without_a_schedule_lr_stays_what_it_is():
    net = session("float32")
    net.lr = 0.01

    def halve(net, history):
        net.lr = net.lr / 2

    assert q.fit(net, X, Y, epochs=3, callbacks=[halve]).lr == [0.01, 0.005, 0.0025]
    assert net.lr == 0.00125


def test_callbacks_see_the_epoch_and_may_stop():
    seen = []

    def look(net, history):
        seen.append((net.epochs, len(history), len(history.val_loss), net.steps))
        return 1  # not True

    def stop(net, history):
        return len(history) == 2

    net = session("int8")
    history = q.fit(net, X, Y, epochs=9, validation=(XT, YT), callbacks=(stop, look))
    assert seen == [(1, 1, 1, 4), (2, 2, 2, 8)]
    assert (history.stopped, len(history), net.epochs) == ("callback", 2, 2)


def test_a_callback_that_raises_leaves_a_good_net():
    def fail(net, history):
        raise RuntimeError("mine")

    net, twin = session("int8"), session("int8")
    with pytest.raises(RuntimeError, match=r"^mine$"):
        q.fit(net, X, Y, epochs=3, callbacks=[fail])
    q.fit(twin, X, Y, epochs=1)
    assert held(net) == held(twin)
    assert q.fit(net, X, Y, epochs=1).loss == q.fit(twin, X, Y, epochs=1).loss


@pytest.mark.parametrize("validation", [None, (XT, YT)])
def test_patience(validation):
    """Nothing improves where nothing moves: the first epoch sets the mark."""
    net = session("float32", optimizer=q.optim.SGD(0.0))
    history = q.fit(net, X, Y, epochs=9, shuffle=False, patience=3, validation=validation)
    assert (len(history), history.stopped) == (4, "patience")
    assert history.loss == history.loss[:1] * 4
    lrs = iter([0.1, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0])
    net = session("float32")
    judged = {"shuffle": False, "validation": (X, Y), "schedule": lambda base, epoch: next(lrs)}
    history = q.fit(net, X, Y, epochs=7, patience=3, **judged)
    losses = history.val_loss
    assert losses[0] == losses[1] == losses[2] > losses[3] == losses[6]
    assert (len(history), history.stopped) == (7, "patience")
    assert q.fit(net, X, Y, epochs=2, patience=3).stopped is None


# --- History --------------------------------------------------------------------------------------


def test_history():
    history = q.fit(session("int8"), X, Y, epochs=3, validation=(XT, YT))
    lists = history.to_dict()
    assert list(lists) == ["loss", "lr", "seconds", "val_loss", "val_accuracy"]
    assert all(len(values) == 3 for values in lists.values())
    assert all(type(v) is float for values in lists.values() for v in values)
    assert min(history.seconds) > 0
    assert json.loads(json.dumps(lists)) == lists
    assert lists["val_accuracy"] == history.val_accuracy
    lists["loss"].clear()
    assert len(history) == len(history.loss) == 3
    for same in (copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert same.to_dict() == history.to_dict()
    best = int(np.argmin(history.val_loss))
    text = repr(history)
    assert text.startswith(f"<History 3 epochs, loss {history.loss[-1]:.4g}, val_loss")
    assert f"best val_loss[{best}] {history.val_loss[best]:.4g}" in text


def test_histories_with_less_in_them():
    net = session("int8")
    history = q.fit(net, X, Y, epochs=1, callbacks=[lambda net, history: True])
    assert repr(history).startswith("<History 1 epoch, loss ")
    assert repr(history).endswith(" s, stopped: callback>")
    with pytest.raises(AttributeError, match=r"'val_loss': there was no validation"):
        history.val_loss  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no 'losses'$"):
        history.losses  # noqa: B018
    empty = q.fit(net, X, Y, epochs=0)
    assert (repr(empty), len(empty), empty.stopped) == ("<History 0 epochs>", 0, None)
    assert empty.to_dict() == {"loss": [], "lr": [], "seconds": []}
    assert net.epochs == 1


# --- evaluate -------------------------------------------------------------------------------------


def expected_metrics(net, x, y):
    """Row by row, in longer floats."""
    z = net.predict(x).astype(np.longdouble)
    losses = [np.log(np.sum(np.exp(row - row[label]))) for row, label in zip(z, y, strict=True)]
    right = [list(row).index(max(row)) == label for row, label in zip(z, y, strict=True)]
    return {"loss": float(np.mean(losses)), "accuracy": sum(right) / len(y)}


@pytest.mark.parametrize("policy", ["float32", "full_sym", "int8"])
def test_evaluate(policy):
    net = session(policy)
    q.fit(net, X, Y, epochs=2)
    before = held(net)
    x, y = data(2500, seed=3)  # several chunks
    for found in (q.evaluate(net, x, y), q.evaluate(net, batches(x, y, 999))):
        expected = expected_metrics(net, x, y)
        assert list(found) == ["loss", "accuracy"]
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-12)
        assert found["accuracy"] == expected["accuracy"]
    assert held(net) == before
    assert q.evaluate(net, iter(batches(x, y, 1))) == found


def test_evaluate_far_from_zero():
    """Outputs so far apart that exp() has nothing left of them."""
    loss = nn.CrossEntropyLoss()
    z = np.array([[3e38, -3e38], [0, 0], [-1e4, -1e4 + 3]], np.float32)
    found = loss.metrics(z, np.array([1, 0, 1], np.int32))
    rows = [2 * float(np.float32(3e38)), np.log(2), np.log1p(np.exp(-3.0))]
    assert found["loss"] == pytest.approx(np.mean(rows), rel=1e-12)
    assert found["accuracy"] == 2 / 3  # of equals the first counts


def test_validation_is_evaluate():
    net, found = session("int8"), []
    callback = [lambda net, history: found.append(q.evaluate(net, XT, YT))]
    history = q.fit(net, X, Y, epochs=3, validation=(XT, YT), callbacks=callback)
    assert history.val_loss == [f["loss"] for f in found]
    assert history.val_accuracy == [f["accuracy"] for f in found]


# --- the bar --------------------------------------------------------------------------------------


def test_a_bar_that_is_forced(capsys):
    net = session("int8")
    history = q.fit(net, X, Y, epochs=3, validation=(XT, YT), progress=True)
    out, err = capsys.readouterr()
    last = err.split("\r")[-1]
    assert out == ""
    assert "epoch 3/3: 100%" in last
    assert "12/12" in last
    assert f"loss={history.loss[-1]:.4g}" in last
    assert f"val_accuracy={history.val_accuracy[-1]:.4g}" in last
    q.fit(net, Loader(batches()), epochs=2, progress=True)  # no length
    assert "8step" in capsys.readouterr().err.split("\r")[-1]


def test_no_bar_where_nobody_sees_it(capsys):
    net = session("int8")
    for progress in (None, False):
        q.fit(net, X, Y, epochs=1, progress=progress)
        q.evaluate(net, X, Y, progress=progress)
    q.evaluate(net, X, Y, progress=True)  # too quick
    assert capsys.readouterr() == ("", "")


PROGRAM = f"""
import numpy as np, pyqfw as q
from pyqfw import nn
x = np.ones((8, {INPUTS}), np.float32)
plan = q.compile(nn.Linear({INPUTS}, {CLASSES}), input_shape={INPUTS}, loss=nn.CrossEntropyLoss(),
                 optimizer=q.optim.SGD(0.1), batch=4)
q.fit(q.Session(plan), x, [0] * 8, epochs=2)
"""


def test_a_bar_in_a_terminal(tmp_path):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    run = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(run, stderr=theirs, cwd=tmp_path, check=False, timeout=120)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0, shown
    assert "epoch 2/2: 100%" in shown


def test_a_bar_in_a_notebook(monkeypatch, capsys):
    kind = type("OutStream", (), {"isatty": lambda self: False, "__module__": "ipykernel.iostream"})
    stream = kind()
    written = []
    stream.write, stream.flush = written.append, lambda: None
    monkeypatch.setattr(sys, "stderr", stream)
    q.fit(session("int8"), X, Y, epochs=1)
    assert "epoch 1/1" in "".join(written)


def test_no_thread_is_left_behind():
    """A DataLoader may fork: that is no place for a bar's thread."""
    before = threading.enumerate()
    alive = []
    watch = [lambda net, history: alive.append(threading.enumerate())]
    q.fit(session("int8"), X, Y, epochs=1, progress=True, callbacks=watch)
    assert alive == [before]


def test_a_bar_must_be_asked_for_properly():
    with pytest.raises(QfwError, match="progress must be None, True or False, not 1"):
        q.fit(session("int8"), X, Y, epochs=1, progress=1)
