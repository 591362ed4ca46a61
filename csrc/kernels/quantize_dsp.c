/* Floats to int8 on a Cortex-M with the DSP extension, four at a time. */
#include "kernels/at_once.h"
#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

#define EACH(what) what("%[x0]") what("%[x1]") what("%[x2]") what("%[x3]")

#define LARGER(x)                    \
    "cmp %[most], " x ", lsl #1\n\t" \
    "it lo\n\t"                      \
    "lsllo %[most], " x ", #1\n\t"

size_t qfw_largest_of_fours(const float *x, size_t n, uint32_t *twice)
{
    register uint32_t x0 __asm__("r4"), x1 __asm__("r5"), x2 __asm__("r6"), x3 __asm__("r8");
    const float *end = x + (n & ~(size_t)3);
    uint32_t most = *twice;
    if (x != end) {
        __asm__ volatile(
            "1:\n\t"
            "ldmia %[x]!, {%[x0], %[x1], %[x2], %[x3]}\n\t" EACH(LARGER) "cmp %[x], %[end]\n\t"
                                                                         "bne 1b"
            : [x] "+r"(x), [most] "+r"(most), [x0] "=&r"(x0), [x1] "=&r"(x1), [x2] "=&r"(x2),
              [x3] "=&r"(x3)
            : [end] "r"(end)
            : "memory", "cc");
    }
    *twice = most;
    return n & ~(size_t)3;
}

/* With the mantissa of |x| at the top of a word, moved down by `down` less its exponent field: N, then
 * floor((N + mant) / (2 mant)) and the sign. */
#define QUOTIENT(x)                         \
    "lsls %[t], " x ", #1\n\t"              \
    "sub " x ", %[down], %[t], lsr #24\n\t" \
    "orr %[t], %[top], %[t], lsl #7\n\t"    \
    "lsr %[t], %[t], " x "\n\t"             \
    "add %[t], %[t], %[mant]\n\t"           \
    "udiv " x ", %[t], %[two]\n\t"          \
    "it cs\n\t"                             \
    "rsbcs " x ", " x ", #0\n\t"

/* With s = mant 2^x and N = floor(2 |x| / 2^x), |x| / s half away is floor((N + mant) / (2 mant)), as what
 * N lacks does not reach the next integer. N < 255 mant, so the sum is below 2^32. From an exponent field
 * of 0, which stands for less than s / 2, N is below 2^23 and the quotient 0. A word moved down by 32 .. 255
 * is 0. */
size_t qfw_floats_within(const float *x, size_t n, float s, int8_t *codes)
{
    register uint32_t x0 __asm__("r4"), x1 __asm__("r5"), x2 __asm__("r6"), x3 __asm__("r8");
    const float *end = x + (n & ~(size_t)3);
    const uint32_t field = qfw_bits_f32(s) >> 23, mant = qfw_mantissa(qfw_bits_f32(s));
    uint32_t t;
    if (field < 2 || field > 248) {
        return 0;
    }
    if (x != end) {
        __asm__ volatile("1:\n\t"
                         "ldmia %[x]!, {%[x0], %[x1], %[x2], %[x3]}\n\t" EACH(
                             QUOTIENT) "bfi %[x0], %[x1], #8, #8\n\t"
                                       "bfi %[x0], %[x2], #16, #8\n\t"
                                       "bfi %[x0], %[x3], #24, #8\n\t"
                                       "cmp %[x], %[end]\n\t"
                                       "str %[x0], [%[codes]], #4\n\t"
                                       "bne 1b"
                         : [x] "+r"(x), [codes] "+r"(codes), [x0] "=&r"(x0), [x1] "=&r"(x1),
                           [x2] "=&r"(x2), [x3] "=&r"(x3), [t] "=&r"(t)
                         : [end] "r"(end), [down] "r"(field + 7), [top] "r"(UINT32_C(1) << 31),
                           [mant] "r"(mant), [two] "r"(2 * mant)
                         : "memory", "cc");
    }
    return n & ~(size_t)3;
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
