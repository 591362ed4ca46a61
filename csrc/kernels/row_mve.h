/* Columns of a row four at a time, where the core has vectors of integers; elsewhere none. */
#ifndef QFW_KERNELS_ROW_MVE_H
#define QFW_KERNELS_ROW_MVE_H

#include "kernels/kernels.h"
#include "kernels/ratio.h"

#if defined(__ARM_FEATURE_MVE)

enum { QFW_HAS_MVE = 1 };

/* What qfw_codes_of_row makes of whole fours of columns from the first on, as bytes, with seeds, ReLU or
 * none, and no absmaxes; how many columns that are. It ends before four of which one has a ratio that is
 * not of the common kind or a code that a clamp changes. */
size_t qfw_codes_by_four_mve(const int32_t *acc, size_t n, const qfw_finish *f, const float *from,
                             const qfw_ratio_to *to, int32_t bits, int8_t *codes);

#else

enum { QFW_HAS_MVE = 0 };

static inline size_t qfw_codes_by_four_mve(const int32_t *acc, size_t n, const qfw_finish *f,
                                           const float *from, const qfw_ratio_to *to, int32_t bits,
                                           int8_t *codes)
{
    (void)acc, (void)n, (void)f, (void)from, (void)to, (void)bits, (void)codes;
    return 0;
}

#endif
#endif
