"""The command `pyqfw`, and the timing driver behind `pyqfw bench`."""

import contextlib
import gc
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyqfw
from pyqfw import bench, bench_quant, cli, quant

QUICK = ["--elements", "2k", "--repeats", "2"]


@pytest.fixture
def no_torch(monkeypatch):
    """As on a machine without torch; and timings that do not repeat short calls."""
    monkeypatch.setattr(bench, "optional", lambda name: None)
    monkeypatch.setattr(bench, "MIN_SECONDS", 0)


# --- version, info -------------------------------------------------------------------------------


def test_version(tmp_path):
    code = "import sys; from pyqfw.cli import main; sys.exit(main(['--version']))"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"pyqfw {pyqfw.__version__}\n"


def test_the_module_is_the_command(tmp_path):
    run = [sys.executable, "-m", "pyqfw", "--version"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"pyqfw {pyqfw.__version__}\n")


def test_the_packages_script_is_this_command():
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f'pyqfw = "{cli.main.__module__}:{cli.main.__name__}"' in project


def test_info_json(capsys):
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    core = quant.core_info()
    assert facts["pyqfw"] == pyqfw.__version__
    assert facts["core"] == core["version"]
    assert facts["compiler"] == core["compiler"]
    assert facts["isa"] == core["isa"]
    assert facts["isa"] in facts["isas"]
    assert "portable" in facts["isas"]
    assert facts["python"] == platform.python_version()
    assert facts["numpy"] == np.__version__
    assert facts["extras"]["pytest"] == pytest.__version__
    assert set(facts["extras"]) == set(cli.EXTRAS)


def test_info_text(capsys):
    assert cli.main(["info"]) == 0
    shown = capsys.readouterr().out
    core = quant.core_info()
    for fact in (core["version"], core["compiler"], core["isa"], np.__version__, "pytest"):
        assert str(fact) in shown


def test_a_missing_extra_is_said_to_be_missing(capsys, monkeypatch):
    monkeypatch.setattr(cli, "EXTRAS", ("pytest", "no_such_module"))
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"extras    pytest {pytest.__version__}" in lines
    assert "missing   no_such_module" in lines


def test_a_folder_is_not_an_extra(capsys, monkeypatch, tmp_path):
    (tmp_path / "not_a_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "EXTRAS", ("not_a_package",))
    assert cli.main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["extras"] == {"not_a_package": None}


# --- usage ---------------------------------------------------------------------------------------


COMMANDS = [
    [],
    ["info"],
    ["bench"],
    *(["bench", suite] for suite in ("quant", "gemm", "layers", "train")),
]


@pytest.mark.parametrize("words", COMMANDS)
def test_help_has_an_example(words, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main([*words, "--help"])
    assert done.value.code == 0
    example = capsys.readouterr().out.partition("example: ")[2]
    assert example.startswith(" ".join(["pyqfw", *words]))


def test_every_example_parses(capsys):
    for words in COMMANDS:
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        example = capsys.readouterr().out.partition("example: ")[2].partition(">")[0]
        cli._parser().parse_args(example.split()[1:])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "command"),
        (["inform"], "inform"),
        (["info", "extra"], "extra"),
        (["bench"], "suite"),
        (["bench", "sorting"], "sorting"),
        (["bench", "quant", "--elements", "5"], "multiple of 1024"),
        (["bench", "quant", "--elements", "0"], "multiple of 1024"),
        (["bench", "quant", "--elements", "-1024"], "multiple of 1024"),
        (["bench", "quant", "--elements", "1.5M"], "multiple of 1024"),
        (["bench", "quant", "--elements", "M"], "multiple of 1024"),
        (["bench", "quant", "--elements", ""], "multiple of 1024"),
        (["bench", "quant", "--elements", "8192M"], "multiple of 1024 up to 4096M"),
        (["bench", "quant", "--repeats", "0"], "integer >= 1"),
        (["bench", "quant", "--repeats", "two"], "integer >= 1"),
        (["bench", "quant", "--isa", "mmx"], "portable"),
        (["bench", "train", "--batch"], "--batch"),
        (["bench", "train", "--batch", "0"], "from 1 to 4096"),
        (["bench", "train", "--batch", "64", "4097"], "from 1 to 4096"),
        (["bench", "train", "--batch", "-1"], "--batch"),
        (["bench", "train", "--batch", "64,1"], "from 1 to 4096"),
        (["bench", "train", "--repeats", "0"], "integer >= 1"),
    ],
)
def test_bad_input_is_one_sentence_on_stderr(words, says, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(words)
    assert done.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert says in shown.err
    assert shown.err.startswith("pyqfw")


def test_too_little_memory(capsys, monkeypatch, no_torch):
    def cases(elements):
        raise MemoryError

    monkeypatch.setattr(bench_quant, "cases", cases)
    assert cli.main(["bench", "quant"]) == 1
    assert "not enough memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "n"), [("1024", 1024), ("1k", 1024), ("16M", 2**24), ("4096M", 2**32)]
)
def test_sizes(text, n):
    assert cli._elements(text) == n


# --- bench quant ---------------------------------------------------------------------------------


def quant_rows(capsys, *args):
    assert cli.main(["bench", "quant", *QUICK, "--json", *args]) == 0
    shown = capsys.readouterr()
    assert shown.err == "", "progress is for terminals"
    return json.loads(shown.out)


def test_bench_quant_json(capsys, no_torch):
    report = quant_rows(capsys)
    assert report["elements"] == 2048
    assert report["repeats"] == 2
    assert report["threads"] == 1
    assert report["machine"]["compiler"] == quant.core_info()["compiler"]
    assert any("torch is not installed" in note for note in report["notes"])
    rows = {row["name"]: row for row in report["rows"]}
    assert len(rows) == len(report["rows"])
    for g in (32, 64, 128):
        for name in (
            f"quantize(x, Sym(8, group={g}))",
            f"quantize_affine int8, group={g}",
            f"quantize_affine int8, group={g}, out=",
        ):
            assert rows[name]["peer"] == "memcpy"
            assert (rows[name]["bar"], rows[name]["bar_of"]) == (0.9, "ratio")
    for grain in ("tensor", "channel"):
        for suffix in ("", ", out="):
            assert rows[f"fake_quantize per {grain}, 2k{suffix}"]["peer"] is None
    for bits in (3, 5, 6, 7, 9, 11, 12, 13):
        kind = "int8" if bits <= 8 else "int16"
        for name in ("pack", "unpack"):
            row = rows[f"{name} {bits} bits, {kind}"]
            assert (row["bar"], row["bar_of"], row["unit"]) == (1.0, "rate", "GB/s")
    for row in rows.values():
        low, high = row["rate_quartiles"]
        assert 0 < low <= row["rate"] <= high
        value = row[row["bar_of"]]
        assert row["met"] == (None if row["bar"] is None else value >= row["bar"])


@pytest.mark.parametrize("isa", quant.core_info()["isas"])
def test_bench_quant_with_an_isa(isa, capsys, no_torch):
    assert quant_rows(capsys, "--isa", isa)["machine"]["isa"] == isa


def test_bench_quant_table(capsys, no_torch):
    assert cli.main(["bench", "quant", *QUICK]) == 0
    shown = capsys.readouterr().out
    for word in ("memcpy", "unpack 13 bits", ">= 0.9x", ">= 1 GB/s", np.__version__, "anew"):
        assert word in shown
    assert not any(line != line.rstrip() for line in shown.splitlines())


def test_check_fails_when_a_bar_is_missed(capsys, monkeypatch, no_torch):
    monkeypatch.setattr(bench_quant, "MEMCPY_BAR", 0.0)
    monkeypatch.setattr(bench_quant, "PACK_BAR", 0.0)
    assert cli.main(["bench", "quant", *QUICK, "--check"]) == 0
    monkeypatch.setattr(bench_quant, "PACK_BAR", 1e12)
    assert cli.main(["bench", "quant", *QUICK, "--check"]) == 1
    shown = capsys.readouterr()
    assert "unpack 13 bits" in shown.err
    assert "MISSED" in shown.out
    assert cli.main(["bench", "quant", *QUICK]) == 0


def test_progress_on_a_terminal(capsys, monkeypatch, no_torch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["bench", "quant", *QUICK, "--json"]) == 0
    shown = capsys.readouterr()
    assert "unpack 13 bits" in shown.err
    assert shown.err.endswith("\r\033[K"), "the line is wiped at the end"
    json.loads(shown.out)


def test_quiet_puts_everything_back():
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with contextlib.suppress(KeyError), bench.quiet() as pinned:
        assert not gc.isenabled()
        if cores:
            assert pinned
            assert len(os.sched_getaffinity(0)) == 1
        raise KeyError
    assert gc.isenabled()
    if cores:
        assert os.sched_getaffinity(0) == cores


# --- the timing driver ---------------------------------------------------------------------------


class Work:
    """A clock, and work that takes the time its list says, once over and then the last for ever."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def clock(self):
        return self.now

    def takes(self, name, *seconds):
        rest = list(seconds)

        def run():
            self.log.append(name)
            self.now += rest.pop(0) if len(rest) > 1 else rest[0]

        return run


def test_measure_interleaves_and_takes_the_median_of_the_ratios():
    work = Work()
    # The first calls warm up and find the number of calls.
    warm = 1 + bench.WARM_UP
    ours = work.takes("ours", *[1] * warm, 1.0, 2.0, 4.0)
    peer = work.takes("peer", *[9] * warm, 3.0, 2.0, 20.0)
    case = bench.Case("w", ours, 8.0, "GB/s", "p", peer, bar=3.0)
    row = bench.measure(case, 3, work.clock)
    warm_up = [*["ours"] * warm, *["peer"] * warm]
    assert work.log == [*warm_up, "ours", "peer", "peer", "ours", "ours", "peer"]
    assert row.ratio == 3.0  # of 3/1, 2/2, 20/4
    assert row.ratio_quartiles == (2.0, 4.0)
    assert row.rate == 4.0  # of 8/1, 8/2, 8/4
    assert row.rate_quartiles == (3.0, 6.0)
    assert row.peer_rate == pytest.approx(8 / 3)
    assert row.met is True


def test_measure_repeats_short_calls():
    work = Work()
    slow_first = work.takes("w", 0.1, 0.01, 0.001)
    row = bench.measure(bench.Case("w", slow_first, 1.0, "GB/s"), 2, work.clock)
    assert len(work.log) == 1 + bench.WARM_UP + 2 * round(bench.MIN_SECONDS / 0.001)
    assert row.rate == pytest.approx(1000.0)
    assert (row.peer, row.peer_rate, row.ratio, row.ratio_quartiles) == (None,) * 4


def test_measure_survives_a_clock_that_stands_still():
    ticks = iter([*[0.0] * 2 * bench.WARM_UP, 1.0, 2.0])
    row = bench.measure(bench.Case("w", lambda: None, 1.0, "GB/s"), 1, ticks.__next__)
    assert row.rate == 1.0


@pytest.mark.parametrize(
    ("bar", "bar_of", "met"),
    [
        (None, "ratio", None),
        (2.0, "ratio", True),
        (2.1, "ratio", False),
        (5.0, "rate", True),
        (5.1, "rate", False),
    ],
)
def test_met(bar, bar_of, met):
    row = bench.Row("w", "GB/s", 5.0, (5.0, 5.0), "p", 2.5, 2.0, (2.0, 2.0), bar, bar_of)
    assert row.met is met


def test_cpu_model_and_optional():
    assert bench.cpu_model()
    assert bench.optional("json") is json
    assert bench.optional("no_such_module") is None
