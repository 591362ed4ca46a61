"""Plans to test with, and tests/gold/plan_v1_*: what `q.compile` makes of some of them.

`python tests/plangold.py` writes the files, `--check` compares instead and fails on a difference. A
plan of a released version is never written again: it must be accepted for ever.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyqfw as q
from pyqfw import nn, optim

GOLD = Path(__file__).resolve().parent / "gold"
BATCH, INPUTS, HIDDEN, CLASSES = 4, 5, 6, 3

STOCHASTIC = {"rounding": "stochastic"}
SYM = dict.fromkeys(("forward", "weight_grad", "bias_grad", "prop"), "sym")
INT8 = q.Policy.int8()
WIDE = dict.fromkeys(("input", "wires", "errors", "weights", "grads", "state"), q.Sym(16))
HINDSIGHT = q.Sym(8, range="hindsight", **STOCHASTIC)
MOMENTUM = optim.SGD(0.1, momentum=0.9)
ALL = optim.SGD(0.05, momentum=0.8, nesterov=True, weight_decay=0.01)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def deep() -> nn.Sequential:
    """Positions, a frozen layer, a layer without bias, fixed ranges, ReLU apart from a product."""
    return nn.Sequential(
        nn.Linear(INPUTS, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, HIDDEN, bias=False).requires_grad_(False),
        nn.Quant(q.Sym(8, range=2.0)),
        nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES),
    )


def norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, CLASSES))


def norms(frozen: bool = False) -> nn.Sequential:
    """Running statistics, and inference with operations of its own unless they are frozen."""
    return nn.Sequential(
        *(nn.Linear(INPUTS, 6), nn.BatchNorm1d(6).requires_grad_(not frozen), nn.ReLU()),
        *(nn.Linear(6, 4), nn.GroupNorm(2, 4), nn.Linear(4, CLASSES)),
    )


def attention() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.Softmax(), nn.Linear(HIDDEN, CLASSES), nn.Softmax()
    )


def squashing() -> nn.Sequential:
    """What is read raw, stored, and raw in the end; what a mask has two ends for."""
    return nn.Sequential(
        nn.Linear(INPUTS, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU6(),
        nn.Linear(HIDDEN, CLASSES),
        nn.Sigmoid(),
    )


def dropping() -> nn.Sequential:
    """Inference has operations of its own."""
    return nn.Sequential(
        nn.Dropout(0.2), nn.Linear(INPUTS, HIDDEN), nn.Dropout(), nn.Linear(HIDDEN, CLASSES)
    )


LINE, PLANE = (3, 6), (2, 4, 5)


def convolving() -> nn.Sequential:
    """A padded line, a stride, each channel by itself, groups, and a transposed one."""
    return nn.Sequential(
        nn.Conv1d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv1d(4, 4, 3, padding=1, groups=4, bias=False),
        nn.Conv1d(4, 4, 2, stride=2, groups=2),
        nn.ConvTranspose1d(4, 2, 3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(10, CLASSES),
    )


class Joining(nn.Module):
    """A residual, a leak and a drop behind it, values side by side, a Linear along a line."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.act = nn.ReLU()
        self.depth = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.drop = nn.Dropout(0.25)
        self.leak = nn.LeakyReLU(0.1)
        self.up = nn.ConvTranspose2d(4, 2, (1, 2), stride=(1, 2))
        self.wide = nn.Linear(5, 10)
        self.beside = nn.Concat()
        self.flat = nn.Flatten()
        self.out = nn.Linear(240, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.act(self.first(x))
        x = self.leak(self.drop(self.depth(x)) + x)
        return self.out(self.flat(self.beside(self.up(x), self.wide(x))))


def build(policy: q.Policy, model: nn.Module | None = None, **changes: Any) -> q.Plan:
    given = {
        "input_shape": (INPUTS,),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": MOMENTUM,
        "batch": BATCH,
        "seed": 7,
        **changes,
    }
    return q.compile(model or mlp(), policy=policy, **given)


def gold_plans() -> dict[str, q.Plan]:
    """The plans whose bytes are kept."""
    return {
        "int8": build(INT8),
        "float32": build(q.Policy.float32()),
        "fused": build(INT8.replace(grads="fused"), optimizer=ALL),
        "conv": build(INT8, convolving(), input_shape=LINE),
    }


def convolutions() -> dict[str, q.Plan]:
    """With windows, and with values that meet."""
    line, plane = {"input_shape": LINE}, {"input_shape": PLANE}
    floats, wide = q.Policy.float32(), q.Policy.full_sym().replace(weights=q.Sym(16, axis=1))
    ranged = INT8.replace(wires=HINDSIGHT, errors=q.Sym(8, range=1.0), weights=q.Sym(6, group=5))
    adamw = {"optimizer": optim.AdamW(0.01)}
    return {
        "conv in floats": build(floats, convolving(), **line),
        "conv, fused": build(INT8.replace(grads="fused"), convolving(), **line),
        "conv, adamw, fused": build(INT8.replace(grads="fused"), convolving(), **line, **adamw),
        "conv, ranges": build(ranged, convolving(), **line),
        "conv, split": build(INT8.replace(**WIDE), convolving(), **line, batch=9),
        "conv, micro-batches": build(INT8, convolving(), **line, micro_batches=2),
        "conv in floats, micro-batches": build(floats, convolving(), **line, micro_batches=2),
        "joins": build(INT8.replace(wires=q.Asym(8)), Joining(), **plane),
        "joins in floats": build(floats, Joining(), **plane),
        "joins, wide": build(wide, Joining(), **plane, batch=9),
    }


def pooling() -> nn.Module:
    """Sums and codes pooled, windows that meet and that do not, means of both kinds."""
    return nn.Sequential(
        *(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(3, 2, 1)),
        *(nn.Conv1d(4, 3, 1), nn.Quant(), nn.MaxPool1d(2, 1)),
        *(nn.AvgPool1d(2, 1, 1, count_include_pad=False), nn.AdaptiveAvgPool1d(2)),
        *(nn.Flatten(), nn.Linear(6, CLASSES)),
    )


def conv_pool() -> nn.Module:
    """Convolutions over lines, the first one's sums pooled before they are codes."""
    return nn.Sequential(
        *(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(4, 3, 3, stride=2, padding=2), nn.ReLU(), nn.Conv1d(3, 2, 2)),
        *(nn.Flatten(), nn.Linear(4, CLASSES)),
    )


def many_plans() -> dict[str, q.Plan]:
    """Small plans that between them have every operation and every class of format."""
    narrow = {"weights": q.Sym(5, axis=0), "bias": q.Sym(6), "grads": q.Sym(4), "state": q.Sym(3)}
    roomy = {
        "weights": q.Sym(7, container=32, axis=0, **STOCHASTIC),
        "bias": q.Asym(9, container=16),
        "state": q.Asym(10, container=32, **STOCHASTIC),
        "grads": q.Sym(6, container=32),
    }
    row = q.Sym(8, axis="row")
    asym = {"input": q.Asym(8), "wires": q.Asym(6), "errors": q.Asym(7), "weights": q.Asym(16)}
    groups = {"wires": q.BFP(8, 4), "weights": q.BFP(6, 2, **STOCHASTIC), "grads": q.BFP(7, 3)}
    stored = q.Policy(weights=q.Sym(8, axis=0), bias=q.Sym(16), errors=q.Sym(8), grads=q.Sym(8))
    return {
        **gold_plans(),
        "full_sym": build(q.Policy.full_sym(), optimizer=ALL),
        "rows": build(INT8.replace(input=row, wires=row, errors=row, grads="fused")),
        "columns": build(INT8.replace(weights=q.Sym(8, axis=1), bias=q.Float32())),
        "groups": build(INT8.replace(**groups)),
        "narrow": build(INT8.replace(**narrow), optimizer=ALL),
        "roomy": build(INT8.replace(**roomy), optimizer=ALL),
        "wide": build(INT8.replace(**WIDE), optimizer=ALL),
        "asym": build(
            INT8.replace(**asym, grads=q.Asym(5), state=q.Asym(16)),
            optimizer=ALL,
        ),
        "stored as integers": build(stored, optimizer=ALL),
        "computed in integers": build(q.Policy(**SYM), optimizer=optim.SGD(0.1)),
        "float gradients, fused": build(INT8.replace(grads="fused", weight_grad="float32")),
        "deep": build(INT8, deep(), input_shape=(2, INPUTS)),
        "deep, fused": build(
            INT8.replace(grads="fused", errors=row), deep(), input_shape=(2, INPUTS)
        ),
        "norm": build(INT8, norm()),
        "norm, float32": build(q.Policy.float32(), norm()),
        "norm, rows, fused": build(INT8.replace(wires=row, errors=row, grads="fused"), norm()),
        "norms": build(INT8, norms(), micro_batches=2),
        "norms, float32": build(q.Policy.float32(), norms()),
        "norms, rows, fused": build(INT8.replace(wires=row, errors=row, grads="fused"), norms()),
        "norms, hindsight": build(INT8.replace(wires=HINDSIGHT, errors=HINDSIGHT), norms()),
        "norms, frozen": build(INT8.replace(weights=q.Sym(8)), norms(frozen=True)),
        "norms, frozen, rows": build(INT8.replace(wires=row, errors=row), norms(frozen=True)),
        "norms, frozen, float32": build(q.Policy.float32(), norms(frozen=True)),
        "clipped": build(INT8, optimizer=optim.SGD(0.1, momentum=0.9, max_grad_norm=1.0)),
        "adamw": build(INT8, optimizer=optim.AdamW(0.01, max_grad_norm=1.0)),
        "adamw, fused": build(INT8.replace(grads="fused"), optimizer=optim.AdamW(0.01)),
        "hindsight": build(INT8.replace(wires=HINDSIGHT, errors=HINDSIGHT)),
        "hindsight, deep": build(
            INT8.replace(wires=q.Sym(5, range="hindsight"), errors=q.Sym(8, range=1.0)),
            deep(),
            input_shape=(2, INPUTS),
        ),
        "micro-batches": build(INT8, micro_batches=2),
        "micro-batches, groups": build(INT8.replace(**groups), micro_batches=4),
        "micro-batches in floats": build(stored, micro_batches=3),
        "micro-batches, floats alone": build(q.Policy.float32(), micro_batches=2),
        "mse": build(INT8, loss=nn.MSELoss()),
        "mse in floats": build(q.Policy.float32(), loss=nn.MSELoss()),
        "softmax": build(INT8, attention(), loss=nn.MSELoss()),
        "softmax in floats": build(q.Policy.float32(), attention()),
        "squashes": build(INT8, squashing(), loss=nn.MSELoss()),
        "squashes in floats": build(q.Policy.float32(), squashing()),
        "squashes, groups": build(INT8.replace(**groups), squashing(), micro_batches=2),
        "dropout": build(INT8, dropping(), loss=nn.MSELoss()),
        "dropout in floats": build(q.Policy.float32(), dropping()),
        "weighted": build(INT8, loss=nn.CrossEntropyLoss((1.0, 2.0, 0.5), label_smoothing=0.1)),
        "weighted in floats": build(q.Policy.float32(), loss=nn.CrossEntropyLoss((1.0, 2.0, 0.5))),
        **convolutions(),
        "pools": build(INT8, pooling(), input_shape=(2, 9)),
        "pools, fused": build(INT8.replace(grads="fused"), pooling(), input_shape=(2, 9)),
        "pools, hindsight": build(
            INT8.replace(wires=HINDSIGHT, errors=HINDSIGHT, grads="fused"),
            conv_pool(),
            input_shape=(2, 9),
        ),
        "pools, ranges, fused": build(
            INT8.replace(wires=q.Sym(8, range=2.0), errors=q.Sym(8, range=1.0), grads="fused"),
            nn.Sequential(
                *(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
                nn.Linear(6, CLASSES),
            ),
            input_shape=(1, 5, 4),
        ),
        "pools in floats": build(q.Policy.float32(), pooling(), input_shape=(2, 9)),
        "inference": build(INT8, loss=None, optimizer=None),
        "no optimizer": build(INT8, optimizer=None),
    }


TENSOR_KEYS = ("name", "role", "space", "format", "shape", "rows", "bytes", "offsets")
OP_KEYS = ("kernel", "layer", "tensors", "window")  # the last where there is one


def described(plan: q.Plan) -> str:
    """What a plan says of itself, for readers and for the test of its bytes."""
    content = json.loads(plan.to_json())
    lines = [f'"{name}":{json.dumps(content[name])}' for name in ("batch", "seed", "arena_bytes")]
    lines.append(f'"tensors":[\n{_listed(content["tensors"], TENSOR_KEYS)}]')
    sections = content["sections"].items()
    ops = ",\n".join(f'"{name}":[\n{_listed(ops, OP_KEYS)}]' for name, ops in sections)
    lines.append(f'"sections":{{\n{ops}}}')
    return "{" + ",\n".join(lines) + "}\n"


def _listed(items: list[dict[str, Any]], keys: Sequence[str]) -> str:
    found = ({k: item[k] for k in keys if k != "window" or item[k]} for item in items)
    return ",\n".join(map(json.dumps, found))


def generate() -> dict[str, bytes]:
    """The contents of each file."""
    files = {}
    for name, plan in gold_plans().items():
        files[f"plan_v1_{name}.bin"] = plan.to_bytes()
        files[f"plan_v1_{name}.json"] = described(plan).encode()
    return files


def differences() -> list[str]:
    """Names of files that are missing, different or not ours."""
    there = {p.name: p.read_bytes() for p in GOLD.glob("plan_*")}
    wanted = generate()
    return sorted(n for n in there.keys() | wanted.keys() if there.get(n) != wanted.get(n))


def main(arguments: Sequence[str]) -> int:
    """Writes the files, or with --check compares them."""
    if list(arguments) == ["--check"]:
        different = differences()
        for name in different:
            print(f"tests/gold/{name} differs: run python tests/plangold.py", file=sys.stderr)
        return int(bool(different))
    if arguments:
        print("usage: plangold.py [--check]", file=sys.stderr)
        return 2
    for name, content in generate().items():
        (GOLD / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
