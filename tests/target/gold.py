"""Writes cases of tests/gold as C constants (gold.h):  gold.py OUT SUITE ... [--plant SUITE]

With --plant one expected result of that suite is wrong, and a run must say so.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

GOLD = Path(__file__).resolve().parent.parent / "gold"
Case = dict[str, Any]

ROUNDINGS = ["half_away", "half_even", "stochastic"]
MODES = ["fixed", "range", "dynamic"]
KINDS = ["float32", "sym", "asym"]
REALS = ["float32", "float64", "float16", "bfloat16"]
WIDTHS = {"float32": 32, "float64": 64, "float16": 16, "bfloat16": 16}


class Pool:
    """One C array that holds many, each of them once."""

    def __init__(self, name: str, ctype: str, literal: Callable[[int], str]) -> None:
        self.name, self.ctype, self.literal = name, ctype, literal
        self.numbers: list[int] = []
        self.places: dict[tuple[int, ...], int] = {}

    def add(self, numbers: Iterable[int]) -> str:
        """The C expression of a pointer to them."""
        key = tuple(numbers)
        if key not in self.places:
            self.places[key] = len(self.numbers)
            self.numbers += key
        return f"{self.name} + {self.places[key]}"

    def text(self) -> str:
        literals = [self.literal(v) for v in self.numbers] or ["0"]  # of empty data alone
        rows = [", ".join(literals[i : i + 8]) for i in range(0, len(literals), 8)]
        return f"static const {self.ctype} {self.name}[] = {{\n    " + ",\n    ".join(rows) + "};\n"


class Pools:
    def __init__(self) -> None:
        self.by_width = {
            8: Pool("u8", "uint8_t", str),
            16: Pool("u16", "uint16_t", str),
            32: Pool("u32", "uint32_t", lambda v: f"{v}u"),
            64: Pool("u64", "uint64_t", lambda v: f"{v}ull"),
        }
        # C has no literal for -2^31.
        self.int32 = Pool("i32", "int32_t", lambda v: str(v) if v > -(2**31) else "INT32_MIN")

    def bytes(self, data: bytes) -> str:
        return self.by_width[8].add(data)

    def reals(self, bits: Iterable[int], dtype: str) -> str:
        return self.by_width[WIDTHS[dtype]].add(bits)

    def words(self, words: Iterable[int]) -> str:
        return self.by_width[32].add(words)

    def text(self) -> str:
        pools = [*self.by_width.values(), self.int32]
        return "\n".join(p.text() for p in pools if p.places)  # those that a case points into


def braces(items: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, items)) + "}"


def fields(**values: object) -> str:
    return braces(f".{name} = {value}" for name, value in values.items())


def wide(bits: int, dtype: str, to: str) -> int:
    """A normal float's bits in the type `to` (float32 or float64) that holds it exactly."""
    if dtype == to:
        return bits
    if dtype == "bfloat16":
        value = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    else:
        code = {"float16": "e", "float32": "f"}[dtype]
        value = struct.unpack(f"<{code}", bits.to_bytes(WIDTHS[dtype] // 8, "little"))[0]
    code = {"float32": "f", "float64": "d"}[to]
    return int.from_bytes(struct.pack(f"<{code}", value), "little")


# --- cases ---------------------------------------------------------------------------------------


def draws(case: Case, pools: Pools) -> str:
    blocks = [(b, False) for b in case["draws"]] + [(b, True) for b in case["uniforms"]]
    return fields(
        key=braces(case["key"]),
        k0=f"{case['k0']}u",
        k1=f"{case['k1']}u",
        blocks=braces(
            fields(
                first=f"{b['first']}ull",
                words=pools.words(b["words"]),
                n=len(b["words"]),
                uniform=int(uniform),
            )
            for b, uniform in blocks
        ),
    )


def packing(case: Case, pools: Pools) -> str:
    return fields(
        codes=pools.int32.add(case["codes"]),
        packed=pools.bytes(bytes.fromhex("".join(case["packed"]))),
        n=len(case["codes"]),
        bits=case["bits"],
        is_signed=int(case["signed"]),
    )


def convert(case: Case, pools: Pools) -> str:
    """A case of requant.json or quantize.json."""
    if "a" in case:
        own: dict[str, object] = {
            "source": pools.int32.add(case["a"]),
            "source_scale": pools.words(case["s_in"]),
            "run": case["run"],
            "n": len(case["a"]),
            "scale": case["s_out"],
        }
    else:
        own = {
            "source": pools.words(case["x"]),
            "values": pools.words(case["values"]),
            "range": case["range"],
            "run": 1,
            "n": len(case["x"]),
            "scale": case["s"],
        }
    return fields(
        key=braces(case["key"]),
        **own,
        zero_point=case["z"],
        mode=MODES.index(case["mode"]),
        kind=KINDS.index(case["to"]),
        bits=case["bits"],
        pow2=int(case["scale"] == "pow2"),
        codes=braces(pools.int32.add(case["codes"][r]) for r in ROUNDINGS),
        saturated=braces(case["saturated"][r] for r in ROUNDINGS),
    )


def layout(shape: Sequence[int], axis: int | str | None, group: int | None) -> dict[str, object]:
    """docs/numerics.md section 2, the affine family."""
    if isinstance(axis, int):
        before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
        sizes = (before, shape[axis], after, 1, 1)
    elif group is not None:
        sizes = (prod(shape[:-1]), shape[-1], 1, group, 0)
    else:
        outer, n = (prod(shape[:-1]), shape[-1]) if axis == "row" else (1, prod(shape))
        sizes = (outer, n, 1, n, 0)
    return dict(zip(("outer", "axis", "inner", "group", "shared"), sizes, strict=True))


def affine(case: Case, pools: Pools) -> str:
    dtype = case["dtype"]
    compute = "float64" if dtype == "float64" else "float32"

    def results(source: Case, *names: str) -> dict[str, object]:
        return {name: pools.reals(source[name], dtype) for name in names}

    scale = [wide(b, case["scale_dtype"], compute) for b in case["scale"]]
    rules = [
        fields(
            mask=pools.bytes(bytes.fromhex(case[rule]["mask"])),
            **results(case[rule], "quantize_backward", "fake_quantize_backward"),
        )
        for rule in ("inclusive", "strict")
    ]
    params = [
        fields(
            scale=pools.reals(case["qparams"][kind]["scale"], compute),
            zero_point=pools.int32.add(case["qparams"][kind]["zero_point"]),
        )
        for kind in ("asymmetric", "symmetric")
    ]
    return fields(
        key=braces(case["key"]),
        **layout(case["shape"], case["axis"], case["group"]),
        n=len(case["x"]),
        scales=len(scale),
        real=REALS.index(dtype),
        rounding=ROUNDINGS.index(case["rounding"]),
        params_bits=case["qparams"]["bits"],
        qmin=pools.int32.literal(case["qmin"]),
        qmax=case["qmax"],
        scale=pools.reals(scale, compute),
        zero_point=pools.int32.add(case["zero_point"]),
        codes=pools.int32.add(case["codes"]),
        quantize=pools.int32.add(case["quantize"]),
        **results(case, "x", "dy", "fake_quantize", "dequantize", "dequantize_backward"),
        rules=braces(rules),
        params=braces(params),
    )


SUITES: dict[str, tuple[str, Callable[[Case, Pools], str]]] = {
    "draws": ("gold_draws_case", draws),
    "packing": ("gold_packing_case", packing),
    "requant": ("gold_convert_case", convert),
    "quantize": ("gold_convert_case", convert),
    "affine": ("gold_affine_case", affine),
}


# --- the file ------------------------------------------------------------------------------------


def plant(suite: str, cases: list[Case]) -> None:
    """Flips the lowest bit of one expected number of a case in the middle."""
    case = next(c for c in cases[len(cases) // 2 :] if c.get("x", c.get("a", [0])))
    if suite == "packing":
        case["packed"][-1] = f"{int(case['packed'][-1][:2], 16) ^ 1:02x}" + case["packed"][-1][2:]
        return
    expected = {
        "draws": lambda: case["draws"][0]["words"],
        "requant": lambda: case["codes"]["half_even"],
        "quantize": lambda: case["codes"]["stochastic"],
        "affine": lambda: case["quantize"],
    }[suite]()
    expected[-1] ^= 1


def c_text(chosen: set[str], planted: str | None) -> str:
    present = {f.stem for f in GOLD.glob("*.json") if not f.stem.startswith(("plan_", "net_"))}
    if present != SUITES.keys():
        raise SystemExit(f"tests/gold and SUITES differ in {sorted(present ^ SUITES.keys())}")
    pools = Pools()
    tables = []
    for suite, (ctype, initializer) in SUITES.items():
        if suite not in chosen:
            tables.append(
                f"const {ctype} gold_{suite}[1];\nconst unsigned gold_{suite}_count = 0;\n"
            )
            continue
        cases: list[Case] = json.loads((GOLD / f"{suite}.json").read_text())["cases"]
        if suite == planted:
            plant(suite, cases)
        rows = ",\n    ".join(initializer(case, pools) for case in cases)
        tables.append(
            f"const {ctype} gold_{suite}[] = {{\n    {rows}}};\n"
            f"const unsigned gold_{suite}_count = {len(cases)};\n"
        )
    return "\n".join(['#include "gold.h"\n', pools.text(), *tables])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("suites", choices=SUITES, metavar="SUITE", nargs="+")
    parser.add_argument("--plant", choices=SUITES, metavar="SUITE")
    arguments = parser.parse_args()
    arguments.out.write_text(c_text(set(arguments.suites), arguments.plant))


if __name__ == "__main__":
    main()
