"""States in a flash area: whole after any loss of power, refused when they are not this net's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_net import NAMES, aligned
from state_helpers import SECTOR, UNIT, Device, Flash, small, trained
from stepgold import NETWORKS, ROWS

import pyqfw as q
from pyqfw import quant, state
from pyqfw._core import ffi, lib
from pyqfw.state import State

SMALL = small()
ORIGIN = state.of(SMALL).crc
X, Y = np.array([[1.0, -2.0, 0.5]], np.float32), np.array([0], np.int32)
SAMPLES = [(np.roll(X, i) * (i + 1), Y + i % 2) for i in range(6)]


@pytest.fixture(autouse=True)
def _float_mode() -> Any:
    with quant.float_mode():
        yield


def device(opened: bool = True) -> Device:
    made = Device(SMALL)
    if opened:
        assert made.open() == "OK"
    return made


def flash_of(made: Device, **how: Any) -> Flash:
    return Flash(-(-made.slot_bytes() // SECTOR) * SECTOR, **how)


def history() -> list[bytes]:
    """What lasts after 0, 1, 2, ... steps that nothing interrupts."""
    made = device()
    found = [made.lasting]
    for x, y in SAMPLES:
        assert made.step(x, y)[0] == "OK"
        found.append(made.lasting)
    return found


BEFORE = SMALL.steps


def filled(first: int, second: int | None = None, **change: Any) -> Flash:
    """A flash whose slots hold states of so many steps, the second the newer."""
    made, lasting = device(), history()
    flash = flash_of(made)
    known = made.state()
    for slot, steps in enumerate((first, second)):
        if steps is not None:
            one = replace(known, step=BEFORE + steps, lasting=lasting[steps], origin=ORIGIN)
            put(flash, slot, replace(one, sequence=slot + 1, **change))
    return flash


def put(flash: Flash, slot: int, one: State) -> None:
    data = np.frombuffer(state.encode(one), np.uint8)
    flash.slot(slot)[: data.size] = data


# ---- what is stored ------------------------------------------------------------------------------


def test_a_slot_holds_the_bytes_of_the_state() -> None:
    made = device()
    flash = flash_of(made)
    for i, (x, y) in enumerate(SAMPLES):
        assert made.step(x, y)[0] == "OK"
        assert made.store(flash) == "OK"
        expected = replace(made.state(), gradients=True, sequence=i + 1, origin=ORIGIN)
        slot = flash.slot(i % 2).tobytes()
        assert slot == state.encode(expected).ljust(flash.slot_bytes, b"\xff")
        assert state.newest(flash.area.tobytes(), flash.slot_bytes) == expected
    assert flash.faults == []


def test_a_net_without_a_state_has_no_origin() -> None:
    made = device(opened=False)
    made.net.image.state = ffi.NULL
    assert made.open() == "OK"
    flash = flash_of(made)
    assert made.store(flash) == "OK"
    assert state.decode(flash.slot(0).tobytes()).origin == 0
    assert made.resume(flash) == "OK"


@pytest.mark.parametrize("name", NETWORKS)
def test_the_size_of_a_slot(name: str) -> None:
    net = NETWORKS[name].session()
    record = state.encode(state.of(net))
    assert Device(net).slot_bytes() == -(-len(record) // UNIT) * UNIT


@pytest.mark.parametrize("name", NETWORKS)
def test_a_reset_after_every_step_changes_nothing(name: str) -> None:
    """Parameters, statistics, gains, optimizer state, progress: all that lasts is there."""
    network = NETWORKS[name]
    net = trained(network, 1)
    record = state.encode(state.of(net))
    twin = Device(net, record)
    assert twin.open() == "OK"
    flash = flash_of(twin, granule=UNIT)
    for i, rows in enumerate(ROWS):
        x, y = network.data(i, rows)
        loss = net.step(x, y)
        assert twin.step(x, y) == ("OK", loss)
        assert twin.store(flash) == "OK"
        twin = Device(net, record)
        assert twin.open() == "OK"
        assert twin.resume(flash) == "OK"
        assert twin.state() == replace(state.of(net), gradients=False)
    stored = state.newest(flash.area.tobytes(), flash.slot_bytes)
    assert stored is not None
    home = net.recompile()
    state.into(home, stored)
    assert state.of(home) == state.of(net)
    assert flash.faults == []


@pytest.mark.parametrize(
    "name", [n for n in NETWORKS if "micro_batches" in n or n in ("int8_momentum", "int8_fused")]
)
def test_a_reset_between_micro_batches_changes_nothing(name: str) -> None:
    """Gradients that wait are there, before the last micro-batch and before the update."""
    network = NETWORKS[name]
    net = trained(network, 1)
    record = state.encode(replace(state.of(net), gradients=False))
    first = Device(net, record)
    assert first.open() == "OK"
    flash = flash_of(first, granule=UNIT)
    rows = net.plan.rows

    def part(one: Device, i: int) -> None:
        x, y = network.data(i, rows)
        given_x, given_y = net._fed(x), net._asked(y)
        assert one.net.section("forward", rows, x=given_x) == "OK"
        assert one.net.section("backward", rows, y=given_y) == "OK"

    straight, broken = Device(net, record), first
    assert straight.open() == "OK"
    for i in range(net.plan.micro_batches):
        part(straight, i)
        part(broken, i)
        assert broken.store(flash) == "OK"
        broken = Device(net, record)
        assert broken.open() == "OK"
        assert broken.net.section("update", rows) == "ORDER"
        assert broken.resume(flash) == "OK"
        assert broken.state() == straight.state()
    for one in (straight, broken):
        assert one.net.section("update", rows) == "OK"
    assert broken.state() == straight.state()
    assert broken.steps == 2


def test_a_forward_does_not_outlast_a_reset() -> None:
    made = device()
    flash = flash_of(made)
    assert made.net.section("forward", 1, x=X) == "OK"
    assert made.store(flash) == "OK"
    assert made.resume(flash) == "OK"
    assert made.net.section("backward", 1, y=Y) == "ORDER"


# ---- power ---------------------------------------------------------------------------------------


class Training:
    """Steps that are kept one by one, on a flash that fails; each reset checks what is there."""

    def __init__(self, flash: Flash, expected: list[bytes]) -> None:
        self.flash, self.expected = flash, expected
        self.kept = self.tried = 0
        self.left = flash.left

    def boot(self) -> None:
        self.left = self.flash.left
        self.flash.power()
        self.net = device()
        status = self.net.resume(self.flash)
        steps = self.net.steps - BEFORE
        assert status == ("OK" if steps else "EMPTY")
        assert self.kept <= steps <= self.tried
        assert self.net.lasting == self.expected[steps]
        self.kept = steps

    def run(self, left: int) -> bool:
        """Whether it came to the end."""
        self.boot()
        self.flash.power(left)
        for i in range(self.kept, len(SAMPLES)):
            assert self.net.step(*SAMPLES[i])[0] == "OK"
            assert self.net.lasting == self.expected[i + 1]
            self.tried = i + 1
            status = self.net.store(self.flash)
            assert status == ("OK" if self.flash.on else "FLASH")
            if not self.flash.on:
                return False
            self.kept = i + 1
        return True


@pytest.mark.parametrize("nor", [True, False])
@pytest.mark.parametrize("granule", [4, 16, 64])
def test_power_that_fails_at_every_write(nor: bool, granule: int) -> None:
    expected = history()
    for damage in (b"\x00", b"\xff", b"\x5a\xc3\x17"):
        for left in range(10**6):
            training = Training(flash_of(device(), nor=nor, granule=granule), expected)
            training.flash.damage = damage
            ended = training.run(left)
            assert ended or training.run(2**60)
            training.boot()
            assert training.kept == len(SAMPLES)
            assert training.flash.faults == []
            if ended:
                break
        assert left >= len(SAMPLES) * (device().slot_bytes() // granule + nor)


@settings(max_examples=60, deadline=None)
@given(
    lefts=st.lists(st.integers(0, 40), max_size=12),
    damage=st.binary(min_size=1, max_size=9),
    begin=st.binary(min_size=1, max_size=40),
    nor=st.booleans(),
    granule=st.sampled_from([4, 8, 16, 32, 64]),
)
def test_power_that_fails_again_and_again(
    lefts: list[int], damage: bytes, begin: bytes, nor: bool, granule: int
) -> None:
    """On a flash that held something else before."""
    with quant.float_mode():
        flash = flash_of(device(), nor=nor, granule=granule)
        flash.area[:] = np.frombuffer((begin * flash.area.size)[: flash.area.size], np.uint8)
        flash.damage = damage
        training = Training(flash, history())
        for left in lefts:
            if training.run(left):
                break
        assert training.run(2**60)
        training.boot()
        assert training.kept == len(SAMPLES)
        assert flash.faults == []


def test_a_store_that_does_not_read_back_is_an_error() -> None:
    made = device()
    flash = flash_of(made)
    put = flash.put

    def worn(at: int, data: bytes) -> None:
        put(at, bytes([data[0] ^ 1]) + data[1:] if at == 128 else data)

    flash.put = worn  # type: ignore[method-assign]
    assert made.store(flash) == "FLASH"
    assert made.resume(flash) == "EMPTY"
    flash.put = put  # type: ignore[method-assign]
    assert made.store(flash) == "OK"
    assert made.resume(flash) == "OK"
    assert flash.faults == []


# ---- slots of something else ---------------------------------------------------------------------


def test_every_bit_of_a_slot_counts() -> None:
    """The newer slot damaged: the older one; both: the net stays as it was opened."""
    flash, one, lasting = filled(1, 2), device(), history()
    used = len(state.encode(one.state()))
    assert one.resume(flash) == "OK"
    assert one.lasting == lasting[2]
    for bit in range(8 * used):
        flash.slot(1)[bit // 8] ^= 1 << bit % 8
        one.net.arena[128:] = 0x77
        assert one.resume(flash) == "OK"
        assert (one.lasting, one.steps) == (lasting[1], BEFORE + 1)
        flash.slot(0)[bit // 8] ^= 1 << bit % 8
        before = one.net.arena.copy()
        assert one.resume(flash) == "EMPTY"
        np.testing.assert_array_equal(one.net.arena, before)
        flash.slot(0)[bit // 8] ^= 1 << bit % 8
        flash.slot(1)[bit // 8] ^= 1 << bit % 8
    flash.slot(0)[used:] ^= 0xFF  # bytes behind the state are not looked at
    assert one.resume(flash) == "OK"


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0xA5])
def test_an_area_without_a_state(fill: int) -> None:
    one = device()
    flash = flash_of(one, nor=False)
    flash.area[:] = fill
    before = one.net.arena.copy()
    assert one.resume(flash) == "EMPTY"
    np.testing.assert_array_equal(one.net.arena, before)
    assert one.store(flash) == "OK"
    assert one.resume(flash) == "OK"


@pytest.mark.parametrize(
    "change",
    [
        {"plan_crc": 1},
        {"const_crc": 1},
        {"origin": 1},
        {"lasting": bytes(16)},
        {"lr": float("nan")},
        {"lr": -0.5},
        {"micro": 1},
    ],
)
def test_whole_states_of_something_else(change: dict[str, Any]) -> None:
    flash, one = filled(1, 2, **change), device()
    assert one.resume(flash) == "EMPTY"
    put(flash, 0, replace(one.state(), origin=ORIGIN, sequence=9, step=77))
    assert one.resume(flash) == "OK"
    assert one.steps == 77
    assert one.store(flash) == "OK"  # over the foreign one
    assert state.decode(flash.slot(1).tobytes()).sequence == 10


def test_a_net_that_begins_anew_does_not_go_on_from_old_slots() -> None:
    """The same plan exported with other parameters."""
    flash = filled(1, 2)
    other = small()
    other.step(X, Y)
    one = Device(other)
    assert one.open() == "OK"
    assert one.resume(flash) == "EMPTY"
    assert one.steps == other.steps


def test_states_of_other_networks_are_refused() -> None:
    flash = Flash(4096)
    stored = Device(trained(NETWORKS["int8_momentum"]))
    assert (stored.open(), stored.store(flash), stored.store(flash)) == ("OK", "OK", "OK")
    for name in ("int8_fused", "quant_layer", "hindsight", "continued", "single_rows"):
        one = Device(NETWORKS[name].session())
        assert one.open() == "OK"
        before = one.net.arena.copy()
        assert one.resume(flash) == "EMPTY"
        np.testing.assert_array_equal(one.net.arena, before)


def test_constants_that_changed_are_refused() -> None:
    flash, one = filled(1, 2), device()
    one.net.constants[3] ^= 1
    assert one.resume(flash) == "EMPTY"


@pytest.mark.parametrize(
    ("first", "second", "newer"),
    [
        (1, 2, 1),
        (2, 1, 0),
        (0, 2**32 - 1, 0),
        (2**32 - 1, 0, 1),
        (2**32 - 2, 2**32 - 1, 1),
        (2**31 - 1, 2**31, 1),
        (0, 2**31 - 1, 1),
        (0, 2**31 + 1, 0),
        (7, 7, 0),
    ],
)
def test_sequence_numbers_go_round(first: int, second: int, newer: int) -> None:
    flash, one = filled(1, 2), device()
    known = [state.decode(flash.slot(i).tobytes()) for i in range(2)]
    numbers = (first, second)
    for i in range(2):
        put(flash, i, replace(known[i], sequence=numbers[i]))
    found = state.newest(flash.area.tobytes(), flash.slot_bytes)
    assert found is not None
    assert found.step == known[newer].step
    assert one.resume(flash) == "OK"
    assert one.steps == known[newer].step
    assert one.store(flash) == "OK"
    written = state.decode(flash.slot(1 - newer).tobytes())
    assert written.sequence == (numbers[newer] + 1) % 2**32
    assert one.resume(flash) == "OK"


# ---- flash that does not work --------------------------------------------------------------------


def reading(flash: Flash, read: Any) -> Any:
    """Lets the core read so; to be held."""
    made = ffi.callback("int(void *, uint32_t, void *, uint32_t)", flash._guarded(read), error=1)
    flash.c.read = made
    return made


def test_a_slot_that_cannot_be_read_holds_nothing() -> None:
    flash, one = filled(1, 2), device()
    read = flash.read

    def torn(at: int, data: Any, size: int) -> None:
        if at >= flash.slot_bytes + 64:
            raise EOFError("two bits")
        read(at, data, size)

    held = reading(flash, torn)
    assert one.resume(flash) == "OK"
    assert one.steps == BEFORE + 1
    assert len(flash.faults) == 1  # it was tried
    del held


def flaky(flash: Flash, wrong: range) -> Any:
    """Reads of the whole payload, into the arena, that differ from what was verified."""
    read = flash.read
    tries = iter(range(100))

    def run(at: int, data: Any, size: int) -> None:
        read(at, data, size)
        if size > UNIT and next(tries) in wrong:
            ffi.buffer(data, size)[5] = b"\x7f"

    return reading(flash, run)


def test_what_changes_after_it_was_verified_is_not_used() -> None:
    flash, one, lasting = filled(1, 2), device(), history()
    held = flaky(flash, range(1))
    assert one.resume(flash) == "OK"
    assert (one.lasting, one.steps) == (lasting[1], BEFORE + 1)
    held = flaky(flash, range(2))
    assert one.step(*SAMPLES[1])[0] == "OK"
    assert one.resume(flash) == "FLASH"
    assert (one.lasting, one.steps) == (lasting[0], BEFORE)  # as it was opened
    assert one.step(*SAMPLES[0])[0] == "OK"
    assert one.lasting == lasting[1]
    del held


def test_sizes_of_slots() -> None:
    one = device()
    least = one.slot_bytes()
    for size in (0, 1, 16, UNIT, least - UNIT, least - 1, least + 1, least + 16, 2**31 + UNIT):
        flash = Flash(2 * least)
        flash.c.slot_bytes = size
        assert (one.store(flash), one.resume(flash)) == ("SIZE", "SIZE")
        assert (flash.reads, flash.taken) == (0, set())
    flash = Flash(least)
    assert (one.resume(flash), one.store(flash), one.resume(flash)) == ("EMPTY", "OK", "OK")


def test_null_pointers() -> None:
    one = device()
    flash = flash_of(one)
    for call in (lib.qfw_store, lib.qfw_resume):
        assert NAMES[call(ffi.NULL, flash.c)] == "NULL"
        assert NAMES[call(one.net.net, ffi.NULL)] == "NULL"
        for name in ("read", "write"):
            broken = ffi.new("qfw_flash *", flash.c[0])
            setattr(broken, name, ffi.NULL)
            assert NAMES[call(one.net.net, broken)] == "NULL"
    size = ffi.new("size_t *")
    assert NAMES[lib.qfw_state_size(ffi.NULL, size)] == "NULL"
    assert NAMES[lib.qfw_state_size(one.net.image, ffi.NULL)] == "NULL"
    one.net.bytes[20] ^= 1
    assert NAMES[lib.qfw_state_size(one.net.image, size)] == "CRC"


def test_an_inference_net_has_a_state_too() -> None:
    """Nothing lasts in it but the progress: its state vouches for the constants."""
    made = q.compile(SMALL.plan.request.model, input_shape=(3,), policy=q.Policy.int8())
    one = Device(q.Session(made))
    assert one.open() == "OK"
    flash = Flash(aligned(UNIT).size + one.slot_bytes())
    assert (one.store(flash), one.resume(flash)) == ("OK", "OK")
    assert flash.faults == []
