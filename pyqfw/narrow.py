"""A plan whose numbers are small, in narrow records: docs/format.md, section 12."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from . import wire

MAGIC = 0x4E574651  # "QFWN"
VERSION = 1
HEADER = struct.Struct("<II HH II IIII f I 3H 5H5H 4H H")
TENSOR = struct.Struct("<8B 4H 2H I")
SHORT_TENSOR = struct.Struct("<8B 2H 2H I")
NO_ID = 0xFF
LEAST_PLACES = 6
CRC_FROM = 4
_NAMES = {number: name for name, number in wire.KERNELS.items()}
# The words that an operation reads; of others as many as there are.
WORDS = {
    "convert": 1,
    "widen": 2,
    "product_s32": 4,
    "cross_entropy_s16": 0,
    "gradient_update_s32": 13,
}


def narrow(plan: bytes) -> bytes | None:
    """The same plan; None if some number does not fit."""
    head = wire.HEADER.unpack_from(plan)
    crc, (arena, const, batch, seed, tensors, ops) = head[4], head[5:11]
    sections, ends, (lr, micro_batches, windows) = head[11:21], head[21:25], head[25:]
    at = wire.HEADER.size
    given = [wire.TENSOR.unpack_from(plan, at + i * wire.TENSOR.size) for i in range(tensors)]
    short = all(_is_short(field) for field in given)
    records = []
    for field in given:
        record = _tensor(field, short)
        if record is None:
            return None
        records.append(record)
    at += tensors * wire.TENSOR.size
    found = [wire.OPERATION.unpack_from(plan, at + i * wire.OPERATION.size) for i in range(ops)]
    pool, ran = _ops(found, places_of(plan))
    many = (tensors, ops, len(pool) // 4)
    if windows or tensors >= NO_ID or max(*many, *sections) > 0xFFFF or ran is None:
        return None
    fields = (arena, const, batch, seed, lr, micro_batches, *many, *sections, *ends)
    fields += ((SHORT_TENSOR if short else TENSOR).size,)
    body = b"".join((*records, pool, *ran))
    total = HEADER.size + len(body)

    def header(own: int) -> bytes:
        return HEADER.pack(own, MAGIC, VERSION, HEADER.size, total, crc, *fields)

    return header(zlib.crc32(header(0)[CRC_FROM:] + body)) + body


def places_of(plan: bytes) -> int:
    """Places up to the last that an operation has an operand at, and those that are looked at
    without asking."""
    tensors, ops = wire.HEADER.unpack_from(plan)[9:11]
    at = wire.HEADER.size + tensors * wire.TENSOR.size
    found = (wire.OPERATION.unpack_from(plan, at + i * wire.OPERATION.size) for i in range(ops))
    last = (k for op in found for k in range(wire.PLACES) if op[2 + k] != wire.NO_TENSOR)
    return max(LEAST_PLACES, max(last) + 1)


def has_short_tensors(data: bytes) -> bool:
    """Of narrow records."""
    return int(HEADER.unpack_from(data)[-1]) == SHORT_TENSOR.size


def _is_short(field: tuple[int, ...]) -> bool:
    """One row before the axis, and groups of one or of all."""
    outer, axis, _, group = field[12:16]
    return outer == 1 and group in (1, axis)


def _tensor(field: tuple[int, ...], short: bool) -> bytes | None:
    codes, scale, zero_point, absmax, stream, limit = field[16:]
    sums = field[2:4] == (wire.KINDS["sym"], 32)
    none, last = (stream, absmax) if sums else (absmax, stream)
    small = (*field[12:16], codes, scale)
    if zero_point or limit or none or field[2] == wire.KINDS["asym"] or max(small) > 0xFFFF:
        return None
    space, role, kind, bits, container, pow2, reach, rounding, rows, shared = field[:10]
    form = shared | reach << 1 | rounding << 3
    if short:
        _, axis, inner, group, *at = small
        form |= int(group == 1) << 5
        small = (axis, inner, *at)
    layout = SHORT_TENSOR if short else TENSOR
    return layout.pack(kind, bits, container, pow2, space, role, rows, form, *small, last)


def _ops(found: list[tuple[Any, ...]], places: int) -> tuple[bytes, list[bytes] | None]:
    """Words that operations share, and their records; the longest words first, the others where
    they stand already or with the least that is new."""
    words = {}
    for i, (kernel, _, *_, raw) in enumerate(found):
        words[i] = bytes(raw)[: 4 * WORDS.get(_NAMES[kernel], wire.PARAMS)]
    pool = bytearray()
    at = {}
    for own in sorted(set(words.values()), key=lambda w: (-len(w), w)):
        at[own] = _put(pool, own)
    records = []
    for i, (kernel, flags, *ids, raw) in enumerate(found):
        first = at[words[i]]
        beyond = any(raw[len(words[i]) :])
        if beyond or kernel > 0xFF or flags > 0xFF or first > 0xFFFF:
            return bytes(pool), None
        short = (NO_ID if t == wire.NO_TENSOR else t & 0xFF for t in ids[:places])
        record = struct.pack(f"<BBH{places}B", kernel, flags, first, *short)
        records.append(record + bytes([NO_ID] * (len(record) % 2)))
    return bytes(pool), records


def _put(pool: bytearray, own: bytes) -> int:
    """The word at which `own` stands, after it was put there."""
    for at in range(0, len(pool) + 4, 4):
        there = bytes(pool[at : at + len(own)])
        if own.startswith(there):
            pool += own[len(there) :]
            return at // 4
    raise AssertionError
