"""Steps whose operands were found once: the bits and the errors of those that find them anew."""

from dataclasses import replace

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn
from pyqfw._core import ffi, lib

POLICIES = ("int8", "full_sym", "float32")
OPTIMIZERS = {
    "SGD": q.optim.SGD(lr=0.05),
    "momentum": q.optim.SGD(lr=0.05, momentum=0.9),
    "AdamW": q.optim.AdamW(lr=0.01),
}


def session(policy="int8", optimizer="momentum", batch=3, **more):
    layers = (
        nn.Conv1d(2, 4, 3, padding=1),
        nn.BatchNorm1d(4),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.LayerNorm(6),
        nn.Linear(6, 5),
    )
    plan = q.compile(
        nn.Sequential(*layers),
        input_shape=(2, 8),
        loss=nn.CrossEntropyLoss(),
        optimizer=OPTIMIZERS[optimizer],
        policy=replace(getattr(q.Policy, policy)(), **more),
        batch=batch,
    )
    return q.Session(plan)


def walking(*args, **more):
    """A session that finds its operands at every step."""
    net = session(*args, **more)
    for feed in (net._plain, net._wide):
        assert feed.bound != ffi.NULL
        feed.bound = ffi.NULL
    return net


def data(rows, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, 2, 8), dtype=np.float32), rng.integers(0, 5, rows)


def same(a, b):
    assert (a._spaces.arena[128:] == b._spaces.arena[128:]).all()
    assert (a.steps, a.lr) == (b.steps, b.lr)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("grads", ["stored", "fused"])
def test_steps(policy, optimizer, grads):
    more = {"grads": "fused"} if grads == "fused" else {}
    a, b = session(policy, optimizer, **more), walking(policy, optimizer, **more)
    for i, rows in enumerate((3, 3, 2, 3, 3)):  # fewer rows are found anew
        if i == 2:
            a.lr = b.lr = 0.01
        assert a.step(*data(rows, i)) == b.step(*data(rows, i))
        same(a, b)
    assert (a.predict(data(3)[0]) == b.predict(data(3)[0])).all()


def test_between_other_walks():
    a, b = session(), walking()
    for net in (a, b):
        net.step(*data(3))
        net.forward(data(3, 1)[0])
        net.step(*data(3, 2))
        net.update()
        net.count()
        net.step(*data(3, 3))
        net.count(False)
        net.step(*data(3, 4))
        list(net.trace(*data(3, 5)))
        net.step(*data(3, 6))
    same(a, b)


def test_a_scale_that_is_none():
    for name in ("0.weight", "5.bias", "6.weight"):
        nets = session(), walking()
        for net in nets:
            net.step(*data(3))
            net._spaces.parts(net.plan.program.kept[name], 1)[1][-1] = -1.0
            with pytest.raises(q.QfwError, match="scale"):
                net.step(*data(3, 1))
            net._spaces.parts(net.plan.program.kept[name], 1)[1][-1] = 0.25
            net.step(*data(3, 2))
        same(*nets)


def test_what_breaks_on_the_way():
    a, b = session(), walking()
    for net in (a, b):
        x, y = data(3)
        net.step(x, y)
        x[1, 0, 3] = np.inf
        with pytest.raises(q.QfwError, match="inf"):
            net.step(x, y)
        with pytest.raises(q.QfwError):
            net.step(data(3)[0], [0, 7, 1])
        net.step(*data(3, 1))
    same(a, b)


def test_several_micro_batches_find_theirs_anew():
    plan = session().plan
    net = q.Session(plan).recompile(batch=6, micro_batches=2)
    assert net._wide.bound == ffi.NULL


def test_statuses():
    net, size = session(), ffi.new("size_t *")
    bind = lib.qfw_host_bind
    assert bind(ffi.NULL, ffi.NULL, net._net, 3) == lib.QFW_E_NULL
    assert bind(ffi.NULL, size, ffi.NULL, 3) == lib.QFW_E_NULL
    assert bind(ffi.NULL, size, net._net, 3) == lib.QFW_OK
    room = np.zeros(size[0] + 128, np.uint8)
    begin = -room.ctypes.data % 64
    held = ffi.from_buffer(room[begin:])
    before = net._spaces.arena.copy()
    assert bind(held + 1, size, net._net, 3) == lib.QFW_E_ARENA
    assert bind(held, size, net._net, 0) == lib.QFW_E_ROWS
    assert bind(held, size, net._net, 4) == lib.QFW_E_ROWS
    size[0] -= 1
    assert bind(held, size, net._net, 3) == lib.QFW_E_ARENA
    assert (net._spaces.arena == before).all()
