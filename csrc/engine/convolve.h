/* Products over a window: an image with weights, its way back, and the gradient of the weights. */
#ifndef QFW_ENGINE_CONVOLVE_H
#define QFW_ENGINE_CONVOLVE_H

#include "engine/engine.h"

typedef struct {
    const qfw_kernels *kernels;
    const qfw_window *window;
    const void *a, *b;
    int32_t a_width, b_width; /* 8 or 16: integers; both 32: floats */
    ptrdiff_t a_channels;     /* of a's positions */
    ptrdiff_t channels;       /* of the result's (forward, back) or of b's (gradient) positions */
    ptrdiff_t chunk;          /* of the sums, integers */
    uint32_t shift;
    uint8_t *scratch;
    ptrdiff_t scratch_bytes;
} qfw_convolution;

/* Rows first .. first + n - 1 of out, positions of the result x channels: a is the image, b has
 * [channels][taps][a_channels / groups]. */
void qfw_convolve(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out);

/* The same of the image: a are the positions of the result, b has [a_channels][taps][channels /
 * groups], and every position and tap that meet a pixel add to it. Scratch for the weights and a patch
 * of a makes it faster where strides are 1. */
void qfw_convolve_back(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out);

bool qfw_convolve_back_directly(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n,
                                void *out); /* false: it does not do these */

/* Rows first .. first + n - 1 of the gradient [a_channels][taps][channels / groups], summed over
 * `terms` positions: a are the positions of the result, b is the image. Where the sum is split,
 * scratch begins with 8 bytes for each of the sums. */
void qfw_convolve_gradient(const qfw_convolution *c, ptrdiff_t terms, ptrdiff_t first, ptrdiff_t n,
                           void *out);

ptrdiff_t qfw_convolve_gradient_directly(const qfw_convolution *c, ptrdiff_t terms, ptrdiff_t first,
                                         ptrdiff_t n, void *out); /* rows that it has done */

/* The same three where each channel has a group of its own. */
void qfw_depthwise(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out);
bool qfw_depthwise_directly(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n,
                            void *out); /* false: it does not do these */
void qfw_depthwise_back(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out);
void qfw_depthwise_gradient(const qfw_convolution *c, ptrdiff_t samples, ptrdiff_t first,
                            ptrdiff_t n, void *out);

#endif
