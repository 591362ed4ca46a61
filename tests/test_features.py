"""A core compiled for one plan: the bytes of a session, and no other plan."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stepgold

import pyqfw as q
from pyqfw import nn, wire
from pyqfw._core import lib
from pyqfw._spaces import aligned
from pyqfw.features import features
from pyqfw.firmware.image import image_of
from pyqfw.firmware.sources import ENTRIES
from pyqfw.firmware.sources import needed as files_of
from pyqfw.lower.ir import ROLES
from pyqfw.lower.memory import NET_BYTES

CSRC = Path(__file__).resolve().parents[1] / "csrc"
CONFIG = (CSRC / "base" / "config.h").read_text()
STEPS = 5


class Image(ctypes.Structure):
    _fields_ = (
        ("plan", ctypes.c_void_p),
        ("plan_bytes", ctypes.c_size_t),
        ("constants", ctypes.c_void_p),
        ("const_bytes", ctypes.c_size_t),
        ("kernels", ctypes.c_void_p),
        ("ops", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("state_bytes", ctypes.c_size_t),
    )


def mlp(
    policy: q.Policy,
    batch: int = 1,
    lr: float = 0.05,
    momentum: float = 0.0,
    sizes: tuple[int, int, int] = (19, 9, 4),
) -> q.Session:
    model = nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:]))
    plan = q.compile(
        model,
        input_shape=sizes[:1],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr, momentum=momentum),
        policy=policy,
        batch=batch,
    )
    return q.Session(plan)


FUSED = q.Policy.int8().replace(grads="fused")
NETS = {
    "mlp": lambda: mlp(FUSED),
    "mlp_far": lambda: mlp(FUSED, lr=30.0),
    "mlp_momentum": lambda: mlp(FUSED, 4, momentum=0.9),
    "mlp_full_sym": lambda: mlp(q.Policy.full_sym()),
    "mlp_float32": lambda: mlp(q.Policy.float32()),
    "groups": lambda: stepgold.NETWORKS["groups_and_zero_points"].session(),
    "conv": lambda: stepgold.NETWORKS["conv_fused"].session(),
}


OPS = """\
#include "engine/engine.h"
static const qfw_op_line lines[] = {{{lines}}};
const qfw_ops own = {{lines, sizeof lines / sizeof lines[0]}};
"""


def compiled(folder: Path, net: q.Session, macros: dict[str, int]) -> ctypes.CDLL:
    """What the net needs of the portable core as a library, with these macros."""
    names = image_of(net).operations
    own = folder / "ops.c"
    own.write_text(OPS.format(lines=", ".join(f"QFW_OP_LINE({name})" for name in names)))
    core = files_of(names, (*ENTRIES, "qfw_set_counters"))
    sources = [str(own), *(str(f) for f in core if f.suffix == ".c")]
    made = folder / "core.so"
    compiler = shutil.which("cc")
    assert compiler is not None
    flags = ["-std=c99", "-O1", "-w", "-shared", "-fPIC", "-DNDEBUG", "-ffp-contract=off"]
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    rooms = [f"-I{CSRC}", f"-I{CSRC / 'include'}"]
    subprocess.run(
        [compiler, *flags, *defines, *rooms, *sources, "-lm", "-o", str(made)], check=True
    )
    return ctypes.CDLL(str(made))


def opened(
    core: ctypes.CDLL, net: q.Session, plan_bytes: bytes | None = None
) -> tuple[int, Any, list[Any]]:
    """Status and net, over the parameters of the session; the arena comes first of what it uses."""
    plan, const = aligned(plan_bytes or image_of(net).own_plan), net._spaces.const
    arena = aligned(bytes(net.plan.arena_bytes))
    used = net.plan.layout.const_bytes
    ops = ctypes.addressof(ctypes.c_char.in_dll(core, "own"))
    image = Image(plan.ctypes.data, plan.size, const.ctypes.data, used, None, ops, None, 0)
    at = ctypes.c_void_p()
    status = core.qfw_open(
        ctypes.c_void_p(arena.ctypes.data),
        ctypes.c_size_t(arena.size),
        ctypes.byref(image),
        ctypes.byref(at),
    )
    lasting = net._spaces.lasting()
    arena[NET_BYTES : NET_BYTES + lasting.size] = lasting
    return status, at, [arena, plan, image]


def stepped(
    core: ctypes.CDLL, at: Any, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], loss: Any
) -> int:
    status: int = core.qfw_step(
        at,
        ctypes.c_void_p(x.ctypes.data),
        ctypes.c_void_p(y.ctypes.data),
        ctypes.c_uint32(len(y)),
        ctypes.byref(loss),
    )
    return status


@pytest.mark.parametrize("name", NETS)
def test_a_core_for_one_plan_gives_its_bytes(name: str, tmp_path: Path) -> None:
    net = NETS[name]()
    core = compiled(tmp_path, net, features(net.plan) | {"QFW_SOFT_FLOAT": 1})
    status, at, held = opened(core, net)
    assert status == lib.QFW_OK
    assert features(net.plan)["QFW_LASTING_BYTES"] == net._spaces.lasting().size
    rows, shape = net.plan.request.batch, net.plan.request.input_shape
    loss = ctypes.c_float()
    for i in range(STEPS):
        x, y = stepgold.data(100 + i, rows)
        x = x.reshape(rows, *shape)
        expected = net.step(x, y)
        fed = np.ascontiguousarray(net._fed(x))
        assert stepped(core, at, fed, y, loss) == lib.QFW_OK
        assert np.float32(loss.value) == np.float32(expected)
        lasting = net._spaces.lasting()
        assert held[0][NET_BYTES : NET_BYTES + lasting.size].tobytes() == lasting.tobytes()


def test_scales_that_came_in_are_looked_at(tmp_path: Path) -> None:
    net, loss = mlp(FUSED), ctypes.c_float()
    core = compiled(tmp_path, net, features(net.plan))
    status, at, held = opened(core, net)
    assert status == lib.QFW_OK
    x, y = stepgold.data(100, 1)
    data = net.plan.to_bytes()
    offsets = set()
    for i in range(wire.HEADER.unpack_from(data)[9]):
        field = wire.TENSOR.unpack_from(data, wire.HEADER.size + i * wire.TENSOR.size)
        if field[1] <= ROLES.index("state"):
            offsets.add(field[17])
    assert len(offsets) == 4
    for offset in offsets:
        scale = held[0][offset : offset + 4].view(np.float32)
        whole = scale[0]
        for bad in (0.0, -1.0, 2.0**-127, np.inf, np.nan):
            scale[0] = bad
            assert stepped(core, at, x, y, loss) == lib.QFW_E_SCALE
        scale[0] = whole
    lasting = net._spaces.lasting()
    assert held[0][NET_BYTES : NET_BYTES + lasting.size].tobytes() == lasting.tobytes()
    assert stepped(core, at, x, y, loss) == lib.QFW_OK


def test_another_plan_is_refused(tmp_path: Path) -> None:
    core = compiled(tmp_path, mlp(FUSED), features(mlp(FUSED).plan))
    assert opened(core, mlp(FUSED, 2))[0] == lib.QFW_E_FEATURE
    assert (
        core.qfw_set_counters(opened(core, mlp(FUSED))[1], None, ctypes.c_size_t(0)) == lib.QFW_OK
    )


def test_the_macros_are_those_of_the_core() -> None:
    known = set(re.findall(r"#ifndef (QFW_\w+)", CONFIG)) - {"QFW_BASE_CONFIG_H", "QFW_SOFT_FLOAT"}
    assert set(features(mlp(FUSED).plan)) == known | {"QFW_PLAN_CRC"}


def test_a_bit_that_is_flipped_is_seen(tmp_path: Path) -> None:
    """Of a plan in narrow records."""
    net = mlp(FUSED)
    core = compiled(tmp_path, net, features(net.plan))
    plan = bytearray(image_of(net).own_plan)
    for i in range(len(plan)):
        plan[i] ^= 1 << i % 8
        assert opened(core, net, bytes(plan))[0] != lib.QFW_OK
        plan[i] ^= 1 << i % 8
    assert opened(core, net, bytes(plan))[0] == lib.QFW_OK


def needed(net: q.Session) -> set[str]:
    return {name for name, used in features(net.plan).items() if used and "HAS" in name}


def test_a_plain_network_needs_little() -> None:
    assert needed(mlp(FUSED)) == {"QFW_HAS_S16_S8", "QFW_HAS_RESTS", "QFW_HAS_ODD_ROWS"}
    assert needed(mlp(FUSED, sizes=(64, 32, 10))) == {"QFW_HAS_S16_S8"}
    assert "QFW_HAS_RESTS" in needed(mlp(FUSED, sizes=(64, 36, 10)))  # terms beyond eights
    assert "QFW_HAS_RESTS" in needed(mlp(FUSED, sizes=(64, 32, 9)))  # an odd column
    assert "QFW_HAS_OUTER" in needed(mlp(FUSED, batch=2))
    by_rows = FUSED.replace(wires=q.Sym(8, axis="row"))
    assert {"QFW_HAS_OUTER", "QFW_HAS_FLOAT_RUNS"} <= needed(mlp(by_rows))
