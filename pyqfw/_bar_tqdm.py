"""tqdm's bar as it is used here."""

from __future__ import annotations

from threading import RLock

from tqdm.std import tqdm


class Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """tqdm's bar of text, which is the same in a terminal and a notebook.

    No watching thread and no lock between processes: a DataLoader may fork.
    """

    monitor_interval = 0


Bar.set_lock(RLock())
