/* Codes in int8 on a Cortex-M with the DSP extension. */
#include "base/random.h"
#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* Four at a time: |a| - 1 of what is below 0 is its complement, and the largest of both is kept. */
uint32_t qfw_absmax_s32_dsp(const int32_t *a, size_t n)
{
    int32_t most = 0, least = 0;
    for (const int32_t *end = a + n; a < end;) {
        const int32_t v = *a++;
        most = v > most ? v : most;
        least = v < least ? v : least;
    }
    const uint32_t high = (uint32_t)most, low = qfw_abs32(least);
    return high > low ? high : low;
}

/* To the nearest, where nothing is clamped before. */
static uint32_t nearest(const int32_t *a, size_t n, const dsp_ratio *ratio, int32_t q,
                        int8_t *codes)
{
    const int32_t mult = ratio->mult, half = ratio->half;
    const uint32_t shift = ratio->shift;
    uint32_t saturated = 0;
    for (const int32_t *end = a + n; a < end;) {
        int32_t v = dsp_nearest(*a++, mult, half, shift);
        if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
            v = v < 0 ? -q : q;
            saturated++;
        }
        *codes++ = (int8_t)v;
    }
    return saturated;
}

/* And where the sums are few bits long: |a| <= limit is moved up; what is beyond leaves the codes. */
static uint32_t nearest_lifted(const int32_t *a, size_t n, const qfw_ratio *ratio, int32_t q,
                               int8_t *codes)
{
    const int32_t mult = (int32_t)ratio->mult, half = (int32_t)(UINT32_C(1) << (ratio->down - 1));
    const uint32_t up = ratio->up, shift = ratio->down, limit = ratio->limit;
    uint32_t saturated = 0;
    for (const int32_t *end = a + n; a < end;) {
        const int32_t sum = *a++;
        int32_t v;
        if (__builtin_expect((uint32_t)sum + limit > 2 * limit, 0)) {
            v = qfw_rescale(sum, ratio, QFW_HALF_AWAY, 0);
        } else {
            v = dsp_nearest((int32_t)((uint32_t)sum << up), mult, half, shift);
        }
        if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
            v = v < 0 ? -q : q;
            saturated++;
        }
        *codes++ = (int8_t)v;
    }
    return saturated;
}

/* By random words: r = u >> (32 - down) adds r 2^(32 - up), whose high word is r >> up and whose low
 * word has the other bits of r at its top. `lows` are those of u << s. */
static uint32_t random_codes(const int32_t *a, size_t n, const qfw_ratio *ratio, int32_t q,
                             const qfw_key *key, uint64_t first, int8_t *codes)
{
    const int32_t mult = (int32_t)ratio->mult;
    const uint32_t shift = ratio->down - ratio->up, over = 32 - shift;
    const uint32_t lows = ~(UINT32_MAX >> ratio->up);
    uint32_t saturated = 0;
    for (const int32_t *end = a + n; a < end;) {
        const uint32_t at = (uint32_t)(first & 31);
        const qfw_draw_pair d = qfw_block_draw(key, first);
        const size_t left = (size_t)(end - a), some = left < 32 - at ? left : 32 - at;
        uint32_t u = qfw_add32(d.a, qfw_mul32(at, d.b));
        for (const int32_t *stop = a + some; a < stop; u = qfw_add32(u, d.b)) {
            const int32_t sum = *a++;
            uint32_t low = (u << shift) & lows, high = u >> over;
            __asm__("smlal %0, %1, %2, %3" : "+r"(low), "+r"(high) : "r"(sum), "r"(mult));
            int32_t v = (int32_t)high >> shift;
            if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
                v = v < 0 ? -q : q;
                saturated++;
            }
            *codes++ = (int8_t)v;
        }
        first += some;
    }
    return saturated;
}

uint32_t qfw_rescale_s8_dsp(const int32_t *a, size_t n, const qfw_ratio *ratio,
                            const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                            int8_t *codes)
{
    const int32_t q = rule->qmax;
    dsp_ratio r;
    const bool even = rule->zp == 0 && rule->qmin == -q;
    const bool plain = dsp_takes(ratio->mult, ratio->up, ratio->down, 32, &r);
    if (even && plain && rule->rounding == QFW_STOCHASTIC) {
        return random_codes(a, n, ratio, q, key, first, codes);
    }
    if (even && rule->rounding == QFW_HALF_AWAY) {
        return plain ? nearest(a, n, &r, q, codes) : nearest_lifted(a, n, ratio, q, codes);
    }
    return qfw_rescale_s8_scalar(a, n, ratio, rule, key, first, codes);
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
