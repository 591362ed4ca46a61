/* Biases in steps of accumulators: the definition. */
#include "kernels/kernels.h"

/* On a device: seeds of no shift, where v = |m| mant < 2^(39 + under) is in steps of 2^under mantissas,
 * 1 <= under < 32. Half away is floor((v / 2^under + mant / 2) / mant), of which the odd half goes in
 * before the shift; that is below 2^40: a word and a byte, divided one after the other. */
static void seeds_few(const int32_t *m, const qfw_num *by, size_t n, float *sigma, int32_t *seed,
                      uint8_t *shift)
{
    const uint32_t times = (uint32_t)by->mant;
    for (const float *end = sigma + n; sigma < end; sigma++, m++) {
        const uint32_t word = qfw_bits_f32(*sigma), mant = (word & 0x7FFFFFu) | 0x800000u;
        const uint32_t under = (word >> 23) - 150 - (uint32_t)by->exp;
        const uint32_t size = qfw_abs32(*m);
        const uint64_t odd = (mant & 1u) << ((under - 1) & 31);
        const uint64_t v = (uint64_t)size * times + odd;
        const uint32_t high = (uint32_t)(v >> 32), low = (uint32_t)(v & 0xFFFFFFFFu);
        const uint32_t down = under & 31;
        if (under - 1 < 31 && high >> down < 128) {
            const uint32_t upper = high >> down, lower = low >> down | high << ((32 - down) & 31);
            const uint64_t over = ((uint64_t)upper << 32 | lower) + (mant >> 1);
            const uint32_t most = (uint32_t)(over >> 8), q = most / mant;
            const uint32_t last = (most - q * mant) << 8 | (uint32_t)(over & 0xFFu);
            const int32_t r = (int32_t)((q << 8) + last / mant);
            *seed++ = *m < 0 ? -r : r;
            *shift++ = 0;
            continue;
        }
        const qfw_seed r = qfw_seed_of((int64_t)(v - odd), by->exp, *sigma);
        *seed++ = *m < 0 ? -r.seed : r.seed;
        *shift++ = r.shift;
        *sigma = r.shift != 0 ? qfw_scale_lift(*sigma, r.shift) : *sigma;
    }
}

void qfw_seeds_s32_scalar(const int32_t *m, float s, size_t n, float *sigma, int32_t *seed,
                          uint8_t *shift)
{
    const qfw_num v = qfw_num_f32(s);
    if (QFW_DIRECT) {
        seeds_few(m, &v, n, sigma, seed, shift);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const qfw_seed r = qfw_seed_of((int64_t)v.mant * m[i], v.exp, sigma[i]);
        seed[i] = r.seed;
        shift[i] = r.shift;
        sigma[i] = r.shift != 0 ? qfw_scale_lift(sigma[i], r.shift) : sigma[i];
    }
}
