"""The state of a net as bytes: docs/format.md section 10, in Python and in C."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plan_net import aligned
from state_helpers import Device, small, trained
from stepgold import NETWORKS, ROWS

import pyqfw as q
from pyqfw import quant, saving, state
from pyqfw._core import ffi, lib
from pyqfw.state import State

SOME = State(0x11223344, 0x55667788, bytes(range(16)), 3, 2, 0.5, 1, True, 7, 0x99AABBCC)
GOLDEN = (
    "51465753 0100 4000 07000000 44332211 88776655 ccbbaa99 10000000 88e2cece"
    "03000000 02000000 0000003f 01000000 01000000 00000000 00000000 502cff0e"
    "000102030405060708090a0b0c0d0e0f"
)


@pytest.fixture(autouse=True)
def _float_mode() -> Any:
    with quant.float_mode():
        yield


# ---- bytes ---------------------------------------------------------------------------------------


def test_golden_bytes() -> None:
    data = bytes.fromhex(GOLDEN)
    assert state.encode(SOME).hex() == data.hex()
    assert state.decode(data) == SOME
    assert state.decode(data + b"\xff" * 48) == SOME  # a slot that was read back


def test_the_header_is_that_of_c() -> None:
    data = state.encode(SOME)
    h = ffi.from_buffer("qfw_state_header *", data)
    assert (ffi.sizeof("qfw_state_header"), h.magic) == (state.HEADER_BYTES, lib.QFW_STATE_MAGIC)
    assert (h.version, h.header_bytes) == (lib.QFW_STATE_VERSION, state.HEADER_BYTES)
    assert (h.sequence, h.plan_crc, h.const_crc) == (7, SOME.plan_crc, SOME.const_crc)
    assert (h.origin, h.payload_bytes, h.gradients, h.crc) == (SOME.origin, 16, 1, SOME.crc)
    fields = [name for name, _ in ffi.typeof("qfw_progress").fields]
    assert fields == list(saving.PROGRESS)
    assert [getattr(h.progress, name) for name in fields] == [3, 2, 0.5, 1]


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 79])
def test_what_is_cut_is_refused(cut: int) -> None:
    with pytest.raises(q.QfwError, match="state: "):
        state.decode(state.encode(SOME)[:cut])


def test_every_bit_counts() -> None:
    data = state.encode(SOME)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(q.QfwError, match="state: "):
            state.decode(bytes(flipped))


def test_fields_that_are_not_known_are_refused() -> None:
    for at in (48, 52, 56):
        data = bytearray(state.encode(SOME))
        data[at] = 2
        data[60:64] = struct.pack("<I", zlib.crc32(data[:60]))
        with pytest.raises(q.QfwError, match="does not know"):
            state.decode(bytes(data))


def area(first: int | None, second: int | None) -> bytes:
    """Two slots of 128 bytes, with a state of that number or nothing."""
    made = (b"" if n is None else state.encode(replace(SOME, sequence=n)) for n in (first, second))
    return b"".join(data.ljust(128, b"\xff") for data in made)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (None, None, None),
        (5, None, 5),
        (None, 5, 5),
        (5, 6, 6),
        (6, 5, 6),
        (2**32 - 1, 0, 0),
        (0, 2**32 - 1, 0),
        (4, 4, 4),
    ],
)
def test_the_newer_of_two_slots(
    first: int | None, second: int | None, expected: int | None
) -> None:
    found = state.newest(area(first, second), 128)
    assert (None if found is None else found.sequence) == expected


# ---- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_a_session_goes_on_from_its_state(name: str) -> None:
    network = NETWORKS[name]
    net = trained(network)
    made = state.of(net)
    twin = net.recompile()
    state.into(twin, state.decode(state.encode(made)))
    assert state.of(twin) == made
    x, y = network.data(2, ROWS[2])
    assert twin.step(x, y) == net.step(x, y)
    assert state.of(twin) == state.of(net)
    np.testing.assert_array_equal(twin.predict(x), net.predict(x))


@pytest.mark.parametrize("name", ["int8_momentum", "int8_fused", "micro_batches", "norms_int8"])
@pytest.mark.parametrize("backwards", [1, 2, 3])
def test_gradients_that_wait_go_along(name: str, backwards: int) -> None:
    """In the middle of a step, and before its update."""
    network = NETWORKS[name]
    net = trained(network)
    x, y = network.data(2, net.plan.rows)
    for _ in range(min(backwards, net.plan.micro_batches)):
        net.forward(x)
        net.backward(y)
    twin = net.recompile()
    state.into(twin, state.of(net))
    for one in (net, twin):
        one.update()
    assert state.of(twin) == state.of(net)
    assert net.steps == 3


def test_a_session_stays_as_it_was_if_a_state_is_refused() -> None:
    net = trained(NETWORKS["frozen_layer"])
    before = state.of(net)
    foreign = {
        "another plan": replace(before, plan_crc=before.plan_crc ^ 1),
        "another plan than": replace(before, lasting=before.lasting[:-16]),
        "frozen parameters": replace(before, const_crc=before.const_crc ^ 1),
        "scale": replace(before, lr=float("nan")),
        "rows": replace(before, micro=1),
    }
    for words, other in foreign.items():
        with pytest.raises(q.QfwError, match=words):
            state.into(net, other)
        assert state.of(net) == before
    net.step(*NETWORKS["frozen_layer"].data(2, 4))


def test_counters_go_on_counting() -> None:
    network = NETWORKS["int8_momentum"]
    net = trained(network)
    net.count()
    net.step(*network.data(2, 4))
    once = net.counters()["0.weight"].written
    state.into(net, state.of(net))
    net.step(*network.data(2, 4))
    assert net.counters()["0.weight"].written == 2 * once > 0


def test_gains_are_those_of_the_state() -> None:
    network = NETWORKS["hindsight"]
    net = trained(network)
    fresh = network.session()
    beginning = state.of(fresh)
    state.into(fresh, state.of(net))
    x, _ = network.data(2, 4)
    np.testing.assert_array_equal(fresh.predict(x), net.predict(x))
    state.into(fresh, beginning)
    with pytest.raises(q.QfwError, match="is not known yet"):
        fresh.predict(x)


# ---- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_a_net_opens_with_its_state(name: str) -> None:
    network = NETWORKS[name]
    net = trained(network)
    device = Device(net)
    assert device.open() == "OK"
    made = state.of(net)
    end = 128 + len(made.lasting)
    assert device.net.arena[128:end].tobytes() == made.lasting
    assert not device.net.arena[end:].any()
    assert device.net.progress() == (made.step, made.updates, made.lr)
    x, y = network.data(2, 1)
    status, loss = device.step(x, y)
    if status != "BATCH":  # a row has no variance
        assert (status, loss) == ("OK", net.step(x, y))


def test_any_bit_that_flips_is_a_status() -> None:
    """Of the plan, the constants and the state: never a net, never a fault."""
    device = Device(small())
    assert device.open() == "OK"
    const = device.net.constants[: device.net.image.const_bytes]
    for part in (device.net.bytes, const, device.record):
        assert part.size > 0
        for bit in range(8 * part.size):
            part[bit // 8] ^= 1 << bit % 8
            assert device.open() in ("MAGIC", "VERSION", "SIZE", "CRC", "STATE")
            part[bit // 8] ^= 1 << bit % 8
    assert device.open() == "OK"


def test_a_state_may_lie_anywhere_and_have_more_behind_it() -> None:
    net = small()
    device, record = Device(net), state.encode(state.of(net))
    room = aligned(len(record) + 32)
    for shift in range(17):
        room[shift : shift + len(record)] = np.frombuffer(record, np.uint8)
        device.net.image.state = ffi.from_buffer(room[shift:])
        for more in (0, 1, 15):
            device.net.image.state_bytes = len(record) + more
            assert device.open() == "OK"


def test_a_state_that_is_cut_is_refused() -> None:
    net = small()
    device, record = Device(net), state.encode(state.of(net))
    for size in range(len(record)):
        device.use(record[:size] or b"\0")
        device.net.image.state_bytes = size
        assert device.open() == "SIZE"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"plan_crc": 1}, "STATE"),
        ({"const_crc": 1}, "STATE"),
        ({"lasting": b""}, "STATE"),
        ({"lr": -1.0}, "SCALE"),
        ({"lr": float("inf")}, "SCALE"),
        ({"micro": 1}, "ROWS"),
        ({"sequence": 2**32 - 1}, "OK"),
        ({"origin": 1}, "OK"),
        ({"step": 2**32 - 1, "updates": 2**32 - 1}, "OK"),
    ],
)
def test_a_whole_state_of_something_else(change: dict[str, Any], expected: str) -> None:
    net = small()
    device = Device(net)
    device.use(state.encode(replace(state.of(net), **change)))
    assert device.open() == expected


def test_a_state_that_is_refused_leaves_the_arena_alone() -> None:
    device = Device(small())
    device.record[70] ^= 1
    assert device.open() == "CRC"
    assert (device.net.arena == 0xA5).all()


def test_hostile_numbers_in_a_whole_state_end_in_a_status() -> None:
    """Codes, scales and floats of any bits: the net opens, and its steps do not go astray."""
    rng = np.random.default_rng(1)
    for name in (
        "int8_momentum",
        "hindsight",
        "batch_norm_full_sym",
        "adamw",
        "joined_zero_points",
    ):
        net = trained(NETWORKS[name])
        device, made = Device(net), state.of(net)
        x, y = NETWORKS[name].data(2, 4)
        for _ in range(20):
            noise = rng.integers(0, 256, len(made.lasting), np.uint8).tobytes()
            device.use(state.encode(replace(made, lasting=noise)))
            assert device.open() == "OK"
            assert device.step(x, y)[0] in (
                "OK",
                "SCALE",
                "RANGE",
                "NONFINITE",
                "ZERO_POINT",
            )


def test_bad_calls_on_a_device() -> None:
    device = Device(small())
    size = device.net.arena.size
    assert device.net.open(aligned(size - 1)) == "ARENA"
    assert device.net.open(aligned(size + 16)[8:]) == "ARENA"
    assert device.open() == "OK"
    x, y = np.zeros((2, 3), np.float32), np.zeros(2, np.int32)
    assert device.net.step(x, y, 2)[0] == "ROWS"
    assert device.net.step(x, y, 0)[0] == "ROWS"
    y[0] = 8
    assert device.net.step(x, y, 1)[0] == "LABEL"
