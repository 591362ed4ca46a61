"""Writes tests/torch/pools.json: what PyTorch makes of pools, for where it is not installed.

`--check` compares instead and fails on a difference. A case has the layer's name and arguments, the
shape of a sample, the input of two rows, the output, an error of it and the error of the input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

FILE = Path(__file__).resolve().parent / "torch" / "pools.json"
ROWS = 2

CASES: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("MaxPool1d", {"kernel_size": 2}, (3, 7)),
    ("MaxPool1d", {"kernel_size": 3, "stride": 2, "padding": 1}, (2, 8)),
    ("MaxPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, (2, 8)),
    ("MaxPool1d", {"kernel_size": 2, "stride": 1, "dilation": 3}, (2, 9)),
    ("MaxPool2d", {"kernel_size": 2}, (2, 5, 4)),
    ("MaxPool2d", {"kernel_size": [3, 2], "stride": [1, 2], "padding": [1, 0]}, (2, 4, 5)),
    (
        "MaxPool2d",
        {"kernel_size": 2, "stride": 3, "dilation": [1, 2], "ceil_mode": True},
        (2, 6, 5),
    ),
    ("AvgPool1d", {"kernel_size": 2}, (3, 7)),
    ("AvgPool1d", {"kernel_size": 3, "stride": 1, "padding": 1}, (2, 5)),
    (
        "AvgPool1d",
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        (2, 6),
    ),
    ("AvgPool1d", {"kernel_size": 4, "stride": 3, "padding": 2, "ceil_mode": True}, (2, 6)),
    ("AvgPool2d", {"kernel_size": [2, 3]}, (2, 4, 6)),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, (2, 4, 6)),
    (
        "AvgPool2d",
        {"kernel_size": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
        (2, 4, 5),
    ),
    ("AvgPool2d", {"kernel_size": [2, 1], "divisor_override": 5}, (2, 5, 3)),
    ("AdaptiveAvgPool1d", {"output_size": 1}, (3, 6)),
    ("AdaptiveAvgPool1d", {"output_size": 3}, (2, 6)),
    ("AdaptiveAvgPool1d", {"output_size": 4}, (2, 7)),
    ("AdaptiveAvgPool1d", {"output_size": 5}, (2, 3)),
    ("AdaptiveAvgPool2d", {"output_size": 1}, (3, 4, 3)),
    ("AdaptiveAvgPool2d", {"output_size": [2, None]}, (2, 5, 3)),
    ("AdaptiveAvgPool2d", {"output_size": [3, 4]}, (2, 4, 6)),
]


def record(number: int) -> dict[str, Any]:
    """A case of the file."""
    name, arguments, shape = CASES[number]
    rng = np.random.default_rng(number)
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()}
    layer = getattr(torch.nn, name)(**given)
    x = torch.tensor(_few(rng, (ROWS, *shape)), requires_grad=True)
    y = layer(x)
    error = torch.tensor(_few(rng, tuple(y.shape)))
    y.backward(error)
    assert x.grad is not None
    arrays = {"x": x.detach(), "y": y.detach(), "error": error, "dx": x.grad}
    listed = {key: t.numpy().astype(np.float64).round(7).tolist() for key, t in arrays.items()}
    return {"layer": name, "arguments": arguments, "printed": str(layer), "shape": shape, **listed}


def _few(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Quarters from -4 to 4: some are equal, and decimals tell them exactly."""
    return (rng.integers(-16, 17, shape) / 4).astype(np.float32)


def generate() -> str:
    """The text of the file."""
    torch.set_num_threads(1)
    lines = [json.dumps(record(i)) for i in range(len(CASES))]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the file, or with --check compares it."""
    if list(arguments) == ["--check"]:
        if FILE.read_text() == generate():
            return 0
        print(f"tests/torch/{FILE.name} differs: run python tests/poolgold.py", file=sys.stderr)
        return 1
    if arguments:
        print("usage: poolgold.py [--check]", file=sys.stderr)
        return 2
    FILE.write_text(generate())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
