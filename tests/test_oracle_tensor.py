"""Are the second opinion's arrays, scales and products right? Against scalars and fractions."""

from fractions import Fraction
from math import prod

import numpy as np
import oracle as o
import oracle_product as op
import oracle_tensor as ot
import pytest
from oracle_step import initial
from oracle_twin import exactly, fractions, tensor

from pyqfw.formats import BFP, Asym, Float32, Sym

FLOAT = Float32()
KEY = o.key(3, 4, 5)


def random_acc(rng, shape, bits=31):
    values = rng.integers(-(2**bits) + 1, 2**bits, shape) >> rng.integers(0, bits, shape)
    return ot.Acc(values, scales(rng, shape, 3))


def scales(rng, shape, spread=30):
    return np.ldexp(rng.uniform(1, 2, shape), rng.integers(-spread, spread, shape)).astype("f4")


# ---- arrays against scalars ----------------------------------------------------------------------


def test_the_generator_over_arrays():
    assert ot.draws(KEY, np.arange(100)).tolist() == [o.draw(KEY, i) for i in range(100)]
    assert ot.uniforms(KEY, 100).tolist() == [o.uniform(KEY, i) for i in range(100)]
    assert ot.stream("0.weight", "update") == 0x980A8B0F
    b = 1 / np.sqrt(7)
    expected = [((2 * o.draw(KEY, i) + 1) / 2**32 - 1) * b for i in range(12)]
    np.testing.assert_array_equal(initial(KEY, (3, 4), 7).ravel(), np.float32(expected))


@pytest.mark.parametrize("rounding", o.ROUNDINGS)
@pytest.mark.parametrize("bits", [2, 8, 16, 17])
def test_requantization_over_arrays(bits, rounding):
    rng = np.random.default_rng(bits)
    a, s_in, s_out = random_acc(rng, 400).values, scales(rng, 400, 20), scales(rng, 400, 20)
    a[:20], s_out[:100] = rng.integers(-9, 9, 20), s_in[:100] * 2.0 ** rng.integers(0, 9, 100)
    u = ot.uniforms(KEY, 400)
    found = ot.rescaled(a, s_in, s_out, bits, rounding, u)
    pairs = zip(fractions(s_in), fractions(s_out), strict=True)
    ratios = [o.ratio(i, j, bits) for i, j in pairs]
    expected = [o.rescale(int(a[i]), r, rounding, int(u[i])) for i, r in enumerate(ratios)]
    assert found.tolist() == expected


@pytest.mark.parametrize("rounding", o.ROUNDINGS)
def test_quotients_and_products_over_arrays(rounding):
    rng = np.random.default_rng(1)
    x, s = (rng.normal(size=500) * scales(rng, 500, 9)).astype("f4"), scales(rng, 500, 9)
    x[:100] = s[:100] * rng.integers(-9, 9, 100) / 2
    x[100:104] = [0, 1e-45, -1e-45, 2.0**-149]
    u = ot.uniforms(KEY, 500)
    found = ot.quotients(x, s, rounding, u)
    ratios = zip(fractions(x), fractions(s), u.tolist(), strict=True)
    assert found.tolist() == [o.round_by(a / b, rounding, w) for a, b, w in ratios]
    acc = random_acc(rng, 500)
    bits = [o.bits_of_fraction(v) for v in exactly(acc)]
    assert acc.floats().view(np.uint32).tolist() == bits


FORMATS = [
    kind(bits, **grain, scale=scale, rounding=rounding)
    for kind, bits in ((Sym, 2), (Sym, 8), (Sym, 12), (Asym, 1), (Asym, 8), (Asym, 16))
    for grain in ({}, {"axis": 0}, {"axis": 1}, {"axis": "row"}, {"group": 4}, {"range": 0.75})
    for scale, rounding in (("float", "stochastic"), ("pow2", "half_even"))
]


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_encoding_is_the_scalar_oracles(fmt):
    rng = np.random.default_rng(2)
    shape, n = (3, 10), 30
    index, scale_shape = o.layout(shape, fmt.axis, fmt.group)
    acc = random_acc(rng, shape)
    acc.values[1] = 0
    floats = ot.Acc(acc.floats())
    stored = ot.encode(floats, Sym(8, axis=0))
    u = [o.uniform(KEY, i) for i in range(n)]
    for source in (acc, floats, stored):
        found = ot.encode(source, fmt, KEY)
        assert found.scale.shape == scale_shape
        assert len(found.data()) == fmt.nbytes(shape)
        real = source.scale is None
        values = fractions(source.values) if real else exactly(source)
        ms = [] if real else list(zip(*(a.ravel() for a in source.pairs()), strict=True))
        for g in range(prod(scale_shape)):
            run = [i for i in range(n) if index[i] == g]
            if isinstance(fmt.range, float):
                params = o.range_scale(Fraction(fmt.range), fmt.bits, fmt.asymmetric, fmt.pow2), 0
            elif real and fmt.asymmetric:
                params = o.asym_params_of_floats([values[i] for i in run], fmt.bits, fmt.pow2)
            elif real:
                params = o.sym_scale_of_floats([values[i] for i in run], fmt.bits, fmt.pow2), 0
            else:
                pairs = [(int(ms[i][0]), Fraction(float(ms[i][1]))) for i in run]
                params = (
                    o.asym_params(pairs, fmt.bits, fmt.pow2)
                    if fmt.asymmetric
                    else (o.sym_scale(pairs, fmt.bits, fmt.pow2), 0)
                )
            s, z = params[0], params[1] if fmt.asymmetric else None
            assert Fraction(float(found.scale.ravel()[g])) == s
            assert z is None or found.zero.ravel()[g] == z
            for i in run:
                if real:
                    code = o.quantize(values[i], s, fmt.bits, fmt.rounding, u[i], z)
                else:
                    m, s_in = int(ms[i][0]), Fraction(float(ms[i][1]))
                    code = o.requantize(m, s_in, s, fmt.bits, fmt.rounding, u[i], z)
                assert found.codes.ravel()[i] == code[0]


def test_conversion_keeps_codes_where_only_container_and_rounding_differ():
    t = tensor(Sym(8, axis=0), np.random.default_rng(0).normal(size=(4, 6)))
    same = ot.encode(t, Sym(8, axis=0, container=16, rounding="stochastic"), KEY)
    np.testing.assert_array_equal(same.codes, t.codes)
    np.testing.assert_array_equal(same.scale, t.scale)
    assert ot.encode(t, FLOAT).floats().tolist() == t.floats().tolist()


# ---- scales and products -------------------------------------------------------------------------


def test_scales_that_meet_are_clamped():
    a, b = np.float32(1.1), np.float32(1.3)
    assert op.mul(a, b) == np.float32(a * b)
    assert op.quot(a, b) == np.float32(a / b)
    tiny, huge = np.float32(1e-30), np.float32(1e30)
    assert (op.mul(tiny, tiny), op.mul(huge, huge)) == (ot.FLT_MIN, ot.FLT_MAX)
    assert (op.quot(tiny, huge), op.quot(huge, tiny)) == (ot.FLT_MIN, ot.FLT_MAX)
    assert (op.lift(a, 3), op.lift(a, -400), op.lift(a, 400)) == (a * 8, ot.FLT_MIN, ot.FLT_MAX)


@pytest.mark.parametrize(
    ("a", "b", "plain", "bias"),
    [
        (8, 8, 133144, 66572),
        (12, 8, 8260, 4130),
        (12, 12, 512, 256),
        (16, 8, 516, 258),
        (16, 16, 2, 1),
    ],
)
def test_headroom(a, b, plain, bias):
    for k, biased in ((plain, False), (bias, True)):
        qa, qb = o.top_code(a), o.top_code(b)
        assert op.headroom(k, qa, qb, biased) == (0, 0)
        assert op.headroom(k + 1, qa, qb, biased) == (plain, 1)
        chunk, h = op.headroom(1000 * k, qa, qb, biased)
        limit = 2 ** (30 if biased else 31) - 1
        assert chunk == plain
        assert -(-1000 * k * qa * qb >> h) <= limit < -(-1000 * k * qa * qb >> h - 1)


@pytest.mark.parametrize("bias", [False, True])
def test_4000_terms_of_int12_come_back_by_one_rounded_shift(bias):
    rng = np.random.default_rng(4)
    m = rng.integers(-2047, 2048, (2, 3, 4000))
    m[:, 0] = 2047
    zeros = np.zeros((3, 4000), bool)
    wide, tall = (op.Operand(x, np.full(x.shape, 0.25, "f4"), 12, zeros) for x in m)
    acc = op.product(wide, tall.T, 4000, bias)
    h = op.headroom(4000, 2047, 2047, bias)[1]
    assert h == (4 if bias else 3)
    for i in range(3):
        for j in range(3):
            total = sum(int(a) * int(b) for a, b in zip(m[0, i], m[1, j], strict=True))
            assert acc.values[i, j] == o.half_away(Fraction(total, 2**h))
    assert (acc.scale == 2.0 ** (h - 4)).all()


@pytest.mark.parametrize("fmt", [FLOAT, Sym(16), Asym(8), Sym(4, axis=0)])
def test_a_bias_keeps_its_value_at_any_scale(fmt):
    rng = np.random.default_rng(5)
    bias = tensor(fmt, [0.5, -3.0, 1e-3, 0.0])
    values = rng.integers(-(2**30) + 1, 2**30, (6, 4))
    sigma = np.ldexp(np.float32(1.7), rng.integers(-70, 9, (6, 1))) + np.zeros((6, 4), "f4")
    acc = ot.Acc(values, sigma.astype("f4"))
    done = op.add_bias(acc, bias)
    assert np.abs(done.values).max() <= o.INT32_MAX
    beta = fractions(bias.codes) if fmt is FLOAT else exactly(bias)
    grown = np.log2(done.scale / acc.scale).astype(int)
    assert grown.min() == 0
    for i, j in np.ndindex(6, 4):
        s, g = Fraction(float(sigma[i, j])), int(grown[i, j])
        seed = int(done.values[i, j]) - (int(values[i, j]) >> g)
        assert seed == max(1 - 2**30, min(2**30 - 1, o.half_away(beta[j] / (s * 2**g))))
        assert g == 0 or g == 31 or abs(o.half_away(beta[j] / (s * 2 ** (g - 1)))) >= 2**30


# ---- widen ---------------------------------------------------------------------------------------


def test_widen_with_one_scale_only_adds_bits():
    t = tensor(Sym(8), np.random.default_rng(6).normal(size=(5, 7)))
    for f in range(8):
        wide = op.widen(op.operand(t), f)
        assert wide.m.tolist() == (t.codes << f).tolist()
        assert (wide.scale == op.lift(t.scale, -f)).all()
        assert wide.bits == 8 + f


@pytest.mark.parametrize("grain", [{}, {"axis": 0}, {"axis": 1}, {"axis": "row"}, {"group": 3}])
def test_a_zero_point_is_removed_exactly(grain):
    x = np.random.default_rng(7).normal(0.5, 1, (5, 7))
    x[2] = 0
    for bits in (1, 8, 15):
        t = tensor(Asym(bits, **grain), x)
        a = op.operand(t)
        assert a.m.tolist() == t.ints().tolist()
        assert a.scale.tolist() == t.scales.tolist()
        assert a.bits == bits + 1
    t = tensor(Asym(16, **grain), x)
    a = op.operand(t)
    assert a.bits == 16
    assert np.abs(2 * a.m - t.ints()).max() <= 1
    assert ((a.scale == 2 * t.scales) | (t.rangeless()[t.index] & (a.scale == 1))).all()


def test_widen_folds_scales_with_one_rounding():
    rng = np.random.default_rng(8)
    e = tensor(Sym(8, axis="row"), rng.normal(size=(6, 5)) * scales(rng, (6, 1), 4))
    x = np.asarray(rng.normal(size=(6, 9)) * scales(rng, (6, 1), 2))
    x[4] = 0  # its scale is 1, and must not count
    wire = tensor(Sym(8, axis="row"), x)
    fold = op._spread(op.operand(wire), op.operand(e), axis=1)
    wide = op.widen(op.operand(e), 5, None, fold)
    sigma = op.mul(e.scales, fold.scale)
    live = np.arange(6) != 4
    assert (wide.scale == sigma[live].max() / 32).all()
    exact = e.codes * sigma.astype(float) / wide.scale
    assert np.abs(wide.m - exact)[live].max() <= 0.5 + 1e-9
    assert np.abs(wide.m[live]).max() <= 127 * 32


def test_an_error_keeps_its_rows_in_dx_and_loses_them_in_dw():
    rng = np.random.default_rng(12)
    e = tensor(Sym(8, axis="row"), rng.normal(size=(6, 5)) * scales(rng, (6, 1), 4))
    w = tensor(Sym(8, axis=0), rng.normal(size=(5, 9)) * scales(rng, (5, 1), 2))
    x = tensor(Sym(8, axis="row"), rng.normal(size=(6, 9)))
    dx = op.propagated(e, w)
    expected = op.lift(op.mul(e.scale, w.scale.max()), -7)
    assert dx.scale.tolist() == (expected[:, None] + np.zeros((6, 9), "f4")).tolist()
    dw = op.weight_gradient(e, x, 16)
    assert (dw.scale == op.lift(op.mul(e.scale, x.scale).max(), -7)).all()
    assert (op.bias_gradient(e, 16).scale == op.lift(e.scale.max(), -7)).all()


def test_spare_bits():
    assert op.spare_bits(8, lambda q: True) == 7
    assert op.spare_bits(12, lambda q: True) == 4
    assert op.spare_bits(12, lambda q: q < 5000) == 1
    assert op.spare_bits(12, lambda q: False) == 0
    assert op.spare_bits(17, lambda q: True) == -1


GRAINS = [Sym(12), Sym(12, axis=0), Sym(12, axis=1), Sym(12, axis="row"), Sym(12, group=4)]
GRAINS += [Asym(12), Asym(12, axis=1), Asym(12, axis="row"), Asym(16), BFP(12, 5), FLOAT]


@pytest.mark.parametrize("left", GRAINS, ids=repr)
@pytest.mark.parametrize("right", GRAINS, ids=repr)
def test_every_pair_of_granularities_multiplies(left, right):
    rng = np.random.default_rng(9)
    x, w, e = (rng.normal(size=shape).astype("f4") for shape in ((6, 11), (7, 11), (6, 7)))
    bias = tensor(FLOAT, rng.normal(size=7))
    x, w, e = tensor(left, x), tensor(right, w), tensor(left, e)
    other = tensor(right, x.floats())

    def close(acc, expected):
        found = acc.floats()
        assert np.linalg.norm(found - expected) < 3e-3 * np.linalg.norm(expected)

    close(op.forward(x, w, bias), x.floats() @ w.floats().T + bias.codes)
    close(op.propagated(e, w), e.floats() @ w.floats())
    close(op.weight_gradient(e, other, 8), e.floats().T @ other.floats())
    close(op.bias_gradient(e, 8), e.floats().sum(axis=0))
