"""These tests compare with PyTorch, which is an extra of its own: without it there are none."""

from importlib.util import find_spec

_SPEC = find_spec("torch")
# A mere folder of that name (this one) has no origin.
collect_ignore_glob = [] if _SPEC is not None and _SPEC.origin else ["test_*.py"]
