/* Pools on a device, where no window reaches beyond the image: windows one after the other, without a
 * tile in between. Bytes go in fours where the core has the DSP extension. */
#include "base/pack.h"
#include "engine/pool.h"
#include "kernels/codes.h"
#include "kernels/dsp.h"

bool qfw_pools_directly(const qfw_window *w)
{
    const ptrdiff_t high =
        (ptrdiff_t)(w->out_h - 1) * w->stride_h + (w->kernel_h - 1) * (ptrdiff_t)w->dilation_h;
    const ptrdiff_t wide =
        (ptrdiff_t)(w->out_w - 1) * w->stride_w + (w->kernel_w - 1) * (ptrdiff_t)w->dilation_w;
    return QFW_DIRECT && (w->pad_h | w->pad_w) == 0 && high < w->in_h && wide < w->in_w;
}

/* The window of one channel: elements between taps and between lines of taps. */
typedef struct {
    ptrdiff_t high, wide, tap, line;
} taps;

/* ---- the largest ---- */

static inline int32_t element(const void *x, const int32_t width, ptrdiff_t i)
{
    return width == 8    ? ((const int8_t *)x)[i]
           : width == 16 ? ((const int16_t *)x)[i]
                         : ((const int32_t *)x)[i];
}

/* The first of the largest of a window: its number is returned. */
static inline int32_t largest(const void *x, const int32_t width, const taps *t, int32_t *best)
{
    int32_t most = element(x, width, 0), pick = 0, number = 0;
    for (ptrdiff_t u = 0; u < t->high; u++) {
        for (ptrdiff_t v = 0; v < t->wide; v++, number++) {
            const int32_t value = element(x, width, u * t->line + v * t->tap);
            pick = value > most ? number : pick;
            most = value > most ? value : most;
        }
    }
    *best = most;
    return pick;
}

static inline void put_element(void *y, const int32_t width, ptrdiff_t i, int32_t v)
{
    if (width == 8) {
        ((int8_t *)y)[i] = (int8_t)v;
    } else if (width == 16) {
        ((int16_t *)y)[i] = (int16_t)v;
    } else {
        ((int32_t *)y)[i] = v;
    }
}

/* Channels c .. n - 1 of one position, and their picks from number `at` on. */
static inline void some_channels(const void *x, void *y, const int32_t width, const taps *t,
                                 ptrdiff_t c, ptrdiff_t n, void *picks, int bits, uint64_t at)
{
    int32_t pick[QFW_TILE];
    for (ptrdiff_t many; c < n; c += many) {
        many = n - c < QFW_TILE ? n - c : QFW_TILE;
        for (ptrdiff_t k = 0; k < many; k++) {
            int32_t best;
            pick[k] = largest((const uint8_t *)x + (c + k) * (width / 8), width, t, &best);
            put_element(y, width, c + k, best);
        }
        if (picks != NULL) {
            qfw_pack_tile(picks, at + (uint64_t)c, (size_t)many, bits, pick);
        }
    }
}

#if defined(__ARM_FEATURE_DSP)
/* Where a byte of a is not below b's it is taken, else b's; of p and q likewise. */
static inline uint32_t larger_bytes(uint32_t a, uint32_t b, uint32_t *p, uint32_t q)
{
    uint32_t most, gap;
    __asm__("ssub8 %[gap], %[a], %[b]\n\t"
            "sel %[most], %[a], %[b]\n\t"
            "sel %[p], %[p], %[q]"
            : [gap] "=&r"(gap), [most] "=&r"(most), [p] "+r"(*p)
            : [a] "r"(a), [b] "r"(b), [q] "r"(q)
            : "cc");
    return most;
}

/* Four channels in bytes: their largest, and the numbers of these in the bytes of *pick. */
static inline uint32_t largest_bytes(const uint8_t *x, const taps *t, const ptrdiff_t high,
                                     const ptrdiff_t wide, uint32_t *pick)
{
    uint32_t most = dsp_word(x), picks = 0, number = 0;
    for (ptrdiff_t u = 0; u < high; u++, x += t->line) {
        const uint8_t *at = x;
        for (ptrdiff_t v = 0; v < wide; v++, at += t->tap, number += 0x01010101u) {
            most = larger_bytes(most, dsp_word(at), &picks, number);
        }
    }
    *pick = picks;
    return most;
}

/* Four picks from number `at` on, a multiple of four: the bytes of a word. */
static inline void put_picks(uint8_t *picks, int bits, uint64_t at, uint32_t pick)
{
    if (bits == 2) {
        picks[(size_t)at / 4] = (uint8_t)(pick | pick >> 6 | pick >> 12 | pick >> 18);
        return;
    }
    const int32_t each[4] = {(int32_t)(pick & 0xFF), (int32_t)(pick >> 8 & 0xFF),
                             (int32_t)(pick >> 16 & 0xFF), (int32_t)(pick >> 24)};
    qfw_pack_tile(picks, at, 4, bits, each);
}

static ptrdiff_t fours(const uint8_t *x, uint8_t *y, const taps *t, ptrdiff_t n, uint8_t *picks,
                       int bits, uint64_t at)
{
    ptrdiff_t c = 0;
    for (; at % 4 == 0 && c + 4 <= n; c += 4) {
        uint32_t pick;
        const uint32_t most = t->high == 2 && t->wide == 2
                                  ? largest_bytes(x + c, t, 2, 2, &pick)
                                  : largest_bytes(x + c, t, t->high, t->wide, &pick);
        y[c] = (uint8_t)(most & 0xFF);
        y[c + 1] = (uint8_t)(most >> 8 & 0xFF);
        y[c + 2] = (uint8_t)(most >> 16 & 0xFF);
        y[c + 3] = (uint8_t)(most >> 24);
        if (picks != NULL) {
            put_picks(picks, bits, at + (uint64_t)c, pick);
        }
    }
    return c;
}
#else
static ptrdiff_t fours(const uint8_t *x, uint8_t *y, const taps *t, ptrdiff_t n, uint8_t *picks,
                       int bits, uint64_t at)
{
    (void)x, (void)y, (void)t, (void)n, (void)picks, (void)bits, (void)at;
    return 0;
}
#endif

/* Picks have 8 bits at most. */
void qfw_max_pool_directly(const qfw_call *call, int32_t width)
{
    const qfw_window *w = call->window;
    const qfw_operand *y = &call->at[0], *x = &call->at[1];
    const ptrdiff_t channels = qfw_channels_of(call, x), size = width / 8,
                    line = w->in_w * channels;
    const taps t = {w->kernel_h, w->kernel_w, w->dilation_w * channels, w->dilation_h * line};
    void *picks = qfw_has(call, 2) ? call->at[2].t.codes : NULL;
    const int bits = qfw_has(call, 2) ? call->at[2].plan->bits : 0;
    uint8_t *to = y->t.codes;
    uint64_t at = 0;
    for (ptrdiff_t i = 0; i < call->rows * w->out_h; i++) {
        const ptrdiff_t row = i / w->out_h * w->in_h + i % w->out_h * w->stride_h;
        const uint8_t *from = (const uint8_t *)x->t.codes + row * line * size;
        for (ptrdiff_t p = 0; p < w->out_w; p++) {
            if (width == 8) {
                const ptrdiff_t c = fours(from, to, &t, channels, picks, bits, at);
                some_channels(from, to, 8, &t, c, channels, picks, bits, at);
            } else if (width == 16) {
                some_channels(from, to, 16, &t, 0, channels, picks, bits, at);
            } else {
                some_channels(from, to, 32, &t, 0, channels, picks, bits, at);
            }
            from += w->stride_w * channels * size;
            to += channels * size;
            at += (uint64_t)channels;
        }
    }
}

/* ---- sums ---- */

#if defined(__ARM_FEATURE_DSP)
/* Four channels in bytes: two sums of 16 bits in each word. 255 taps of 2^7 stay within them. */
static inline void sum_bytes(const uint8_t *x, const taps *t, const ptrdiff_t high,
                             const ptrdiff_t wide, uint32_t *even, uint32_t *odd)
{
    uint32_t e = 0, o = 0;
    for (ptrdiff_t u = 0; u < high; u++, x += t->line) {
        const uint8_t *at = x;
        for (ptrdiff_t v = 0; v < wide; v++, at += t->tap) {
            const uint32_t four = dsp_word(at);
            __asm__("sxtab16 %0, %0, %1" : "+r"(e) : "r"(four));
            __asm__("sxtab16 %0, %0, %1, ror #8" : "+r"(o) : "r"(four));
        }
    }
    *even = e;
    *odd = o;
}

/* The larger and the smaller of halves. */
static inline void extend_halves(uint32_t x, uint32_t *most, uint32_t *least)
{
    uint32_t gap;
    __asm__("ssub16 %[gap], %[x], %[most]\n\t"
            "sel %[most], %[x], %[most]\n\t"
            "ssub16 %[gap], %[x], %[least]\n\t"
            "sel %[least], %[least], %[x]"
            : [gap] "=&r"(gap), [most] "+r"(*most), [least] "+r"(*least)
            : [x] "r"(x)
            : "cc");
}

static inline uint32_t largest_of_halves(uint32_t most, uint32_t least)
{
    const int32_t m0 = (int16_t)(most & 0xFFFFu), m1 = (int32_t)most >> 16;
    const int32_t l0 = (int16_t)(least & 0xFFFFu), l1 = (int32_t)least >> 16;
    const int32_t high = m0 > m1 ? m0 : m1, low = l0 < l1 ? l0 : l1;
    return (uint32_t)(high > -low ? high : -low);
}

/* All channels of a position; even and odd sums so far extend `ends`. */
static inline void sum_position(const uint8_t *from, ptrdiff_t channels, const taps *t,
                                const ptrdiff_t high, const ptrdiff_t wide, int32_t *to,
                                uint32_t *most, uint32_t *least)
{
    for (const uint8_t *end = from + channels; from < end; from += 4, to += 4) {
        uint32_t even, odd;
        sum_bytes(from, t, high, wide, &even, &odd);
        extend_halves(even, most, least);
        extend_halves(odd, most, least);
        to[0] = (int16_t)(even & 0xFFFFu);
        to[1] = (int16_t)(odd & 0xFFFFu);
        to[2] = (int32_t)even >> 16;
        to[3] = (int32_t)odd >> 16;
    }
}

bool qfw_sum_pool_directly(const qfw_call *call, uint32_t *absmax)
{
    const qfw_window *w = call->window;
    const qfw_operand *x = &call->at[1];
    const ptrdiff_t channels = qfw_channels_of(call, x), line = w->in_w * channels;
    const taps t = {w->kernel_h, w->kernel_w, channels, line};
    if (qfw_slot(&x->t.format) != 8 || channels % 4 != 0 || qfw_taps(w) > 255) {
        return false;
    }
    uint32_t most = 0, least = 0;
    int32_t *to = call->at[0].t.codes;
    for (ptrdiff_t i = 0; i < call->rows * w->out_h; i++) {
        const ptrdiff_t row = i / w->out_h * w->in_h + i % w->out_h * w->stride_h;
        const uint8_t *from = (const uint8_t *)x->t.codes + row * line;
        for (ptrdiff_t p = 0; p < w->out_w; p++, to += channels) {
            if (t.high == 2 && t.wide == 2) {
                sum_position(from, channels, &t, 2, 2, to, &most, &least);
            } else {
                sum_position(from, channels, &t, t.high, t.wide, to, &most, &least);
            }
            from += w->stride_w * channels;
        }
    }
    *absmax = largest_of_halves(most, least);
    return true;
}
#else
bool qfw_sum_pool_directly(const qfw_call *call, uint32_t *absmax)
{
    (void)call, (void)absmax;
    return false;
}
#endif
