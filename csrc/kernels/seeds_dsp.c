/* Scales and seeds of columns, with a row of sums or without, on a Cortex-M with the DSP extension. */
#include "kernels/dsp.h"
#include "kernels/seeds.h"

#if defined(__ARM_FEATURE_DSP)

/* Columns from the next one on, as `seeded` of seeds.c does them, until the end or one for which it does
 * not serve; then r4 is above 252 if that has no sigma. r0 .. r3 point to columns, the last two of such a one
 * beyond it, and r8 .. r11 have what they share. First qfw_soft_times, in r4, and the seed in two digits, in
 * r6. */
#define FROM_FIRST_COLUMN                            \
    "ldmia r0, {r0, r1, r2, r3, r8, r9, r10, r11}\n" \
    "1:\n\t"                                         \
    "ldr r4, [r0], #4\n\t"                           \
    "lsl r5, r4, #8\n\t"                             \
    "orr r5, r5, #0x80000000\n\t"                    \
    "umull r5, r6, r5, r10\n\t"                      \
    "add r4, r11, r4, lsr #23\n\t"                   \
    "lsrs r12, r6, #24\n\t"                          \
    "beq 2f\n\t"                                     \
    "lsrs r6, r6, #1\n\t"                            \
    "rrx r5, r5\n\t"                                 \
    "adds r4, r4, #1\n"                              \
    "2:\n\t"                                         \
    "cmp r4, #252\n\t"                               \
    "bhi 5f\n\t"                                     \
    "lsrs r12, r6, #1\n\t"                           \
    "mvn r12, #0x80000000\n\t"                       \
    "adcs r5, r5, r12\n\t"                           \
    "adc r4, r6, r4, lsl #23\n\t"                    \
    "str r4, [r3], #4\n\t"                           \
    "ldrsh r5, [r1]\n\t"                             \
    "sub r12, r8, r4, lsr #23\n\t"                   \
    "eor r6, r5, r5, asr #31\n\t"                    \
    "sub r6, r6, r5, asr #31\n\t"                    \
    "ubfx r4, r4, #0, #23\n\t"                       \
    "orr r4, r4, #0x800000\n\t"                      \
    "cmp r12, #8\n\t"                                \
    "bls 3f\n\t"                                     \
    "sub r12, r12, #8\n\t"                           \
    "cmp r12, #16\n\t"                               \
    "bhi 4f\n\t"                                     \
    "lsl r6, r6, r12\n\t"                            \
    "movs r12, #8\n\t"                               \
    "lsrs r5, r6, #16\n\t"                           \
    "bne 4f\n"                                       \
    "3:\n\t"                                         \
    "lsl r12, r9, r12\n\t"                           \
    "lsls r6, r6, #16\n\t"                           \
    "lsl lr, r4, #23\n\t"                            \
    "lsrs r5, r4, #9\n\t"                            \
    "umlal lr, r5, r6, r12\n\t"                      \
    "udiv r6, r5, r4\n\t"                            \
    "mls r5, r4, r6, r5\n\t"                         \
    "lsls r5, r5, #8\n\t"                            \
    "orr r5, r5, lr, lsr #24\n\t"                    \
    "udiv r5, r5, r4\n\t"                            \
    "add r6, r5, r6, lsl #8\n\t"                     \
    "ldrsh r5, [r1], #2\n\t"                         \
    "eor r6, r6, r5, asr #31\n\t"                    \
    "sub r6, r6, r5, asr #31\n\t"

#define CLOBBERED \
    "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "memory", "cc"

/* The sum and its size. */
static __attribute__((noinline)) void sum_columns(qfw_seeded *all)
{
    register qfw_seeded *with __asm__("r0") = all;
    __asm__ volatile("push {r0}\n\t"
                     "add r4, r0, #32\n\t"
                     "ldmia r4, {r4, r5, r6}\n\t"
                     "push {r4, r5, r6}\n\t" FROM_FIRST_COLUMN "ldmia sp, {r4, r12, lr}\n\t"
                     "ldr r5, [r2]\n\t"
                     "add r6, r6, r5\n\t"
                     "and r12, r12, r6, asr #31\n\t"
                     "bic r6, r6, r12\n\t"
                     "eor r5, r6, r6, asr #31\n\t"
                     "sub r5, r5, r6, asr #31\n\t"
                     "str r5, [r2, r4]\n\t"
                     "str r6, [r2], #4\n\t"
                     "cmp r2, lr\n\t"
                     "bne 1b\n"
                     "4:\n\t"
                     "movs r4, #0\n\t"
                     "subs r3, r3, #4\n"
                     "5:\n\t"
                     "adds r3, r3, #4\n\t"
                     "add sp, sp, #12\n\t"
                     "pop {r5}\n\t"
                     "stmia r5, {r0, r1, r2, r3}\n\t"
                     "str r4, [r5, #60]"
                     : "+r"(with)
                     :
                     : CLOBBERED);
}

/* The sum, qfw_ratio_mult of the sigma, and qfw_near; to 8 bits. */
static __attribute__((noinline)) void code_columns(qfw_seeded *all)
{
    register qfw_seeded *with __asm__("r0") = all;
    __asm__ volatile("push {r0}\n\t"
                     "add r4, r0, #32\n\t"
                     "ldmia r4, {r4, r5, r6, r8, r9, r10, r11}\n\t"
                     "push {r4, r5, r6, r8, r9, r10, r11}\n\t" FROM_FIRST_COLUMN
                     "ldr r4, [r2], #4\n\t"
                     "add r6, r6, r4\n\t"
                     "ldmia sp, {r4, r5, r12, lr}\n\t"
                     "and r4, r4, r6, asr #31\n\t"
                     "bic r6, r6, r4\n\t"
                     "ldr r4, [r3, #-4]\n\t"
                     "sub r5, r5, r4, lsr #23\n\t"
                     "lsls r4, r4, #8\n\t"
                     "orr r4, r4, #0x80000000\n\t"
                     "cmp r4, r12, lsl #1\n\t"
                     "ite cs\n\t"
                     "lsrcs r4, r4, #1\n\t"
                     "addcc r5, r5, #1\n\t"
                     "umull r12, lr, r4, lr\n\t"
                     "ldr r12, [sp, #8]\n\t"
                     "lsls r4, r4, #30\n\t"
                     "mls r4, lr, r12, r4\n\t"
                     "cmp r4, r12\n\t"
                     "it cs\n\t"
                     "addcs lr, lr, #1\n\t"
                     "cmp r5, #20\n\t"
                     "bcs 6f\n\t"
                     "asrs r4, r6, #31\n\t"
                     "mov r12, r4\n\t"
                     "smlal r12, r4, r6, lr\n\t"
                     "ldrd r12, lr, [sp, #16]\n\t"
                     "asrs r4, r4, r5\n\t"
                     "adds r4, r4, #1\n\t"
                     "asrs r4, r4, #1\n\t"
                     "add r5, r4, #127\n\t"
                     "cmp r5, #254\n\t"
                     "bhi 7f\n"
                     "8:\n\t"
                     "strb r4, [r12], #1\n\t"
                     "str r12, [sp, #16]\n\t"
                     "cmp r2, lr\n\t"
                     "bne 1b\n\t"
                     "b 4f\n"
                     "7:\n\t"
                     "ldr r5, [sp, #24]\n\t"
                     "adds r5, r5, #1\n\t"
                     "str r5, [sp, #24]\n\t"
                     "cmp r4, #0\n\t"
                     "ite lt\n\t"
                     "mvnlt r4, #126\n\t"
                     "movge r4, #127\n\t"
                     "b 8b\n"
                     "6:\n\t"
                     "subs r1, r1, #2\n\t"
                     "subs r2, r2, #4\n"
                     "4:\n\t"
                     "movs r4, #0\n\t"
                     "subs r3, r3, #4\n"
                     "5:\n\t"
                     "adds r3, r3, #4\n\t"
                     "add sp, sp, #16\n\t"
                     "pop {r8, r9, r10}\n\t"
                     "pop {r5}\n\t"
                     "stmia r5, {r0, r1, r2, r3}\n\t"
                     "str r4, [r5, #60]\n\t"
                     "str r8, [r5, #48]\n\t"
                     "str r10, [r5, #56]"
                     : "+r"(with)
                     :
                     : CLOBBERED);
}

void qfw_seeded_until(qfw_seeded *columns)
{
    if (QFW_HAS_SEEDED_CODES && columns->has_codes) {
        code_columns(columns);
    } else {
        sum_columns(columns);
    }
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
