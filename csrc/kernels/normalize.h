/* Rows normalised by their mean and variance: docs/numerics.md sections 20 and 36. */
#ifndef QFW_KERNELS_NORMALIZE_H
#define QFW_KERNELS_NORMALIZE_H

#include "base/elementary.h"
#include "base/round.h"
#include "kernels/kernels.h"

/* The longest row of a LayerNorm. */
enum { QFW_NORM_MAX = 65536 };

/* How a row lies in memory: `pieces` stretches of `wide` elements, `stride` apart. */
typedef struct {
    size_t pieces, wide, stride;
} qfw_row_shape;

static inline size_t qfw_row_length(const qfw_row_shape *shape)
{
    return shape->pieces * shape->wide;
}

/* The next columns of a row, of which `done` elements of each piece were taken; how many of these it
 * takes. A row of one piece is as good as a matrix. */
static inline size_t qfw_norm_block(const qfw_row_shape *shape, size_t done, qfw_columns *at)
{
    const size_t left = shape->wide - done;
    if (shape->pieces == 1 && left >= QFW_CHANNELS) {
        const qfw_columns whole = {left / QFW_CHANNELS, QFW_CHANNELS, QFW_CHANNELS};
        *at = whole;
        return whole.rows * QFW_CHANNELS;
    }
    const qfw_columns some = {shape->pieces, shape->stride,
                              left < QFW_CHANNELS ? left : QFW_CHANNELS};
    *at = some;
    return some.n;
}

/* eps N^2 / s^2 as the integer E; eps 0 or a normal number, s a scale. */
uint64_t qfw_norm_eps(float eps, float s, size_t n);

/* What normalises a row: h = half_away((m slope - offset) 2^(root.exp + frac)); slope = N rho, offset
 * = S rho, root = 1 / sqrt(V + E). frac <= 24 and 31 <= -exp, so the shift is at least 7. */
typedef struct {
    int64_t slope, offset;
    qfw_root root;
    uint64_t v;
} qfw_norm_line;

/* From the sums of n codes and of their squares. */
qfw_norm_line qfw_norm_line_of(size_t n, int64_t sum, uint64_t squares, uint64_t eps);

/* Column j of lines. */
static inline void qfw_norm_put_line(const qfw_norm_line *line, int32_t frac, int32_t sign,
                                     size_t j, qfw_norm_lines *lines)
{
    lines->slope[j] = line->slope;
    lines->offset[j] = line->offset;
    lines->shift[j] = (uint32_t)(-line->root.exp - frac);
    lines->sign[j] = sign;
}

/* A backward over rows of n, and column j of it: from the sums of g and of g h. */
void qfw_norm_back_of(uint32_t frac, uint32_t down, size_t n, qfw_norm_back *back);

/* |sum| < 2^31; |along| < 2^56, so |t| < 2^38. */
static inline void qfw_norm_put_back(int64_t sum, int64_t along, int32_t sign, size_t j,
                                     qfw_norm_back *back)
{
    back->offset[j] = 64 * sum;
    back->t[j] = qfw_shifted(along, back->frac - 6);
    back->sign[j] = sign;
}

/* The sum of eight partial ones, `step` elements apart. */
static inline float qfw_folded(const float *p, size_t step)
{
    return ((p[0] + p[4 * step]) + (p[2 * step] + p[6 * step])) +
           ((p[step] + p[5 * step]) + (p[3 * step] + p[7 * step]));
}

/* Floats: y from x, dx from x and e, all of one shape; gamma and beta, for the elements of a piece,
 * may be NULL. y may not be x. */
typedef struct {
    const float *gamma, *beta;
    qfw_row_shape shape;
    float eps;
} qfw_norm_f32;

void qfw_norm_row_f32(const qfw_norm_f32 *norm, const float *x, float *y);
void qfw_norm_back_f32(const qfw_norm_f32 *norm, const float *x, const float *e, float *dx);

#endif
