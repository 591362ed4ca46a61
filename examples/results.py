"""Measures what docs/results.md shows, and writes it: nothing there is typed by hand.

    python examples/results.py har UCI_HAR.npz --seeds 10
    python examples/results.py watch --seeds 3
    python examples/results.py ecg ECG5000.zip --seeds 10
    python examples/results.py fashion --seeds 3
    python examples/results.py page                # the page alone, from docs/results.json

Each command replaces its own part of docs/results.json, which has every score, and writes the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, TypeAlias

import ecg_autoencoder
import ecg_classifier
import har_uci
import har_watch
import images
import numpy as np
from results_page import Bar, Part, Row, page
from tqdm import tqdm

import pyqfw as q

DOCS = Path(__file__).parents[1] / "docs"
FLOAT32, INT8, FULL_SYM = q.Policy.float32(), q.Policy.int8(), q.Policy.full_sym()
W4 = har_watch.policy_of("int8", 4)
Runs: TypeAlias = Iterator[tuple[int, dict[str, list[float]]]]  # first how many there will be


def har(args: argparse.Namespace) -> Runs:
    data = q.data.uci_har(args.data)
    runs = {
        "float32": (FLOAT32, False),
        "full_sym()": (FULL_SYM, False),
        "int8()": (INT8, False),
        "float32, cosine": (FLOAT32, True),
        "int8(), cosine": (INT8, True),
        "int8(), 4-bit weights, cosine": (W4, True),
    }
    yield args.seeds * len(runs), {}
    for seed in range(args.seeds):
        for name, (policy, cosine) in runs.items():
            _, history = har_uci.train(data, policy, seed, args.epochs or 40, cosine)
            yield 1, {name: [100 * har_uci.score(history)]}


def watch(args: argparse.Namespace) -> Runs:
    data = q.data.watch(args.data)
    people = np.unique(data.groups)
    yield args.seeds * len(people) * 2, {}
    for seed in range(args.seeds):
        for person in people:
            for name, policy in (("float32", FLOAT32), ("int8()", INT8)):
                found = har_watch.meet(data, person, policy, seed, args.epochs or 20)
                told = (f"{name}, before", f"{name}, head only", f"{name}, all layers")
                yield 1, {row: [100 * v] for row, v in zip(told, found, strict=True)}


def ecg(args: argparse.Namespace) -> Runs:
    data = q.data.ecg5000(args.data)
    yield args.seeds * 2, {}
    for seed in range(args.seeds):
        for name, policy in (("float32", FLOAT32), ("int8()", INT8)):
            detector = ecg_autoencoder.train(data, policy, seed, args.epochs or 100, False)
            errors = ecg_autoencoder.errors(detector, data.test.x)
            area = ecg_autoencoder.roc(errors, data.test.y != 0).area
            classifier = ecg_classifier.train(data, policy, seed, args.epochs or 30, False)
            right = 100 * ecg_classifier.accuracy(classifier, data)
            yield 1, {f"{name}, AUC x 100": [100 * area], f"{name}, accuracy": [right]}


def fashion(args: argparse.Namespace) -> Runs:
    data = q.data.fashion_mnist(args.data)
    runs = [(lr, *pair) for lr in (0.02, 0.05) for pair in (("float32", FLOAT32), ("int8()", INT8))]
    yield args.seeds * len(runs), {}
    for seed in range(args.seeds):
        for lr, name, policy in runs:
            _, history = images.train(data, policy, seed, args.epochs or 3, False, lr)
            row = name if lr == 0.02 else f"{name}, lr {lr}"
            yield 1, {row: [100 * history.val_accuracy[-1]]}


PARTS = {
    "har": Part(
        "UCI HAR",
        "Windows of 9 x 128, official split by people; the 1-D CNN of 10 214 parameters of "
        "`examples/har_uci.py`, batch 64, SGD 0.01 with momentum 0.9. A score is the mean test "
        "accuracy of the last three epochs. Weights, wires, errors, gradients and momentum of "
        "`int8()` have 8 bits. The cosine rows let the learning rate fall to 0. Learning rate, "
        "batch and presets are as they were before any score was seen.",
        {
            "float32": Row(),
            "full_sym()": Row("float32"),
            "int8()": Row("float32", Bar(-0.5)),
            "float32, cosine": Row(),
            "int8(), cosine": Row("float32, cosine"),
            "int8(), 4-bit weights, cosine": Row("float32, cosine", Bar(-1.0)),
        },
        har,
    ),
    "watch": Part(
        "A smart watch meets a new person",
        "seglearn's watch data, each of ten people left out in turn (`examples/har_watch.py`): a "
        "net of the other nine, then fine-tuned a window at a time, without momentum or stored "
        "gradients, on the first 30 % of each recording of the new person; tested on the rest, "
        "one window later. A score is one person's accuracy with one seed. The learning rate and "
        "batch of the fine-tuning were chosen by the scores of five people with one seed.",
        {
            "float32, before": Row(),
            "float32, head only": Row("float32, before"),
            "float32, all layers": Row("float32, before"),
            "int8(), before": Row("float32, before"),
            "int8(), head only": Row("float32, head only", Bar(-1.0)),
            "int8(), all layers": Row("float32, all layers", Bar(-1.0)),
        },
        watch,
    ),
    "ecg": Part(
        "ECG5000",
        "A convolutional autoencoder that saw 292 normal beats (`examples/ecg_autoencoder.py`): "
        "the area under its ROC curve over 4 500 beats, in hundredths; and an MLP 140-32-2 that "
        "tells normal beats from others (`examples/ecg_classifier.py`). The shape of the "
        "autoencoder and its learning rate were chosen by the test scores of three seeds.",
        {
            "float32, AUC x 100": Row(),
            "int8(), AUC x 100": Row("float32, AUC x 100", Bar(98.5, "mean")),
            "float32, accuracy": Row(),
            "int8(), accuracy": Row("float32, accuracy", Bar(97.8, "mean")),
        },
        ecg,
    ),
    "fashion": Part(
        "Fashion-MNIST from scratch",
        "The CNN with 8 and 16 channels of `examples/images.py`, batch 64, SGD 0.02 with momentum "
        "0.9, three epochs, test accuracy after the last one. The learning rate was chosen among "
        "0.01, 0.02 and 0.05 by these scores; 0.05, tried first, has rows of its own. The "
        "published figure of uint8 training on a device is 76.1 against 84.0 (arXiv 2407.10734).",
        {
            "float32": Row(),
            "int8()": Row("float32", Bar(-1.0)),
            "float32, lr 0.05": Row(),
            "int8(), lr 0.05": Row("float32, lr 0.05"),
        },
        fashion,
    ),
}


def measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The scores of a part, with what they cost."""
    begin, found = process_time(), {row: [] for row in PARTS[name].rows}
    with tqdm(desc=name, unit="run", disable=None) as shown:
        for number, (count, scores) in enumerate(PARTS[name].scores(args)):
            if number == 0:
                shown.reset(total=count)
                continue
            shown.update(count)
            for row, values in scores.items():
                found[row] += [round(v, 6) for v in values]
    told = [name, *([Path(args.data).name] if args.data else []), "--seeds", str(args.seeds)]
    told += ["--epochs", str(args.epochs)] if args.epochs else []
    return {
        "command": " ".join(["python", "examples/results.py", *told]),
        "seeds": args.seeds,
        "cpu_seconds": round(process_time() - begin),
        "scores": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("part", choices=(*PARTS, "page"))
    parser.add_argument("data", nargs="?", help="the file or folder, where it has no place")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="for a quick look, not for the page")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder to write to")
    args = parser.parse_args()
    if args.part == "har" and args.data is None:
        parser.error("har needs the path of the UCI HAR folder or an .npz")

    store = args.docs / "results.json"
    content = json.loads(store.read_text()) if store.exists() else {}
    if args.part != "page":
        content[args.part] = measured(args.part, args)
        text = json.dumps({name: content[name] for name in PARTS if name in content}, indent=1)
        store.write_text(text + "\n")
    (args.docs / "results.md").write_text(page(PARTS, content))
    print(page(PARTS, {k: v for k, v in content.items() if args.part in ("page", k)}))


if __name__ == "__main__":
    main()
