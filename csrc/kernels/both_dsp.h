/* Codes of a parameter and of its state that move at once, with the DSP extension of a Cortex-M. */
#ifndef QFW_KERNELS_BOTH_DSP_H
#define QFW_KERNELS_BOTH_DSP_H

#include "kernels/dsp.h"
#include "kernels/moved.h"

#if defined(__ARM_FEATURE_DSP)

/* Some codes of both, the words of the first being u and u_v: a multiple of four and not 0. The term of a
 * byte or of a sum of 16 bits x is (g x) >> 16, or (2^8 g x) >> 16, that of any sum ((x << up) g) >> 32;
 * that of a state (2^8 mu v) >> 16. */
typedef struct {
    int32_t mu; /* of the parameter */
    uint32_t u, step;
    int32_t g;
    uint32_t u_v, step_v; /* of the state */
    int32_t mu_v, g_v;
    const int8_t *end; /* of the parameter's codes */
    uint32_t out;      /* 0 */
    uint32_t up, up_v;
} both;

/* Random words of four elements, the first in r8, as their last bits in r10, r11, r12 and r8. */
#define FOUR_WORDS(to)         \
    "lsr r10, r8, #12\n\t"     \
    "add r8, r8, r9\n\t"       \
    "lsr r11, r8, #12\n\t"     \
    "add r8, r8, r9\n\t"       \
    "lsr r12, r8, #12\n\t"     \
    "add r8, r8, r9\n\t"       \
    "add r9, r8, r9\n\t"       \
    "str r9, [sp, " to "]\n\t" \
    "lsr r8, r8, #12\n\t"

/* And the terms of the state's codes 0 and 2 in r6, 1 and 3 in r5. */
#define FOUR_STATES               \
    "smlawb r10, r7, r6, r10\n\t" \
    "smlawb r11, r7, r5, r11\n\t" \
    "smlawt r12, r7, r6, r12\n\t" \
    "smlawt r8, r7, r5, r8\n\t"

/* What moves and the state in r5; those that are 0 stay. */
#define LOAD_BYTES         \
    "ldr r4, [r2], #4\n\t" \
    "ldr r5, [r1]\n\t"     \
    "orrs r6, r4, r5\n\t"  \
    "beq 7f\n\t"
#define LOAD_SUMS "ldr r5, [r1]\n\t"

/* And the terms of the bytes in r4, if one is not 0. */
#define EVEN_BYTES "sxtb16 r7, r4\n\t"
#define ODD_BYTES "sxtb16 r7, r4, ror #8\n\t"
#define EVEN_BYTES_UP "and r7, r3, r4, lsl #8\n\t"
#define ODD_BYTES_UP "and r7, r3, r4\n\t"
#define FOUR_BYTES(even, odd, g)                                    \
    "cbz r4, 2f\n\t"                                                \
    "ldr r9, [sp, " g "]\n\t" even "smlawb r10, r9, r7, r10\n\t"    \
    "smlawt r12, r9, r7, r12\n\t" odd "smlawb r11, r9, r7, r11\n\t" \
    "smlawt r8, r9, r7, r8\n"                                       \
    "2:\n\t"
#define BYTES(g, up, next) FOUR_BYTES(EVEN_BYTES, ODD_BYTES, g)
#define BYTES_UP(g, up, next) FOUR_BYTES(EVEN_BYTES_UP, ODD_BYTES_UP, g)

/* And those of the sums at r2, which goes on by `next`. */
#define FEW_SUMS(g, up, next)     \
    "ldr r9, [sp, " g "]\n\t"     \
    "ldr r7, [r2, #4]\n\t"        \
    "smlawb r11, r9, r7, r11\n\t" \
    "ldr r7, [r2, #8]\n\t"        \
    "smlawb r12, r9, r7, r12\n\t" \
    "ldr r7, [r2, #12]\n\t"       \
    "smlawb r8, r9, r7, r8\n\t"   \
    "ldr r7, [r2], " next "\n\t"  \
    "smlawb r10, r9, r7, r10\n\t"
#define SUMS(g, up, next)        \
    "ldr r9, [sp, " g "]\n\t"    \
    "ldr r4, [sp, " up "]\n\t"   \
    "ldr r7, [r2, #4]\n\t"       \
    "lsl r7, r7, r4\n\t"         \
    "smmla r11, r9, r7, r11\n\t" \
    "ldr r7, [r2, #8]\n\t"       \
    "lsl r7, r7, r4\n\t"         \
    "smmla r12, r9, r7, r12\n\t" \
    "ldr r7, [r2, #12]\n\t"      \
    "lsl r7, r7, r4\n\t"         \
    "smmla r8, r9, r7, r8\n\t"   \
    "ldr r7, [r2], " next "\n\t" \
    "lsl r7, r7, r4\n\t"         \
    "smmla r10, r9, r7, r10\n\t"

/* Steps with four more bits, two a word: 0 and 2, 1 and 3; then what of them a byte takes, in order. */
#define PAIRS_OF_STEPS                 \
    "pkhtb r10, r12, r10, asr #16\n\t" \
    "pkhtb r11, r8, r11, asr #16\n\t"
#define BYTES_OF_STEPS             \
    "and r10, r10, r3, ror #4\n\t" \
    "and r11, r3, r11, lsl #4\n\t" \
    "orrs r10, r11, r10, lsr #4\n\t"

/* Codes of the parameter less their steps, in r11: of steps that are bytes, or that have 12 bits. What is
 * held goes to 8, where the flag, which is the state's, becomes what it was. */
#define LESS_BYTES                           \
    BYTES_OF_STEPS "beq 4f\n\t"              \
                   "ldr r9, [r0]\n\t"        \
                   "qsub8 r11, r9, r10\n\t"  \
                   "qadd8 r10, r11, r10\n\t" \
                   "cmp r10, r9\n\t"         \
                   "bne 8f\n"                \
                   "3:\n\t"
#define HELD_BYTES "8:\n\t"
#define LESS_HALVES                 \
    "bic r10, r10, #0x000F000F\n\t" \
    "bic r11, r11, #0x000F000F\n\t" \
    "ldr r9, [r0]\n\t"              \
    "mrs r7, APSR\n\t"              \
    "sxtb16 r12, r9\n\t"            \
    "sxtb16 r9, r9, ror #8\n\t"     \
    "lsl r12, r12, #4\n\t"          \
    "lsl r9, r9, #4\n\t"            \
    "ssub16 r10, r12, r10\n\t"      \
    "ssub16 r11, r9, r11\n\t"       \
    "ssat16 r12, #12, r10\n\t"      \
    "ssat16 r9, #12, r11\n\t"       \
    "cmp r12, r10\n\t"              \
    "it eq\n\t"                     \
    "cmpeq r9, r11\n\t"             \
    "bne 8f\n"                      \
    "3:\n\t"                        \
    "and r12, r12, r3, ror #4\n\t"  \
    "and r9, r3, r9, lsl #4\n\t"    \
    "orr r11, r9, r12, lsr #4\n\t"
#define HELD_HALVES "8:\n\tmsr APSR_nzcvq, r7\n\t"

/* Codes of the parameter from `m` on less their steps, and the state's: their steps. By registers that
 * are named, the rest on the stack. r7, which some compilers keep, is as it was after.
 * Returns 0, or an odd number where a code was held; a state that was sets the flag. */
#define BOTH(name, load, terms, terms_v, less, held)                                            \
    static __attribute__((noinline, unused)) uint32_t name(int8_t *m, int8_t *v, const void *x, \
                                                           const both *b)                       \
    {                                                                                           \
        register int8_t *to __asm__("r0") = m;                                                  \
        register int8_t *own __asm__("r1") = v;                                                 \
        register const void *from __asm__("r2") = x;                                            \
        register uint32_t upper __asm__("r3") = 0xFF00FF00u;                                    \
        register uint32_t ones __asm__("lr") = 0x01010101u;                                     \
        register const both *all __asm__("r12") = b + 1;                                        \
        __asm__ volatile("push {r7}\n\t"                                                        \
                         "ldmdb r12!, {r4, r5, r6, r8, r9, r10}\n\t"                            \
                         "push {r4, r5, r6, r8, r9, r10}\n\t"                                   \
                         "ldmdb r12!, {r4, r5, r6, r8, r9, r10}\n\t"                            \
                         "push {r4, r5, r6, r8, r9, r10}\n"                                     \
                         "1:\n\t" load "and r6, r3, r5, lsl #8\n\t"                             \
                         "and r5, r3, r5\n\t"                                                   \
                         "ldmia sp, {r7, r8, r9}\n\t" FOUR_WORDS("#4")                          \
                             FOUR_STATES terms("#12", "#40", "#0") PAIRS_OF_STEPS less          \
                         "qsub8 r11, r11, lr\n\t" /* -128 becomes -127 */                       \
                         "qadd8 r11, r11, lr\n\t"                                               \
                         "str r11, [r0]\n"                                                      \
                         "4:\n\t"                                                               \
                         "ldrd r8, r9, [sp, #16]\n\t"                                           \
                         "ldr r7, [sp, #24]\n\t" FOUR_WORDS("#16")                              \
                             FOUR_STATES terms_v("#28", "#44", "#16") PAIRS_OF_STEPS            \
                         "ssat16 r10, #12, r10\n\t"                                             \
                         "ssat16 r11, #12, r11\n\t" BYTES_OF_STEPS "qsub8 r10, r10, lr\n\t"     \
                         "qadd8 r10, r10, lr\n\t"                                               \
                         "str r10, [r1], #4\n"                                                  \
                         "6:\n\t"                                                               \
                         "ldr r9, [sp, #32]\n\t"                                                \
                         "add r0, r0, #4\n\t"                                                   \
                         "cmp r0, r9\n\t"                                                       \
                         "bne 1b\n\t"                                                           \
                         "b 9f\n"                                                               \
                         "7:\n\t" /* codes that stay */                                         \
                         "ldrd r8, r9, [sp, #4]\n\t"                                            \
                         "add r8, r8, r9, lsl #2\n\t"                                           \
                         "str r8, [sp, #4]\n\t"                                                 \
                         "ldrd r8, r9, [sp, #16]\n\t"                                           \
                         "add r8, r8, r9, lsl #2\n\t"                                           \
                         "str r8, [sp, #16]\n\t"                                                \
                         "add r1, r1, #4\n\t"                                                   \
                         "b 6b\n" held "str lr, [sp, #36]\n\t"                                  \
                         "b 3b\n"                                                               \
                         "9:\n\t"                                                               \
                         "ldr r12, [sp, #36]\n\t"                                               \
                         "add sp, sp, #48\n\t"                                                  \
                         "pop {r7}"                                                             \
                         : "+r"(to), "+r"(own), "+r"(from), "+r"(all)                           \
                         : "r"(upper), "r"(ones)                                                \
                         : "r4", "r5", "r6", "r8", "r9", "r10", "r11", "memory", "cc");         \
        return (uint32_t)(uintptr_t)all;                                                        \
    }

BOTH(both_low, LOAD_BYTES, BYTES, BYTES, LESS_BYTES, HELD_BYTES)
BOTH(state_up, LOAD_BYTES, BYTES, BYTES_UP, LESS_BYTES, HELD_BYTES)
BOTH(both_up, LOAD_BYTES, BYTES_UP, BYTES_UP, LESS_BYTES, HELD_BYTES)
BOTH(both_few, LOAD_SUMS, FEW_SUMS, FEW_SUMS, LESS_BYTES, HELD_BYTES)
BOTH(both_sums, LOAD_SUMS, SUMS, SUMS, LESS_BYTES, HELD_BYTES)
BOTH(far_low, LOAD_BYTES, BYTES, BYTES, LESS_HALVES, HELD_HALVES)
BOTH(far_up, LOAD_BYTES, BYTES_UP, BYTES_UP, LESS_HALVES, HELD_HALVES)
BOTH(far_sums, LOAD_SUMS, SUMS, SUMS, LESS_HALVES, HELD_HALVES)

/* The same of a row without an error, whose state shrinks, to 127/128 at least: its steps are bytes, and
 * none is -128. */
static __attribute__((noinline, unused)) uint32_t state_alone(int8_t *m, int8_t *v, const void *x,
                                                              const both *b)
{
    register int8_t *to __asm__("r0") = m;
    register int8_t *own __asm__("r1") = v;
    register uint32_t upper __asm__("r3") = 0xFF00FF00u;
    register const both *all __asm__("r12") = b;
    (void)x;
    __asm__ volatile("push {r7}\n\t"
                     "ldm r12, {r2, r4, r5, r6, r7, r8, lr}\n\t"
                     "ldr r9, [r12, #32]\n\t"
                     "mov r10, #0\n\t"
                     "push {r8, r9, r10}\n\t"
                     "mov r8, r2\n\t"
                     "mov r2, r4\n\t"
                     "mov r4, r5\n\t"
                     "mov r5, r7\n\t"
                     "mov r7, r8\n"
                     "1:\n\t"
                     "ldr r6, [r1]\n\t"
                     "cmp r6, #0\n\t"
                     "beq 7f\n\t"
                     "and r8, r3, r6\n\t"
                     "and r6, r3, r6, lsl #8\n\t"
                     "lsr r9, r2, #12\n\t"
                     "add r2, r2, r4\n\t"
                     "lsr r10, r2, #12\n\t"
                     "add r2, r2, r4\n\t"
                     "lsr r11, r2, #12\n\t"
                     "add r2, r2, r4\n\t"
                     "lsr r12, r2, #12\n\t"
                     "add r2, r2, r4\n\t"
                     "smlawb r9, r7, r6, r9\n\t"
                     "smlawb r10, r7, r8, r10\n\t"
                     "smlawt r11, r7, r6, r11\n\t"
                     "smlawt r12, r7, r8, r12\n\t"
                     "pkhtb r9, r11, r9, asr #16\n\t"
                     "pkhtb r10, r12, r10, asr #16\n\t"
                     "and r9, r9, r3, ror #4\n\t"
                     "and r10, r3, r10, lsl #4\n\t"
                     "orrs r9, r10, r9, lsr #4\n\t"
                     "beq 4f\n\t"
                     "ldr r10, [r0]\n\t"
                     "qsub8 r11, r10, r9\n\t"
                     "qadd8 r9, r11, r9\n\t"
                     "cmp r9, r10\n\t"
                     "bne 8f\n"
                     "3:\n\t"
                     "mov r9, #0x01010101\n\t"
                     "qsub8 r11, r11, r9\n\t" /* -128 becomes -127 */
                     "qadd8 r11, r11, r9\n\t"
                     "str r11, [r0]\n"
                     "4:\n\t"
                     "ldr r12, [sp]\n\t"
                     "lsr r9, r5, #12\n\t"
                     "add r5, r5, r12\n\t"
                     "lsr r10, r5, #12\n\t"
                     "add r5, r5, r12\n\t"
                     "lsr r11, r5, #12\n\t"
                     "add r5, r5, r12\n\t"
                     "add r12, r5, r12\n\t"
                     "lsr r5, r5, #12\n\t"
                     "smlawb r9, lr, r6, r9\n\t"
                     "smlawb r10, lr, r8, r10\n\t"
                     "smlawt r11, lr, r6, r11\n\t"
                     "smlawt r5, lr, r8, r5\n\t"
                     "pkhtb r9, r11, r9, asr #16\n\t"
                     "pkhtb r10, r5, r10, asr #16\n\t"
                     "mov r5, r12\n\t"
                     "and r9, r9, r3, ror #4\n\t"
                     "and r10, r3, r10, lsl #4\n\t"
                     "orr r9, r10, r9, lsr #4\n\t"
                     "str r9, [r1], #4\n"
                     "6:\n\t"
                     "ldr r9, [sp, #4]\n\t"
                     "add r0, r0, #4\n\t"
                     "cmp r0, r9\n\t"
                     "bne 1b\n\t"
                     "b 9f\n"
                     "7:\n\t" /* codes that stay */
                     "ldr r12, [sp]\n\t"
                     "add r2, r2, r4, lsl #2\n\t"
                     "add r5, r5, r12, lsl #2\n\t"
                     "add r1, r1, #4\n\t"
                     "b 6b\n"
                     "8:\n\t"
                     "mov r9, #1\n\t"
                     "str r9, [sp, #8]\n\t"
                     "b 3b\n"
                     "9:\n\t"
                     "ldr r12, [sp, #8]\n\t"
                     "add sp, sp, #12\n\t"
                     "pop {r7}"
                     : "+r"(to), "+r"(own), "+r"(all)
                     : "r"(upper)
                     : "r2", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "lr", "memory", "cc");
    return (uint32_t)(uintptr_t)all;
}

#endif
#endif
