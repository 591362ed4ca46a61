#include "kernels/normalize.h"

#include <math.h>

#include "base/scale.h"
#include "kernels/normalize_loops.h"

/* ---- integers ---- */

uint64_t qfw_norm_eps(float eps, float s, size_t n)
{
    if (eps == 0.0f) {
        return 1;
    }
    const float count = (float)n;
    const float per = qfw_scale_quot(qfw_scale_quot(eps, s), s);
    const float e = qfw_scale_mul(qfw_scale_mul(per, count), count);
    if (e >= 0x1p62f) {
        return UINT64_C(1) << 62;
    }
    const qfw_num v = qfw_num_f32(e); /* mant < 2^24, so exp <= 38 */
    const uint64_t floor = v.exp >= 0    ? (uint64_t)v.mant << v.exp
                           : v.exp > -24 ? v.mant >> -v.exp
                                         : 0;
    return floor != 0 ? floor : 1;
}

/* v < 2^62 and eps <= 2^62. n |code| < 2^31, so that n rho |code| and |sum| rho are below 2^62. */
qfw_norm_line qfw_norm_line_of(size_t n, int64_t sum, uint64_t squares, uint64_t eps)
{
    const uint64_t v = n * squares - (uint64_t)(sum * sum);
    const qfw_root root = qfw_rsqrt(v + eps);
    const qfw_norm_line line = {(int64_t)n * root.rho, sum * root.rho, root, v};
    return line;
}

void qfw_norm_back_of(uint32_t frac, uint32_t down, size_t n, qfw_norm_back *back)
{
    back->slope = 64 * (int64_t)n;
    back->frac = (int32_t)frac;
    back->down = (int32_t)down;
}

void qfw_norm_sums_scalar(const qfw_columns *at, qfw_row_codes x, int32_t *sum, uint64_t *squares)
{
    loop_norm_sums(at, x, 0, sum, squares);
}

void qfw_norm_codes_scalar(const qfw_columns *at, qfw_row_codes x, const qfw_norm_lines *lines,
                           int32_t *acc)
{
    loop_norm_codes(at, x, 0, lines, acc);
}

void qfw_norm_along_scalar(const qfw_columns *at, qfw_row_codes g, const int32_t *acc, int64_t *sum,
                           int64_t *along)
{
    loop_norm_along(at, g, 0, acc, sum, along);
}

void qfw_norm_back_scalar(const qfw_columns *at, qfw_row_codes g, const qfw_norm_back *back,
                          int32_t *acc)
{
    loop_norm_back(at, g, 0, back, acc);
}

/* ---- floats ---- */

/* The mean of a row, and 1 / sqrt(variance + eps). */
typedef struct {
    float mean, r;
} moments;

static moments moments_of(const qfw_norm_f32 *norm, const float *x)
{
    const qfw_row_shape s = norm->shape;
    const float n = (float)qfw_row_length(&s);
    float sum[8] = {0.0f}, squares[8] = {0.0f};
    for (size_t p = 0, i = 0; p < s.pieces; p++) {
        for (size_t k = 0; k < s.wide; k++, i++) {
            sum[i % 8] += x[p * s.stride + k];
        }
    }
    const float mean = qfw_div_f32(qfw_folded(sum, 1), n);
    for (size_t p = 0, i = 0; p < s.pieces; p++) {
        for (size_t k = 0; k < s.wide; k++, i++) {
            const float c = x[p * s.stride + k] - mean;
            squares[i % 8] += c * c;
        }
    }
    const float variance = qfw_div_f32(qfw_folded(squares, 1), n) + norm->eps;
    const moments m = {mean, qfw_div_f32(1.0f, sqrtf(variance))};
    return m;
}

void qfw_norm_row_f32(const qfw_norm_f32 *norm, const float *x, float *y)
{
    const qfw_row_shape s = norm->shape;
    const moments m = moments_of(norm, x);
    for (size_t p = 0; p < s.pieces; p++) {
        const float *x_p = x + p * s.stride;
        float *y_p = y + p * s.stride;
        for (size_t k = 0; k < s.wide; k++) {
            y_p[k] = (x_p[k] - m.mean) * m.r;
            if (norm->gamma != NULL) {
                y_p[k] *= norm->gamma[k];
            }
            if (norm->beta != NULL) {
                y_p[k] += norm->beta[k];
            }
        }
    }
}

/* forward was: y[i] = (x[i] - mean) * r * gamma[i] + beta[i] */
void qfw_norm_back_f32(const qfw_norm_f32 *norm, const float *x, const float *e, float *dx)
{
    const qfw_row_shape s = norm->shape;
    const moments m = moments_of(norm, x);
    const float n = (float)qfw_row_length(&s);
    float of_g[8] = {0.0f}, of_gx[8] = {0.0f};
    for (size_t p = 0, i = 0; p < s.pieces; p++) {
        for (size_t k = 0; k < s.wide; k++, i++) {
            const size_t at = p * s.stride + k;
            const float g = norm->gamma != NULL ? e[at] * norm->gamma[k] : e[at];
            of_g[i % 8] += g;
            of_gx[i % 8] += g * ((x[at] - m.mean) * m.r);
        }
    }
    const float a = qfw_div_f32(qfw_folded(of_g, 1), n), b = qfw_div_f32(qfw_folded(of_gx, 1), n);
    for (size_t p = 0; p < s.pieces; p++) {
        for (size_t k = 0; k < s.wide; k++) {
            const size_t at = p * s.stride + k;
            const float g = norm->gamma != NULL ? e[at] * norm->gamma[k] : e[at];
            dx[at] = m.r * ((g - a) - ((x[at] - m.mean) * m.r) * b);
        }
    }
}
