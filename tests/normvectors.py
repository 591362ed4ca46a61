"""Writes tests/torch/norms.json: what PyTorch makes of small networks with BatchNorm and GroupNorm,
for tests/test_norm_vectors.py, which needs no PyTorch.

`--check` compares the numbers instead, within 1e-5, and fails on a difference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

FILE = Path(__file__).resolve().parent / "torch" / "norms.json"
ROWS, STEPS, LR, OUTPUTS = 5, 2, 0.1, 2
# A layer of torch.nn, its arguments, the sample that it takes.
CASES: dict[str, tuple[str, list[Any], list[int]]] = {
    "vector": ("BatchNorm1d", [3], [3]),
    "signal": ("BatchNorm1d", [2, 1e-3, None], [2, 3]),
    "image": ("BatchNorm2d", [2, 1e-5, 0.3], [2, 2, 3]),
    "not affine": ("BatchNorm2d", [3, 1e-5, 0.1, False], [3, 2, 2]),
    "groups": ("GroupNorm", [2, 4], [4, 3]),
    "groups of a vector": ("GroupNorm", [2, 6, 1e-3], [6]),
    "one group": ("GroupNorm", [1, 3, 1e-5, False], [3, 2, 2]),
}


def numbers(source: Random, shape: Sequence[int], size: float = 1.0) -> list[float]:
    """Numbers of so many elements, the same in every version of Python, that float32 holds."""
    count = int(np.prod(shape))
    return listed([size * (4 * source.random() - 2) for _ in range(count)])


def listed(value: Any) -> list[float]:
    """As float32 numbers, each by its shortest decimal."""
    return [float(str(v)) for v in np.asarray(value, np.float32).reshape(-1)]


def vectors(case: str) -> dict[str, Any]:
    import torch
    from torch import nn

    layer, given, shape = CASES[case]
    source, inputs = Random(case), [shape[0] + 2, *shape[1:]]
    products = {1: nn.Linear, 2: nn.Conv1d, 3: nn.Conv2d}
    kernel = [] if len(shape) == 1 else [1]
    model = nn.Sequential(
        products[len(shape)](inputs[0], shape[0], *kernel, bias=False),
        *(getattr(nn, layer)(*given), nn.Flatten()),
        nn.Linear(int(np.prod(shape)), OUTPUTS),
    )
    begin = {
        name: numbers(source, v.shape, 0.5) for name, v in model.state_dict().items() if v.dim()
    }
    for name in begin:
        if name.endswith("running_var"):
            begin[name] = [abs(v) + 0.25 for v in begin[name]]
    shapes = {name: v.shape for name, v in model.state_dict().items()}
    values = {name: torch.tensor(v).reshape(shapes[name]) for name, v in begin.items()}
    model.load_state_dict(values, strict=False)
    sgd, steps = torch.optim.SGD(model.parameters(), lr=LR), []
    for _ in range(STEPS):
        x, y = numbers(source, [ROWS, *inputs]), numbers(source, [ROWS, OUTPUTS])
        out = model(torch.tensor(x).reshape(ROWS, *inputs))
        loss = nn.functional.mse_loss(out, torch.tensor(y).reshape(ROWS, OUTPUTS))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        gradients = {name: listed(p.grad) for name, p in model.named_parameters()}
        state = {name: listed(v) for name, v in model.state_dict().items()}
        steps.append({"x": x, "y": y, "output": listed(out.detach())})
        steps[-1] |= {"loss": loss.item(), "gradients": gradients, "state": state}
    model.eval()
    x = numbers(source, [ROWS, *inputs])
    asked = listed(model(torch.tensor(x).reshape(ROWS, *inputs)).detach())
    return {"begin": begin, "steps": steps, "x": x, "inference": asked}


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if a and isinstance(a, list) and isinstance(a[0], dict):
        return len(a) == len(b) and all(map(alike, a, b))
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(x.shape == y.shape and np.linalg.norm(x - y) <= 1e-5 * (1 + np.linalg.norm(y)))


def main(arguments: Sequence[str]) -> int:
    """Writes the file, or with --check compares it."""
    made = {case: vectors(case) for case in CASES}
    if list(arguments) == ["--check"]:
        if alike(json.loads(FILE.read_text()), made):
            return 0
        print(f"{FILE.name} differs: run python tests/normvectors.py", file=sys.stderr)
        return 1
    if arguments:
        print("usage: normvectors.py [--check]", file=sys.stderr)
        return 2
    lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(v)}" for case, v in made.items())
    FILE.write_text("{" + lines + "}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
