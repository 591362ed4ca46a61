/* Slopes of rows that all have one divisor or one dividend: by its reciprocal. What they stand for is a
 * quotient of floats, qfw_row_slope's, of which 16 bits of the mantissa count; these are the same where those
 * that follow are not close to 0 or 1. */
#ifndef QFW_ENGINE_SLOPES_H
#define QFW_ENGINE_SLOPES_H

#include "base/soft.h"

/* 2^55 / mant, but for 2^-28 of it; 2^23 <= mant < 2^24. One division finds it but for 2^-14.4 and less than
 * it is, a step of Newton's the rest. `left` is 2^31 times what is missing; the sum is below 2^32. */
QFW_INLINE uint32_t slope_reciprocal(uint32_t mant)
{
    const uint32_t some = (0xFFFFFFFFu / ((mant >> 8) + 1)) << 15;
    const uint32_t left = (1u << 31) - qfw_mulhi(some, mant << 8);
    return some + 2 * qfw_mulhi(some, left);
}

/* A factor of products: its mantissa, of 32 bits, and the field of its exponent. */
typedef struct {
    uint32_t mant, field;
} slope_factor;

static inline slope_factor slope_factor_of(float a)
{
    const uint32_t x = qfw_bits_f32(a);
    const slope_factor f = {qfw_mul32(x, 1u << 8) | 0x80000000u, x >> 23};
    return f;
}

/* Whether the mantissa that begins with the bits of a, 31 after the first, has 16 bits that are those of a
 * float within 2^-22.9 of it, which are less than 2^9.2 of its last bits. */
QFW_INLINE bool slope_is_clear(uint32_t a)
{
    return (qfw_sub32(a, 640) & 0xFFFFu) < 0xFA00u;
}

/* Of a, at least 1, which would be of the field `field` if its first bit were set. */
QFW_INLINE bool slope_near(uint32_t a, uint32_t field, qfw_soft_upper *to)
{
    const uint32_t up = (uint32_t)(31 - qfw_msb64(a));
    a <<= up;
    to->mu = a >> 16;
    to->field = qfw_sub32(field, up);
    return slope_is_clear(a);
}

#endif
