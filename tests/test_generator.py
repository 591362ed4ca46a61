"""The generator of stochastic rounding: uniform, and uncorrelated whichever way one looks."""

from __future__ import annotations

import itertools
import math

import goldgen
import numpy as np
import oracle as o
import pytest

# ---- the generator -------------------------------------------------------------------------------
# numpy serves the statistics only; its draws are checked against the oracle's first.
# All statistics have fixed seeds. A bound of 4.5 standard deviations fails a perfect generator with
# probability 7e-6 a number; about 400 numbers are looked at.

BOUND = 4.5
N = 2**16


def mix_np(x):
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def key_np(seed, step, tensor):
    seed, step, tensor = np.broadcast_arrays(
        *(np.atleast_1d(v).astype(np.uint32) for v in (seed, step, tensor))
    )
    b = mix_np(mix_np(seed + np.uint32(0x9E3779B9)) ^ step)
    c = mix_np(b + np.uint32(0x85EBCA6B) * (tensor + np.uint32(1)))
    return c, mix_np(c ^ b ^ np.uint32(0xC2B2AE35))


def draw_np(k, i):
    x = k[0] + np.atleast_1d(i).astype(np.uint32) * np.uint32(0x9E3779B9)
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) + k[1]
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def uniform_np(k, i):
    i = np.atleast_1d(i).astype(np.uint64)
    block = np.uint64(2) * (i >> np.uint64(5))
    lane = (i & np.uint64(31)).astype(np.uint32)
    b = draw_np(k, block + np.uint64(1)) | np.uint32(1)
    return draw_np(k, block) + lane * b


def chi_square(cells, bins):
    """(chi^2 - df) / sqrt(2 df) of integers in 0..bins-1."""
    counts = np.bincount(cells.astype(np.int64), minlength=bins)
    expected = len(cells) / bins
    chi = float(((counts - expected) ** 2).sum() / expected)
    return (chi - (bins - 1)) / math.sqrt(2 * (bins - 1))


def correlation(a, b):
    """The correlation of two lists of words in standard deviations."""
    x, y = (v.astype(np.float64) / 2**32 - 0.5 for v in (a, b))
    return float((x * y).sum() * 12 / math.sqrt(len(x)))


def test_numpy_draws_are_the_oracles():
    source = goldgen.Source(7)
    for _ in range(20):
        triple = [source.word() >> 32 for _ in range(3)]
        k = o.key(*triple)
        assert tuple(int(v[0]) for v in key_np(*triple)) == k
        index = [0, 1, 31, 32, 63, 2**32 - 1, source.word() >> 32, source.word() >> 40]
        assert draw_np(key_np(*triple), np.array(index)).tolist() == [o.draw(k, i) for i in index]
        assert uniform_np(key_np(*triple), np.array(index)).tolist() == [
            o.uniform(k, i) for i in index
        ]


def test_mix_is_a_bijection():
    """Undone step by step: odd factors have inverses mod 2^32."""

    def unshift(x: int, n: int) -> int:
        return x ^ x >> n ^ x >> 2 * n

    source = goldgen.Source(8)
    for x in [0, 1, 2**32 - 1, *(source.word() >> 32 for _ in range(200))]:
        y = unshift(o.mix(x), 16) * pow(0x846CA68B, -1, 2**32) % 2**32
        assert unshift(unshift(y, 15) * pow(0x7FEB352D, -1, 2**32) % 2**32, 16) == x


STREAMS = {
    "elements": lambda n: draw_np(key_np(0, 0, 0), np.arange(n)),
    "elements, another key": lambda n: draw_np(key_np(12345, 678, 9), np.arange(n)),
    "steps": lambda n: draw_np(key_np(1, np.arange(n), 0), 0),
    "tensors": lambda n: draw_np(key_np(1, 0, np.arange(n)), 0),
    "seeds": lambda n: draw_np(key_np(np.arange(n), 0, 0), 0),
    "u over blocks, lane 0": lambda n: uniform_np(key_np(0, 0, 0), 32 * np.arange(n)),
    "u over blocks, lane 1": lambda n: uniform_np(key_np(0, 0, 0), 32 * np.arange(n) + 1),
    "u over blocks, lane 31": lambda n: uniform_np(key_np(5, 6, 7), 32 * np.arange(n) + 31),
    "u over steps": lambda n: uniform_np(key_np(2, np.arange(n), 3), 17),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_streams_are_uniform_and_uncorrelated(stream):
    u = STREAMS[stream](16 * N)
    for shift in (0, 8, 16, 24):
        assert abs(chi_square(u >> np.uint32(shift) & np.uint32(255), 256)) < BOUND
    pairs = (u[0::2] >> np.uint32(26)) * np.uint32(64) + (u[1::2] >> np.uint32(26))
    assert abs(chi_square(pairs, 4096)) < BOUND
    for lag in (1, 2, 3, 7, 16, 32, 33, 256, 1024):
        assert abs(correlation(u[lag:], u[:-lag])) < BOUND


@pytest.mark.parametrize("function", [draw_np, uniform_np], ids=["draw", "uniform"])
def test_neighbouring_keys_are_uncorrelated(function):
    """Every 33rd element, so that no two lie in a block."""
    index = 33 * np.arange(N)
    base = (77, 5, 6)
    first = function(key_np(*base), index)
    for position, by in itertools.product(range(3), (1, 2, 3, 64, 2**16, 2**31)):
        moved = [v + by * (i == position) for i, v in enumerate(base)]
        assert abs(correlation(first, function(key_np(*moved), index))) < BOUND
    for swapped in itertools.permutations(base):
        if swapped != base:
            assert abs(correlation(first, function(key_np(*swapped), index))) < BOUND


@pytest.mark.parametrize("lag", range(1, 32))
def test_lanes_of_a_block_are_uncorrelated(lag):
    """One pair a block, so the pairs are independent; 16 x 16 cells and the correlation."""
    block = 32 * np.arange(4 * N)
    k = key_np(21, 22, 23)
    u, v = uniform_np(k, block), uniform_np(k, block + lag)
    assert abs(correlation(u, v)) < BOUND
    cells = (u >> np.uint32(28)) * np.uint32(16) + (v >> np.uint32(28))
    assert abs(chi_square(cells, 256)) < BOUND


def test_upper_27_bits_of_a_block_are_pairwise_independent():
    """u_j - u_i = d B with B odd: an odd multiple of 2^v, v <= 4, else free. On 10-bit words."""
    bits, low = 10, 5
    for d in range(1, 32):
        differences = sorted(d * b % 2**bits for b in range(1, 2**bits, 2))
        for a in (0, 1, 511):
            upper = [(a + x) % 2**bits >> low for x in differences]
            assert {upper.count(v) for v in range(2 ** (bits - low))} == {2 ** (low - 1)}


@pytest.mark.parametrize("part", [1, 10, 37, 50, 99])
def test_stochastic_rounding_is_unbiased(part):
    """Mean and variance of floor(y + u), over one tensor and over the steps of one element."""
    p = part / 100
    threshold = np.uint32(round((1 - p) * 2**32))
    streams = [uniform_np(key_np(4, 4, 4), np.arange(32 * N)), STREAMS["u over steps"](16 * N)]
    for u in streams:
        ups = (u >= threshold).astype(np.float64)
        assert abs(ups.mean() - p) / math.sqrt(p * (1 - p) / len(u)) < BOUND
    sums = (streams[0].reshape(-1, 32) >= threshold).sum(axis=1) - 32 * p
    variance = float((sums**2).mean() / (32 * p * (1 - p)))
    kurtosis = 32 / (p * (1 - p))  # at most: a sum of 32 is below 32, its variance 32 p (1 - p)
    assert abs(variance - 1) < BOUND * math.sqrt(kurtosis / len(sums))
