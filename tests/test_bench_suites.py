"""`pyqfw bench gemm` and `layers`, and the file that a suite writes its table into."""

import json
import re
from importlib.util import find_spec

import numpy as np
import pytest

from pyqfw import bench, bench_gemm, bench_layers, bench_quant, cli, quant


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(bench, "MIN_SECONDS", 0)


@pytest.fixture
def no_torch(monkeypatch, quick):
    monkeypatch.setattr(bench, "optional", lambda name: None)


def report(capsys, suite, *args):
    assert cli.main(["bench", suite, "--repeats", "1", "--json", *args]) == 0
    return json.loads(capsys.readouterr().out)


def test_products(capsys, no_torch):
    rows = report(capsys, "gemm")["rows"]
    assert [row["name"] for row in rows] == [
        f"{name} {m} x {k} x {n}" for m, k, n in bench_gemm.SIZES for name in ("s16", "s8", "f32")
    ]
    assert {(row["unit"], row["peer"]) for row in rows} == {("GMAC/s", "NumPy f32")}
    assert {row["name"]: row["bar"] for row in rows if row["bar"]} == {
        "s16 256 x 256 x 256": 1.5,
        "s16 64 x 128 x 256": 1.5,
    }


@pytest.mark.parametrize("isa", quant.core_info()["isas"])
@pytest.mark.parametrize("name", bench_gemm.TYPES)
def test_the_products_are_products(name, isa):
    a, b, out = bench_gemm.operands(name, 5, 37, 19)
    with quant.isa(isa):
        quant.product(a, b, out)
    if name == "f32":
        wanted = np.zeros((5, 19), np.float32)
        for p in range(37):  # ascending, each rounded
            wanted += a[:, p, None] * b[None, :, p]
    else:
        wanted = a.astype(np.int64) @ b.astype(np.int64).T
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("isa", quant.core_info()["isas"])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_the_limit_counts_what_it_makes(bits, isa):
    with quant.isa(isa):
        once = quant.peak(bits, 1)
        assert quant.peak(bits, 1000) == 1000 * once
    assert once == 0 if isa == "portable" else once >= 8 * 8


def test_what_is_multiplied_stands_beside_the_limit(capsys, no_torch, monkeypatch):
    monkeypatch.setattr(bench_gemm, "SIZES", ((64, 64, 64),))
    monkeypatch.setattr(bench_layers, "LAYERS", bench_layers.LAYERS[:1])
    wide = quant.core_info()["isa"] != "portable"
    for suite in ("gemm", "layers"):
        for row in report(capsys, suite)["rows"]:
            assert row["gmacs"] > 0
            assert (row["gmacs"] < row["limit"]) if wide else row["limit"] is None
    assert cli.main(["bench", "layers", "--repeats", "1"]) == 0
    assert re.search(r"^work +rate +GMAC/s +limit +peer", capsys.readouterr().out, re.M)


def test_layers_without_torch(capsys, no_torch):
    shown = report(capsys, "layers")
    assert any("torch is not installed" in note for note in shown["notes"])
    assert [row["name"] for row in shown["rows"]] == [
        f"{layer.title}, {policy}"
        for layer in bench_layers.LAYERS
        for policy in ("int8()", "float32()")
    ]
    assert all(row["rate"] > 0 and row["peer"] is None for row in shown["rows"])


if find_spec("torch"):

    def test_layers_beside_torch(capsys, quick):
        rows = report(capsys, "layers")["rows"]
        assert {row["peer"] for row in rows} == {"torch"}
        assert all(row["ratio"] > 0 for row in rows)


# --- the file ------------------------------------------------------------------------------------


def test_a_table_goes_under_its_heading(capsys, no_torch, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_gemm, "SIZES", ((2, 3, 4),))
    path = tmp_path / "performance.md"
    path.write_text("# Performance\n\nWords.\n\n## gemm\n\nold\n\n## train\n\nstays\n")
    assert cli.main(["bench", "gemm", "--repeats", "1", "--into", str(path)]) == 0
    shown = capsys.readouterr().out
    text = path.read_text()
    assert text.startswith("# Performance\n\nWords.\n\n## gemm\n")
    assert text.endswith("\n\n## train\n\nstays\n")
    assert "old" not in text
    for line in (line for line in shown.splitlines() if line.startswith(("work", "s8 "))):
        assert line in text
    assert bench.cpu_model() in text


def test_a_new_file_and_a_new_section(capsys, no_torch, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_gemm, "SIZES", ((2, 3, 4),))
    monkeypatch.setattr(bench_quant, "cases", lambda elements: bench_gemm.cases())
    path = tmp_path / "new.md"
    for suite in ("gemm", "quant", "gemm"):
        assert cli.main(["bench", suite, "--repeats", "1", "--into", str(path)]) == 0
    headings = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert headings == ["# Performance", "## gemm", "## quant"]
