/* The gradient of a row of weights over the rows of a step, and that of biases; codes that are halved: with
 * the DSP extension of a Cortex-M. */
#include "kernels/dsp.h"
#include "kernels/moved.h"

#if defined(__ARM_FEATURE_DSP)

/* Two rows of the step with an error. */
typedef struct {
    const int8_t *x, *y;
    uint32_t codes; /* of x below, of y above */
} two;

/* The next ones from number `k` on; the row after them. Where there is but one, y counts nothing. */
QFW_ALWAYS_INLINE size_t next_two(const int8_t *e, size_t out, const int8_t *x, size_t n, size_t k,
                                  size_t terms, two *to, uint32_t *all)
{
    const int8_t *at = e + k * out;
    for (to->codes = 0; k < terms; at += out) {
        const int32_t code = *at;
        k++;
        if (code != 0) {
            to->y = x + (k - 1) * n;
            *all += qfw_abs32(code);
            if (to->codes != 0) {
                to->codes |= (uint32_t)code << 16;
                return k;
            }
            to->codes = (uint32_t)code & 0xFFFFu;
            to->x = to->y;
        }
    }
    return k;
}

/* Four codes of both rows at a time, by registers that are named: sums are written, or added to. Halves of
 * words are put together before they are widened. */
#define FOURS(name, load, how, s0, s1, s2, s3)                                            \
    static __attribute__((noinline)) void name(int32_t *sums, const two *t, int32_t *end) \
    {                                                                                     \
        register const int8_t *x __asm__("r0") = t->x;                                    \
        register const int8_t *y __asm__("r1") = t->y;                                    \
        register uint32_t codes __asm__("r2") = t->codes;                                 \
        register int32_t *stop __asm__("r3") = end;                                       \
        register int32_t *to __asm__("r4") = sums;                                        \
        __asm__ volatile("1:\n\t"                                                         \
                         "ldr r6, [r0], #4\n\t"                                           \
                         "ldr lr, [r1], #4\n\t" load "pkhbt r5, r6, lr, lsl #16\n\t"      \
                         "pkhtb lr, lr, r6, asr #16\n\t"                                  \
                         "sxtb16 r6, r5\n\t" how " r8, r6, r2" s0 "\n\t"                  \
                         "sxtb16 r5, r5, ror #8\n\t" how " r9, r5, r2" s1 "\n\t"          \
                         "sxtb16 r6, lr\n\t" how " r10, r6, r2" s2 "\n\t"                 \
                         "sxtb16 lr, lr, ror #8\n\t" how " r11, lr, r2" s3 "\n\t"         \
                         "stmia r4!, {r8, r9, r10, r11}\n\t"                              \
                         "cmp r4, r3\n\t"                                                 \
                         "bne 1b"                                                         \
                         : "+r"(x), "+r"(y), "+r"(to)                                     \
                         : "r"(codes), "r"(stop)                                          \
                         : "r5", "r6", "r8", "r9", "r10", "r11", "lr", "memory", "cc");   \
    }

FOURS(write_fours, "", "smuad", "", "", "", "")
FOURS(add_fours, "ldmia r4, {r8, r9, r10, r11}\n\t", "smlad", ", r8", ", r9", ", r10", ", r11")

/* n codes of both rows; first: nothing was written before. */
static void add_two(int32_t *sums, const two *t, size_t n, bool first)
{
    const size_t most = n & ~(size_t)3;
    if (most != 0) {
        (first ? write_fours : add_fours)(sums, t, sums + most);
    }
    for (size_t i = most; i < n; i++) {
        const uint32_t both = dsp_lows((uint32_t)t->x[i], (uint32_t)t->y[i]);
        sums[i] = dsp_twice(both, t->codes, first ? 0 : sums[i]);
    }
}

uint32_t qfw_sum_row(int32_t *sums, const int8_t *e, size_t out, const int8_t *x, size_t n,
                     size_t terms)
{
    uint32_t all = 0;
    for (size_t k = 0; k < terms;) {
        const bool first = all == 0;
        two t = {x, x, 0};
        k = next_two(e, out, x, n, k, terms, &t, &all);
        if (t.codes != 0) {
            add_two(sums, &t, n, first);
        }
    }
    return all;
}

/* ---- biases ---- */

/* Four columns: pairs of 16 bits hold the sums of so many rows, of codes from -2^7 on. */
enum { ROWS_OF_16 = 255 };

static void sum_four(int32_t *sums, const int8_t *e, size_t n, size_t terms)
{
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (size_t some; terms > 0; terms -= some) {
        uint32_t even = 0, odd = 0;
        some = terms < ROWS_OF_16 ? terms : ROWS_OF_16;
        for (size_t k = some; k > 0; k--, e += n) {
            const uint32_t w = dsp_word(e);
            __asm__("sxtab16 %0, %0, %1" : "+r"(even) : "r"(w));
            __asm__("sxtab16 %0, %0, %1, ror #8" : "+r"(odd) : "r"(w));
        }
        s0 += (int16_t)(even & 0xFFFFu);
        s1 += (int16_t)(odd & 0xFFFFu);
        s2 += (int32_t)even >> 16;
        s3 += (int32_t)odd >> 16;
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}

/* The last four begin earlier. */
void qfw_sum_biases(int32_t *sums, const int8_t *e, size_t n, size_t terms)
{
    for (size_t j = 0; n >= 4 && j < n; j += 4) {
        const size_t at = n - j < 4 ? n - 4 : j;
        sum_four(sums + at, e + at, n, terms);
    }
    for (size_t j = 0; n < 4 && j < n; j++) {
        sums[j] = 0;
        for (size_t k = 0; k < terms; k++) {
            sums[j] += e[k * n + j];
        }
    }
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
