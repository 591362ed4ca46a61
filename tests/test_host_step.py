"""However x and y come, a step has the same bits; what the host's step refuses, it refuses before
anything has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn
from pyqfw._core import ffi, lib
from pyqfw.errors import QfwError


def conv_net(batch: int = 4) -> q.Session:
    """Channels are swapped on the way in."""
    model = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(20, 5))
    return q.Session(
        q.compile(
            model,
            input_shape=(3, 5),
            loss=nn.CrossEntropyLoss(),
            optimizer=q.optim.SGD(lr=0.1, momentum=0.9),
            policy=q.Policy.int8(),
            batch=batch,
        )
    )


def batches(rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 3, 5), dtype=np.float32)
    return x, rng.integers(0, 5, rows, dtype=np.int64)


def lasting(net: q.Session) -> bytes:
    return bytes(net._spaces.lasting())


@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", ">i8", "list"])
def test_labels_of_any_type(rows, dtype):
    x, y = batches(rows)
    expected, net = conv_net(), conv_net()
    given = y.tolist() if dtype == "list" else y.astype(dtype)
    for _ in range(3):
        assert net.step(x, given) == expected.step(x, y.astype(np.int32))
    assert lasting(net) == lasting(expected)


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_rows_in_any_order_of_memory(rows):
    x, y = batches(rows)
    apart, readonly = np.zeros((rows, 3, 10), np.float32), x.copy()
    apart[..., ::2] = x
    readonly.flags.writeable = False
    spread = np.zeros(2 * rows, np.int64)
    spread[::2] = y
    expected = conv_net()
    losses = [expected.step(x, y) for _ in range(2)]
    odd_x, odd_y = (unaligned(part) for part in (x, y))
    ways = [(np.asfortranarray(x), y), (apart[..., ::2], spread[::2]), (readonly, y)]
    ways += [(odd_x, y), (x, odd_y), (odd_x, odd_y), (x, spread[::2])]
    for x_as, y_as in [*ways, (x.astype(np.float64), y), (x.tolist(), y)]:
        net = conv_net()
        assert [net.step(x_as, y_as) for _ in range(2)] == losses
        assert lasting(net) == lasting(expected)


@pytest.mark.parametrize("label", [5, -1, 2**31, 2**32, 2**32 + 1, -(2**63), 2**63 - 1])
def test_a_label_that_is_none(label):
    x, y = batches(4)
    net = conv_net()
    net.step(x, y)
    before, steps = lasting(net), net.steps
    y[2] = label
    with pytest.raises(QfwError, match=rf"y\[2\] is {label}: labels must be 0 to 4"):
        net.step(x, y)
    assert lasting(net) == before
    assert net.steps == steps


def test_an_ignored_label_as_int64():
    x, y = batches(4)
    y[1] = -100
    a, b = conv_net(), conv_net()
    assert a.step(x, y) == b.step(x, y.astype(np.int32))
    assert lasting(a) == lasting(b)


def unaligned(array):
    """The same numbers at an odd address."""
    room = np.empty(array.nbytes + 1, np.uint8)[1:]
    copy = room.view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert not copy.flags.aligned
    return copy


def test_statuses():
    net = conv_net()
    x, y = (ffi.from_buffer(part) for part in batches(4))
    loss, null = ffi.new("float *"), ffi.NULL
    step, before = lib.qfw_host_step, lasting(net)
    assert step(net._net, null, x, y, 4, loss) == lib.QFW_E_NULL
    assert step(net._net, net._wide, null, y, 4, loss) == lib.QFW_E_NULL
    assert step(net._net, net._wide, x, null, 4, loss) == lib.QFW_E_NULL
    assert step(null, net._wide, x, y, 4, loss) == lib.QFW_E_NULL
    assert step(net._net, net._wide, x, y, 4, null) == lib.QFW_E_NULL
    assert step(net._net, net._wide, x, y, 5, loss) == lib.QFW_E_ROWS
    assert step(net._net, net._wide, x, y, 0, loss) == lib.QFW_E_ROWS
    without = ffi.new("qfw_host_feed *", net._wide[0])
    without.swapped = null
    assert step(net._net, without, x, y, 4, loss) == lib.QFW_E_NULL
    assert lasting(net) == before
    assert step(net._net, net._wide, x, y, 4, loss) == lib.QFW_OK


def test_the_float_mode_is_put_back():
    net = conv_net()
    x, y = batches(4)
    found = []
    for mode in (0x1F80, 0x9FC0):  # flush to zero, and denormals are zeros
        before = lib.qfw_host_float_enter()
        lib.qfw_host_float_leave(mode)
        net.step(x, y)
        found.append(lib.qfw_host_float_enter())
        lib.qfw_host_float_leave(before)
    assert found in ([0x1F80, 0x9FC0], [0, 0])  # or a machine without such a mode
