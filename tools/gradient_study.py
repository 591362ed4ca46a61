"""How exact sums over micro-batches are in each format of a gradient, and what nets learn by them.

    python tools/gradient_study.py            # writes the tables into docs/numerics.md
    python tools/gradient_study.py --check    # compares them instead
    python tools/gradient_study.py --time     # measures updates: int8 beside float32

A Linear layer with zero weights and two classes has the errors -1/2 and 1/2 whatever its input: the
gradient of a row is that row. So any numbers can be put through the engine's own accumulation, four
rows a micro-batch; they are normal, a tenth of them of a Student t distribution with two degrees of
freedom. What is added is exactly known: the accumulators as `trace` shows them, in float64.

The second table trains on scikit-learn's digits, in eight micro-batches of four rows.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import pyqfw as q
from pyqfw import nn, optim

PAGE = Path(__file__).resolve().parents[1] / "docs" / "numerics.md"
INPUTS, ROWS, SEEDS = 4096, 4, (1, 2, 3)
COUNTS = (1, 10, 100)  # micro-batches
ROUNDINGS = ("half_away", "stochastic")
Array = np.ndarray[Any, Any]


def numbers(seed: int) -> Array:
    """Rows of all micro-batches."""
    rng = np.random.default_rng(seed)
    shape = (ROWS * max(COUNTS), INPUTS)
    heavy = rng.random(shape) < 0.1
    x = np.where(heavy, rng.standard_t(2, shape), rng.normal(size=shape))
    return x.astype(np.float32)


def session(grads: q.Format, count: int) -> q.Session:
    """A net whose gradients are sums of its input rows; all that lies before them is the same."""
    policy = q.Policy(
        input=q.Sym(16), errors=q.Sym(8), grads=grads, forward="sym", weight_grad="sym", prop="sym"
    )
    plan = q.compile(
        nn.Linear(INPUTS, 2, bias=False),
        input_shape=(INPUTS,),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.1),
        policy=policy,
        batch=ROWS * count,
        micro_batches=count,
    )
    net = q.Session(plan)
    (name,) = net.state_dict()
    net.load_state_dict({name: np.zeros((2, INPUTS), np.float32)})
    return net


def exact(x: Array) -> Array:
    """What the accumulators of all micro-batches add up to, step by step, in float64."""
    found = []
    for op, written in session(q.Float32(), len(x) // ROWS).trace(x, np.zeros(len(x), int)):
        if op.kernel == "gradient_s32":
            sums = next(t for name, t in written.items() if name.endswith(":sums"))
            found.append(sums.codes.astype(np.float64) * np.float64(sums.scale))
    return np.cumsum(found, axis=0)


def error(grads: q.Format, x: Array, sums: Array) -> float:
    """Of the stored gradient after a step: the norm of the difference over the norm."""
    net = session(grads, len(x) // ROWS)
    net.step(x, np.zeros(len(x), int))
    (name,) = net.state_dict()
    stored = net.grad(name)
    if stored.scale is None:
        values = stored.codes.astype(np.float64)
    else:
        scale = np.repeat(np.atleast_1d(stored.scale), stored.format.group or INPUTS, axis=-1)
        values = stored.codes * scale[..., :INPUTS].astype(np.float64)
    return float(np.linalg.norm(values - sums[-1]) / np.linalg.norm(sums[-1]))


def reach(sums: Array) -> float:
    """A fixed range that holds every sum on the way: a power of two."""
    return float(2.0 ** np.ceil(np.log2(np.abs(sums).max())))


def errors_table() -> str:
    """Mean errors over the seeds."""
    made: dict[str, Any] = {"Float32()": lambda _: q.Float32()}
    for bits in (8, 12, 16):
        for rounding in ROUNDINGS:
            how: dict[str, Any] = {"rounding": rounding}
            made[f"Sym({bits}), dynamic, {rounding}"] = lambda _, b=bits, h=how: q.Sym(b, **h)
            made[f"Sym({bits}), group=32, dynamic, {rounding}"] = lambda _, b=bits, h=how: q.Sym(
                b, group=32, **h
            )
            made[f"Sym({bits}), fixed, {rounding}"] = lambda r, b=bits, h=how: q.Sym(
                b, range=r, **h
            )
    rows = {}
    for name, fmt in made.items():
        rows[name] = [fmt(1.0).nbytes((2, INPUTS)) * 8 / (2 * INPUTS)]
    for count in COUNTS:
        data = [(x, exact(x)) for x in (numbers(seed)[: ROWS * count] for seed in SEEDS)]
        for name, fmt in made.items():
            found = [error(fmt(reach(sums)), x, sums) for x, sums in data]
            rows[name].append(statistics.fmean(found))
    title = " | ".join(f"{n} micro-batch{'es' if n > 1 else ''}" for n in COUNTS)
    lines = [f"| gradient | bits an element | {title} |", "|---" * (2 + len(COUNTS)) + "|"]
    for name, (bits, *errors) in rows.items():
        lines.append(f"| {name} | {bits:.2f} | {' | '.join(f'{e:.1e}' for e in errors)} |")
    return "\n".join(lines) + "\n"


STUDENTS = range(5)  # seeds
EPOCHS, MICRO_BATCHES = 20, 8
LEARNT = {
    "Float32()": q.Float32(),
    "Sym(16)": q.Sym(16),
    "Sym(8, axis=0, stochastic)": q.Sym(8, axis=0, rounding="stochastic"),
    "Sym(8), half_away": q.Sym(8),
    "Sym(8), fixed at 1, stochastic": q.Sym(8, range=1.0, rounding="stochastic"),
    "Sym(8), fixed at 1, half_away": q.Sym(8, range=1.0),
    "Sym(4, group=32, stochastic)": q.Sym(4, group=32, rounding="stochastic"),
}


def accuracy(grads: q.Format, seed: int) -> float:
    """Per cent of the last 450 digits, after training on the others."""
    pixels, y = load_digits(return_X_y=True)
    x = (pixels / 16).astype(np.float32)
    plan = q.compile(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        input_shape=(64,),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.05, momentum=0.9),
        policy=q.Policy.int8().replace(grads=grads),
        batch=32,
        micro_batches=MICRO_BATCHES,
        seed=seed,
    )
    net = q.Session(plan)
    order = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        for rows in np.array_split(order.permutation(1347), 43):
            net.step(x[rows], y[rows])
    return 100 * float(np.mean(net.predict(x[1347:]).argmax(1) == y[1347:]))


def learnt_table() -> str:
    """Mean accuracies, and the mean difference to Float32 gradients with its standard error."""
    found = {name: [accuracy(fmt, seed) for seed in STUDENTS] for name, fmt in LEARNT.items()}
    lines = ["| gradient | accuracy, % | to Float32() |", "|---|---|---|"]
    for name, values in found.items():
        pairs = [a - b for a, b in zip(values, found["Float32()"], strict=True)]
        spread = statistics.stdev(pairs) / len(pairs) ** 0.5
        beside = "" if name == "Float32()" else f"{statistics.fmean(pairs):+.2f} +- {spread:.2f}"
        lines.append(f"| {name} | {statistics.fmean(values):.1f} | {beside} |")
    return "\n".join(lines) + "\n"


TABLES = {"errors": errors_table, "learnt": learnt_table}


def timed(policy: q.Policy, momentum: float) -> float:
    """Seconds of an update, the least of many: the machine may have other work."""
    plan = q.compile(
        nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.ReLU(), nn.Linear(1024, 10)),
        input_shape=(1024,),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.01, momentum=momentum),
        policy=policy,
        batch=4,
    )
    net = q.Session(plan)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(100):
        net.forward(rng.normal(size=(4, 1024)).astype(np.float32))
        net.backward(rng.integers(0, 10, 4))
        begin = time.thread_time()
        net.update()
        found.append(time.thread_time() - begin)
    return min(found)


def times() -> str:
    """Of both kinds of update, side by side."""
    lines = []
    for momentum in (0.0, 0.9):
        float32, int8 = (timed(p, momentum) for p in (q.Policy.float32(), q.Policy.int8()))
        lines.append(
            f"update of 1.06 million parameters, momentum {momentum}: float32 {1e3 * float32:.2f} "
            f"ms, int8 {1e3 * int8:.2f} ms, int8 / float32 {int8 / float32:.2f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """The table, written or compared, or the times."""
    if list(arguments) == ["--time"]:
        print(times())
        return 0
    if list(arguments) not in ([], ["--check"]):
        print("usage: gradient_study.py [--check | --time]", file=sys.stderr)
        return 2
    text = old = PAGE.read_text()
    for name, made in TABLES.items():
        before, rest = text.split(f"<!-- gradient_study: {name} -->\n")
        after = rest.split("<!-- end -->\n", 1)[1]
        table = f"<!-- gradient_study: {name} -->\n{made()}<!-- end -->\n"
        text = before + table + after
        print(table, end="")
    if arguments and text != old:
        print("docs/numerics.md differs: run python tools/gradient_study.py", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
