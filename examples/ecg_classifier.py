"""Normal heartbeats or not: an MLP of 4 578 parameters in integers.

python examples/ecg_classifier.py --data ECG5000.zip --policy int8
"""

from __future__ import annotations

import argparse

import pyqfw as q
from pyqfw import nn
from pyqfw.data import Split


def train(
    beats: Split, policy: q.Policy, seed: int, epochs: int = 30, progress: bool | None = None
) -> q.Session:
    x, y = beats.train.x, beats.train.y != 0
    plan = q.compile(
        nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 2)),
        input_shape=x.shape[1:],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr=0.01, momentum=0.9),
        policy=policy,
        batch=16,
        seed=seed,
    )
    net = q.Session(plan)
    q.fit(net, x, y.astype(int), epochs=epochs, progress=progress)
    return net


def accuracy(net: q.Session, beats: Split) -> float:
    return q.evaluate(net, beats.test.x, (beats.test.y != 0).astype(int))["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", help="ECG5000: a folder, a zip, a file or an .npz")
    parser.add_argument("--policy", choices=("float32", "full_sym", "int8"), default="int8")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    beats = q.data.beats(args.data)
    print(f"train {beats.train}\ntest  {beats.test}")
    net = train(beats, getattr(q.Policy, args.policy)(), args.seed, args.epochs)
    print(f"{net.plan.policy}: {accuracy(net, beats):.2%}, {net.plan.arena_bytes} bytes of RAM")


if __name__ == "__main__":
    main()
