"""Pools as descriptions: arguments, shapes, errors, files; what PyTorch makes of them, recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn
from pyqfw.describe import from_json, to_json

RECORDED = json.loads((Path(__file__).parent / "torch" / "pools.json").read_text())
NEAR = 1e-5  # relative, norm-wise
POOLS = (
    "MaxPool1d",
    "MaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
)


def made(case: dict[str, Any]) -> nn.Layer:
    """The layer of a recorded case."""
    lists = {k: tuple(v) if isinstance(v, list) else v for k, v in case["arguments"].items()}
    layer: nn.Layer = getattr(nn, case["layer"])(**lists)
    return layer


def near(found: Any, expected: Any) -> None:
    a, b = (np.asarray(v, np.float64) for v in (found, expected))
    assert a.shape == b.shape
    assert np.linalg.norm(a - b) <= NEAR * np.linalg.norm(b)


# ---- what PyTorch makes of them ------------------------------------------------------------------


def test_every_pool_is_recorded() -> None:
    assert {case["layer"] for case in RECORDED} == set(POOLS)


@pytest.mark.parametrize("case", RECORDED, ids=lambda c: f"{c['layer']} {c['arguments']}")
def test_print_shape_and_numbers_of_pytorch(case: dict[str, Any]) -> None:
    layer, shape = made(case), tuple(case["shape"])
    assert repr(layer) == case["printed"]
    x, y = np.array(case["x"], np.float32), np.array(case["y"], np.float32)
    assert layer.out_shape(shape) == y.shape[1:]
    alone = q.Session(q.compile(layer, input_shape=shape))
    near(alone.predict(x), y)
    net = q.Session(_training(layer, shape, len(x)))
    dims = len(shape) - 1
    weight = np.eye(shape[0], dtype=np.float32).reshape(shape[0], shape[0], *[1] * dims)
    net.load_state_dict({"0.weight": weight})
    out = net.forward(x)
    near(out, y)
    # d of the mean of (out - target)^2 is 2 (out - target) / size
    error = np.array(case["error"], np.float32)
    near(_dx(net, x, out - error * np.float32(out.size / 2)), case["dx"])


def _training(layer: nn.Layer, shape: tuple[int, ...], rows: int) -> q.Plan:
    first = nn.Conv1d if len(shape) == 2 else nn.Conv2d
    return q.compile(
        nn.Sequential(first(shape[0], shape[0], 1, bias=False), layer),
        input_shape=shape,
        loss=nn.MSELoss(),
        optimizer=q.optim.SGD(0.1),
        batch=rows,
    )


def _dx(net: q.Session, x: Any, target: Any) -> Any:
    """The error of the pool's input."""
    for op, written in net.trace(x, target):
        if op.kernel in ("max_pool_back", "avg_pool_back_f32"):
            (found,) = written.values()
            dx = found.numpy()
    return dx


# ---- arguments -----------------------------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("MaxPool1d", {"kernel_size": 0}, "MaxPool1d: kernel_size must be 1..65535, not 0"),
    ("MaxPool1d", {"kernel_size": 2.0}, "MaxPool1d: kernel_size must be an integer"),
    ("MaxPool1d", {"kernel_size": (2, 2)}, "kernel_size must be a number or 1 of them"),
    ("MaxPool2d", {"kernel_size": (2,)}, "kernel_size must be a number or 2 of them"),
    ("MaxPool1d", {"kernel_size": 2, "stride": 0}, "MaxPool1d: stride must be 1..65535, not 0"),
    ("MaxPool1d", {"kernel_size": 2, "padding": -1}, "MaxPool1d: padding must be 0..65535"),
    ("MaxPool1d", {"kernel_size": 3, "padding": 2}, "padding must be at most half of kernel_size"),
    ("AvgPool2d", {"kernel_size": (4, 3), "padding": 2}, "not 2 with a kernel of 3"),
    ("MaxPool1d", {"kernel_size": 2, "dilation": 0}, "MaxPool1d: dilation must be 1..65535"),
    ("MaxPool2d", {"kernel_size": 2, "return_indices": True}, "return_indices must be False"),
    ("MaxPool2d", {"kernel_size": 2, "return_indices": 1}, "return_indices must be True or False"),
    ("MaxPool2d", {"kernel_size": 2, "ceil_mode": 1}, "ceil_mode must be True or False, not 1"),
    ("MaxPool2d", {"kernel_size": 257}, "kernel_size must have at most 65536 taps, not 66049"),
    ("AvgPool1d", {"kernel_size": 2, "count_include_pad": None}, "must be True or False"),
    ("AvgPool2d", {"kernel_size": 2, "divisor_override": 0}, "divisor_override must be 1.."),
    ("AvgPool2d", {"kernel_size": 2, "divisor_override": -2}, "divisor_override must be 1.."),
    ("AdaptiveAvgPool1d", {"output_size": 0}, "AdaptiveAvgPool1d: output_size must be 1..65535"),
    ("AdaptiveAvgPool1d", {"output_size": None}, "output_size must be an integer"),
    ("AdaptiveAvgPool2d", {"output_size": (1, 2, 3)}, "must be a number or 2 of them"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), WRONG)
def test_arguments_that_are_wrong(name: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(q.QfwError) as error:
        getattr(nn, name)(**arguments)
    assert words in str(error.value)


def test_arguments_come_in_pytorchs_order() -> None:
    assert vars(nn.MaxPool1d(3, 2, 1, 2, False, True)) == vars(
        nn.MaxPool1d(kernel_size=3, stride=2, padding=1, dilation=2, ceil_mode=True)
    )
    assert vars(nn.AvgPool2d(3, 2, 1, True, False, 7)) == vars(
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False, divisor_override=7)
    )
    assert nn.MaxPool2d((3, 2)).stride == (3, 2)
    assert nn.AvgPool1d(3).kernel_size == (3,)  # as PyTorch keeps it
    assert nn.MaxPool1d(3).kernel_size == 3


MISFITS: list[tuple[nn.Layer, tuple[int, ...], str]] = [
    (nn.MaxPool1d(2), (8,), "a sample must be (channels, length)"),
    (nn.AvgPool2d(2), (3, 8), "a sample must be (channels, height, width)"),
    (nn.AdaptiveAvgPool1d(2), (3, 8, 8), "a sample must be (channels, length)"),
    (nn.MaxPool1d(5), (3, 4), "an axis has 4, and the kernel reaches 5: nothing would come out"),
    (nn.AvgPool2d((1, 5), padding=(0, 1)), (3, 4, 2), "an axis has 4, and the kernel reaches 5"),
    (nn.MaxPool1d(3, dilation=4), (1, 8), "an axis has 8, and the kernel reaches 9"),
    (nn.MaxPool1d(2, padding=1, dilation=3), (1, 2), "window 0 of an axis of 2 would meet padding"),
    (nn.MaxPool1d(2, 1, 1, 3), (1, 2), "would meet padding alone: take less dilation"),
]


@pytest.mark.parametrize(("layer", "shape", "words"), MISFITS)
def test_samples_that_do_not_fit(layer: nn.Layer, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(q.ShapeError) as error:
        layer.out_shape(shape, "body.3")
    assert f"layer 'body.3', {layer!r}: " in str(error.value)
    assert words in str(error.value)
    with pytest.raises(q.ShapeError, match="layer '0'"):
        q.compile(layer, input_shape=shape)


def test_a_window_of_ceil_mode_begins_inside_the_image_or_its_padding() -> None:
    assert nn.MaxPool1d(2, 2, ceil_mode=True).out_shape((1, 5)) == (1, 3)
    assert nn.MaxPool1d(2, 3, ceil_mode=True).out_shape((1, 3)) == (1, 1)  # the next begins behind
    assert nn.AvgPool1d(3, 2, 1, ceil_mode=True).out_shape((1, 4)) == (1, 3)
    assert nn.MaxPool1d(3, 2, ceil_mode=True).out_shape((1, 2)) == (1, 1)  # none is whole


# ---- files ---------------------------------------------------------------------------------------

EACH = [
    nn.MaxPool1d(3, 2, 1, ceil_mode=True),
    nn.MaxPool2d((2, 3), dilation=(1, 2)),
    nn.AvgPool1d(2, 1, 1, count_include_pad=False),
    nn.AvgPool2d((2, 1), divisor_override=3),
    nn.AdaptiveAvgPool1d(2),
    nn.AdaptiveAvgPool2d((2, None)),
]


@pytest.mark.parametrize("layer", EACH, ids=repr)
def test_a_description_comes_back(layer: nn.Layer) -> None:
    text = json.dumps(to_json(layer, "it"))
    found = from_json(json.loads(text), "it")
    assert type(found) is type(layer)
    assert vars(found) == vars(layer)
    assert repr(found) == repr(layer)


@pytest.mark.parametrize("policy", [q.Policy.int8(), q.Policy.float32()], ids=["int8", "float32"])
def test_a_saved_net_goes_on_as_one_that_never_stopped(policy: q.Policy, tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AvgPool2d(2, 1),
        nn.AdaptiveAvgPool2d((1, 2)),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    plan = q.compile(
        model,
        input_shape=(2, 6, 6),
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.1, momentum=0.9),
        policy=policy,
        batch=4,
    )
    net, rng = q.Session(plan), np.random.default_rng(0)
    steps = [
        (rng.normal(size=(4, 2, 6, 6)).astype(np.float32), rng.integers(0, 3, 4)) for _ in range(4)
    ]
    for x, y in steps[:2]:
        net.step(x, y)
    net.save(tmp_path / "net.safetensors")
    other = q.Session.load(tmp_path / "net.safetensors")
    for x, y in steps[2:]:
        assert net.step(x, y) == other.step(x, y)
    assert net._spaces.lasting().tobytes() == other._spaces.lasting().tobytes()
    assert other.plan.to_bytes() == net.plan.to_bytes()


def test_the_validator_has_nothing_against_pools() -> None:
    model = nn.Sequential(
        nn.Conv1d(3, 4, 3),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    given: dict[str, Any] = {
        "input_shape": (3, 9),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": q.optim.SGD(0.1),
        "batch": 32,
    }
    assert q.validate(model, policy=q.Policy.int8(), **given) == []
    (found,) = q.validate(model, **{**given, "input_shape": (3, 3)})
    assert (found.severity, found.layer) == ("error", "2")
    assert "nothing would come out" in found.message
    raw = nn.Sequential(nn.Conv1d(3, 3, 3, output=q.RAW), nn.ReLU(), nn.Dropout(), nn.MaxPool1d(2))
    (found,) = q.validate(
        nn.Sequential(raw, nn.Quant()), policy=q.Policy.int8(), input_shape=(3, 9)
    )
    assert (found.code, found.layer) == ("raw-wire", "0.0")
    wide = {"policy": q.Policy.int8().replace(input=q.Sym(16)), "input_shape": (1, 65539)}
    (found,) = q.validate(nn.AdaptiveAvgPool1d(1), **wide)  # type: ignore[arg-type]
    assert (found.severity, found.layer) == ("error", "0")
    assert "can leave int32" in found.message
