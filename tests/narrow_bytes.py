"""Narrow records by docs/format.md alone: the plan that follows from them."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from plan_bytes import HEADER as WIDE_HEADER
from plan_bytes import HEADER_BYTES as WIDE_HEADER_BYTES
from plan_bytes import MAGIC as WIDE_MAGIC
from plan_bytes import (
    NO_TENSOR,
    OP_BYTES,
    OPERATION,
    PARAMS,
    PLACES,
    SYM,
    TENSOR_BYTES,
    Fields,
    unpack,
)
from plan_bytes import TENSOR as WIDE_TENSOR

MAGIC, VERSION, HEADER_BYTES, NO_ID = 0x4E574651, 1, 80, 255
RECORD_BYTES, SHORT_RECORD_BYTES = 24, 20
HEADER: Fields = [
    ("own_crc", 0, "I"),
    ("magic", 4, "I"),
    ("version", 8, "H"),
    ("header_bytes", 10, "H"),
    ("plan_bytes", 12, "I"),
    ("crc", 16, "I"),
    ("arena_bytes", 20, "I"),
    ("const_bytes", 24, "I"),
    ("batch", 28, "I"),
    ("seed", 32, "I"),
    ("lr", 36, "f"),
    ("micro_batches", 40, "I"),
    ("tensors", 44, "H"),
    ("ops", 46, "H"),
    ("params", 48, "H"),
    ("first", 50, "5H"),
    ("count", 60, "5H"),
    ("input", 70, "H"),
    ("labels", 72, "H"),
    ("output", 74, "H"),
    ("loss", 76, "H"),
    ("tensor_bytes", 78, "H"),
]
TENSOR: Fields = [
    ("kind", 0, "B"),
    ("bits", 1, "B"),
    ("container", 2, "B"),
    ("pow2", 3, "B"),
    ("space", 4, "B"),
    ("role", 5, "B"),
    ("rows", 6, "B"),
    ("form", 7, "B"),
    ("outer", 8, "H"),
    ("axis", 10, "H"),
    ("inner", 12, "H"),
    ("group", 14, "H"),
    ("codes", 16, "H"),
    ("scale", 18, "H"),
    ("last", 20, "I"),
]
SHORT_TENSOR: Fields = [
    *TENSOR[:8],
    ("axis", 8, "H"),
    ("inner", 10, "H"),
    ("codes", 12, "H"),
    ("scale", 14, "H"),
    ("last", 16, "I"),
]
WORDS = {1: 1, 2: 2, 3: 4, 7: 0, 12: 13}  # of an operation; of others all


def _pack(fields: Fields, values: dict[str, Any], size: int) -> bytes:
    made = bytearray(size)
    for name, offset, code in fields:
        value = values.get(name, (0,) * int(code[:-1]) if code[:-1] else 0)
        each = value if isinstance(value, (list, tuple)) else (value,)
        struct.pack_into("<" + code, made, offset, *each)
    return bytes(made)


def widened(data: bytes) -> bytes:
    """The plan of sections 1 to 9; every field that is not used is looked at."""
    head = unpack(HEADER, data, 0)
    assert (head["magic"], head["version"]) == (MAGIC, VERSION)
    assert (head["header_bytes"], head["plan_bytes"]) == (HEADER_BYTES, len(data))
    assert head["own_crc"] == zlib.crc32(data[4:])
    each = head["tensor_bytes"]
    assert each in (RECORD_BYTES, SHORT_RECORD_BYTES)
    short = each == SHORT_RECORD_BYTES
    tensors, ops, params = head["tensors"], head["ops"], head["params"]
    words = HEADER_BYTES + tensors * each
    records = words + 4 * params
    size = (len(data) - records) // ops
    assert records + size * ops == len(data)
    assert size % 2 == 0
    body = b""
    for i in range(tensors):
        record = unpack(SHORT_TENSOR if short else TENSOR, data, HEADER_BYTES + i * each)
        form = record["form"]
        assert form >> (6 if short else 5) == 0
        record |= {"shared": form & 1, "range": form >> 1 & 3, "rounding": form >> 3 & 3}
        if short:
            record |= {"outer": 1, "group": 1 if form >> 5 else record["axis"]}
        sums = (record["kind"], record["bits"]) == (SYM, 32)
        record["absmax" if sums else "stream"] = record["last"]
        body += _pack(WIDE_TENSOR, record, TENSOR_BYTES)
    for at in range(records, len(data), size):
        kernel, flags, first, *ids = struct.unpack_from(f"<BBH{size - 4}B", data, at)
        own = WORDS.get(kernel, PARAMS)
        assert first + own <= params
        param = [*struct.unpack_from(f"<{own}I", data, words + 4 * first), *[0] * (PARAMS - own)]
        wide = [NO_TENSOR if t == NO_ID else t for t in ids][:PLACES]
        values = {"kernel": kernel, "flags": flags, "param": param}
        values["tensor"] = [*wide, *[NO_TENSOR] * (PLACES - len(wide))]
        body += _pack(OPERATION, values, OP_BYTES)
    head |= {"magic": WIDE_MAGIC, "version": 1, "header_bytes": WIDE_HEADER_BYTES}
    head |= {"plan_bytes": WIDE_HEADER_BYTES + len(body), "reserved": (0,) * 7}
    made = _pack(WIDE_HEADER, head, WIDE_HEADER_BYTES) + body
    assert head["crc"] == zlib.crc32(made[16:])
    return made
