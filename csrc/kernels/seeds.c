/* Biases in steps of accumulators: the definition. */
#include "kernels/seeds.h"
#include "base/round.h"

/* Seeds beyond those of `seeded`. */
static uint32_t seed_far(int32_t m, float s, float *sigma, uint8_t *shift)
{
    const qfw_num v = qfw_num_f32(s);
    const qfw_seed r = qfw_seed_of((int64_t)v.mant * m, v.exp, *sigma);
    *shift = r.shift;
    *sigma = r.shift != 0 ? qfw_scale_lift(*sigma, r.shift) : *sigma;
    return (uint32_t)r.seed;
}

/* A seed of no shift is |m| times / (mant 2^under) half away, mant and times the mantissas of sigma and s:
 * floor(N / (2^8 mant)), N = |m| times 2^(8 - under) + 2^7 mant. Where 0 <= under <= 8 and |m| < 2^16, or
 * |m| 2^-under < 2^16, N is below 2^16 2^32, and the seed has two digits, each the quotient of a word: N /
 * 2^16 by mant, then what is left and the next byte. */
static inline void seeded(const void *codes, const int32_t width, float s, float a, const float *by,
                          size_t step, size_t n, float *sigma, int32_t *seed, uint8_t *shift)
{
    const uint32_t unit = qfw_bits_f32(s), times = (unit & 0x7FFFFFu) | 0x800000u;
    const uint32_t least = (unit >> 23) + 8; /* the exponent field of a sigma with under = 8 */
    const qfw_soft_factor factor = qfw_soft_factor_of(a);
    const int16_t *m16 = codes;
    const int32_t *m32 = codes;
    for (const int32_t *end = seed + n; seed < end; by += step, sigma++, seed++, shift++) {
        const uint32_t word = qfw_scale_bits(factor, a, *by);
        const int32_t m = width == 16 ? *m16++ : *m32++;
        const uint32_t mant = (word & 0x7FFFFFu) | 0x800000u, minus = (uint32_t)(m >> 31);
        uint32_t size = qfw_sub32((uint32_t)m ^ minus, minus), up = qfw_sub32(least, word >> 23);
        *sigma = qfw_from_bits_f32(word);
        *shift = 0;
        if (up > 8 || (width == 32 && size >> 16 != 0)) {
            size = up > 8 && up <= 24 ? size << (up - 8) : UINT32_MAX;
            up = 8;
            if (size >> 16 != 0) {
                *seed = (int32_t)seed_far(m, s, sigma, shift);
                continue;
            }
        }
        const uint64_t over = qfw_mul64(size, times << up) + (mant << 7);
        const uint32_t most = (uint32_t)(over >> 16), first = most / mant;
        const uint32_t last = (most - first * mant) << 8 | ((uint32_t)over >> 8 & 0xFFu);
        *seed = (int32_t)qfw_sub32(((first << 8) + last / mant) ^ minus, minus);
    }
}

/* The code of column i. */
static void code_far(const qfw_seeded *c, size_t i, int32_t seed, uint8_t shift)
{
    const int32_t sum = (c->acc[i] >> shift) + seed, a = c->row->relu && sum < 0 ? 0 : sum;
    const qfw_ratio ratio = qfw_ratio_of(c->sigma[i], c->to, 8);
    const int32_t v = qfw_rescale(a, &ratio, QFW_HALF_AWAY, 0);
    const int32_t code = v > 127 ? 127 : v < -127 ? -127 : v;
    *c->saturated += code != v ? 1u : 0u;
    c->codes[i] = (int8_t)code;
}

/* The columns one after the other, those that qfw_seeded_until stops at by the definition. */
static void seed_until(const qfw_seeded *c)
{
    bool has_sigma = false;
    for (size_t i = 0; (i = qfw_seeded_until(c, i, &has_sigma)) < c->n; i++) {
        uint8_t lost;
        c->sigma[i] = has_sigma ? c->sigma[i] : qfw_scale_mul(c->a, c->by[i]);
        const int32_t made = (int32_t)seed_far(c->m[i], c->s, c->sigma + i, &lost);
        if (QFW_HAS_SEEDED_CODES && c->codes != NULL) {
            code_far(c, i, made, lost);
        } else if (c->row != NULL) {
            const int32_t sum = (c->acc[i] >> lost) + made, v = c->row->relu && sum < 0 ? 0 : sum;
            c->acc[i] = v;
            c->row->absmax[i] = qfw_abs32(v);
        } else {
            c->seed[i] = made;
            c->shift[i] = lost;
        }
    }
}

bool qfw_seeded_scales(const qfw_seeded *c)
{
    if (!QFW_HAS_SEEDED_UNTIL || c->n == 0) {
        seeded(c->m, 16, c->s, c->a, c->by, c->step, c->n, c->sigma, c->seed, c->shift);
        return false;
    }
    qfw_seeded all = *c;
    for (size_t i = 0; c->step == 0 && i < c->n; i++) {
        c->sigma[i] = *c->by;
        all.by = c->sigma;
    }
    if (c->row == NULL) {
        memset(c->seed, 0, c->n * sizeof *c->seed);
        memset(c->shift, 0, c->n);
    }
    seed_until(&all);
    return c->row != NULL;
}

void qfw_seeds_s32_scalar(const int32_t *m, float s, size_t n, float *sigma, int32_t *seed,
                          uint8_t *shift)
{
    if (QFW_DIRECT) {
        seeded(m, 32, s, 1.0f, sigma, 1, n, sigma, seed, shift);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        seed[i] = (int32_t)seed_far(m[i], s, sigma + i, shift + i);
    }
}
