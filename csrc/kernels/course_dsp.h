/* Panels of four rows of 16 bits, and columns of 16 bits that go over them, for the DSP extension of a
 * Cortex-M. */
#ifndef QFW_KERNELS_COURSE_DSP_H
#define QFW_KERNELS_COURSE_DSP_H

#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* For each four terms a panel has the words {terms 0 and 1, terms 2 and 3} of rows 0, 1, 2 and 3. */
enum { BLOCK = 8, TERMS = 64, WORDS = TERMS / 4 * BLOCK };

/* Columns of 16 bits that go over a panel, and the sums of its four rows; in bytes what is apart. */
typedef struct {
    const uint32_t *panel, *end; /* of a block at least */
    int32_t *out;
    size_t n;       /* columns, one at least */
    ptrdiff_t skip; /* from the end of a column to the next one */
    size_t next;    /* from a sum to that of the next column */
    size_t row;     /* and of the next row, where rows do not lie side by side */
} course;

/* Four terms of a column; the four sums, side by side or apart. */
#define TERMS_ALIGNED "ldrd r0, lr, [r2], #8\n\t"
#define TERMS_ANYWHERE     \
    "ldr r0, [r2], #4\n\t" \
    "ldr lr, [r2], #4\n\t"
#define LOAD_SIDE_BY_SIDE "ldmia r4, {r9, r10, r11, r12}\n\t"
#define STORE_SIDE_BY_SIDE "stmia r4, {r9, r10, r11, r12}\n\t"
#define APART(how)                                                                \
    "ldr r5, [r0, #24]\n\t"                                                       \
    "add r6, r4, r5, lsl #1\n\t" how " r9, [r4]\n\t" how " r10, [r4, r5]\n\t" how \
    " r11, [r6]\n\t" how " r12, [r6, r5]\n\t"
#define LOAD_APART APART("ldr")
#define STORE_APART APART("str")

/* The columns of a course, by registers that are named; blocks go in pairs, an odd one first. */
#define COURSE(name, meets, load, store)                                                        \
    static __attribute__((noinline)) void name(course *c, const void *b)                        \
    {                                                                                           \
        register course *with __asm__("r0") = c;                                                \
        register const void *at __asm__("r2") = b;                                              \
        __asm__ volatile("push {r0}\n"                                                          \
                         "2:\n\t"                                                               \
                         "ldr r4, [r0, #8]\n\t"                                                 \
                         "ldrd r1, r3, [r0]\n\t" load "sub r4, r3, r1\n\t"                      \
                         "lsls r4, r4, #26\n\t"                                                 \
                         "bmi 3f\n"                                                             \
                         "1:\n\t" DSP_FOUR_TERMS(meets) "3:\n\t" DSP_FOUR_TERMS(                \
                             meets) "cmp r1, r3\n\t"                                            \
                                    "bne 1b\n\t"                                                \
                                    "ldr r0, [sp]\n\t"                                          \
                                    "ldr r4, [r0, #8]\n\t" store "ldr r6, [r0, #12]\n\t"        \
                                    "ldrd r5, r8, [r0, #16]\n\t"                                \
                                    "add r4, r4, r8\n\t"                                        \
                                    "add r2, r2, r5\n\t"                                        \
                                    "subs r6, r6, #1\n\t"                                       \
                                    "strd r4, r6, [r0, #8]\n\t"                                 \
                                    "bne 2b\n\t"                                                \
                                    "pop {r0}"                                                  \
                         : "+r"(with), "+r"(at)                                                 \
                         :                                                                      \
                         : "r1", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", \
                           "memory", "cc");                                                     \
    }

/* Four rows of bytes side by side, `terms` of them `term` apart; a multiple of 4. The
 * panel's end. */
static inline uint32_t *fill_across(const int8_t *x, ptrdiff_t term, ptrdiff_t terms, uint32_t *to)
{
    for (; terms > 0; terms -= 4, to += BLOCK) {
        const uint32_t w0 = dsp_word(x), w1 = dsp_word(x + term);
        x += 2 * term;
        const uint32_t w2 = dsp_word(x), w3 = dsp_word(x + term);
        x += 2 * term;
        const uint32_t e0 = dsp_even(w0), o0 = dsp_odd(w0), e1 = dsp_even(w1), o1 = dsp_odd(w1);
        to[0] = dsp_lows(e0, e1);
        to[2] = dsp_lows(o0, o1);
        to[4] = dsp_highs(e0, e1);
        to[6] = dsp_highs(o0, o1);
        const uint32_t e2 = dsp_even(w2), o2 = dsp_odd(w2), e3 = dsp_even(w3), o3 = dsp_odd(w3);
        to[1] = dsp_lows(e2, e3);
        to[3] = dsp_lows(o2, o3);
        to[5] = dsp_highs(e2, e3);
        to[7] = dsp_highs(o2, o3);
    }
    return to;
}

#endif
#endif
