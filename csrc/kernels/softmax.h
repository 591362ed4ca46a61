/* A row of softmax: docs/numerics.md sections 15 and 19. */
#ifndef QFW_KERNELS_SOFTMAX_H
#define QFW_KERNELS_SOFTMAX_H

#include "base/elementary.h"
#include "base/fixed.h"
#include "include/qfw.h"

enum { QFW_MAX_CLASSES = 1 << 16 };

/* What a row leaves besides its probabilities: its largest logit and the sum of the powers, 2^30 for
 * the largest logit and at most 2^16 times that. */
typedef struct {
    uint64_t sum;
    int32_t top;
} qfw_softmax_sum;

/* qfw_cross_entropy_s16 of what can only have wrong labels. */
qfw_status qfw_cross_entropy_rows(const int16_t *z, float scale, const int32_t *labels, size_t rows,
                                  size_t classes, int32_t *error, float *error_scale,
                                  uint32_t *absmax, float *loss);

/* p[c] in units of 2^-30, at most 2^30. */
qfw_softmax_sum qfw_softmax_s16(const int16_t *z, size_t classes, const qfw_log2_scale *s,
                                int32_t *p);

/* -log2 of the probability of a logit z of the row, in units of 2^-26: 0 .. 2^36 + 16 * 2^26. */
static inline uint64_t qfw_nll_s16(const qfw_softmax_sum *row, int32_t z, const qfw_log2_scale *s)
{
    return qfw_log2_q26(row->sum) - (UINT64_C(30) << 26) +
           qfw_distance((uint32_t)(row->top - z), s);
}

/* e[c] = exp(z[c] - top), top the largest; their sum, 1 <= *sum <= classes. QFW_E_NONFINITE at a NaN
 * or an infinity. */
qfw_status qfw_softmax_f32(const float *z, size_t classes, float *e, float *top, float *sum);

#endif
