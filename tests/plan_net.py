"""The core on a plan's bytes, without a Session: its check, and nets in buffers of exact size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from plan_bytes import ALIGN, FLOAT32, NO_TENSOR, PlanBytes, sizes

from pyqfw import quant
from pyqfw._core import ffi, lib

Array = np.ndarray[Any, Any]

STATUSES = {n: getattr(lib, n) for n in dir(lib) if n == "QFW_OK" or n.startswith("QFW_E_")}
NAMES = {value: name.removeprefix("QFW_").removeprefix("E_") for name, value in STATUSES.items()}
TABLES = [t for i in range(lib.QFW_ISA_COUNT) if (t := lib.qfw_host_kernels(i)) != ffi.NULL]


def aligned(size: int, by: int = ALIGN) -> Array:
    """Zeroed bytes at a multiple of `by`, with nothing behind them where malloc allows that."""
    space = np.zeros(size, np.uint8)
    if space.ctypes.data % by:
        space = np.zeros(size + by, np.uint8)
        space = space[-space.ctypes.data % by :][:size]
    return space


def copied(data: bytes) -> Array:
    space = aligned(len(data))
    space[:] = np.frombuffer(data, np.uint8)
    return space


class Verdict(NamedTuple):
    """A status by name, and where the fault is."""

    status: str
    op: int = -1
    tensor: int = -1
    field: str = ""


OK = Verdict("OK")


def check(data: bytes) -> Verdict:
    """What qfw_check says."""
    fault, space = ffi.new("qfw_fault *"), copied(data)
    status = lib.qfw_check(ffi.from_buffer(space), space.size, fault)
    return Verdict(NAMES[status], fault.op, fault.tensor, ffi.string(fault.field).decode())


class Net:
    """A plan opened. Every call gives the name of its status."""

    def __init__(self, data: bytes, kernels: Any = None) -> None:
        self.plan = PlanBytes(data)
        h = self.plan.header[0]
        self.batch = int(h["batch"])
        self.micro_batches = max(int(h["micro_batches"]), 1)
        self.bytes = copied(data)
        self.constants = aligned(int(h["const_bytes"]) or ALIGN)
        self.arena = aligned(int(h["arena_bytes"]))
        self.image = ffi.new("qfw_image *")
        self.image.plan, self.image.plan_bytes = ffi.from_buffer(self.bytes), self.bytes.size
        self.image.constants = ffi.from_buffer(self.constants)
        self.image.const_bytes = int(h["const_bytes"])
        self.image.kernels = kernels or quant.kernels()
        self.image.ops = lib.qfw_ops_all()
        self._net = ffi.new("qfw_net **")
        self._done = ffi.new("uint32_t *")
        self._io = ffi.new("qfw_io *")

    @property
    def net(self) -> Any:
        return self._net[0]

    @property
    def done(self) -> int:
        """Operations of the last walk that ran."""
        return int(self._done[0])

    def row(self, name: str) -> int:
        """Elements of a row of the input, the labels or the output."""
        return sizes(self.plan.tensors[self.plan.header[0][name]], 1)[0]

    @property
    def has_targets(self) -> bool:
        """Whether y are numbers, not labels."""
        labels = self.plan.header[0]["labels"]
        return bool(labels != NO_TENSOR and self.plan.tensors[labels]["kind"] == FLOAT32)

    def open(self, arena: Array | None = None) -> str:
        arena = self.arena if arena is None else arena
        return self.status(lib.qfw_open(ffi.from_buffer(arena), arena.size, self.image, self._net))

    def set_gains(self) -> None:
        """Hindsight ranges take 1."""
        places = {1: [3], 3: [7], 35: range(8), 64: [7], 65: [7]}
        for op in self.plan.ops:
            for place in places.get(int(op["kernel"]), ()):
                if op["tensor"][place] < len(self.plan.tensors):
                    at = int(self.plan.tensors[op["tensor"][place]]["codes"])
                    self.arena[at : at + 8].view(np.float32)[:] = 1.0, 0.0

    def arena_size(self) -> tuple[str, int]:
        size = ffi.new("size_t *")
        return self.status(lib.qfw_arena_size(self.image, size)), int(size[0])

    def walk(self, first: int, count: int, rows: int, **io: Any) -> str:
        return self.status(
            lib.qfw_walk(self.net, self._buffers(io), rows, first, count, self._done)
        )

    def section(self, name: str, rows: int, **io: Any) -> str:
        number = getattr(lib, f"QFW_{name.upper()}")
        return self.status(lib.qfw_run_section(self.net, number, self._buffers(io), rows))

    def step(self, x: Array, y: Array, rows: int) -> tuple[str, float]:
        loss = ffi.new("float *")
        buffers = ffi.from_buffer(x), ffi.from_buffer(y)
        return self.status(lib.qfw_step(self.net, *buffers, rows, loss)), float(loss[0])

    def infer(self, x: Array, rows: int, out: Array) -> str:
        target = ffi.from_buffer("float[]", out)
        return self.status(lib.qfw_infer(self.net, ffi.from_buffer(x), rows, target))

    @property
    def micro(self) -> int:
        """Micro-batches that wait for their update."""
        p = ffi.new("qfw_progress *")
        assert lib.qfw_get_progress(self.net, p) == lib.QFW_OK
        return int(p.micro)

    def progress(self) -> tuple[int, int, float]:
        p = ffi.new("qfw_progress *")
        assert lib.qfw_get_progress(self.net, p) == lib.QFW_OK
        return p.step, p.updates, p.lr

    def set_progress(self, step: int, updates: int, lr: float, micro: int = 0) -> str:
        fields = {"step": step, "updates": updates, "lr": lr, "micro": micro}
        p = ffi.new("qfw_progress *", fields)
        return self.status(lib.qfw_set_progress(self.net, p))

    def attach(self, records: Array | None) -> str:
        """Counters, one for each tensor; the caller keeps them. None: off."""
        n = 0 if records is None else len(records)
        start = ffi.NULL if records is None else ffi.from_buffer(records)
        return self.status(lib.qfw_set_counters(self.net, ffi.cast("qfw_counter *", start), n))

    def status(self, status: int) -> str:
        return NAMES[status]

    def _buffers(self, io: dict[str, Any]) -> Any:
        self._io.step_rows = io.get("step_rows", 0)
        for name in ("x", "y", "out"):
            array = io.get(name)
            setattr(self._io, name, ffi.NULL if array is None else ffi.from_buffer(array))
        return self._io
