"""The operations of BatchNorm and GroupNorm over samples with positions, each beside the oracle as
a step runs it, and inference beside the plan that has nothing else: no tolerance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import oracle_batch_norm as bn
import pytest
from oracle_norm import fraction
from oracle_tensor import Acc, Array, Tensor, is_float
from test_batch_norm import POLICIES

import pyqfw as q
from pyqfw import nn, optim
from pyqfw.lower.ir import ACCUMULATOR
from pyqfw.tensor import QTensor

F32 = np.float32
RELU = 1


# ---- what stands in memory, as the oracle has it -------------------------------------------------


def kept(t: QTensor) -> Tensor:
    """A stored tensor."""
    codes = t.codes if is_float(t.format) else t.codes.astype(np.int64)
    zero = None if t.zero_point is None else np.asarray(t.zero_point, np.int64)
    return Tensor(t.format, codes, t.scale, zero, tuple(t.shape))


def floats(t: QTensor | None) -> Array | None:
    return None if t is None else kept(t).floats().reshape(-1)


def matrix(t: QTensor, columns: int) -> bn.Operand:
    """Codes with one scale or one a row, a row for each position."""
    m = t.codes.astype(np.int64).reshape(-1, columns)
    scale = np.asarray(t.scale, F32).reshape(-1, 1)
    each = np.broadcast_to(np.repeat(scale, len(m) // len(scale), axis=0), m.shape)
    return bn.Operand(m, each, t.format.bits, np.zeros(m.shape, bool))


def deep(t: QTensor, positions: int, channels: int) -> bn.Operand:
    x = matrix(t, channels)
    shape = (-1, positions, channels)
    return bn.Operand(
        x.m.reshape(shape), x.scale.reshape(shape), x.bits, x.rangeless.reshape(shape)
    )


def vector(t: QTensor | None) -> bn.Operand | None:
    """Gamma as an operand, its granularity kept."""
    if t is None:
        return None
    m, s = kept(t).pairs()
    return bn.Operand(m, s, t.format.bits, np.zeros(m.shape, bool))


def sums(net: q.Session, t: Any, rows: int) -> Acc:
    """Accumulators, a row for each position; scales for all, for each column, row or element."""
    codes, scale, _ = (part.copy() for part in net._spaces.parts(t, rows))
    v = codes.view(np.int32).astype(np.int64).reshape(rows * t.positions, -1)
    n, wide = (v.size if t.spread == "tensor" else v.shape[1]), v.shape
    shapes = {"tensor": (1, 1), "columns": (1, n), "rows": (wide[0], 1), "grid": wide}
    return Acc(v, np.broadcast_to(scale.reshape(shapes[t.spread]), wide))


# ---- the operations ------------------------------------------------------------------------------


class Ran:
    """An operation: what it read, what it wrote, its params."""

    def __init__(self, op: Any, before: dict[int, Any], after: dict[int, Any]) -> None:
        self.op, self.params = op, op.params
        self.places = [None if t is None else before.get(id(t)) for t in op.places]
        self.results = [None if t is None else after.get(id(t)) for t in op.places]
        self.columns = op.places[0].size // op.params.get(3, 1)

    def __getitem__(self, place: int) -> Any:
        return self.places[place] if place < len(self.places) else None

    def same(self, expected: Acc | Array) -> None:
        """The result, after the ReLU where it is a part."""
        result = self.results[0]
        assert result is not None
        if isinstance(expected, Acc) and expected.scale is not None:
            expected = expected.reshape(result.shape)
            values = np.maximum(expected.values, 0) if self.op.flags & RELU else expected.values
            np.testing.assert_array_equal(result.values, values)
            np.testing.assert_array_equal(result.scale, expected.scale)
            return
        floats = expected.values if isinstance(expected, Acc) else expected
        same(result.codes, np.where(floats > 0, floats, F32(0)) if self.op.flags & RELU else floats)


def same(found: Array, expected: Array) -> None:
    found, expected = (np.asarray(v, F32).reshape(-1) for v in (found, expected))
    np.testing.assert_array_equal(found, expected)


def batch_norm(r: Ran, most: int) -> None:
    eps, columns = r.params[1], r.columns
    if r.op.kernel == "batch_norm_s32":
        assert r.params[0] == fraction(most, 1, 24)
        x = matrix(r[1], columns)
        beta = None if r[3] is None else kept(r[3])
        r.same(bn.batch_normalized(x, eps, floats(r[2]), beta, most))
        found = bn.statistics(x)
    else:
        y = r[1].codes.reshape(-1, columns)
        r.same(bn.float_batch_normalized(y, eps, floats(r[2]), floats(r[3])))
        found = bn.float_statistics(y)
    if r[5] is not None:
        running = bn.Running(floats(r[5]), floats(r[6]), F32(r[7].codes))
        cumulative = r.op.flags & 2
        running.follow(*found, None if cumulative else r.params[5])
        same(r.results[5].codes, running.mean)
        same(r.results[6].codes, running.variance)
        assert r.results[7].codes == running.tracked


def batch_norm_back(r: Ran, most: int) -> None:
    eps, columns = r.params[1], r.columns
    if r.op.kernel == "batch_norm_back_s32":
        e, x = matrix(r[1], columns), matrix(r[2], columns)
        assert r.params[0] == bn.back_fraction(most)
        assert r.params[2] == bn.back_shift(most, e.bound)
        r.same(bn.batch_back(e, x, eps, floats(r[3]), most))
    else:
        e, x = (r[i].codes.reshape(-1, columns) for i in (1, 2))
        r.same(bn.float_batch_back(e, x, eps, floats(r[3])))


def group_norm(r: Ran, most: int) -> None:
    eps, positions, groups = (r.params[i] for i in (1, 3, 4))
    columns = r.columns
    if r.op.kernel == "normalize_s32":
        gamma, beta = vector(r[2]), None if r[3] is None else kept(r[3])
        n = positions * columns // groups
        assert r.params[0] == fraction(n, 1 if gamma is None else gamma.bound, 24)
        x = deep(r[1], positions, columns)
        r.same(bn.group_normalized(x, eps, groups, gamma, beta))
    else:
        x = r[1].codes.reshape(-1, positions, columns)
        r.same(bn.float_group_normalized(x, eps, groups, floats(r[2]), floats(r[3])))


def group_norm_back(r: Ran, most: int) -> None:
    """e times gamma has been requantized before."""
    eps, positions, groups = (r.params[i] for i in (1, 3, 4))
    columns = r.columns
    if r.op.kernel == "normalize_back_s32":
        g, x = (deep(r[i], positions, columns) for i in (1, 2))
        r.same(bn.group_back(g, x, eps, groups, None))
    else:
        e, x = (r[i].codes.reshape(-1, positions, columns) for i in (1, 2))
        r.same(bn.float_group_back(e, x, eps, groups, floats(r[3])))


def fold_norm(r: Ran, most: int) -> None:
    running = bn.Running(floats(r[2]), floats(r[3]), F32(0))
    a, b = bn.coefficients(running, floats(r[4]), floats(r[5]), r.params[1])
    same(r.results[0].codes, a)
    same(r.results[1].codes, b)


def fold(r: Ran, most: int) -> None:
    columns, a, b = r.columns, floats(r[2]), floats(r[3])
    if r.op.kernel == "fold_f32":
        r.same(bn.float_fold(r[1].codes.reshape(-1, columns), a, b))
    elif r.op.places[0] is r.op.places[1]:
        r.same(bn.fold_sums(r[1], a, b))
    else:
        r.same(bn.fold_codes(matrix(r[1], columns), a, b))


CHECKS = {
    "batch_norm_s32": batch_norm,
    "batch_norm_f32": batch_norm,
    "batch_norm_back_s32": batch_norm_back,
    "batch_norm_back_f32": batch_norm_back,
    "normalize_s32": group_norm,
    "normalize_f32": group_norm,
    "normalize_back_s32": group_norm_back,
    "normalize_back_f32": group_norm_back,
    "fold_norm": fold_norm,
    "fold_s32": fold,
    "fold_f32": fold,
}


def replayed(net: q.Session, x: Array, *y: Array) -> Iterator[Ran]:
    """Operations of a step, or of a plan without a loss."""

    def seen(op: Any, first: int = 0) -> dict[int, Any]:
        stored = [t for t in op.places[first:] if t is not None and t.fmt is not None]
        return {
            id(t): sums(net, t, len(x)) if t.fmt is ACCUMULATOR else net._spaces.read(t, len(x))
            for t in stored
            if t.space != "io"
        }

    ops, before = net.plan.ops, {}
    for i, (op, _) in enumerate(net.trace(x, *y)):
        if op.kernel in CHECKS:
            yield Ran(op, before, seen(op))
        follows = ops[i + 1 : i + 2]
        before = seen(follows[0], 1) if follows and follows[0].kernel in CHECKS else {}


def check_step(net: q.Session, x: Array, *y: Array) -> Counter[str]:
    checked: Counter[str] = Counter()
    for ran in replayed(net, x, *y):
        CHECKS[ran.op.kernel](ran, net.plan.rows * ran.params.get(3, 1))
        checked[ran.op.kernel] += 1
    return checked


# ---- networks ------------------------------------------------------------------------------------


def images(frozen: bool = False) -> nn.Sequential:
    """Two axes, one, and none; after a convolution, an activation, a Flatten."""
    model = nn.Sequential(
        *(nn.Conv2d(2, 5, 3, bias=False), nn.BatchNorm2d(5, momentum=None), nn.ReLU()),
        *(nn.Conv2d(5, 6, 2), nn.ReLU(), nn.BatchNorm2d(6, 1e-3, 0.3)),
        *(nn.GroupNorm(2, 6), nn.ReLU(), nn.Flatten(), nn.BatchNorm1d(6 * 3 * 2)),
        *(nn.Linear(36, 7), nn.BatchNorm1d(7, affine=False), nn.Linear(7, 3)),
    )
    return _frozen(model) if frozen else model


def signals(frozen: bool = False) -> nn.Sequential:
    model = nn.Sequential(
        *(nn.BatchNorm1d(3), nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU()),
        *(
            nn.GroupNorm(4, 4, affine=False),
            nn.Conv1d(4, 1, 3),
            nn.BatchNorm1d(1),
            nn.GroupNorm(1, 1),
        ),
        *(nn.Flatten(), nn.GroupNorm(2, 6), nn.Linear(6, 3)),
    )
    return _frozen(model) if frozen else model


def _frozen(model: nn.Sequential) -> nn.Sequential:
    for layer in model:
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.requires_grad_(False)
    return model


NETWORKS = {"images": (images, (2, 6, 5)), "signals": (signals, (3, 8))}


def opened(name: str, policy: q.Policy, frozen: bool, batch: int = 4) -> q.Session:
    """With parameters and statistics of both signs, one factor being 0."""
    make, shape = NETWORKS[name]
    plan = q.compile(
        make(frozen),
        input_shape=shape,
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.05, momentum=0.9),
        policy=policy,
        batch=batch,
        seed=3,
    )
    net, rng = q.Session(plan), np.random.default_rng(1)
    values = net.state_dict()
    norms = {n.path for n in plan.nodes if "Norm" in type(n.layer).__name__}
    for key, v in values.items():
        path, what = key.rsplit(".", 1)
        if path in norms and what != "num_batches_tracked":
            noise = rng.normal(size=v.shape).astype(F32) * F32(0.5)
            values[key] = np.exp(noise) if what == "running_var" else v + noise
            if what == "weight":
                values[key][::3] *= F32(-1)
                values[key][1:2] = 0
    net.load_state_dict(values)
    return net


def some(name: str, rows: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, *NETWORKS[name][1])) * 2 + 0.5
    return x.astype(F32), rng.integers(0, 3, rows)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("frozen", [False, True])
def test_every_operation_of_steps(frozen, name, policy):
    net = opened(name, POLICIES[policy], frozen)
    if "hindsight" in policy:
        net.step(*some(name, 4))
    found = check_step(net, *some(name, 4, 1)) + check_step(net, *some(name, 3, 2))
    assert any(kernel.startswith("fold" if frozen else "batch_norm") for kernel in found)
    assert any(kernel.startswith("normalize") for kernel in found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("frozen", [False, True])
def test_inference(frozen, name, policy):
    """Of a plan that trains: the bits of one that does not, whose operations are the oracle's; each
    row as if it were alone."""
    net = opened(name, POLICIES[policy], frozen)
    for i in range(2):
        net.step(*some(name, 4, i))
    x, _ = some(name, 5, 9)
    alone = net.recompile(loss=None, optimizer=None)
    before = {key: v.copy() for key, v in net.state_dict().items()}
    predicted = net.predict(x)
    same(predicted, alone.predict(x))
    for i in range(len(x)):
        check_step(alone, x[i : i + 1])
        same(net.predict(x[i : i + 1]), predicted[i])
    for key, v in net.state_dict().items():
        np.testing.assert_array_equal(v, before[key])


@pytest.mark.parametrize("policy", ["float32", "full_sym", "int8"])
def test_a_batch_of_one_row_has_positions(policy):
    model = nn.Sequential(
        *(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))
    )
    plan = q.compile(
        model,
        input_shape=(2, 8),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.1),
        policy=POLICIES[policy],
    )
    net, rng = q.Session(plan), np.random.default_rng(0)
    for _ in range(3):
        check_step(net, rng.normal(size=(1, 2, 8)).astype(F32), rng.integers(0, 3, 1))
    assert net.state_dict()["1.num_batches_tracked"] == 3


@pytest.mark.parametrize(
    ("bits", "n"), [(16, 65538), pytest.param(8, 263_000, id="fewer bits of fraction")]
)
@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(1), lambda: nn.GroupNorm(1, 1)])
def test_long_rows(make, bits, n):
    """As many 16-bit codes as there may be; and more elements than F = 16 leaves room for."""
    fmt = q.Sym(bits)
    plan = q.compile(
        nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), make(), nn.Flatten(), nn.Linear(n, 2)),
        input_shape=(1, n),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.1),
        policy=q.Policy.int8().replace(input=fmt, wires=fmt, errors=fmt),
    )
    net, rng = q.Session(plan), np.random.default_rng(0)
    kinds = (rng.normal(size=n) + 3, np.where(np.arange(n) % 2, 1.0, -1.0), np.eye(1, n)[0])
    for x in kinds if bits == 16 else kinds[:1]:
        found = check_step(net, x.reshape(1, 1, n).astype(F32), np.array([1]))
        assert sum(found.values()) == 3  # forward, back, and x^ again


@pytest.mark.parametrize("row", [None, "row"])
def test_sums_that_leave_no_room_for_a_bias(row):
    """Of 2^30 and more, in some columns: they are halved first; a factor of 0 and one below it."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
    wide = q.Sym(16)
    policy = q.Policy.int8().replace(input=q.Sym(16, axis=row), wires=wide, weights=wide)
    net = q.Session(q.compile(model, input_shape=4, policy=policy, batch=3))
    weight = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [-1, -1, -1, -1], [1, 1, 1, 1]], F32)
    begin = {"0.weight": weight, "1.weight": np.array([-1, 2, 0.5, 0], F32)}
    net.load_state_dict(begin | {"1.bias": np.array([3, -1, 1e9, 7], F32)}, strict=False)
    x = np.ones((3, 4), F32)
    x[1] = -1
    before = [ran[1] for ran in replayed(net, x) if ran.op.kernel == "fold_s32"]
    most = np.abs(before[0].values).max(axis=0)
    assert most.tolist() == [most[0], 0, most[0], most[0]]
    assert most[0] >= 2**30
    check_step(net, x)
