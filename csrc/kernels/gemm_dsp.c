/* Products of int8 with the DSP extension of a Cortex-M: two terms an instruction. */
#include "kernels/kernels.h"

#if defined(__ARM_FEATURE_DSP)

/* Four codes of any alignment. */
static inline uint32_t four_at(const int8_t *x)
{
    const uint8_t *b = (const uint8_t *)x;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Codes 0 and 2 of four, as two numbers of 16 bits; codes 1 and 3. */
static inline uint32_t even(uint32_t four)
{
    uint32_t two;
    __asm__("sxtb16 %0, %1" : "=r"(two) : "r"(four));
    return two;
}

static inline uint32_t odd(uint32_t four)
{
    uint32_t two;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(two) : "r"(four));
    return two;
}

/* sum + both products. */
static inline int32_t twice(uint32_t x, uint32_t y, int32_t sum)
{
    int32_t v;
    __asm__("smlad %0, %1, %2, %3" : "=r"(v) : "r"(x), "r"(y), "r"(sum));
    return v;
}

/* Sums of a row of a with four rows of b, `next` apart: what is read of a serves them all. */
static void four_dots(const int8_t *a, const int8_t *b, size_t next, size_t n, int32_t *sum)
{
    const int8_t *b3 = b + 3 * next, *last = a + (n & ~(size_t)3), *end = a + n;
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (; a < last; a += 4, b += 4, b3 += 4) {
        const uint32_t x = four_at(a), x0 = even(x), x1 = odd(x);
        const uint32_t w0 = four_at(b), w1 = four_at(b + next), w2 = four_at(b + 2 * next);
        const uint32_t w3 = four_at(b3);
        s0 = twice(x1, odd(w0), twice(x0, even(w0), s0));
        s1 = twice(x1, odd(w1), twice(x0, even(w1), s1));
        s2 = twice(x1, odd(w2), twice(x0, even(w2), s2));
        s3 = twice(x1, odd(w3), twice(x0, even(w3), s3));
    }
    for (; a < end; a++, b++, b3++) {
        s0 += *a * *b;
        s1 += *a * b[next];
        s2 += *a * b[2 * next];
        s3 += *a * *b3;
    }
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
}

void qfw_gemm_s32_dsp(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    if (g->a_width != 8 || g->b_width != 8 || g->a_col != 1 || g->b_row != 1) {
        qfw_gemm_s32_scalar(g, out, out_row);
        return;
    }
    for (size_t i = 0; i < g->m; i++) {
        const int8_t *a = (const int8_t *)g->a + i * g->a_row;
        for (size_t j = 0; j < g->n;
             j += 4) { /* the last four begin earlier; less than four: alike */
            const size_t n = g->n - j < 4 ? g->n - j : 4, early = g->n < 4 ? 0 : 4 - n;
            int32_t sum[4], *o = out + i * out_row + j;
            const int8_t *b = (const int8_t *)g->b + (j - early) * g->b_col;
            if (g->n >= 4) {
                four_dots(a, b, g->b_col, g->k, sum);
            }
            for (size_t c = 0; c < n; c++) {
                if (g->n < 4) {
                    four_dots(a, b + c * g->b_col, 0, g->k, sum);
                }
                const int32_t s = sum[g->n < 4 ? 0 : early + c];
                o[c] = g->add != 0 ? o[c] + s : s;
            }
        }
    }
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
