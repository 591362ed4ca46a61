"""Training steps of small networks beside torch's in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from typing import Any, TypeAlias

import numpy as np

from . import bench, bench_peers, bench_threads, nn, optim
from .bench import Case
from .plan import compile as compile_plan
from .policy import Policy
from .session import Session

Batches: TypeAlias = Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class Model:
    """A network that both sides build from layers of the same names."""

    title: str
    input_shape: tuple[int, ...]
    classes: int
    layers: Callable[[Any], list[Any]]  # of our nn or torch's
    batches: tuple[int, ...] = (64, 1)


def _mlp(nn: Any) -> list[Any]:
    parts = []
    for inputs, outputs in pairwise((784, 128, 64, 10)):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    return parts[:-1]


def _har(nn: Any) -> list[Any]:
    """For windows of nine channels and 128 samples; 10 214 parameters."""
    parts = []
    for inputs, outputs, kernel in ((9, 16, 7), (16, 32, 5)):
        conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
        parts += [conv, nn.ReLU(), nn.MaxPool1d(2)]
    parts += [nn.Conv1d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1)]
    return [*parts, nn.Flatten(), nn.Linear(64, 6)]


def _cnn(nn: Any) -> list[Any]:
    """For images of 28 x 28."""
    parts = []
    for inputs, outputs in ((1, 8), (8, 16)):
        parts += [nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return [*parts, nn.Flatten(), nn.Linear(400, 10)]


def _chain(nn: Any) -> list[Any]:
    return [nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 10)]


MODELS = {
    "mlp": Model("MLP 784-128-64-10", (784,), 10, _mlp),
    "har": Model("HAR CNN (Conv1d 9-16-32-64 on 128 samples)", (9, 128), 6, _har),
    "cnn": Model("2-D CNN (Conv2d 1-8-16 3x3 on 28x28)", (1, 28, 28), 10, _cnn),
    "chain": Model("Linear 64-64, LayerNorm, Linear 64-10", (64,), 10, _chain, (32, 1)),
}
RING = 16  # different batches, cycled
LR = 0.01
OPTIMIZERS = {"SGD": 0.0, "SGD momentum 0.9": 0.9}
POLICIES = {
    "int8()": Policy.int8,
    "full_sym()": Policy.full_sym,
    "float32()": Policy.float32,
}
BARS = {  # model, policy, batch: beside torch as a user writes it
    ("mlp", "int8()", 64): 1.7,
    ("mlp", "int8()", 1): 5.0,
    ("har", "int8()", 64): 2.2,
    ("har", "int8()", 1): 10.0,
    ("har", "float32()", 64): 0.7,
    ("har", "float32()", 1): 5.0,
    ("cnn", "int8()", 64): 2.5,
    ("cnn", "int8()", 1): 4.0,
    ("chain", "int8()", 32): 4.0,
    ("chain", "int8()", 1): 25.0,
}


@dataclass(frozen=True)
class Peer:
    """Another peer of int8() with momentum 0.9, in a row of its own."""

    name: str
    model: str
    batch: int
    bar: float
    run: Callable[[Any, Model, Batches], bench.Run]  # of torch, or None where it is not needed
    torch: bool = True


def _numpy(torch: Any, model: Model, ring: Batches) -> bench.Run:
    return _turns(bench_peers.numpy_mlp((784, 128, 64, 10), LR, 0.9), ring)


def _channels_last(torch: Any, model: Model, ring: Batches) -> bench.Run:
    """With malloc as torch likes it, from here to the end of the process."""
    bench_peers.keep_freed_memory()
    net, lay_out = bench_peers.channels_last(torch, model.layers(torch.nn))
    tensors = [(lay_out(x), y) for x, y in _tensors(torch, ring)]
    return _turns(bench_peers.torch_step(torch, net, LR, 0.9), tensors)


def _fake_quant(torch: Any, model: Model, ring: Batches) -> bench.Run:
    net = bench_peers.fake_quant(torch, model.layers(torch.nn))
    return _turns(bench_peers.torch_step(torch, net, LR, 0.9), _tensors(torch, ring))


PEERS = (  # those with a malloc of their own last
    Peer("NumPy", "mlp", 64, 1.1, _numpy, torch=False),
    Peer("torch fake-quant", "har", 64, 3.0, _fake_quant),
    Peer("torch channels_last", "har", 64, 1.6, _channels_last),
    Peer("torch channels_last", "cnn", 64, 1.5, _channels_last),
)

THREADED = (("har", 64),)  # int8() with momentum 0.9, two threads beside one

NOTES = (
    f"A training step with cross-entropy and lr {LR:g}: session.step(x, y), with Python's checks "
    "of x and y, beside torch float32's zero_grad, forward, loss, backward and SGD step (fused "
    "where torch has it). Layers as PyTorch builds them by default.",
    bench.LIMIT,
    f"Data: {RING} batches of standard-normal float32 and random int64 labels, the same for both, "
    "cycled; they lie ready as arrays and as tensors.",
    "NumPy: the same step written by hand. fake-quant: weights by channel, activations and errors "
    "between layers as if in 8 bits. channels_last: convolutions as Conv2d with channels last, and "
    "a malloc that keeps what is freed.",
    f"2 threads: Session(plan, threads=2) beside threads=1, {bench_threads.STEPS} steps at a time, "
    "wall time, on all cores; the bar holds where two cores are idle before.",
)


def suite(
    models: Sequence[str] = tuple(MODELS), batches: Sequence[int] | None = None
) -> bench.Suite:
    """The suite `train` for these models and batch sizes, or each model's own."""
    names = list(dict.fromkeys(models))
    sizes = None if batches is None else list(dict.fromkeys(batches))
    rows = {name: sizes or list(MODELS[name].batches) for name in names}
    titles = {name: MODELS[name].title for name in names}
    told = "; ".join(f"{name}: {title}" for name, title in titles.items())
    return bench.Suite(
        name="train",
        cases=cases(names, sizes),
        setting={"models": titles, "batches": rows, "ring": RING, "lr": LR},
        title=told,
        notes=NOTES,
        without_torch="torch is not installed: there is no peer here, so no bar either.",
    )


def cases(models: Sequence[str], batches: Sequence[int] | None = None) -> Iterator[Case]:
    """Every policy and optimizer, model by model and batch by batch; then the other peers."""
    torch = bench.optional("torch")
    for name in models:
        for batch in batches or MODELS[name].batches:
            ring = data(MODELS[name], batch)
            for policy in POLICIES:
                for optimizer in OPTIMIZERS:
                    yield _case(name, policy, optimizer, batch, ring, torch)
    for name, batch in THREADED:
        if name in models and batch in (batches or MODELS[name].batches):
            yield from _threaded(name, batch)
    for peer in PEERS:
        here = peer.model in models and peer.batch in (batches or MODELS[peer.model].batches)
        if here and (torch or not peer.torch):
            yield _beside(peer, torch)


def data(model: Model, batch: int) -> Batches:
    """The ring: inputs with labels."""
    rng = np.random.default_rng(0)
    return [
        (
            rng.standard_normal((batch, *model.input_shape), dtype=np.float32),
            rng.integers(0, model.classes, batch, dtype=np.int64),
        )
        for _ in range(RING)
    ]


def _ours(
    name: str, policy: str, optimizer: str, batch: int, ring: Batches, threads: int = 1
) -> partial[Case]:
    """Our side of a case; the network is new, so that every case trains from the start."""
    model = MODELS[name]
    plan = compile_plan(
        nn.Sequential(*model.layers(nn)),
        input_shape=model.input_shape,
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(lr=LR, momentum=OPTIMIZERS[optimizer]),
        policy=POLICIES[policy](),
        batch=batch,
    )
    title = f"{name}, {policy}, batch {batch}, {optimizer}"
    return partial(
        Case,
        *(title, _turns(Session(plan, threads=threads).step, ring), batch, "samples/s"),
        macs=plan.macs * batch,
        bits=bench.BITS[policy],
    )


def _case(name: str, policy: str, optimizer: str, batch: int, ring: Batches, torch: Any) -> Case:
    case = _ours(name, policy, optimizer, batch, ring)
    if not torch:
        return case()
    net = torch.nn.Sequential(*MODELS[name].layers(torch.nn))
    step = bench_peers.torch_step(torch, net, LR, OPTIMIZERS[optimizer])
    return case(
        peer="torch",
        peer_run=_turns(step, _tensors(torch, ring)),
        bar=BARS.get((name, policy, batch)),
    )


def _beside(peer: Peer, torch: Any) -> Case:
    ring = data(MODELS[peer.model], peer.batch)
    case = _ours(peer.model, "int8()", "SGD momentum 0.9", peer.batch, ring)
    run = peer.run(torch, MODELS[peer.model], ring)
    return case(peer=peer.name, peer_run=run, bar=peer.bar)


def _threaded(name: str, batch: int) -> Iterator[Case]:
    ring = data(MODELS[name], batch)

    def make(threads: int) -> tuple[str, bench.Run]:
        case = _ours(name, "int8()", "SGD momentum 0.9", batch, ring, threads)()
        return case.name, case.run

    return bench_threads.cases(make, batch)


def _tensors(torch: Any, ring: Batches) -> Batches:
    return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in ring]


def _turns(step: Callable[[Any, Any], object], batches: Batches) -> bench.Run:
    """The step on the next batch at every call."""
    ring = cycle(batches)
    return lambda: step(*next(ring))
