"""What a script waits for before its first step: importing pyqfw, compiling a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest
from test_pools_har import FUSED, HINDSIGHT, plan_of

import pyqfw as q

BUSY = 2.5  # processor time grows where others share the core and its caches

SECONDS = """
from time import process_time
begin = process_time()
import pyqfw
print(process_time() - begin)
"""
MODULES = "import sys, pyqfw; print(*sys.modules)"


def run(code: str, cache: Path) -> str:
    """With bytecode that is kept, as an installed package has it."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(cache)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, cwd=cache, check=True, capture_output=True, text=True)
    return done.stdout


def test_import_is_short(tmp_path: Path) -> None:
    run("import pyqfw", tmp_path)
    assert min(float(run(SECONDS, tmp_path)) for _ in range(5)) <= 0.25 * BUSY


def test_what_few_need_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    loaded = set(run(MODULES, tmp_path).split())
    assert "pyqfw.session" in loaded
    late = {
        "tqdm",
        "matplotlib",
        "torch",
        "urllib.request",
        "unicorn",
        "pyqfw.mcu",
        "pyqfw.firmware",
    }
    assert loaded.isdisjoint(late | {"pyqfw.data.ecg", "pyqfw.data.activity", "pyqfw.cli"})


def test_names_that_come_late_are_there() -> None:
    for module in (q, q.data):
        assert set(module.__all__) <= set(dir(module))
        for name in module.__all__:
            assert getattr(module, name) is getattr(module, name)
    assert callable(q.export)
    assert callable(q.mcu.run)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        q.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        q.data.nothing  # noqa: B018


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("policy", [q.Policy.int8(), FUSED, HINDSIGHT], ids=["int8", "fused", "hs"])
def test_compiling_the_har_cnn_is_short(policy: q.Policy, batch: int) -> None:
    taken = []
    for _ in range(5):
        begin = process_time()
        plan_of(policy, batch)
        taken.append(process_time() - begin)
    assert min(taken) <= 0.050 * BUSY
