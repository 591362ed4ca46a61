/* Scales of accumulators with a bias of int16, which may lift them, where kernels are called by name. */
#ifndef QFW_KERNELS_SEEDS_H
#define QFW_KERNELS_SEEDS_H

#include "kernels/kernels.h"

/* sigma[i] = qfw_scale_mul(a, by[i * step]), and then what seeds_s32 makes of it. sigma may be by. */
void qfw_seeded_scales(const int16_t *m, float s, float a, const float *by, size_t step, size_t n,
                       float *sigma, int32_t *seed, uint8_t *shift);

#endif
