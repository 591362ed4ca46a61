"""LeakyReLU: steps of chains against the oracle, bit for bit; names and errors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import oracle as o
import pytest
from plan_bytes import ROWS_AXIS, Builder
from plan_net import TABLES, Net, check
from session_helpers import POLICIES
from step_helpers import Case, same_trace

import pyqfw as q
from pyqfw import nn, quant

RELU, CONVERT, PRODUCT_S32, MASK = 5, 1, 3, 6
SLOPES = [0.01, 0.0, 0.5, 1.0, 3.0, 1e-40, 2.0**-31, 0.3333]


def leaky(slope: float) -> list[tuple]:
    """After a product, after a Quant, and at the end."""
    return [
        ("linear", "a", 7, 9, True),
        ("leaky", "b", slope),
        ("linear", "c", 9, 5, False),
        ("quant", "d", None),
        ("leaky", "e", slope),
        ("linear", "f", 5, 3, True),
        ("leaky", "g", slope),
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_a_step_of_leaky_relus_under_every_policy(name: str) -> None:
    Case(leaky(0.2), POLICIES[name]).check()


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("name", ["int8", "full_sym", "asym", "rows", "float32"])
def test_slopes(name: str, slope: float) -> None:
    case = Case(leaky(slope), POLICIES[name], seed=3)
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1e10, 1e25])
def test_extreme_sizes(size: float) -> None:
    Case(leaky(0.1), POLICIES["int8"], size=size).check()


def test_slope_zero_is_relu() -> None:
    """The same operations, so the same bits."""
    plans = [
        q.compile(
            nn.Sequential(nn.Linear(4, 5), layer, nn.Linear(5, 3)),
            input_shape=4,
            loss=nn.CrossEntropyLoss(),
            policy=q.Policy.int8(),
        ).to_bytes()
        for layer in (nn.ReLU(), nn.LeakyReLU(0.0), nn.LeakyReLU(1e-44))
    ]
    assert plans[0] == plans[1] == plans[2]


def test_raw_passes_through_it_to_a_quant() -> None:
    def bits(output: object) -> bytes:
        model = nn.Sequential(
            nn.Linear(6, 5, output=output),
            nn.LeakyReLU(),
            nn.Quant(),
            nn.Linear(5, 3),
        )
        plan = q.compile(
            model,
            input_shape=6,
            loss=nn.CrossEntropyLoss(),
            optimizer=q.optim.SGD(0.1),
            policy=q.Policy.int8(),
            batch=4,
        )
        net, rng = q.Session(plan), np.random.default_rng(0)
        net.step(rng.normal(size=(4, 6)), rng.integers(0, 3, 4))
        return bytes(net.tensor("0.weight").data)

    assert bits(nn.RAW) == bits(None)


# ---- the operation on accumulators: every size of factor -----------------------------------------


def accumulators(kernel: int, slope: np.float32, values: list[int]) -> list[int]:
    """relu or mask (of itself) over a row of int32 sums that are written beforehand."""
    n, bits = len(values), int(slope.view(np.uint32))
    plan = Builder(1)
    a, b = plan.sym(1, rows=ROWS_AXIS), plan.sym(n, role=0)
    sums = plan.tensor(n, kind=1, rows=ROWS_AXIS)
    plan.op(CONVERT, a, plan.input)
    plan.op(PRODUCT_S32, sums, a, b, p1=1)
    plan.op(kernel, sums, sums, **{f"p{int(kernel == MASK)}": bits})
    if kernel == MASK:
        other = plan.tensor(n, kind=1, rows=ROWS_AXIS)
        plan.ops["forward"].insert(
            2, (PRODUCT_S32, 0, [other, a, b] + [65535] * 5, [0, 1] + [0] * 13)
        )
        plan.ops["forward"][3][2][1] = other
    data = plan.build()
    assert check(data).status == "OK"
    found = []
    for table in TABLES:
        net = Net(data, table)
        with quant.float_mode():
            assert net.open() == "OK"
            last = len(net.plan.ops) - 1
            assert net.walk(0, last, 1, x=np.ones(1, np.float32)) == "OK"
            at = int(net.plan.tensors[sums]["codes"])
            codes = net.arena[at : at + 4 * n].view(np.int32)
            codes[:] = values
            assert net.walk(last, 1, 1) == "OK"
            found.append(codes.tolist())
            absmax = net.arena[int(net.plan.tensors[sums]["absmax"]) :][:4].view(np.uint32)[0]
            assert absmax == max(map(abs, codes.tolist()))
    assert all(f == found[0] for f in found)
    return found[0]


@pytest.mark.parametrize("kernel", [RELU, MASK])
@pytest.mark.parametrize("exponent", [*range(-64, 34, 3), -126, -57, -56, -55, -33, -32, 127])
def test_products_are_exact_and_rounded_once(kernel: int, exponent: int) -> None:
    rng = np.random.default_rng(exponent + 200)
    slope = np.float32(np.ldexp(1 + rng.integers(0, 2**23) / 2**23, exponent))
    values = [-(2**31), -(2**31) + 1, -1, 0, 1, -3, 2**31 - 1, -(2**30), -(2**24) - 1]
    values += (-rng.integers(0, 2**31, 40) >> rng.integers(0, 31, 40)).tolist()
    top = 2**31 - 1

    def times(v: int) -> int:
        return max(-top, min(top, o.half_away(v * Fraction(float(slope)))))

    # the mask is of a wire of zeros: nothing passes
    expected = [v if v > 0 and kernel == RELU else times(v) for v in values]
    assert accumulators(kernel, slope, values) == expected


# ---- names and errors ----------------------------------------------------------------------------


def test_it_prints_as_in_pytorch() -> None:
    assert repr(nn.LeakyReLU()) == "LeakyReLU(negative_slope=0.01)"
    assert repr(nn.LeakyReLU(0.2, True)) == "LeakyReLU(negative_slope=0.2, inplace=True)"
    assert nn.LeakyReLU(negative_slope=np.float32(0.5)).negative_slope == 0.5
    assert nn.LeakyReLU(1).out_shape((3, 4)) == (3, 4)


@pytest.mark.parametrize("slope", [-0.01, np.nan, np.inf, 1e39, 10**400, "0.1", None, True])
def test_slopes_that_are_none(slope: object) -> None:
    with pytest.raises(q.QfwError, match="LeakyReLU: negative_slope must be a number between 0"):
        nn.LeakyReLU(slope)  # type: ignore[arg-type]
