/* Codes in int8 on a Cortex-M with the DSP extension. */
#include "base/random.h"
#include "kernels/at_once.h"
#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

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

/* By random words u, u + b, ...: r = u >> (32 - down) adds r 2^(32 - up), whose high word is r >> up and
 * whose low word has the other bits of r at its top: u 2^s, less what is below them. */
typedef struct {
    int32_t mult, q;
    uint32_t shift, lows;
} words_rule;

static __attribute__((noinline)) uint32_t random_run(const int32_t *a, const int32_t *end,
                                                     uint32_t u, uint32_t b, const words_rule *rule,
                                                     int8_t *codes)
{
    const int32_t mult = rule->mult, q = rule->q;
    const uint32_t shift = rule->shift, power = UINT32_C(1) << shift, lows = rule->lows;
    uint32_t saturated = 0;
    while (a < end) {
        const uint64_t wide = (uint64_t)u * power;
        uint32_t low = (uint32_t)wide & lows, high = (uint32_t)(wide >> 32);
        __asm__("smlal %0, %1, %2, %3" : "+r"(low), "+r"(high) : "r"(*a++), "r"(mult));
        int32_t v = (int32_t)high >> shift;
        if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
            v = v < 0 ? -q : q;
            saturated++;
        }
        *codes++ = (int8_t)v;
        u = qfw_add32(u, b);
    }
    return saturated;
}

/* The same where no code can leave its range: pairs of sums, one at least. Not within its caller, whose
 * registers this loop has no room beside. Returns the word after the last one. */
static QFW_NOINLINE uint32_t random_pairs(const int32_t *a, const int32_t *end, uint32_t u,
                                          uint32_t b, const words_rule *rule, int8_t *codes)
{
    int32_t x, y;
    uint32_t low, high;
    __asm__ volatile("1:\n\t"
                     "ldrd %[x], %[y], [%[a]], #8\n\t"
                     "umull %[low], %[high], %[u], %[power]\n\t"
                     "and %[low], %[low], %[lows]\n\t"
                     "smlal %[low], %[high], %[x], %[mult]\n\t"
                     "add %[u], %[u], %[b]\n\t"
                     "asr %[x], %[high], %[shift]\n\t"
                     "umull %[low], %[high], %[u], %[power]\n\t"
                     "and %[low], %[low], %[lows]\n\t"
                     "smlal %[low], %[high], %[y], %[mult]\n\t"
                     "add %[u], %[u], %[b]\n\t"
                     "asr %[y], %[high], %[shift]\n\t"
                     "bfi %[x], %[y], #8, #8\n\t"
                     "strh %[x], [%[codes]], #2\n\t"
                     "cmp %[a], %[end]\n\t"
                     "bne 1b"
                     : [a] "+&r"(a), [u] "+&r"(u), [codes] "+&r"(codes), [x] "=&r"(x), [y] "=&r"(y),
                       [low] "=&r"(low), [high] "=&r"(high)
                     : [end] "r"(end), [b] "r"(b), [mult] "r"(rule->mult), [shift] "r"(rule->shift),
                       [power] "r"(UINT32_C(1) << rule->shift), [lows] "r"(rule->lows)
                     : "memory", "cc");
    return u;
}

/* The code of a where the random word has no bit set, or all. */
static int32_t random_bound(int32_t a, bool all, const words_rule *rule)
{
    const uint64_t wide = all ? (uint64_t)UINT32_MAX << rule->shift : 0;
    uint32_t low = (uint32_t)wide & rule->lows, high = (uint32_t)(wide >> 32);
    __asm__("smlal %0, %1, %2, %3" : "+r"(low), "+r"(high) : "r"(a), "r"(rule->mult));
    return (int32_t)high >> rule->shift;
}

/* |a[i]| <= most. */
static uint32_t random_codes(const int32_t *a, size_t n, const qfw_ratio *ratio, int32_t q,
                             const qfw_key *key, uint64_t first, uint32_t most, int8_t *codes)
{
    const words_rule rule = {(int32_t)ratio->mult, q, (uint32_t)ratio->down - ratio->up,
                             ~(UINT32_MAX >> ratio->up)};
    const bool within = QFW_HAS_BATCH && most <= INT32_MAX &&
                        random_bound((int32_t)most, true, &rule) <= q &&
                        random_bound(-(int32_t)most, false, &rule) >= -q;
    uint32_t saturated = 0;
    for (size_t some; n > 0; n -= some, a += some, codes += some, first += some) {
        const uint32_t at = (uint32_t)(first & 31);
        qfw_words w = qfw_words_at(key, first);
        some = n < 32 - at ? n : 32 - at;
        const size_t pairs = within ? some & ~(size_t)1 : 0;
        if (pairs != 0) {
            w.u = random_pairs(a, a + pairs, w.u, w.step, &rule, codes);
        }
        saturated += random_run(a + pairs, a + some, w.u, w.step, &rule, codes + pairs);
    }
    return saturated;
}

/* Of all numbers -2^31 alone is beyond a limit of 31 bits. */
uint32_t qfw_rescale_s8_most(const int32_t *a, size_t n, const qfw_ratio *ratio,
                             const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                             uint32_t most, int8_t *codes)
{
    const int32_t q = rule->qmax;
    dsp_ratio r;
    const bool even = rule->zp == 0 && rule->qmin == -q;
    const bool plain = dsp_takes(ratio->mult, ratio->up, ratio->down, 32, &r);
    if (even && rule->rounding == QFW_STOCHASTIC &&
        (plain || (ratio->up == 0 && ratio->down < 31 && most <= INT32_MAX))) {
        return random_codes(a, n, ratio, q, key, first, most, codes);
    }
    if (QFW_HAS_NEAREST_S8 && even && rule->rounding == QFW_HALF_AWAY) {
        return plain ? nearest(a, n, &r, q, codes) : nearest_lifted(a, n, ratio, q, codes);
    }
    return qfw_rescale_s8_scalar(a, n, ratio, rule, key, first, codes);
}

uint32_t qfw_rescale_s8_dsp(const int32_t *a, size_t n, const qfw_ratio *ratio,
                            const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                            int8_t *codes)
{
    const bool asked = rule->rounding == QFW_STOCHASTIC && ratio->up == 0;
    const uint32_t most = asked ? qfw_absmax_s32_dsp(a, n) : UINT32_MAX;
    return qfw_rescale_s8_most(a, n, ratio, rule, key, first, most, codes);
}

/* ---- where no code can leave its range ---- */

/* Four sums at x0 .. x3 to codes in x0. */
#define PACKED_CODES                \
    "bfi %[x0], %[x1], #8, #8\n\t"  \
    "bfi %[x0], %[x2], #16, #8\n\t" \
    "bfi %[x0], %[x3], #24, #8\n\t" \
    "cmp %[a], %[end]\n\t"          \
    "str %[x0], [%[codes]], #4\n\t"

#define LIFTED(x) "lsl " x ", " x ", %[up]\n\t"
#define HALF_UP(x) "smmla " x ", " x ", %[mult], %[half]\n\t"
#define DOWN(x) "asr " x ", " x ", %[shift]\n\t"
#define HALF_AWAY(x)                            \
    "asr %[low], " x ", #31\n\t"                \
    "add %[high], %[half], %[low]\n\t"          \
    "smlal %[low], %[high], " x ", %[mult]\n\t" \
    "asr " x ", %[high], %[shift]\n\t"
#define HALVED(x)                          \
    "add " x ", " x ", " x ", asr #31\n\t" \
    "smmulr " x ", " x ", %[mult]\n\t"
#define EACH(what) what("%[x0]") what("%[x1]") what("%[x2]") what("%[x3]")

/* A ratio that is 2^-shift, shift >= 2: a below 2^30, as codes have 7 bits beside their sign and shift <=
 * 23. (x 2^(32-shift) + 2^31) >> 32 is (x + 2^(shift-1)) >> shift. */
static void fours_halved(const int32_t *a, const int32_t *end, uint32_t shift, int8_t *codes)
{
    register int32_t x0 __asm__("r4"), x1 __asm__("r5"), x2 __asm__("r6"), x3 __asm__("r8");
    __asm__ volatile("1:\n\t"
                     "ldmia %[a]!, {%[x0], %[x1], %[x2], %[x3]}\n\t" EACH(HALVED) PACKED_CODES
                     "bne 1b"
                     : [a] "+r"(a), [codes] "+r"(codes), [x0] "=&r"(x0), [x1] "=&r"(x1),
                       [x2] "=&r"(x2), [x3] "=&r"(x3)
                     : [end] "r"(end), [mult] "r"(INT32_C(1) << (32 - shift))
                     : "memory", "cc");
}

/* x = a << up; half up and half away differ in ties alone, which have 31 + shift zeros at the end of x
 * mult: x has at most 30. Fours of sums; returns how many are done. Not within its caller, whose registers
 * these loops have no room beside. */
QFW_NOINLINE static size_t fours_within(const int32_t *a, size_t n, const dsp_ratio *r,
                                        int8_t *codes)
{
    register int32_t x0 __asm__("r4"), x1 __asm__("r5"), x2 __asm__("r6"), x3 __asm__("r8");
    const int32_t *end = a + (n & ~(size_t)3);
    const bool ties = ((uint32_t)r->mult & ((UINT32_C(2) << r->shift) - 1)) == 0;
    int32_t low, high;
    if (a == end) {
        return 0;
    }
    const uint32_t down = r->shift + 2 - r->up; /* of a ratio 2^(30 - 32 + up - shift) */
    if (r->mult == 1 << 30 && down - 2 < 22) {
        fours_halved(a, end, down, codes);
    } else if (ties) {
        __asm__ volatile("1:\n\t"
                         "ldmia %[a]!, {%[x0], %[x1], %[x2], %[x3]}\n\t" EACH(LIFTED)
                             EACH(HALF_AWAY) PACKED_CODES "bne 1b"
                         : [a] "+r"(a), [codes] "+r"(codes), [x0] "=&r"(x0), [x1] "=&r"(x1),
                           [x2] "=&r"(x2), [x3] "=&r"(x3), [low] "=&r"(low), [high] "=&r"(high)
                         : [end] "r"(end), [mult] "r"(r->mult), [half] "r"(r->half),
                           [shift] "r"(r->shift), [up] "r"(r->up)
                         : "memory", "cc");
    } else if (r->up != 0) {
        __asm__ volatile("1:\n\t"
                         "ldmia %[a]!, {%[x0], %[x1], %[x2], %[x3]}\n\t" EACH(LIFTED) EACH(HALF_UP)
                             EACH(DOWN) PACKED_CODES "bne 1b"
                         : [a] "+r"(a), [codes] "+r"(codes), [x0] "=&r"(x0), [x1] "=&r"(x1),
                           [x2] "=&r"(x2), [x3] "=&r"(x3)
                         : [end] "r"(end), [mult] "r"(r->mult), [half] "r"(r->half),
                           [shift] "r"(r->shift), [up] "r"(r->up)
                         : "memory", "cc");
    } else {
        __asm__ volatile(
            "1:\n\t"
            "ldmia %[a]!, {%[x0], %[x1], %[x2], %[x3]}\n\t" EACH(HALF_UP) EACH(DOWN) PACKED_CODES
            "bne 1b"
            : [a] "+r"(a), [codes] "+r"(codes), [x0] "=&r"(x0), [x1] "=&r"(x1), [x2] "=&r"(x2),
              [x3] "=&r"(x3)
            : [end] "r"(end), [mult] "r"(r->mult), [half] "r"(r->half), [shift] "r"(r->shift)
            : "memory", "cc");
    }
    return n & ~(size_t)3;
}

bool qfw_codes_within(const int32_t *a, size_t n, const qfw_ratio *ratio, const qfw_code_rule *rule,
                      uint32_t most, int8_t *codes)
{
    const int32_t q = rule->qmax;
    if (rule->rounding != QFW_HALF_AWAY || rule->zp != 0 || rule->qmin != -q ||
        most > ratio->limit || most > INT32_MAX ||
        qfw_rescale((int32_t)most, ratio, QFW_HALF_AWAY, 0) > q) {
        return false;
    }
    dsp_ratio r;
    if (!dsp_takes(ratio->mult, ratio->up, ratio->down, 32, &r)) {
        r.up = ratio->up;
        r.shift = ratio->down;
        r.half = (int32_t)(UINT32_C(1) << (ratio->down - 1));
    }
    for (size_t i = fours_within(a, n, &r, codes); i < n; i++) {
        const int32_t x = (int32_t)((uint32_t)a[i] << r.up);
        codes[i] = (int8_t)dsp_nearest(x, r.mult, r.half, r.shift);
    }
    return true;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
