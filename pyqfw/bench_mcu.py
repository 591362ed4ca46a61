"""Instructions of layers and training steps on an emulated Cortex-M, beside what others take.

Counts are exact and the same on every machine. The peers' were recorded with the same compiler
(arm-none-eabi-gcc 12.2, -O3): CMSIS-NN 99f736a, AIfES 2.2.0.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import bench, bench_train, mcu, nn, optim
from ._bar import bar
from .data import digits
from .errors import QfwError
from .firmware import folder as folders
from .firmware.image import image_of
from .firmware.targets import target
from .formats import Sym
from .graph import Add, Graph
from .mcu import costs, steps, toolchain
from .mcu.build import Build
from .plan import compile as compile_plan
from .policy import Policy
from .session import Session

GRADIENT = "gradient_update_s32"
MLP_STEPS = 100  # digits, of which the mean is taken
WIRES, ERRORS = Sym(8, range=4.0), Sym(8, range=0.5, rounding="stochastic")
FIXED = Policy.int8().replace(wires=WIRES, errors=ERRORS, grads="fused")
FUSED = Policy.int8().replace(grads="fused")

PER_MAC = "per MAC"
# Instructions that multiply and add, of a MAC and no more: SMLAD makes two, VMLADAVA.S8 sixteen; a
# Cortex-M0 takes MULS and ADDS.
LIMITS = {"cortex-m0": 2.0, "cortex-m4": 1 / 2, "cortex-m55": 1 / 16}

NOTES = (
    "Instructions executed, exact, of firmware that pyqfw exports (-O2). Operations: all that "
    "happens from 8-bit codes to 8-bit codes at ranges that are fixed, with biases, a scale for "
    "each output and, of an error, stochastic rounding; dX with what folds the weights' scales "
    "into the error, dW with the update of the weights. limit: the multiplications alone, with no "
    "load, by the core's best instruction.",
    "Steps: from float32 samples to the moved weights, dynamic ranges, gradients that are never "
    f"stored; of the MLP the mean over {MLP_STEPS} handwritten digits, in batches.",
    "Peers: recorded with the same compiler at -O3, CMSIS-NN of 2026-07-15 (forward alone: it has "
    "no backward kernels) and AIfES 2.2.0 (float32); float32() is measured here.",
)


class Part(NamedTuple):
    """Operations of a layer that count: by their kernels, in the forward or on the way back."""

    layer: str
    kernels: tuple[str, ...]
    back: bool = False


@dataclass(frozen=True)
class Case:
    """A count to make: `amount` is what it is divided by."""

    name: str
    core: str
    unit: str
    amount: int
    count: Callable[[], float]
    peer: str = ""
    peer_count: float | Callable[[], float] | None = None  # in the unit
    bar: float | None = None  # at most
    bar_ratio: float | None = None  # the peer's count over ours, at least


@dataclass(frozen=True)
class Row:
    """What was counted."""

    name: str
    core: str
    unit: str
    count: float
    peer: str
    peer_count: float | None
    bar: float | None
    bar_ratio: float | None
    limit: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as much the peer takes."""
        return None if self.peer_count is None else self.peer_count / self.count

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without one."""
        if self.bar is not None:
            return self.count <= self.bar
        return None if self.bar_ratio is None else (self.ratio or 0.0) >= self.bar_ratio


# --- counting ------------------------------------------------------------------------------------


def session(
    model: nn.Module,
    shape: tuple[int, ...],
    policy: Policy,
    batch: int = 1,
    momentum: float = 0.0,
) -> Session:
    return Session(
        compile_plan(
            model,
            input_shape=shape,
            loss=nn.CrossEntropyLoss(),
            optimizer=optim.SGD(0.02, momentum=momentum),
            policy=policy,
            batch=batch,
            seed=1,
        )
    )


def counted(net: Session, core: str, given: Sequence[steps.Step]) -> mcu.Cost:
    """A net trains on the core; every step is counted. In Unicorn where that has the core."""
    chosen = target(core)
    backend = "unicorn" if chosen.unicorn else "qemu"
    compilers = (toolchain.gcc,) if backend == "qemu" else (toolchain.gcc, toolchain.zig)
    with tempfile.TemporaryDirectory(prefix="pyqfw-") as name:
        folder = folders.write(Path(name), image_of(net), chosen)
        build = Build(folder, toolchain.first(chosen, *compilers))
        out = mcu._trainer(net, build, backend).train(given, len(given), bar(False))
    ops = costs.by_op(net.plan, out.walks, len(out.steps))
    return mcu.Cost(core, build.toolchain.name, {}, {}, sum(out.steps) / len(out.steps), None, ops)


def of_parts(net: Session, core: str, parts: Sequence[Part]) -> float:
    """Instructions of these operations in a step over noise."""
    cost = counted(net, core, [steps.sample(net, net.plan.batch, 0)])
    backward = net.plan.section("backward")
    wanted = {(p.layer, kernel, p.back) for p in parts for kernel in p.kernels}
    found = [
        op
        for op in cost.by_op
        if (op.layer, op.kernel, op.number in backward) in wanted
        and (op.kernel != GRADIENT or net.plan.ops[op.number].macs)  # not that of a bias
    ]
    if len(found) < len(parts):
        raise QfwError(f"bench mcu: of {parts} the plan has {found} alone")
    return sum(op.instructions for op in found)


def of_step(net: Session, core: str, given: Sequence[steps.Step] | None = None) -> float:
    """Instructions of a step, the mean over those given or over three of noise."""
    rows = given or [steps.sample(net, net.plan.batch, i) for i in range(3)]
    return counted(net, core, rows).step or 0.0


# --- layers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A product of a layer, number 1 of a net that has a layer before it and one after it."""

    title: str
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    macs: int
    peer: float
    bar: float
    dx: float | None = None
    dw: float | None = None


def _between(before: nn.Module, layer: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(before, layer, nn.Flatten(), nn.Linear(features, 2))


def _linear() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 256), nn.Linear(256, 64), nn.Linear(64, 2))


def _conv2d() -> nn.Module:
    return _between(nn.Conv2d(1, 8, 1), nn.Conv2d(8, 16, 3, padding=1), 4096)


def _conv1d() -> nn.Module:
    return _between(nn.Conv1d(1, 9, 1), nn.Conv1d(9, 16, 5, padding=2), 2048)


def _one_channel() -> nn.Module:
    return _between(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 8, 3, padding=1), 6272)


def _depthwise() -> nn.Module:
    return _between(nn.Conv2d(1, 16, 1), nn.Conv2d(16, 16, 3, padding=1, groups=16), 4096)


def _pooled(pool: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 16, 1), nn.Quant(), pool, nn.Flatten(), nn.Linear(1024, 2))


def _added() -> nn.Module:
    layers = (
        *(("a", nn.Linear(4, 1024)), ("b", nn.Linear(4, 1024))),
        *(("sum", Add()), ("out", nn.Linear(1024, 2))),
    )
    return Graph(layers, (("a", (-1,)), ("b", (-1,)), ("sum", (0, 1)), ("out", (2,))))


SHAPES = (
    Shape("Linear 256 -> 64", _linear, (8,), 16384, 2.08, 1.75, dx=3.0),
    Shape("Conv2d 3x3 16x16x8 -> 16", _conv2d, (1, 16, 16), 294912, 2.87, 2.4, 2.8, 2.8),
    Shape("Conv1d 5, 128x9 -> 16", _conv1d, (1, 128), 92160, 3.39, 2.6, 2.8, 2.8),
    Shape("Conv2d 3x3 28x28x1 -> 8", _one_channel, (1, 28, 28), 56448, 14.07, 5.0),
    Shape("depthwise 3x3 16x16x16", _depthwise, (1, 16, 16), 36864, 9.12, 6.0),
)
LINEAR = SHAPES[0]
M4 = "cortex-m4"


def _products(core: str, shape: Shape, peer: float, most: float) -> Iterator[Case]:
    def case(what: str, parts: Sequence[Part], *told: Any) -> Case:
        def count() -> float:
            return of_parts(session(shape.model(), shape.shape, FIXED), core, parts)

        return Case(f"{shape.title}, {what}", core, PER_MAC, shape.macs, count, *told)

    forward = (Part("1", ("product_s32",)),)
    yield case("forward", forward, "CMSIS-NN", peer, most)
    if core == M4 and shape.dx is not None:
        way = (Part("1", ("product_s32", "product_fold_s32", "widen"), back=True),)
        yield case("dX", way, "", None, shape.dx)
    if core == M4 and shape.dw is not None:
        own = (Part("1", (GRADIENT,), back=True),)
        yield case("dW", own, "", None, shape.dw)


def _elements() -> Iterator[Case]:
    def pool(layer: nn.Module, kernels: tuple[str, ...]) -> float:
        net = session(_pooled(layer), (1, 16, 16), FIXED)
        return of_parts(net, M4, [Part("2", kernels)])

    def add() -> float:
        net = session(_added(), (4,), FIXED)
        return of_parts(net, M4, [Part("sum", ("join_s32", "convert"))])

    for title, run, n, peer, most in (
        ("max pool 2x2 16x16x16", partial(pool, nn.MaxPool2d(2), ("max_pool",)), 4096, 10.9, 5.0),
        (
            *(
                "average pool 2x2 16x16x16",
                partial(pool, nn.AvgPool2d(2), ("avg_pool_s32", "convert")),
            ),
            *(4096, 11.47, 5.0),
        ),
        ("add 1024", add, 1024, 81.04, 12.0),
    ):
        yield Case(title, M4, "per element", n, run, "CMSIS-NN", peer, most)


# --- steps ---------------------------------------------------------------------------------------


def _mlp(batch: int, momentum: float) -> float:
    """Over the first digits in their order."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    net = session(model, (64,), FUSED, batch, momentum)
    train = digits().train
    many = MLP_STEPS if batch == 1 else MLP_STEPS // batch
    x = np.asarray(train.x, np.float32).reshape(-1, 64)
    given = [
        steps.step_of(net, x[i : i + batch], np.asarray(train.y[i : i + batch], np.int32))
        for i in range(0, many * batch, batch)
    ]
    return of_step(net, M4, given)


def _cnn() -> float:
    layers = (nn.Conv1d(9, 16, 5, padding=2), nn.ReLU(), nn.MaxPool1d(4), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(512, 6))
    return of_step(session(model, (9, 128), FUSED, momentum=0.9), M4)


def _har(policy: Policy) -> float:
    har = bench_train.MODELS["har"]
    return of_step(session(nn.Sequential(*har.layers(nn)), har.input_shape, policy), "cortex-m4f")


def _steps() -> Iterator[Case]:
    mlp = "MLP 64-32-10 step, batch"
    for title, run, peer, most in (
        (f"{mlp} 1, SGD", partial(_mlp, 1, 0.0), 282849, 25000),
        (f"{mlp} 1, 8-bit momentum", partial(_mlp, 1, 0.9), 362511, 43000),
        (f"{mlp} 8, 8-bit momentum", partial(_mlp, 8, 0.9), 719560, 150000),
        ("Conv1d 9x128 k5 16, pool 4, Linear 6, step", _cnn, 12842946, 650000),
    ):
        yield Case(title, M4, "instructions", 1, run, "AIfES float32", peer, most)
    yield Case(
        *("HAR CNN step, batch 1", "cortex-m4f", "instructions", 1, partial(_har, FUSED)),
        *("our float32()", partial(_har, Policy.float32()), None, 2.0),
    )


# --- the suite -----------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    for shape in SHAPES:
        yield from _products(M4, shape, shape.peer, shape.bar)
    yield from _elements()
    yield from _products("cortex-m0", LINEAR, 6.43, 5.5)
    if toolchain.gcc(target("cortex-m55")) and mcu.qemu.is_there():
        yield from _products("cortex-m55", LINEAR, 0.53, 0.55)
    yield from _steps()


def run(progress: Callable[[str], object] | None = None) -> list[Row]:
    """Counts case by case."""
    rows = []
    for case in cases():
        if progress:
            progress(f"{case.name} on {case.core}")
        count = case.count() / case.amount
        peer = case.peer_count() if callable(case.peer_count) else case.peer_count
        told = (case.peer, peer, case.bar, case.bar_ratio)
        limit = LIMITS[case.core] if case.unit == PER_MAC else None
        rows.append(Row(case.name, case.core, case.unit, count, *told, limit))
    if progress:
        progress("")
    return rows


def compiler() -> str:
    """What the firmware is compiled by, with its version."""
    chain = toolchain.first(target(M4), toolchain.gcc, toolchain.zig)
    told = subprocess.run([chain.compile[0], "--version"], capture_output=True, text=True).stdout
    first = told.splitlines()[0] if told.strip() else ""
    return f"{chain.name}, {first}" if first else chain.name


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{**asdict(row), "ratio": row.ratio, "met": row.met} for row in rows]


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    lines = [("work", "core", "count", "", "limit", "peer", "its count", "ratio", "bar", "")]
    for r in rows:
        most = "" if r.bar is None else f"<= {_digits(r.bar)}"
        lines.append(
            (
                *(r.name, r.core, _digits(r.count), r.unit),
                "" if r.limit is None else _digits(r.limit),
                r.peer,
                "" if r.peer_count is None else _digits(r.peer_count),
                "" if r.ratio is None else f"{r.ratio:.2f}x",
                most if r.bar_ratio is None else f">= {r.bar_ratio:g}x",
                {None: "", True: "ok", False: "MISSED"}[r.met],
            )
        )
    return bench.aligned(lines, left={0, 1, 3, 5, 9})


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"
