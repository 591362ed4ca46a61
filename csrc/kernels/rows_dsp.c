/* Rows of int8 codes that an outer product moves, with the DSP extension of a Cortex-M. */
#include "kernels/dsp.h"
#include "kernels/rows.h"

#if defined(__ARM_FEATURE_DSP)

QFW_NOINLINE bool qfw_fours_of(const int8_t *x, size_t n, uint32_t *fours)
{
    const uint32_t upper = 0xFF00FF00u;
    uint32_t *to = fours;
    for (size_t i = 0; i < n; i += 4) {
        const uint32_t four = dsp_word(x + i);
        if (four != 0) {
            to[0] = four << 8 & upper;
            to[1] = four & upper;
            to[2] = (uint32_t)i;
            to += 3;
        }
    }
    to[0] = to[1] = 0;
    to[2] = QFW_FOURS_END;
    return to != fours;
}

/* The slope of the row: top over its scale, as qfw_soft_div_upper has it, in r9 and r12: 16 bits of a
 * mantissa, and the exponent field less 110, the power of two that 2^24 times terms have beyond g x, x being
 * 2^8 times its code and the product's upper 32 bits of 48 being taken. What div_upper holds has one far
 * beyond those that are taken.
 * r6 the scale, r8 and r9 those of top. The scale's mantissa goes into the difference of two of 24 bits 7
 * times, then 8 times more; 15 bits follow the first one. */
#define SLOPE                       \
    "ubfx r10, r6, #0, #23\n\t"     \
    "orr r10, r10, #0x800000\n\t"   \
    "sub r9, r9, r6, lsr #23\n\t"   \
    "subs r11, r8, r10\n\t"         \
    "itt cc\n\t"                    \
    "addcc r11, r11, r8\n\t"        \
    "subcc r9, r9, #1\n\t"          \
    "lsl r11, r11, #7\n\t"          \
    "udiv r12, r11, r10\n\t"        \
    "mls r11, r10, r12, r11\n\t"    \
    "lsl r11, r11, #8\n\t"          \
    "udiv lr, r11, r10\n\t"         \
    "mls r11, r10, lr, r11\n\t"     \
    "add r12, lr, r12, lsl #8\n\t"  \
    "sub r11, r10, r11\n\t"         \
    "cmp r11, r10, lsr #9\n\t"      \
    "it ls\n\t"                     \
    "addls r12, r12, #1\n\t"        \
    "add r12, r12, r9, lsl #15\n\t" \
    "asr r9, r12, #15\n\t"          \
    "orr r12, r12, #0x8000\n\t"     \
    "uxth r12, r12\n\t"

/* g = code mu 2^r9 in r8, code in r3, where terms are at most 2^30: with |code| < 2^(32 - z) the product
 * has at most 48 - z bits, and r9 - z <= -17. A power below 0 is one of x itself, and 8 more: r10 is -1
 * then, and there are at most 31 bits too. Else it is far. */
#define FACTOR                      \
    "eor r10, r3, r3, asr #31\n\t"  \
    "sub r10, r10, r3, asr #31\n\t" \
    "clz r10, r10\n\t"              \
    "sub r10, r9, r10\n\t"          \
    "cmn r10, #17\n\t"              \
    "bgt 17f\n\t"                   \
    "mul r8, r12, r3\n\t"           \
    "asrs r10, r9, #31\n\t"         \
    "it mi\n\t"                     \
    "addmi r9, r9, #8\n\t"          \
    "cmp r9, #0\n\t"                \
    "blt 17f\n\t"                   \
    "lsl r8, r8, r9\n\t"

/* Words for the block of the four whose number is in r6: the first element's number in it r5, less 32
 * where it is none of the block, B in r10, the word of the row's first element in r9 and, in lr, where the
 * block ends. Both draws side by side. */
#define BLOCK                     \
    "ldrd r3, r5, [sp]\n\t"       \
    "add r12, r5, r6\n\t"         \
    "lsr r12, r12, #5\n\t"        \
    "ldrd r9, r10, [r3, #32]\n\t" \
    "ldr lr, 20f\n\t"             \
    "mul r3, lr, r12\n\t"         \
    "add r9, r9, r3, lsl #1\n\t"  \
    "add lr, lr, r9\n\t"          \
    "ldr r3, 20f + 4\n\t"         \
    "eor r9, r9, r9, lsr #16\n\t" \
    "eor lr, lr, lr, lsr #16\n\t" \
    "mul r9, r9, r3\n\t"          \
    "mul lr, lr, r3\n\t"          \
    "ldr r3, 20f + 8\n\t"         \
    "eor r9, r9, r9, lsr #15\n\t" \
    "eor lr, lr, lr, lsr #15\n\t" \
    "add r9, r9, r10\n\t"         \
    "add lr, lr, r10\n\t"         \
    "mul r9, r9, r3\n\t"          \
    "mul lr, lr, r3\n\t"          \
    "eor r9, r9, r9, lsr #16\n\t" \
    "eor lr, lr, lr, lsr #16\n\t" \
    "orr r10, lr, #1\n\t"         \
    "sub r5, r5, r12, lsl #5\n\t" \
    "mla r9, r5, r10, r9\n\t"     \
    "rsb lr, r5, #32\n\t"

/* Fours of the block less their steps: x in r1 and r2, r6 the number of the first. A term has 24 bits more
 * than its code, of which the random word has the upper 20 and 0 below: with what a floor at 2^-20 would drop
 * of it the sum does not pass the next code. GE says which bytes are odd. r7 grows with every difference that
 * was held. */
#define FOURS                                  \
    "1:\n\t"                                   \
    "mla r5, r6, r10, r9\n\t"                  \
    "and r3, r11, r5, lsr #8\n\t"              \
    "add r12, r5, r10, lsl #1\n\t"             \
    "and r12, r11, r12, lsr #8\n\t"            \
    "smlawb r3, r8, r1, r3\n\t"                \
    "smlawt r1, r8, r1, r12\n\t"               \
    "pkhtb r3, r1, r3, asr #16\n\t"            \
    "add r5, r5, r10\n\t"                      \
    "and r12, r11, r5, lsr #8\n\t"             \
    "add r5, r5, r10, lsl #1\n\t"              \
    "and r5, r11, r5, lsr #8\n\t"              \
    "smlawb r12, r8, r2, r12\n\t"              \
    "smlawt r2, r8, r2, r5\n\t"                \
    "pkhtb r12, r2, r12, asr #16\n\t"          \
    "lsrs r3, r3, #8\n\t"                      \
    "sel r3, r12, r3\n\t"                      \
    "cbz r3, 2f\n\t"                           \
    "ldr r5, [r4, r6]\n\t"                     \
    "mov r12, #0x01010101\n\t"                 \
    "qsub8 r1, r5, r3\n\t"                     \
    "qadd8 r3, r1, r3\n\t"                     \
    "usada8 r7, r3, r5, r7\n\t"                \
    "qsub8 r1, r1, r12\n\t" /* -128 is -127 */ \
    "qadd8 r1, r1, r12\n\t"                    \
    "str r1, [r4, r6]\n"                       \
    "2:\n\t"                                   \
    "ldmia r0!, {r1, r2, r6}\n\t"              \
    "cmp r6, lr\n\t"                           \
    "blo 1b\n\t"

/* By registers that are named: no compiler has to find room for them all. r7, which some keep, is as it was
 * after. On the stack: `all`, the number of the row's first element, whether x counts as it is, and then where
 * the block ends: each of its fours leaves the loop, for the next one to be made of what x is. */
__attribute__((noinline)) qfw_rows_stop qfw_move_rows(qfw_outer_rows *all)
{
    register qfw_outer_rows *with __asm__("r0") = all;
    __asm__ volatile("push {r7}\n\t"
                     "mov r1, #0xFF00FF00\n\t"
                     "uadd8 r1, r1, r1\n" /* GE of bytes 1 and 3 */
                     "10:\n\t"
                     "ldrd r1, r2, [r0]\n"
                     "11:\n\t"
                     "cmp r1, r2\n\t"
                     "beq 18f\n\t"
                     "ldrsb r3, [r1], #1\n\t"
                     "cmp r3, #0\n\t"
                     "beq 11b\n\t"
                     "str r1, [r0]\n\t"
                     "add r4, r0, #8\n\t"
                     "ldmia r4, {r4, r5, r6, r7, r8, r9}\n\t"
                     "subs r4, r1, r4\n\t"
                     "muls r5, r4, r5\n\t"
                     "muls r7, r4, r7\n\t"
                     "ldr r6, [r6, r7]\n\t"
                     "cmp r6, #0x3F800000\n\t"
                     "beq 16f\n"
                     "12:\n\t" SLOPE FACTOR "push {r0, r5, r10, r11}\n\t"
                     "ldrd r4, r0, [r0, #40]\n\t"
                     "add r4, r4, r5\n\t"
                     "mvn r11, #0xFF000000\n\t"
                     "bic r11, r11, #15\n\t"
                     "movs r7, #0\n\t"
                     "ldmia r0!, {r1, r2, r6}\n"
                     "13:\n\t" BLOCK "ldr r3, [sp, #8]\n\t"
                     "cbnz r3, 14f\n" FOURS "ldr r3, [sp, #8]\n\t"
                     "cbz r3, 4f\n\t"
                     "ldr r3, [sp, #12]\n\t"
                     "cmp r6, r3\n\t"
                     "bhs 4f\n"
                     "3:\n\t"
                     "sxtb16 r1, r1, ror #8\n\t"
                     "sxtb16 r2, r2, ror #8\n\t"
                     "b 1b\n"
                     "14:\n\t"
                     "str lr, [sp, #12]\n\t"
                     "mov lr, #0\n\t"
                     "b 3b\n"
                     "4:\n\t"
                     "cmp r6, #0\n\t"
                     "bge 13b\n\t"
                     "ldr r0, [sp], #16\n\t"
                     "cmp r7, #0\n\t"
                     "beq 10b\n\t"
                     "movs r1, #1\n\t"
                     "b 19f\n"
                     "16:\n\t"
                     "ldr r7, [r0, #48]\n\t"
                     "cmp r1, r7\n\t"
                     "beq 12b\n\t"
                     "movs r1, #2\n\t"
                     "b 19f\n"
                     "17:\n\t"
                     "movs r1, #3\n\t"
                     "b 19f\n\t"
                     ".p2align 2\n"
                     "20:\n\t"
                     ".word 0x9E3779B9, 0x7FEB352D, 0x846CA68B\n"
                     "18:\n\t"
                     "movs r1, #0\n"
                     "19:\n\t"
                     "mov r0, r1\n\t"
                     "pop {r7}"
                     : "+r"(with)
                     :
                     : "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr",
                       "memory", "cc");
    return (qfw_rows_stop)(uintptr_t)with;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
