/* Convolutions in which each channel has a group of its own: a tap at a time, channels side by side.
 */
#include "engine/window.h"

enum { BLOCK = QFW_TILE };

/* A number for each of some channels. */
typedef union {
    int32_t s32[BLOCK];
    float f32[BLOCK];
} numbers;

/* Weights of a tap, channels c0 .. c0 + n - 1. */
static void taps_of(const qfw_convolution *c, ptrdiff_t tap, ptrdiff_t c0, ptrdiff_t n, numbers *w)
{
    const ptrdiff_t taps = qfw_taps(c->window);
    for (ptrdiff_t j = 0; j < n; j++) {
        const ptrdiff_t i = (c0 + j) * taps + tap;
        if (qfw_is_float(c)) {
            w->f32[j] = ((const float *)c->b)[i];
        } else {
            w->s32[j] = c->b_width == 8 ? ((const int8_t *)c->b)[i] : ((const int16_t *)c->b)[i];
        }
    }
}

/* out += a * w at a tap: `count` positions from `from` of a, one for each `a_step`, to those from
 * `to` of out, one for each `step`. */
static void add_tap(const qfw_convolution *c, ptrdiff_t tap, ptrdiff_t count, ptrdiff_t from,
                    ptrdiff_t a_step, ptrdiff_t to, ptrdiff_t step, void *out)
{
    const ptrdiff_t n = c->channels;
    numbers w;
    for (ptrdiff_t c0 = 0; c0 < n; c0 += BLOCK) {
        const ptrdiff_t some = n - c0 < BLOCK ? n - c0 : BLOCK;
        const qfw_lines lines = {qfw_element(c->a, c->a_width, from * n + c0),
                                 c->a_width,
                                 c->b_width,
                                 (size_t)some,
                                 (size_t)count,
                                 (size_t)(a_step * n),
                                 (size_t)(step * n)};
        taps_of(c, tap, c0, some, &w);
        if (qfw_is_float(c)) {
            QFW_K(c->kernels, lines_f32)(&lines, w.f32, qfw_sum_at(out, to * n + c0));
        } else {
            QFW_K(c->kernels, lines_s32)(&lines, w.s32, qfw_sum_at(out, to * n + c0));
        }
    }
}

static void forward_line(const qfw_convolution *c, const qfw_line *at, void *out)
{
    const qfw_window *w = c->window;
    for (ptrdiff_t tap = 0; tap < qfw_taps(w); tap++) {
        const ptrdiff_t v = tap % w->kernel_w, row = qfw_image_row(w, at->y, tap / w->kernel_w);
        const qfw_meeting m = qfw_meet(w, v, 0, w->in_w);
        const ptrdiff_t first = m.first > at->x0 ? m.first : at->x0;
        const ptrdiff_t end = m.first + m.n < at->x1 ? m.first + m.n : at->x1;
        const ptrdiff_t pixel = first * w->stride_w - w->pad_w + v * w->dilation_w;
        if (row >= 0 && first < end) {
            add_tap(c, tap, end - first, (at->sample * w->in_h + row) * w->in_w + pixel,
                    w->stride_w, first - at->x0, 1, out);
        }
    }
}

static void back_line(const qfw_convolution *c, const qfw_line *at, void *out)
{
    const qfw_window *w = c->window;
    for (ptrdiff_t tap = 0; tap < qfw_taps(w); tap++) {
        const ptrdiff_t v = tap % w->kernel_w, row = qfw_result_row(w, at->y, tap / w->kernel_w);
        const qfw_meeting m = qfw_meet(w, v, at->x0, at->x1);
        const ptrdiff_t pixel = m.first * w->stride_w - w->pad_w + v * w->dilation_w;
        if (row >= 0 && m.n > 0) {
            add_tap(c, tap, m.n, (at->sample * w->out_h + row) * w->out_w + m.first, 1,
                    pixel - at->x0, w->stride_w, out);
        }
    }
}

void qfw_depthwise(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    const qfw_window *w = c->window;
    if (QFW_DIRECT && qfw_depthwise_directly(c, first, n, out)) {
        return;
    }
    memset(out, 0, (size_t)(n * c->channels) * 4);
    for (ptrdiff_t i = 0; i < n;) {
        const qfw_line at = qfw_line_at(w->out_w, w->out_h, first + i, n - i);
        forward_line(c, &at, qfw_sum_at(out, i * c->channels));
        i += at.x1 - at.x0;
    }
}

void qfw_depthwise_back(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    const qfw_window *w = c->window;
    memset(out, 0, (size_t)(n * c->channels) * 4);
    for (ptrdiff_t i = 0; i < n;) {
        const qfw_line at = qfw_line_at(w->in_w, w->in_h, first + i, n - i);
        back_line(c, &at, qfw_sum_at(out, i * c->channels));
        i += at.x1 - at.x0;
    }
}

/* Channels c0 .. c0 + n - 1 at a tap: sums over all positions of all samples. */
static void sum_tap(const qfw_convolution *c, ptrdiff_t samples, ptrdiff_t tap, ptrdiff_t c0,
                    ptrdiff_t n, numbers *sum)
{
    const qfw_window *w = c->window;
    const ptrdiff_t channels = c->channels, v = tap % w->kernel_w;
    const qfw_meeting m = qfw_meet(w, v, 0, w->in_w);
    const ptrdiff_t pixel = m.first * w->stride_w - w->pad_w + v * w->dilation_w;
    memset(sum, 0, sizeof *sum);
    for (ptrdiff_t i = 0; m.n > 0 && i < samples * w->out_h; i++) {
        const ptrdiff_t row = qfw_image_row(w, i % w->out_h, tap / w->kernel_w);
        if (row < 0) {
            continue;
        }
        const ptrdiff_t at = ((i / w->out_h * w->in_h + row) * w->in_w + pixel) * channels + c0;
        const void *b = qfw_element(c->b, c->b_width, at);
        const qfw_lines lines = {
            qfw_element(c->a, c->a_width, (i * w->out_w + m.first) * channels + c0),
            c->a_width,
            c->b_width,
            (size_t)n,
            (size_t)m.n,
            (size_t)channels,
            (size_t)(w->stride_w * channels)};
        if (qfw_is_float(c)) {
            QFW_K(c->kernels, line_dots_f32)(&lines, b, sum->f32);
        } else {
            QFW_K(c->kernels, line_dots_s32)(&lines, b, sum->s32);
        }
    }
}

void qfw_depthwise_gradient(const qfw_convolution *c, ptrdiff_t samples, ptrdiff_t first,
                            ptrdiff_t n, void *out)
{
    const ptrdiff_t taps = qfw_taps(c->window);
    numbers sum;
    for (ptrdiff_t c0 = 0; c0 < n; c0 += BLOCK) {
        const ptrdiff_t some = n - c0 < BLOCK ? n - c0 : BLOCK;
        for (ptrdiff_t tap = 0; tap < taps; tap++) {
            sum_tap(c, samples, tap, first + c0, some, &sum);
            for (ptrdiff_t j = 0; j < some; j++) {
                memcpy(qfw_sum_at(out, (c0 + j) * taps + tap), &sum.s32[j], sizeof sum.s32[j]);
            }
        }
    }
}
