"""`pyqfw train`, `eval`, `inspect`, `report`: a model of a script, from arrays to a page."""

import json
import re

import numpy as np
import pytest

import pyqfw as q
from pyqfw import cli

SCRIPT = """
from pyqfw import nn

def make_model():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

def autoencoder():
    return nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6))

def nothing():
    return None

def broken():
    return nn.Linear(0, 3)

number = 7
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with net.py, data.npz and alone.npz, where the command runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(SCRIPT)
    (tmp_path / "bad.py").write_text("import no_such_module\n")
    rng = np.random.default_rng(0)
    x = rng.normal([0, 5, -3, 100, 0, 1], [1, 2, 3, 50, 1, 1], (120, 6))
    y = (x[:, 0] > 0).astype(int) + (x[:, 3] > 100)
    names = np.array(["low", "middle", "high"])
    parts = {"x_train": x[:80], "y_train": y[:80], "x_test": x[80:], "y_test": y[80:]}
    np.savez(tmp_path / "data.npz", **parts, class_names=names)
    np.savez(tmp_path / "alone.npz", x=x, y=y)
    return tmp_path


def run(capsys, *arguments):
    """Status, stdout, stderr."""
    status = cli.main([str(a) for a in arguments])
    return (status, *capsys.readouterr())


def trained(capsys, *more):
    arguments = ("net.py:make_model", "--data", "data.npz", "--epochs", 20, "--batch", 8)
    return run(capsys, "train", *arguments, "--lr", "0.05", *more)


def test_from_arrays_to_a_page(place, capsys):
    status, out, err = trained(capsys, "--twin", "--out", "m.safetensors", "--report", "r.html")
    assert (status, err) == (0, "")
    assert re.search(r"net: Policy\.int8\(\): loss .*val_accuracy 0\.[89]", out)
    assert "twin: Policy.float32()" in out
    assert "written: m.safetensors, r.html" in out
    page = (place / "r.html").read_text()
    assert all(f'alt="{title}"' in page for title in ("Learning", "Counters over time", "Codes"))

    net = q.Session.load("m.safetensors")
    assert net.plan.request.preprocess is not None
    status, out, err = run(capsys, "eval", "m.safetensors", "--data", "data.npz", "--json")
    found = json.loads(out)
    data = q.data.npz("data.npz").test
    assert found["accuracy"] == q.evaluate(net, data.x, data.y)["accuracy"]
    assert np.sum(found["confusion"]) == found["rows"] == 40
    assert found["classes"] == ["low", "middle", "high"]
    status, out, err = run(capsys, "eval", "m.safetensors", "--data", "data.npz")
    assert (status, err) == (0, "")
    assert re.match(r"loss \d\.\d+, accuracy 0\.\d+, 40 rows\n", out)
    assert re.search(r"\nlow +\d+ +\d+ +\d+\nmiddle ", out)

    status, out, err = run(capsys, "report", "m.safetensors", "--data", "data.npz")
    assert (status, out, err) == (0, "report.html\n", "")
    assert "Confusion matrix" in (place / "report.html").read_text()
    assert run(capsys, "report", "m.safetensors", "--out", "b.html")[0] == 0


def test_train_json(place, capsys):
    status, out, err = trained(capsys, "--json", "--policy", "full_sym", "--cosine", "--bits", "6")
    assert (status, err) == (0, "")
    found = json.loads(out)["net"]
    assert len(found["loss"]) == 20
    assert found["scores"]["val_accuracy"] == found["val_accuracy"][-1]
    assert found["lr"][-1] < found["lr"][0]


def test_the_same_bits_as_in_python(place, capsys):
    trained(capsys, "--out", "m.safetensors", "--seed", "3", "--raw")
    data = q.data.npz("data.npz")
    from pyqfw import nn

    plan = q.compile(
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        input_shape=6,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.05, momentum=0.9),
        policy=q.Policy.int8(),
        batch=8,
        seed=3,
    )
    net = q.Session(plan)
    q.fit(net, data.train.x, data.train.y, epochs=20, progress=False)
    saved = q.Session.load("m.safetensors")
    np.testing.assert_array_equal(net.predict(data.test.x), saved.predict(data.test.x))


def test_x_and_y_alone_are_no_validation(place, capsys):
    given = ("--data", "alone.npz", "--epochs", 2, "--json")
    status, out, _ = run(capsys, "train", "net.py:make_model", *given)
    assert status == 0
    assert "val_loss" not in json.loads(out)["net"]


def test_an_autoencoder(place, capsys):
    given = ("--data", "data.npz", "--epochs", 2, "--loss", "mse", "--out", "a.safetensors")
    assert run(capsys, "train", "net.py:autoencoder", *given, "--lr", "1e-5")[0] == 0
    status, out, _ = run(capsys, "eval", "a.safetensors", "--data", "data.npz", "--json")
    assert status == 0
    assert set(json.loads(out)) == {"loss", "rows"}


def test_inspect(place, capsys):
    trained(capsys, "--out", "m.safetensors")
    net = q.Session.load("m.safetensors")
    status, out, err = run(capsys, "inspect", "m.safetensors", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["arena_bytes"] == net.plan.arena_bytes
    assert found["steps"] == net.steps == 200
    assert [layer["parameters"] for layer in found["layers"]] == [56, 0, 27]
    weight = found["tensors"]["0.weight"]
    stored = net.tensor("0.weight")
    assert weight["format"] == "Sym(8, axis=0, rounding='stochastic')"
    assert weight["bytes"] == stored.nbytes
    assert (weight["least"], weight["most"]) == (stored.numpy().min(), stored.numpy().max())
    assert weight["scales"] == [stored.scale.min(), stored.scale.max()]
    assert "0.weight:momentum" in found["tensors"]
    status, out, err = run(capsys, "inspect", "m.safetensors", "--plan")
    assert (status, err) == (0, "")
    assert re.search(r"\n2 +Linear\(in_features=8, .* 3 *\n", out)
    assert re.search(r"\n0\.bias +8 +Sym\(16, rounding='stochastic'\) +\d+ ", out)
    assert "product_s32" in out


def test_the_demo(place, capsys):
    status, out, err = run(capsys, "demo", "--epochs", 1, "--person", 3, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["report"] == "pyqfw-demo/report.html"
    assert found["int8"]["arena"] < found["float32"]["arena"]
    net = q.Session.load("pyqfw-demo/model.safetensors")
    assert net.plan.arena_bytes == found["int8"]["arena"]
    device = found["device"]
    assert device["same_bits"] is True
    assert device["after"] == found["int8"]["after"]
    assert device["ram"] > net.plan.arena_bytes
    assert device["instructions"] > 0
    assert "a smart watch meets a new person" in (place / "pyqfw-demo/report.html").read_text()
    status, out, err = run(capsys, "demo", "--epochs", 1, "--out", "b")
    assert (status, err) == (0, "")
    assert re.search(r"\nint8 +\d+\.\d% +\d+\.\d% +\d+\nfloat32 ", out)
    assert re.search(r"\nint8 on cortex-m4 +\d+\.\d% ", out)
    assert "the same bits as here" in out


BAD = {
    "no colon": (("train", "net.py", "--data", "data.npz"), "write SCRIPT.py:FUNCTION"),
    "no script": (("train", "x.py:f", "--data", "data.npz"), "x.py: there is no such file"),
    "no function": (("train", "net.py:f", "--data", "data.npz"), "there is no function f"),
    "a number": (("train", "net.py:number", "--data", "data.npz"), "there is no function number"),
    "no model": (("train", "net.py:nothing", "--data", "data.npz"), "returned a NoneType"),
    "a bad layer": (("train", "net.py:broken", "--data", "data.npz"), "net.py:broken: QfwError"),
    "a bad script": (("train", "bad.py:f", "--data", "data.npz"), "does not run: ModuleNotFound"),
    "no data": (("train", "net.py:make_model", "--data", "x.npz"), "x.npz: there is no such file"),
    "no npz": (("train", "net.py:make_model", "--data", "net.py"), "net.py: the file is damaged"),
    "bits": (("train", "net.py:make_model", "--data", "data.npz", "--bits", "40"), "bits"),
    "no folder": (
        ("train", "net.py:make_model", "--data", "data.npz", "--epochs", 1, "--out", "a/b"),
        "No such file or directory",
    ),
    "eval nothing": (("eval", "x.safetensors", "--data", "data.npz"), "there is no such file"),
    "eval no net": (("eval", "data.npz", "--data", "data.npz"), "no file that Session.save wrote"),
    "inspect nothing": (("inspect", "x"), "x: there is no such file"),
    "report nothing": (("report", "x"), "x: there is no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_clear_sentence(place, capsys, case):
    arguments, message = BAD[case]
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert re.match(rf"pyqfw: .*{re.escape(message)}", err)
    assert err.count("\n") == 1


def test_data_that_do_not_fit(place, capsys):
    trained(capsys, "--out", "m.safetensors")
    np.savez("other.npz", x=np.zeros((4, 5)), y=np.zeros(4, int))
    status, _, err = run(capsys, "eval", "m.safetensors", "--data", "other.npz")
    assert (status, err) == (1, "pyqfw: other.npz: rows of (5,); the net takes (6,)\n")


BAD_NUMBERS = (
    ("--epochs", "0"),
    ("--batch", "x"),
    ("--lr", "-1"),
    ("--lr", "nan"),
    ("--seed", "-2"),
)


@pytest.mark.parametrize("option", BAD_NUMBERS)
def test_bad_numbers(place, capsys, option):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "net.py:make_model", "--data", "data.npz", *option])
    assert stop.value.code == 2
    assert f"argument {option[0]}: must be" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "train", "eval", "inspect", "report", "info", "bench"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert f"example: pyqfw {command}" in capsys.readouterr().out
