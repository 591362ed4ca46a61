/* The gradient of a convolution of bytes where the core has the DSP extension: errors of four filters are
 * widened into a panel, position by position, and what a tap meets of the image lies channel by channel
 * in lines of 16 bits. Sums are exact in any order. */
#include "engine/window.h"
#include "kernels/course_dsp.h"

#if defined(__ARM_FEATURE_DSP)

COURSE(add_taps, TERMS_ANYWHERE, LOAD_APART, STORE_APART)

/* Positions at a time: x0 .. x0 + n - 1 of `lines` lines of the result from `row` on. In the image's
 * lines the next one follows the last pixel that these meet; the error is 0 where there is no position. */
typedef struct {
    ptrdiff_t row, lines, x0, n;
    ptrdiff_t apart;  /* from a line to the next one */
    ptrdiff_t blocks; /* of four terms, the last one being filled up */
    ptrdiff_t wide;   /* elements of a channel */
} part;

/* As many whole lines as there is room for, or some positions of one. */
static part part_of(const qfw_convolution *c, ptrdiff_t lines)
{
    const qfw_window *w = c->window;
    const ptrdiff_t more = w->kernel_w - 1, apart = w->out_w + more;
    const ptrdiff_t wide = c->scratch_bytes / (2 * c->channels) - more;
    const ptrdiff_t most = wide < TERMS ? wide & ~(ptrdiff_t)3 : TERMS; /* below 0: none */
    const bool whole = w->out_w <= most;
    const ptrdiff_t fit = whole ? (most - w->out_w) / apart + 1 : 1;
    const part p = {0, fit < lines ? fit : lines, 0, whole ? w->out_w : most, 0, 0, 0};
    return p;
}

/* Pixels side by side of four channels, as lines `wide` apart. */
static void spread_four(const int8_t *x, ptrdiff_t channels, ptrdiff_t pixels, int16_t *to,
                        ptrdiff_t wide)
{
    int16_t *third = to + 2 * wide;
    for (; pixels > 1; pixels -= 2, to += 2, third += 2) {
        const uint32_t w0 = dsp_word(x), w1 = dsp_word(x + channels);
        const uint32_t e0 = dsp_even(w0), o0 = dsp_odd(w0), e1 = dsp_even(w1), o1 = dsp_odd(w1);
        const uint32_t t0 = dsp_lows(e0, e1), t1 = dsp_lows(o0, o1);
        const uint32_t t2 = dsp_highs(e0, e1), t3 = dsp_highs(o0, o1);
        x += 2 * channels;
        dsp_put_word(to, t0);
        dsp_put_word(to + wide, t1);
        dsp_put_word(third, t2);
        dsp_put_word(third + wide, t3);
    }
    if (pixels != 0) {
        to[0] = x[0];
        to[wide] = x[1];
        third[0] = x[2];
        third[wide] = x[3];
    }
}

static void clear(const qfw_convolution *c, ptrdiff_t n, int16_t *to, ptrdiff_t wide)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        int16_t *at = to + j;
        for (ptrdiff_t i = 0; i < c->channels; i++, at += wide) {
            *at = 0;
        }
    }
}

/* What row u of the kernel meets of the image, with zeros around it. */
static void spread(const qfw_convolution *c, const part *p, ptrdiff_t u, int16_t *to)
{
    const qfw_window *w = c->window;
    const ptrdiff_t x = p->x0 - w->pad_w, end = x + p->apart;
    const ptrdiff_t last = end < w->in_w ? end : w->in_w, from = x < 0 ? 0 : x;
    for (ptrdiff_t i = 0; i < p->lines; i++, to += p->apart) {
        const ptrdiff_t sample = (p->row + i) / w->out_h;
        const ptrdiff_t y = qfw_image_row(w, (p->row + i) % w->out_h, u);
        if (y < 0 || from >= last) {
            clear(c, p->apart, to, p->wide);
            continue;
        }
        const int8_t *line =
            (const int8_t *)c->b + ((sample * w->in_h + y) * w->in_w + from) * c->channels;
        clear(c, from - x, to, p->wide);
        clear(c, end - last, to + (last - x), p->wide);
        for (ptrdiff_t j = 0; j < c->channels; j += 4) {
            const ptrdiff_t k = c->channels - j < 4 ? c->channels - 4 : j; /* some of them again */
            spread_four(line + k, c->channels, last - from, to + (from - x) + k * p->wide, p->wide);
        }
    }
}

/* Errors of four filters. Their words lie at the end of the panel first: a block is read before, and
 * what follows is not reached when it is written. */
static const uint32_t *widen(const qfw_convolution *c, const part *p, const int8_t *e,
                             uint32_t *panel)
{
    uint32_t *word = panel + WORDS - TERMS;
    const uint32_t *end = word + 4 * p->blocks;
    for (ptrdiff_t i = 0; i < p->lines; i++) {
        const int8_t *at = e + ((p->row + i) * c->window->out_w + p->x0) * c->a_channels;
        for (const uint32_t *stop = word + p->n; word < stop; at += c->a_channels) {
            *word++ = dsp_word(at);
        }
        for (ptrdiff_t j = p->n; word < end && j < p->apart; j++) {
            *word++ = 0;
        }
    }
    while (word < end) {
        *word++ = 0;
    }
    return fill_across((const int8_t *)(panel + WORDS - TERMS), 4, 4 * p->blocks, panel);
}

/* What some positions give rows first .. first + n - 1. */
static void add_part(const qfw_convolution *c, const part *p, ptrdiff_t first, ptrdiff_t n,
                     int32_t *out)
{
    uint32_t panel[WORDS];
    const qfw_window *w = c->window;
    const ptrdiff_t k = qfw_taps(w) * c->channels;
    int16_t *lines = (int16_t *)(void *)c->scratch;
    for (ptrdiff_t u = 0; u < w->kernel_h; u++) {
        spread(c, p, u, lines);
        for (ptrdiff_t i = 0; i < n; i += 4) {
            const uint32_t *end = widen(c, p, (const int8_t *)c->a + first + i, panel);
            for (ptrdiff_t v = 0; v < w->kernel_w; v++) {
                course with = {panel,
                               end,
                               out + i * k + (u * w->kernel_w + v) * c->channels,
                               (size_t)c->channels,
                               2 * (p->wide - 4 * p->blocks),
                               4,
                               4 * (size_t)k};
                add_taps(&with, lines + v);
            }
        }
    }
}

ptrdiff_t qfw_convolve_gradient_directly(const qfw_convolution *c, ptrdiff_t terms, ptrdiff_t first,
                                         ptrdiff_t n, void *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t fours = n & ~(ptrdiff_t)3, lines = terms / w->out_w;
    const ptrdiff_t more = w->kernel_w - 1;
    part p = part_of(c, lines);
    if (c->a_width != 8 || c->b_width != 8 || w->groups != 1 || w->stride_w != 1 ||
        w->dilation_w != 1 || c->channels < 4 || p.n < 4 || fours == 0) {
        return 0;
    }
    memset(out, 0, (size_t)(fours * qfw_taps(w) * c->channels) * 4);
    for (; p.row < lines; p.row += p.lines) {
        part some = p;
        some.lines = lines - p.row < p.lines ? lines - p.row : p.lines;
        for (; some.x0 < w->out_w; some.x0 += p.n) {
            some.n = w->out_w - some.x0 < p.n ? w->out_w - some.x0 : p.n;
            some.apart = some.n + more;
            some.blocks = ((some.lines - 1) * some.apart + some.n + 3) / 4;
            some.wide = 4 * some.blocks + more;
            add_part(c, &some, first, fours, out);
        }
    }
    return fours;
}

#else
ptrdiff_t qfw_convolve_gradient_directly(const qfw_convolution *c, ptrdiff_t terms, ptrdiff_t first,
                                         ptrdiff_t n, void *out)
{
    (void)c, (void)terms, (void)first, (void)n, (void)out;
    return 0;
}
#endif
