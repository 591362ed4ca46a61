/* Rows that are whole blocks of random words, which are made where they are used, with the DSP extension of
 * a Cortex-M. */
#ifndef QFW_KERNELS_WHOLE_DSP_H
#define QFW_KERNELS_WHOLE_DSP_H

#include "kernels/both_dsp.h"

#if defined(__ARM_FEATURE_DSP)

QFW_STATIC_ASSERT(sizeof(void *) > 4 || sizeof(qfw_blocks) == 92, as_the_instructions_have_it);

/* The row at r12 goes to the stack: 20 words. */
#define PUSH_WHOLE                                       \
    "add r12, r12, #80\n\t"                              \
    "ldmdb r12!, {r4, r5, r6, r7, r8, r9, r10, r11}\n\t" \
    "push {r4, r5, r6, r7, r8, r9, r10, r11}\n\t"        \
    "ldmdb r12!, {r4, r5, r6, r7}\n\t"                   \
    "push {r4, r5, r6, r7}\n\t"                          \
    "ldmdb r12!, {r4, r5, r6, r7, r8, r9, r10, r11}\n\t" \
    "push {r4, r5, r6, r7, r8, r9, r10, r11}\n"

#define DRAW(to, x, k1, mix, mix_2)        \
    "eor " x ", " x ", " x ", lsr #16\n\t" \
    "mul " x ", " x ", " mix "\n\t"        \
    "eor " x ", " x ", " x ", lsr #15\n\t" \
    "add " x ", " x ", " k1 "\n\t"         \
    "mul " x ", " x ", " mix_2 "\n\t"      \
    "eor " to ", " x ", " x ", lsr #16\n\t"

/* The words of a block, and its end: k0 and k1 become u and step, k1_v and weyl those of the state. The list
 * is of all registers but the last three, which are used too. */
#define DRAW_BLOCK(list, k0, k1, k0_v, k1_v, weyl, mix, mix_2, other, other_v, next) \
    "add " next ", sp, #48\n\t"                                                      \
    "ldmia " next ", {" list "}\n\t"                                                 \
    "add " other ", " k0 ", " weyl "\n\t"                                            \
    "add " other_v ", " k0_v ", " weyl "\n\t"                                        \
    "add " next ", " other ", " weyl "\n\t"                                          \
    "str " next ", [sp, #48]\n\t"                                                    \
    "add " next ", " other_v ", " weyl "\n\t"                                        \
    "str " next ", [sp, #56]\n\t"                                                    \
    "add " next ", r1, #32\n\t"                                                      \
    "str " next ", [sp, #32]\n\t" DRAW(k0, k0, k1, mix, mix_2)                       \
        DRAW(k1, other, k1, mix, mix_2) "orr " k1 ", " k1 ", #1\n\t" DRAW(           \
            weyl, other_v, k1_v, mix, mix_2) "orr " weyl ", " weyl                   \
                                             ", #1\n\t" DRAW(k1_v, k0_v, k1_v, mix, mix_2)

/* ---- by an error ---- */

/* Four codes as BOTH(state_up) moves them, r1 being at the state's, r0 what the parameter's are beyond it;
 * those of both, if one is not 0. Labels begin with `n`. */
#define UP_LOAD(n)               \
    "ldr r4, [r2], #4\n\t"       \
    "ldr r5, [r1]\n\t"           \
    "orrs r6, r4, r5\n\t"        \
    "beq " n "7f\n\t"            \
    "and r6, r3, r5, lsl #8\n\t" \
    "and r5, r3, r5\n\t"

/* Their terms: r9 is multiplied by. */
#define UP_TERMS(even, odd)                                              \
    even "smlawb r10, r9, r7, r10\n\t"                                   \
         "smlawt r12, r9, r7, r12\n\t" odd "smlawb r11, r9, r7, r11\n\t" \
         "smlawt r8, r9, r7, r8\n\t"

#define UP_PARAM(n)                                                                           \
    "ldmia sp, {r7, r8, r9}\n\t" FOUR_WORDS("#4") FOUR_STATES                                 \
        "ldr r9, [sp, #12]\n\t" UP_TERMS(EVEN_BYTES, ODD_BYTES) PAIRS_OF_STEPS BYTES_OF_STEPS \
        "beq " n "4f\n\t"                                                                     \
        "ldr r9, [r1, r0]\n\t"                                                                \
        "qsub8 r11, r9, r10\n\t"                                                              \
        "qadd8 r10, r11, r10\n\t"                                                             \
        "cmp r10, r9\n\t"                                                                     \
        "bne " n "8f\n" n "3:\n\t"                                                            \
        "qsub8 r11, r11, lr\n\t" /* -128 becomes -127 */                                      \
        "qadd8 r11, r11, lr\n\t"                                                              \
        "str r11, [r1, r0]\n" n "4:\n\t"

#define UP_STATE(n, hold, hold_least)                                 \
    "ldrd r8, r9, [sp, #16]\n\t"                                      \
    "ldr r7, [sp, #24]\n\t" FOUR_WORDS("#16") FOUR_STATES             \
        "ldr r9, [sp, #28]\n\t" UP_TERMS(EVEN_BYTES_UP, ODD_BYTES_UP) \
            PAIRS_OF_STEPS hold BYTES_OF_STEPS hold_least "str r10, [r1], #4\n" n "6:\n\t"

#define HOLD "ssat16 r10, #12, r10\n\tssat16 r11, #12, r11\n\t"
#define HOLD_LEAST "qsub8 r10, r10, lr\n\tqadd8 r10, r10, lr\n\t"

/* Codes that stay; codes that are held. */
#define UP_APART(n)                \
    n "7:\n\t"                     \
      "ldrd r8, r9, [sp, #4]\n\t"  \
      "add r8, r8, r9, lsl #2\n\t" \
      "str r8, [sp, #4]\n\t"       \
      "ldrd r8, r9, [sp, #16]\n\t" \
      "add r8, r8, r9, lsl #2\n\t" \
      "str r8, [sp, #16]\n\t"      \
      "add r1, r1, #4\n\t"         \
      "b " n "6b\n" n "8:\n\t"     \
      "str lr, [sp, #36]\n\t"      \
      "b " n "3b\n"

#define UP_BLOCK                                                                                \
    DRAW_BLOCK("r4, r5, r6, r7, r8, r9, r10", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", \
               "lr", "r12")                                                                     \
    "strd r4, r5, [sp, #4]\n\t"                                                                 \
    "strd r7, r8, [sp, #16]\n\t"                                                                \
    "mov lr, #0x01010101\n"

#define UP_FOURS(hold, least) \
    UP_LOAD("1")              \
    UP_PARAM("1") UP_STATE("1", hold, least) UP_LOAD("2") UP_PARAM("2") UP_STATE("2", hold, least)

#define UP_ENDS(n_block, n_fours) \
    "ldr r9, [sp, #32]\n\t"       \
    "cmp r1, r9\n\t"              \
    "bne " n_fours "b\n\t"        \
    "ldr r9, [sp, #44]\n\t"       \
    "cmp r1, r9\n\t"              \
    "bne " n_block "b\n\t"

#define UP(name, hold, least)                                                                    \
    static __attribute__((noinline)) uint32_t name(int8_t *m, int8_t *v, const int8_t *x,        \
                                                   const qfw_blocks *w)                          \
    {                                                                                            \
        register ptrdiff_t beyond __asm__("r0") = (ptrdiff_t)((uintptr_t)m - (uintptr_t)v);      \
        register int8_t *own __asm__("r1") = v;                                                  \
        register const int8_t *from __asm__("r2") = x;                                           \
        register uint32_t upper __asm__("r3") = 0xFF00FF00u;                                     \
        register const qfw_blocks *all __asm__("r12") = w;                                       \
        __asm__ volatile("push {r7}\n\t" PUSH_WHOLE "1:\n\t" UP_BLOCK                            \
                         "2:\n\t" UP_FOURS(hold, least) UP_ENDS("1", "2") "b 3f\n" UP_APART("1") \
                             UP_APART("2") "3:\n\t"                                              \
                                           "ldr r12, [sp, #36]\n\t"                              \
                                           "add sp, sp, #80\n\t"                                 \
                                           "pop {r7}"                                            \
                         : "+r"(own), "+r"(from), "+r"(all)                                      \
                         : "r"(beyond), "r"(upper)                                               \
                         : "r4", "r5", "r6", "r8", "r9", "r10", "r11", "lr", "memory", "cc");    \
        return (uint32_t)(uintptr_t)all;                                                         \
    }

/* A state that may leave its codes, and one that cannot. Odd: a code of the parameter was held; the state's
 * sets the flag. */
UP(up_held, HOLD, HOLD_LEAST)
UP(up_free, "", "")

/* ---- without one ---- */

/* A code, which is r7, if it is not 0. The last bits of its random words are those of u and u_v, found by
 * `next` and `next_v`. r10 v + word is within 2^28, and its step a code. What is held sets the flag. */
#define ALONE_CODE(n, next, u, next_v, u_v, term, at, at_v)                        \
    "cbz r7, " n "5f\n\t" next term(u) "asrs r11, r11, #20\n\t"                    \
                                       "beq " n "6f\n\t"                           \
                                       "ldrsb lr, [r0, " at "]\n\t"                \
                                       "sub r11, lr, r11\n\t"                      \
                                       "ssat lr, #8, r11\n\t"                      \
                                       "cmn lr, #128\n\t"                          \
                                       "beq " n "8f\n" n "7:\n\t"                  \
                                       "strb lr, [r0, " at "]\n" n "6:\n\t" next_v \
                                       "mul r11, r7, r10\n\t"                      \
                                       "add r11, r11, " u_v ", lsr #12\n\t"        \
                                       "asr r11, r11, #20\n\t"                     \
                                       "strb r11, [r1, " at_v "]\n" n "5:\n\t"

/* -128 becomes -127. */
#define ALONE_APART(n) n "8:\n\tmvn lr, #126\n\tb " n "7b\n"

/* The term in the parameter: r9 v, or (r9 v) >> 16. */
#define TERM_UP(u) "mul r11, r7, r9\n\tadd r11, r11, " u ", lsr #12\n\t"
#define TERM_LOW(u) "lsr r11, " u ", #12\n\tsmlawb r11, r9, r7, r11\n\t"

#define ALONE_0(n, term, at) \
    "sbfx r7, r4, #0, #8\n\t" ALONE_CODE(n "1", "", "r2", "", "r5", term, at, "#-4")
#define ALONE_1(n, term, at)                                                                      \
    "sbfx r7, r4, #8, #8\n\t" ALONE_CODE(n "2", "add lr, r2, r3\n\t", "lr", "add lr, r5, r6\n\t", \
                                         "lr", term, at, "#-3")
#define ALONE_2(n, term, at)                                                         \
    "sbfx r7, r4, #16, #8\n\t" ALONE_CODE(n "3", "add lr, r2, r3, lsl #1\n\t", "lr", \
                                          "add lr, r5, r6, lsl #1\n\t", "lr", term, at, "#-2")
#define ALONE_3(n, term, at)                                                                   \
    "asr r7, r4, #24\n\t" ALONE_CODE(n "4", "add lr, r2, r12\n\t", "lr", "add lr, r5, r8\n\t", \
                                     "lr", term, at, "#-1")

#define ALONE_FOUR(n, term, at_0, at_1, at_2, at_3)                               \
    "ldr r4, [r1], #4\n\t"                                                        \
    "cbnz r4, 3f\n\t"                                                             \
    "add r2, r2, r3, lsl #2\n\t"                                                  \
    "add r5, r5, r6, lsl #2\n\t"                                                  \
    "b 4f\n"                                                                      \
    "3:\n\t" ALONE_0(n, term, at_0) ALONE_1(n, term, at_1) ALONE_2(n, term, at_2) \
        ALONE_3(n, term, at_3) "add r2, r2, r3, lsl #2\n\t"                       \
                               "add r5, r5, r6, lsl #2\n"                         \
                               "4:\n\t"

#define ALONE_FOUR_APART(n) \
    ALONE_APART(n "1") ALONE_APART(n "2") ALONE_APART(n "3") ALONE_APART(n "4")

#define ALONE_BLOCK                                                                           \
    DRAW_BLOCK("r2, r3, r4, r5, r6, r7, r8", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r11", \
               "lr", "r12")                                                                   \
    "add r12, r3, r3, lsl #1\n\t"                                                             \
    "add r8, r6, r6, lsl #1\n"

#define ALONE_FOURS(term)                         \
    ALONE_FOUR("1", term, "#0", "#1", "#2", "#3") \
    ALONE_FOUR("2", term, "#4", "#5", "#6", "#7")

#define ALONE_ENDS(n_block, n_fours) \
    "ldr r11, [sp, #32]\n\t"         \
    "add r0, r0, #8\n\t"             \
    "cmp r1, r11\n\t"                \
    "bne " n_fours "b\n\t"           \
    "ldr r11, [sp, #44]\n\t"         \
    "cmp r1, r11\n\t"                \
    "bne " n_block "b\n\t"

/* A row without an error, code by code: many of its state are 0. That shrinks, to 127/128 at least. Three
 * steps of a word are r12, of the state's r8. */
#define ALONE(name, term)                                                                          \
    static __attribute__((noinline)) void name(int8_t *m, int8_t *v, const qfw_blocks *w)          \
    {                                                                                              \
        register int8_t *to __asm__("r0") = m;                                                     \
        register int8_t *own __asm__("r1") = v;                                                    \
        register const qfw_blocks *all __asm__("r12") = w;                                         \
        __asm__ volatile("push {r7}\n\t" PUSH_WHOLE "ldr r9, [sp]\n\t"                             \
                         "ldr r10, [sp, #40]\n"                                                    \
                         "1:\n\t" ALONE_BLOCK "2:\n\t" ALONE_FOURS(term)                           \
                             ALONE_ENDS("1", "2") "b 9f\n" ALONE_FOUR_APART("1")                   \
                                 ALONE_FOUR_APART("2") "9:\n\t"                                    \
                                                       "add sp, sp, #80\n\t"                       \
                                                       "pop {r7}"                                  \
                         : "+r"(to), "+r"(own), "+r"(all)                                          \
                         :                                                                         \
                         : "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "lr", "memory", \
                           "cc");                                                                  \
    }

ALONE(alone_up, TERM_UP)
ALONE(alone_low, TERM_LOW)

#endif
#endif
