"""What lowering makes of pools: where masks go, what is kept, what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from pool_walk import walk

import pyqfw as q
from pyqfw import nn
from pyqfw.lower import Op

INT8 = q.Policy.int8()
Layers = list[nn.Module]


def plan_of(*layers: nn.Module, shape: tuple[int, ...] = (3, 8), **changes: Any) -> q.Plan:
    given: dict[str, Any] = {
        "input_shape": shape,
        "loss": nn.MSELoss(),
        "optimizer": q.optim.SGD(0.1),
        "policy": INT8,
        "batch": 2,
        **changes,
    }
    return q.compile(nn.Sequential(*layers), **given)


def conv(**options: Any) -> nn.Conv1d:
    return nn.Conv1d(3, 3, 3, padding=1, **options)


def kernels(plan: q.Plan, section: str, layer: str | None = None) -> list[str]:
    ops = plan.program.sections[section]
    return [op.kernel for op in ops if layer in (None, op.layer)]


def one(plan: q.Plan, kernel: str) -> Op:
    (found,) = [op for op in plan.ops if op.kernel == kernel]
    return found


def places(op: Op) -> list[Any]:
    return [t for t in op.places if t is not None]


# ---- the order: sums, ReLU, MaxPool, requantize --------------------------------------------------


def test_sums_are_pooled_before_they_are_stored() -> None:
    plan = plan_of(conv(), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(3, 2, 1))
    assert kernels(plan, "forward") == [
        *("convert", "product_s32", "max_pool", "convert", "product_s32"),
    ]
    y, x, pick = places(one(plan, "max_pool"))
    assert (x.name, y.name, x.raw, y.raw) == ("0:sums", "2:sums", True, True)
    assert (y.spread, y.positions) == ("columns", 4)
    assert pick.told == "picks of 1 bits"
    assert plan.program.wires["2"].name == "0:wire"  # in the format of the layer that made them
    back = plan.program.sections["backward"]
    made = next(op for op in back if op.kernel == "product_s32")
    assert made.places[4] is plan.program.wires["2"]  # ReLU's mask, told by what was picked
    assert "mask" not in [op.kernel for op in back]


def test_an_error_of_windows_apart_is_taken_as_it_is() -> None:
    plan = plan_of(conv(), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(3, 2, 1))
    dx, e, _ = places(one(plan, "max_pool_back"))
    assert dx.fmt == e.fmt == INT8.errors
    used = [op.kernel for op in plan.ops if dx in op.used]
    assert used == ["max_pool_back", "gradient_s32", "gradient_s32"]


@pytest.mark.parametrize(
    "pool", [nn.MaxPool1d(3, 2), nn.MaxPool1d(2, 1), nn.MaxPool1d(2, 2, dilation=2)]
)
def test_errors_of_windows_that_meet_are_added_and_stored(pool: nn.Module) -> None:
    plan = plan_of(conv(), pool)
    dx, *_ = places(one(plan, "max_pool_back"))
    assert dx.raw
    assert [op.kernel for op in plan.ops if dx in op.used] == ["max_pool_back", "convert"]


@pytest.mark.parametrize(
    ("between", "raw"),
    [
        ([], True),
        ([nn.ReLU()], True),
        ([nn.LeakyReLU(0.2)], True),
        ([nn.ReLU(), nn.LeakyReLU(0.2)], True),
        ([nn.Dropout(0.5)], True),
        ([nn.Dropout(0.5), nn.ReLU()], True),
        ([nn.ReLU(), nn.Flatten(2)], True),
        ([nn.MaxPool1d(2, 1)], True),
        ([nn.ReLU(), nn.Dropout(0.5)], False),
        ([nn.ReLU(), nn.Dropout(0.5), nn.ReLU()], False),
        ([nn.Quant()], False),
        ([nn.Softmax(-1)], False),
        ([nn.Softmax(-1), nn.Dropout(0.5)], False),  # whose sums are in another order
    ],
)
@pytest.mark.parametrize("policy", [INT8, q.Policy.float32()], ids=["int8", "float32"])
def test_what_stands_before_decides_whether_sums_are_pooled(
    between: Layers, raw: bool, policy: q.Policy
) -> None:
    plan = plan_of(conv(), *between, nn.MaxPool1d(2), nn.Conv1d(3, 2, 1), policy=policy)
    pools = [op for op in plan.program.sections["forward"] if op.kernel == "max_pool"]
    floats = policy.forward == "float32"
    names = {op.layer: places(op)[1].name for op in pools}
    last = names[str(len(between) + 1)]
    assert last.endswith(":sums") == raw, names
    infer = [op for op in plan.program.sections["infer"] if op.kernel == "max_pool"]
    for ours, theirs in zip(pools, infer, strict=False):
        assert places(ours)[1].raw == places(theirs)[1].raw or floats
    rng = np.random.default_rng(0)
    shape = plan.nodes[-1].out_shape
    net = q.Session(plan)
    x, y = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, *shape))
    assert walk(net, x.astype(np.float32), y.astype(np.float32))
    net.predict(x.astype(np.float32))


def test_requantization_to_nearest_commutes_with_the_largest() -> None:
    """A fixed range: the pool's wire is the largest of the codes that would have been stored."""
    fixed = INT8.replace(wires=q.Sym(8, range=2.0))
    pooled = q.Session(
        plan_of(conv(), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(3, 2, 1), policy=fixed)
    )
    whole = q.Session(plan_of(conv(), nn.ReLU(), nn.Conv1d(3, 2, 1), policy=fixed))
    x = np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)
    pooled.forward(x)
    whole.forward(x)
    codes = whole.wire("1").codes.reshape(2, 3, 4, 2).max(axis=-1)
    np.testing.assert_array_equal(pooled.wire("2").codes, codes)


def test_a_mask_comes_before_the_error_is_stored() -> None:
    """Of a LeakyReLU, which multiplies, and of a ReLU beside it."""
    plan = plan_of(conv(), nn.ReLU(), nn.LeakyReLU(0.5), nn.MaxPool1d(2), nn.Conv1d(3, 2, 1))
    back = [(op.kernel, op.layer) for op in plan.program.sections["backward"]]
    at = back.index(("max_pool_back", "3"))
    assert back[at - 3 : at] == [("mask", "2"), ("mask", "1"), ("convert", "3")]


# ---- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "bits"),
    [
        (nn.MaxPool1d(1), 1),
        (nn.MaxPool1d(2), 1),
        (nn.MaxPool1d(3), 2),
        (nn.MaxPool1d(4), 2),
        (nn.MaxPool1d(5), 3),
        (nn.MaxPool1d(8), 3),
    ],
)
def test_picks_take_as_few_bits_as_taps_need(pool: nn.Module, bits: int) -> None:
    plan = plan_of(conv(), pool)
    *_, pick = places(one(plan, "max_pool"))
    assert pick.told == f"picks of {bits} bits"
    assert pick.parts(2)[0] == -(-2 * pick.size * bits // 8)
    assert pick.role == "wire"


def test_no_picks_where_nothing_below_learns() -> None:
    frozen = conv().requires_grad_(False)
    plan = plan_of(frozen, nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(3, 2, 1))
    assert len(places(one(plan, "max_pool"))) == 2
    assert "max_pool_back" not in kernels(plan, "backward")
    first = plan_of(nn.MaxPool1d(2), nn.Conv1d(3, 2, 1))
    assert len(places(one(first, "max_pool"))) == 2
    alone = plan_of(conv(), nn.MaxPool1d(2), loss=None, optimizer=None)
    assert len(places(one(alone, "max_pool"))) == 2


def test_sums_give_their_memory_to_what_is_selected() -> None:
    plan = plan_of(conv(), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(3, 2, 1))
    y, x, _ = places(one(plan, "max_pool"))
    assert plan.layout.of(y)[0] == plan.layout.of(x)[0]
    padded = plan_of(conv(), nn.ReLU(), nn.MaxPool1d(3, 2, 1), nn.Conv1d(3, 2, 1))
    y, x, _ = places(one(padded, "max_pool"))
    assert padded.layout.of(y)[0] != padded.layout.of(x)[0]
    used_again = plan_of(nn.MaxPool1d(2, 1), nn.Residual(nn.MaxPool1d(1)), nn.Conv1d(3, 2, 1))
    for op in used_again.ops:
        if op.kernel == "max_pool" and op.layer != "0":
            y, x = places(op)[:2]
            assert used_again.layout.of(y)[0] != used_again.layout.of(x)[0]


def test_looking_at_sums_that_were_pooled() -> None:
    net = q.Session(plan_of(conv(), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(3, 2, 1)))
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    net.forward(x)
    for layer in ("0", "1"):
        said = re.escape(f"wire('{layer}'): it is not stored: layer '2' takes the largest")
        with pytest.raises(q.QfwError, match=said + ".*wire\\('2'\\)"):
            net.wire(layer)
    assert net.wire("2").shape == (2, 3, 4)
    assert (net.wire("2").codes >= 0).all()
    made = {
        name: t
        for _, found in net.trace(x, np.zeros((2, 2, 4), np.float32))
        for name, t in found.items()
    }
    assert made["0:sums"].shape == (2, 3, 8)
    assert made["2:sums"].shape == (2, 3, 4)


def test_the_plan_says_what_a_mean_is_divided_by() -> None:
    said = {
        nn.AvgPool1d(4): "divided by 4",
        nn.AvgPool1d(3, 1, 1): "divided by 3",
        nn.AvgPool1d(3, 1, 1, count_include_pad=False): "what each window has, 24 bits of fraction",
        nn.AvgPool1d(5, 5, ceil_mode=True): "what each window has, 24 bits of fraction",
        nn.AvgPool1d(4, 4, ceil_mode=True, count_include_pad=False): "divided by 4",
        nn.AdaptiveAvgPool1d(2): "divided by 4",
        nn.AdaptiveAvgPool1d(3): "what each window has, 24 bits of fraction",
    }
    for pool, words in said.items():
        plan = plan_of(conv(), pool)
        assert one(plan, "avg_pool_s32").note.endswith(words), pool
        assert words in str(plan)


def test_a_mean_of_windows_apart_is_no_rounding_on_the_way_back() -> None:
    plan = plan_of(conv(), nn.AvgPool1d(2), nn.Conv1d(3, 2, 1))
    dx, e = places(one(plan, "avg_pool_back_s32"))
    assert dx.fmt == e.fmt == INT8.errors
    assert [op.kernel for op in plan.ops if dx in op.used][1:] == ["gradient_s32"] * 2
    pow2 = INT8.replace(errors=q.Sym(8, scale="pow2"))
    plan = plan_of(conv(), nn.AvgPool1d(3), nn.Conv1d(3, 2, 1), policy=pow2)
    dx, e = places(one(plan, "avg_pool_back_s32"))
    assert dx.fmt == q.Sym(8)  # a third of a power of two is none
    assert "convert" in [op.kernel for op in plan.ops if dx in op.used]


# ---- what is refused -----------------------------------------------------------------------------


def test_raw_sums_pass_a_pool_on_their_way_to_a_quant() -> None:
    raw = conv(output=nn.RAW)
    plan = plan_of(raw, nn.ReLU(), nn.MaxPool1d(2), nn.Quant(q.Sym(4)), nn.Conv1d(3, 2, 1))
    assert kernels(plan, "forward", "3") == ["convert"]
    with pytest.raises(
        q.QfwError, match=r"layer '0' has output=RAW, but '3' \(MaxPool1d.*cannot take"
    ):
        plan_of(conv(output=nn.RAW), nn.ReLU(), nn.Dropout(), nn.MaxPool1d(2), nn.Quant())
    with pytest.raises(q.QfwError, match=r"layer '0' has output=RAW, but '1' \(AvgPool1d"):
        plan_of(conv(output=nn.RAW), nn.AvgPool1d(2), nn.Quant())


def test_sums_of_windows_that_could_leave_int32_are_refused() -> None:
    wide = INT8.replace(input=q.Sym(16), wires=q.Sym(16))
    given: dict[str, Any] = {"shape": (1, 65539), "policy": wide, "loss": None, "optimizer": None}
    said = r"layer '0', AdaptiveAvgPool1d\(output_size=1\): 65539 codes of 16 bits can leave int32 "
    with pytest.raises(q.QfwError, match=said + ".*at most 65538 fit"):
        plan_of(nn.AdaptiveAvgPool1d(1), **given)
    plan_of(nn.AdaptiveAvgPool1d(1), **{**given, "shape": (1, 65538)})
    errors = INT8.replace(errors=q.Sym(16))
    said = r"layer '1', AvgPool2d.*: 90000 errors of 16 bits can leave int32 .* at most 65538 fit"
    with pytest.raises(q.QfwError, match=said):
        plan_of(nn.Conv2d(1, 1, 1), nn.AvgPool2d(300, 1), shape=(1, 600, 600), policy=errors)


def test_hindsight_follows_the_product_through_a_pool() -> None:
    """The scale that comes in is that of the product's operand, whatever was selected."""
    hindsight = INT8.replace(wires=q.Sym(8, range="hindsight"))
    plan = plan_of(
        conv(), nn.ReLU(), nn.MaxPool1d(2), nn.MaxPool1d(2, 1), nn.Conv1d(3, 2, 1), policy=hindsight
    )
    stored = next(op for op in plan.ops if op.kernel == "convert" and op.layer == "0")
    product = next(op for op in plan.ops if op.kernel == "product_s32" and op.layer == "0")
    assert stored.places[4] is product.places[1]
    net = q.Session(plan)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x, y = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 2, 3))
        walk(net, x.astype(np.float32), y.astype(np.float32))
    assert net.tensor("0:wire gain").codes[0] > 0
