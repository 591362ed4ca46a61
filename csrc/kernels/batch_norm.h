/* Channels of floats normalised over all rows of a matrix, some side by side: docs/numerics.md section
 * 36. */
#ifndef QFW_KERNELS_BATCH_NORM_H
#define QFW_KERNELS_BATCH_NORM_H

#include "kernels/normalize.h"

/* Of each channel: the mean, the sum of squares around it, 1 / sqrt(variance + eps). */
typedef struct {
    float mean[QFW_CHANNELS], squares[QFW_CHANNELS], r[QFW_CHANNELS];
} qfw_float_channels;

void qfw_channel_moments_f32(const qfw_columns *at, const float *x, float eps,
                             qfw_float_channels *c);

/* y = x^ gamma + beta, gamma and beta of each channel or NULL; y may not be x. */
void qfw_channel_norm_f32(const qfw_columns *at, const float *x, const qfw_float_channels *c,
                          const float *gamma, const float *beta, float *y);

/* dx from x and the error e. */
void qfw_channel_back_f32(const qfw_columns *at, const float *x, const float *e,
                          const qfw_float_channels *c, const float *gamma, float *dx);

#endif
