/* Floats made of integers, where floats are software: half of the work of the compiler's helpers, and
 * the same bits. */
#ifndef QFW_BASE_SOFT_H
#define QFW_BASE_SOFT_H

#include "base/fixed.h"

/* a * b and a / b, a and b 0 or positive and normal, a divisor not 0: the nearest float, ties to even;
 * 0 below the normal numbers, the largest above. */
float qfw_soft_mul(float a, float b);
float qfw_soft_div(float a, float b);

/* mant 2^exp to the nearest float, ties to even; at least 2^-126, or 0. Infinite above. */
float qfw_soft_float(uint64_t mant, int32_t exp);

/* Of a normal float's bits. */
static inline uint32_t qfw_mantissa(uint32_t bits)
{
    return (bits & 0x7FFFFFu) | 0x800000u;
}

/* qfw_soft_div, the last eight bits of its mantissa 0. 15 bits follow the first one. The nearest float has
 * more of them than the quotient has if the next nine bits all are 1: eight that it has too, and half of
 * its last one. Then by - rest <= by / 2^9. */
static inline float qfw_soft_div_upper(float a, float b)
{
    const uint32_t x = qfw_bits_f32(a), y = qfw_bits_f32(b);
    const uint32_t by = qfw_mantissa(y), small = qfw_mantissa(x) < by ? 1 : 0;
    const int32_t exp = (int32_t)(x >> 23) - (int32_t)(y >> 23) + 127 - (int32_t)small;
    if (x == 0 || exp < 1 || exp > 253) {
        return qfw_from_bits_f32(qfw_bits_f32(qfw_soft_div(a, b)) & 0xFFFFFF00u);
    }
    const uint32_t first = (qfw_mantissa(x) << small) - by;
    const uint32_t upper = (first << 7) / by, second = (first << 7) - upper * by;
    const uint32_t lower = (second << 8) / by, rest = (second << 8) - lower * by;
    const uint32_t q = (upper << 8 | lower) + (by - rest <= by >> 9 ? 1u : 0u);
    return qfw_from_bits_f32(((uint32_t)exp << 23) + (q << 8));
}

#endif
