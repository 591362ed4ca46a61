"""Writes a C file with a fault in it:  mutant.py SOURCE OUT FAULT

A test of that file must find each of these.
"""

from __future__ import annotations

import sys
from pathlib import Path

FAULTS = {  # of store.c: what stands there, and what stands there then
    "newest_slot": [("any ? 1 - found.newer : 0", "any ? found.newer : 0")],
    "older_state": [("ahead < UINT32_C(1) << 31", "ahead > UINT32_C(1) << 31")],
    "not_erased": [("flash->write(flash->user, at, NULL, flash->slot_bytes) == 0", "true")],
    "torn_payload": [
        ("return found == crc;", "return found == crc || crc != 0;"),
        ("qfw_crc32(0, lasting, bytes) != state.payload_crc", "state.payload_crc == 0"),
    ],
    "not_kept": [("flash->write(flash->user, at, state, sizeof *state) == 0", "true")],
    "no_progress": [("qfw_go_on(net, &state);", "")],
}


def main(source: str, out: str, fault: str) -> None:
    text = Path(source).read_text()
    for old, new in FAULTS[fault]:
        if text.count(old) != 1:
            raise SystemExit(f"{source}: {old!r} stands there {text.count(old)} times")
        text = text.replace(old, new)
    Path(out).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
