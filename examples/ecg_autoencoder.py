"""An anomaly detector for heartbeats in integers: it learns to reconstruct normal beats, and what
it cannot reconstruct is none.

    python examples/ecg_autoencoder.py --data ECG5000.zip
    python examples/ecg_autoencoder.py                     # fetched, or synthetic without a network

ECG5000 in any of its published forms: a folder or zip with ECG5000_TRAIN and ECG5000_TEST as .txt,
.tsv, .ts or .arff, or an .npz.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

import pyqfw as q
from pyqfw import nn
from pyqfw.data import Split


def model() -> nn.Sequential:
    """140 samples through 8 numbers."""
    return nn.Sequential(
        *(nn.Conv1d(1, 8, 7, stride=2, padding=3), nn.ReLU()),
        *(nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.ReLU()),
        nn.Conv1d(16, 8, 35),
        *(nn.ConvTranspose1d(8, 16, 35), nn.ReLU()),
        *(nn.ConvTranspose1d(16, 8, 4, stride=2, padding=1), nn.ReLU()),
        nn.ConvTranspose1d(8, 1, 4, stride=2, padding=1),
    )


def train(
    beats: Split, policy: q.Policy, seed: int, epochs: int = 100, progress: bool | None = None
) -> q.Session:
    """A net that saw normal beats only."""
    normal = beats.train.x[beats.train.y == 0][:, None]
    plan = q.compile(
        model(),
        input_shape=normal.shape[1:],
        loss=nn.MSELoss(),
        optimizer=q.optim.SGD(lr=0.1, momentum=0.9),
        policy=policy,
        batch=16,
        seed=seed,
    )
    net = q.Session(plan)
    schedule = q.optim.CosineAnnealingLR(epochs)
    q.fit(net, normal, normal, epochs=epochs, schedule=schedule, progress=progress)
    return net


def errors(net: q.Session, x: np.ndarray) -> np.ndarray:
    """The mean squared difference between a beat and its reconstruction."""
    return np.mean((net.predict(x[:, None])[:, 0] - x) ** 2, axis=1)


class Roc(NamedTuple):
    """At each threshold: beats above it among the normal ones and among the others."""

    thresholds: np.ndarray
    false: np.ndarray
    true: np.ndarray

    @property
    def area(self) -> float:
        """The chance that an anomaly has a larger error than a normal beat; ties count half."""
        steps = np.diff(self.false, prepend=0.0)
        middle = self.true - np.diff(self.true, prepend=0.0) / 2
        return float(np.sum(steps * middle))


def roc(error: np.ndarray, anomaly: np.ndarray) -> Roc:
    thresholds = np.unique(error)[::-1]
    counts = [
        np.searchsorted(np.sort(-error[part]), -thresholds, side="right") / np.sum(part)
        for part in (~anomaly, anomaly)
    ]
    return Roc(thresholds, *counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", help="ECG5000: a folder, a zip, a file or an .npz")
    parser.add_argument("--policy", choices=("float32", "full_sym", "int8"), default="int8")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    beats = q.data.beats(args.data)
    print(f"train {beats.train}\ntest  {beats.test}")
    net = train(beats, getattr(q.Policy, args.policy)(), args.seed, args.epochs)
    found = errors(net, beats.test.x)
    anomaly = beats.test.y != 0
    curve = roc(found, anomaly)
    print(f"{net.plan.policy}, seed {args.seed}: AUC {curve.area:.4f}\n")
    print("alarms among normal beats   anomalies found   threshold")
    for share in (0.001, 0.01, 0.02, 0.05, 0.1):
        at = max(int(np.searchsorted(curve.false, share, side="right")) - 1, 0)
        print(f"{curve.false[at]:25.1%} {curve.true[at]:17.1%} {curve.thresholds[at]:11.4f}")
    normal = errors(net, beats.train.x[beats.train.y == 0])
    threshold = float(np.quantile(normal, 0.99))
    print(f"\na threshold from normal beats alone, 99 % of those of the training: {threshold:.4f}")
    for c, name in enumerate(beats.test.classes):
        above = found[beats.test.y == c] > threshold
        print(f"{name:>12}: {np.mean(above):6.1%} of {len(above)} above it")


if __name__ == "__main__":
    main()
