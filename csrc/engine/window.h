/* Where a window's result and its image meet, and what convolutions share. */
#ifndef QFW_ENGINE_WINDOW_H
#define QFW_ENGINE_WINDOW_H

#include "engine/convolve.h"
#include "engine/patches.h"

/* Columns x0 .. x1 - 1 of row y of a sample. */
typedef struct {
    ptrdiff_t sample, y, x0, x1;
} qfw_line;

/* The line that position i is in, from there on, of images of `high` lines; at most n positions. */
static inline qfw_line qfw_line_at(ptrdiff_t wide, ptrdiff_t high, ptrdiff_t i, ptrdiff_t n)
{
    const ptrdiff_t x = i % wide, row = i / wide;
    const qfw_line at = {row / high, row % high, x, n < wide - x ? x + n : wide};
    return at;
}

/* Positions first .. first + n - 1 of a row of the result (none if n < 1). */
typedef struct {
    ptrdiff_t first, n;
} qfw_meeting;

/* Those that meet columns x0 .. x1 - 1 of the image at column v of the kernel. */
static inline qfw_meeting qfw_meet(const qfw_window *w, ptrdiff_t v, ptrdiff_t x0, ptrdiff_t x1)
{
    const ptrdiff_t shift = w->pad_w - v * w->dilation_w, step = w->stride_w;
    const ptrdiff_t low = x0 + shift, high = x1 - 1 + shift; /* of position * step */
    const ptrdiff_t first = low <= 0 ? 0 : (low + step - 1) / step;
    const ptrdiff_t last = high < 0 ? -1 : high / step, end = (ptrdiff_t)w->out_w - 1;
    const qfw_meeting m = {first, (last < end ? last : end) - first + 1};
    return m;
}

/* The row of the image that row y of the result meets at row u of the kernel, or -1. */
static inline ptrdiff_t qfw_image_row(const qfw_window *w, ptrdiff_t y, ptrdiff_t u)
{
    const ptrdiff_t at = y * w->stride_h - w->pad_h + u * w->dilation_h;
    return at < 0 || at >= w->in_h ? -1 : at;
}

/* The row of the result that meets row y of the image at row u of the kernel, or -1. */
static inline ptrdiff_t qfw_result_row(const qfw_window *w, ptrdiff_t y, ptrdiff_t u)
{
    const ptrdiff_t at = y + w->pad_h - u * w->dilation_h, row = at / w->stride_h;
    return at < 0 || at % w->stride_h != 0 || row >= w->out_h ? -1 : row;
}

static inline bool qfw_is_float(const qfw_convolution *c)
{
    return c->a_width == 32;
}

static inline bool qfw_is_depthwise(const qfw_convolution *c)
{
    return c->a_channels == c->window->groups && c->channels == c->window->groups;
}

/* Bytes of the weights, up to what is aligned. */
static inline ptrdiff_t qfw_turned_bytes(const qfw_convolution *c)
{
    const ptrdiff_t bytes = qfw_taps(c->window) * c->a_channels * c->channels * (c->b_width / 8);
    return (bytes + QFW_ALIGN - 1) / QFW_ALIGN * QFW_ALIGN;
}

/* Whether sums of k terms are made at once. */
static inline bool qfw_is_whole(const qfw_convolution *c, ptrdiff_t k)
{
    return qfw_is_float(c) || (c->shift == 0 && c->chunk >= k);
}

/* Element i of an operand, and sum i, an int32 or a float. */
static inline const void *qfw_element(const void *x, int32_t width, ptrdiff_t i)
{
    return (const uint8_t *)x + i * (width / 8);
}

static inline void *qfw_sum_at(void *out, ptrdiff_t i)
{
    return (uint8_t *)out + 4 * i;
}

#endif
