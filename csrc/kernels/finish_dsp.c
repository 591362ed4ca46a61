/* What follows an integer product on a Cortex-M with the DSP extension: columns one after the other,
 * so that a column's seed and absmax stay in registers. */
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
        const int32_t v = relu ? sum & ~(sum >> 31) : sum;
        *acc = v;
        most = v > most ? v : most;
        least = !relu && v < least ? v : least;
    }
    return larger(most, least, before);
}

/* With codes that must be > 0, one absmax in all. */
static uint32_t finish_masked(int32_t *acc, size_t n, const int8_t *mask, uint32_t before)
{
    int32_t most = 0, least = 0;
    for (const int32_t *end = acc + n; acc < end; acc++) {
        const int32_t v = *mask++ > 0 ? *acc : 0;
        *acc = v;
        most = v > most ? v : most;
        least = v < least ? v : least;
    }
    return larger(most, least, before);
}

void qfw_finish_s32_dsp(int32_t *acc, size_t rows, size_t n, const qfw_finish *f)
{
    if (f->mask != NULL && (f->mask_kind != 8 || f->seed != NULL || f->columns || f->relu)) {
        qfw_finish_s32_scalar(acc, rows, n, f);
        return;
    }
    if (f->mask != NULL) {
        f->absmax[0] = finish_masked(acc, rows * n, f->mask, f->absmax[0]);
        return;
    }
    if (f->seed == NULL && !f->relu && !f->columns) { /* one column of them all */
        const uint32_t size = qfw_absmax_s32_dsp(acc, rows * n);
        f->absmax[0] = size > f->absmax[0] ? size : f->absmax[0];
        return;
    }
    for (size_t j = 0; j < n; j++) {
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

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
