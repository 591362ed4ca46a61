/* The DSP extension of a Cortex-M, for the twins that use it. Instructions are written out, since not
 * every compiler's arm_acle.h has them. */
#ifndef QFW_KERNELS_DSP_H
#define QFW_KERNELS_DSP_H

#include "base/round.h"
#include "kernels/kernels.h"

#if defined(__ARM_FEATURE_DSP)

/* Four codes, two of 16 bits: of any alignment, in one load. */
static inline uint32_t dsp_word(const void *x)
{
    const uint8_t *b = x;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* And stored so. */
static inline void dsp_put_word(void *to, uint32_t word)
{
    uint8_t *b = to;
    b[0] = (uint8_t)word;
    b[1] = (uint8_t)(word >> 8);
    b[2] = (uint8_t)(word >> 16);
    b[3] = (uint8_t)(word >> 24);
}

/* Codes 0 and 2 of four, as two numbers of 16 bits; codes 1 and 3. */
static inline uint32_t dsp_even(uint32_t four)
{
    uint32_t two;
    __asm__("sxtb16 %0, %1" : "=r"(two) : "r"(four));
    return two;
}

static inline uint32_t dsp_odd(uint32_t four)
{
    uint32_t two;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(two) : "r"(four));
    return two;
}

/* The low halves of x and y, x's below; the high halves. */
static inline uint32_t dsp_lows(uint32_t x, uint32_t y)
{
    uint32_t two;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(two) : "r"(x), "r"(y));
    return two;
}

static inline uint32_t dsp_highs(uint32_t x, uint32_t y)
{
    uint32_t two;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(two) : "r"(y), "r"(x));
    return two;
}

/* sum + both products. */
static inline int32_t dsp_twice(uint32_t x, uint32_t y, int32_t sum)
{
    int32_t v;
    __asm__("smlad %0, %1, %2, %3" : "=r"(v) : "r"(x), "r"(y), "r"(sum));
    return v;
}

/* sum + (((x << up) * c) >> 32), the product having 64 bits. */
static inline int32_t dsp_most(int32_t x, uint32_t up, int32_t c, int32_t sum)
{
    const int32_t of = (int32_t)((uint32_t)x << up);
    int32_t v;
    __asm__("smmla %0, %1, %2, %3" : "=r"(v) : "r"(of), "r"(c), "r"(sum));
    return v;
}

/* x where it is positive, else 0. */
static inline int32_t dsp_positive(int32_t x)
{
    int32_t v;
    __asm__("usat %0, #31, %1" : "=r"(v) : "r"(x));
    return v;
}

/* Four differences, four sums of bytes, held to -128 .. 127. */
static inline uint32_t dsp_less_bytes(uint32_t x, uint32_t y)
{
    uint32_t four;
    __asm__("qsub8 %0, %1, %2" : "=r"(four) : "r"(x), "r"(y));
    return four;
}

static inline uint32_t dsp_plus_bytes(uint32_t x, uint32_t y)
{
    uint32_t four;
    __asm__("qadd8 %0, %1, %2" : "=r"(four) : "r"(x), "r"(y));
    return four;
}

/* sum + what the bytes of x and y, without signs, are apart. */
static inline uint32_t dsp_apart(uint32_t x, uint32_t y, uint32_t sum)
{
    uint32_t v;
    __asm__("usada8 %0, %1, %2, %3" : "=r"(v) : "r"(x), "r"(y), "r"(sum));
    return v;
}

static inline void dsp_clear_flag(void)
{
    __asm__ volatile("msr APSR_nzcvq, %0" : : "r"(0) : "cc");
}

static inline uint32_t dsp_flag(void)
{
    uint32_t status;
    __asm__ volatile("mrs %0, APSR" : "=r"(status) : : "cc");
    return status >> 27 & 1u;
}

/* The high bytes of two numbers of 16 bits. */
static inline uint32_t dsp_high_bytes(uint32_t x)
{
    uint32_t two;
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(two) : "r"(x));
    return two;
}

/* Four codes, -128 becoming -127: one less, held to -128, and one more. */
static inline uint32_t dsp_no_least(uint32_t four)
{
    uint32_t v;
    __asm__("qsub8 %0, %1, %2\n\tqadd8 %0, %0, %2" : "=&r"(v) : "r"(four), "r"(0x01010101u));
    return v;
}

/* ---- requantization: the rescaling of base/round.h in fewer steps ----
 *
 * With P = a mult the definition's result to the nearest is sign(a) ((|P| 2^up / 2^32 + 2^(down-1)) >>
 * down), every division a floor; that is floor((P - [a < 0] + 2^(31+s)) / 2^(32+s)), s = down - up,
 * and what is random adds r 2^(32-up), r < 2^down, in the place of 2^(31+s). P has 62 bits, so |a| <=
 * limit need not hold: where it does not, the definition's result leaves the codes, and one that is
 * larger does so too. That is proved for up >= 1; for up = 0 only -2^31 is beyond the limit, and the
 * definition is called.
 *
 * Where s < 1, a is moved up before: by 23 if it has 8 bits, by 15 if 16, else by `up` after the clamp,
 * and s grows by as much. */
typedef struct {
    int32_t mult, half; /* half = 2^(shift-1) */
    uint32_t up, shift; /* of a before, of the high word after */
} dsp_ratio;

/* Whether numbers of `width` bits can be rescaled so, without a clamp. */
static inline bool dsp_takes(uint32_t mult, uint32_t up, uint32_t down, int32_t width,
                             dsp_ratio *to)
{
    const uint32_t before = width == 8 ? 23 : width == 16 ? 15 : 0, shift = down - up + before;
    to->mult = (int32_t)mult;
    to->up = before;
    to->shift = shift;
    to->half = (int32_t)(UINT32_C(1) << ((shift - 1) & 31));
    return up > 0 && shift - 1 < 30; /* wraps where it would be below 1 */
}

/* Whether some a has a tie: a mult ends in 31 + shift zeros then, of which a, moved up or not, brings 30 at
 * most. */
static inline bool dsp_ties(const dsp_ratio *r)
{
    return ((uint32_t)r->mult & ((UINT32_C(2) << r->shift) - 1)) == 0;
}

/* Of x = a << up. */
static inline int32_t dsp_nearest(int32_t x, int32_t mult, int32_t half, uint32_t shift)
{
    int32_t low = x >> 31, high = half + low;
    __asm__("smlal %0, %1, %2, %3" : "+r"(low), "+r"(high) : "r"(x), "r"(mult));
    return high >> shift;
}

/* Assembly: four terms of four rows, which lie as a block of a panel at r1, by those of a column in r0 and
 * lr, as `meets` loads them; the sums are r9 to r12, and r4, r5, r6 and r8 are used. */
#define DSP_FOUR_TERMS(meets)               \
    meets "ldmia r1!, {r4, r5, r6, r8}\n\t" \
          "smlad r9, r4, r0, r9\n\t"        \
          "smlad r10, r6, r0, r10\n\t"      \
          "smlad r9, r5, lr, r9\n\t"        \
          "smlad r10, r8, lr, r10\n\t"      \
          "ldmia r1!, {r4, r5, r6, r8}\n\t" \
          "smlad r11, r4, r0, r11\n\t"      \
          "smlad r12, r6, r0, r12\n\t"      \
          "smlad r11, r5, lr, r11\n\t"      \
          "smlad r12, r8, lr, r12\n\t"

#endif
#endif
