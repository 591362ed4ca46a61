/* Dots of int8 on a Cortex-M0: four rows of b share what is read of a, and sums lie in the upper
 * registers, where they can be added to and nothing else. */
#ifndef QFW_KERNELS_DOTS_M0_H
#define QFW_KERNELS_DOTS_M0_H

#include "kernels/kernels.h"

#if defined(__ARM_ARCH_6M__)

typedef struct {
    const int8_t *end[4]; /* of the rows of b */
    int32_t sum[4];
} four_dots;

#define DOT(end, sum)           \
    "ldrsb r7, [" end ", r0]\n" \
    "muls r7, r6, r7\n"         \
    "add " sum ", " sum ", r7\n"
#define TERM                                                                \
    "ldrsb r6, [r1, r0]\n" DOT("r2", "r8") DOT("r3", "r9") DOT("r4", "r10") \
        DOT("r5", "r11") "adds r0, r0, #1\n"

/* k terms, at least one; a ends at `end`. Terms go in pairs, an odd one first. By registers that are
 * named, r7 as it was afterwards: some builds keep their frame there. */
static __attribute__((noinline)) void sum_four(four_dots *d, const int8_t *end, ptrdiff_t k)
{
    register ptrdiff_t i __asm__("r0") = -k;
    register const int8_t *a __asm__("r1") = end;
    register four_dots *dots __asm__("r2") = d;
    __asm__ volatile(".syntax unified\n"
                     "push {r2}\n"
                     "mov r12, r7\n"
                     "ldm r2, {r2, r3, r4, r5}\n"
                     "movs r6, #0\n"
                     "mov r8, r6\n"
                     "mov r9, r6\n"
                     "mov r10, r6\n"
                     "mov r11, r6\n"
                     "lsrs r6, r0, #1\n"
                     "bcs 2f\n"
                     "1:\n" TERM "2:\n" TERM "bne 1b\n"
                     "mov r7, r12\n"
                     "pop {r2}\n"
                     "mov r3, r8\n"
                     "mov r4, r9\n"
                     "mov r5, r10\n"
                     "mov r6, r11\n"
                     "adds r2, #16\n"
                     "stm r2!, {r3, r4, r5, r6}"
                     : "+r"(i), "+r"(a), "+r"(dots)
                     :
                     : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
}

/* As the definition goes: rows of b beyond the last are the last. k is at least 1. */
static void dots_by_core(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    const int8_t *a = (const int8_t *)g->a + g->k;
    for (size_t i = 0; i < g->m; i++, a += g->a_row, out += out_row) {
        for (size_t j = 0; j < g->n; j += 4) {
            const size_t n = g->n - j < 4 ? g->n - j : 4;
            const int8_t *b = (const int8_t *)g->b + j * g->b_col + g->k;
            four_dots d;
            for (size_t c = 0; c < 4; c++) {
                d.end[c] = b;
                b += c + 1 < n ? g->b_col : 0;
            }
            sum_four(&d, a, (ptrdiff_t)g->k);
            for (size_t c = 0; c < n; c++) {
                int32_t *o = out + j + c;
                *o = g->add != 0 ? *o + d.sum[c] : d.sum[c];
            }
        }
    }
}

enum { DOTS_BY_CORE = 1 };

#else

enum { DOTS_BY_CORE = 0 };

static inline void dots_by_core(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    (void)g, (void)out, (void)out_row;
}

#endif
#endif
