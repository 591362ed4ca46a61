/* Biases in steps of accumulators: the definition. */
#include "kernels/seeds.h"
#include "base/round.h"
#include "kernels/ratio.h"

/* Seeds beyond those of `seeded`. */
static uint32_t seed_far(int32_t m, float s, float *sigma, uint8_t *shift)
{
    const qfw_num v = qfw_num_normal(s);
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

void qfw_seeded_scales(const int16_t *m, float s, float a, const float *by, size_t step, size_t n,
                       float *sigma, int32_t *seed, uint8_t *shift)
{
    seeded(m, 16, s, a, by, step, n, sigma, seed, shift);
}

/* The code of a sum at the scale sigma. */
static void code_far(qfw_seeded *c, int32_t a, float sigma)
{
    const qfw_ratio ratio = qfw_ratio_of(sigma, c->to, 8);
    const int32_t v = qfw_rescale(a, &ratio, QFW_HALF_AWAY, 0);
    const int32_t code = v > 127 ? 127 : v < -127 ? -127 : v;
    c->rest.codes.saturated += code != v ? 1u : 0u;
    *c->rest.codes.codes++ = (int8_t)code;
}

/* The columns one after the other, those that qfw_seeded_until stops at by the definition. */
static void follow_row(qfw_seeded *c, size_t n, bool relu)
{
    const uint32_t unit = qfw_bits_f32(c->s);
    const qfw_soft_factor factor = qfw_soft_factor_of(c->a);
    const int32_t *end = c->acc + n;
    c->least = (unit >> 23) + 8;
    c->times = qfw_mantissa(unit);
    c->mant = factor.mant;
    c->exp = factor.exp;
    for (;;) {
        qfw_seeded_until(c);
        if (c->acc == end) {
            return;
        }
        float *sigma = c->sigma - 1;
        uint8_t shift;
        *sigma = c->stopped > 252 ? qfw_scale_mul(c->a, c->by[-1]) : *sigma;
        const int32_t seed = (int32_t)seed_far(*c->m++, c->s, sigma, &shift);
        const int32_t sum = (*c->acc >> shift) + seed, v = relu && sum < 0 ? 0 : sum;
        if (QFW_HAS_SEEDED_CODES && c->has_codes) {
            code_far(c, v, *sigma);
        } else {
            *c->acc = v;
            *(uint32_t *)(void *)((uint8_t *)c->acc + c->rest.sums.sizes) = qfw_abs32(v);
        }
        c->acc++;
        if (c->acc == end) {
            return;
        }
    }
}

void qfw_seeded_sums(qfw_seeded *c, size_t n, bool relu, uint32_t *sizes)
{
    c->has_codes = false;
    c->rest.sums.sizes = (const uint8_t *)sizes - (const uint8_t *)c->acc;
    c->rest.sums.keep = relu ? UINT32_MAX : 0;
    c->rest.sums.end = c->acc + n;
    follow_row(c, n, relu);
}

uint32_t qfw_seeded_codes(qfw_seeded *c, size_t n, bool relu, float to, int8_t *codes)
{
    const qfw_ratio_to by = qfw_ratio_to_of(to);
    c->has_codes = true;
    c->to = to;
    c->rest.codes.keep = relu ? UINT32_MAX : 0;
    c->rest.codes.exp = by.exp;
    c->rest.codes.mant = by.mant;
    c->rest.codes.recip = by.recip;
    c->rest.codes.codes = codes;
    c->rest.codes.end = c->acc + n;
    c->rest.codes.saturated = 0;
    follow_row(c, n, relu);
    return c->rest.codes.saturated;
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
