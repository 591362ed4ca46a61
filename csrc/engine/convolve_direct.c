/* The way back of a convolution where the core has the DSP extension: weights of four channels are
 * widened into a panel, a row of the kernel turned round at a time, and errors of 16 bits are read in
 * place. Sums are exact in any order. */
#include "engine/window.h"
#include "kernels/course_dsp.h"

#if defined(__ARM_FEATURE_DSP)

COURSE(add_pixels, TERMS_ALIGNED, LOAD_SIDE_BY_SIDE, STORE_SIDE_BY_SIDE)

/* Taps j of a row of the kernel, turned round: at pixel x they meet position p + j of the row of a at e,
 * p = x + pad_w - (kernel_w - 1). */
typedef struct {
    const qfw_convolution *c;
    const int16_t *e;
    const int8_t *b;    /* tap 0 of the row of the kernel, of the channels wanted */
    ptrdiff_t from, to; /* of the taps */
    ptrdiff_t x0, x1;   /* pixels */
    int32_t *out;       /* of pixel x0 */
} stretch;

/* Pixels from x on that meet the same taps, which are those of s that lie in the row. */
static ptrdiff_t pixels_alike(const stretch *s, ptrdiff_t x, ptrdiff_t *p, ptrdiff_t *from,
                              ptrdiff_t *to)
{
    const qfw_window *w = s->c->window;
    *p = x + w->pad_w - (w->kernel_w - 1);
    *from = s->from + *p < 0 ? -*p : s->from;
    *to = s->to + *p > w->out_w ? w->out_w - *p : s->to;
    if (*from != s->from || *to != s->to) {
        return 1;
    }
    const ptrdiff_t here = w->out_w - *p - s->to + 1, left = s->x1 - x;
    return here < left ? here : left;
}

/* Four channels. */
static void add_four(const stretch *s)
{
    uint32_t panel[WORDS], *end = panel;
    const qfw_convolution *c = s->c;
    const ptrdiff_t o = c->a_channels, last = c->window->kernel_w - 1;
    for (ptrdiff_t j = s->from; j < s->to; j++) {
        end =
            fill_across(s->b + (last - j) * c->channels, qfw_taps(c->window) * c->channels, o, end);
    }
    for (ptrdiff_t x = s->x0, p, from, to, n; x < s->x1; x += n) {
        n = pixels_alike(s, x, &p, &from, &to);
        if (from < to) {
            course with = {panel + (from - s->from) * o / 4 * BLOCK,
                           panel + (to - s->from) * o / 4 * BLOCK,
                           s->out + (x - s->x0) * c->channels,
                           (size_t)n,
                           2 * o * (1 - (to - from)),
                           4 * (size_t)c->channels,
                           0};
            add_pixels(&with, s->e + (p + from) * o);
        }
    }
}

/* One channel. */
static void add_one(const stretch *s)
{
    uint32_t row[TERMS / 2];
    const qfw_convolution *c = s->c;
    const ptrdiff_t o = c->a_channels, last = c->window->kernel_w - 1;
    const ptrdiff_t term = qfw_taps(c->window) * c->channels;
    for (ptrdiff_t j = s->from; j < s->to; j++) {
        const int8_t *b = s->b + (last - j) * c->channels;
        for (ptrdiff_t i = 0; i < o; i += 2, b += 2 * term) {
            row[((j - s->from) * o + i) / 2] = dsp_lows((uint32_t)b[0], (uint32_t)b[term]);
        }
    }
    for (ptrdiff_t x = s->x0, p, from, to, n; x < s->x1; x += n) {
        n = pixels_alike(s, x, &p, &from, &to);
        for (ptrdiff_t i = 0; from < to && i < n; i++) {
            const uint32_t *a = row + (from - s->from) * o / 2, *end = row + (to - s->from) * o / 2;
            const int16_t *e = s->e + (p + i + from) * o;
            int32_t *out = s->out + (x + i - s->x0) * c->channels, sum = *out;
            for (; a < end; a += 2, e += 4) {
                sum = dsp_twice(a[0], dsp_word(e), sum);
                sum = dsp_twice(a[1], dsp_word(e + 2), sum);
            }
            *out = sum;
        }
    }
}

/* What a row of the kernel gives the pixels of a line. */
static void back_row(const qfw_convolution *c, const qfw_line *at, ptrdiff_t u, int32_t *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t row = qfw_result_row(w, at->y, u), most = TERMS / c->a_channels;
    const int16_t *e =
        (const int16_t *)c->a + (at->sample * w->out_h + row) * w->out_w * c->a_channels;
    const int8_t *b = (const int8_t *)c->b + u * w->kernel_w * c->channels;
    if (row < 0) {
        return;
    }
    for (ptrdiff_t j = 0; j < w->kernel_w; j += most) {
        const ptrdiff_t to = w->kernel_w - j < most ? w->kernel_w : j + most;
        for (ptrdiff_t i = 0; i < c->channels;) {
            const stretch s = {c, e, b + i, j, to, at->x0, at->x1, out + i};
            const bool four = c->channels - i >= 4;
            (four ? add_four : add_one)(&s);
            i += four ? 4 : 1;
        }
    }
}

bool qfw_convolve_back_directly(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    const qfw_window *w = c->window;
    if (c->a_width != 16 || c->b_width != 8 || w->groups != 1 || w->stride_w != 1 ||
        w->dilation_w != 1 || c->channels < 4 || c->a_channels % 4 != 0 || c->a_channels > TERMS ||
        (uintptr_t)c->a % 4 != 0) {
        return false;
    }
    memset(out, 0, (size_t)(n * c->channels) * 4);
    for (ptrdiff_t i = 0; i < n;) {
        const qfw_line at = qfw_line_at(w->in_w, w->in_h, first + i, n - i);
        for (ptrdiff_t u = 0; u < w->kernel_h; u++) {
            back_row(c, &at, u, (int32_t *)out + i * c->channels);
        }
        i += at.x1 - at.x0;
    }
    return true;
}

#else
bool qfw_convolve_back_directly(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    (void)c, (void)first, (void)n, (void)out;
    return false;
}
#endif
