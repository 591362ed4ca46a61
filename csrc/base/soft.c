#include "base/soft.h"
#include "base/config.h"

/* mant 2^(exp - 150), one more of its last bit if `up`; 2^23 <= mant < 2^24. A number under FLT_MIN
 * has a bit less: it becomes FLT_MIN from half of its last bit on, which is the largest mantissa. */
static float rounded(uint32_t mant, bool up, int32_t exp)
{
    if (exp < 1) {
        return exp == 0 && mant == 0xFFFFFFu ? FLT_MIN : 0.0f;
    }
    const uint32_t bits = ((uint32_t)(exp < 255 ? exp - 1 : 254) << 23) + mant + (up ? 1u : 0u);
    return bits > QFW_F32_MAX ? FLT_MAX : qfw_from_bits_f32(bits);
}

float qfw_soft_mul(float a, float b)
{
    const uint32_t x = qfw_bits_f32(a), y = qfw_bits_f32(b);
    if (x == 0 || y == 0) {
        return 0.0f;
    }
    const qfw_soft_factor f = qfw_soft_factor_of(a);
    uint32_t exp;
    const uint32_t bits = qfw_soft_times(f, y, &exp);
    if (!QFW_IS_SMALL && exp <= 252) {
        return qfw_from_bits_f32(bits);
    }
    exp = qfw_add32(f.exp, y >> 23); /* field less one */
    uint64_t p = qfw_mul64(f.mant, qfw_mul32(y, 1u << 8) | 0x80000000u);
    if (p >> 56 != 0) {
        p >>= 1;
        exp = qfw_add32(exp, 1);
    }
    const uint32_t mant = (uint32_t)(p >> 32), rest = (uint32_t)(p & 0xFFFFFFFFu);
    return rounded(mant, rest > 0x80000000u - (mant & 1u), (int32_t)exp + 1);
}

/* Eight bits more of a quotient; a rest is below `by`, so a word with them. */
static inline uint32_t digit(uint32_t q, uint32_t *rest, uint32_t by)
{
    const uint32_t word = *rest << 8, more = word / by;
    *rest = word - more * by;
    return q << 8 | more;
}

/* The quotient of the mantissas is made at least 1 and below 2; 24 bits follow, the last of which is half a
 * unit. One is added to it, which carries if it is set, where there is more or the unit is odd: a tie
 * to even. */
float qfw_soft_div(float a, float b)
{
    const uint32_t x = qfw_bits_f32(a), y = qfw_bits_f32(b);
    if (x == 0) {
        return 0.0f;
    }
    const uint32_t by = qfw_mantissa(y);
    uint32_t rest = qfw_mantissa(x), exp = qfw_sub32((x >> 23) + 126, y >> 23); /* field less one */
    if (rest < by) {
        rest <<= 1;
        exp = qfw_sub32(exp, 1);
    }
    rest -= by;
    const uint32_t two = digit(1, &rest, by), three = digit(two, &rest, by),
                   q = digit(three, &rest, by);
    const uint32_t up = rest != 0 ? 1 : q >> 1 & 1;
    if (exp <= 252) {
        return qfw_from_bits_f32((exp << 23) + ((q + up) >> 1));
    }
    return rounded(q >> 1, (q & up) != 0, (int32_t)exp + 1);
}

float qfw_soft_float(uint64_t mant, int32_t exp)
{
    if (mant == 0) {
        return 0.0f;
    }
    const int msb = qfw_msb64(mant);
    const uint64_t word = mant << (63 - msb);
    const uint32_t high = (uint32_t)(word >> 32), more = (word & 0xFFFFFFFFu) != 0 ? 1 : 0;
    const uint32_t kept = high >> 8, rest = high << 24 | more;
    const uint32_t up = rest > 0x80000000u - (kept & 1u) ? 1 : 0;
    const int32_t field = exp + msb + 126; /* one less: the mantissa's first bit adds it */
    const uint32_t bits = ((uint32_t)(field < 255 ? field : 254) << 23) + kept + up;
    return qfw_from_bits_f32(bits < QFW_F32_INF ? bits : QFW_F32_INF);
}
