"""Why sums are split: 4000 products of int12 leave int32, and the kernel alone wraps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyqfw as q
from pyqfw import _core, nn
from pyqfw._core import ffi, lib

TERMS, LARGEST = 4000, 2047

UNSPLIT = f"""
import numpy as np
from pyqfw._core import ffi, lib
a = np.full({TERMS}, {LARGEST}, np.int16)
out = np.zeros(1, np.int32)
g = ffi.new("qfw_gemm *")
g.a = g.b = ffi.from_buffer(a)
g.a_width = g.b_width = 16
g.m = g.n = 1
g.k = g.a_row = g.b_row = {TERMS}
g.a_col, g.b_row, g.b_col = 1, 1, {TERMS}
assert lib.qfw_gemm_s32(lib.qfw_kernels_portable(), g, ffi.from_buffer("int32_t[]", out)) == 0
print(int(out[0]))
"""


def instrumented() -> bool:
    """Whether the core under test was built with the sanitizer for undefined behaviour."""
    return b"__ubsan_handle_add_overflow" in Path(_core.__file__).read_bytes()


def test_without_the_split_the_sum_overflows(tmp_path: Path) -> None:
    run = [sys.executable, "-c", UNSPLIT]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    exact = TERMS * LARGEST**2
    assert exact > 2**31
    if instrumented():
        assert done.returncode != 0
        assert "signed integer overflow" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == (exact + 2**31) % 2**32 - 2**31  # wrapped: not the sum


@pytest.mark.parametrize("bias", [False, True])
def test_through_the_split_it_is_exact_but_for_one_rounded_shift(bias: bool) -> None:
    fmt = q.Sym(12, container=16)
    policy = q.Policy.full_sym().replace(weights=fmt, input=fmt, wires=fmt)
    model = nn.Sequential(nn.Linear(TERMS, 3, bias=bias))
    net = q.Session(q.compile(model, input_shape=(TERMS,), policy=policy, batch=2))
    assert "split: int32 chunks of 512" in str(net.plan)
    assert [f.code for f in net.plan.findings] == ["split-accumulation"]
    rng = np.random.default_rng(0)
    w = rng.integers(-LARGEST, LARGEST + 1, (3, TERMS))
    w[0], w[1], w[:, 0] = (
        LARGEST,
        -LARGEST,
        LARGEST,
    )  # the largest sums there are, and a known scale
    values = {"0.weight": w.astype(np.float32)}
    if bias:
        values["0.bias"] = np.zeros(3, np.float32)
    net.load_state_dict(values)
    assert np.array_equal(net.tensor("0.weight").codes, w)
    x = np.full((2, TERMS), LARGEST, np.float32)
    x[1] = rng.integers(-LARGEST, LARGEST + 1, TERMS)
    x[1, 0] = LARGEST
    net.forward(x)
    acc = net.wire("0")
    exact = x.astype(np.int64) @ w.T.astype(np.int64)
    limit = 2**30 - 1 if bias else 2**31 - 1
    shift = next(h for h in range(32) if -(-TERMS * LARGEST**2 // 2**h) <= limit)
    half = 2 ** (shift - 1)
    rounded = np.sign(exact) * ((np.abs(exact) + half) >> shift)
    assert shift > 0
    assert np.array_equal(acc.codes, rounded)
    assert np.all(np.asarray(acc.scale) == np.float32(2.0**shift))


def test_the_kernel_is_exact_up_to_the_proof() -> None:
    """512 products of int12 are just within int32."""
    a = np.full(512, LARGEST, np.int16)
    out = np.zeros(1, np.int32)
    g = ffi.new("qfw_gemm *")
    g.a = g.b = ffi.from_buffer(a)
    g.a_width = g.b_width = 16
    g.m = g.n = 1
    g.k, g.a_row, g.a_col, g.b_row, g.b_col = 512, 512, 1, 1, 512
    for isa in range(lib.QFW_ISA_COUNT):
        table = lib.qfw_host_kernels(isa)
        if table != ffi.NULL:
            assert lib.qfw_gemm_s32(table, g, ffi.from_buffer("int32_t[]", out)) == lib.QFW_OK
            assert int(out[0]) == 512 * LARGEST**2 <= 2**31 - 1
