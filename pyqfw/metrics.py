"""What predictions say beside their loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ._arrays import Array
from .errors import QfwError

if TYPE_CHECKING:
    from .session import Session


def confusion(net: Session, x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Counts [what it was, what the net says]; labels out of range do not count."""
    output = net.predict(x)
    if output.ndim != 2:
        raise QfwError(f"confusion: an output of {output.shape[1:]} has no classes")
    n, labels = output.shape[1], np.asarray(y)
    inside = (labels >= 0) & (labels < n)
    pairs = n * labels[inside].astype(np.int64) + output[inside].argmax(1)
    return np.bincount(pairs, minlength=n * n).reshape(n, n)
