"""Writes tests/gold/*.json with the oracle. `--check` compares instead and fails on a difference.

Floats are bit patterns, codes are plain integers, bytes are hex. A stochastic result uses the words
u_i of key(*case["key"]), i the place in the case's list.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import oracle as o
import oracle_affine as oa

GOLD = Path(__file__).resolve().parent / "gold"
Case = dict[str, Any]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
FLT_MIN, FLT_MAX = 0x00800000, 0x7F7FFFFF
FORMATS = [("sym", b) for b in range(2, 17)] + [("asym", b) for b in range(1, 17)]


class Source:
    """Integers that depend on a seed only (splitmix64)."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def word(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        x = (self.state ^ self.state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    def integer(self, low: int, high: int) -> int:
        """low <= result <= high."""
        return low + self.word() % (high - low + 1)

    def int32(self) -> int:
        """An int32 of any magnitude."""
        return self.integer(INT32_MIN, INT32_MAX) >> self.integer(0, 30)

    def float(self, low: int, high: int, kind: str = "float32", negative: bool = False) -> int:
        """Bits of a normal float 2^low <= |v| < 2^(high+1), of any sign if `negative`."""
        f = o.FLOATS[kind]
        exponent = self.integer(low, high) - f.emin + 1
        bits = exponent << (f.precision - 1) | self.word() % (1 << (f.precision - 1))
        return bits | (negative and self.word() & 1) << (f.width - 1)


def bits_list(values: Iterable[Fraction], kind: str = "float32") -> list[int]:
    return [o.bits_of_fraction(v, kind) for v in values]


def key_of(source: Source) -> list[int]:
    return [source.word() >> 32 for _ in range(3)]


def encode(
    n: int, key: Sequence[int], one: Callable[[int, str, int], tuple[int, bool]]
) -> dict[str, dict[str, Any]]:
    """Codes and saturation counts of n elements by every rounding."""
    k = o.key(*key)
    codes, saturated = {}, {}
    for rounding in o.ROUNDINGS:
        results = [one(i, rounding, o.uniform(k, i)) for i in range(n)]
        codes[rounding] = [code for code, _ in results]
        saturated[rounding] = sum(flag for _, flag in results)
    return {"codes": codes, "saturated": saturated}


# ---- draws ---------------------------------------------------------------------------------------


def draws() -> list[Case]:
    source = Source(1)
    top = 2**32 - 1
    triples = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [top, top, top]]
    triples += [key_of(source) for _ in range(7)]
    cases = []
    for triple in triples:
        k = o.key(*triple)
        first = [0, 2**32 - 8, source.word() >> 32]
        blocks = [0, 24, 2**32 - 5, 2**36 - 9, source.word() >> 20]
        cases.append(
            {
                "key": triple,
                "k0": k[0],
                "k1": k[1],
                "draws": [
                    {"first": i, "words": [o.draw(k, i + j) for j in range(16)]} for i in first
                ],
                "uniforms": [
                    {"first": i, "words": [o.uniform(k, i + j) for j in range(40)]} for i in blocks
                ],
            }
        )
    return cases


# ---- requantization ------------------------------------------------------------------------------


def near_ties(s_in: Fraction, s_out: Fraction, codes: Iterable[int]) -> list[int]:
    """The int32 whose quotients lie next to code + 1/2."""
    middles = (o.half_even((c + Fraction(1, 2)) * s_out / s_in) for c in codes)
    return [m for m in middles if INT32_MIN <= m <= INT32_MAX]


def requant_case(
    source: Source,
    to: tuple[str, int],
    scale: str,
    s_in: Sequence[int],
    a: Sequence[int],
    s_out: int | None = None,
    note: str = "",
) -> Case:
    """Element i has the scale s_in[i // run]. Without s_out the scale is found, by kind `scale`."""
    kind, bits = to
    run = max(1, -(-len(a) // len(s_in)))
    scales = [o.fraction_of_bits(s_in[i // run]) for i in range(len(a))]
    pairs = list(zip(a, scales, strict=True))
    z: int | None = None
    if s_out is not None:
        target = o.fraction_of_bits(s_out)
        z = source.integer(0, 2**bits - 1) | 1 if kind == "asym" else None
    elif kind == "asym":
        target, z = o.asym_params(pairs, bits, scale == "pow2")
    else:
        target = o.sym_scale(pairs, bits, scale == "pow2")
    key = key_of(source)
    return {
        "note": note,
        "mode": "dynamic" if s_out is None else "fixed",
        "to": kind,
        "bits": bits,
        "scale": scale,
        "key": key,
        "s_in": list(s_in),
        "run": run,
        "a": list(a),
        "s_out": o.bits_of_fraction(target),
        "z": z or 0,
        **encode(
            len(a),
            key,
            lambda i, rounding, u: o.requantize(a[i], scales[i], target, bits, rounding, u, z),
        ),
    }


def requant() -> list[Case]:
    source = Source(2)
    ends = [INT32_MIN, INT32_MIN + 1, INT32_MAX, 0, 1, -1]
    cases = []
    for to in FORMATS:
        kind, bits = to
        top = o.top_code(bits, kind == "asym")

        def add(
            note: str,
            s_in: Sequence[int],
            a: Sequence[int],
            s_out: int | None = None,
            scale: str = "float",
            to: tuple[str, int] = to,
        ) -> None:
            cases.append(requant_case(source, to, scale, s_in, a, s_out, note))

        s_in = source.float(-30, 10)
        s = o.fraction_of_bits(s_in)
        some = [0, top // 2, top - 1, top, -1, -top - 1]

        s_out = o.bits_of_fraction(s * source.integer(200, 5000) / 7)
        a = near_ties(s, o.fraction_of_bits(s_out), some)
        add("near ties", [s_in], [*a, *(v + 1 for v in a), *ends[:4]], s_out)

        k = source.integer(1, 13)
        ties = [(2 * c + 1) << (k - 1) for c in some]
        add(
            "ties", [s_in], [*ties, *(-v for v in ties), ties[1] - 1, ties[1] + 1], s_in + (k << 23)
        )

        s_out = o.bits_of_fraction(s * 2**31 / (top + Fraction(source.integer(-60, 20), 100)))
        a = near_ties(s, o.fraction_of_bits(s_out), some)
        add("the whole int32 range", [s_in], [*a, *ends, source.int32(), source.int32()], s_out)

        up = o.bits_of_fraction(s / 3)
        add(
            "a ratio above 1", [s_in], [0, 1, -1, top // 4, -top // 4, top // 3, top, *ends[:3]], up
        )
        add("from the smallest to the largest scale", [FLT_MIN], ends, FLT_MAX)
        add("from the largest to the smallest scale", [FLT_MAX], ends, FLT_MIN)

        add("whole range", [s_in], [source.int32() for _ in range(8)] + [INT32_MIN])
        small = [source.integer(-900, 1000) for _ in range(9)]
        add("three source scales", [source.float(-4, 2) for _ in range(3)], small)
        add("power of two", [s_in], [source.int32() >> 6 for _ in range(8)], scale="pow2")
        if bits % 5 == 3:
            add("already at Q", [s_in], [top, -top, 1, 0])
            add("zeros", [s_in], [0, 0, 0])
            add("empty", [s_in], [])
            add("one-sided", [s_in], [5, 1000, 77])
            add("clamped below", [FLT_MIN], [1, -1, 3])
            add("clamped above", [FLT_MAX], [INT32_MAX, INT32_MIN, 5])
            add("clamped below", [FLT_MIN], [1, -1, 3], scale="pow2")
            add("clamped above", [FLT_MAX], [INT32_MAX, INT32_MIN, 5], scale="pow2")
    return cases


# ---- quantization --------------------------------------------------------------------------------


def quantize_case(
    source: Source,
    to: tuple[str, int],
    mode: str,
    scale: str,
    x: Sequence[int],
    given: int = 0,
) -> Case:
    """Mode fixed: `given` is the scale; range: the range; dynamic: unused."""
    kind, bits = to
    asym, power = kind == "asym", scale == "pow2"
    values = [o.fraction_of_bits(b) for b in x]
    z: int | None = 0 if asym else None
    if mode == "fixed":
        s = o.fraction_of_bits(given)
        z = source.integer(0, 2**bits - 1) | 1 if asym else None
    elif mode == "range":
        s = o.range_scale(o.fraction_of_bits(given), bits, asym, power)
    elif asym:
        s, z = o.asym_params_of_floats(values, bits, power)
    else:
        s = o.sym_scale_of_floats(values, bits, power)
    key = key_of(source)
    coded = encode(
        len(x), key, lambda i, rounding, u: o.quantize(values[i], s, bits, rounding, u, z)
    )
    return {
        "mode": mode,
        "to": kind,
        "bits": bits,
        "scale": scale,
        "key": key,
        "x": list(x),
        "range": given if mode == "range" else 0,
        "s": o.bits_of_fraction(s),
        "z": z or 0,
        **coded,
        "values": [o.dequantize(c, s, z or 0) for c in coded["codes"]["half_away"]],
    }


def quantize() -> list[Case]:
    source = Source(3)
    sign = 2**31
    edges = [0, sign, 1, sign + 1, 0x007FFFFF, FLT_MIN, FLT_MAX, sign + FLT_MAX]
    cases = []
    for to in FORMATS:
        kind, bits = to
        top = o.top_code(bits, kind == "asym")
        some = [0, 1, top // 2, top - 1, top]

        s = source.integer(1, 127) * o.pow2(source.integer(-20, 10))  # (c + 1/2) s is a float32
        ties = bits_list((c + Fraction(1, 2)) * s for c in some)
        exact = bits_list([top * s, (top + 1) * s])
        x = [*ties, *(t + sign for t in ties), *exact, *edges[:4]]
        cases.append(quantize_case(source, to, "fixed", "float", x, o.bits_of_fraction(s)))

        given = source.float(-20, 10)
        near = bits_list((c + Fraction(1, 2)) * o.fraction_of_bits(given) for c in some)
        x = [*near, *(t + 1 for t in near), *(t - 1 + sign for t in near), *edges[6:]]
        cases.append(quantize_case(source, to, "fixed", "float", x, given))
        cases.append(
            quantize_case(source, to, "fixed", "float", edges, (FLT_MIN, FLT_MAX)[bits % 2])
        )

        x = [source.float(-9, 3, negative=True) for _ in range(9)]
        cases.append(quantize_case(source, to, "dynamic", "float", x))
        cases.append(quantize_case(source, to, "dynamic", "pow2", x))
        cases.append(
            quantize_case(source, to, "range", ("float", "pow2")[bits % 2], x, source.float(0, 1))
        )
        if bits % 5 == 3:
            for scale in ("float", "pow2"):
                for x in ([], [0, sign], edges[:5], edges, [FLT_MIN, 0x00900001], [0x40490FDB]):
                    cases.append(quantize_case(source, to, "dynamic", scale, x))
    return cases


# ---- packing -------------------------------------------------------------------------------------


def packing() -> list[Case]:
    source = Source(4)
    cases = []
    for bits in range(1, 17):
        for signed in (False, True):
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            codes = [high, low, *(source.integer(low, high) for _ in range(15))]
            packed = [o.pack(codes[:n], bits).hex() for n in range(18)]
            cases.append({"bits": bits, "signed": signed, "codes": codes, "packed": packed})
    return cases


# ---- the affine family ---------------------------------------------------------------------------


def affine_case(
    source: Source,
    dtype: str,
    shape: Sequence[int],
    axis: int | str | None,
    group: int | None,
    rounding: str,
    scale: tuple[str, Sequence[int]],
    zero_points: Sequence[int],
    codes: tuple[int, int],
    x: Sequence[int],
    dy: Sequence[int],
) -> Case:
    """Every operation on one x, dy and set of codes."""
    index, scale_shape = o.layout(shape, axis, group, affine=True)
    scale_dtype, scale_bits = scale
    assert len(index) == len(x) == len(dy)
    assert prod(scale_shape) == len(scale_bits) == len(zero_points)
    key = key_of(source)
    scales = [o.fraction_of_bits(b, scale_dtype) for b in scale_bits]
    a = oa.Affine(dtype, index, scales, zero_points, *codes, rounding, key=o.key(*key))
    given = [source.integer(*codes) for _ in x]
    given[:2] = codes[: len(given)]
    case: Case = {
        "dtype": dtype,
        "shape": list(shape),
        "axis": axis,
        "group": group,
        "scale_dtype": scale_dtype,
        "scale": list(scale_bits),
        "zero_point": list(zero_points),
        "qmin": codes[0],
        "qmax": codes[1],
        "rounding": rounding,
        "key": key,
        "x": list(x),
        "dy": list(dy),
        "codes": given,
        "quantize": oa.quantize_affine(a, x),
        "fake_quantize": oa.fake_quantize_affine(a, x),
        "dequantize": oa.dequantize_affine(a, given),
        "dequantize_backward": oa.dequantize_affine_backward(a, dy),
    }
    for in_range in ("inclusive", "strict"):
        mask = oa.in_range_mask(
            oa.Affine(dtype, index, scales, zero_points, *codes, rounding, in_range, a.key), x
        )
        case[in_range] = {
            "mask": oa.pack_mask(mask).hex(),
            "quantize_backward": oa.quantize_affine_backward(a, dy, mask),
            "fake_quantize_backward": oa.fake_quantize_affine_backward(a, dy, mask),
        }
    bits = 2 + source.integer(0, 14)
    case["qparams"] = {"bits": bits}
    for name in ("symmetric", "asymmetric"):
        found, zeros = oa.qparams(x, index, len(scales), bits, name == "symmetric", dtype)
        case["qparams"][name] = {
            "scale": bits_list(found, oa.compute_kind(dtype)),
            "zero_point": zeros,
        }
    return case


def affine() -> list[Case]:
    source = Source(5)
    layouts: list[tuple[tuple[int, ...], int | str | None, int | None]] = [
        ((19,), None, None),
        ((2, 3, 4), 1, None),
        ((2, 3, 3), "row", None),
        ((3, 7), None, 3),
        ((2, 2, 5), None, 2),
        ((0, 3), 1, None),
        ((), None, None),
    ]
    ranges = [(-128, 127), (0, 255), (-8, 7), (-7, 7), (0, 1), (-32768, 32767)]
    cases: list[Case] = []
    for dtype, f in o.FLOATS.items():
        sign = 1 << (f.width - 1)
        for number, (shape, axis, group) in enumerate(layouts):
            n = prod(shape)
            index, scale_shape = o.layout(shape, axis, group, affine=True)
            count = prod(scale_shape)
            for rounding in o.ROUNDINGS:
                codes = ranges[(number + len(cases)) % len(ranges)]
                own = dtype if len(cases) % 2 else "float32"
                scale = [source.float(-6, 2, own) for _ in range(count)]
                scale[::2] = [o.bits_of_fraction(o.pow2(source.integer(-3, 3)), own)] * -(
                    -count // 2
                )
                zeros = [source.integer(codes[0] - 1, codes[1]) | 1 for _ in range(count)]
                x = []
                for i in range(n):  # a tie, or its neighbour, at a code in or next to the range
                    g = index[i]
                    code = (codes[0] - 1, codes[1], source.integer(codes[0] - 1, codes[1]))[i % 3]
                    tie = (code - zeros[g] + Fraction(1, 2)) * o.fraction_of_bits(scale[g], own)
                    bits = o.bits_of_fraction(tie, dtype) % sign
                    bits += 0 if i % 2 or not tie else source.integer(-1, 1)
                    x.append(min(bits, f.infinity - 1) | (tie < 0) << (f.width - 1))
                dy = [source.float(-5, 5, dtype, negative=True) for _ in range(n)]
                dy[:3] = [0, sign, sign + 1][:n]
                cases.append(
                    affine_case(
                        source,
                        dtype,
                        shape,
                        axis,
                        group,
                        rounding,
                        (own, scale),
                        zeros,
                        codes,
                        x,
                        dy,
                    )
                )
        compute = oa.compute_kind(dtype)
        big = f.infinity - 1
        normal = 1 << (f.precision - 1)
        x = [0, sign, 1, sign + 1, normal, sign + normal - 1, big, sign + big]
        x += [source.float(-3, 3, dtype, negative=True) for _ in range(4)]
        dy = [*x[4:], *x[:4]]
        smallest, largest = o.smallest_normal(compute), o.largest_finite(compute)
        wide = (INT32_MIN, INT32_MAX)
        for s, zero, codes in (
            (smallest, 1, (-128, 127)),
            (largest, -1, (-128, 127)),
            (largest / 4, 0, (0, 15)),
            (Fraction(1), INT32_MAX, wide),
            (Fraction(3, 8), INT32_MIN, wide),
            (o.nearest(Fraction(1, 10), compute), 16777217, wide),
            (Fraction(1), 3, (3, 3)),
        ):
            rounding = o.ROUNDINGS[len(cases) % 3]
            scale_bits = (compute, [o.bits_of_fraction(s, compute)])
            cases.append(
                affine_case(
                    source, dtype, (12,), None, None, rounding, scale_bits, [zero], codes, x, dy
                )
            )
    return cases


ABOUT = {
    "draws": (draws, "key, k0, k1; draw(first + i) and u of element first + i."),
    "requant": (
        requant,
        "Integers a at scale s_in[i / run] to codes of `to` (sym, asym) at s_out. Dynamic: s_out "
        "and z are results. Fixed: they are given.",
    ),
    "quantize": (
        quantize,
        "float32 x to codes of `to` at s. Fixed: s and z are given; range: from the range; "
        "dynamic: from x. values: float32 of the half_away codes.",
    ),
    "packing": (packing, "packed[n] holds the first n codes."),
    "affine": (
        affine,
        "Operations on x (quantize, fake_quantize), codes (dequantize) and dy (backwards; with a "
        "mask for each in_range rule). qparams: of x.",
    ),
}


def generate() -> dict[str, str]:
    """The text of each gold file."""
    files = {}
    for name, (make, about) in ABOUT.items():
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in make())
        files[f"{name}.json"] = f'{{"about":{json.dumps(about)},"cases":[\n{lines}\n]}}\n'
    return files


def differences() -> list[str]:
    """Names of gold files that are missing, different or not ours; plan_* and net_* are others'."""
    files = generate()
    paths = (
        [p for p in GOLD.iterdir() if not p.name.startswith(("plan_", "net_"))]
        if GOLD.is_dir()
        else []
    )
    there = {p.name: p.read_bytes() for p in paths}
    wanted = {name: text.encode() for name, text in files.items()}
    return sorted(n for n in there.keys() | wanted.keys() if there.get(n) != wanted.get(n))


def main(arguments: Sequence[str]) -> int:
    """Writes the files, or with --check compares them."""
    if list(arguments) == ["--check"]:
        different = differences()
        for name in different:
            print(f"tests/gold/{name} differs: run python tests/goldgen.py", file=sys.stderr)
        return int(bool(different))
    if arguments:
        print("usage: goldgen.py [--check]", file=sys.stderr)
        return 2
    GOLD.mkdir(exist_ok=True)
    for name, text in generate().items():
        (GOLD / name).write_bytes(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
