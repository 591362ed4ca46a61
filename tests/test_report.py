"""q.report: one file with what was given; the numbers behind its figures."""

import re
import sys

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn, report_facts, report_figures
from pyqfw.counters import CounterLog
from pyqfw.mcu import Cost, OpCount, Run

FIGURES = (
    *("Learning", "Confusion matrix", "Memory map of a step", "Codes", "Counters over time"),
    "On the device",
)
X = np.random.default_rng(0).normal(size=(48, 2, 12)).astype(np.float32)
Y = (X[:, 0].mean(1) > 0).astype(int) + (X[:, 1].mean(1) > 0)


def session(policy=None, **changes):
    model = nn.Sequential(
        *(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Flatten(), nn.Linear(24, 3)),
    )
    given = {
        "input_shape": (2, 12),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": q.optim.SGD(0.05, momentum=0.9),
        "policy": policy or q.Policy.int8(),
        "batch": 16,
        **changes,
    }
    return q.Session(q.compile(model, **given))


def trained(policy=None):
    """A net after three epochs, and everything that a report may be given."""
    net = session(policy)
    twin, log = net.recompile(policy=q.Policy.float32()), CounterLog(net)
    histories = [
        q.fit(n, X, Y, epochs=3, validation=(X, Y), callbacks=calls, progress=False)
        for n, calls in ((net, [log]), (twin, []))
    ]
    ops = [OpCount(i, op.kernel, op.layer, 10.0 * i) for i, op in enumerate(net.plan.ops)]
    cost = Cost("cortex-m4", "a compiler", {"stack": 512}, {"code": 9000})
    run = Run(net, [1.0], 12345.0, ops, 4000, 9000, 512, cost)
    return net, {
        "history": histories[0],
        "twin": histories[1],
        "data": (X, Y),
        "classes": ("none", "one", "both"),
        "counters": log,
        "run": run,
        "title": "a <small> net",
    }


def titles(page):
    return re.findall(r'<img alt="([^"]+)" src="data:image/svg\+xml;base64,', page.read_text())


def test_everything_is_in_one_file(tmp_path):
    net, given = trained()
    before = bytes(net.tensor("0.weight").data), net.steps
    page = q.report(net, tmp_path / "report.html", **given)
    assert titles(page) == list(FIGURES)
    text = page.read_text()
    assert "<title>a &lt;small&gt; net</title>" in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "<script" not in text
    assert f"{net.plan.arena_bytes:,}" in text
    assert "RAM 4000 bytes (stack 512), flash 9000 bytes, 12345 instructions a step" in text
    assert (bytes(net.tensor("0.weight").data), net.steps) == before
    assert [f.name for f in tmp_path.iterdir()] == ["report.html"]


def test_a_long_net(tmp_path):
    """More tensors and classes than a figure has room for names."""
    layers = [m for _ in range(12) for m in (nn.Linear(9, 9), nn.ReLU())]
    net = q.Session(
        q.compile(
            nn.Sequential(*layers, nn.Linear(9, 40)),
            input_shape=9,
            loss=nn.CrossEntropyLoss(),
            optimizer=q.optim.AdamW(1e-3),
            policy=q.Policy.int8(),
            batch=8,
        )
    )
    x, y, log = X[:40, 0, :9], np.arange(40), CounterLog(net)
    history = q.fit(net, x, y, epochs=2, callbacks=[log], progress=False)
    page = q.report(net, tmp_path / "a.html", history=history, data=(x, y), counters=log)
    assert titles(page) == list(FIGURES[:5])


def test_the_same_is_the_same_bytes(tmp_path):
    net, given = trained()
    pages = [q.report(net, tmp_path / f"{i}.html", **given).read_bytes() for i in range(2)]
    assert pages[0] == pages[1]


def test_a_net_alone(tmp_path):
    assert titles(q.report(session(), tmp_path / "a.html")) == ["Memory map of a step", "Codes"]
    assert titles(q.report(session(q.Policy.float32()), tmp_path / "b.html")) == [FIGURES[2]]
    plain = session(loss=None, optimizer=None)
    assert "Codes" in titles(q.report(plain, tmp_path / "c.html", data=(X, Y)))


def test_an_autoencoder_has_no_confusion(tmp_path):
    net = q.Session(
        q.compile(
            nn.Linear(6, 6),
            input_shape=6,
            loss=nn.MSELoss(),
            optimizer=q.optim.SGD(0.1),
            policy=q.Policy.int8(),
            batch=8,
        )
    )
    x = X[:8, 0, :6]
    history = q.fit(net, x, x, epochs=2, validation=(x, x), progress=False)
    found = titles(q.report(net, tmp_path / "a.html", history=history, data=(x, x)))
    assert found == ["Learning", "Memory map of a step", "Codes"]


@pytest.mark.parametrize("policy", ["float32", "int8", "full_sym"])
def test_blocks_of_memory(policy):
    """None overlaps another but codes that took the place of their sums; all lie in the arena."""
    plan = session(getattr(q.Policy, policy)()).plan
    found = report_facts.blocks(plan)
    assert max(b.end for b in found) == plan.arena_bytes
    assert max(b.last for b in found) == len(plan.ops)
    lasting = [b for b in found if (b.first, b.last) == (0, len(plan.ops)) and b.role != "wire"]
    names = {b.name for b in lasting}
    assert names >= {"0.weight", "4.bias", "0.weight:grad", "0.weight:momentum"}
    for i, a in enumerate(found):
        for b in found[:i]:
            apart = a.last <= b.first or b.last <= a.first or a.end <= b.begin or b.end <= a.begin
            assert apart or {a.role, b.role} & {"scratch"}, (a, b)


def test_codes_and_their_errors():
    found = {c.name: c for c in report_facts.codes(session(), X, Y)}
    assert {"input:wire", "0:wire", "4:error", "0.weight:grad", "0.weight"} <= set(found)
    wire = found["input:wire"]
    exact = q.quantize(X[:16], q.Sym(8))
    error = np.sum((exact.numpy().astype(np.float64) - X[:16]) ** 2)
    assert wire.decibels == pytest.approx(10 * np.log10(np.sum(X[:16].astype(float) ** 2) / error))
    counts = np.bincount(exact.codes.reshape(-1).astype(int) + 127, minlength=255)
    assert wire.counts.tolist() == counts.tolist()
    assert wire.used == np.count_nonzero(counts) / 255
    assert found["0.weight"].decibels is None
    assert all(20 < c.decibels < 60 for c in found.values() if c.decibels is not None)
    sixteen = found["0.bias"]
    assert (len(sixteen.counts), sixteen.counts.sum()) == (255, 4)


def test_the_log_has_each_epochs_counters():
    net = session()
    log = CounterLog(net)
    q.fit(net, X, Y, epochs=2, callbacks=[log], progress=False)
    assert len(log.epochs) == 2
    wires = [c["input:wire"].written for c in log.epochs]
    assert wires == [X.size, X.size]


def test_confusion():
    from pyqfw.metrics import confusion

    net = session()
    matrix = confusion(net, X, Y)
    said = net.predict(X).argmax(1)
    for i, j in np.ndindex(3, 3):
        assert matrix[i, j] == np.sum((i == Y) & (said == j))
    assert confusion(net, X, np.full(48, -100)).sum() == 0


BAD = {
    "no net": (lambda net: q.report(None), "needs a q.Session"),
    "no history": (lambda net: q.report(net, history=[1]), "history must be the History"),
    "no run": (lambda net: q.report(net, run=3), "run must be the Run of q.mcu.run"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_it_refuses(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = BAD[case]
    with pytest.raises(q.QfwError, match=message):
        call(session())
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(q.QfwError, match=r"pip install 'pyqfw\[plot\]'"):
        q.report(session(), tmp_path / "a.html")
    assert set(report_figures.COLOURS) == set(report_facts.Role.__args__)
