"""A plan's bytes by docs/format.md alone: records that tests can read, edit and seal again.

Imports nothing of the package.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MAGIC, VERSION, ALIGN, NET_BYTES, NO_TENSOR = 0x50574651, 1, 16, 128, 65535
PLACES, PARAMS = 8, 15

# name, offset, type
HEADER = [
    ("magic", 0, "I"),
    ("version", 4, "H"),
    ("header_bytes", 6, "H"),
    ("plan_bytes", 8, "I"),
    ("crc", 12, "I"),
    ("arena_bytes", 16, "I"),
    ("const_bytes", 20, "I"),
    ("batch", 24, "I"),
    ("seed", 28, "I"),
    ("tensors", 32, "I"),
    ("ops", 36, "I"),
    ("first", 40, "5I"),
    ("count", 60, "5I"),
    ("input", 80, "H"),
    ("labels", 82, "H"),
    ("output", 84, "H"),
    ("loss", 86, "H"),
    ("lr", 88, "f"),
    ("micro_batches", 92, "I"),
    ("windows", 96, "I"),
    ("reserved", 100, "7I"),
]
TENSOR = [
    ("space", 0, "B"),
    ("role", 1, "B"),
    ("kind", 2, "B"),
    ("bits", 3, "B"),
    ("container", 4, "B"),
    ("pow2", 5, "B"),
    ("range", 6, "B"),
    ("rounding", 7, "B"),
    ("rows", 8, "B"),
    ("shared", 9, "B"),
    ("reserved", 10, "2B"),
    ("outer", 12, "I"),
    ("axis", 16, "I"),
    ("inner", 20, "I"),
    ("group", 24, "I"),
    ("codes", 28, "I"),
    ("scale", 32, "I"),
    ("zero_point", 36, "I"),
    ("absmax", 40, "I"),
    ("stream", 44, "I"),
    ("limit", 48, "f"),
]
OPERATION = [("kernel", 0, "H"), ("flags", 2, "H"), ("tensor", 4, "8H"), ("param", 20, "15I")]
WINDOW = [
    ("in_h", 0, "I"),
    ("in_w", 4, "I"),
    ("out_h", 8, "I"),
    ("out_w", 12, "I"),
    ("kernel_h", 16, "H"),
    ("kernel_w", 18, "H"),
    ("stride_h", 20, "H"),
    ("stride_w", 22, "H"),
    ("pad_h", 24, "H"),
    ("pad_w", 26, "H"),
    ("dilation_h", 28, "H"),
    ("dilation_w", 30, "H"),
    ("groups", 32, "H"),
    ("reserved", 34, "3H"),
]
HEADER_BYTES, TENSOR_BYTES, OP_BYTES, WINDOW_BYTES = 128, 52, 80, 40
WINDOW_PARAM = 13

SPACES = ("arena", "const", "io")
ROLES = ("parameter", "gradient", "state", "wire", "error", "scratch")
KINDS = ("float32", "sym", "asym", "index", "bytes", "pick")
SECTIONS = ("forward", "output", "backward", "update", "infer")
FLOAT32, SYM, ASYM, INDEX, BYTES, PICK = range(6)
ARENA, CONST, IO = range(3)
PARAMETER, GRADIENT, STATE, WIRE, ERROR, SCRATCH = range(6)
NO_ROWS, ROWS_OUTER, ROWS_AXIS = range(3)

Fields = list[tuple[str, int, str]]


def unpack(fields: Fields, data: bytes, at: int) -> dict[str, Any]:
    """One record, a field at a time."""
    found: dict[str, Any] = {}
    for name, offset, code in fields:
        values = struct.unpack_from("<" + code, data, at + offset)
        found[name] = list(values) if code[0].isdigit() else values[0]
    return found


def _dtype(fields: Fields, size: int) -> np.dtype[Any]:
    letters = {"B": "u1", "H": "<u2", "I": "<u4", "f": "<f4"}
    formats = [(letters[c[-1]], int(c[:-1])) if c[:-1] else letters[c] for _, _, c in fields]
    return np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": formats,
            "offsets": [offset for _, offset, _ in fields],
            "itemsize": size,
        }
    )


class PlanBytes:
    """A plan as records that can be written to: `header`, `tensors`, `ops` and `windows` are views
    of `data`."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        tensors, ops = struct.unpack_from("<II", data, 32)
        (windows,) = struct.unpack_from("<I", data, 96)
        split = HEADER_BYTES + tensors * TENSOR_BYTES
        end = split + ops * OP_BYTES
        assert len(data) == end + windows * WINDOW_BYTES
        self.windows = np.frombuffer(self.data, _dtype(WINDOW, WINDOW_BYTES), windows, end)
        self.header = np.frombuffer(self.data, _dtype(HEADER, HEADER_BYTES), 1)
        self.tensors = np.frombuffer(self.data, _dtype(TENSOR, TENSOR_BYTES), tensors, HEADER_BYTES)
        self.ops = np.frombuffer(self.data, _dtype(OPERATION, OP_BYTES), ops, split)

    def sealed(self) -> bytes:
        """The bytes with a CRC that fits them."""
        self.header["crc"] = zlib.crc32(self.data[16:])
        return bytes(self.data)

    def section(self, name: str) -> range:
        i = SECTIONS.index(name)
        first, count = (int(self.header[name][0, i]) for name in ("first", "count"))
        return range(first, first + count)


@dataclass(frozen=True)
class Extent:
    """Bytes begin .. end - 1 of a space."""

    begin: int
    end: int

    def meets(self, other: Extent) -> bool:
        return self.begin < other.end and other.begin < self.end


def sizes(t: Any, rows: int) -> tuple[int, int]:
    """Elements and scales of a tensor over so many rows."""
    outer, axis, inner, group = (int(t[name]) for name in ("outer", "axis", "inner", "group"))
    if t["rows"] == ROWS_OUTER:
        outer *= rows
    elif t["rows"] == ROWS_AXIS:
        axis, group = axis * rows, group * rows
    scales = (1 if t["shared"] else outer) * -(-axis // group)
    return outer * axis * inner, scales if t["kind"] in (SYM, ASYM) else 0


def part_sizes(t: Any, rows: int) -> dict[str, int]:
    """Bytes of each of its parts; 0 for what it has not."""
    n, scales = sizes(t, rows)
    bits = int(t["container"] or t["bits"])
    return {
        "codes": -(-n * bits // 8),
        "scale": 4 * scales,
        "zero_point": 2 * scales if t["kind"] == ASYM else 0,
        "absmax": 4 * scales if t["bits"] == 32 else 0,
    }


def parts(t: Any, rows: int) -> list[Extent]:
    """Where its codes, scales, zero points and absmax lie; what it has not is left out."""
    found = part_sizes(t, rows).items()
    return [Extent(int(t[name]), int(t[name]) + size) for name, size in found if size]


class Builder:
    """A plan made by hand: tensors one behind the other, `gap` bytes between their parts, and
    operations section by section."""

    def __init__(self, batch: int = 1, gap: int = 0, **header: Any) -> None:
        self.batch, self.gap, self.header = batch, gap, header
        self.tensors: list[dict[str, Any]] = []
        self.ops: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SECTIONS}
        self.ends = {ARENA: NET_BYTES, CONST: 0, IO: 0}
        self.windows: list[dict[str, Any]] = []
        self.input = self.tensor(1, space=IO, rows=ROWS_AXIS, role=WIRE, codes=0)
        self.output = self.tensor(1, space=IO, rows=ROWS_AXIS, role=WIRE, codes=2)
        self.labels = NO_TENSOR

    def tensor(self, n: int, **fields: Any) -> int:
        """A tensor of n elements (a row), Float32 scratch unless told otherwise; its number."""
        t: dict[str, Any] = {name: 0 for name, _, _ in TENSOR}
        t |= {"role": SCRATCH, "bits": 32, "container": 32, "limit": 0.0, "inner": 1}
        t |= {"outer": 1, "axis": n, "group": n, "reserved": (0, 0), **fields}
        for name, size in part_sizes(t, self.batch).items() if t["space"] != IO else ():
            t[name] = self.ends[t["space"]] if size else 0
            self.ends[t["space"]] += -(-size // ALIGN) * ALIGN + self.gap
        self.tensors.append(t)
        return len(self.tensors) - 1

    def sym(self, n: int, bits: int = 8, container: int = 8, **fields: Any) -> int:
        return self.tensor(n, kind=SYM, bits=bits, container=container, **fields)

    def scratch(self, n: int) -> int:
        return self.tensor(n, kind=BYTES, bits=8, container=8)

    def add_labels(self) -> int:
        fields = {"kind": INDEX, "space": IO, "rows": ROWS_AXIS, "role": WIRE, "codes": 1}
        self.labels = self.tensor(1, **fields)
        return self.labels

    def add_targets(self, n: int) -> int:
        self.labels = self.tensor(n, space=IO, rows=ROWS_AXIS, role=WIRE, codes=1)
        return self.labels

    def window(self, **fields: int) -> int:
        """A window of ones but for its fields; its number plus 1, for param[13]."""
        w: dict[str, Any] = {name: 1 for name, _, _ in WINDOW}
        self.windows.append({**w, "pad_h": 0, "pad_w": 0, "reserved": (0, 0, 0), **fields})
        return len(self.windows)

    def op(
        self, kernel: int, *places: int, section: str = "forward", flags: int = 0, **params: int
    ) -> None:
        """`p3=1` sets param[3]."""
        tensor = [*places] + [NO_TENSOR] * (PLACES - len(places))
        words = [params.get(f"p{i}", 0) for i in range(PARAMS)]
        self.ops[section].append((kernel, flags, tensor, words))

    def build(self) -> bytes:
        ops = [op for name in SECTIONS for op in self.ops[name]]
        count = [len(self.ops[name]) for name in SECTIONS]
        first = [sum(count[:i]) for i in range(5)]
        if not count[4]:
            first[4], count[4] = 0, count[0] + count[1]
        total = HEADER_BYTES + TENSOR_BYTES * len(self.tensors) + OP_BYTES * len(ops)
        total += WINDOW_BYTES * len(self.windows)
        data = bytearray(total)
        struct.pack_into("<II", data, 32, len(self.tensors), len(ops))
        struct.pack_into("<I", data, 96, len(self.windows))
        plan = PlanBytes(bytes(data))
        header = {
            **{"magic": MAGIC, "version": VERSION, "header_bytes": HEADER_BYTES},
            **{"plan_bytes": total, "arena_bytes": self.ends[ARENA], "batch": self.batch},
            **{"const_bytes": self.ends[CONST], "first": first, "count": count, "lr": 0.1},
            **{"input": self.input, "output": self.output, "labels": self.labels},
            **{"loss": NO_TENSOR, **self.header},
        }
        for name, value in header.items():
            plan.header[name] = value
        for i, t in enumerate(self.tensors):
            plan.tensors[i] = tuple(t[name] for name, _, _ in TENSOR)
        for i, op in enumerate(ops):
            plan.ops[i] = tuple(op)
        for i, w in enumerate(self.windows):
            plan.windows[i] = tuple(w[name] for name, _, _ in WINDOW)
        return plan.sealed()
