"""Writes tests/vectors/convolutions.json from PyTorch: what layers give, and their gradients.

`python tests/torch_vectors.py`; `tests/test_conv_vectors.py` reads it where there is no PyTorch.
Inputs, weights and targets are small integers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

FILE = Path(__file__).resolve().parent / "vectors" / "convolutions.json"

CASES: list[tuple[str, tuple[int, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Conv1d", (2, 3, 3), {}, (2, 6)),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}, (4, 7)),
    ("Conv1d", (3, 3, 4), {"groups": 3, "padding": "same", "bias": False}, (3, 5)),
    ("Conv1d", (2, 2, 5), {"padding": 2}, (2, 2)),
    ("Conv2d", (2, 3, 2), {"padding": 1}, (2, 3, 4)),
    ("Conv2d", (4, 4, (3, 2)), {"stride": (2, 1), "dilation": (1, 2), "groups": 4}, (4, 5, 4)),
    ("Conv2d", (2, 4, (1, 3)), {"padding": (2, 1), "groups": 2, "bias": False}, (2, 2, 5)),
    ("ConvTranspose1d", (3, 2, 3), {}, (3, 4)),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 3, "output_padding": 2, "groups": 2}, (4, 3)),
    ("ConvTranspose1d", (2, 2, 2), {"dilation": 3, "padding": 2, "groups": 2}, (2, 4)),
    ("ConvTranspose2d", (2, 3, 2), {"stride": 2, "bias": False}, (2, 2, 3)),
    ("ConvTranspose2d", (3, 3, 3), {"stride": (2, 1), "padding": 1, "groups": 3}, (3, 2, 3)),
]


def vector(
    kind: str, sizes: tuple[int, ...], options: dict[str, Any], shape: Any
) -> dict[str, Any]:
    """One layer behind one that makes its input's gradient visible, under a mean of squares."""
    rng = np.random.default_rng(len(str((kind, sizes, options))))
    plain = "Conv1d" if len(shape) == 2 else "Conv2d"
    first = getattr(torch.nn, plain)(shape[0], shape[0], 1, bias=False)
    model = torch.nn.Sequential(first, getattr(torch.nn, kind)(*sizes, **options))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.integers(-3, 4, p.shape).astype(np.float32)))
    x = torch.from_numpy(rng.integers(-3, 4, (2, *shape)).astype(np.float32))
    out = model(x)
    y = torch.from_numpy(rng.integers(-9, 10, out.shape).astype(np.float32))
    loss = torch.nn.functional.mse_loss(out, y)
    loss.backward()
    numbers = {
        **{"x": x, "y": y, "output": out.detach()},
        **{f"value {name}": p.detach() for name, p in model.named_parameters()},
        **{f"gradient {name}": p.grad for name, p in model.named_parameters()},
    }
    listed = {name: [list(t.shape), _short(t.numpy())] for name, t in numbers.items()}
    return {"kind": kind, "sizes": sizes, "options": options, "loss": loss.item(), **listed}


def _short(x: np.ndarray) -> list[float]:
    """Whole numbers as such, others as the shortest decimal of their float32."""
    return [int(v) if v == int(v) else float(str(v)) for v in x.ravel()]


def generate() -> list[dict[str, Any]]:
    return [vector(*case) for case in CASES]


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    text = ",\n".join(json.dumps(v, separators=(",", ":")) for v in generate())
    FILE.write_text(f"[\n{text}\n]\n")
