/* Scales of accumulators with a bias of int16, which may lift them, where kernels are called by name. */
#ifndef QFW_KERNELS_SEEDS_H
#define QFW_KERNELS_SEEDS_H

#include "base/soft.h"
#include "kernels/kernels.h"

/* The bits of qfw_scale_mul(a, b), factor being that of a: of a product that is a normal number its own. */
static inline uint32_t qfw_scale_bits(qfw_soft_factor factor, float a, float b)
{
    uint32_t exp, bits;
    if (QFW_SOFT_FLOAT) {
        bits = qfw_soft_times(factor, qfw_bits_f32(b), &exp);
        if (exp <= 252) {
            return bits;
        }
    } else {
        bits = qfw_bits_f32(a * b);
        if (qfw_sub32(bits, QFW_F32_MIN_NORMAL) <= QFW_F32_MAX - QFW_F32_MIN_NORMAL) {
            return bits;
        }
    }
    return qfw_bits_f32(qfw_scale_mul(a, b));
}

/* sigma[i] = qfw_scale_mul(a, by[i * step]), and then what seeds_s32 makes of it. sigma may be by. */
void qfw_seeded_scales(const int16_t *m, float s, float a, const float *by, size_t step, size_t n,
                       float *sigma, int32_t *seed, uint8_t *shift);

#endif
