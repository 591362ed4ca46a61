"""Matrix products beside NumPy's (OpenBLAS sgemm)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from . import bench, quant
from .bench import Case

SIZES = ((256, 256, 256), (64, 128, 256), (16, 64, 8192), (1, 784, 128))  # m, k, n
TYPES = {"s16": np.int16, "s8": np.int8, "f32": np.float32}
BARS = {("s16", 256, 256, 256): 1.5, ("s16", 64, 128, 256): 1.5}

NOTES = (
    "a b^T, a m x k and b n x k, both as they lie in memory; packing included, result written into "
    "a buffer that is there. s16: codes of 12 bits; s8: of 8. Peer: NumPy float32, a @ b.T.",
    bench.LIMIT,
    "Integer sums are exact; float32 sums go in ascending order without FMA, so that they have the "
    "same bits on every machine.",
)


def suite() -> bench.Suite:
    """The suite `gemm`."""
    return bench.Suite(
        name="gemm",
        cases=cases(),
        setting={"sizes": SIZES},
        title="products m x k x n",
        notes=NOTES,
        without_torch="",
    )


def cases() -> Iterator[Case]:
    for m, k, n in SIZES:
        for name in TYPES:
            yield _case(name, m, k, n)


def operands(name: str, m: int, k: int, n: int) -> tuple[Any, Any, Any]:
    """a, b and room for the product."""
    rng = np.random.default_rng(0)
    if name == "f32":
        a, b = (rng.standard_normal((rows, k), dtype=np.float32) for rows in (m, n))
        return a, b, np.zeros((m, n), np.float32)
    q = 2047 if name == "s16" else 127
    a, b = (rng.integers(-q, q, (rows, k), TYPES[name], endpoint=True) for rows in (m, n))
    return a, b, np.zeros((m, n), np.int32)


def _case(name: str, m: int, k: int, n: int) -> Case:
    a, b, out = operands(name, m, k, n)
    x, y = a.astype(np.float32), b.astype(np.float32)
    result = np.zeros((m, n), np.float32)
    return Case(
        f"{name} {m} x {k} x {n}",
        partial(quant.product, a, b, out),
        m * k * n / 1e9,
        "GMAC/s",
        "NumPy f32",
        lambda: np.matmul(x, y.T, out=result),
        BARS.get((name, m, k, n)),
        macs=m * k * n,
        bits=8 * a.itemsize,
    )
