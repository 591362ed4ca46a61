/* Floats made of integers, where floats are software: half of the work of the compiler's helpers, and
 * the same bits. */
#ifndef QFW_BASE_SOFT_H
#define QFW_BASE_SOFT_H

#include "base/config.h"
#include "base/fixed.h"

/* a * b and a / b, a and b 0 or positive and normal, a divisor not 0: the nearest float, ties to even;
 * 0 below the normal numbers, the largest above. */
float qfw_soft_mul(float a, float b);
float qfw_soft_div(float a, float b);

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
    return qfw_add32(qfw_mul32(*exp, 1u << 23), (uint32_t)(p >> 32));
}

/* Those of a * b, b being those of a scale; *exp is beyond 252 for every other product. */
static inline uint32_t qfw_soft_times(qfw_soft_factor a, uint32_t b, uint32_t *exp)
{
    *exp = qfw_add32(a.exp, b >> 23);
    return qfw_soft_near(qfw_mul64(a.mant, qfw_mul32(b, 1u << 8) | 0x80000000u), exp);
}

/* mant 2^exp to the nearest float, ties to even; at least 2^-126, or 0. Infinite above. */
float qfw_soft_float(uint64_t mant, int32_t exp);

/* Of a normal float's bits. */
static inline uint32_t qfw_mantissa(uint32_t bits)
{
    return (bits & 0x7FFFFFu) | 0x800000u;
}

/* qfw_soft_div, the last eight bits of its mantissa 0. 15 bits follow the first one. The nearest float has
 * more of them than the quotient has if the next nine bits all are 1: eight that it has too, and half of
 * its last one. Then by - rest <= by / 2^9. Below the normal numbers FLT_MIN stands for a quotient of which
 * all 24 bits are 1. */
static inline float qfw_soft_div_upper(float a, float b)
{
    const uint32_t x = qfw_bits_f32(a), y = qfw_bits_f32(b);
    const uint32_t by = qfw_mantissa(y), small = qfw_mantissa(x) < by ? 1 : 0;
    const int32_t exp = (int32_t)(x >> 23) - (int32_t)(y >> 23) + 127 - (int32_t)small;
    if (x == 0 || exp < 0) {
        return 0.0f;
    }
    const uint32_t first = (qfw_mantissa(x) << small) - by;
    const uint32_t upper = (first << 7) / by, second = (first << 7) - upper * by;
    const uint32_t lower = (second << 8) / by, rest = (second << 8) - lower * by;
    const uint32_t q = (upper << 8 | lower) + (by - rest <= by >> 9 ? 1u : 0u);
    if (exp == 0) {
        const bool ones = (upper << 8 | lower) == 0x7FFF && by - rest <= by >> 8;
        return ones ? FLT_MIN : 0.0f;
    }
    const uint32_t bits = ((uint32_t)exp << 23) + (q << 8), most = QFW_F32_MAX & 0xFFFFFF00u;
    return qfw_from_bits_f32(bits < most ? bits : most);
}

/* A normal number's mantissa of 24 bits and the field of its exponent. */
typedef struct {
    uint32_t mant, field;
} qfw_soft_number;

static inline qfw_soft_number qfw_soft_number_of(float a)
{
    const uint32_t x = qfw_bits_f32(a);
    const qfw_soft_number n = {qfw_mantissa(x), x >> 23};
    return n;
}

/* 16 bits of a quotient's mantissa, the first of which is 1, and the field of its exponent. */
typedef struct {
    uint32_t mu, field;
} qfw_soft_upper;

/* Those of qfw_soft_div_upper, if the field is that of a normal number, which the caller sees to. False: what
 * follows them are ones. */
QFW_INLINE bool qfw_soft_find_upper(qfw_soft_number a, qfw_soft_number b, qfw_soft_upper *to)
{
    uint32_t rest = qfw_sub32(a.mant, b.mant), field = qfw_sub32(a.field + 127, b.field);
    if (a.mant < b.mant) {
        rest = qfw_add32(rest, a.mant);
        field = qfw_sub32(field, 1);
    }
    const uint32_t upper = (rest << 7) / b.mant;
    rest = (rest << 7) - upper * b.mant;
    const uint32_t lower = (rest << 8) / b.mant;
    rest = (rest << 8) - lower * b.mant;
    to->mu = (upper << 8 | lower) + 0x8000u;
    to->field = field;
    return b.mant - rest > b.mant >> 9;
}

#endif
