#include "kernels/normalize.h"

#include <math.h>

#include "base/round.h"
#include "base/scale.h"

enum { TILE = 32 };

static int32_t code_at(const qfw_row_codes *x, size_t i)
{
    return x->width == 8 ? ((const int8_t *)x->codes)[i] : ((const int16_t *)x->codes)[i];
}

/* half_away(v / 2^shift), |v| < 2^63, 0 <= shift <= 62. */
static int64_t shifted(int64_t v, int32_t shift)
{
    const uint64_t size = (uint64_t)(v < 0 ? -v : v);
    const uint64_t half = shift != 0 ? UINT64_C(1) << (shift - 1) : 0;
    const int64_t out = (int64_t)((size + half) >> shift);
    return v < 0 ? -out : out;
}

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
    const uint64_t floor = v.exp >= 0 ? v.mant << v.exp : v.exp > -24 ? v.mant >> -v.exp : 0;
    return floor != 0 ? floor : 1;
}

qfw_norm_row qfw_norm_row_of(qfw_row_codes x, size_t n, uint64_t eps, int32_t frac)
{
    int64_t sum = 0;
    uint64_t squares = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t m = code_at(&x, i);
        sum += m;
        squares += (uint64_t)(m * m);
    }
    const uint64_t v = n * squares - (uint64_t)(sum * sum);
    const qfw_norm_row row = {x, n, sum, qfw_rsqrt(v + eps), frac};
    return row;
}

/* |d| < 2^32 and rho < 2^31; 31 <= -exp and frac <= 24, so the shift is at least 7. */
void qfw_norm_codes(const qfw_norm_row *row, size_t first, size_t n, int32_t *h)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t d = (int64_t)row->n * code_at(&row->x, first + i) - row->sum;
        h[i] = (int32_t)shifted(d * row->root.rho, -row->root.exp - row->frac);
    }
}

void qfw_norm_back(const qfw_norm_row *row, qfw_row_codes g, int32_t down, int32_t *acc)
{
    const int64_t n = (int64_t)row->n;
    int64_t sum = 0, along = 0; /* of g, of g h: below 2^31 and 2^56 */
    int32_t h[TILE];
    for (size_t i = 0; i < row->n; i += TILE) {
        const size_t wide = row->n - i < TILE ? row->n - i : TILE;
        qfw_norm_codes(row, i, wide, h);
        for (size_t k = 0; k < wide; k++) {
            const int32_t g_k = code_at(&g, i + k);
            sum += g_k;
            along += (int64_t)g_k * h[k];
        }
    }
    const int64_t t = shifted(along, row->frac - 6);
    for (size_t i = 0; i < row->n; i += TILE) {
        const size_t wide = row->n - i < TILE ? row->n - i : TILE;
        qfw_norm_codes(row, i, wide, h);
        for (size_t k = 0; k < wide; k++) {
            const int64_t y = 64 * (n * code_at(&g, i + k) - sum) - shifted(h[k] * t, row->frac);
            acc[i + k] = (int32_t)shifted(y, down);
        }
    }
}

/* ---- floats ---- */

static float folded(const float p[8])
{
    return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
}

/* The mean of a row, and 1 / sqrt(variance + eps). */
typedef struct {
    float mean, r;
} moments;

static moments moments_of(const qfw_norm_f32 *norm, const float *x)
{
    float sum[8] = {0.0f}, squares[8] = {0.0f};
    const float n = (float)norm->n;
    for (size_t i = 0; i < norm->n; i++) {
        sum[i % 8] += x[i];
    }
    const float mean = qfw_div_f32(folded(sum), n);
    for (size_t i = 0; i < norm->n; i++) {
        const float c = x[i] - mean;
        squares[i % 8] += c * c;
    }
    const float variance = qfw_div_f32(folded(squares), n) + norm->eps;
    const moments m = {mean, qfw_div_f32(1.0f, sqrtf(variance))};
    return m;
}

void qfw_norm_row_f32(const qfw_norm_f32 *norm, const float *x, float *y)
{
    const moments m = moments_of(norm, x);
    for (size_t i = 0; i < norm->n; i++) {
        y[i] = (x[i] - m.mean) * m.r;
        if (norm->gamma != NULL) {
            y[i] *= norm->gamma[i];
        }
        if (norm->beta != NULL) {
            y[i] += norm->beta[i];
        }
    }
}

/* forward was: y[i] = (x[i] - mean) * r * gamma[i] + beta[i] */
void qfw_norm_back_f32(const qfw_norm_f32 *norm, const float *x, const float *e, float *dx)
{
    const moments m = moments_of(norm, x);
    const float n = (float)norm->n;
    float of_g[8] = {0.0f}, of_gx[8] = {0.0f};
    for (size_t i = 0; i < norm->n; i++) {
        const float g = norm->gamma != NULL ? e[i] * norm->gamma[i] : e[i];
        const float normal = (x[i] - m.mean) * m.r;
        of_g[i % 8] += g;
        of_gx[i % 8] += g * normal;
    }
    const float a = qfw_div_f32(folded(of_g), n), b = qfw_div_f32(folded(of_gx), n);
    for (size_t i = 0; i < norm->n; i++) {
        const float g = norm->gamma != NULL ? e[i] * norm->gamma[i] : e[i];
        const float normal = (x[i] - m.mean) * m.r;
        dx[i] = m.r * ((g - a) - normal * b);
    }
}
