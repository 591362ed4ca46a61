"""These tests compare with PyTorch, which is an extra of its own: without it there are none."""

from importlib.util import find_spec

import pytest

_SPEC = find_spec("torch")
# A mere folder of that name (this one) has no origin.
collect_ignore_glob = [] if _SPEC is not None and _SPEC.origin else ["test_*.py"]


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in torch's own order, whatever the machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
