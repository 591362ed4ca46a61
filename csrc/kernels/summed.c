/* The gradient of a row of weights over the rows of a step, and that of biases; codes that are halved: for a
 * device. */
#include "kernels/moved.h"

#if !defined(__ARM_FEATURE_DSP)

uint32_t qfw_sum_row(int32_t *sums, const int8_t *e, size_t out, const int8_t *x, size_t n,
                     size_t terms)
{
    uint32_t all = 0;
    for (; terms > 0; terms--, e += out, x += n) {
        const int32_t code = *e;
        if (code == 0) {
            continue;
        }
        if (all == 0) {
            memset(sums, 0, n * sizeof *sums);
        }
        all += qfw_abs32(code);
        for (size_t i = 0; i < n; i++) {
            sums[i] += code * x[i];
        }
    }
    return all;
}

void qfw_sum_biases(int32_t *sums, const int8_t *e, size_t n, size_t terms)
{
    for (size_t j = 0; j < n; j++) {
        const int8_t *at = e + j;
        int32_t sum = 0;
        for (size_t k = terms; k > 0; k--, at += n) {
            sum += *at;
        }
        sums[j] = sum;
    }
}

#else
typedef int qfw_no_scalar; /* a unit that is not empty */
#endif
