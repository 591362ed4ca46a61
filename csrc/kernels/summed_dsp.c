/* The gradient of a row of weights over the rows of a step, with the DSP extension of a Cortex-M. */
#include "kernels/dsp.h"
#include "kernels/moved.h"

#if defined(__ARM_FEATURE_DSP)

/* Two rows of the step with an error. */
typedef struct {
    const int8_t *x, *y;
    uint32_t codes; /* of x below, of y above */
} two;

/* The next ones from number `k` on; the row after them. Where there is but one, y counts nothing. */
static size_t next_two(const int8_t *e, size_t out, const int8_t *x, size_t n, size_t k,
                       size_t terms, two *to, uint32_t *all)
{
    int32_t found = 0;
    to->codes = 0;
    for (; k < terms && found < 2; k++) {
        const int32_t code = e[k * out];
        if (code != 0) {
            to->y = x + k * n;
            to->x = found == 0 ? to->y : to->x;
            to->codes |= ((uint32_t)code & 0xFFFFu) << 16 * found;
            *all += qfw_abs32(code);
            found++;
        }
    }
    return k;
}

/* `first` is a constant at each call: nothing was written before. */
QFW_ALWAYS_INLINE void add_two(int32_t *sums, const two *t, size_t n, const bool first)
{
    const int8_t *x = t->x, *y = t->y;
    const uint32_t codes = t->codes;
    for (int32_t *end = sums + (n & ~(size_t)3); sums < end; sums += 4, x += 4, y += 4) {
        const uint32_t a = dsp_word(x), b = dsp_word(y);
        const uint32_t a02 = dsp_even(a), b02 = dsp_even(b), a13 = dsp_odd(a), b13 = dsp_odd(b);
        const int32_t s0 = first ? 0 : sums[0], s1 = first ? 0 : sums[1];
        const int32_t s2 = first ? 0 : sums[2], s3 = first ? 0 : sums[3];
        sums[0] = dsp_twice(dsp_lows(a02, b02), codes, s0);
        sums[1] = dsp_twice(dsp_lows(a13, b13), codes, s1);
        sums[2] = dsp_twice(dsp_highs(a02, b02), codes, s2);
        sums[3] = dsp_twice(dsp_highs(a13, b13), codes, s3);
    }
    for (n &= 3; n > 0; n--, sums++) {
        const uint32_t both = dsp_lows((uint32_t)*x++, (uint32_t)*y++);
        *sums = dsp_twice(both, codes, first ? 0 : *sums);
    }
}

uint32_t qfw_sum_row(int32_t *sums, const int8_t *e, size_t out, const int8_t *x, size_t n,
                     size_t terms)
{
    uint32_t all = 0;
    two t = {x, x, 0};
    size_t k = next_two(e, out, x, n, 0, terms, &t, &all);
    if (all != 0) {
        add_two(sums, &t, n, true);
    }
    while (k < terms) {
        k = next_two(e, out, x, n, k, terms, &t, &all);
        if (t.codes != 0) {
            add_two(sums, &t, n, false);
        }
    }
    return all;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
