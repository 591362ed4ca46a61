"""Every pair of formats through the one path, against the oracle. Zero tolerance."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import oracle
import pytest

import pyqfw as q

SHAPE = (3, 2, 5)
N = 30

GRAINS = [{}, {"axis": 0}, {"axis": 1}, {"axis": -1}, {"axis": "row"}, {"group": 4}]
WIDTHS = [(2, "packed"), (3, 8), (5, "packed"), (8, "packed"), (8, 16), (12, 16), (16, 32)]


def formats() -> list[q.Format]:
    """Each kind, width and container with each granularity once, scales alternating."""
    found: list[q.Format] = [q.Float32(), q.SymInt32(12), q.SymInt32(16)]
    for i, (kind, (bits, container)) in enumerate(product((q.Sym, q.Asym), WIDTHS)):
        for j, grain in enumerate(GRAINS):
            scale = "pow2" if (i + j) % 3 == 0 else "float"
            found.append(kind(bits, container=container, scale=scale, **grain))
    return found


FORMATS = formats()


def source(fmt: q.Format, rng: np.random.Generator) -> q.QTensor:
    """A tensor of random codes, scales and zero points."""
    if isinstance(fmt, q.Float32):
        x = rng.standard_normal(SHAPE) * np.exp(rng.normal(0, 2, SHAPE))
        return q.quantize(x.astype(np.float32), fmt)
    codes = rng.integers(fmt.qmin, fmt.qmax, SHAPE, endpoint=True)
    shape = fmt.scale_shape(SHAPE)
    scale = np.exp2(rng.integers(-9, 9, shape)).astype(np.float32)
    if not fmt.pow2:
        scale = np.float32(rng.uniform(1, 2, shape)) * scale
    zero = rng.integers(0, fmt.qmax, shape, endpoint=True) if fmt.asymmetric else None
    return q.QTensor.from_codes(codes, fmt, scale, zero)


def elements(t: q.QTensor) -> list[tuple[int, Fraction]]:
    """(mantissa, scale) of each element; a float is (1, itself)."""
    if isinstance(t.format, q.Float32):
        return [(1, Fraction(float(v))) for v in t.numpy().reshape(-1)]
    index, _ = oracle.layout(SHAPE, t.format.axis, t.format.group)
    scales = [Fraction(float(s)) for s in t.scale.reshape(-1)]
    zeros = [0] * len(scales) if t.zero_point is None else t.zero_point.reshape(-1).tolist()
    codes = t.codes.reshape(-1).tolist()
    return [(c - zeros[k], scales[k]) for c, k in zip(codes, index, strict=True)]


def found_points(
    t: q.QTensor, fmt: q.Format, pairs: list[tuple[int, Fraction]], index: list[int]
) -> list[tuple[Fraction, int | None]]:
    """What a dynamic range finds, a scale at a time."""
    points: list[tuple[Fraction, int | None]] = []
    for k in range(max(index) + 1):
        run = [pair for pair, at in zip(pairs, index, strict=True) if at == k]
        if isinstance(t.format, q.Float32):
            values = [m * s for m, s in run]
            if fmt.asymmetric:
                points.append(oracle.asym_params_of_floats(values, fmt.bits, fmt.pow2))
            else:
                points.append((oracle.sym_scale_of_floats(values, fmt.bits, fmt.pow2), None))
        elif fmt.asymmetric:
            points.append(oracle.asym_params(run, fmt.bits, fmt.pow2))
        else:
            points.append((oracle.sym_scale(run, fmt.bits, fmt.pow2), None))
    return points


def carries(a: q.Format, b: q.Format) -> bool:
    """Only the container differs."""

    def rest(f: q.Format) -> tuple[object, ...]:
        return (f.asymmetric, f.bits, f.axis, f.group, f.scale, isinstance(f, q.Float32))

    return rest(a) == rest(b)


def check_pair(t: q.QTensor, fmt: q.Format, rounding: str) -> None:
    made = t.to(fmt, rounding=rounding, seed=7, step=3, stream=11)
    assert made.format == fmt
    assert made.shape == SHAPE
    assert made.nbytes == len(made.data) == fmt.nbytes(SHAPE)
    pairs = elements(t)
    if isinstance(fmt, q.Float32):
        expected = [oracle.bits_of_fraction(m * s) for m, s in pairs]
        assert made.codes.view(np.uint32).reshape(-1).tolist() == expected
        assert made.scale is None
        return
    index, scale_shape = oracle.layout(SHAPE, fmt.axis, fmt.group)
    assert made.scale.shape == scale_shape
    if carries(t.format, fmt):
        np.testing.assert_array_equal(made.codes, t.codes)
        np.testing.assert_array_equal(made.scale, t.scale)
        return
    points = found_points(t, fmt, pairs, index)
    key = oracle.key(7, 3, 11)
    codes, saturated = [], 0
    for i, ((m, s), k) in enumerate(zip(pairs, index, strict=True)):
        s_out, z = points[k]
        u = oracle.uniform(key, i)
        if isinstance(t.format, q.Float32):
            code, over = oracle.quantize(m * s, s_out, fmt.bits, rounding, u, z)
        else:
            code, over = oracle.requantize(m, s, s_out, fmt.bits, rounding, u, z)
        codes.append(code)
        saturated += over
    assert [Fraction(float(s)) for s in made.scale.reshape(-1)] == [s for s, _ in points]
    zeros = [] if made.zero_point is None else made.zero_point.reshape(-1).tolist()
    assert zeros == [z for _, z in points if z is not None]
    assert made.codes.reshape(-1).tolist() == codes
    assert made.saturated == saturated
    container = 32 if isinstance(fmt, q.SymInt32) else fmt.container
    scales = [s for s, _ in points]
    assert made.data == oracle.stored(codes, fmt.bits, scales, zeros, container, fmt.pow2)


@pytest.mark.parametrize("fmt", [*FORMATS, q.SymInt32(32)], ids=repr)
def test_every_pair(fmt: q.Format) -> None:
    rng = np.random.default_rng(2)
    turn = [*FORMATS, q.SymInt32(32)].index(fmt)
    for i, target in enumerate(FORMATS):
        t = source(fmt, rng)
        rounding = ("half_away", "half_even", "stochastic")[(i + i // 6 + turn) % 3]
        check_pair(t, target, rounding)


def test_integers_with_one_scale_become_an_accumulator_as_they_are() -> None:
    rng = np.random.default_rng(4)
    for fmt in [*FORMATS, q.SymInt32(32)]:
        t = source(fmt, rng)
        if isinstance(fmt, q.Float32) or fmt.axis is not None or fmt.group is not None:
            with pytest.raises(q.QfwError, match="accumulator"):
                t.to(q.SymInt32(32))
            continue
        wide = t.to(q.SymInt32(32))
        assert elements(wide) == elements(t)
        np.testing.assert_array_equal(wide.numpy(), t.numpy())


def test_a_pair_with_itself_is_the_same_tensor() -> None:
    rng = np.random.default_rng(3)
    for fmt in [*FORMATS, q.SymInt32(32)]:
        t = source(fmt, rng)
        assert t.to(fmt) is t
