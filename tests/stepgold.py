"""Writes tests/target/steps.json: some steps of small networks, as a session does them.

`--check` compares instead and fails on a difference. Floats are bit patterns, bytes are hex.
`lasting` are the arena's bytes of parameters, gradients and state before the first step; a crc is
that of the same bytes after a step.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import pyqfw as q
from pyqfw import nn, optim

FILE = Path(__file__).resolve().parent / "target" / "steps.json"
INPUTS, HIDDEN, CLASSES = 19, 9, 4
BATCH = 4
ROWS = (4, 3, 4)  # of each step
ASKED = 2  # rows of the prediction

RANDOM: dict[str, Any] = {"rounding": "stochastic"}
INT8, FULL_SYM = q.Policy.int8(), q.Policy.full_sym()
CROSS_ENTROPY = nn.CrossEntropyLoss()
WEIGHTED = nn.CrossEntropyLoss((0.5, 1.0, 2.0, 0.25), ignore_index=2, label_smoothing=0.1)
PLAIN = optim.SGD(0.2)
MOMENTUM = optim.SGD(0.1, momentum=0.9)
ALL = optim.SGD(0.1, momentum=0.8, dampening=0.25, weight_decay=0.05)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Network:
    policy: q.Policy
    optimizer: optim.Optimizer
    frozen: bool = False  # the first layer
    middle: Callable[[], Sequence[nn.Module]] = lambda: [nn.ReLU()]
    before: int = 0  # steps before those that are recorded
    loss: nn.Loss = CROSS_ENTROPY
    micro_batches: int = 1

    def session(self) -> q.Session:
        first = nn.Linear(INPUTS, HIDDEN).requires_grad_(not self.frozen)
        plan = q.compile(
            nn.Sequential(first, *self.middle(), nn.Linear(HIDDEN, CLASSES)),
            input_shape=(INPUTS,),
            loss=self.loss,
            optimizer=self.optimizer,
            policy=self.policy,
            batch=BATCH,
            micro_batches=self.micro_batches,
            seed=7,
        )
        return q.Session(plan)

    def data(self, seed: int, rows: int) -> tuple[Array, Array]:
        """Rows, and labels or the targets made of them."""
        x, y = data(seed, rows)
        return x, x[:, :CLASSES] if isinstance(self.loss, nn.MSELoss) else y


def norm_and_relu() -> list[nn.Module]:
    return [nn.LayerNorm(HIDDEN), nn.ReLU()]


def quant_and_relu() -> list[nn.Module]:
    """A layer between product and ReLU."""
    return [nn.Quant(q.Sym(8, range=1.0)), nn.ReLU()]


WIDE = dict.fromkeys(("input", "wires", "weights", "errors", "grads", "state"), q.Sym(16))
ROW = q.Sym(8, axis="row")
NETWORKS = {
    "int8_momentum": Network(INT8, MOMENTUM),
    "int8_fused": Network(INT8.replace(grads="fused"), PLAIN),
    "full_sym_decay": Network(FULL_SYM, ALL),
    "float32_nesterov": Network(
        q.Policy.float32(), optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    ),
    "packed_weights": Network(INT8.replace(weights=q.Sym(4, axis=0, **RANDOM)), MOMENTUM),
    "row_wires": Network(
        INT8.replace(input=ROW, wires=ROW, errors=q.Sym(8, axis="row", **RANDOM)), MOMENTUM
    ),
    "groups_and_zero_points": Network(
        INT8.replace(
            input=q.Asym(8),
            wires=q.BFP(6, 4),
            weights=q.BFP(7, 3, **RANDOM),
            bias=q.Asym(16, **RANDOM),
            grads=q.Asym(5),
            state=q.Asym(10, axis=0, **RANDOM),
        ),
        optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "split_sums": Network(INT8.replace(**WIDE), ALL),
    "frozen_layer": Network(INT8, MOMENTUM, frozen=True),
    "norm_full_sym": Network(FULL_SYM, MOMENTUM, middle=norm_and_relu),
    "norm_int8_fused": Network(INT8.replace(grads="fused"), PLAIN, middle=norm_and_relu),
    "norm_float32": Network(q.Policy.float32(), MOMENTUM, middle=norm_and_relu),
    "clipped": Network(
        INT8,
        optim.SGD(0.1, momentum=0.9, max_grad_norm=0.3, groups={"2": {"lr": 0.02, "momentum": 0}}),
    ),
    "adamw": Network(
        INT8.replace(grads=q.Float32(), state=q.Asym(16, **RANDOM)),
        optim.AdamW(0.02, max_grad_norm=0.5, groups={"0.bias": {"weight_decay": 0, "lr": 0.1}}),
    ),
    "adamw_fused": Network(INT8.replace(grads="fused"), optim.AdamW(0.02, eps=1e-4)),
    "hindsight": Network(
        INT8.replace(
            wires=q.Sym(8, range="hindsight"), errors=q.Sym(8, range="hindsight", **RANDOM)
        ),
        MOMENTUM,
        before=2,
    ),
    "hindsight_fused": Network(
        INT8.replace(wires=q.Sym(8, range="hindsight"), grads="fused"),
        PLAIN,
        middle=quant_and_relu,
        before=1,
    ),
    # Gradients that add up: found ranges, fixed ones and floats.
    "micro_batches": Network(INT8, MOMENTUM, micro_batches=3),
    "micro_batches_fixed": Network(
        INT8.replace(grads=q.Sym(12, range=0.5, **RANDOM)), MOMENTUM, micro_batches=2
    ),
    "micro_batches_zero_points": Network(
        INT8.replace(grads=q.Asym(7, group=4, **RANDOM), weight_grad="float32"),
        MOMENTUM,
        micro_batches=4,
    ),
    "micro_batches_floats": Network(q.Policy.float32(), MOMENTUM, micro_batches=2),
    "quant_layer": Network(INT8, MOMENTUM, middle=quant_and_relu),
    "leaky_relu": Network(INT8, MOMENTUM, middle=lambda: [nn.LeakyReLU(0.3)]),
    "mse": Network(INT8, MOMENTUM, loss=nn.MSELoss()),
    "mse_float32": Network(q.Policy.float32(), PLAIN, loss=nn.MSELoss()),
    "softmax": Network(INT8, MOMENTUM, middle=lambda: [nn.Softmax()]),
    "softmax_float32": Network(q.Policy.float32(), PLAIN, middle=lambda: [nn.Softmax()]),
    "dropout": Network(INT8, MOMENTUM, middle=lambda: [nn.ReLU(), nn.Dropout(0.3)]),
    "weighted": Network(INT8, MOMENTUM, loss=WEIGHTED),
    "weighted_float32": Network(q.Policy.float32(), PLAIN, loss=WEIGHTED),
    # Scales may shrink in step 256.
    "continued": Network(INT8, optim.SGD(0.01, momentum=0.9), before=254),
}


def data(seed: int, rows: int) -> tuple[Array, Array]:
    """Rows and labels, of what Python promises to be the same in every version."""
    source = Random(seed)
    x = [[4 * source.random() - 2 for _ in range(INPUTS)] for _ in range(rows)]
    y = [int(CLASSES * source.random()) for _ in range(rows)]
    return np.array(x, np.float32), np.array(y, np.int32)


def words(floats: Array) -> list[int]:
    return [int(w) for w in floats.astype(np.float32).reshape(-1).view(np.uint32)]


def record(network: Network) -> dict[str, Any]:
    """A case of the file."""
    net = network.session()
    spaces = net._spaces
    for i in range(network.before):
        net.step(*network.data(1000 + i, BATCH))
    case: dict[str, Any] = {
        "plan": net.plan.to_bytes().hex(),
        "constants": spaces.const[: net.plan.layout.const_bytes].tobytes().hex(),
        "arena_bytes": net.plan.arena_bytes,
        "steps_before": net.steps,
        "lasting": spaces.lasting().tobytes().hex(),
        "targets": [],  # of each step, where they are not the labels
        "losses": [],
        "crcs": [],
    }
    for i, rows in enumerate(ROWS):
        x, y = network.data(i, rows)
        case["targets"] += [words(y)] if isinstance(network.loss, nn.MSELoss) else []
        case["losses"] += words(np.array(net.step(x, y)))
        case["crcs"].append(zlib.crc32(spaces.lasting().tobytes()))
    case["outputs"] = words(net.predict(data(len(ROWS), ASKED)[0]))
    return case


def generate() -> str:
    """The text of the file."""
    steps = [data(i, rows) for i, rows in enumerate(ROWS)]
    shared = {
        "rows": ROWS,
        "x": [words(x) for x, _ in steps],
        "y": [y.tolist() for _, y in steps],
        "asked_rows": ASKED,
        "asked": words(data(len(ROWS), ASKED)[0]),
    }
    cases = [{"name": name, **record(network)} for name, network in NETWORKS.items()]
    lines = [f'"{name}":{json.dumps(value)}' for name, value in shared.items()]
    lines.append('"cases":[\n' + ",\n".join(map(json.dumps, cases)) + "]")
    return "{" + ",\n".join(lines) + "}\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the file, or with --check compares it."""
    if list(arguments) == ["--check"]:
        if FILE.read_text() == generate():
            return 0
        print(f"tests/target/{FILE.name} differs: run python tests/stepgold.py", file=sys.stderr)
        return 1
    if arguments:
        print("usage: stepgold.py [--check]", file=sys.stderr)
        return 2
    FILE.write_text(generate())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
