"""What a net goes on from, as bytes: docs/format.md section 10.

The same bytes are the state in an image, in a slot of a device's flash and on the way between.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .errors import QfwError

if TYPE_CHECKING:
    from .session import Session

MAGIC = 0x53574651  # "QFWS"
VERSION = 1
_HEADER = struct.Struct("<IHHIIIIIIIIfII8xI")
HEADER_BYTES = _HEADER.size
UNIT = 64  # a slot is written in multiples of it


@dataclass(frozen=True)
class State:
    """All that lasts of a net, and of which net."""

    plan_crc: int  # the plan's own
    const_crc: int
    lasting: bytes  # of the arena, behind the core's own
    step: int = 0
    updates: int = 0
    lr: float = 0.0
    micro: int = 0
    gradients: bool = False  # a backward has run, so that an update may
    sequence: int = 0
    origin: int = 0  # crc of the state that the net was opened with; 0: none

    @property
    def crc(self) -> int:
        """Its own, the origin of those that go on from it."""
        return int(_HEADER.unpack_from(encode(self))[-1])


def encode(state: State) -> bytes:
    """The bytes of a state."""
    fields = (
        *(MAGIC, VERSION, HEADER_BYTES, state.sequence, state.plan_crc, state.const_crc),
        *(state.origin, len(state.lasting), zlib.crc32(state.lasting)),
        *(state.step, state.updates, state.lr, state.micro, state.gradients),
    )
    head = _HEADER.pack(*fields, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + state.lasting


def decode(data: bytes) -> State:
    """The state at the beginning of some bytes, every bit of it as it was written."""
    if len(data) < HEADER_BYTES:
        raise QfwError(f"state: {len(data)} bytes are fewer than its header has")
    magic, version, header_bytes, *fields, crc = _HEADER.unpack_from(data)
    sequence, plan_crc, const_crc, origin, size, payload_crc, *progress = fields
    if magic != MAGIC:
        raise QfwError("state: these bytes are none")
    if (version, header_bytes) != (VERSION, HEADER_BYTES):
        raise QfwError(f"state: version {version}: this pyqfw reads version {VERSION}")
    if crc != zlib.crc32(data[: HEADER_BYTES - 4]):
        raise QfwError("state: the header is damaged: its CRC differs")
    if any(data[HEADER_BYTES - 12 : HEADER_BYTES - 4]) or progress[4] > 1:
        raise QfwError("state: the header has fields that this version does not know")
    lasting = bytes(data[HEADER_BYTES : HEADER_BYTES + size])
    if len(lasting) != size or zlib.crc32(lasting) != payload_crc:
        raise QfwError("state: it is cut, or damaged: its CRC differs")
    step, updates, lr, micro, gradients = progress
    return State(
        *(plan_crc, const_crc, lasting, step, updates, lr, micro),
        *(bool(gradients), sequence, origin),
    )


def newest(area: bytes, slot_bytes: int) -> State | None:
    """The newer of the states in the two slots of a flash area that was read back; None if neither
    is whole."""
    found = []
    for at in (0, slot_bytes):
        try:
            found.append(decode(area[at : at + slot_bytes]))
        except QfwError:
            continue
    if len(found) == 2 and 0 < (found[1].sequence - found[0].sequence) % 2**32 < 2**31:
        return found[1]
    return found[0] if found else None


def of(net: Session) -> State:
    """What a session goes on from."""
    now = net._get()
    const = net._spaces.const[: net.plan.layout.const_bytes]
    return State(
        plan_crc=_plan_crc(net),
        const_crc=zlib.crc32(const.tobytes()),
        lasting=net._spaces.lasting().tobytes(),
        step=now.step,
        updates=now.updates,
        lr=now.lr,
        micro=now.micro,
        gradients=net._has_gradients,
    )


def into(net: Session, state: State) -> None:
    """Makes a session of the same plan and constants go on from there; an error leaves it as it
    was."""
    mine = of(net)
    if (state.plan_crc, len(state.lasting)) != (mine.plan_crc, len(mine.lasting)):
        raise QfwError("state: it is of another plan than this session's")
    if state.const_crc != mine.const_crc:
        raise QfwError("state: frozen parameters or constants of this session are others than its")
    net._open(np.frombuffer(encode(replace(state, sequence=0, origin=0)), np.uint8))
    net._has_gradients, net._source = state.gradients, {}


def _plan_crc(net: Session) -> int:
    (crc,) = struct.unpack_from("<I", net.plan.to_bytes(), 12)
    return int(crc)
