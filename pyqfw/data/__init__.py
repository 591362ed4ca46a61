"""Data as nets take them: standardising, windows over recordings, splits by group, loaders."""

from .activity import uci_har, watch
from .ecg import beats, ecg5000, synthetic_beats
from .files import npz
from .images import digits, fashion_mnist, idx, idx_images
from .samples import Samples, Split, leave_groups_out, split_recordings, windows
from .standardize import Standardize

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
