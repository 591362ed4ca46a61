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
    size: float = 1.0  # of the initial weights
    shape: tuple[int, ...] = (INPUTS,)
    whole: Callable[[], nn.Module] | None = None  # a model of its own, for samples of this shape
    preprocess: q.data.Standardize | None = None

    def model(self) -> nn.Module:
        if self.whole is not None:
            return self.whole()
        first = nn.Linear(INPUTS, HIDDEN).requires_grad_(not self.frozen)
        return nn.Sequential(first, *self.middle(), nn.Linear(HIDDEN, CLASSES))

    def session(self) -> q.Session:
        plan = q.compile(
            self.model(),
            input_shape=self.shape,
            loss=self.loss,
            optimizer=self.optimizer,
            policy=self.policy,
            batch=BATCH,
            micro_batches=self.micro_batches,
            preprocess=self.preprocess,
            seed=7,
        )
        net = q.Session(plan)
        if self.size != 1.0:
            net.load_state_dict({name: self.size * w for name, w in net.state_dict().items()})
        return net

    def data(self, seed: int, rows: int) -> tuple[Array, Array]:
        """Rows, and labels or the targets made of them."""
        x, y = data(seed, rows)
        targets = x[:, :CLASSES] if isinstance(self.loss, nn.MSELoss) else y
        return x.reshape(rows, *self.shape), targets


def norm_and_relu() -> list[nn.Module]:
    return [nn.LayerNorm(HIDDEN), nn.ReLU()]


def batch_norm_and_relu() -> list[nn.Module]:
    return [nn.BatchNorm1d(HIDDEN), nn.ReLU()]


def group_norm_and_relu() -> list[nn.Module]:
    return [nn.GroupNorm(3, HIDDEN), nn.ReLU()]


def signal(frozen: bool = False) -> nn.Module:
    """Channels at positions; statistics that follow, or are known."""
    norm = nn.BatchNorm1d(4, momentum=None).requires_grad_(not frozen)
    return nn.Sequential(
        *(nn.Conv1d(1, 4, 4, stride=3, bias=False), norm, nn.ReLU(), nn.GroupNorm(2, 4)),
        *(nn.Flatten(), nn.BatchNorm1d(24).requires_grad_(not frozen), nn.Linear(24, CLASSES)),
    )


def quant_and_relu() -> list[nn.Module]:
    """A layer between product and ReLU."""
    return [nn.Quant(q.Sym(8, range=1.0)), nn.ReLU()]


LINE, PLANE = (1, INPUTS), (1, INPUTS, 1)


def separable() -> nn.Module:
    """A strided convolution, each channel by itself, and a pointwise one."""
    return nn.Sequential(
        *(nn.Conv1d(1, 6, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv1d(6, 6, 3, padding=1, groups=6, bias=False), nn.Conv1d(6, 4, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(40, CLASSES)),
    )


def pooled_sums() -> nn.Module:
    """Sums of a convolution that are pooled, and errors on their way back through the next."""
    return nn.Sequential(
        *(nn.Conv1d(1, 5, 4, padding=1), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(5, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()),
        nn.Linear(20, CLASSES),
    )


def up_and_down() -> nn.Module:
    """Groups, and a transposed convolution of them."""
    return nn.Sequential(
        *(nn.Conv1d(1, 4, 5, stride=4), nn.ReLU(), nn.Conv1d(4, 6, 3, padding=2, groups=2)),
        nn.ConvTranspose1d(6, 4, 3, stride=2, padding=1, groups=2),
        *(nn.Flatten(), nn.Linear(44, CLASSES)),
    )


def planes() -> nn.Module:
    """Two axes, the second made by padding; dilated, transposed each channel by itself."""
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3, stride=(3, 1), padding=(1, 2)), nn.ReLU()),
        nn.Conv2d(3, 3, 2, stride=(2, 1), dilation=(1, 2), groups=3),
        nn.ConvTranspose2d(3, 3, (2, 3), stride=(1, 2), groups=3),
        *(nn.Flatten(), nn.Linear(36, CLASSES)),
    )


class Joined(nn.Module):
    """A sum past a leak, values side by side, a Linear along the line; errors that meet."""

    def __init__(self) -> None:
        self.first = nn.Conv1d(1, 4, 3, stride=3)
        self.relu = nn.ReLU()
        self.second = nn.Conv1d(4, 4, 3, padding=1)
        self.leak = nn.LeakyReLU(0.25)
        self.along = nn.Linear(6, 6)
        self.beside = nn.Concat()
        self.flat = nn.Flatten()
        self.last = nn.Linear(48, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.relu(self.first(x))
        x = self.leak(self.second(x) + x)
        return self.last(self.flat(self.beside(x, self.along(x))))


def squashes() -> list[nn.Module]:
    """Of sums, of what is stored, and one behind another."""
    return [nn.Tanh(), nn.Quant(), nn.Sigmoid(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU6(), nn.Tanh()]


def pooled() -> nn.Module:
    """Sums pooled, errors in other places; means by what windows have, and by one number."""
    return nn.Sequential(
        nn.Conv1d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(4, 3, 3),
        nn.AvgPool1d(3, 1, 1, count_include_pad=False),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(3, CLASSES),
    )


def pooled_codes() -> nn.Module:
    """Codes pooled, windows that meet, windows that part an image unevenly."""
    return nn.Sequential(
        nn.Conv1d(1, 3, 2, stride=2),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.MaxPool1d(3, 2, 1, ceil_mode=True),
        nn.AdaptiveAvgPool1d(3),
        nn.Flatten(),
        nn.Linear(9, CLASSES),
    )


WIDE = dict.fromkeys(("input", "wires", "weights", "errors", "grads", "state"), q.Sym(16))
ROW = q.Sym(8, axis="row")
STANDARDIZE = q.data.Standardize(
    [0.1 * i for i in range(INPUTS)], [1 / (i + 3) for i in range(INPUTS)]
)
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
    "batch_norm_full_sym": Network(FULL_SYM, MOMENTUM, middle=batch_norm_and_relu),
    "batch_norm_int8_fused": Network(
        INT8.replace(grads="fused"), PLAIN, middle=batch_norm_and_relu
    ),
    "batch_norm_float32": Network(q.Policy.float32(), MOMENTUM, middle=batch_norm_and_relu),
    "group_norm_int8": Network(INT8, MOMENTUM, middle=group_norm_and_relu),
    "group_norm_float32": Network(q.Policy.float32(), PLAIN, middle=group_norm_and_relu),
    "norms_int8": Network(INT8, MOMENTUM, whole=signal, shape=LINE, before=2),
    "norms_float32": Network(q.Policy.float32(), PLAIN, whole=signal, shape=LINE),
    "norms_frozen": Network(INT8, MOMENTUM, whole=lambda: signal(True), shape=LINE),
    "norms_frozen_float32": Network(
        q.Policy.float32(), PLAIN, whole=lambda: signal(True), shape=LINE
    ),
    "norms_hindsight": Network(
        INT8.replace(
            wires=q.Sym(8, range="hindsight"), errors=q.Sym(8, range="hindsight", **RANDOM)
        ),
        MOMENTUM,
        whole=signal,
        shape=LINE,
        before=1,
    ),
    "pooled_hindsight": Network(
        INT8.replace(
            wires=q.Sym(8, range="hindsight"), errors=q.Sym(8, range="hindsight", **RANDOM)
        ).replace(grads="fused"),
        PLAIN,
        whole=pooled_sums,
        shape=LINE,
        before=1,
    ),
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
    # A micro-batch is one row: its gradients are outer products.
    "single_rows": Network(INT8, MOMENTUM, micro_batches=4),
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
    "squashes": Network(INT8, MOMENTUM, middle=squashes, loss=nn.MSELoss()),
    "squashes_groups": Network(
        INT8.replace(wires=q.Asym(5, group=4), errors=q.Sym(12)), MOMENTUM, middle=squashes
    ),
    "squashes_float32": Network(q.Policy.float32(), PLAIN, middle=squashes),
    "relu6": Network(INT8, MOMENTUM, middle=lambda: [nn.ReLU6()], size=8.0),
    "relu6_stored": Network(
        INT8.replace(wires=q.Asym(7, axis="row")),
        MOMENTUM,
        middle=lambda: [nn.Quant(), nn.ReLU6()],
        size=8.0,
    ),
    "relu6_float32": Network(q.Policy.float32(), PLAIN, middle=lambda: [nn.ReLU6()], size=8.0),
    "dropout": Network(INT8, MOMENTUM, middle=lambda: [nn.ReLU(), nn.Dropout(0.3)]),
    "weighted": Network(INT8, MOMENTUM, loss=WEIGHTED),
    "weighted_float32": Network(q.Policy.float32(), PLAIN, loss=WEIGHTED),
    "pools": Network(INT8, MOMENTUM, whole=pooled, shape=LINE),
    "pools_of_codes": Network(INT8.replace(grads="fused"), PLAIN, whole=pooled_codes, shape=LINE),
    "pools_float32": Network(q.Policy.float32(), MOMENTUM, whole=pooled, shape=LINE),
    "conv": Network(INT8, MOMENTUM, shape=LINE, whole=separable),
    "conv_float32": Network(q.Policy.float32(), PLAIN, shape=LINE, whole=up_and_down),
    "conv_full_sym": Network(FULL_SYM, ALL, shape=LINE, whole=up_and_down),
    "conv_fused": Network(INT8.replace(grads="fused"), PLAIN, shape=PLANE, whole=planes),
    "conv_adamw_fused": Network(
        INT8.replace(grads="fused"), optim.AdamW(0.02), shape=LINE, whole=up_and_down
    ),
    "conv_split": Network(INT8.replace(**WIDE), PLAIN, shape=LINE, whole=up_and_down),
    "conv_hindsight": Network(
        INT8.replace(wires=q.Sym(8, range="hindsight"), weights=q.Sym(4, group=3, **RANDOM)),
        MOMENTUM,
        before=1,
        shape=LINE,
        whole=separable,
    ),
    "conv_micro_batches": Network(INT8, PLAIN, micro_batches=2, shape=PLANE, whole=planes),
    "joined": Network(INT8, MOMENTUM, shape=LINE, whole=Joined),
    "joined_float32": Network(q.Policy.float32(), PLAIN, micro_batches=2, shape=LINE, whole=Joined),
    "joined_zero_points": Network(
        INT8.replace(wires=q.Asym(8), errors=q.Asym(7, group=5, **RANDOM)),
        PLAIN,
        shape=LINE,
        whole=Joined,
    ),
    "standardized": Network(INT8, PLAIN, preprocess=STANDARDIZE),
    "standardized_float32": Network(q.Policy.float32(), PLAIN, preprocess=STANDARDIZE),
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
    case["outputs"] = words(net.predict(network.data(len(ROWS), ASKED)[0]))
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
