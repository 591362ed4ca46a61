"""bench growth: the fit, what is linear, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyqfw import bench_growth, cli
from pyqfw.bench_growth import SWEEPS, fitted, net


@pytest.mark.parametrize(("exponent", "always"), [(1.0, 0.0), (1.0, 1e6), (2.0, 50.0), (1.5, 3.0)])
def test_the_fit_finds_a_power_over_what_is_always_there(exponent: float, always: float) -> None:
    sizes = SWEEPS["batch"]
    fit = fitted([(x, always + 7.0 * x**exponent) for x in sizes])
    assert fit.exponent == pytest.approx(exponent, abs=1e-6)
    assert fit.factor == pytest.approx(7.0, rel=1e-5)
    assert fit.at(3) == pytest.approx(always + 7.0 * 3**exponent, rel=1e-5)


@pytest.mark.parametrize(
    ("what", "least", "most"), [("batch", 1, 1), ("depth", 1, 1), ("width", 1, 2)]
)
def test_the_arena_grows_as_it_should(what: str, least: float, most: float) -> None:
    points = [(size, float(net(**{what: size}).plan.arena_bytes)) for size in SWEEPS[what]]
    assert least - 0.02 <= fitted(points).exponent <= most + 0.02


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_growth, "SWEEPS", {"batch": (2, 4, 8, 16), "depth": (1, 2, 4, 8)})
    page, drawn = tmp_path / "page.md", tmp_path / "growth.svg"
    page.write_text("# Performance\n\n## other\n\nkept\n")
    command = ["bench", "growth", "--repeats", "1", "--plot", str(drawn), "--into", str(page)]
    assert cli.main(command) == 0
    assert "depth 8" in capsys.readouterr().out
    assert drawn.read_text().lstrip().startswith("<?xml")
    text = page.read_text()
    assert "](growth.svg)" in text
    assert "## other\n\nkept" in text
    assert cli.main(["bench", "growth", "--repeats", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["what"] for row in told["rows"]] == ["batch", "depth"]
    assert told["rows"][1]["points"][3]["size"] == 8
