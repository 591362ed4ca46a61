/* Convolutions in which each channel has a group of its own, in bytes, where the core has the DSP
 * extension: four channels at a time, whose sums stay in registers over all taps. */
#include "engine/window.h"
#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

enum { MOST_TAPS = 25 };

/* sum + the product of the low halves, of the high halves. */
static inline int32_t add_lows(uint32_t x, uint32_t w, int32_t sum)
{
    int32_t v;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(v) : "r"(x), "r"(w), "r"(sum));
    return v;
}

static inline int32_t add_highs(uint32_t x, uint32_t w, int32_t sum)
{
    int32_t v;
    __asm__("smlatt %0, %1, %2, %3" : "=r"(v) : "r"(x), "r"(w), "r"(sum));
    return v;
}

typedef struct {
    int32_t s0, s1, s2, s3;
} sums;

/* Weights of four channels: {0 and 2, 1 and 3} of each tap. */
static void pack(const int8_t *b, ptrdiff_t taps, uint32_t *w)
{
    for (ptrdiff_t tap = 0; tap < taps; tap++, b++, w += 2) {
        w[0] = dsp_lows((uint32_t)b[0], (uint32_t)b[2 * taps]);
        w[1] = dsp_lows((uint32_t)b[taps], (uint32_t)b[3 * taps]);
    }
}

static inline sums tap_of(const int8_t *x, const uint32_t *w, sums s)
{
    const uint32_t four = dsp_word(x), even = dsp_even(four), odd = dsp_odd(four);
    s.s0 = add_lows(even, w[0], s.s0);
    s.s2 = add_highs(even, w[0], s.s2);
    s.s1 = add_lows(odd, w[1], s.s1);
    s.s3 = add_highs(odd, w[1], s.s3);
    return s;
}

/* One tap: what is read at `from`. */
#define TAP(from)                           \
    "ldr %[x0], " from "\n\t"               \
    "ldrd %[w0], %[w1], [%[w]], #8\n\t"     \
    "sxtb16 %[x1], %[x0], ror #8\n\t"       \
    "sxtb16 %[x0], %[x0]\n\t"               \
    "smlabb %[s0], %[x0], %[w0], %[s0]\n\t" \
    "smlatt %[s2], %[x0], %[w0], %[s2]\n\t" \
    "smlabb %[s1], %[x1], %[w1], %[s1]\n\t" \
    "smlatt %[s3], %[x1], %[w1], %[s3]\n\t"

/* `high` lines of three taps, whose weights lie in order. */
static inline sums threes(const int8_t *x, const uint32_t *w, ptrdiff_t high, ptrdiff_t line,
                          ptrdiff_t step)
{
    sums s = {0, 0, 0, 0};
    uint32_t x0, x1, w0, w1;
    for (; high > 0; high--, x += line) {
        __asm__(TAP("[%[x]]") TAP("[%[x], %[step]]") TAP("[%[x], %[step], lsl #1]")
                : [w] "+r"(w), [s0] "+r"(s.s0), [s1] "+r"(s.s1), [s2] "+r"(s.s2), [s3] "+r"(s.s3),
                  [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0), [w1] "=&r"(w1)
                : [x] "r"(x), [step] "r"(step)
                : "memory");
    }
    return s;
}

/* A window's part in the image: lines of taps, `line` elements apart, taps `step` apart. */
typedef struct {
    ptrdiff_t high, wide, line, step;
} part;

static inline sums window_of(const int8_t *x, const uint32_t *w, const part *p, ptrdiff_t kernel_w)
{
    const ptrdiff_t step = p->step, line = p->line, high = p->high;
    sums s = {0, 0, 0, 0};
    for (ptrdiff_t u = 0; u < high; u++, x += line, w += 2 * kernel_w) {
        for (ptrdiff_t v = 0; v < p->wide; v++) {
            s = tap_of(x + v * step, w + 2 * v, s);
        }
    }
    return s;
}

/* `many` windows of three taps a line that lie in the image, `next` elements apart. */
static void run_of_threes(const int8_t *x, const uint32_t *w, const part *p, ptrdiff_t many,
                          ptrdiff_t next, int32_t *out, ptrdiff_t channels)
{
    const ptrdiff_t high = p->high, line = p->line, step = p->step;
    for (; many > 0; many--, x += next, out += channels) {
        const sums s = threes(x, w, high, line, step);
        out[0] = s.s0;
        out[1] = s.s1;
        out[2] = s.s2;
        out[3] = s.s3;
    }
}

/* The first tap along an axis that meets the image, and how many do. */
static inline ptrdiff_t meets(ptrdiff_t start, ptrdiff_t dilation, ptrdiff_t kernel, ptrdiff_t size,
                              ptrdiff_t *many)
{
    ptrdiff_t from = 0, to = kernel;
    while (from < to && start + from * dilation < 0) {
        from++;
    }
    while (to > from && start + (to - 1) * dilation >= size) {
        to--;
    }
    *many = to - from;
    return from;
}

/* Four channels of a stretch of a line. */
static void four_channels(const qfw_convolution *c, const qfw_line *at, const int8_t *a,
                          const uint32_t *weights, int32_t *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t channels = c->channels, y = at->y * w->stride_h - w->pad_h;
    part p = {0, 0, w->dilation_h * w->in_w * channels, w->dilation_w * channels};
    const ptrdiff_t u = meets(y, w->dilation_h, w->kernel_h, w->in_h, &p.high);
    const ptrdiff_t row = (at->sample * w->in_h + y + u * w->dilation_h) * w->in_w;
    const ptrdiff_t reach = (ptrdiff_t)(w->kernel_w - 1) * w->dilation_w;
    for (ptrdiff_t i = at->x0, many; i < at->x1; i += many, out += many * channels) {
        const ptrdiff_t x = i * w->stride_w - w->pad_w, room = w->in_w - 1 - reach - x;
        many = 1;
        if (w->kernel_w == 3 && x >= 0 && room >= 0) {
            const ptrdiff_t inside = room / w->stride_w + 1;
            many = inside < at->x1 - i ? inside : at->x1 - i;
            run_of_threes(a + (row + x) * channels, weights + 6 * u, &p, many,
                          w->stride_w * channels, out, channels);
            continue;
        }
        const ptrdiff_t v = meets(x, w->dilation_w, w->kernel_w, w->in_w, &p.wide);
        const int8_t *from = a + (row + x + v * w->dilation_w) * channels;
        const sums s = window_of(from, weights + 2 * (u * w->kernel_w + v), &p, w->kernel_w);
        out[0] = s.s0;
        out[1] = s.s1;
        out[2] = s.s2;
        out[3] = s.s3;
    }
}

bool qfw_depthwise_directly(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    const qfw_window *w = c->window;
    const ptrdiff_t taps = qfw_taps(w);
    uint32_t weights[2 * MOST_TAPS];
    if (c->a_width != 8 || c->b_width != 8 || c->channels % 4 != 0 || taps > MOST_TAPS) {
        return false;
    }
    for (ptrdiff_t channel = 0; channel < c->channels; channel += 4) {
        pack((const int8_t *)c->b + channel * taps, taps, weights);
        for (ptrdiff_t i = 0; i < n;) {
            const qfw_line at = qfw_line_at(w->out_w, w->out_h, first + i, n - i);
            four_channels(c, &at, (const int8_t *)c->a + channel, weights,
                          (int32_t *)out + i * c->channels + channel);
            i += at.x1 - at.x0;
        }
    }
    return true;
}

#else
bool qfw_depthwise_directly(const qfw_convolution *c, ptrdiff_t first, ptrdiff_t n, void *out)
{
    (void)c, (void)first, (void)n, (void)out;
    return false;
}
#endif
