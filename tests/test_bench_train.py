"""`pyqfw bench train`: its rows, its bars, and the step that stands beside ours."""

import json
import os
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from pyqfw import bench, bench_peers, bench_threads, bench_train, cli, quant

QUICK = ["--repeats", "1"]
OPTIMIZERS = ("SGD", "SGD momentum 0.9")
MODELS = ("mlp", "har", "cnn", "chain")
OWN = {"mlp": [64, 1], "har": [64, 1], "cnn": [64, 1], "chain": [32, 1]}


class Stub:
    """As much of torch as the suite uses. It computes nothing and notes what it is asked for."""

    __version__ = "2.4"

    def __init__(self, fused=True):
        self.log = []
        self.threads = 3
        self.settings = []
        self.nn = SimpleNamespace(
            Linear=lambda *sizes: sizes,
            ReLU=lambda: "relu",
            LayerNorm=lambda n: ("norm", n),
            Flatten=lambda: "flatten",
            Sequential=self._model,
            CrossEntropyLoss=lambda: self._loss,
        )
        for name in ("Conv1d", "Conv2d", "MaxPool1d", "MaxPool2d", "AdaptiveAvgPool1d"):
            setattr(self.nn, name, lambda *sizes, name=name, **more: (name, *sizes, more))
        self.optim = SimpleNamespace(SGD=self._sgd)
        self.fused = fused

    def get_num_threads(self):
        return self.threads

    def set_num_threads(self, n):
        self.threads = n

    def from_numpy(self, array):
        return array

    def _model(self, *layers):
        def forward(x):
            assert self.threads == 1
            self.log.append(("forward", x))
            return "logits"

        forward.parameters = lambda: layers
        return forward

    def _loss(self, logits, y):
        assert logits == "logits"
        self.log.append(("loss", y))
        return SimpleNamespace(backward=lambda: self.log.append("backward"))

    def _sgd(self, layers, **settings):
        if settings.get("fused") and not self.fused:
            raise RuntimeError("`fused=True` requires a device that is not this one")
        self.layers = layers
        self.settings.append(settings)
        return SimpleNamespace(
            zero_grad=lambda: self.log.append("zero_grad"), step=lambda: self.log.append("step")
        )


@pytest.fixture
def torch_is(monkeypatch):
    """Sets what `import torch` finds; timings that do not repeat short calls; no further peers."""
    monkeypatch.setattr(bench, "MIN_SECONDS", 0)
    monkeypatch.setattr(bench_train, "PEERS", ())
    monkeypatch.setattr(bench_train, "THREADED", ())
    return lambda torch: monkeypatch.setattr(bench, "optional", lambda name: torch)


def report(capsys, *args):
    assert cli.main(["bench", "train", *QUICK, "--json", *args]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def names(models, batches=None):
    policies = ("int8()", "full_sym()", "float32()")
    return [
        f"{model}, {p}, batch {b}, {o}"
        for model in models
        for b in batches or OWN[model]
        for p in policies
        for o in OPTIMIZERS
    ]


def bars(rows):
    return {row["name"]: row["bar"] for row in rows if row["bar"] is not None}


# --- the report ----------------------------------------------------------------------------------


def test_rows_and_bars_beside_torch(capsys, torch_is):
    torch_is(Stub())
    shown = report(capsys)
    assert shown["suite"] == "train"
    assert (list(shown["models"]), shown["batches"]) == (list(MODELS), OWN)
    assert shown["models"]["mlp"] == "MLP 784-128-64-10"
    assert (shown["repeats"], shown["threads"], shown["lr"]) == (1, 1, 0.01)
    assert any("standard-normal" in note and "16 batches" in note for note in shown["notes"])
    assert not any("not installed" in note for note in shown["notes"])
    rows = shown["rows"]
    assert [row["name"] for row in rows] == names(MODELS)
    for row in rows:
        assert (row["unit"], row["peer"], row["bar_of"]) == ("samples/s", "torch", "ratio")
        assert row["rate"] > 0
        assert row["met"] == (None if row["bar"] is None else row["ratio"] >= row["bar"])
    wanted = {
        "mlp, int8(), batch 64": 1.7,
        "mlp, int8(), batch 1": 5.0,
        "har, int8(), batch 64": 2.2,
        "har, int8(), batch 1": 10.0,
        "har, float32(), batch 64": 0.7,
        "har, float32(), batch 1": 5.0,
        "cnn, int8(), batch 64": 2.5,
        "cnn, int8(), batch 1": 4.0,
        "chain, int8(), batch 32": 4.0,
        "chain, int8(), batch 1": 25.0,
    }
    assert bars(rows) == {f"{case}, {o}": bar for case, bar in wanted.items() for o in OPTIMIZERS}


def test_without_torch_there_is_no_peer(capsys, torch_is):
    torch_is(None)
    shown = report(capsys, "--model", "mlp", "--batch", "2")
    assert any("torch is not installed" in note for note in shown["notes"])
    assert [row["name"] for row in shown["rows"]] == names(["mlp"], [2])
    for row in shown["rows"]:
        assert (row["peer"], row["ratio"], row["bar"], row["met"]) == (None,) * 4


@pytest.mark.parametrize(
    ("args", "batches"), [(["1", "3"], [1, 3]), (["3", "3"], [3]), (["4", "--repeats", "1"], [4])]
)
def test_batches(args, batches, capsys, torch_is):
    torch_is(Stub())
    shown = report(capsys, "--model", "mlp", "--batch", *args)
    assert shown["batches"] == {"mlp": batches}
    assert [row["name"] for row in shown["rows"]] == names(["mlp"], batches)
    assert set(bars(shown["rows"]).values()) == ({5.0} if 1 in batches else set())


@pytest.mark.parametrize("isa", quant.core_info()["isas"])
def test_with_an_isa(isa, capsys, torch_is, monkeypatch):
    torch_is(None)
    used = []
    session = bench_train.Session
    monkeypatch.setattr(
        bench_train,
        "Session",
        lambda plan, threads: used.append(quant.core_info()["isa"]) or session(plan),
    )
    assert report(capsys, "--model", "mlp", "--batch", "1", "--isa", isa)["machine"]["isa"] == isa
    assert used == [isa] * 6


def test_table(capsys, torch_is):
    torch_is(Stub())
    assert cli.main(["bench", "train", *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "\nmlp: MLP 784-128-64-10; har: HAR CNN " in shown
    assert "LayerNorm, Linear 64-10, 1 rounds, one thread, " in shown
    for word in (
        "mlp, int8(), batch 64, SGD ",
        ">= 4x",
        "samples/s",
        ">= 1.7x",
        ">= 5x",
        "checks of x and y",
    ):
        assert word in shown


def test_rates_of_any_size_are_readable():
    row = bench.Row("w", "samples/s", 71234.5, (999.5, 1e6), None, None, None, None, None, "ratio")
    line = bench.table([row]).splitlines()[1]
    assert line.split() == ["w", "71234", "samples/s", "999.50..1000000", "samples/s"]


def test_check(capsys, monkeypatch, torch_is):
    torch_is(Stub())
    one = ["bench", "train", *QUICK, "--model", "mlp", "--batch", "1"]
    monkeypatch.setattr(bench_train, "BARS", {("mlp", "int8()", 1): 0.0})
    assert cli.main([*one, "--check"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(bench_train, "BARS", {("mlp", "int8()", 1): 1e12})
    assert cli.main([*one, "--check"]) == 1
    shown = capsys.readouterr()
    assert shown.err == (
        "pyqfw bench train: below the bar: mlp, int8(), batch 1, SGD; "
        "mlp, int8(), batch 1, SGD momentum 0.9\n"
    )
    assert shown.out.count("MISSED") == 2
    assert cli.main(one) == 0


def test_a_check_without_bars_is_no_success(capsys, torch_is):
    torch_is(None)
    one = ["bench", "train", *QUICK, "--model", "har", "--batch", "1"]
    assert cli.main([*one, "--check"]) == 1
    assert "nothing to check" in capsys.readouterr().err
    assert cli.main(one) == 0


# --- the steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_data(name):
    model = bench_train.MODELS[name]
    ring = bench_train.data(model, 3)
    assert len(ring) == 16
    for x, y in ring:
        assert (x.shape, x.dtype) == ((3, *model.input_shape), np.float32)
        assert (y.shape, y.dtype) == ((3,), np.int64)
    assert len({x.tobytes() for x, _ in ring}) == 16
    labels = np.concatenate([y for _, y in bench_train.data(model, 64)])
    assert set(labels) == set(range(model.classes))
    for (x, y), (again, labels) in zip(ring, bench_train.data(model, 3), strict=True):
        np.testing.assert_array_equal(x, again)
        np.testing.assert_array_equal(y, labels)


def test_the_peer_makes_whole_steps_on_the_same_batches(torch_is):
    stub = Stub()
    torch_is(stub)
    stub.set_num_threads(1)
    case = next(bench_train.cases(["mlp"], [2]))
    assert stub.layers == ((784, 128), "relu", (128, 64), "relu", (64, 10))
    ring = bench_train.data(bench_train.MODELS["mlp"], 2)
    for x, y in [*ring, *ring]:
        stub.log.clear()
        case.peer_run()
        assert [entry[0] if isinstance(entry, tuple) else entry for entry in stub.log] == [
            "zero_grad",
            "forward",
            "loss",
            "backward",
            "step",
        ]
        np.testing.assert_array_equal(stub.log[1][1], x)
        np.testing.assert_array_equal(stub.log[2][1], y)


@pytest.mark.parametrize("fused", [True, False])
def test_the_peers_optimizer(fused, torch_is):
    stub = Stub(fused)
    torch_is(stub)
    list(bench_train.cases(["mlp"], [1]))
    more = {"fused": True} if fused else {}
    both = [{"lr": 0.01, "momentum": m, **more} for m in (0.0, 0.9)]
    assert stub.settings == both * 3


@pytest.mark.parametrize("name", MODELS)
def test_our_steps_train_on_the_ring(name, torch_is, monkeypatch):
    torch_is(None)
    nets = []
    session = bench_train.Session
    monkeypatch.setattr(
        bench_train, "Session", lambda plan, threads: nets.append(session(plan)) or nets[-1]
    )
    for case in bench_train.cases([name], [4]):
        losses = [case.run() for _ in range(64)]
        assert nets[-1].steps == 64
        assert np.mean(losses[-16:]) < np.mean(losses[:16]), case.name
    found = [(net.plan.request.optimizer.momentum, repr(net.plan.policy)) for net in nets]
    policies = ("int8", "full_sym", "float32")
    assert found == [(m, f"Policy.{p}()") for p in policies for m in (0.0, 0.9)]


def test_the_step_by_hand_learns():
    """And its loss is that of a first step: cross-entropy of ten classes is near ln 10."""
    ring = bench_train.data(bench_train.MODELS["mlp"], 8)
    step = bench_peers.numpy_mlp((784, 128, 64, 10), 0.01, 0.9)
    losses = [step(*batch) for _ in range(20) for batch in ring]
    assert losses[0] == pytest.approx(np.log(10), abs=0.3)
    assert np.mean(losses[-16:]) < 0.5 * losses[0]


def test_numpy_stands_beside_the_mlp(capsys, monkeypatch):
    monkeypatch.setattr(bench, "MIN_SECONDS", 0)
    monkeypatch.setattr(bench, "optional", lambda name: None)
    rows = report(capsys, "--model", "mlp", "--batch", "64")["rows"]
    assert [row["name"] for row in rows[:-1]] == names(["mlp"], [64])
    assert (rows[-1]["name"], rows[-1]["peer"]) == (names(["mlp"], [64])[1], "NumPy")
    assert (rows[-1]["bar"], rows[-1]["ratio"] > 0) == (1.1, True)


if find_spec("torch"):

    def test_torch_itself(capsys, monkeypatch):
        monkeypatch.setattr(bench, "MIN_SECONDS", 0)
        shown = report(capsys, "--batch", "1")
        assert len(shown["rows"]) == 24
        assert shown["machine"]["torch"]
        assert {row["peer"] for row in shown["rows"]} == {"torch"}
        assert all(row["ratio"] > 0 for row in shown["rows"])

    def test_the_other_peers(capsys, monkeypatch):
        monkeypatch.setattr(bench, "MIN_SECONDS", 0)
        monkeypatch.setattr(bench_train, "POLICIES", {"int8()": bench_train.Policy.int8})
        shown = report(capsys, "--model", "har", "cnn", "--batch", "64")
        found = [(row["name"][:3], row["peer"], row["bar"]) for row in shown["rows"][4:]]
        assert found[0] in [("har", "1 thread", bar) for bar in (1.6, None)]  # None: a core is busy
        assert found[1:] == [
            ("har", "torch fake-quant", 3.0),
            ("har", "torch channels_last", 1.6),
            ("cnn", "torch channels_last", 1.5),
        ]
        assert all(row["ratio"] > 0 for row in shown["rows"])

    @pytest.mark.parametrize("name", ["har", "cnn"])
    def test_channels_last_is_the_same_network(name):
        torch = bench.optional("torch")
        layers = bench_train.MODELS[name].layers
        plain = torch.nn.Sequential(*layers(torch.nn))
        last, lay_out = bench_peers.channels_last(torch, layers(torch.nn))
        with torch.no_grad():
            for a, b in zip(plain.parameters(), last.parameters(), strict=True):
                b.copy_(a.reshape(b.shape))
            x = torch.randn(3, *bench_train.MODELS[name].input_shape)
            torch.testing.assert_close(last(lay_out(x)), plain(x), rtol=1e-4, atol=1e-5)

    def test_fake_quant_is_near_the_network_and_its_gradients():
        torch = bench.optional("torch")
        layers = bench_train.MODELS["har"].layers(torch.nn)
        plain = torch.nn.Sequential(*layers)
        x = torch.randn(8, 9, 128)
        y = torch.randint(0, 6, (8,))
        grads = []
        for model in (plain, bench_peers.fake_quant(torch, layers)):
            model.zero_grad()
            torch.nn.CrossEntropyLoss()(model(x), y).backward()
            grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        apart = (grads[0] - grads[1]).norm() / grads[0].norm()
        assert 0 < apart < 0.2


# --- threads -------------------------------------------------------------------------------------


def test_two_threads_beside_one(capsys, torch_is, monkeypatch):
    torch_is(None)
    monkeypatch.setattr(bench_train, "THREADED", (("har", 4),))
    for idle, bar, told in (
        (1.9, 1.6, ""),
        (1.2, None, "not free: 1.2"),
        (None, None, "not known"),
    ):
        monkeypatch.setattr(bench_threads, "idle_cores", lambda cores, idle=idle: idle)
        monkeypatch.setattr(bench, "every_core", lambda: nullcontext({0, 1}))
        row = report(capsys, "--model", "har", "--batch", "4")["rows"][-1]
        assert row["name"].startswith("har, int8(), batch 4, SGD momentum 0.9, 2 threads")
        assert (row["peer"], row["bar"], row["unit"]) == ("1 thread", bar, "samples/s")
        assert told in row["name"]
        assert row["ratio"] > 0


def test_the_row_of_threads_has_all_cores():
    with bench.quiet() as pinned, bench.every_core() as cores:
        if pinned:
            assert os.sched_getaffinity(0) == cores
    if pinned:
        assert os.sched_getaffinity(0) == cores


def test_idle_cores():
    cores = set(range(os.cpu_count() or 1))
    found = bench_threads.idle_cores(cores, 0.05)
    assert found is None or 0 <= found <= len(cores) + 1
    assert bench_threads.idle_cores({10**6}, 0.0) is None
