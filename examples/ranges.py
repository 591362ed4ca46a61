"""How ranges are found, on a device: RAM, instructions and accuracy of the UCI HAR network.

    python examples/ranges.py uci_har.npz --seeds 5 --into docs/performance.md

Batch 1, plain SGD, gradients fused, as a device trains: dynamic ranges keep the sums of a layer
until their largest is known, or compute them twice, which has the same bits; hindsight ranges take
that of earlier steps and write codes at once. A score is the mean test accuracy of the last three
epochs; differences are paired by seed, which gives the same weights and the same order, with their
standard error.
"""

from __future__ import annotations

import argparse
import re
from math import sqrt
from pathlib import Path

import numpy as np
from har_watch import model
from tqdm import tqdm

import pyqfw as q
from pyqfw import nn
from pyqfw.data import Split, Standardize
from pyqfw.policy import Policy

TITLE = "ranges"
FUSED = Policy.int8().replace(grads="fused")
WIRES = q.Sym(8, range="hindsight")
ERRORS = q.Sym(8, range="hindsight", rounding="stochastic")
POLICIES = {
    "float32": Policy.float32().replace(grads="fused"),
    "dynamic": FUSED,
    "dynamic, recomputed": FUSED.replace(sums="recomputed"),
    "hindsight errors": FUSED.replace(errors=ERRORS),
    "hindsight wires and errors": FUSED.replace(wires=WIRES, errors=ERRORS),
}
TARGET = "cortex-m4"


def session(har: Split, policy: Policy, seed: int, lr: float) -> q.Session:
    plan = q.compile(
        model(har.train.x.shape[1], len(har.train.classes)),
        input_shape=har.train.x.shape[1:],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr),
        policy=policy,
        batch=1,
        seed=seed,
    )
    return q.Session(plan)


def standardized(har: Split) -> tuple[np.ndarray, np.ndarray]:
    """Once for all runs; a device has it as the plan's first operation."""
    both = Standardize.fit(har.train.x)
    return both(har.train.x), both(har.test.x)


def scores(har: Split, args: argparse.Namespace) -> dict[str, list[float]]:
    x, xt = standardized(har)
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    same = "dynamic, recomputed"  # the bits of "dynamic"
    runs = [(name, seed) for seed in range(args.seeds) for name in POLICIES if name != same]
    for name, seed in tqdm(runs, disable=None):
        net = session(har, POLICIES[name], seed, args.lr)
        history = q.fit(
            *(net, x, har.train.y),
            epochs=args.epochs,
            validation=(xt, har.test.y),
            progress=False,
        )
        found[name].append(100 * float(np.mean(history.val_accuracy[-3:])))
    return found | {same: found["dynamic"]}


def paired(name: str, found: dict[str, list[float]], peer: str) -> str:
    if name == peer:
        return ""
    d = np.subtract(found[name], found[peer])
    error = d.std(ddof=1) / sqrt(len(d)) if len(d) > 1 else float("nan")
    return f"{d.mean():+.2f} +- {error:.2f}"


def table(har: Split, found: dict[str, list[float]], args: argparse.Namespace) -> str:
    head = ("ranges", "arena", "RAM in all", "step", "inference", "accuracy", "to dynamic")
    lines = [head]
    for name, policy in POLICIES.items():
        cost = q.mcu.cost(session(har, policy, 0, args.lr), target=TARGET, count_steps=1)
        arena = sum(v or 0 for v in list(cost.ram.values())[:3])
        told = [f"{arena}", f"{cost.ram_bytes}", f"{cost.step:.0f}", f"{cost.inference:.0f}"]
        lines.append(
            (name, *told, f"{np.mean(found[name]):.2f}", paired(name, found, "dynamic")),
        )
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join(
            c.rjust(w) if k else c.ljust(w)
            for k, (c, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def section(text: str, args: argparse.Namespace) -> str:
    command = f"python examples/ranges.py {Path(args.data).name} --seeds {args.seeds}"
    command += f" --epochs {args.epochs} --lr {args.lr:g}"
    return "\n".join(
        (
            f"## {TITLE}",
            "",
            f"`{command}`: the UCI HAR network of 10 214 parameters at batch 1, plain SGD, "
            f"gradients fused; bytes and instructions on an emulated {TARGET}, a training step of "
            "a row of noise.",
            "",
            "```",
            text,
            "```",
            "",
            "Arena: parameters, wires, errors, scratch and the core's own; RAM in all: with "
            "samples, outputs and stack. Accuracy in percent: the mean of the last three epochs, "
            "over seeds; to dynamic: mean paired difference in points with its standard error. "
            "Recomputed: products are computed twice instead of storing their sums; the bits, and "
            "so the accuracy, are those of dynamic ranges.",
            "",
        )
    )


def put_into(path: Path, part: str) -> None:
    """Replaces the section of this title, or adds it."""
    parts = re.split(r"^(?=## )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    others = [p.rstrip() + "\n" for p in parts if not p.startswith(f"## {TITLE}\n")]
    path.write_text("\n".join([*others, part.rstrip() + "\n"]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", help="the folder of UCI HAR as it is published, or an .npz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--into", type=Path, help="a Markdown file that has, or gets, the section")
    args = parser.parse_args()
    har = q.data.uci_har(args.data)
    part = section(table(har, scores(har, args), args), args)
    print(part)
    if args.into is not None:
        put_into(args.into, part)


if __name__ == "__main__":
    main()
