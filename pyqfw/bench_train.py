"""Training steps of a small MLP beside torch's in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, pairwise
from typing import Any, TypeAlias

import numpy as np

from . import bench, nn, optim
from .bench import Case
from .plan import compile as compile_plan
from .policy import Policy
from .session import Session

Batches: TypeAlias = Sequence[tuple[Any, Any]]

SIZES = (784, 128, 64, 10)
MODEL = "-".join(map(str, SIZES))
RING = 16  # different batches, cycled
LR = 0.01
OPTIMIZERS = {"SGD": 0.0, "SGD momentum 0.9": 0.9}
POLICIES = {
    "int8()": Policy.int8,
    "full_sym()": Policy.full_sym,
    "float32()": Policy.float32,
}
BATCHES = (64, 1)
BARS = {("int8()", 64): 1.0, ("int8()", 1): 5.0}

NOTES = (
    f"A step of the MLP {MODEL} with ReLU between, cross-entropy and lr {LR:g}: "
    "session.step(x, y), with Python's checks of x and y, beside torch float32's zero_grad, "
    "forward, loss, backward and SGD step (fused where torch has it).",
    f"Data: {RING} batches of standard-normal float32 and random int64 labels, the same for both, "
    "cycled; they lie ready as arrays and as tensors.",
)


def suite(batches: Sequence[int] = BATCHES) -> bench.Suite:
    """The suite `train` for these batch sizes."""
    sizes = list(dict.fromkeys(batches))
    return bench.Suite(
        name="train",
        cases=cases(sizes),
        setting={"model": MODEL, "batches": sizes, "ring": RING, "lr": LR},
        title=f"MLP {MODEL}, batch {' and '.join(map(str, sizes))}",
        notes=NOTES,
        without_torch="torch is not installed: there is no peer here, so no bar either.",
    )


def cases(batches: Sequence[int]) -> Iterator[Case]:
    """Every policy and optimizer, batch by batch."""
    torch = bench.optional("torch")
    for batch in batches:
        ring = data(batch)
        for policy in POLICIES:
            for optimizer in OPTIMIZERS:
                yield _case(policy, optimizer, batch, ring, torch)


def data(batch: int) -> Batches:
    """The ring: inputs with labels."""
    rng = np.random.default_rng(0)
    return [
        (
            rng.standard_normal((batch, SIZES[0]), dtype=np.float32),
            rng.integers(0, SIZES[-1], batch, dtype=np.int64),
        )
        for _ in range(RING)
    ]


def _case(policy: str, optimizer: str, batch: int, ring: Batches, torch: Any) -> Case:
    """Both networks are new, so that every case trains from the start."""
    momentum = OPTIMIZERS[optimizer]
    plan = compile_plan(
        _mlp(nn),
        input_shape=SIZES[0],
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(lr=LR, momentum=momentum),
        policy=POLICIES[policy](),
        batch=batch,
    )
    name = f"{policy}, batch {batch}, {optimizer}"
    case = partial(Case, name, _turns(Session(plan).step, ring), batch, "samples/s")
    if not torch:
        return case()
    tensors = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in ring]
    return case(
        peer="torch",
        peer_run=_turns(_torch_step(torch, momentum), tensors),
        bar=BARS.get((policy, batch)),
    )


def _mlp(layers: Any) -> Any:
    """The network out of our layers or torch's."""
    parts = []
    for inputs, outputs in pairwise(SIZES):
        parts += [layers.Linear(inputs, outputs), layers.ReLU()]
    return layers.Sequential(*parts[:-1])


def _turns(step: Callable[[Any, Any], object], batches: Batches) -> bench.Run:
    """The step on the next batch at every call."""
    ring = cycle(batches)
    return lambda: step(*next(ring))


def _torch_step(torch: Any, momentum: float) -> Callable[[Any, Any], object]:
    model, loss = _mlp(torch.nn), torch.nn.CrossEntropyLoss()
    sgd = partial(torch.optim.SGD, model.parameters(), lr=LR, momentum=momentum)
    try:
        optimizer = sgd(fused=True)
    except (TypeError, RuntimeError):  # before torch 2.4 there is none for the CPU
        optimizer = sgd()

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step
