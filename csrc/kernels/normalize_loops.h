/* Normalisations, columns side by side: the definitions, for columns `from` on, so that a twin takes
 * those that fill no vector. */
#ifndef QFW_KERNELS_NORMALIZE_LOOPS_H
#define QFW_KERNELS_NORMALIZE_LOOPS_H

#include "base/round.h"
#include "kernels/kernels.h"

/* The codes of a row of the columns. */
static inline void loop_load(const qfw_columns *at, qfw_row_codes x, size_t row, size_t from,
                             int32_t *m)
{
    if (x.width == 8) {
        const int8_t *codes = (const int8_t *)x.codes + row * at->stride;
        for (size_t j = from; j < at->n; j++) {
            m[j] = codes[j];
        }
    } else {
        const int16_t *codes = (const int16_t *)x.codes + row * at->stride;
        for (size_t j = from; j < at->n; j++) {
            m[j] = codes[j];
        }
    }
}

static inline void loop_norm_sums(const qfw_columns *at, qfw_row_codes x, size_t from, int32_t *sum,
                                  uint64_t *squares)
{
    int32_t m[QFW_CHANNELS];
    for (size_t j = from; j < at->n; j++) {
        sum[j] = 0;
        squares[j] = 0;
    }
    for (size_t i = 0; i < at->rows; i++) {
        loop_load(at, x, i, from, m);
        for (size_t j = from; j < at->n; j++) {
            sum[j] += m[j];
            squares[j] += (uint32_t)(m[j] * m[j]);
        }
    }
}

static inline void loop_norm_codes(const qfw_columns *at, qfw_row_codes x, size_t from,
                                   const qfw_norm_lines *l, int32_t *acc)
{
    int32_t m[QFW_CHANNELS];
    for (size_t i = 0; i < at->rows; i++) {
        loop_load(at, x, i, from, m);
        for (size_t j = from; j < at->n; j++) {
            const int64_t h = qfw_shifted(m[j] * l->slope[j] - l->offset[j], (int32_t)l->shift[j]);
            acc[i * at->stride + j] = l->sign[j] * (int32_t)h;
        }
    }
}

static inline void loop_norm_along(const qfw_columns *at, qfw_row_codes g, size_t from,
                                   const int32_t *acc, int64_t *sum, int64_t *along)
{
    int32_t m[QFW_CHANNELS];
    for (size_t i = 0; i < at->rows; i++) {
        loop_load(at, g, i, from, m);
        for (size_t j = from; j < at->n; j++) {
            sum[j] += m[j];
            along[j] += (int64_t)m[j] * acc[i * at->stride + j];
        }
    }
}

static inline void loop_norm_back(const qfw_columns *at, qfw_row_codes g, size_t from,
                                  const qfw_norm_back *b, int32_t *acc)
{
    int32_t m[QFW_CHANNELS];
    for (size_t i = 0; i < at->rows; i++) {
        int32_t *acc_i = acc + i * at->stride;
        loop_load(at, g, i, from, m);
        for (size_t j = from; j < at->n; j++) {
            const int64_t across = qfw_shifted(acc_i[j] * b->t[j], b->frac);
            const int64_t y = m[j] * b->slope - b->offset[j] - across;
            acc_i[j] = b->sign[j] * (int32_t)qfw_shifted(y, b->down);
        }
    }
}

#endif
