/* Instructions of a Cortex-M's DSP extension. */
#ifndef QFW_KERNELS_DSP_H
#define QFW_KERNELS_DSP_H

#include "base/fixed.h"

#if defined(__ARM_FEATURE_DSP)

/* Four codes of any alignment. */
static inline uint32_t dsp_four(const int8_t *x)
{
    const uint8_t *b = (const uint8_t *)x;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
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

/* sum + both products. */
static inline int32_t dsp_twice(uint32_t x, uint32_t y, int32_t sum)
{
    int32_t v;
    __asm__("smlad %0, %1, %2, %3" : "=r"(v) : "r"(x), "r"(y), "r"(sum));
    return v;
}

/* sum + ((c * low half of x) >> 16), the product having 48 bits; and of the high half. */
static inline int32_t dsp_low(int32_t c, uint32_t x, int32_t sum)
{
    int32_t v;
    __asm__("smlawb %0, %1, %2, %3" : "=r"(v) : "r"(c), "r"(x), "r"(sum));
    return v;
}

static inline int32_t dsp_high(int32_t c, uint32_t x, int32_t sum)
{
    int32_t v;
    __asm__("smlawt %0, %1, %2, %3" : "=r"(v) : "r"(c), "r"(x), "r"(sum));
    return v;
}

/* The high half of x, and bits 20 .. 31 of y as the low one. */
static inline uint32_t dsp_pack_tops(uint32_t x, int32_t y)
{
    uint32_t two;
    __asm__("pkhtb %0, %1, %2, asr #20" : "=r"(two) : "r"(x), "r"(y));
    return two;
}

/* Two differences of 16 bits. */
static inline uint32_t dsp_less(uint32_t x, uint32_t y)
{
    uint32_t two;
    __asm__("ssub16 %0, %1, %2" : "=r"(two) : "r"(x), "r"(y));
    return two;
}

/* Two numbers held to -128 .. 127, and a flag that stays set once one was outside. */
static inline uint32_t dsp_held(uint32_t x)
{
    uint32_t two;
    __asm__ volatile("ssat16 %0, #8, %1" : "=r"(two) : "r"(x) : "cc");
    return two;
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

/* The low bytes of two numbers of 16 bits. */
static inline uint32_t dsp_low_bytes(uint32_t x)
{
    uint32_t two;
    __asm__("uxtb16 %0, %1" : "=r"(two) : "r"(x));
    return two;
}

/* Four codes, -128 becoming -127: one less, held to -128, and one more. */
static inline uint32_t dsp_no_least(uint32_t four)
{
    uint32_t v;
    __asm__("qsub8 %0, %1, %2\n\tqadd8 %0, %0, %2" : "=&r"(v) : "r"(four), "r"(0x01010101u));
    return v;
}

#endif
#endif
