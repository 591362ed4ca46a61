/* A row of numbers of 16 bits and columns of bytes that it meets, for the DSP extension of a Cortex-M. */
#ifndef QFW_KERNELS_ROW_DSP_H
#define QFW_KERNELS_ROW_DSP_H

#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* ---- the terms of a column in order ---- */

/* Pairs of columns of bytes that meet a row of numbers of 16 bits; in bytes what is apart. */
typedef struct {
    const uint32_t *x,
        *end; /* of four terms 0 and 2, then 1 and 3; blocks of eight, one at least */
    int32_t *out;
    uint32_t keep;  /* of what stands there: all bits or none */
    size_t n;       /* pairs, one at least */
    ptrdiff_t skip; /* from the end of a column to the next but one */
    size_t next;    /* and from a column to the next */
} pairs;

/* Four terms of a column in w by those of the row in x and y. */
#define MEET(w, x, y, sum)                  \
    "sxtb16 r6, " w "\n\t"                  \
    "smlad " sum ", " x ", r6, " sum "\n\t" \
    "sxtb16 " w ", " w ", ror #8\n\t"       \
    "smlad " sum ", " y ", " w ", " sum "\n\t"

#define LOAD_ALIGNED(from) "ldmia " from "!, {r4, r5}\n\t"
#define LOAD_ANYWHERE(from) "ldr r4, [" from "], #4\n\tldr r5, [" from "], #4\n\t"

/* Eight terms of both columns. */
#define EIGHT_TERMS(load)                                                        \
    "ldmia r0!, {r8, r9, r10, r11}\n\t" load("r1") MEET("r4", "r8", "r9", "r12") \
        MEET("r5", "r10", "r11", "r12") load("r2") MEET("r4", "r8", "r9", "lr")  \
            MEET("r5", "r10", "r11", "lr")

/* By registers that are named; blocks go in twos, an odd one first. */
#define ALL_PAIRS(name, load)                                                                  \
    static __attribute__((noinline)) void name(pairs *all, const int8_t *b)                    \
    {                                                                                          \
        register pairs *with __asm__("r0") = all;                                              \
        register const int8_t *first __asm__("r1") = b;                                        \
        register const int8_t *second __asm__("r2") = b + all->next;                           \
        __asm__ volatile(                                                                      \
            "push {r0}\n"                                                                      \
            "2:\n\t"                                                                           \
            "ldrd r4, r5, [r0, #8]\n\t"                                                        \
            "ldrd r12, lr, [r4]\n\t"                                                           \
            "and r12, r12, r5\n\t"                                                             \
            "and lr, lr, r5\n\t"                                                               \
            "ldrd r0, r3, [r0]\n\t"                                                            \
            "sub r4, r3, r0\n\t"                                                               \
            "lsls r4, r4, #27\n\t"                                                             \
            "bmi 3f\n"                                                                         \
            "1:\n\t" EIGHT_TERMS(load) "3:\n\t" EIGHT_TERMS(load) "cmp r0, r3\n\t"             \
                                                                  "bne 1b\n\t"                 \
                                                                  "ldr r0, [sp]\n\t"           \
                                                                  "ldr r4, [r0, #8]\n\t"       \
                                                                  "strd r12, lr, [r4], #8\n\t" \
                                                                  "str r4, [r0, #8]\n\t"       \
                                                                  "ldrd r4, r5, [r0, #16]\n\t" \
                                                                  "add r1, r2, r5\n\t"         \
                                                                  "ldr r6, [r0, #24]\n\t"      \
                                                                  "add r2, r1, r6\n\t"         \
                                                                  "subs r4, r4, #1\n\t"        \
                                                                  "str r4, [r0, #16]\n\t"      \
                                                                  "bne 2b\n\t"                 \
                                                                  "pop {r0}"                   \
            : "+r"(with), "+r"(first), "+r"(second)                                            \
            :                                                                                  \
            : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "memory", "cc");  \
    }

ALL_PAIRS(pairs_aligned, LOAD_ALIGNED)
ALL_PAIRS(pairs_anywhere, LOAD_ANYWHERE)

/* `out` and `n` are used up. */
static inline void run_pairs(pairs *p, const int8_t *b)
{
    if (!QFW_HAS_RESTS || (((uintptr_t)b | p->next) & 3u) == 0) {
        pairs_aligned(p, b);
    } else {
        pairs_anywhere(p, b);
    }
}

/* ---- columns side by side ---- */

/* Fours of columns that meet a row of 16 bits. */
typedef struct {
    const int16_t *x; /* pairs of terms, one at least */
    const int8_t *b;
    const int16_t *end;
    int32_t *out;
    uint32_t keep; /* of what stands there: all bits or none */
    size_t n;      /* fours, one at least */
} fours;

/* Two terms of four columns. Halves of words are put together before they are widened. */
#define TWO_TERMS                   \
    "ldr r12, [r0], #4\n\t"         \
    "ldr r5, [r1, r3]\n\t"          \
    "ldr r4, [r1]\n\t"              \
    "add r1, r1, r3, lsl #1\n\t"    \
    "pkhbt r6, r4, r5, lsl #16\n\t" \
    "pkhtb r5, r5, r4, asr #16\n\t" \
    "sxtb16 r4, r6\n\t"             \
    "smlad r8, r12, r4, r8\n\t"     \
    "sxtb16 r6, r6, ror #8\n\t"     \
    "smlad r9, r12, r6, r9\n\t"     \
    "sxtb16 r4, r5\n\t"             \
    "smlad r10, r12, r4, r10\n\t"   \
    "sxtb16 r5, r5, ror #8\n\t"     \
    "smlad r11, r12, r5, r11\n\t"

/* Terms of a column lie `row` apart. By registers that are named; pairs of terms go in twos, an odd one
 * first. */
static __attribute__((noinline)) void run_fours(fours *all, size_t row)
{
    register fours *with __asm__("lr") = all;
    register size_t apart __asm__("r3") = row;
    __asm__ volatile("2:\n\t"
                     "ldrd r4, r5, [lr, #12]\n\t"
                     "ldmia r4, {r8, r9, r10, r11}\n\t"
                     "and r8, r8, r5\n\t"
                     "and r9, r9, r5\n\t"
                     "and r10, r10, r5\n\t"
                     "and r11, r11, r5\n\t"
                     "ldmia lr, {r0, r1, r2}\n\t"
                     "sub r4, r2, r0\n\t"
                     "lsls r4, r4, #29\n\t"
                     "bmi 3f\n"
                     "1:\n\t" TWO_TERMS "3:\n\t" TWO_TERMS "cmp r0, r2\n\t"
                     "bne 1b\n\t"
                     "ldr r4, [lr, #4]\n\t"
                     "ldr r5, [lr, #12]\n\t"
                     "stmia r5!, {r8, r9, r10, r11}\n\t"
                     "adds r4, r4, #4\n\t"
                     "str r4, [lr, #4]\n\t"
                     "str r5, [lr, #12]\n\t"
                     "ldr r4, [lr, #20]\n\t"
                     "subs r4, r4, #1\n\t"
                     "str r4, [lr, #20]\n\t"
                     "bne 2b"
                     : "+r"(with)
                     : "r"(apart)
                     : "r0", "r1", "r2", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12",
                       "memory", "cc");
}

#endif
#endif
