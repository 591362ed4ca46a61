"""What a device has: an image with its state, and flash that may lose its power."""

from __future__ import annotations

from typing import Any

import numpy as np
from plan_net import NAMES, Array, Net
from stepgold import ROWS, Network

import pyqfw as q
from pyqfw import nn, state
from pyqfw._core import ffi, lib
from pyqfw.state import State

UNIT = 64
SECTOR = 256


def trained(network: Network, steps: int = 2) -> q.Session:
    net = network.session()
    for i in range(steps):
        net.step(*network.data(i, ROWS[i]))
    return net


def small() -> q.Session:
    """Few bytes, constants among them: the first layer is frozen."""
    model = nn.Sequential(nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 8))
    made = q.compile(
        model,
        input_shape=(3,),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.1),
        policy=q.Policy.int8().replace(grads="fused"),
    )
    net = q.Session(made)
    net.step([[1.0, 2.0, 3.0]], [1])
    return net


class PowerError(Exception):
    """The flash has no power any more."""


class Flash:
    """An area of two slots. NOR flash is erased by sectors and takes a granule once; other memory
    is written over. `left` granules and sectors can be written until the power fails."""

    def __init__(self, slot_bytes: int, *, nor: bool = True, granule: int = 8) -> None:
        self.slot_bytes, self.nor, self.granule = slot_bytes, nor, granule
        self.area = np.full(2 * slot_bytes, 0xFF, np.uint8)
        self.taken: set[int] = set()
        self.left = 2**60
        self.damage = b"\x5a"
        self.reads = 0
        self.faults: list[str] = []
        self.on = True
        self.c = ffi.new("qfw_flash *")
        self.c.slot_bytes = slot_bytes
        kind = "int(void *, uint32_t, {}void *, uint32_t)"
        self._callbacks = (
            ffi.callback(kind.format(""), self._guarded(self.read), error=1),
            ffi.callback(kind.format("const "), self._guarded(self.write), error=1),
        )
        self.c.read, self.c.write = self._callbacks

    def _guarded(self, call: Any) -> Any:
        def run(_user: Any, at: int, data: Any, size: int) -> int:
            if not self.on:
                return 1
            try:
                call(at, data, size)
            except PowerError:
                self.on = False
                return 1
            except Exception as e:
                self.faults.append(repr(e))
                return 1
            return 0

        return run

    def read(self, at: int, data: Any, size: int) -> None:
        assert 0 < size <= self.area.size - at
        self.reads += 1
        ffi.buffer(data, size)[:] = self.area[at : at + size].tobytes()

    def write(self, at: int, data: Any, size: int) -> None:
        assert size <= self.area.size - at
        if data == ffi.NULL:
            assert (at % self.slot_bytes, size) == (0, self.slot_bytes)
            for begin in range(at, at + size, SECTOR) if self.nor else ():
                end = min(begin + SECTOR, at + size)
                self.put(begin, b"\xff" * (end - begin))
                self.taken -= set(range(begin, end))
            return
        assert (at % UNIT, size % UNIT, size > 0) == (0, 0, True)
        assert int(ffi.cast("uintptr_t", data)) % 4 == 0
        given = bytes(ffi.buffer(data, size))
        for i in range(0, size, self.granule):
            assert not self.nor or at + i not in self.taken, "written twice"
            self.taken.add(at + i)
            self.put(at + i, given[i : i + self.granule])

    def put(self, at: int, data: bytes) -> None:
        if self.left == 0:
            torn = (self.damage * len(data))[: len(data)]
            self.area[at : at + len(data)] = np.frombuffer(torn, np.uint8)
            raise PowerError
        self.left -= 1
        self.area[at : at + len(data)] = np.frombuffer(data, np.uint8)

    def slot(self, i: int) -> Array:
        return self.area[i * self.slot_bytes : (i + 1) * self.slot_bytes]

    def power(self, left: int = 2**60) -> None:
        self.on, self.left = True, left


class Device:
    """A net of a session's image, each part alone in its buffer. Calls give names of statuses."""

    def __init__(self, net: q.Session, record: bytes | None = None) -> None:
        self.session = net
        self.net = Net(net.plan.to_bytes())
        const_bytes = net.plan.layout.const_bytes
        self.net.constants[:const_bytes] = net._spaces.const[:const_bytes]
        self.use(state.encode(state.of(net)) if record is None else record)

    def use(self, record: bytes) -> None:
        self.record = np.frombuffer(record, np.uint8).copy()
        self.net.image.state = ffi.from_buffer(self.record)
        self.net.image.state_bytes = self.record.size

    def open(self) -> str:
        self.net.arena[:] = 0xA5
        return self.net.open()

    def step(self, x: Array, y: Array) -> tuple[str, float]:
        made = self.session
        given = (np.ascontiguousarray(a) for a in (made._fed(x), made._asked(y)))
        return self.net.step(*given, len(x))

    def slot_bytes(self) -> int:
        size = ffi.new("size_t *")
        assert lib.qfw_state_size(self.net.image, size) == lib.QFW_OK
        return int(size[0])

    def store(self, flash: Flash) -> str:
        return NAMES[lib.qfw_store(self.net.net, flash.c)]

    def resume(self, flash: Flash) -> str:
        return NAMES[lib.qfw_resume(self.net.net, flash.c)]

    @property
    def lasting(self) -> bytes:
        return self.net.arena[128 : self.session.plan.layout.persistent_bytes].tobytes()

    @property
    def steps(self) -> int:
        return self.net.progress()[0]

    def state(self) -> State:
        """All but sequence, origin and gradients."""
        step, updates, lr = self.net.progress()
        of = state.of(self.session)
        return State(of.plan_crc, of.const_crc, self.lasting, step, updates, lr, self.net.micro)
