"""The affine family against PyTorch: the same bits, forward and backward, ties included.

PyTorch multiplies by float32(1 / scale), rounds half to even, adds the zero point, clamps. Its
backward multiplies dy by the mask, so that a blocked negative gradient is -0.0; so is ours.
"""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyqfw import bench, bench_quant, quant

RANGES = {
    "int8": (-128, 127),
    "int8 narrow": (-127, 127),
    "uint8": (0, 255),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "one bit": (0, 1),
    "one code": (3, 3),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
}
SCALES = (1.0, 0.125, 0.1, 1 / 3, 0.0078125, 0.007843138, 1e-6, 3e4, 1.2e-38, 1e30)
BITS = {"float32": np.int32, "float64": np.int64, "float16": np.int16, "bfloat16": np.int16}
ISAS = quant.core_info()["isas"]


@pytest.fixture(params=ISAS, autouse=True)
def isa(request):
    """Every test runs on every instruction set of this machine."""
    with quant.isa(request.param):
        yield request.param


def to_torch(a):
    """The same numbers in a tensor; torch's numpy bridge does not know bfloat16."""
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(a.copy())


def bits(a):
    """The bit patterns of an array or tensor, so that -0.0 is not 0.0."""
    if isinstance(a, torch.Tensor):
        name = str(a.dtype).removeprefix("torch.")
        a = a.detach().contiguous()
        return a.view(getattr(torch, np.dtype(BITS[name]).name)).numpy()
    return np.ascontiguousarray(a).view(BITS[a.dtype.name])


def torch_fake_quantize(x, dy, scale, zero_point, qmin, qmax, axis):
    """(y, dx) by autograd."""
    tx = to_torch(x).requires_grad_()
    if axis is None:
        y = torch.fake_quantize_per_tensor_affine(tx, float(scale), int(zero_point), qmin, qmax)
    else:
        scales, zeros = torch.from_numpy(scale), torch.from_numpy(zero_point)
        y = torch.fake_quantize_per_channel_affine(tx, scales, zeros, axis % x.ndim, qmin, qmax)
    y.backward(to_torch(dy))
    return y, tx.grad


def torch_can(x, scale, axis):
    """x with 0 in place of numbers beyond 2^62 steps.

    PyTorch's per-channel kernel converts x / scale to int64 before it clamps, which is undefined
    from 2^63 on and on x86 gives the other end of the range.
    """
    if axis is None:
        return x
    shape = [-1 if k == axis % x.ndim else 1 for k in range(x.ndim)]
    limit = 2.0**62 * scale.astype(np.float64).reshape(shape)
    return np.where(np.abs(x.astype(np.float64)) < limit, x, np.zeros_like(x))


def assert_same(x, scale, zero_point, qmin, qmax, axis=None, seed=0):
    """Forward, backward from x and backward from the mask all have torch's bits."""
    x = torch_can(x, scale, axis)
    dy = np.random.default_rng(seed).standard_normal(x.shape).astype(x.dtype)
    y, dx = torch_fake_quantize(x, dy, scale, zero_point, qmin, qmax, axis)
    args = (scale, zero_point, qmin, qmax)
    ours, mask = quant.fake_quantize_affine(x, *args, axis=axis, return_mask=True)
    assert ours.dtype == x.dtype
    assert ours.shape == x.shape
    np.testing.assert_array_equal(bits(ours), bits(y))
    plain = quant.fake_quantize_affine(x, *args, axis=axis)
    np.testing.assert_array_equal(bits(plain), bits(y))
    back = quant.fake_quantize_affine_backward(dy, x, *args, axis=axis)
    np.testing.assert_array_equal(bits(back), bits(dx))
    back = quant.fake_quantize_affine_backward(dy, mask=mask, scale=scale, axis=axis)
    np.testing.assert_array_equal(bits(back), bits(dx))


def hard_numbers(scale, zero_point, qmin, qmax, dtype="float32"):
    """Ties, the ends of the range, their neighbours on both sides, zeros, tiny and huge numbers."""
    wide = np.float64 if dtype == "float64" else np.float32
    steps = np.arange(qmin - zero_point - 3, qmax - zero_point + 4)
    if len(steps) > 600:
        steps = np.concatenate([steps[:150], np.arange(-150, 150), steps[-150:]])
    halves = np.concatenate([steps, steps + 0.5]).astype(wide)
    with np.errstate(over="ignore"):
        x = (halves * wide(scale)).astype(dtype)
    x = x[np.isfinite(x)]
    small = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 1e-7, -1e-7], wide).astype(dtype)
    limit = float(ml_dtypes.finfo(dtype).max)
    large = np.array([1e3, -1e3, 3e4, -3e4, limit, -limit], wide).astype(dtype)
    far = np.array([1e9, -1e9, 1e20, -1e20, 1e30, -1e30], wide)
    x = np.concatenate([x, small, large, far[np.abs(far) < limit].astype(dtype)])
    return np.concatenate([x, next_up(x), -next_up(-x)])


def next_up(x):
    """The neighbour above, the largest staying where it is."""
    with np.errstate(over="ignore", under="ignore"):
        above = np.nextafter(x, np.array(np.inf, x.dtype))
    return np.where(np.isfinite(above), above, x)


def zero_points(qmin, qmax):
    return sorted({qmin, qmax, (qmin + qmax) // 2, min(max(0, qmin), qmax), min(qmin + 3, qmax)})


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("scale", SCALES)
def test_per_tensor_on_ties_and_ends(name, scale):
    qmin, qmax = RANGES[name]
    s = np.float32(scale)
    for zp in zero_points(qmin, qmax):
        assert_same(hard_numbers(s, zp, qmin, qmax), s, np.int32(zp), qmin, qmax)


@pytest.mark.parametrize("name", RANGES)
def test_per_channel_on_ties_and_ends(name):
    qmin, qmax = RANGES[name]
    scale = np.array(SCALES, np.float32)
    zp = np.resize(zero_points(qmin, qmax), len(SCALES)).astype(np.int32)
    rows = [hard_numbers(s, z, qmin, qmax) for s, z in zip(scale, zp, strict=True)]
    x = np.stack([np.resize(row, max(map(len, rows))) for row in rows])
    assert_same(x, scale, zp, qmin, qmax, axis=0)
    assert_same(np.ascontiguousarray(x.T), scale, zp, qmin, qmax, axis=1)
    assert_same(np.ascontiguousarray(x.T), scale, zp, qmin, qmax, axis=-1)


def test_every_tail_length():
    rng = np.random.default_rng(1)
    for n in range(140):
        x = (rng.integers(-300, 300, n) / 2).astype(np.float32)
        assert_same(x, np.float32(1.0), np.int32(5), -128, 127, seed=n)
    for n in range(1, 70):
        x = (rng.integers(-300, 300, (3, n)) / 2).astype(np.float32)
        scale = np.array([1.0, 0.1, 0.5], np.float32)
        assert_same(x, scale, np.array([0, 7, -7], np.int32), -128, 127, axis=0, seed=n)
        scale = rng.uniform(0.1, 2, n).astype(np.float32)
        zp = rng.integers(-128, 128, n, np.int32)
        assert_same(x, scale, zp, -128, 127, axis=1, seed=n)


SHAPES = [(1,), (7,), (3, 5), (1, 1), (5, 1), (2, 3, 4), (4, 3, 5, 7), (2, 1, 3, 1, 2), (64, 129)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["int8", "uint8", "int4"])
def test_shapes_and_axes(shape, name):
    rng = np.random.default_rng(2)
    qmin, qmax = RANGES[name]
    x = (4 * rng.standard_normal(shape)).astype(np.float32)
    assert_same(x, np.float32(0.05), np.int32(1), qmin, qmax)
    for axis in range(-len(shape), len(shape)):
        n = shape[axis]
        scale = np.exp(rng.uniform(-6, 1, n)).astype(np.float32)
        zp = rng.integers(qmin, qmax, n, np.int32, endpoint=True)
        assert_same(x, scale, zp, qmin, qmax, axis=axis)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty(shape):
    x = np.zeros(shape, np.float32)
    assert_same(x, np.float32(0.1), np.int32(0), -8, 7)
    if shape == (3, 0):
        assert_same(x, np.ones(3, np.float32), np.zeros(3, np.int32), -8, 7, axis=0)


def test_a_scalar():
    for value in (0.25, 0.75, -100.0):
        assert_same(np.array(value, np.float32), np.float32(0.5), np.int32(1), -8, 7)


def test_strided_input():
    x = np.random.default_rng(3).standard_normal((6, 8, 10)).astype(np.float32)[::2, ::-1, 1::3]
    scale, zp = np.float32(0.02), np.int32(-3)
    y = torch.fake_quantize_per_tensor_affine(to_torch(x), float(scale), int(zp), -128, 127)
    ours = quant.fake_quantize_affine(x, scale, zp, -128, 127)
    np.testing.assert_array_equal(bits(ours), bits(y))


def test_a_blocked_negative_gradient_is_minus_zero():
    x = np.array([10.0, 10.0, 0.0, 0.0], np.float32)
    dy = np.array([-1.0, 1.0, -1.0, 1.0], np.float32)
    _, dx = torch_fake_quantize(x, dy, np.float32(0.5), np.int32(0), -8, 7, None)
    np.testing.assert_array_equal(bits(dx), bits(np.array([-0.0, 0.0, -1.0, 1.0], np.float32)))
    ours = quant.fake_quantize_affine_backward(dy, x, np.float32(0.5), np.int32(0), -8, 7)
    np.testing.assert_array_equal(bits(ours), bits(dx))


normal_scales = st.floats(2.0**-100, 2.0**100, width=32)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(finite, min_size=1, max_size=40),
    normal_scales,
    st.sampled_from(sorted(RANGES.values())),
    st.integers(0, 2**16),
)
def test_any_numbers_per_tensor(values, scale, codes, z):
    qmin, qmax = codes
    zp = qmin + z % (qmax - qmin + 1)
    x = np.array(values, np.float32)
    assert_same(x, np.float32(scale), np.int32(zp), qmin, qmax)
    # Around the scale, where the codes are.
    near = np.float32(scale) * (x % np.float32(qmax - qmin + 3))
    assert_same(near[np.isfinite(near)], np.float32(scale), np.int32(zp), qmin, qmax)


# --- the other float types ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["int8", "uint8", "int4"])
def test_sixteen_bit_floats(dtype, name):
    qmin, qmax = RANGES[name]
    for scale in (1.0, 0.125, 0.1, 1 / 3, 0.007843138, 20.0):
        s = np.float32(scale)
        for zp in zero_points(qmin, qmax):
            x = hard_numbers(s, zp, qmin, qmax, dtype)
            assert_same(x, s, np.int32(zp), qmin, qmax)
            rows = np.stack([x, -x, x[::-1]])
            zps = np.array([zp, qmin, qmax], np.int32)
            scales = np.array([scale, 0.3, 2.0], np.float32)
            assert_same(rows, scales, zps, qmin, qmax, axis=0)
            assert_same(np.ascontiguousarray(rows.T), scales, zps, qmin, qmax, axis=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_sixteen_bit_float(dtype):
    every = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16 if dtype[0] == "b" else dtype)
    x = every[np.isfinite(every.astype(np.float32))]
    for scale in (0.1, 0.5, 3.0):
        assert_same(x, np.float32(scale), np.int32(2), -128, 127)


@pytest.mark.parametrize("name", ["int8", "uint8", "int4"])
def test_float64_with_scales_whose_reciprocal_is_exact(name):
    """For float64 tensors, too, PyTorch takes the reciprocal in float32; ours is float64."""
    qmin, qmax = RANGES[name]
    for scale in (1.0, 0.125, 2.0**-20, 2.0**40):
        s = np.float32(scale)
        for zp in zero_points(qmin, qmax):
            x = hard_numbers(s, zp, qmin, qmax, "float64")
            assert_same(x, s, np.int32(zp), qmin, qmax)
            scales = np.array([scale, 0.25], np.float32)
            zps = np.array([zp, qmin], np.int32)
            assert_same(np.stack([x, -x]), scales, zps, qmin, qmax, axis=0)


def test_float64_per_channel_away_from_ties():
    steps = np.arange(-140, 140)[:, None] + np.array([0.0, 0.25, -0.25])
    scale = np.array([0.1, 1 / 3, 0.007843138], np.float32)
    x = steps * scale.astype(np.float64)
    assert_same(x, scale, np.array([0, 5, -9], np.int32), -128, 127, axis=1)


# --- codes -------------------------------------------------------------------------------------

CODES = {
    "int8": (torch.qint8, np.int8, -128, 127),
    "uint8": (torch.quint8, np.uint8, 0, 255),
    "int32": (torch.qint32, np.int32, -(2**31), 2**31 - 1),
}


def assert_same_codes(x, scale, zero_point, name, axis=None):
    qdtype, dtype, qmin, qmax = CODES[name]
    if axis is None:
        theirs = torch.quantize_per_tensor(to_torch(x), float(scale), int(zero_point), qdtype)
    else:
        args = (torch.from_numpy(scale), torch.from_numpy(zero_point), axis, qdtype)
        theirs = torch.quantize_per_channel(to_torch(x), *args)
    ours = quant.quantize_affine(x, scale, zero_point, qmin, qmax, axis=axis, dtype=dtype)
    assert ours.dtype == dtype
    np.testing.assert_array_equal(ours, theirs.int_repr().numpy())


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("scale", [1.0, 0.125, 0.1, 1 / 3, 0.007843138, 1e-3])
def test_codes(name, scale):
    """`quantize_affine` gives the codes of torch.quantize_per_tensor and _per_channel.

    On ties with zero point 0 only: these two (unlike fake_quantize) add the zero point before they
    round, so that 0.5 at zero point 1 becomes 2.
    """
    s = np.float32(scale)
    x = hard_numbers(s, 0, -300, 300)
    with np.errstate(over="ignore"):
        x = x[np.abs(x / s) < 2**30]
    scales = np.array([scale, 0.3, 2.0], np.float32)
    assert_same_codes(x, s, np.int32(0), name)
    assert_same_codes(np.stack([x, -x, x[::-1]]), scales, np.zeros(3, np.int32), name, axis=0)

    steps = np.arange(-300, 300)[:, None] + np.array([0.0, 0.25, -0.25], np.float32)
    x = steps.astype(np.float32) * scales
    zps = np.array([1, 4, 7], np.int32)
    assert_same_codes(x, scales, zps, name, axis=1)
    assert_same_codes(np.ascontiguousarray(x[:, 0]), s, np.int32(1), name)


# --- the benchmark -----------------------------------------------------------------------------


def test_bench_quant_has_torch_as_peer(monkeypatch):
    monkeypatch.setattr(bench, "MIN_SECONDS", 0)
    threads = torch.get_num_threads()
    with bench.quiet():
        assert torch.get_num_threads() == 1
        rows = {row.name: row for row in bench.run_suite(bench_quant.cases(2048), 1)}
    assert torch.get_num_threads() == threads
    for grain in ("tensor", "channel"):
        for suffix in ("", ", out="):
            row = rows[f"fake_quantize per {grain}, 2k{suffix}"]
            assert (row.peer, row.bar) == ("torch", 8.0)
            assert row.ratio > 0
