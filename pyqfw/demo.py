"""The demonstration: a smart watch that learned from nine people meets the tenth."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from . import mcu, nn, optim, state
from .counters import CounterLog
from .data import Samples, Standardize, split_recordings, watch
from .fit import History, evaluate, fit
from .plan import compile
from .policy import Policy
from .report import report
from .session import Session

TARGET = "cortex-m4"
FIRST, GAP = 0.3, 1  # of each recording of the new person; windows between both parts


@dataclass(frozen=True)
class People:
    """Windows of those who train, and the first and later ones of a new person."""

    others: Samples
    first: Samples
    later: Samples


@dataclass(frozen=True)
class Trained:
    """The net that nine people made, and its float32 twin."""

    net: Session
    twin: Session
    history: History
    twin_history: History
    log: CounterLog


def people(person: int) -> People:
    samples = watch()
    assert samples.groups is not None
    own = samples[samples.groups == person]
    assert own.recordings is not None
    first, later = split_recordings(own.recordings, FIRST, GAP)
    return People(samples[samples.groups != person], own[first], own[later])


def model(channels: int, classes: int) -> nn.Sequential:
    """A 1-D CNN of about 10 000 parameters."""
    return nn.Sequential(
        *(nn.Conv1d(channels, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1)),
        *(nn.Flatten(), nn.Linear(64, classes)),
    )


def trained(data: People, epochs: int, seed: int, progress: bool | None = None) -> Trained:
    """In 8-bit integers, and from the same weights in float32."""
    plan = compile(
        model(data.others.x.shape[1], len(data.others.classes)),
        input_shape=data.others.x.shape[1:],
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(lr=0.01, momentum=0.9),
        policy=Policy.int8(),
        batch=64,
        preprocess=Standardize.fit(data.others.x),
        seed=seed,
    )
    net = Session(plan)
    twin, log = net.recompile(policy=Policy.float32()), CounterLog(net)
    x, y, test = data.others.x, data.others.y, (data.later.x, data.later.y)
    histories = [
        fit(n, x, y, epochs=epochs, validation=test, callbacks=calls, progress=progress)
        for n, calls in ((net, [log]), (twin, []))
    ]
    return Trained(net, twin, histories[0], histories[1], log)


def for_device(net: Session) -> Session:
    """The same net for a microcontroller: a window at a time, no stored gradients, no momentum."""
    fused = net.plan.policy.replace(grads="fused")
    return net.recompile(batch=1, optimizer=optim.SGD(lr=0.005), policy=fused)


def fine_tuned(net: Session, own: Samples, epochs: int, progress: bool | None = None) -> Session:
    """On the host."""
    tuned = for_device(net)
    fit(tuned, own.x, own.y, epochs=epochs, progress=progress)
    return tuned


def on_device(net: Session, own: Samples, epochs: int, progress: bool | None = None) -> mcu.Run:
    """The same steps on an emulated Cortex-M4, counted."""
    return mcu.run(
        for_device(net),
        own.x,
        own.y,
        target=TARGET,
        epochs=epochs,
        count_steps=1,
        progress=progress,
    )


def same(a: Session, b: Session) -> bool:
    """Whether two nets have the same parameters, scales and state, to the bit."""
    return state.of(a).lasting == state.of(b).lasting


def accuracy(net: Session, samples: Samples) -> float:
    return evaluate(net, samples.x, samples.y, progress=False)["accuracy"]


def written(found: Trained, run: mcu.Run, data: People, folder: str | PathLike[str]) -> Path:
    """The net as the device left it and the report, in the folder."""
    tuned = run.net
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    tuned.save(place / "model.safetensors")
    return report(
        tuned,
        place / "report.html",
        history=found.history,
        twin=found.twin_history,
        data=(data.later.x, data.later.y),
        classes=data.later.classes,
        counters=found.log,
        run=run,
        title="pyqfw demo: a smart watch meets a new person",
    )
