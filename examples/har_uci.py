"""Activities from a phone: UCI HAR, people of the test apart from those of the training.

    python examples/har_uci.py "UCI HAR Dataset" --policy int8
    python examples/har_uci.py uci_har.npz --policy int8 --bits 4 --cosine --seeds 3

The folder as it is published, or an .npz with x_train, y_train, x_test, y_test. The score of a run
is the mean test accuracy of its last three epochs; beside it that of the float32 twin, which begins
with the same weights and sees the same order.
"""

from __future__ import annotations

import argparse

import numpy as np
from har_watch import model, policy_of
from tqdm import tqdm

import pyqfw as q
from pyqfw import nn
from pyqfw.data import Split, Standardize


def train(
    har: Split, policy: q.Policy, seed: int, epochs: int, cosine: bool = False
) -> tuple[q.Session, q.History]:
    plan = q.compile(
        model(har.train.x.shape[1], len(har.train.classes)),
        input_shape=har.train.x.shape[1:],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr=0.01, momentum=0.9),
        policy=policy,
        batch=64,
        preprocess=Standardize.fit(har.train.x),
        seed=seed,
    )
    net = q.Session(plan)
    history = q.fit(
        net,
        har.train.x,
        har.train.y,
        epochs=epochs,
        validation=(har.test.x, har.test.y),
        schedule=q.optim.CosineAnnealingLR(epochs) if cosine else None,
        progress=False,
    )
    return net, history


def score(history: q.History) -> float:
    """The mean of the last three epochs."""
    return float(np.mean(history.val_accuracy[-3:]))


def confusion(net: q.Session, har: Split) -> np.ndarray:
    """Rows: what it was; columns: what the net says."""
    said, n = net.predict(har.test.x).argmax(1), len(har.test.classes)
    return np.bincount(n * har.test.y + said, minlength=n * n).reshape(n, n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", help="the folder as it is published, or an .npz")
    parser.add_argument("--policy", choices=("float32", "full_sym", "int8"), default="int8")
    parser.add_argument("--bits", type=int, help="of the weights, if they are not the policy's own")
    parser.add_argument("--cosine", action="store_true", help="let the learning rate fall to 0")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()

    har = q.data.uci_har(args.data)
    policies = {"net": policy_of(args.policy, args.bits), "twin": q.Policy.float32()}
    print(f"train {har.train}\ntest  {har.test}\n{policies['net']}\n")
    scores: dict[str, list[float]] = {name: [] for name in policies}
    runs = [(name, seed) for seed in range(args.seeds) for name in policies]
    nets = {}
    for name, seed in tqdm(runs, disable=None):
        nets[name], history = train(har, policies[name], seed, args.epochs, args.cosine)
        scores[name].append(score(history))
    for seed, pair in enumerate(zip(*scores.values(), strict=True)):
        print(f"seed {seed}: {pair[0]:.2%}, float32 twin {pair[1]:.2%}")
    print(f"mean difference: {100 * np.mean(np.subtract(*scores.values())):+.2f} points\n")
    for name, row in zip(har.test.classes, confusion(nets["net"], har), strict=True):
        print(f"{name:>20} " + " ".join(f"{count:5d}" for count in row))
    plan, alone = nets["net"].plan, nets["net"].recompile(batch=1).plan
    print(f"\nRAM: {plan.arena_bytes} bytes at batch {plan.batch}, {alone.arena_bytes} at batch 1")


if __name__ == "__main__":
    main()
