"""Products that pool their sums, or widen their operand, some at a time: the bits of the operations
they stand for, on every table, and what the check refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import plan_bytes as pb
import pytest
from plan_bytes import PlanBytes
from plan_cases import FOLD_CODES, PRODUCT_FOLD, PRODUCT_POOL, N, case
from plan_net import OK, check

import pyqfw as q
from pyqfw import lower, nn, quant
from pyqfw.lower import requantize

ISAS = quant.core_info()["isas"]
RANDOM: dict[str, Any] = {"rounding": "stochastic"}
HINDSIGHT = {"range": "hindsight"}
INT8 = q.Policy.int8()
POLICIES = {
    "hindsight": INT8.replace(wires=q.Sym(8, **HINDSIGHT), errors=q.Sym(8, **HINDSIGHT, **RANDOM)),
    "fixed": INT8.replace(wires=q.Sym(8, range=1.5), errors=q.Sym(8, range=0.05, **RANDOM)),
    "stochastic": INT8.replace(
        wires=q.Sym(8, range=0.8, **RANDOM), errors=q.Sym(5, container=8, **RANDOM)
    ),
    "int16": INT8.replace(
        wires=q.Sym(12, container=16, **HINDSIGHT), errors=q.Sym(8, scale="pow2", **RANDOM)
    ),
    "one scale": INT8.replace(
        wires=q.Sym(8, **HINDSIGHT), errors=q.Sym(8, **RANDOM), weights=q.Sym(8, **RANDOM)
    ),
    "wide weights": INT8.replace(
        wires=q.Sym(8, **HINDSIGHT), weights=q.Sym(16, axis=0, **RANDOM), bias=q.Float32()
    ),
    "dynamic": INT8,
}
POLICIES = {name: policy.replace(grads="fused") for name, policy in POLICIES.items()}
POLICIES["stored"] = POLICIES["hindsight"].replace(grads=q.Sym(8))


def line(n: int, bias: bool = True) -> tuple[nn.Module, tuple[int, ...]]:
    """Convolutions over a line whose sizes follow n: kernels, strides, paddings, channels."""
    width, kernel, stride = 9 + n % 17, 1 + n % 5, 1 + n % (1 + n % 5)
    stride = min(stride, kernel)
    pool, step = 1 + n % 4, 1 + n % 4 + n % 2
    first = nn.Conv1d(1 + n % 3, 1 + n, kernel, padding=n % kernel, bias=bias)
    length = (width + 2 * (n % kernel) - kernel) + 1
    length = (length - pool) // step + 1
    kernel = min(kernel, length)
    second = nn.Conv1d(1 + n, 3, kernel, min(stride, kernel), n % kernel, bias=bias)
    length = (length + 2 * (n % kernel) - kernel) // min(stride, kernel) + 1
    between = [nn.ReLU()] if n % 3 else []
    layers = [first, *between, nn.MaxPool1d(pool, step), second, nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(3 * length, 4)), (1 + n % 3, width)


def plane(n: int) -> tuple[nn.Module, tuple[int, ...]]:
    high, wide = 5 + n % 4, 6 + n % 5
    size = ((high - 2) // 2 + 1, (wide - 1 - 2) // (2 + n % 2) + 1)
    first = [nn.Conv2d(2, n, (3, 2), padding=(1, 0), bias=n % 2 == 0)]
    layers = [*first, nn.ReLU(), nn.MaxPool2d(2, (2, 2 + n % 2)), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(n * size[0] * size[1], 3)), (2, high, wide)


def compiled(made: tuple[nn.Module, tuple[int, ...]], policy: q.Policy, batch: int) -> q.Plan:
    model, shape = made
    plain = policy.grads == "fused"
    return q.compile(
        model,
        input_shape=shape,
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(0.1, momentum=0.0 if plain else 0.9),
        policy=policy,
        batch=batch,
    )


def apart(patch: pytest.MonkeyPatch, *args: Any) -> q.Plan:
    """The plan with each operation by itself, and all the scratch that it likes."""
    with patch.context() as only:
        only.setattr(requantize, "_poolable", lambda *_: None)
        only.setattr(lower, "fold", lambda *_: None)
        only.setattr(lower, "tighten", lambda *_: None)
        return compiled(*args)


def run(plan: q.Plan, isa: str) -> tuple[list[float], dict[str, bytes], bytes]:
    """Losses, all that lasts, and every wire, error and pick of every step."""
    rng = np.random.default_rng(plan.batch)
    shape, classes = plan.request.input_shape, plan.nodes[-1].out_shape[-1]
    found: dict[str, bytes] = {}
    losses = []
    with quant.isa(isa):
        net = q.Session(plan)
        for i, n in enumerate((plan.batch, 1 + plan.batch // 2, plan.batch)):
            x = rng.standard_normal((n, *shape)).astype(np.float32)
            x[0] *= i  # zeros
            for _, tensors in net.trace(x, rng.integers(0, classes, n)):
                for name, t in tensors.items():
                    if name.endswith((":wire", ":error", ":grad", ":momentum", "weight", "bias")):
                        found[f"{i} {name}"] = bytes(t.data)
            losses.append(net._read_loss())
        names = (*plan.program.parameters, *plan.program.states, *plan.program.gains)
        found |= {name: bytes(net.tensor(name).data) for name in names}
        return losses, found, net.predict(x).tobytes()


def kernels(plan: q.Plan) -> set[str]:
    return {op.kernel for op in plan.ops}


@pytest.mark.parametrize("name", POLICIES)
def test_lines_of_every_tail(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen: set[str] = set()
    for n in (*range(1, 20), 31, 32, 33, 40):
        batch = 1 + n % 9
        args = (line(n, n % 2 == 0), POLICIES[name], batch)
        plan, other = compiled(*args), apart(monkeypatch, *args)
        seen |= kernels(plan)
        assert kernels(other).isdisjoint({"product_pool_s32", "product_fold_s32"})
        assert plan.arena_bytes <= other.arena_bytes or plan.program.gradients
        wanted = run(other, ISAS[0])
        for isa in ISAS:
            assert run(plan, isa) == wanted, (n, isa)
    assert ("product_pool_s32" in seen) == (name != "dynamic")
    assert ("product_fold_s32" in seen) == (name not in ("one scale", "stored"))


@pytest.mark.parametrize("name", ["hindsight", "fixed", "one scale"])
def test_planes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for n in range(1, 12):
        args = (plane(n), POLICIES[name], 1 + n % 10)
        plan, other = compiled(*args), apart(monkeypatch, *args)
        assert "product_pool_s32" in kernels(plan)
        wanted = run(other, ISAS[0])
        for isa in ISAS:
            assert run(plan, isa) == wanted, (n, isa)


OVERLAPPING = nn.MaxPool1d(3, 2)
PADDED = nn.MaxPool1d(2, padding=1)
SPREAD = nn.MaxPool1d(2, dilation=2)
BEYOND = nn.MaxPool1d(2, ceil_mode=True)


@pytest.mark.parametrize("pool", [OVERLAPPING, PADDED, SPREAD, BEYOND])
def test_other_pools_keep_their_sums(pool: nn.Layer) -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.ReLU(), pool, nn.Flatten())
    length = model_length(pool)
    net = nn.Sequential(*model, nn.Linear(3 * length, 2))
    plan = compiled((net, (2, 11)), POLICIES["hindsight"], 2)
    assert "max_pool" in kernels(plan)
    assert "product_pool_s32" not in kernels(plan)


def model_length(pool: nn.Layer) -> int:
    return int(pool.out_shape((3, 11))[1])


def test_gains_carry_over_to_a_plan_with_another_form() -> None:
    """A batch of 8 widens its operands as a whole, a row some of it at a time."""
    made = line(5)
    many = q.Session(compiled(made, POLICIES["hindsight"], 8))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, *made[1])).astype(np.float32)
    many.step(x, rng.integers(0, 4, 8))
    one = many.recompile(batch=1)
    assert "product_fold_s32" in kernels(one.plan) - kernels(many.plan)
    for name in many.plan.program.gains:
        assert one.tensor(name).codes.tolist() == many.tensor(name).codes.tolist()


# ---- what the check refuses ----------------------------------------------------------------------


def refused(kernel: int, change: Any) -> str:
    made = case(kernel)
    assert check(made.build()) == OK
    plan = PlanBytes(made.build())
    change(plan, made)
    found = check(plan.sealed())
    assert (found.status, found.op) == ("PLAN", made.op)
    return found.field


def window(number: int, **fields: int) -> Any:
    def change(plan: PlanBytes, _: Any) -> None:
        for name, value in fields.items():
            plan.windows[name][number] = value

    return change


def tensor(place: int, **fields: int) -> Any:
    def change(plan: PlanBytes, made: Any) -> None:
        for name, value in fields.items():
            plan.tensors[name][made.tensors[place]] = value

    return change


def param(number: int, value: int) -> Any:
    def change(plan: PlanBytes, made: Any) -> None:
        plan.ops["param"][made.op, number] = value

    return change


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (window(1, pad_w=1), "window"),
        (window(1, dilation_w=2), "window"),
        (window(1, groups=2), "window"),
        (window(1, in_w=3), "window"),
        (window(1, out_w=2), "window"),
        (window(1, kernel_w=3), "window"),
        (window(1, kernel_h=2), "window"),
        (window(1, in_h=2), "window"),
        (param(4, 1), "window"),
        (param(0, 1), "window"),
        (param(3, 1), "the sizes do not make a product"),
        (tensor(4, axis=1, group=1), "picks"),
        (tensor(4, rows=pb.NO_ROWS), "picks"),
        (tensor(5, axis=48 + 16 + 3), "scratch"),
        (tensor(6, outer=1), "tile"),
        (tensor(0, rows=pb.ROWS_OUTER), "codes of several scales"),
        (param(1, 1 << 20), "headroom"),
    ],
)
def test_a_pooling_product(change: Any, field: str) -> None:
    assert refused(PRODUCT_POOL, change) == field


@pytest.mark.parametrize("kernel", [PRODUCT_FOLD, FOLD_CODES])
@pytest.mark.parametrize(
    ("change", "field"),
    [
        (window(0, stride_w=3), "window"),
        (window(0, dilation_w=2), "window"),
        (window(0, pad_h=1), "window"),
        (window(0, kernel_h=2), "window"),
        (window(0, in_h=2), "window"),
        (window(0, groups=2), "window"),
        (param(0, 0), "window"),
        (param(4, 8), "flags, param"),
        (param(4, 17), "flags, param"),
        (param(1, 1 << 20), "headroom"),
        (tensor(2, group=2), "a scale a column"),
        (tensor(5, axis=16 * N + 2 * N), "scratch"),
    ],
)
def test_a_folding_product(kernel: int, change: Any, field: str) -> None:
    assert refused(kernel, change) == field
