"""The progress bar."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import QfwError

if TYPE_CHECKING:
    from ._bar_tqdm import Bar


def bar(progress: object, **options: Any) -> Bar:
    """A bar on stderr: if `progress` says so, or, where it is None, if somebody can see it."""
    from ._bar_tqdm import Bar  # an import of its own weight

    if progress is not None and not isinstance(progress, bool):
        raise QfwError(f"progress must be None, True or False, not {progress!r}")
    shown = sys.stderr is not None and (_visible() if progress is None else progress)
    return Bar(disable=not shown, dynamic_ncols=True, **options)


def text(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.4g}" for name, value in values.items())


def _visible() -> bool:
    """Whether stderr is a terminal or a notebook."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
