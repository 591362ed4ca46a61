"""Files that are written wholly or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress

from .errors import FileError


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Puts data at path as one act: whoever looks, at any moment, finds the old file or the new.

    A link is followed and an old file's permissions stay, as with open(). Whatever goes wrong, the
    old file stands and nothing is left beside it; a process that is killed may leave its
    ``.qfw-*.tmp``.
    """
    target = os.path.realpath(os.fspath(path))
    mode = _writable(target)
    folder = os.path.dirname(target)
    made = os.path.join(folder, f".qfw-{secrets.token_hex(8)}.tmp")
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            if mode is not None and mode != stat.S_IMODE(os.fstat(file).st_mode):
                os.fchmod(file, mode)
            _write(file, data)
            os.fsync(file)  # before its name: a name without data is no file
        finally:
            os.close(file)
        os.replace(made, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(made)
        raise
    _sync_folder(folder)


def _writable(target: str) -> int | None:
    """The permissions of the file that is there; None: there is none. OSError as of open()."""
    try:
        found = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(f"{target} is a folder")
    if not stat.S_ISREG(found):
        raise FileError(f"{target} is no plain file: it cannot be replaced")
    if not os.access(target, os.W_OK):
        raise PermissionError(f"{target} is read-only")
    return stat.S_IMODE(found)


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: str) -> None:
    """The new name reaches the disk; where a file system cannot, either file is whole anyway."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
