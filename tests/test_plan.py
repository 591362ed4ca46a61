"""A plan before it runs: its print-out, its memory, its bytes; and what is refused."""

import json
import re
from math import prod
from pathlib import Path

import numpy as np
import pytest
from session_helpers import BATCH, CLASSES, INPUTS, POLICIES, data, model, session

import pyqfw as q
from pyqfw import lower, nn, optim
from pyqfw._core import ffi, lib
from pyqfw.errors import QfwError, ShapeError
from pyqfw.lower.ir import LASTING
from pyqfw.lower.memory import NET_BYTES
from pyqfw.plan import build

every_policy = pytest.mark.parametrize("policy", POLICIES)
SIZES = ((INPUTS, 9), (9, 6), (6, CLASSES))  # of the model's weights
ROLES = {
    "parameters": "parameter",
    "gradients": "gradient",
    "state": "state",
    "wires": "wire",
    "errors": "error",
    "scratch": "scratch",
}


def compiled(policy="int8", **changes):
    return session(policy, **changes).plan


def aligned(size):
    return -(-size // 16) * 16


# --- what is printed ------------------------------------------------------------------------------


@every_policy
def test_the_print_out_has_every_operation(policy):
    plan = compiled(policy)
    text = str(plan)
    assert f"batch {BATCH}, seed 0, {plan.policy!r}, SGD(lr=0.1, momentum=0.9" in text
    lines = {int(m[1]): m[0] for m in re.finditer(r"^ *(\d+)  \S.*$", text, re.M)}
    assert list(lines) == list(range(len(plan.ops)))
    for i, op in enumerate(plan.ops):
        target, line = op.places[0], lines[i]
        assert line.split()[1] == op.kernel
        rows = "nx" if target.rows else ""
        wanted = f" {target.name} {rows}{'x'.join(map(str, target.shape))} {target.fmt!r}"
        assert wanted in line
        assert f" {target.nbytes(BATCH)} " in f"{line} "
        assert not op.macs or f" {op.macs} " in f"{line} "
        assert op.note in line
        integer = op.kernel in ("product_s32", "gradient_s32", "gradient_update_s32")
        assert ("headroom" in line) == integer
    for section in ("forward", "output", "backward"):
        assert f"\n{section}\n" in text
    assert ("\nupdate\n" in text) == bool(plan.section("update"))


@every_policy
def test_the_print_out_has_the_memory_table(policy):
    plan = compiled(policy)
    memory, text = plan.memory(), str(plan)
    for name in (*ROLES, "core", "arena", "peak"):
        assert re.search(rf"^  {name} +{memory[name]}\b", text, re.M)
    assert f"live at operation {memory['peak_at']}" in text
    assert f"MACs a row: {plan.macs}; flash: {plan.flash_bytes} bytes" in text


def test_other_print_outs():
    plan = compiled()
    assert repr(plan) == f"<Plan {len(plan.ops)} operations, batch 8, {plan.arena_bytes} bytes>"
    assert "inference alone" in str(compiled(loss=None, optimizer=None))
    assert "no optimizer" in str(compiled(optimizer=None))
    head = session("int8").recompile(train=["5"]).plan
    assert re.search(rf"^  const +{head.memory()['const']} +frozen", str(head), re.M)


def test_a_split_is_printed_and_found():
    wide = q.compile(nn.Linear(4000, 2), input_shape=4000, policy=q.Policy.full_sym())
    assert not wide.findings
    twelve = q.Policy.full_sym().replace(weights=q.Sym(12))
    split = q.compile(nn.Linear(4000, 2), input_shape=4000, policy=twelve)
    (finding,) = split.findings
    assert (finding.code, finding.severity, finding.layer) == ("split-accumulation", "note", "0")
    assert "split: int32 chunks of 512" in str(split)
    assert finding.message in str(split)


# --- memory ---------------------------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_the_numbers_add_up(policy, batch):
    plan = compiled(policy, batch=batch)
    memory = plan.memory()
    assert memory["lasting"] + memory["transient"] == memory["arena"] == plan.arena_bytes
    lasting = memory["parameters"] + memory["gradients"] + memory["state"] + memory["core"]
    assert lasting == memory["lasting"]
    assert memory["lasting"] <= memory["peak"] <= memory["arena"]
    shared = memory["wires"] + memory["errors"] + memory["scratch"]
    assert 0 < memory["transient"] <= shared
    assert memory["const"] == 0
    assert plan.arena_bytes % 16 == 0
    number, kernel = re.fullmatch(r"(\d+): (\w+) \(.*\)", memory["peak_at"]).groups()
    assert plan.ops[int(number)].kernel == kernel


@every_policy
def test_bytes_are_those_of_the_formats(policy):
    """Codes, scales and zero points each begin at a multiple of 16."""
    net = session(policy)
    plan, p = net.plan, POLICIES[policy]
    sums = dict.fromkeys(("parameters", "gradients", "state"), 0)
    for name, values in net.state_dict().items():
        formats = {
            "parameters": p.bias if name.endswith("bias") else p.weights,
            "gradients": p.grads,
            "state": p.state,
        }
        for role, fmt in formats.items():
            if fmt == "fused":
                continue
            scales = 0 if fmt == q.Float32() else prod(fmt.scale_shape(values.shape))
            sums[role] += aligned(fmt.codes_nbytes(values.shape)) + aligned(4 * scales)
            sums[role] += aligned(2 * scales) if fmt.asymmetric else 0
    memory = plan.memory()
    assert {role: memory[role] for role in sums} == sums


@every_policy
def test_what_lives_at_once_lies_apart(policy):
    plan = compiled(policy)
    spans = {id(s.tensor): (s.first, s.last) for s in plan.layout.lifetimes}
    ops = len(plan.ops)
    places = []
    for t in plan.program.tensors:
        if t.space != "arena":
            continue
        first, last = (0, ops) if t.role in LASTING else spans[id(t)]
        for at, size in zip(plan.layout.of(t), t.parts(BATCH), strict=True):
            if size:
                assert at % 16 == 0
                assert NET_BYTES <= at <= plan.arena_bytes - size
                places.append((at, at + size, first, last, t.name))
    over = {(op.used[0].name, op.used[1].name) for op in plan.ops if op.over is not None}
    for i, (begin, end, first, last, name) in enumerate(places):
        for other in places[:i]:
            together = first <= other[3] and other[2] <= last
            apart = end <= other[0] or other[1] <= begin
            pair = {(name, other[-1]), (other[-1], name)} & over
            if pair and not apart:  # codes over the sums that they are made of
                assert first == other[3] or last == other[2]
            else:
                assert not together or apart, (name, other[-1])


@every_policy
def test_the_arena_is_exactly_what_the_core_asks_for(policy):
    plan = compiled(policy)
    net = session(policy)
    size = ffi.new("size_t *")
    assert lib.qfw_arena_size(net._image, size) == lib.QFW_OK
    assert size[0] == plan.arena_bytes
    space = np.zeros(plan.arena_bytes + 64, np.uint8)
    arena = space[-space.ctypes.data % 64 :]
    opened = ffi.new("qfw_net **")
    pointer = ffi.from_buffer(arena)
    short = lib.qfw_open(pointer, plan.arena_bytes - 1, net._image, opened)
    assert short == lib.QFW_E_ARENA
    assert lib.qfw_open(pointer, plan.arena_bytes, net._image, opened) == lib.QFW_OK


def test_smaller_formats_take_less():
    float32, full_sym, int8, fused = (
        compiled(name).arena_bytes for name in ("float32", "full_sym", "int8", "int8 fused")
    )
    assert fused < int8 < full_sym < float32


# --- counts ---------------------------------------------------------------------------------------


@every_policy
def test_macs(policy):
    """Forward and weight gradients of every layer, errors of all but the first."""
    forward = sum(a * b for a, b in SIZES)
    assert compiled(policy).macs == 2 * forward + sum(a * b for a, b in SIZES[1:])
    assert compiled(policy, batch=3).macs == compiled(policy).macs
    assert compiled(policy, loss=None, optimizer=None).macs == forward
    head = session(policy).recompile(train=["5"]).plan
    assert head.macs == forward + SIZES[2][0] * SIZES[2][1]


def test_macs_on_more_axes():
    plan = q.compile(nn.Linear(5, 3), input_shape=(4, 2, 5))
    assert plan.macs == 8 * 15


@every_policy
def test_sections(policy):
    plan = compiled(policy)
    ranges = [plan.section(name) for name in ("forward", "output", "backward", "update")]
    assert [i for r in ranges for i in r] == list(range(len(plan.ops)))
    assert [op for r in ranges for op in plan.ops[r.start : r.stop]] == plan.ops
    moved = [op for op in plan.ops if any(t.role == "parameter" for t in op.written)]
    where = ranges[2] if POLICIES[policy].grads == "fused" else ranges[3]
    assert all(plan.ops.index(op) in where for op in moved)
    assert len(moved) == len(plan.program.parameters)
    with pytest.raises(QfwError, match="section must be one of 'forward', 'output', 'backward'"):
        plan.section("infer")


def test_flash():
    plan = compiled()
    assert plan.flash_bytes == len(plan.to_bytes())
    head = session("int8").recompile(train=["5"]).plan
    assert head.flash_bytes == len(head.to_bytes()) + head.memory()["const"]
    assert head.memory()["const"] > 0


# --- bytes and JSON -------------------------------------------------------------------------------


@every_policy
def test_equal_requests_give_equal_plans(policy):
    a, b = compiled(policy), compiled(policy)
    assert a.to_bytes() == a.to_bytes() == b.to_bytes()
    assert str(a) == str(b)
    assert a.to_json() == b.to_json()
    for changes in ({"batch": 5}, {"seed": 1}, {"optimizer": optim.SGD(0.1)}):
        assert compiled(policy, **changes).to_bytes() != a.to_bytes()


class TwoWays(nn.Module):
    def __init__(self):
        self.conv = nn.Conv1d(2, 1, 3, padding="same")
        self.one, self.two = nn.Softmax(-1), nn.Softmax(-1)
        self.relu, self.flat, self.cat = nn.ReLU(), nn.Flatten(), nn.Concat(1)

    def forward(self, x):
        return self.cat(self.flat(self.one(self.conv(x))), self.flat(self.relu(self.two(x))))


@pytest.mark.parametrize("watching", [False, True])
def test_what_lowering_threw_away_is_not_remembered(watching):
    """Tensors that are made and dropped on the way leave their addresses to others: one that was
    known by its address would be taken for another now and then."""
    gone = q.Sym(16, range="hindsight")
    policy = q.Policy.int8().replace(wires=gone, errors=gone, weights=q.Asym(7, group=4))
    request = q.compile(
        TwoWays(), input_shape=(2, 6), loss=nn.MSELoss(), optimizer=optim.SGD(0.1), policy=policy
    ).request
    held, plans = [], set()
    for i in range(200):
        held.append(bytearray(64 + 8 * (i % 50)))  # other addresses are free each time
        plan = build(request, watching)
        plans.add((plan.to_bytes(), tuple(w.gain for w in plan.program.watched)))
        del held[:: 1 + i % 3]
    assert len(plans) == 1


def test_lowering_knows_tensors_by_themselves():
    for file in Path(lower.__file__).parent.glob("*.py"):
        assert not re.search(r"\bid\(", file.read_text()), file.name


@every_policy
def test_json(policy):
    plan = compiled(policy)
    found = json.loads(plan.to_json())
    assert json.loads(plan.to_json(indent=2)) == found
    assert found["arena_bytes"] == plan.arena_bytes
    assert found["flash_bytes"] == plan.flash_bytes
    assert found["macs"] == plan.macs
    assert found["memory"] == plan.memory()
    assert found["policy"] == repr(plan.policy)
    assert found["loss"] == "CrossEntropyLoss()"
    assert (found["batch"], found["seed"], found["input_shape"]) == (BATCH, 0, [INPUTS])
    assert [layer["path"] for layer in found["layers"]] == ["0", "1", "2", "3", "4", "5"]
    ops = [op for section in found["sections"].values() for op in section]
    assert [op["kernel"] for op in ops] == [op.kernel for op in plan.ops]
    assert sum(op["macs"] for op in ops) == plan.macs
    assert [op["note"] for op in ops] == [op.note for op in plan.ops]
    tensors = found["tensors"]
    for op, real in zip(ops, plan.ops, strict=True):
        names = [None if i is None else tensors[i]["name"] for i in op["tensors"]]
        assert names == [None if t is None else t.name for t in real.places]
    for name, role in ROLES.items():
        there = [t["bytes"] for t in tensors if t["role"] == role and t["space"] == "arena"]
        assert sum(there) == plan.memory()[name]
    assert all(max(t["offsets"]) < plan.arena_bytes for t in tensors)


def test_json_of_an_inference_plan():
    found = json.loads(compiled(loss=None, optimizer=None).to_json())
    assert found["loss"] is None
    assert found["optimizer"] is None
    assert found["sections"]["backward"] == found["sections"]["update"] == []


# --- compile --------------------------------------------------------------------------------------


def test_compile_leaves_the_model_alone():
    layers = model()
    before = (repr(layers), [layer.requires_grad for layer in layers])
    first = session("int8", model=layers)
    first.step(*data())
    first.recompile(train=["5"]).step(*data())
    assert (repr(layers), [layer.requires_grad for layer in layers]) == before
    again = session("int8", model=layers)
    assert again.plan.to_bytes() == first.plan.to_bytes()
    assert again.tensor("0.weight").data == session("int8").tensor("0.weight").data


def test_initial_weights():
    """PyTorch's range; another for every name and every seed, the same under every policy."""
    net = session()
    for name, values in net.state_dict().items():
        bound = 1 / np.sqrt({"0": INPUTS, "2": 9, "5": 6}[name[0]])
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.5 * bound
    other = session(seed=1).state_dict()
    assert all((values != other[name]).all() for name, values in net.state_dict().items())
    floats = session("floats stored, integers computed").state_dict()
    assert all((values == floats[name]).all() for name, values in net.state_dict().items())


RAW = nn.Sequential(nn.Linear(4, 3, output=q.RAW), nn.ReLU(), nn.Linear(3, 2))
FROZEN = nn.Sequential(nn.Linear(4, 2)).requires_grad_(False)
HINDSIGHT = q.Sym(8, range="hindsight")
BAD_PLANS = {
    "no layers": ({"model": nn.Sequential()}, QfwError, "empty model"),
    "no model": ({"model": None}, QfwError, "model must be a layer"),
    "a class": ({"model": nn.Linear}, QfwError, "model must be a layer"),
    "batch 0": ({"batch": 0}, QfwError, r"batch must be 1\.\."),
    "half a batch": ({"batch": 1.5}, QfwError, "batch must be an integer"),
    "a huge batch": ({"batch": 2**25}, QfwError, r"batch must be 1\.\."),
    "seed -1": ({"seed": -1}, QfwError, r"seed must be 0\.\."),
    "seed 2^32": ({"seed": 2**32}, QfwError, r"seed must be 0\.\."),
    "shape ()": ({"input_shape": ()}, ShapeError, "input_shape must be a tuple of sizes >= 1"),
    "shape 0": ({"input_shape": (0,)}, ShapeError, "input_shape must be a tuple of sizes >= 1"),
    "shape 4.0": ({"input_shape": 4.0}, ShapeError, "input_shape must be a tuple of sizes"),
    "shape text": ({"input_shape": "4"}, ShapeError, "input_shape must be a tuple of sizes"),
    "shape with rows": ({"input_shape": (8, 4, 3)}, ShapeError, "layer '0'"),
    "a loss class": ({"loss": nn.CrossEntropyLoss}, QfwError, "loss must be nn.CrossEntropyLoss()"),
    "a loss name": ({"loss": "cross_entropy"}, QfwError, "loss must be nn.CrossEntropyLoss()"),
    "an optimizer without a loss": ({"loss": None}, QfwError, "an optimizer needs a loss"),
    "an optimizer's name": ({"optimizer": "sgd"}, QfwError, r"optimizer must be optim\.SGD\("),
    "a policy's name": ({"policy": "int8"}, QfwError, r"policy must be a q\.Policy"),
    "all frozen": ({"model": FROZEN}, QfwError, "nothing learns: every parameter is frozen"),
    "nothing to learn": ({"model": nn.Flatten()}, QfwError, "nothing learns"),
    "an input in hindsight": (
        {"policy": q.Policy.int8().replace(input=HINDSIGHT)},
        QfwError,
        "input=.*hindsight.*choose",
    ),
    "hindsight of rows": (
        {
            "model": nn.Quant(HINDSIGHT),
            "policy": q.Policy.int8().replace(input=q.Sym(8, axis="row")),
            "loss": None,
            "optimizer": None,
        },
        QfwError,
        "layer '.*': wires=.*hindsight.*'input:wire' has several: choose",
    ),
    "more micro-batches than rows": (
        {"batch": 4, "micro_batches": 5},
        QfwError,
        r"micro_batches must be 1\.\.4",
    ),
    "preprocess": ({"preprocess": abs}, QfwError, "preprocess must be a q.data.Standardize"),
    "preprocess of other channels": (
        {"preprocess": q.data.Standardize([0, 0], [1, 1])},
        ShapeError,
        r"2 channels were standardised, and a sample has the shape \(4,\)",
    ),
    "RAW into a layer": ({"model": RAW}, QfwError, r"layer '0' has output=RAW, but '2'"),
    "RAW into the loss": (
        {"model": RAW[:2]},
        QfwError,
        "layer '0' has output=RAW, but no nn.Quant",
    ),
    "fused without an optimizer": (
        {"optimizer": None, "policy": POLICIES["int8 fused"]},
        QfwError,
        "layer '0': grads=\"fused\" needs an optimizer",
    ),
    "an output of two axes": (
        {"input_shape": (3, 4)},
        ShapeError,
        r"CrossEntropyLoss\(\): .*\(3, 2\)",
    ),
}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_bad_plans(case):
    changes, kind, message = BAD_PLANS[case]
    given = {
        "model": nn.Linear(4, 2),
        "input_shape": 4,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": optim.SGD(0.1),
        **changes,
    }
    with pytest.raises(kind, match=message):
        q.compile(given.pop("model"), **given)


def test_a_plan_that_no_machine_holds():
    with pytest.raises(QfwError, match=r"needs \d+ bytes of arena; 2\^31 - 1 is the most"):
        q.compile(nn.Linear(100, 100), input_shape=100, batch=2**24)
