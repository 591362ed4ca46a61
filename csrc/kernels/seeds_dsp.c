/* Scales and seeds of columns, with a row of sums or without, on a Cortex-M with the DSP extension. */
#include "kernels/dsp.h"
#include "kernels/seeds.h"

#if defined(__ARM_FEATURE_DSP)

/* Offsets 0, 4, ... in the instructions below. */
typedef struct {
    const float *by;
    const int16_t *m;
    int32_t *out;
    float *sigma;
    uint32_t least, times, mant, exp; /* of seeds.c */
    ptrdiff_t sizes;                  /* bytes from a sum to its size */
    uint32_t keep;                    /* all bits where negative sums become 0, else none */
    const int32_t *end;
} columns;

/* Columns from the first one on, as `seeded` of seeds.c does them: qfw_soft_times, the seed in two digits,
 * the sum and its size. Returns that before which it stops: at the end, or one for which it does not serve;
 * all->exp > 252 says that it has no sigma yet. By registers that are named: r0 .. r3 point to columns, r8 ..
 * r11 have what they share. */
static __attribute__((noinline)) int32_t *run_columns(columns *all)
{
    register columns *with __asm__("r0") = all;
    register int32_t *out __asm__("r2");
    __asm__ volatile("push {r0}\n\t"
                     "ldrd r4, r5, [r0, #32]\n\t"
                     "ldr r6, [r0, #40]\n\t"
                     "push {r4, r5, r6}\n\t"
                     "ldmia r0, {r0, r1, r2, r3, r8, r9, r10, r11}\n"
                     "1:\n\t"
                     "ldr r4, [r0], #4\n\t"
                     "lsl r5, r4, #8\n\t"
                     "orr r5, r5, #0x80000000\n\t"
                     "umull r5, r6, r5, r10\n\t"
                     "add r4, r11, r4, lsr #23\n\t"
                     "lsrs r12, r6, #24\n\t"
                     "beq 2f\n\t"
                     "lsrs r6, r6, #1\n\t"
                     "rrx r5, r5\n\t"
                     "adds r4, r4, #1\n"
                     "2:\n\t"
                     "cmp r4, #252\n\t"
                     "bhi 5f\n\t"
                     "lsrs r12, r6, #1\n\t"
                     "mvn r12, #0x80000000\n\t"
                     "adcs r5, r5, r12\n\t"
                     "adc r4, r6, r4, lsl #23\n\t"
                     "str r4, [r3], #4\n\t"
                     "ldrsh r5, [r1]\n\t"
                     "sub r12, r8, r4, lsr #23\n\t"
                     "eor r6, r5, r5, asr #31\n\t"
                     "sub r6, r6, r5, asr #31\n\t"
                     "ubfx r4, r4, #0, #23\n\t"
                     "orr r4, r4, #0x800000\n\t"
                     "cmp r12, #8\n\t"
                     "bls 3f\n\t"
                     "sub r12, r12, #8\n\t"
                     "cmp r12, #16\n\t"
                     "bhi 4f\n\t"
                     "lsl r6, r6, r12\n\t"
                     "mov r12, #8\n\t"
                     "lsrs r5, r6, #16\n\t"
                     "bne 4f\n"
                     "3:\n\t"
                     "lsl r12, r9, r12\n\t"
                     "lsl lr, r4, #7\n\t"
                     "movs r5, #0\n\t"
                     "umlal lr, r5, r6, r12\n\t"
                     "lsr r6, lr, #16\n\t"
                     "orr r6, r6, r5, lsl #16\n\t"
                     "udiv r12, r6, r4\n\t"
                     "mls r6, r4, r12, r6\n\t"
                     "ubfx lr, lr, #8, #8\n\t"
                     "orr r6, lr, r6, lsl #8\n\t"
                     "udiv r6, r6, r4\n\t"
                     "ldrsh r5, [r1], #2\n\t"
                     "add r6, r6, r12, lsl #8\n\t"
                     "cmp r5, #0\n\t"
                     "it lt\n\t"
                     "rsblt r6, r6, #0\n\t"
                     "ldr r4, [r2]\n\t"
                     "add r6, r6, r4\n\t"
                     "ldr r4, [sp, #4]\n\t"
                     "and r4, r4, r6, asr #31\n\t"
                     "bic r6, r6, r4\n\t"
                     "ldr r5, [sp]\n\t"
                     "eor r4, r6, r6, asr #31\n\t"
                     "sub r4, r4, r6, asr #31\n\t"
                     "str r4, [r2, r5]\n\t"
                     "str r6, [r2], #4\n\t"
                     "ldr r4, [sp, #8]\n\t"
                     "cmp r2, r4\n\t"
                     "bne 1b\n"
                     "4:\n\t"
                     "movs r4, #0\n"
                     "5:\n\t"
                     "add sp, sp, #12\n\t"
                     "pop {r0}\n\t"
                     "str r4, [r0, #28]"
                     : "+r"(with), "=r"(out)
                     :
                     : "r1", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr",
                       "memory", "cc");
    return out;
}

size_t qfw_seeded_until(const qfw_seeded *c, size_t i, bool *has_sigma)
{
    const uint32_t unit = qfw_bits_f32(c->s);
    const qfw_soft_factor factor = qfw_soft_factor_of(c->a);
    int32_t *const out = c->row != NULL ? c->acc : c->seed;
    const uint8_t *sizes = c->row != NULL ? (const uint8_t *)c->row->absmax : (const uint8_t *)out;
    columns all = {c->by + i,
                   c->m + i,
                   out + i,
                   c->sigma + i,
                   (unit >> 23) + 8,
                   qfw_mantissa(unit),
                   factor.mant,
                   factor.exp,
                   sizes - (const uint8_t *)out,
                   c->row != NULL && c->row->relu ? UINT32_MAX : 0,
                   out + c->n};
    if (i < c->n) {
        i = (size_t)(run_columns(&all) - out);
        *has_sigma = all.exp <= 252;
    }
    return i;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
