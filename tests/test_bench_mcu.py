"""`pyqfw bench mcu`: exact counts beside those recorded, bars, the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pyqfw import bench_mcu, cli
from pyqfw.errors import QfwError


def made(*given: tuple[str, float, float | None, float | None]) -> Iterator[bench_mcu.Case]:
    """Cases that count nothing: name, instructions, peer's figure, bar."""
    for name, count, peer, most in given:
        yield bench_mcu.Case(
            name, "cortex-m4", "per MAC", 10, partial(float, count), "it", peer, most
        )


def test_rows_bars_and_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = (("near", 20.0, 4.0, 2.0), ("far", 21.0, None, 2.0), ("free", 5.0, 1.0, None))
    monkeypatch.setattr(bench_mcu, "cases", lambda: made(*given))
    path = tmp_path / "performance.md"
    assert cli.main(["bench", "mcu", "--json", "--check", "--into", str(path)]) == 1
    shown = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(shown.out)["rows"]}
    assert [(r["count"], r["ratio"], r["met"]) for r in rows.values()] == [
        (2.0, 2.0, True),
        (2.1, None, False),
        (0.5, 2.0, None),
    ]
    assert {r["limit"] for r in rows.values()} == {0.5}  # SMLAD makes two
    assert "below the bar: far" in shown.err
    text = path.read_text()
    assert text.startswith("# Performance\n\n## mcu\n\n`pyqfw bench mcu`: emulated; ")
    assert "MISSED" in text
    monkeypatch.setattr(bench_mcu, "cases", lambda: made(given[0]))
    assert cli.main(["bench", "mcu", "--check"]) == 0


def test_a_ratio_is_a_bar_too() -> None:
    cheap = bench_mcu.Row("step", "cortex-m4f", "instructions", 10.0, "it", 25.0, None, 2.0)
    assert cheap.met is True
    assert bench_mcu.Row(*cheap.__dict__.values()) == cheap
    dear = bench_mcu.Row("step", "cortex-m4f", "instructions", 20.0, "it", 25.0, None, 2.0)
    assert dear.met is False
    assert ">= 2x" in bench_mcu.table([cheap, dear])


def test_counts_are_those_of_the_layer() -> None:
    """Of a Linear: no fewer instructions than its products by SMLAD, and the same at every run."""
    linear = bench_mcu.LINEAR
    net = bench_mcu.session(linear.model(), linear.shape, bench_mcu.FIXED)
    forward = [bench_mcu.Part("1", ("product_s32",))]
    counts = [bench_mcu.of_parts(net, "cortex-m4", forward) for _ in range(2)]
    assert counts[0] == counts[1]
    assert bench_mcu.LIMITS["cortex-m4"] * linear.macs < counts[0] < 4 * linear.macs
    with pytest.raises(QfwError, match="the plan has"):
        bench_mcu.of_parts(net, "cortex-m4", [bench_mcu.Part("9", ("product_s32",))])


def test_every_shape_has_the_products_that_it_says() -> None:
    for shape in bench_mcu.SHAPES:
        plan = bench_mcu.session(shape.model(), shape.shape, bench_mcu.FIXED).plan
        ops = [op for op in plan.ops if op.layer == "1" and op.macs]
        assert {op.macs for op in ops} == {shape.macs}
        assert ops[0].used[0].fmt == bench_mcu.WIRES
