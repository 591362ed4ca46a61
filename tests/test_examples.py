"""Every example in a short form: it ends well and shows what it promises."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_loaders import write_fashion

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
OFFLINE = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


def run(name, *arguments, cwd):
    """What the example printed; no error, nothing on stderr."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    env = {**os.environ, **OFFLINE, "PYQFW_CACHE": str(cwd / "cache"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def har(tmp_path):
    """Two kinds of windows that differ in their mean."""
    rng = np.random.default_rng(0)
    arrays = {"class_names": np.array(["low", "high"])}
    for part, n in (("train", 96), ("test", 40)):
        y = np.arange(n) % 2
        x = 2 * y[:, None, None] + rng.normal(size=(n, 9, 128))
        arrays |= {f"x_{part}": x, f"y_{part}": y}
    np.savez(tmp_path / "har.npz", **arrays)
    return tmp_path / "har.npz"


def test_the_readme_has_the_quickstart():
    readme = (ROOT / "README.md").read_text()
    program = re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1)
    assert (EXAMPLES / "quickstart.py").read_text() == program


def test_har_watch(tmp_path):
    out = run("har_watch.py", "--people", 1, "--epochs", 1, "--policy", "int8", cwd=tmp_path)
    assert "10 groups: seglearn's smart watch" in out
    assert re.search(r"\n +1 +\d+\.\d% +\d+\.\d% +\d+\.\d%\n +mean ", out)
    bits = run("har_watch.py", "--people", 1, "--epochs", 1, "--bits", 4, cwd=tmp_path)
    assert "weights=Sym(4, axis=0, rounding='stochastic')" in bits


def test_personalise_on_device(tmp_path):
    short = ("--epochs", 1, "--tuning", 1, "--head", "--export", "fw", "--target", "cortex-m4")
    out = run("personalise_on_device.py", *short, cwd=tmp_path)
    assert "this machine: the same bits" in out
    assert (tmp_path / "fw" / "Makefile").is_file()


def test_har_uci(tmp_path, har):
    out = run("har_uci.py", har, "--epochs", 10, "--seeds", 2, "--cosine", cwd=tmp_path)
    scores = re.findall(r"seed \d: (\d+\.\d+)%, float32 twin (\d+\.\d+)%", out)
    assert len(scores) == 2
    assert min(float(v) for pair in scores for v in pair) > 60
    assert re.search(r"mean difference: [+-]\d+\.\d\d points", out)
    assert re.search(r"RAM: \d+ bytes at batch 64, \d+ at batch 1", out)


@pytest.mark.parametrize("policy", ["int8", "float32"])
def test_ecg_autoencoder(tmp_path, policy):
    out = run("ecg_autoencoder.py", "--epochs", 3, "--policy", policy, cwd=tmp_path)
    assert out.count("synthetic PQRST beats, not recorded from anyone") == 2
    assert float(re.search(r"AUC (\d\.\d+)", out).group(1)) > 0.6
    assert len(re.findall(r"% of \d+ above it", out)) == 5


def test_ecg_classifier(tmp_path):
    out = run("ecg_classifier.py", "--epochs", 3, cwd=tmp_path)
    assert float(re.search(r"(\d+\.\d+)%, \d+ bytes of RAM", out).group(1)) > 80


def test_images(tmp_path):
    out = run("images.py", "digits", "--epochs", 1, cwd=tmp_path)
    assert len(re.findall(r"Policy\.\w+\(\): \d+\.\d+% after each epoch", out)) == 2
    write_fashion(tmp_path)
    out = run("images.py", "fashion", "--data", tmp_path, "--epochs", 1, cwd=tmp_path)
    assert "train <Samples 6 of 1x28x28, 10 classes: Fashion-MNIST>" in out


def test_custom_loop(tmp_path):
    out = run("custom_loop.py", "--epochs", 2, cwd=tmp_path)
    accuracies = re.findall(r"epoch \d: loss \d+\.\d+, (\d+\.\d)% of 450 digits", out)
    assert len(accuracies) == 2
    assert float(accuracies[-1]) > 70
    assert "cross_entropy_s16" in out


def test_the_area_is_the_chance_that_an_anomaly_is_worse():
    sys.path.insert(0, str(EXAMPLES))
    try:
        from ecg_autoencoder import roc
    finally:
        sys.path.remove(str(EXAMPLES))
    rng = np.random.default_rng(0)
    error, anomaly = rng.integers(0, 9, 60) / 8, rng.random(60) < 0.4
    error[anomaly] += 0.25
    pairs = error[anomaly][:, None] - error[~anomaly]
    chance = np.mean((pairs > 0) + 0.5 * (pairs == 0))
    assert roc(error, anomaly).area == pytest.approx(chance, abs=1e-12)


# --- results --------------------------------------------------------------------------------------


def test_results_are_measured_and_written(tmp_path, har):
    quick = ("--seeds", 2, "--epochs", 1, "--docs", tmp_path)
    out = run("results.py", "har", har, *quick, cwd=tmp_path)
    store = json.loads((tmp_path / "results.json").read_text())
    scores = store["har"]["scores"]
    assert {len(values) for values in scores.values()} == {2}
    mean = np.mean(scores["int8()"])
    pairs = np.subtract(scores["int8()"], scores["float32"])
    error = pairs.std(ddof=1) / np.sqrt(2)
    page = (tmp_path / "results.md").read_text()
    assert f"| int8() | {mean:.2f} |" in page
    assert f"| {pairs.mean():+.2f} +- {error:.2f} |" in page
    assert "`python examples/results.py har har.npz --seeds 2 --epochs 1`: 2 seeds" in page
    assert "UCI HAR" in out
    write_fashion(tmp_path)
    run("results.py", "fashion", tmp_path, *quick, cwd=tmp_path)
    assert list(json.loads((tmp_path / "results.json").read_text())) == ["har", "fashion"]
    assert "Fashion-MNIST" in (tmp_path / "results.md").read_text()


def test_ranges_are_measured_and_written(tmp_path, har):
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    out = run("ranges.py", har, "--seeds", 1, "--epochs", 1, "--into", page, cwd=tmp_path)
    lines = [line for line in out.splitlines() if line.startswith(("dynamic", "hindsight wires"))]
    assert len(lines) == 3  # dynamic ones stored and recomputed
    assert lines[0] in page.read_text()


def test_nothing_on_the_page_is_typed_by_hand(tmp_path):
    docs = ROOT / "docs"
    (tmp_path / "results.json").write_text((docs / "results.json").read_text())
    run("results.py", "page", "--docs", tmp_path, cwd=tmp_path)
    assert (tmp_path / "results.md").read_text() == (docs / "results.md").read_text()


LONG = {"results.py": 200, "ranges.py": 160}  # they measure, and write pages


def test_examples_are_short():
    for file in sorted(EXAMPLES.glob("*.py")):
        assert len(file.read_text().splitlines()) <= LONG.get(file.name, 120), file.name
