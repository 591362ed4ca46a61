/* Sums of 64-bit terms, exactly. */
#ifndef QFW_BASE_WIDE_H
#define QFW_BASE_WIDE_H

#include "base/fixed.h"

/* high * 2^32 + low. Up to 2^31 terms: each part gains less than 2^32 a term. */
typedef struct {
    uint64_t high, low;
} qfw_wide;

static inline void qfw_wide_add(qfw_wide *sum, uint64_t term)
{
    sum->high += term >> 32;
    sum->low += term & 0xFFFFFFFFu;
}

/* The sum as a float32, rounded once to nearest even. Of 32 bits and more in `high` the lowest is
 * below a float's half unit: it stands for whatever lies under it. */
static inline float qfw_wide_f32(const qfw_wide *sum)
{
    const uint64_t high = sum->high + (sum->low >> 32), low = sum->low & 0xFFFFFFFFu;
    if (high >> 31 == 0) {
        return qfw_float_u64(high << 32 | low);
    }
    const bool rest = low != 0;
    return qfw_float_u64(high | (rest ? 1u : 0u)) * 0x1p32f;
}

#endif
