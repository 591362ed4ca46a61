/* Rows normalised by their mean and variance: docs/numerics.md section 20. */
#ifndef QFW_KERNELS_NORMALIZE_H
#define QFW_KERNELS_NORMALIZE_H

#include "base/elementary.h"

/* The longest row. */
enum { QFW_NORM_MAX = 65536 };

/* A row of codes in slots of `width` bits, 8 or 16. */
typedef struct {
    const void *codes;
    int32_t width;
} qfw_row_codes;

/* A row to be normalised: n codes, S and 1 / sqrt(V + E), fractional bits of h. */
typedef struct {
    qfw_row_codes x;
    size_t n;
    int64_t sum;
    qfw_root root;
    int32_t frac;
} qfw_norm_row;

/* eps N^2 / s^2 as the integer E; eps 0 or a normal number, s a scale. */
uint64_t qfw_norm_eps(float eps, float s, size_t n);

/* |code| < 2^15, n <= 2^16: n * sum of squares < 2^62. */
qfw_norm_row qfw_norm_row_of(qfw_row_codes x, size_t n, uint64_t eps, int32_t frac);

/* h of elements first .. first + n - 1. */
void qfw_norm_codes(const qfw_norm_row *row, size_t first, size_t n, int32_t *h);

/* acc[i] of the row's dx, from g; `down` is k. */
void qfw_norm_back(const qfw_norm_row *row, qfw_row_codes g, int32_t down, int32_t *acc);

/* Floats: y from x, dx from x and e; gamma and beta may be NULL. y may not be x. */
typedef struct {
    const float *gamma, *beta;
    size_t n;
    float eps;
} qfw_norm_f32;

void qfw_norm_row_f32(const qfw_norm_f32 *norm, const float *x, float *y);
void qfw_norm_back_f32(const qfw_norm_f32 *norm, const float *x, const float *e, float *dx);

#endif
