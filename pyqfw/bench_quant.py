"""The quantize family beside memcpy and torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from . import bench, quant, tensor
from .bench import Case, Run
from .formats import Sym

CHANNELS = 1024
GROUPS = (32, 64, 128)
ODD_WIDTHS = (3, 5, 6, 7, 9, 11, 12, 13)
MEMCPY_BAR = 0.9
TORCH_BAR = 8.0
PACK_BAR = 1.0

NOTES = (
    "GB/s counts the float input; of pack and unpack, the integer codes (int8 up to 8 bits, "
    "else int16).",
    "memcpy, pack, unpack and rows with out= write into buffers touched before; the others and "
    "torch allocate their result anew in every call, which for 64 MB costs about as much as the "
    "work.",
)


def suite(elements: int) -> bench.Suite:
    """The suite `quant` on `elements` floats, a multiple of CHANNELS."""
    return bench.Suite(
        name="quant",
        cases=cases(elements),
        setting={"elements": elements},
        title=f"{elements} elements",
        notes=NOTES,
        without_torch="torch is not installed: fake_quantize has no peer here.",
    )


def cases(elements: int) -> Iterator[Case]:
    """Group-wise quantize, fake_quantize and packing."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(elements, dtype=np.float32)
    yield from _groupwise(x)
    torch = bench.optional("torch")
    for n in sorted({elements, min(elements, 2**20)}, reverse=True):
        yield from _fake_quantize(x[:n].reshape(CHANNELS, -1), torch)
    del x
    for bits in ODD_WIDTHS:
        yield from _packing(rng, elements, bits)


def _groupwise(x: Any) -> Iterator[Case]:
    copy = x.copy()
    gigabytes = x.nbytes / 1e9

    def memcpy() -> None:
        np.copyto(copy, x)

    def case(name: str, run: Run) -> Case:
        return Case(name, run, gigabytes, "GB/s", "memcpy", memcpy, MEMCPY_BAR)

    yield Case("memcpy", memcpy, gigabytes, "GB/s")
    for g in GROUPS:
        fmt = Sym(8, group=g)
        yield case(f"quantize(x, {fmt})", partial(tensor.quantize, x, fmt))
    codes = np.zeros(x.shape, np.int8)
    for g in GROUPS:
        args = (x, *quant.qparams(x, 8, group=g), -127, 127)
        for suffix, out in (("", None), (", out=", codes)):
            run = partial(quant.quantize_affine, *args, group=g, out=out)
            yield case(f"quantize_affine int8, group={g}{suffix}", run)


def _fake_quantize(x: Any, torch: Any) -> Iterator[Case]:
    """Per tensor and per channel, beside torch's forward where torch is there."""
    zero = np.int32(0)
    zeros = np.zeros(CHANNELS, np.int32)
    scale = np.float32(0.03)
    scales = np.linspace(0.01, 0.05, CHANNELS, dtype=np.float32)
    size = _short(x.size)

    out = np.zeros_like(x)

    def per_tensor(out: Any) -> object:
        return quant.fake_quantize_affine(x, scale, zero, -128, 127, out=out)

    def per_channel(out: Any) -> object:
        return quant.fake_quantize_affine(x, scales, zeros, -128, 127, axis=0, out=out)

    peers: dict[str, Run] = {}
    if torch:
        tx, ts, tz = map(torch.from_numpy, (x, scales, zeros))
        per_tensor_torch = torch.fake_quantize_per_tensor_affine
        per_channel_torch = torch.fake_quantize_per_channel_affine
        peers["tensor"] = partial(per_tensor_torch, tx, float(scale), 0, -128, 127)
        peers["channel"] = partial(per_channel_torch, tx, ts, tz, 0, -128, 127)

    for grain, run in (("tensor", per_tensor), ("channel", per_channel)):
        peer = peers.get(grain)
        for suffix, target in (("", None), (", out=", out)):
            yield Case(
                f"fake_quantize per {grain}, {size}{suffix}",
                partial(run, target),
                x.nbytes / 1e9,
                "GB/s",
                peer="torch" if peer else None,
                peer_run=peer,
                bar=TORCH_BAR if peer else None,
            )


def _packing(rng: Any, elements: int, bits: int) -> Iterator[Case]:
    largest = 2 ** (bits - 1) - 1
    dtype = np.int8 if bits <= 8 else np.int16
    codes = rng.integers(-largest, largest, elements, dtype, endpoint=True)
    packed = quant.pack(codes, bits)
    back = np.zeros_like(codes)
    pack = partial(quant.pack, codes, bits, out=packed)
    unpack = partial(quant.unpack, packed, bits, elements, out=back)
    for name, run in (("pack", pack), ("unpack", unpack)):
        title = f"{name} {bits} bits, {np.dtype(dtype).name}"
        yield Case(title, run, codes.nbytes / 1e9, "GB/s", bar=PACK_BAR, bar_of="rate")


def _short(n: int) -> str:
    """16777216 as 16M."""
    for power, letter in ((20, "M"), (10, "k")):
        if n >= 2**power and n % 2**power == 0:
            return f"{n >> power}{letter}"
    return str(n)
