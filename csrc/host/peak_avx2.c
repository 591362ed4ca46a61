/* Multiply-accumulates that wait for nothing but the sum before, by AVX2. */
#include "host/peak.h"

#include <immintrin.h>

/* The compiler must take the operand for a new one: no product is made once for all. */
static inline void renew(__m256i *x)
{
    __asm__ volatile("" : "+x"(*x));
}

enum { ADDED = 8 }; /* sums of integers: their addition takes one cycle, and registers are few */

/* Pairs of int16. Sums wrap, as vector instructions do. */
static void of_words(uint64_t rounds)
{
    const __m256i b = _mm256_set1_epi16(5);
    __m256i a = _mm256_set1_epi16(3), sum[ADDED];
    for (int i = 0; i < ADDED; i++) {
        sum[i] = _mm256_setzero_si256();
    }
    for (uint64_t n = 0; n < rounds; n++) {
        for (int i = 0; i < ADDED; i++) {
            renew(&a);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(a, b));
        }
    }
    for (int i = 0; i < ADDED; i++) {
        __asm__ volatile("" : : "x"(sum[i]));
    }
}

/* Floats, with the instruction that rounds once. */
static void of_floats(uint64_t rounds)
{
    const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    __m256 sum[QFW_PEAK_SUMS];
    for (int i = 0; i < QFW_PEAK_SUMS; i++) {
        sum[i] = _mm256_setzero_ps();
    }
    for (uint64_t n = 0; n < rounds; n++) {
        for (int i = 0; i < QFW_PEAK_SUMS; i++) {
            sum[i] = _mm256_fmadd_ps(a, b, sum[i]);
        }
    }
    for (int i = 0; i < QFW_PEAK_SUMS; i++) {
        __asm__ volatile("" : : "x"(sum[i]));
    }
}

/* int8 is exact as int16 only. */
uint64_t qfw_peak_avx2(uint32_t width, uint64_t rounds)
{
    const bool floats = width == 32;
    (floats ? of_floats : of_words)(rounds);
    return rounds * (floats ? 8 * QFW_PEAK_SUMS : 16 * ADDED);
}
