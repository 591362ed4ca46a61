"""Threads change the time of a step, never a bit of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import stepgold
from device_nets import har

import pyqfw as q
from pyqfw import nn, quant
from pyqfw._core import lib

Array = np.ndarray[Any, Any]
BATCH = 11
ROWS = (11, 6, 11, 2, 1, 5)  # of the steps of a test
ISAS = quant.core_info()["isas"]
POLICIES = {
    "int8": q.Policy.int8(),
    "fused": q.Policy.int8().replace(grads="fused"),
    "full_sym": q.Policy.full_sym(),
    "float32": q.Policy.float32(),
    "hindsight": q.Policy.int8().replace(wires=q.Sym(8, range="hindsight")),
    "fixed": q.Policy.int8().replace(
        wires=q.Sym(8, range=4.0, rounding="stochastic"),
        errors=q.Sym(8, range=0.1, rounding="stochastic"),
    ),
    "rows": q.Policy.int8().replace(
        wires=q.Sym(8, axis="row"), errors=q.Sym(8, axis="row", rounding="stochastic")
    ),
}


def eager(net: q.Session) -> q.Session:
    """Splits whatever can be, however small."""
    lib.qfw_host_pool_least(net._pool, 1)
    return net


def splits(net: q.Session) -> int:
    return int(lib.qfw_host_pool_splits(net._pool))


def state(net: q.Session) -> bytes:
    """All that lasts, and how far the net is."""
    return net._spaces.lasting().tobytes() + repr((net.steps, net.lr)).encode()


def images(policy: q.Policy, threads: int = 1, batch: int = 64, **changes: Any) -> q.Session:
    """A network whose operations are long enough as they are."""
    given: dict[str, Any] = {
        "input_shape": (9, 128),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": q.optim.SGD(0.02, momentum=0.9),
        "policy": policy,
        "batch": batch,
        "seed": 1,
        **changes,
    }
    return q.Session(q.compile(har(), **given), threads=threads)


def windows(rows: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 9, 128)).astype(np.float32)
    return x, rng.integers(0, 6, rows).astype(np.int32)


# --- the same bits --------------------------------------------------------------------------------


def check_steps(name: str, threads: int) -> int:
    """Steps of a network of tests/stepgold.py; how many operations were split."""
    network = stepgold.NETWORKS[name]
    small = network.session()
    batch = BATCH * small.plan.micro_batches
    one = small.recompile(batch=batch)
    many = eager(small.recompile(batch=batch, threads=threads))
    for i, rows in enumerate(ROWS):
        k = rows * small.plan.micro_batches
        if k == 1 and "batch_norm" in {op.kernel[:10] for op in one.plan.ops}:
            continue  # one value a channel has no variance
        x, y = network.data(i, k)
        assert many.step(x, y) == one.step(x, y)
        assert state(many) == state(one), f"step {i}, {k} rows"
    x, _ = network.data(99, 3)
    assert many.predict(x).tobytes() == one.predict(x).tobytes()
    return splits(many)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("name", stepgold.NETWORKS)
def test_every_network_has_the_bits_of_one_thread(name, threads):
    check_steps(name, threads)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "name", ["int8_momentum", "conv", "conv_full_sym", "pools", "pools_float32", "adamw_fused"]
)
def test_on_every_isa(name, isa):
    with quant.isa(isa):
        assert check_steps(name, 2) > 0


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_large_network(policy, threads):
    one, many = images(POLICIES[policy]), images(POLICIES[policy], threads)
    for i, rows in enumerate((64, 64, 7, 33, 1)):
        x, y = windows(rows, i)
        assert many.step(x, y) == one.step(x, y)
        assert state(many) == state(one)
    assert splits(many) > 30


def test_more_threads_than_rows_and_cores():
    one, many = images(q.Policy.int8(), batch=5), eager(images(q.Policy.int8(), 16, batch=5))
    for i in range(3):
        assert many.step(*windows(5, i)) == one.step(*windows(5, i))
    assert state(many) == state(one)


def test_sections_by_hand():
    policy = POLICIES["int8"]
    one, many = images(policy, batch=32), images(policy, 2, batch=32)
    for i in range(3):
        x, y = windows(32, i)
        assert many.forward(x).tobytes() == one.forward(x).tobytes()
        for layer in ("2", "5", "6"):
            assert many.wire(layer).data == one.wire(layer).data
        assert many.backward(y) == one.backward(y)
        for name in ("0.weight", "6.weight", "6.bias"):
            assert many.grad(name).data == one.grad(name).data
        many.update()
        one.update()
    assert state(many) == state(one)


def test_a_trace_shows_the_same_tensors():
    one, many = images(q.Policy.int8()), images(q.Policy.int8(), 2)
    x, y = windows(64)
    for (op, found), (_, wanted) in zip(many.trace(x, y), one.trace(x, y), strict=True):
        assert found.keys() == wanted.keys()
        for name, tensor in found.items():
            assert tensor.data == wanted[name].data, f"{op.kernel}: {name}"
    many.step(x, y)
    one.step(x, y)
    assert state(many) == state(one)
    assert splits(many) > 0


def test_fit_evaluate_predict():
    x, y = windows(150)
    one, many = images(q.Policy.int8()), images(q.Policy.int8(), 2)
    for net in (one, many):
        q.fit(net, x, y, epochs=2, progress=False)
    assert state(many) == state(one)
    assert q.evaluate(many, x, y) == q.evaluate(one, x, y)
    assert many(x).tobytes() == one(x).tobytes()


def test_counters_count_the_same():
    one, many = images(q.Policy.int8(), batch=16), images(q.Policy.int8(), 2, batch=16)
    for net in (one, many):
        net.count()
        for i in range(2):
            net.step(*windows(16, i))
    assert many.counters() == one.counters()
    assert state(many) == state(one)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["int8", "float32", "full_sym"])
@pytest.mark.parametrize("row", [0, 31, 63])
def test_a_nan_leaves_the_session_as_it_was(policy, row):
    net = images(POLICIES[policy], 2)
    net.step(*windows(64))
    before = state(net)
    x, y = windows(64, 1)
    x[row, 3, 100] = np.nan
    with pytest.raises(q.NonFiniteError, match=rf"\[{row}, 3, 100\]"):
        net.step(x, y)
    assert state(net) == before
    y[row] = 6
    with pytest.raises(q.QfwError, match="label"):
        net.step(windows(64, 1)[0], y)
    assert state(net) == before
    one = images(POLICIES[policy])
    for i in range(3):
        if i > 0:
            net.step(*windows(64, i))
        one.step(*windows(64, i))
    assert state(net) == state(one)


@pytest.mark.parametrize("policy", ["float32", "full_sym"])
def test_a_network_that_diverged(policy):
    def diverged(threads: int) -> tuple[str, bytes]:
        net = images(POLICIES[policy], threads, optimizer=q.optim.SGD(1e30))
        for i in range(20):
            before = state(net)
            try:
                net.step(*windows(64, i))
            except q.NonFiniteError as e:
                assert state(net) == before
                return str(e), before
        return "", state(net)

    assert diverged(2) == diverged(1)


# --- the argument ---------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1, 65, 10**9, True, 1.5, "2", None])
def test_what_is_no_number_of_threads(threads, tmp_path):
    net = stepgold.NETWORKS["int8_momentum"].session()
    net.save(tmp_path / "net.safetensors")
    for make in (
        lambda: q.Session(net.plan, threads=threads),
        lambda: q.Session.load(tmp_path / "net.safetensors", threads=threads),
        lambda: net.recompile(threads=threads if threads is not None else 0),
    ):
        with pytest.raises(q.QfwError, match=r"threads must be (an integer )?1\.\.64"):
            make()


def test_where_the_number_goes(tmp_path):
    net = stepgold.NETWORKS["int8_momentum"].session()
    many = q.Session(net.plan, threads=2)
    assert (net.threads, many.threads) == (1, 2)
    assert "2 threads" in repr(many)
    assert "thread" not in repr(net)
    assert many.recompile(batch=2).threads == 2
    assert many.recompile(threads=1).threads == 1
    assert net.recompile(threads=3).threads == 3
    many.save(tmp_path / "many")
    net.save(tmp_path / "one")
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
    assert q.Session.load(tmp_path / "many").threads == 1
    assert q.Session.load(tmp_path / "many", threads=2).threads == 2


# --- threads of the system ------------------------------------------------------------------------


def run(program: str) -> str:
    """The output of a Python program; it must end by itself."""
    text = textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd="/",  # not a checkout
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_threads_end_with_their_session():
    def alive() -> int:
        return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0

    gc.collect()
    before = alive()
    nets = [images(q.Policy.int8(), 3, batch=4) for _ in range(3)]
    for net in nets:
        net.step(*windows(4))
    if before:
        assert alive() == before + 6
    del net, nets
    gc.collect()
    assert alive() == before


def test_sessions_in_python_threads():
    def trained(seed: int, threads: int) -> bytes:
        net = images(q.Policy.int8(), threads, batch=16, seed=seed)
        for i in range(8):
            net.step(*windows(16, i))
        return state(net)

    wanted = [trained(seed, 1) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda seed: trained(seed, 2), range(6)))
    assert found == wanted


def test_a_session_moves_between_python_threads():
    one, many = images(q.Policy.int8(), batch=16), images(q.Policy.int8(), 2, batch=16)
    for i in range(4):
        one.step(*windows(16, i))
        worker = threading.Thread(target=many.step, args=windows(16, i))
        worker.start()
        worker.join()
    assert state(many) == state(one)


def test_two_at_once_do_not_hang():
    """It is no use, as both write one net; but it ends, and the pool serves the next."""
    net = images(q.Policy.int8(), 2, batch=16)

    def steps() -> None:
        for i in range(10):
            with suppress(q.QfwError):
                net.forward(windows(16, i)[0])

    workers = [threading.Thread(target=steps) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    before = splits(net)
    net.forward(windows(16)[0])
    assert splits(net) > before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_after_a_fork():
    """The child has no threads of the pool; it goes on alone, with the same bits, and ends."""
    out = run("""
        import os, zlib
        import numpy as np
        import pyqfw as q
        from pyqfw import nn

        model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
        plan = q.compile(model, input_shape=(256,), loss=nn.CrossEntropyLoss(),
                         optimizer=q.optim.SGD(0.1), policy=q.Policy.int8(), batch=64)
        net = q.Session(plan, threads=3)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(64, 256)).astype(np.float32), rng.integers(0, 4, 64)
        net.step(x, y)
        for pause in (0.0, 0.05):  # threads that spin, threads that sleep
            import time
            time.sleep(pause)
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                for _ in range(5):
                    net.step(x, y)
                os.write(write, b"%08x" % zlib.crc32(net._spaces.lasting().tobytes()))
                del net
                raise SystemExit(0)
            assert os.waitpid(child, 0)[1] == 0
            for _ in range(5):
                net.step(x, y)
            here = b"%08x" % zlib.crc32(net._spaces.lasting().tobytes())
            assert os.read(read, 8) == here
        print("done")
    """)
    assert out == "done\n"


def test_a_program_ends_with_sessions_alive():
    out = run("""
        import numpy as np
        import pyqfw as q
        from pyqfw import nn

        model = nn.Sequential(nn.Linear(8, 4))
        plan = q.compile(model, input_shape=(8,), loss=nn.CrossEntropyLoss(),
                         optimizer=q.optim.SGD(0.1), batch=4)
        nets = [q.Session(plan, threads=2) for _ in range(3)]
        nets[0].step(np.zeros((4, 8), np.float32), [0, 1, 2, 3])
        loop = [nets]
        loop.append(loop)
        print("done")
    """)
    assert out == "done\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_threads_that_the_system_refuses():
    """The error has a name, nothing is left behind, and one thread still works."""
    out = run("""
        import os, resource
        import numpy as np
        import pyqfw as q
        from pyqfw import nn

        plan = q.compile(nn.Sequential(nn.Linear(8, 4)), input_shape=(8,),
                         loss=nn.CrossEntropyLoss(), optimizer=q.optim.SGD(0.1), batch=4)
        before = len(os.listdir("/proc/self/task"))
        pages = int(open("/proc/self/statm").read().split()[0])
        room = pages * os.sysconf("SC_PAGE_SIZE") + 64 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        try:
            q.Session(plan, threads=64)
        except q.QfwError as e:
            assert str(e) == "threads=64: the system did not start as many threads", e
        else:
            raise AssertionError("it did")
        assert len(os.listdir("/proc/self/task")) == before
        q.Session(plan).step(np.zeros((4, 8), np.float32), [0, 1, 2, 3])
        print("done")
    """)
    assert out == "done\n"
