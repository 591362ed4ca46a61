"""BatchNorm and GroupNorm as a user meets them: arguments, errors, statistics, files, freezing."""

from __future__ import annotations

import numpy as np
import pytest
from plan_bytes import PARAMETER, ROWS_AXIS, ROWS_OUTER, Builder, PlanBytes
from plan_cases import (
    BATCH_NORM_F32,
    BATCH_NORM_S32,
    CONVERT,
    FOLD_NORM,
    FOLD_S32,
    PRODUCT_S32,
    case,
)
from plan_net import OK, Net, Verdict, check
from plan_norm_rules import OTHER_SUMS

import pyqfw as q
from pyqfw import nn, optim

F32 = np.float32
MAIN = {"float32": q.Policy.float32(), "full_sym": q.Policy.full_sym(), "int8": q.Policy.int8()}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def chain(**options) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(5, 4), nn.BatchNorm1d(4, **options), nn.ReLU(), nn.Linear(4, 3)),
    )


def build(model=None, policy="int8", **changes) -> q.Plan:
    given = {
        "input_shape": 5,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": optim.SGD(0.1, momentum=0.9),
        "policy": MAIN[policy] if isinstance(policy, str) else policy,
        "batch": 6,
        **changes,
    }
    return q.compile(chain() if model is None else model, **given)


def data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, 5)) + 1).astype(F32), rng.integers(0, 3, rows)


def statistics(net: q.Session, path: str = "1") -> dict[str, np.ndarray]:
    return {name: net.state_dict()[f"{path}.{name}"] for name in STATISTICS}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(a[name].tobytes() == b[name].tobytes() for name in a) and a.keys() == b.keys()


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: nn.BatchNorm1d(0), "BatchNorm1d: num_features"),
        (lambda: nn.BatchNorm2d(2.5), "BatchNorm2d: num_features"),
        (lambda: nn.BatchNorm1d(3, eps=-1.0), "BatchNorm1d: eps"),
        (lambda: nn.BatchNorm1d(3, eps=1e-40), "BatchNorm1d: eps"),
        (lambda: nn.BatchNorm1d(3, momentum=1.5), "BatchNorm1d: momentum .* 0 and 1"),
        (lambda: nn.BatchNorm1d(3, momentum="a"), "BatchNorm1d: momentum"),
        (lambda: nn.BatchNorm1d(3, affine=1), "BatchNorm1d: affine"),
        (lambda: nn.BatchNorm1d(3, track_running_stats=None), "track_running_stats"),
        (lambda: nn.BatchNorm1d(3, bias="no"), "BatchNorm1d: bias"),
        (lambda: nn.BatchNorm1d(3, output="raw"), "BatchNorm1d: output"),
        (lambda: nn.BatchNorm1d(3, policy={"wire": q.Sym(8)}), "wire"),
        (lambda: nn.GroupNorm(0, 4), "GroupNorm: num_groups"),
        (lambda: nn.GroupNorm(3, 4), "num_channels must be divisible by num_groups: 4 by 3"),
        (lambda: nn.GroupNorm(2, 4, eps=float("nan")), "GroupNorm: eps"),
    ],
)
def test_arguments(make, match):
    with pytest.raises(q.QfwError, match=match):
        make()


@pytest.mark.parametrize(
    ("layer", "shape", "legal"),
    [
        (nn.BatchNorm1d(4), (5,), r"\(4,\) or \(4, length\)"),
        (nn.BatchNorm1d(4), (4, 2, 2), r"\(4,\) or \(4, length\)"),
        (nn.BatchNorm2d(4), (4, 3), r"\(4, height, width\)"),
        (nn.BatchNorm2d(4), (3, 4, 4), r"\(4, height, width\)"),
        (nn.GroupNorm(2, 4), (6, 4), "4 channels"),
    ],
)
def test_shapes(layer, shape, legal):
    with pytest.raises(q.ShapeError, match=rf"layer '0'.*{legal}"):
        q.compile(nn.Sequential(layer), input_shape=shape)


def test_they_print_as_in_pytorch():
    told = "eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)"
    assert repr(nn.BatchNorm1d(3)) == f"BatchNorm1d(3, {told}"
    plain = nn.BatchNorm2d(3, 0.1, None, False, bias=False)
    assert repr(plain).startswith("BatchNorm2d(3, eps=0.1, momentum=None, affine=False, bias=False")
    assert repr(nn.GroupNorm(2, 6)) == "GroupNorm(2, 6, eps=1e-05, affine=True, bias=True)"
    raw = nn.GroupNorm(2, 6, output=q.RAW)
    assert repr(raw).endswith("bias=True, output=RAW)")


@pytest.mark.parametrize("policy", MAIN)
def test_a_weight_without_a_bias(policy):
    model = nn.Sequential(
        *(nn.Linear(5, 4), nn.BatchNorm1d(4, bias=False), nn.GroupNorm(2, 4, bias=False)),
        nn.Linear(4, 3),
    )
    net = q.Session(build(model, policy))
    names = {name for name in net.state_dict() if name.startswith(("1.", "2."))}
    assert names == {"1.weight", "2.weight", *(f"1.{name}" for name in STATISTICS)}
    assert np.isfinite(net.step(*data(6)))
    assert np.isfinite(net.predict(data(2)[0])).all()


# ---- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), None])
def test_without_running_statistics_there_is_no_inference(loss):
    optimizer = None if loss is None else optim.SGD(0.1)
    with pytest.raises(
        q.QfwError, match=r"layer '1', BatchNorm1d.*track_running_stats=True, or nn"
    ):
        build(chain(track_running_stats=False), loss=loss, optimizer=optimizer)


@pytest.mark.parametrize(("batch", "micro_batches"), [(1, 1), (3, 3)])
def test_one_value_a_channel_is_refused_at_compile_time(batch, micro_batches):
    with pytest.raises(q.QfwError, match=r"layer '1', BatchNorm1d.*no variance: choose a batch"):
        build(batch=batch, micro_batches=micro_batches)
    frozen = chain()
    frozen[1].requires_grad_(False)
    build(frozen, batch=batch, micro_batches=micro_batches)
    build(batch=batch, loss=None, optimizer=None)


@pytest.mark.parametrize("policy", MAIN)
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_last_batch_of_one_row_is_refused_by_name(micro_batches, policy):
    net = q.Session(build(policy=policy, micro_batches=micro_batches))
    net.step(*data(6))
    before, arena = statistics(net), bytes(net._spaces.lasting())
    for call in ("step", "forward", "trace"):
        rows = 1 if call == "forward" or micro_batches == 1 else 4  # the second part has one
        x, y = data(rows)
        with pytest.raises(q.QfwError, match=r"layer '1': .*one value a channel.*two rows or more"):
            {
                "step": lambda: net.step(x, y),  # noqa: B023
                "forward": lambda: net.forward(x),  # noqa: B023
                "trace": lambda: list(net.trace(x, y)),  # noqa: B023
            }[call]()
        assert same(before, statistics(net))
        assert bytes(net._spaces.lasting()) == arena
    net.step(*data(6))
    with pytest.raises(q.QfwError, match=r"batch 1: .*layer '1'"):
        q.fit(net, *data(7), epochs=1, shuffle=False)


@pytest.mark.parametrize(
    ("bits", "most"), [(16, 65538), (12, 1049088), (9, 8421504), (8, 16909320)]
)
def test_the_longest_row_is_what_the_page_says(bits, most):
    """2^31 - 1 over the largest code; the message has the largest batch."""
    fmt = q.Sym(bits, container=8 if bits <= 8 else 16)
    policy = q.Policy.full_sym().replace(input=fmt, wires=fmt, errors=fmt)
    wide = nn.Sequential(nn.BatchNorm1d(1), nn.Flatten(), nn.Linear(1024, 2))

    def plan(batch):
        return build(wide, policy, input_shape=(1, 1024), batch=batch, loss=nn.MSELoss())

    rows = most // 1024
    assert most == (2**31 - 1) // (2 ** (bits - 1) - 1)
    if rows <= 1024:
        plan(rows)
    message = rf"layer '0', BatchNorm1d.*{bits} bits.*micro-batch of at most {rows} rows"
    with pytest.raises(q.QfwError, match=message):
        plan(rows + 1)


@pytest.mark.parametrize(("length", "groups"), [(32769, 1), (32770, 1), (65538, 2), (65539, 2)])
def test_groups_that_are_too_long_are_refused_by_name(length, groups):
    wide = q.Sym(16)
    policy = q.Policy.full_sym().replace(input=wide, wires=wide, errors=wide)
    model = nn.Sequential(nn.GroupNorm(groups, 2), nn.Flatten(), nn.Linear(2 * length, 2))
    given = {"input_shape": (2, length), "batch": 1}
    if 2 * length // groups <= 65538:
        assert build(model, policy, **given).ops
        return
    with pytest.raises(q.QfwError, match=r"layer '0', GroupNorm.*16 bits.*more groups, or 15 bits"):
        build(model, policy, **given)


@pytest.mark.parametrize("policy", ["full_sym", "int8"])
@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(1), lambda: nn.GroupNorm(1, 1)])
def test_the_longest_rows_do_not_overflow(make, policy):
    """16-bit codes of full size, as many as there may be."""
    n, wide = 65538, q.Sym(16)
    chosen = MAIN[policy].replace(input=wide, wires=wide, errors=wide)
    model = nn.Sequential(make(), nn.Flatten(), nn.Linear(n, 2))
    net = q.Session(build(model, chosen, input_shape=(1, n), batch=1))
    begin = net.state_dict()
    for x in (np.ones(n), np.eye(1, n)[0], np.where(np.arange(n) % 2, 1.0, -1.0)):
        net.load_state_dict(begin)
        net.step(x.reshape(1, 1, n).astype(F32), [1])
        assert np.isfinite(net.predict(np.ones((1, 1, n), F32))).all()


# ---- running statistics --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", MAIN)
@pytest.mark.parametrize("momentum", [0.1, None, 0.0, 1.0])
def test_they_follow_the_batches(momentum, policy):
    """Beside float64, of the wire that the layer saw."""
    net = q.Session(build(chain(momentum=momentum), policy))
    mean, variance = np.zeros(4), np.ones(4)
    for i in range(5):
        x, y = data(6 - i % 2, i)
        net.forward(x)
        seen = np.float64(net.wire("0").numpy())
        factor = 1 / (i + 1) if momentum is None else momentum
        mean = (1 - factor) * mean + factor * seen.mean(axis=0)
        variance = (1 - factor) * variance + factor * seen.var(axis=0, ddof=1)
        net.backward(y)
        net.update()
    found = statistics(net)
    np.testing.assert_allclose(found["running_mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["running_var"], variance, rtol=1e-5)
    assert found["num_batches_tracked"].dtype == np.int64
    assert found["num_batches_tracked"].shape == ()
    assert found["num_batches_tracked"] == 5


@pytest.mark.parametrize("policy", MAIN)
def test_inference_and_looking_leave_them(policy):
    net = q.Session(build(policy=policy))
    net.step(*data(6))
    before = statistics(net)
    net.predict(data(9)[0])
    q.evaluate(net, *data(9))
    net.recompile(policy=q.Policy.float32()).step(*data(6))
    assert same(before, statistics(net))
    list(net.trace(*data(6)))
    assert statistics(net)["num_batches_tracked"] == 2


def test_a_row_does_not_depend_on_its_neighbours():
    net = q.Session(build())
    net.step(*data(6))
    x, _ = data(5, 3)
    alone = np.concatenate([net.predict(row[None]) for row in x])
    assert net.predict(x).tobytes() == alone.tobytes()


@pytest.mark.parametrize("policy", MAIN)
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_errors_of_a_step_leave_all_as_it_was(micro_batches, policy):
    net = q.Session(build(policy=policy, micro_batches=micro_batches))
    net.step(*data(6))
    before, arena = statistics(net), bytes(net._spaces.lasting())
    x, y = data(6, 5)
    wrong = y.copy()
    wrong[-1] = 7
    infinite = x.copy()
    infinite[5, 2] = np.inf
    for given, error in (((x, wrong), q.QfwError), ((infinite, y), q.NonFiniteError)):
        with pytest.raises(error):
            net.step(*given)
        assert same(before, statistics(net))
        assert bytes(net._spaces.lasting()) == arena
        with pytest.raises(error):
            list(net.trace(*given))
        assert same(before, statistics(net))
    twin = q.Session(build(policy=policy, micro_batches=micro_batches))
    twin.step(*data(6))
    assert net.step(x, y) == twin.step(x, y)
    assert same(statistics(net), statistics(twin))


def test_a_run_that_breaks_goes_back_with_its_statistics():
    """Rewind: the net is as it was before the step that broke."""
    net = q.Session(build(policy="float32", optimizer=optim.SGD(1e30)))
    x, y = data(60)
    before = statistics(net)
    with pytest.raises(q.NonFiniteError, match="as it was before this step"):
        q.fit(net, x, y, epochs=3)
    found = statistics(net)
    assert all(np.isfinite(v).all() for v in found.values())
    assert found["num_batches_tracked"] == net.steps
    assert same(before, statistics(q.Session(build(policy="float32"))))


def test_state_dict_goes_there_and_back():
    net = q.Session(build(policy="full_sym"))
    for i in range(3):
        net.step(*data(6, i))
    state = net.state_dict()
    assert list(state)[2:7] == ["1.weight", "1.bias", *(f"1.{name}" for name in STATISTICS)]
    other = q.Session(build(policy="full_sym", seed=9))
    other.load_state_dict(state)
    assert same(statistics(net), statistics(other))
    np.testing.assert_array_equal(net.tensor("1.running_var").codes, state["1.running_var"])
    some = {name: v for name, v in state.items() if "running" not in name}
    with pytest.raises(q.QfwError, match=r"missing '1\.running_mean', '1\.running_var' \(strict"):
        other.load_state_dict(some)
    other.load_state_dict({"1.running_mean": np.full(4, 3.0)}, strict=False)
    assert (statistics(other)["running_mean"] == 3).all()
    assert same({"v": state["1.running_var"]}, {"v": statistics(other)["running_var"]})


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("running_mean", np.zeros(3), "must have the shape"),
        ("running_mean", [0, 1, np.nan, 2], "running_mean"),
        ("running_var", [1, 1, -0.5, 1], "must not be negative, as -0.5"),
        ("num_batches_tracked", -1, "whole number >= 0"),
        ("num_batches_tracked", 2.5, "whole number >= 0"),
        ("num_batches_tracked", [1], "must have the shape"),
    ],
)
def test_what_cannot_be_loaded(name, value, match):
    net = q.Session(build())
    before = bytes(net._spaces.lasting())
    with pytest.raises(q.QfwError, match=match):
        net.load_state_dict({**net.state_dict(), f"1.{name}": value})
    assert bytes(net._spaces.lasting()) == before


def test_tracked_stops_where_floats_are_no_longer_exact():
    net = q.Session(build(chain(momentum=None), "float32"))
    for given in (2**24 - 1, 2**40):
        net.load_state_dict({"1.num_batches_tracked": given}, strict=False)
        net.step(*data(6))
        net.step(*data(6))
        assert statistics(net)["num_batches_tracked"] == 2**24


@pytest.mark.parametrize("policy", MAIN)
@pytest.mark.parametrize("frozen", [False, True])
def test_saved_and_loaded(tmp_path, frozen, policy):
    """A resumed run ends with the bytes of one that never stopped."""
    model = chain()
    model[1].requires_grad_(not frozen)
    net = q.Session(build(model, policy))
    net.load_state_dict({"1.running_mean": np.full(4, 0.5)}, strict=False)
    net.step(*data(6))
    net.save(tmp_path / "net.safetensors")
    again = q.Session.load(tmp_path / "net.safetensors")
    assert same(net.state_dict(), again.state_dict())
    for i in range(3):
        assert net.step(*data(6, i)) == again.step(*data(6, i))
    assert same(net.state_dict(), again.state_dict())
    x, _ = data(4, 8)
    assert net.predict(x).tobytes() == again.predict(x).tobytes()


def test_a_layer_that_was_frozen_since_is_saved_as_it_was_compiled(tmp_path):
    model = chain(affine=False)
    net = q.Session(build(model))
    model[1].requires_grad_(False)
    net.save(tmp_path / "net.safetensors")
    again = q.Session.load(tmp_path / "net.safetensors")
    assert net.step(*data(6)) == again.step(*data(6))
    assert statistics(again)["num_batches_tracked"] == 1


@pytest.mark.parametrize("policy", MAIN)
def test_recompile_carries_them_and_freezes_what_is_not_named(policy):
    net = q.Session(build(policy=policy))
    for i in range(4):
        net.step(*data(6, i))
    kept = statistics(net)
    for changes in ({"batch": 3}, {"policy": q.Policy.full_sym()}, {"micro_batches": 2}):
        assert same(kept, statistics(net.recompile(**changes)))
    head = net.recompile(train=["3"], batch=1)
    assert head.plan.program.statistics["1.running_mean"].space == "const"
    x, _ = data(3)
    if policy == "float32":
        assert head.predict(x).tobytes() == net.predict(x).tobytes()
    for i in range(3):
        head.step(*data(1, i))
    assert same(kept, statistics(head))
    thawed = head.recompile(train=["1", "3"], batch=6)
    assert same(kept, statistics(thawed))
    thawed.step(*data(6))
    assert statistics(thawed)["num_batches_tracked"] == 5
    with pytest.raises(q.QfwError, match="layer '1', BatchNorm1d"):
        net.recompile(batch=1)


def test_a_frozen_layer_costs_no_state():
    moving, still = build(), chain()
    still[1].requires_grad_(False)
    frozen = build(still)
    assert moving.memory()["state"] > frozen.memory()["state"]
    kernels = {op.kernel for op in frozen.program.all_ops}
    assert not any(kernel.startswith("batch_norm") for kernel in kernels)
    assert frozen.program.sections["infer"] == []


# ---- places in a graph ---------------------------------------------------------------------------


class Block(nn.Module):
    """A residual block that begins with its normalisation, and branches that meet."""

    def __init__(self) -> None:
        self.first = nn.Conv1d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.relu = nn.ReLU()
        self.conv = nn.Conv1d(4, 4, 3, padding=1, bias=False)
        self.group = nn.GroupNorm(2, 4)
        self.cat = nn.Concat()
        self.last = nn.BatchNorm1d(8)
        self.flat = nn.Flatten()
        self.head = nn.Linear(48, 3)

    def forward(self, x):
        x = self.first(x)
        y = self.group(self.conv(self.relu(self.norm(x)))) + x
        return self.head(self.flat(self.last(self.cat(y, x))))


@pytest.mark.parametrize("policy", MAIN)
@pytest.mark.parametrize("frozen", [False, True])
def test_in_a_graph(frozen, policy):
    model = Block()
    for norm in (model.norm, model.last):
        norm.requires_grad_(not frozen)
    given = {"input_shape": (3, 6), "optimizer": optim.SGD(0.05, momentum=0.9), "batch": 16}
    net = q.Session(build(model, policy, **given))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 3, 6)).astype(F32)
    y = np.argmax(x.sum(axis=2), axis=1)
    first = q.evaluate(net, x, y)["loss"]
    q.fit(net, x, y, epochs=12, progress=False)
    assert q.evaluate(net, x, y)["loss"] < 0.7 * first
    alone = net.recompile(loss=None, optimizer=None)
    assert alone.predict(x).tobytes() == net.predict(x).tobytes()


def test_conv_and_norm_are_one_requantization_in_inference():
    model = nn.Sequential(nn.Conv1d(3, 4, 3, bias=False), nn.BatchNorm1d(4), nn.ReLU())
    plan = build(model, input_shape=(3, 6), loss=None, optimizer=None)
    kernels = [op.kernel for op in plan.ops]
    assert kernels == ["convert", "product_s32", "fold_norm", "fold_s32", "convert"]
    assert plan.ops[3].flags == 1  # ReLU too
    assert plan.ops[3].places[0] is plan.ops[1].places[0]
    stored = nn.Sequential(model[0], nn.Quant(), model[1])
    kernels = [op.kernel for op in build(stored, input_shape=(3, 6), loss=None, optimizer=None).ops]
    assert kernels[-3:] == ["fold_norm", "fold_s32", "convert"]
    assert kernels.count("convert") == 3


@pytest.mark.parametrize("policy", MAIN)
def test_raw_and_quant_are_one_requantization(policy):
    def plan(**output):
        layers = (nn.Linear(5, 6), nn.Quant(), nn.BatchNorm1d(6, **output), nn.Quant())
        more = (nn.GroupNorm(2, 6, **output), nn.Quant(), nn.Linear(6, 3))
        return build(nn.Sequential(*layers, *more), policy)

    assert plan().to_bytes() == plan(output=q.RAW).to_bytes()


@pytest.mark.parametrize("policy", MAIN)
def test_they_learn(policy):
    """Digits of two classes, told apart by the mean of a channel."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(256, 5)).astype(F32) * 30 + 100
    y = (x[:, 1] > x[:, 3]).astype(int)
    model = nn.Sequential(
        *(nn.BatchNorm1d(5), nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU()),
        *(nn.Linear(16, 8), nn.GroupNorm(2, 8), nn.ReLU(), nn.Linear(8, 3)),
    )
    net = q.Session(build(model, policy, batch=32))
    q.fit(net, x, y, epochs=25, progress=False)
    assert q.evaluate(net, x, y)["accuracy"] > 0.93


# ---- hostile plans that are no change of a valid one ---------------------------------------------


def test_a_fold_takes_other_codes_but_no_other_sums():
    plan = Builder(2)
    a = plan.sym(1, rows=ROWS_AXIS)
    plan.op(CONVERT, a, plan.input)
    made, other = (plan.sym(3, 32, 32, rows=ROWS_OUTER, group=1, shared=1) for _ in range(2))
    plan.op(PRODUCT_S32, made, a, plan.sym(3, role=PARAMETER), p1=1, flags=4)
    factor = plan.tensor(3, role=PARAMETER)
    plan.op(FOLD_S32, made, made, factor)
    assert check(plan.build()) == OK
    plan.op(FOLD_S32, other, made, factor)
    assert check(plan.build()) == Verdict("PLAN", 3, other, OTHER_SUMS)


@pytest.mark.parametrize("kernel", [BATCH_NORM_S32, BATCH_NORM_F32])
def test_the_core_has_a_status_for_one_value_a_channel(kernel):
    """And writes no statistic in inference."""
    plan = case(kernel)
    edited = PlanBytes(plan.build())
    net = Net(edited.sealed())
    assert net.open() == "OK"
    x = np.full(2, 0.5, F32)
    tracked = int(edited.tensors["codes"][plan.tensors[7]])
    out = np.zeros(2, F32)
    assert net.infer(x, 1, out) == "OK"
    assert net.arena[tracked : tracked + 4].view(F32) == 0
    assert net.walk(0, len(net.plan.ops), 1, x=x) == "OK"
    assert net.arena[tracked : tracked + 4].view(F32) == 1
    single = Builder(2)
    row = single.tensor(1, rows=ROWS_AXIS)
    single.op(CONVERT, row, single.input)
    sym = single.sym(1, rows=ROWS_AXIS)
    single.op(CONVERT, sym, row)
    y = single.tensor(1, rows=ROWS_AXIS)
    acc = single.sym(1, 32, 32, rows=ROWS_AXIS)
    floats = kernel == BATCH_NORM_F32
    single.op(kernel, y if floats else acc, row if floats else sym)
    net = Net(single.build())
    assert net.open() == "OK"
    assert net.walk(0, 3, 2, x=x) == "OK"
    assert net.walk(0, 3, 1, x=x) == "BATCH"


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf])
def test_statistics_that_are_none_end_in_a_status(wrong):
    plan = case(FOLD_NORM)
    edited = PlanBytes(plan.build())
    net = Net(edited.sealed())
    assert net.open() == "OK"
    assert net.walk(0, len(net.plan.ops), 1) == "OK"
    at = int(edited.tensors["codes"][plan.tensors[2 if np.isinf(wrong) else 3]])
    net.arena[at : at + 4].view(F32)[:] = wrong
    gamma = int(edited.tensors["codes"][plan.tensors[4]])
    net.arena[gamma : gamma + 2] = 100
    assert net.walk(0, len(net.plan.ops), 1) == "NONFINITE"
