"""The gold files through the package, on every ISA this machine has. Zero tolerance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROUNDINGS, reals, same_bits

import pyqfw as q
from pyqfw import quant

GOLD = Path(__file__).parent / "gold"

pytestmark = pytest.mark.parametrize("isa", quant.core_info()["isas"])


def cases(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLD / f"{name}.json").read_text())["cases"]
    assert found
    return found


def key(case: dict[str, Any]) -> dict[str, int]:
    return dict(zip(("seed", "step", "stream"), case["key"], strict=True))


def target(case: dict[str, Any], **keywords: Any) -> q.Format:
    kind = q.Sym if case["to"] == "sym" else q.Asym
    return kind(case["bits"], scale=case["scale"], **keywords)


def check_made(t: q.QTensor, case: dict[str, Any], rounding: str, scale: str) -> None:
    """Codes, scale, zero point and saturations as recorded."""
    np.testing.assert_array_equal(t.codes.reshape(-1), case["codes"][rounding])
    assert t.scale.view(np.uint32) == case[scale]
    assert t.zero_point is None or t.zero_point == case["z"]
    assert t.saturated == case["saturated"][rounding]


def test_draws(isa: str) -> None:
    for case in cases("draws"):
        for kind, draw in (("draws", quant.draws), ("uniforms", quant.uniforms)):
            for block in case[kind]:
                found = draw(len(block["words"]), first=block["first"], **key(case))
                np.testing.assert_array_equal(found, block["words"])


def test_packing(isa: str) -> None:
    for case in cases("packing"):
        codes = np.array(case["codes"])
        for n, packed in enumerate(case["packed"]):
            data = np.frombuffer(bytes.fromhex(packed), np.uint8)
            np.testing.assert_array_equal(quant.pack(codes[:n], case["bits"]), data)
            found = quant.unpack(data, case["bits"], n, signed=case["signed"])
            np.testing.assert_array_equal(found, codes[:n])


def test_requant(isa: str) -> None:
    for case in cases("requant"):
        s_in = reals(case["s_in"])
        one = len(s_in) == 1
        source = q.SymInt32(32) if one else q.Sym(16, group=case["run"])
        t = q.QTensor.from_codes(case["a"], source, scale=s_in[0] if one else s_in)
        s_out = reals([case["s_out"]])[0] if case["mode"] == "fixed" else None
        fixed = {} if s_out is None else {"scale": s_out}
        points = {**fixed, "zero_point": case["z"]} if fixed and case["to"] == "asym" else fixed
        with quant.isa(isa):
            for rounding in ROUNDINGS:
                keywords = {"rounding": rounding, **key(case)}
                made = q.quantize(t, target(case), **points, **keywords)
                check_made(made, case, rounding, "s_out")
                if case["to"] == "sym" and case["scale"] == "float" and one:
                    made = q.requant(t, case["bits"], **fixed, **keywords)
                    check_made(made, case, rounding, "s_out")


def test_quantize(isa: str) -> None:
    for case in cases("quantize"):
        x = reals(case["x"])
        points = {"scale": reals([case["s"]])[0]} if case["mode"] == "fixed" else {}
        if points and case["to"] == "asym":
            points["zero_point"] = case["z"]
        fixed = {"range": float(reals([case["range"]])[0])} if case["mode"] == "range" else {}
        with quant.isa(isa):
            for container in ("packed", 8, 16, 32):
                if container != "packed" and container < case["bits"]:
                    continue
                fmt = target(case, container=container, **fixed)
                for rounding in ROUNDINGS:
                    t = q.quantize(x, fmt, rounding=rounding, **points, **key(case))
                    check_made(t, case, rounding, "s")
                t = q.quantize(x, fmt, **points)
                same_bits(t.numpy(), case["values"], "float32")


def affine_calls(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments that every operation of a case shares."""
    real, shape = case["dtype"], case["shape"]
    keywords = {"axis": case["axis"], "group": case["group"]}
    _, scale_shape = q.formats.layout_of(shape, **keywords, last_axis_groups=True)
    return {
        "x": reals(case["x"], real, shape),
        "dy": reals(case["dy"], real, shape),
        "scale": reals(case["scale"], case["scale_dtype"], scale_shape),
        "zero_point": np.array(case["zero_point"], np.int32).reshape(scale_shape),
        "keywords": keywords,
    }


def test_affine_forward(isa: str) -> None:
    for case in cases("affine"):
        a = affine_calls(case)
        points = (a["scale"], a["zero_point"])
        rules = {**a["keywords"], "rounding": case["rounding"], **key(case)}
        limits = (case["qmin"], case["qmax"])
        with quant.isa(isa):
            for rule in ("inclusive", "strict"):
                extra = {**rules, "in_range": rule, "return_mask": True}
                codes, mask = quant.quantize_affine(a["x"], *points, *limits, **extra)
                np.testing.assert_array_equal(codes.reshape(-1), case["quantize"])
                assert mask.tobytes().hex() == case[rule]["mask"]
                y, mask = quant.fake_quantize_affine(a["x"], *points, *limits, **extra)
                same_bits(y, case["fake_quantize"], case["dtype"])
                assert mask.tobytes().hex() == case[rule]["mask"]
            plain = quant.fake_quantize_affine(a["x"], *points, *limits, **rules)
            same_bits(plain, case["fake_quantize"], case["dtype"])
            codes = np.array(case["codes"], np.int32).reshape(case["shape"])
            y = quant.dequantize_affine(codes, *points, **a["keywords"], dtype=a["x"].dtype)
            same_bits(y, case["dequantize"], case["dtype"])


def test_affine_backward(isa: str) -> None:
    for case in cases("affine"):
        a = affine_calls(case)
        points = (a["scale"], a["zero_point"], case["qmin"], case["qmax"])
        rules = {**a["keywords"], "rounding": case["rounding"], **key(case)}
        with quant.isa(isa):
            dc = quant.dequantize_affine_backward(a["dy"], a["scale"], **a["keywords"])
            same_bits(dc, case["dequantize_backward"], case["dtype"])
            for rule in ("inclusive", "strict"):
                mask = np.frombuffer(bytes.fromhex(case[rule]["mask"]), np.uint8)
                for op in ("quantize", "fake_quantize"):
                    backward = getattr(quant, f"{op}_affine_backward")
                    dx = backward(a["dy"], a["x"], *points, **rules, in_range=rule)
                    same_bits(dx, case[rule][f"{op}_backward"], case["dtype"])
                    dx = backward(a["dy"], mask=mask, scale=a["scale"], **a["keywords"])
                    same_bits(dx, case[rule][f"{op}_backward"], case["dtype"])


def test_qparams(isa: str) -> None:
    for case in cases("affine"):
        a = affine_calls(case)
        found = case["qparams"]
        for name in ("symmetric", "asymmetric"):
            with quant.isa(isa):
                keywords = {**a["keywords"], "symmetric": name == "symmetric"}
                scale, zero = quant.qparams(a["x"], found["bits"], **keywords)
            same_bits(scale, found[name]["scale"], scale.dtype.name)
            np.testing.assert_array_equal(zero.reshape(-1), found[name]["zero_point"])
