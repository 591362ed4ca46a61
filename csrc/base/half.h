/* float16 and bfloat16, in integers: the same bits on every machine, NaN payloads aside (callers
 * refuse NaN). */
#ifndef QFW_BASE_HALF_H
#define QFW_BASE_HALF_H

#include "base/fixed.h"

static inline float qfw_from_bf16(uint16_t h)
{
    return qfw_from_bits_f32((uint32_t)h << 16);
}

/* To nearest even. Adding 0x7FFF + (lowest kept bit) carries exactly when the dropped half rounds
 * up; it may carry into the exponent and so on to infinity, which is the right result there. */
static inline uint16_t qfw_to_bf16(float v)
{
    const uint32_t u = qfw_bits_f32(v);
    return (uint16_t)(qfw_add32(u, 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

static inline float qfw_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
                   fraction = h & 0x3FFu;
    if (exponent == 31) {
        return qfw_from_bits_f32(sign | QFW_F32_INF | fraction << 13);
    }
    if (exponent != 0) {
        return qfw_from_bits_f32(sign | (exponent + 112u) << 23 | fraction << 13);
    }
    /* Subnormal or zero: fraction * 2^-24, exact in float32. */
    const float magnitude = (float)fraction * 0x1p-24f;
    return qfw_from_bits_f32(sign | qfw_bits_f32(magnitude));
}

/* To nearest even, 65520 and above to infinity. */
static inline uint16_t qfw_to_f16(float v)
{
    const uint32_t u = qfw_bits_f32(v), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude >= 0x47800000u) { /* 2^16 and above, infinity, NaN */
        return (uint16_t)(sign | 0x7C00u | (magnitude > QFW_F32_INF ? 0x200u : 0u));
    }
    /* Drop `cut` bits of the significand `m`: 13 for a normal half, more the deeper it is
     * subnormal. */
    const uint32_t exponent = magnitude >> 23;
    const bool normal = exponent >= 113;
    const uint32_t cut = normal ? 13 : 126 - exponent;
    const uint32_t m = normal ? magnitude - (112u << 23) : (magnitude & 0x7FFFFFu) | 0x800000u;
    if (cut > 24) { /* below half of the smallest subnormal */
        return (uint16_t)sign;
    }
    const uint32_t kept = m >> cut, rest = m & ((1u << cut) - 1), half = 1u << (cut - 1);
    return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
}

#endif
