"""Data as nets take them: standardising, windows over recordings, splits by group, loaders."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .samples import Samples, Split, leave_groups_out, split_recordings, windows
from .standardize import Standardize

if TYPE_CHECKING:
    from .activity import uci_har, watch
    from .ecg import beats, ecg5000, synthetic_beats
    from .files import npz
    from .images import digits, fashion_mnist, idx, idx_images

__all__ = [
    "Samples",
    "Split",
    "Standardize",
    "beats",
    "digits",
    "ecg5000",
    "fashion_mnist",
    "idx",
    "idx_images",
    "leave_groups_out",
    "npz",
    "split_recordings",
    "synthetic_beats",
    "uci_har",
    "watch",
    "windows",
]

_LOADERS = {
    "activity": ("uci_har", "watch"),
    "ecg": ("beats", "ecg5000", "synthetic_beats"),
    "files": ("npz",),
    "images": ("digits", "fashion_mnist", "idx", "idx_images"),
}


def __getattr__(name: str) -> Any:
    """Loaders are imported when they are first asked for."""
    for module, names in _LOADERS.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
