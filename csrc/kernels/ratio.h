/* Ratios to one scale, where they are neither very large nor very small: qfw_ratio_of of base/scale.h by
 * a product. */
#ifndef QFW_KERNELS_RATIO_H
#define QFW_KERNELS_RATIO_H

#include "base/scale.h"

/* A scale mant 2^-7 2^x to divide by, 2^30 <= mant < 2^31; recip = floor(2^62 / mant), 2^32 - 1 for 2^32;
 * exp: its exponent field, less 3. */
typedef struct {
    uint32_t mant, recip, exp;
} qfw_ratio_to;

/* One for all who ask, where that saves flash. */
QFW_NOINLINE qfw_ratio_to qfw_ratio_to_apart(float to);

QFW_INLINE qfw_ratio_to qfw_ratio_to_here(float to)
{
    const qfw_divisor d = qfw_divisor_of(to); /* floor(2^54 / (mant / 2^7)): one more bit follows */
    const uint32_t rest = qfw_sub32(0, qfw_mul32(d.recip, d.mant)), half = d.recip << 1;
    const uint32_t one = 2 * rest >= d.mant ? 1 : 0;
    const qfw_ratio_to r = {d.mant << 7, d.recip >> 31 != 0 ? UINT32_MAX : half | one,
                            qfw_sub32(qfw_bits_f32(to) >> 23, 3)};
    return r;
}

static inline qfw_ratio_to qfw_ratio_to_of(float to)
{
    return QFW_IS_SMALL ? qfw_ratio_to_apart(to) : qfw_ratio_to_here(to);
}

/* q = floor(2^30 m_in / m_out) of the scale whose bits are `from`, the mantissa m_in doubled where it is
 * below m_out; s_in / s_out = q 2^-(33 + *down). With n = 2^7 m_in < 2^32 the high word of n recip is
 * short of the quotient by less than n / 2^32, so it is q or q - 1; what is left of n 2^30, below twice the
 * mantissa and so a word, tells. */
static inline uint32_t qfw_ratio_mult(uint32_t from, const qfw_ratio_to *to, uint32_t *down)
{
    uint32_t n = (qfw_mul32(from, 1u << 8) | 0x80000000u) >> 1;
    *down = qfw_sub32(to->exp, from >> 23);
    if (n < to->mant) {
        n <<= 1;
        *down = qfw_add32(*down, 1);
    }
    const uint32_t q = qfw_mulhi(n, to->recip);
    return q + (qfw_sub32(qfw_mul32(n, 1u << 30), qfw_mul32(q, to->mant)) >= to->mant ? 1u : 0u);
}

#endif
