/* Biases in steps of accumulators: the definition. */
#include "kernels/kernels.h"

void qfw_seeds_s32_scalar(const int32_t *m, float s, size_t n, float *sigma, int32_t *seed,
                          uint8_t *shift)
{
    const qfw_num v = qfw_num_f32(s);
    for (size_t i = 0; i < n; i++) {
        const qfw_seed r = qfw_seed_of((int64_t)v.mant * m[i], v.exp, sigma[i]);
        seed[i] = r.seed;
        shift[i] = r.shift;
        sigma[i] = r.shift != 0 ? qfw_scale_lift(sigma[i], r.shift) : sigma[i];
    }
}
