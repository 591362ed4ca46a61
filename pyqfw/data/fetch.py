"""Files from the network: fetched once, kept in a cache folder, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from .._bar import bar
from .._files import replace_file
from ..errors import FileError
from .files import MOST, cache_folder

_CHUNK = 1 << 16
_SECONDS = 20


def fetched(url: str, name: str, progress: bool | None = None) -> Path:
    """The file of that name in the cache folder, fetched if it is not there yet.

    FileError if it cannot be had. What is in it is the caller's to check: `forget` it if it is
    wrong.
    """
    path = cache_folder() / name
    if not path.is_file():
        data = _bytes(url, progress)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    return path


def forget(name: str) -> None:
    """Takes a file out of the cache folder."""
    (cache_folder() / name).unlink(missing_ok=True)


def _bytes(url: str, progress: bool | None) -> bytes:
    # Here, since it would slow down `import pyqfw`, and few fetch.
    from http.client import HTTPException
    from urllib.request import urlopen

    parts: list[bytes] = []
    try:
        with urlopen(url, timeout=_SECONDS) as answer:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            options = {"total": total, "unit": "B", "unit_scale": True, "desc": Path(url).name}
            with bar(progress, **options) as shown:
                while part := answer.read(_CHUNK):
                    parts.append(part)
                    shown.update(len(part))
                    if sum(map(len, parts)) > MOST:
                        raise FileError(f"{url}: more than {MOST} bytes")
    except (HTTPException, OSError, ValueError) as e:  # URLError is an OSError
        if isinstance(e, FileError):
            raise
        raise FileError(f"{url}: it could not be fetched: {e}") from e
    data = b"".join(parts)
    if total is not None and len(data) != total:
        raise FileError(f"{url}: it could not be fetched: {len(data)} of {total} bytes came")
    return data
