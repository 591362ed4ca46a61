"""Numbers to try, for the tests of the oracle."""

from __future__ import annotations

from fractions import Fraction

import oracle as o
from hypothesis import settings
from hypothesis import strategies as st

HALF = Fraction(1, 2)
EXACT = ("half_away", "half_even")
FLT_MIN, FLT_MAX = o.smallest_normal(), o.largest_finite()
SYM, ASYM = range(2, 17), range(1, 17)
STRUCT = {"float16": "<e", "float32": "<f", "float64": "<d"}

fixed = settings(derandomize=True, deadline=None, database=None, max_examples=250)

int32 = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-1000, 1000),
    st.sampled_from([-(2**31), -(2**31) + 1, 2**31 - 1]),
)
words = st.integers(0, 2**32 - 1)
scales = st.one_of(
    st.integers(0x00800000, 0x7F7FFFFF),
    st.integers(0x3A000000, 0x45000000),
    st.sampled_from([0x00800000, 0x00800001, 0x3F800000, 0x3FFFFFFF, 0x7F000000, 0x7F7FFFFF]),
).map(o.fraction_of_bits)
targets = st.one_of(
    st.tuples(st.just("sym"), st.sampled_from(SYM)),
    st.tuples(st.just("asym"), st.sampled_from(ASYM)),
)
kinds = st.sampled_from(sorted(o.FLOATS))
finite32 = st.integers(0, 2**32 - 1).filter(o.is_finite)


@st.composite
def scale_pairs(draw: st.DrawFn) -> tuple[Fraction, Fraction]:
    """(s_in, s_out), often with a ratio at which codes of some width appear."""
    s_in, s_out = draw(scales), draw(scales)
    if draw(st.booleans()):
        s_out = s_in * draw(st.integers(2**23, 2**24)) * o.pow2(draw(st.integers(-30, 10)))
        s_out = max(FLT_MIN, min(FLT_MAX, o.nearest(s_out)))
    return s_in, s_out
