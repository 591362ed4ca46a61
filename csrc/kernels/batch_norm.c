#include "kernels/batch_norm.h"

#include <math.h>

enum { PARTS = 8 };

typedef float partial[PARTS][QFW_CHANNELS];

void qfw_channel_moments_f32(const qfw_columns *at, const float *x, float eps,
                             qfw_float_channels *c)
{
    const float n = (float)at->rows;
    partial sum = {{0.0f}}, squares = {{0.0f}};
    for (size_t i = 0; i < at->rows; i++) {
        for (size_t k = 0; k < at->n; k++) {
            sum[i % PARTS][k] += x[i * at->stride + k];
        }
    }
    for (size_t k = 0; k < at->n; k++) {
        c->mean[k] = qfw_div_f32(qfw_folded(&sum[0][k], QFW_CHANNELS), n);
    }
    for (size_t i = 0; i < at->rows; i++) {
        for (size_t k = 0; k < at->n; k++) {
            const float d = x[i * at->stride + k] - c->mean[k];
            squares[i % PARTS][k] += d * d;
        }
    }
    for (size_t k = 0; k < at->n; k++) {
        c->squares[k] = qfw_folded(&squares[0][k], QFW_CHANNELS);
        c->r[k] = qfw_div_f32(1.0f, sqrtf(qfw_div_f32(c->squares[k], n) + eps));
    }
}

void qfw_channel_norm_f32(const qfw_columns *at, const float *x, const qfw_float_channels *c,
                          const float *gamma, const float *beta, float *y)
{
    for (size_t i = 0; i < at->rows; i++) {
        const float *x_i = x + i * at->stride;
        float *y_i = y + i * at->stride;
        for (size_t k = 0; k < at->n; k++) {
            y_i[k] = (x_i[k] - c->mean[k]) * c->r[k];
        }
        for (size_t k = 0; gamma != NULL && k < at->n; k++) {
            y_i[k] *= gamma[k];
        }
        for (size_t k = 0; beta != NULL && k < at->n; k++) {
            y_i[k] += beta[k];
        }
    }
}

/* forward was: y = (x - mean) * r * gamma + beta */
void qfw_channel_back_f32(const qfw_columns *at, const float *x, const float *e,
                          const qfw_float_channels *c, const float *gamma, float *dx)
{
    const float n = (float)at->rows;
    partial of_g = {{0.0f}}, of_gx = {{0.0f}};
    float a[QFW_CHANNELS], b[QFW_CHANNELS];
    for (size_t i = 0; i < at->rows; i++) {
        const float *x_i = x + i * at->stride, *e_i = e + i * at->stride;
        for (size_t k = 0; k < at->n; k++) {
            const float g = gamma != NULL ? e_i[k] * gamma[k] : e_i[k];
            of_g[i % PARTS][k] += g;
            of_gx[i % PARTS][k] += g * ((x_i[k] - c->mean[k]) * c->r[k]);
        }
    }
    for (size_t k = 0; k < at->n; k++) {
        a[k] = qfw_div_f32(qfw_folded(&of_g[0][k], QFW_CHANNELS), n);
        b[k] = qfw_div_f32(qfw_folded(&of_gx[0][k], QFW_CHANNELS), n);
    }
    for (size_t i = 0; i < at->rows; i++) {
        const float *x_i = x + i * at->stride, *e_i = e + i * at->stride;
        float *dx_i = dx + i * at->stride;
        for (size_t k = 0; k < at->n; k++) {
            const float g = gamma != NULL ? e_i[k] * gamma[k] : e_i[k];
            dx_i[k] = c->r[k] * ((g - a[k]) - ((x_i[k] - c->mean[k]) * c->r[k]) * b[k]);
        }
    }
}
