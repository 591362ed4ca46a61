"""tests/target/steps.json, with which boards are compared, is what a session does here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stepgold

from pyqfw import quant, wire


@pytest.mark.parametrize("isa", quant.core_info()["isas"])
def test_the_file_is_what_a_session_does(isa: str) -> None:
    with quant.isa(isa):
        assert stepgold.FILE.read_text() == stepgold.generate(), "run python tests/stepgold.py"


def test_the_networks_have_every_operation() -> None:
    plans = [network.session().plan for network in stepgold.NETWORKS.values()]
    assert {op.kernel for plan in plans for op in plan.ops} == wire.KERNELS.keys()


def test_the_networks_fit_a_small_board() -> None:
    """16 KiB, of which 6 are the stack; some for the rest of the test."""
    cases = json.loads(stepgold.FILE.read_text())["cases"]
    assert max(case["arena_bytes"] for case in cases) <= 8 * 1024


def test_a_file_that_differs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = stepgold.FILE.read_text()
    monkeypatch.setattr(stepgold, "FILE", tmp_path / "steps.json")
    stepgold.FILE.write_text(text)
    assert stepgold.main(["--check"]) == 0
    stepgold.FILE.write_text(text.replace('"rows":[4', '"rows":[3'))
    assert stepgold.main(["--check"]) == 1
