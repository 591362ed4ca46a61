"""Steps take no more instructions than budgets.json allows."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pyqfw import bench_mcu


def load() -> ModuleType:
    file = Path(__file__).with_name("budgets.py")
    spec = importlib.util.spec_from_file_location("budgets", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["budgets"] = module
    spec.loader.exec_module(module)
    return module


BUDGETS = load()
ALLOWED = json.loads(BUDGETS.FILE.read_text())


@pytest.mark.parametrize("core", BUDGETS.CORES)
@pytest.mark.parametrize("kind", BUDGETS.KINDS)
def test_within_budget(kind: str, core: str) -> None:
    assert BUDGETS.grown(BUDGETS.measured(kind, core), ALLOWED[kind][core]) == []


@pytest.mark.parametrize(
    ("batch", "most"), [("1, SGD", 31_000), ("1, 8-bit momentum", 60_000), ("8, 8-bit", 150_000)]
)
def test_digits_are_learnt_within_the_bar(batch: str, most: int) -> None:
    """The mean of a hundred: MLP 64-32-10, int8, fused, a Cortex-M4 without FPU."""
    cases = (c for c in bench_mcu.cases() if c.name.startswith(f"MLP 64-32-10 step, batch {batch}"))
    assert next(cases).count() <= most


def test_steps_over_noise_are_within_the_bar() -> None:
    """They are large: the first rows have no range, the next move by more than a byte."""
    cases = (c for c in bench_mcu.cases() if c.name.startswith("Conv1d 9x128 k5 16"))
    assert next(cases).count() <= 650_000


def test_what_grows_is_named() -> None:
    budget = ALLOWED["mlp"]["cortex-m4"]
    now = copy.deepcopy(budget)
    name = next(n for n in now["operations"] if "product" in n)
    now["operations"][name] += budget["step"]
    now["step"] += budget["step"]
    told = BUDGETS.grown(now, budget)
    assert told[0].startswith(f"{name}: ")
    assert told[-1].startswith("step: ")
    assert BUDGETS.grown(budget, budget) == []
