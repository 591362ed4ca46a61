/* Floats made of integers, where floats are software: half of the work of the compiler's helpers, and
 * the same bits. */
#ifndef QFW_BASE_SOFT_H
#define QFW_BASE_SOFT_H

#include "base/fixed.h"

/* a * b and a / b, a and b 0 or positive and normal, a divisor not 0: the nearest float, ties to even;
 * 0 below the normal numbers, the largest above. */
float qfw_soft_mul(float a, float b);
float qfw_soft_div(float a, float b);

/* qfw_soft_div, the last eight bits of its mantissa 0. */
float qfw_soft_div_upper(float a, float b);

/* Products by one scale: its mantissa of 25 bits, and what the exponent field of a product is more than
 * that of the other factor, one less than for a product of mantissas in [1, 2): its first bit adds it. */
typedef struct {
    uint32_t mant, exp;
} qfw_soft_factor;

static inline qfw_soft_factor qfw_soft_factor_of(float a)
{
    const uint32_t x = qfw_bits_f32(a);
    const qfw_soft_factor f = {((x & 0x7FFFFFu) | 0x800000u) << 1, qfw_sub32(x >> 23, 128)};
    return f;
}

/* The bits of p 2^-55, an even number in [1, 4), times 2^(*exp - 126), to nearest even; *exp becomes
 * the exponent field less one. They are right where that is at most 252: then it is a normal number.
 * Halved where it has 57 bits, p loses none, and its high word has 24 bits. Half a unit less one, and one
 * more where that word is odd, carry where the low word is above half a unit, or half and the word odd. */
static inline uint32_t qfw_soft_near(uint64_t p, uint32_t *exp)
{
    if (p >> 56 != 0) {
        p >>= 1;
        *exp = qfw_add32(*exp, 1);
    }
    p += 0x7FFFFFFFu + (uint32_t)(p >> 32 & 1);
    return qfw_add32(*exp << 23, (uint32_t)(p >> 32));
}

/* Those of a * b, b being those of a scale; *exp is beyond 252 for every other product. */
static inline uint32_t qfw_soft_times(qfw_soft_factor a, uint32_t b, uint32_t *exp)
{
    *exp = qfw_add32(a.exp, b >> 23);
    return qfw_soft_near(qfw_mul64(a.mant, b << 8 | 0x80000000u), exp);
}

/* mant 2^exp to the nearest float, ties to even; at least 2^-126, or 0. Infinite above. */
float qfw_soft_float(uint64_t mant, int32_t exp);

#endif
