"""Which of the core's files some operations need: those that define what they name, and what those
name in turn."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .targets import csrc

ROOMS = ("base", "kernels", "engine")
ENTRIES = ("qfw_open", "qfw_step", "qfw_infer", "qfw_walk", "qfw_store", "qfw_resume")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"\bqfw_\w+")
_KERNEL = re.compile(r"\bQFW_K\(\w[^,]*, (\w+)\)")  # a call of a kernel
_INCLUDE = re.compile(r'^#include "(.+?)"', re.MULTILINE)
# A definition: at the line's beginning, its body's brace alone on a line.
_DEFINED = re.compile(r"^(?!static|typedef|#)[\w *]*?\b(qfw_\w+)\([^;{}]*\)\n\{", re.MULTILINE)
_TABLE = re.compile(r"^const \w+ (qfw_\w+)\b.*=", re.MULTILINE)
_BODY = re.compile(r"^\{.*?^\}", re.MULTILINE | re.DOTALL)


@cache
def _text(file: Path) -> str:
    return _COMMENT.sub(" ", file.read_text())


@cache
def _included(file: Path) -> frozenset[Path]:
    """The headers of a file, and theirs."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        for name in _INCLUDE.findall(_text(waiting.pop())):
            header = csrc() / name
            if header not in found:
                found.add(header)
                waiting.append(header)
    return frozenset(found)


@cache
def _named(file: Path) -> frozenset[str]:
    """What a file's own text and the bodies in its headers name."""
    bodies = (body for h in _included(file) for body in _BODY.findall(_text(h)))
    text = " ".join((_text(file), *bodies))
    twins = ("scalar", "dsp")  # the second one, where there is one, is empty for other cores
    kernels = (f"qfw_{name}_{twin}" for name in _KERNEL.findall(text) for twin in twins)
    return frozenset((*_NAME.findall(text), *kernels))


def portable() -> list[Path]:
    """Every .c file of the core that is no twin for an instruction set of the desktop."""
    files = (file for room in ROOMS for file in sorted((csrc() / room).glob("*.c")))
    return [file for file in files if not file.stem.endswith(("_avx2", "_avx512"))]


@cache
def _definitions() -> dict[str, list[Path]]:
    """The files of each function: two where one of them is empty, as the core has it."""
    found: dict[str, list[Path]] = {}
    for file in portable():
        text = _text(file)
        for name in {*_DEFINED.findall(text), *_TABLE.findall(text)}:
            found.setdefault(name, []).append(file)
    return found


def needed(operations: Iterable[str], entries: Iterable[str] = ENTRIES) -> list[Path]:
    """The .c files and headers for these operations of kernels.def, with the calls of `entries`."""
    where = _definitions()
    waiting = [*entries, *(f"qfw_op_{name}" for name in operations)]
    sources: set[Path] = set()
    while waiting:
        for file in where.get(waiting.pop(), []):
            if file not in sources:
                sources.add(file)
                waiting += _named(file)
    headers = {h for file in sources for h in _included(file)}
    return sorted(sources | headers | {csrc() / "include" / "qfw.h"})
