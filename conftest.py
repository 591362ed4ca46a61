"""Test the installed package: `python -m pytest` puts the checkout first on sys.path."""

import importlib.abc
import importlib.util
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != _ROOT]


class _SharedTestModules(importlib.abc.MetaPathFinder):
    """`import oracle` finds tests/oracle.py.

    tests/ itself stays off sys.path: its folder torch would answer to `import torch`.
    """

    def find_spec(self, fullname, path=None, target=None):
        file = _ROOT / "tests" / f"{fullname}.py"
        return importlib.util.spec_from_file_location(fullname, file) if file.is_file() else None


sys.meta_path.append(_SharedTestModules())
