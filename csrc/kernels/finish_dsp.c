/* What follows an integer product on a Cortex-M with the DSP extension: columns one after the other,
 * so that a column's seed and absmax stay in registers. */
#include "kernels/at_once.h"
#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

static inline uint32_t larger(int32_t most, int32_t least, uint32_t before)
{
    const uint32_t high = (uint32_t)most, low = qfw_abs32(least);
    const uint32_t size = high > low ? high : low;
    return size > before ? size : before;
}

/* Rows of one column, n elements apart; none are below 0 after a ReLU. */
static inline uint32_t finish_column(int32_t *acc, size_t rows, size_t n, const bool shifts,
                                     uint32_t shift, int32_t seed, const bool relu, uint32_t before)
{
    int32_t most = 0, least = 0;
    for (; rows > 0; rows--, acc += n) {
        const int32_t sum = (shifts ? *acc >> shift : *acc) + seed;
        const int32_t v = relu ? dsp_positive(sum) : sum;
        *acc = v;
        most = v > most ? v : most;
        least = !relu && v < least ? v : least;
    }
    return larger(most, least, before);
}

/* A number, or 0 below it after a ReLU; most becomes its size, if that is larger. |v| < 2^31. */
QFW_ALWAYS_INLINE int32_t kept(int32_t v, const bool relu, uint32_t *most)
{
    const int32_t to = relu ? dsp_positive(v) : v;
    const uint32_t size = relu ? (uint32_t)to : qfw_abs32(to);
    *most = size > *most ? size : *most;
    return to;
}

/* Rows of four columns side by side, without shifts. */
static inline void finish_four(int32_t *acc, size_t rows, size_t n, const int32_t *seed,
                               uint32_t *absmax, const bool relu)
{
    const int32_t s0 = seed[0], s1 = seed[1], s2 = seed[2], s3 = seed[3];
    uint32_t m0 = absmax[0], m1 = absmax[1], m2 = absmax[2], m3 = absmax[3];
    for (; rows > 0; rows--, acc += n) {
        acc[0] = kept(acc[0] + s0, relu, &m0);
        acc[1] = kept(acc[1] + s1, relu, &m1);
        acc[2] = kept(acc[2] + s2, relu, &m2);
        acc[3] = kept(acc[3] + s3, relu, &m3);
    }
    absmax[0] = m0;
    absmax[1] = m1;
    absmax[2] = m2;
    absmax[3] = m3;
}

/* Fours of columns with seeds and an absmax each, from the first on: how many columns are done. */
static size_t finish_fours(int32_t *acc, size_t rows, size_t n, const qfw_finish *f)
{
    size_t j = 0;
    for (; n - j >= 4; j += 4) {
        const uint8_t *shift = f->shift + j;
        if ((shift[0] | shift[1] | shift[2] | shift[3]) != 0) {
            break;
        }
        if (f->relu) {
            finish_four(acc + j, rows, n, f->seed + j, f->absmax + j, true);
        } else {
            finish_four(acc + j, rows, n, f->seed + j, f->absmax + j, false);
        }
    }
    return j;
}

/* A register's number where a byte of r9 has a sign, else 0; and the size of a number, if it is larger. */
#define KEPT(x, sign) "sbfx r10, r9, #" sign ", #1\n\tand " x ", " x ", r10\n\t"
#define SIZE(x)                          \
    "eor r10, " x ", " x ", asr #31\n\t" \
    "sub r10, r10, " x ", asr #31\n\t"   \
    "sub r10, r10, %[most]\n\t"          \
    "usat r10, #31, r10\n\t"             \
    "add %[most], %[most], r10\n\t"

/* With codes that must be > 0, fours of numbers, some at least: 0 - a code > 0 has a sign. The largest size,
 * |number| < 2^31. */
static QFW_NOINLINE uint32_t finish_masked_fours(int32_t *acc, const int32_t *end,
                                                 const int8_t *mask)
{
    int32_t most = 0;
    __asm__ volatile("1:\n\t"
                     "ldr r9, [%[mask]], #4\n\t"
                     "ldmia %[acc], {r4, r5, r6, r8}\n\t"
                     "qsub8 r9, %[zero], r9\n\t" KEPT("r4", "7") KEPT("r5", "15") KEPT("r6", "23")
                         KEPT("r8", "31") "stmia %[acc]!, {r4, r5, r6, r8}\n\t" SIZE("r4")
                             SIZE("r5") SIZE("r6") SIZE("r8") "cmp %[acc], %[end]\n\t"
                                                              "bne 1b"
                     : [acc] "+&r"(acc), [mask] "+&r"(mask), [most] "+&r"(most)
                     : [end] "r"(end), [zero] "r"(0)
                     : "r4", "r5", "r6", "r8", "r9", "r10", "memory", "cc");
    return (uint32_t)most;
}

/* With codes that must be > 0, one absmax in all. */
static uint32_t finish_masked(int32_t *acc, size_t n, const int8_t *mask, uint32_t before)
{
    int32_t most = 0, least = 0;
    const size_t fours = QFW_HAS_BATCH ? n & ~(size_t)3 : 0;
    if (fours != 0) {
        const uint32_t size = finish_masked_fours(acc, acc + fours, mask);
        before = size > before ? size : before;
    }
    mask += fours;
    const int32_t *end = acc + n;
    for (acc += fours; acc < end; acc++) {
        if (*mask++ <= 0) {
            *acc = 0;
            continue;
        }
        const int32_t v = *acc;
        most = v > most ? v : most;
        least = v < least ? v : least;
    }
    return larger(most, least, before);
}

/* One row with seeds, each column by itself: |seed| < 2^30 and the sum is within 2^30 (kernels.h). */
static void finish_row(int32_t *acc, size_t n, const qfw_finish *f)
{
    const int32_t *seed = f->seed, keep = f->relu ? -1 : 0;
    const uint8_t *shift = f->shift;
    uint32_t *absmax = f->absmax;
    for (const int32_t *end = acc + n; acc < end; absmax++) {
        const int32_t sum = (*acc >> *shift++) + *seed++, v = sum & ~(sum >> 31 & keep);
        const uint32_t size = qfw_abs32(v);
        *acc++ = v;
        *absmax = size > *absmax ? size : *absmax;
    }
}

void qfw_finish_s32_dsp(int32_t *acc, size_t rows, size_t n, const qfw_finish *f)
{
    if (QFW_HAS_ANY_MASK && f->mask != NULL &&
        (f->mask_kind != 8 || f->seed != NULL || f->columns || f->relu)) {
        qfw_finish_s32_scalar(acc, rows, n, f);
        return;
    }
    if (f->mask != NULL) {
        f->absmax[0] = finish_masked(acc, rows * n, f->mask, f->absmax[0]);
        return;
    }
    if (f->seed == NULL &&
        (!QFW_HAS_ANY_FINISH || (!f->relu && !f->columns))) { /* one column of them all */
        const uint32_t size = qfw_absmax_s32_dsp(acc, rows * n);
        f->absmax[0] = size > f->absmax[0] ? size : f->absmax[0];
        return;
    }
    if (!QFW_HAS_ANY_FINISH || (rows == 1 && f->columns && f->seed != NULL)) {
        finish_row(acc, n, f);
        return;
    }
    const bool fours = QFW_HAS_BATCH && f->columns && f->seed != NULL;
    for (size_t j = fours ? finish_fours(acc, rows, n, f) : 0; j < n; j++) {
        const int32_t seed = f->seed != NULL ? f->seed[j] : 0;
        const uint32_t shift = f->seed != NULL ? f->shift[j] : 0;
        uint32_t *absmax = f->absmax + (f->columns ? j : 0);
        if (shift != 0) {
            *absmax = f->relu ? finish_column(acc + j, rows, n, true, shift, seed, true, *absmax)
                              : finish_column(acc + j, rows, n, true, shift, seed, false, *absmax);
        } else {
            *absmax = f->relu ? finish_column(acc + j, rows, n, false, 0, seed, true, *absmax)
                              : finish_column(acc + j, rows, n, false, 0, seed, false, *absmax);
        }
    }
}

/* ---- and codes at once ---- */

/* Rows of one column to bytes, n apart; sums are asked for their size where `sizes`. Half up is half
 * away where there are no ties. */
static inline uint32_t code_column(const int32_t *acc, size_t rows, size_t n, int32_t seed,
                                   const bool relu, const bool ties, const bool sizes,
                                   const dsp_ratio *ratio, int32_t q, uint32_t *absmax,
                                   int8_t *codes)
{
    const int32_t mult = ratio->mult, half = ratio->half;
    const uint32_t shift = ratio->shift;
    int32_t most = 0, least = 0;
    uint32_t saturated = 0;
    for (; rows > 0; rows--, acc += n, codes += n) {
        const int32_t sum = *acc + seed, a = relu ? dsp_positive(sum) : sum;
        int32_t v;
        if (sizes) {
            most = a > most ? a : most;
            least = a < least ? a : least;
        }
        if (ties) {
            v = dsp_nearest(a, mult, half, shift);
        } else {
            __asm__("smmla %0, %1, %2, %3" : "=r"(v) : "r"(a), "r"(mult), "r"(half));
            v >>= shift;
        }
        if (__builtin_expect((uint32_t)(v + q) > 2 * (uint32_t)q, 0)) {
            v = v < 0 ? -q : q;
            saturated++;
        }
        *codes = (int8_t)v;
    }
    if (sizes && absmax != NULL) {
        *absmax = larger(most, least, *absmax);
    }
    return saturated;
}

/* A column whose ratio or shift is another: by the definition. */
static uint32_t any_column(const int32_t *acc, size_t rows, size_t n, const qfw_finish *f, size_t j,
                           const qfw_ratio *ratio, int32_t q, int8_t *codes)
{
    const int32_t seed = f->seed != NULL ? f->seed[j] : 0;
    const uint32_t shift = f->seed != NULL ? f->shift[j] : 0;
    uint32_t saturated = 0;
    for (size_t i = 0; i < rows; i++) {
        const int32_t sum = (acc[i * n + j] >> shift) + seed, a = f->relu && sum < 0 ? 0 : sum;
        const uint32_t mine = qfw_abs32(a);
        const int32_t v = qfw_rescale(a, ratio, QFW_HALF_AWAY, 0);
        const int32_t code = v > q ? q : v < -q ? -q : v;
        saturated += code != v ? 1u : 0u;
        codes[i * n + j] = (int8_t)code;
        if (f->absmax != NULL && mine > f->absmax[j]) {
            f->absmax[j] = mine;
        }
    }
    return saturated;
}

bool qfw_finish_codes(const int32_t *acc, size_t rows, size_t n, const qfw_finish *f,
                      const uint32_t *ratios, const qfw_code_rule *rule, int8_t *codes,
                      uint64_t *saturated)
{
    const int32_t q = rule->qmax;
    if (f->mask != NULL || !f->columns || rule->rounding != QFW_HALF_AWAY || rule->zp != 0 ||
        rule->qmin != -q) {
        return false;
    }
    for (size_t j = 0; j < n; j++) {
        const qfw_ratio ratio = {ratios[j], (uint8_t)ratios[2 * n + j], (uint8_t)ratios[3 * n + j],
                                 ratios[n + j]};
        const bool shifts = f->seed != NULL && f->shift[j] != 0, sizes = f->absmax != NULL;
        const int32_t seed = f->seed != NULL ? f->seed[j] : 0;
        uint32_t *absmax = sizes ? f->absmax + j : NULL;
        dsp_ratio r;
        if (!dsp_takes(ratio.mult, ratio.up, ratio.down, 32, &r) || shifts) {
            *saturated += any_column(acc, rows, n, f, j, &ratio, q, codes);
            continue;
        }
        const bool ties = dsp_ties(&r);
        const int32_t *from = acc + j;
        int8_t *to = codes + j;
        if (ties || sizes) {
            *saturated +=
                f->relu ? code_column(from, rows, n, seed, true, true, true, &r, q, absmax, to)
                        : code_column(from, rows, n, seed, false, true, true, &r, q, absmax, to);
        } else {
            *saturated +=
                f->relu ? code_column(from, rows, n, seed, true, false, false, &r, q, absmax, to)
                        : code_column(from, rows, n, seed, false, false, false, &r, q, absmax, to);
        }
    }
    return true;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
