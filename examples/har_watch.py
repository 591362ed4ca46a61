"""Exercises from a smart watch, a person at a time: a net that nine people trained meets the tenth,
and is fine-tuned on that person's first windows.

    python examples/har_watch.py --policy int8 --seeds 3

Split by person and in time: windows of one recording overlap, so random ones would leak.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import pyqfw as q
from pyqfw import nn
from pyqfw.data import Samples, Standardize

FIRST, GAP = 0.3, 1  # of each recording of the new person; windows between both parts
HEAD = "10"  # the last layer


class Scores(NamedTuple):
    """Accuracy on the new person's later windows."""

    before: float
    head: float  # after fine-tuning of the last layer
    all: float  # and of all layers


def model(channels: int = 6, classes: int = 7) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv1d(channels, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1)),
        *(nn.Flatten(), nn.Linear(64, classes)),
    )


def pretrain(people: Samples, policy: q.Policy, seed: int, epochs: int) -> q.Session:
    """A net that knows these people. Standardising is a part of it."""
    plan = q.compile(
        model(people.x.shape[1], len(people.classes)),
        input_shape=people.x.shape[1:],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr=0.01, momentum=0.9),
        policy=policy,
        batch=64,
        preprocess=Standardize.fit(people.x),
        seed=seed,
    )
    net = q.Session(plan)
    q.fit(net, people.x, people.y, epochs=epochs, progress=False)
    return net


def fine_tune(net: q.Session, own: Samples, epochs: int, train: list[str] | None) -> q.Session:
    """The net after so many epochs of one person's windows; `train`: the layers that learn.

    A window at a time and no stored gradients: the step of a microcontroller.
    """
    sgd = q.optim.SGD(lr=0.005 if train is None else 0.01)
    fused = net.plan.policy.replace(grads="fused")
    tuned = net.recompile(batch=1, optimizer=sgd, policy=fused, train=train)
    q.fit(tuned, own.x, own.y, epochs=epochs, progress=False)
    return tuned


def meet(watch: Samples, person: int, policy: q.Policy, seed: int, epochs: int) -> Scores:
    """Everyone else trains; then this person."""
    others, own = watch[watch.groups != person], watch[watch.groups == person]
    first, rest = q.data.split_recordings(own.recordings, FIRST, GAP)
    net = pretrain(others, policy, seed, epochs)
    tuned = [fine_tune(net, own[first], max(epochs // 2, 1), train) for train in ([HEAD], None)]
    return Scores(*(accuracy(n, own[rest]) for n in (net, *tuned)))


def accuracy(net: q.Session, samples: Samples) -> float:
    return q.evaluate(net, samples.x, samples.y)["accuracy"]


def policy_of(name: str, bits: int | None) -> q.Policy:
    """A preset, with weights of so many bits."""
    policy: q.Policy = getattr(q.Policy, name)()
    weights = q.Sym(bits or 8, axis=0, rounding="stochastic")
    return policy if bits is None else policy.replace(weights=weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--policy", choices=("float32", "full_sym", "int8"), default="int8")
    parser.add_argument("--bits", type=int, help="of the weights, if they are not the policy's own")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--people", type=int, default=10, help="how many are left out in turn")
    args = parser.parse_args()

    watch, policy = q.data.watch(), policy_of(args.policy, args.bits)
    print(f"{watch}\n{policy}\n")
    people = np.unique(watch.groups)[: args.people]
    runs = tqdm([(p, seed) for p in people for seed in range(args.seeds)], disable=None)
    found = {(p, seed): meet(watch, p, policy, seed, args.epochs) for p, seed in runs}
    print("person  before  head only  all layers   accuracy in percent, mean of the seeds")
    for person in people:
        scores = np.mean([found[person, seed] for seed in range(args.seeds)], axis=0)
        print(f"{person:>6}  {scores[0]:6.1%}     {scores[1]:6.1%}      {scores[2]:6.1%}")
    mean = np.mean(list(found.values()), axis=0)
    print(f"  mean  {mean[0]:6.1%}     {mean[1]:6.1%}      {mean[2]:6.1%}")


if __name__ == "__main__":
    main()
