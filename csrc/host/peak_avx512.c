/* Multiply-accumulates that wait for nothing but the sum before, by AVX-512, with VNNI where it is. */
#include "host/peak.h"

#include <immintrin.h>

#define VNNI __attribute__((target("avx512vnni")))

/* The compiler must take the operand for a new one: no product is made once for all. */
static inline void renew(__m512i *x)
{
    __asm__ volatile("" : "+x"(*x));
}

static void clear(__m512i *sum)
{
    for (int i = 0; i < QFW_PEAK_SUMS; i++) {
        sum[i] = _mm512_setzero_si512();
    }
}

static void use(const __m512i *sum)
{
    for (int i = 0; i < QFW_PEAK_SUMS; i++) {
        __asm__ volatile("" : : "x"(sum[i]));
    }
}

/* Pairs of int16. Sums wrap, as vector instructions do. */
static void of_words(uint64_t rounds)
{
    const __m512i b = _mm512_set1_epi16(5);
    __m512i a = _mm512_set1_epi16(3), sum[QFW_PEAK_SUMS];
    clear(sum);
    for (uint64_t n = 0; n < rounds; n++) {
        for (int i = 0; i < QFW_PEAK_SUMS; i++) {
            renew(&a);
            sum[i] = _mm512_add_epi32(sum[i], _mm512_madd_epi16(a, b));
        }
    }
    use(sum);
}

VNNI static void of_pairs(uint64_t rounds)
{
    const __m512i a = _mm512_set1_epi16(3), b = _mm512_set1_epi16(5);
    __m512i sum[QFW_PEAK_SUMS];
    clear(sum);
    for (uint64_t n = 0; n < rounds; n++) {
        for (int i = 0; i < QFW_PEAK_SUMS; i++) {
            sum[i] = _mm512_dpwssd_epi32(sum[i], a, b);
        }
    }
    use(sum);
}

/* Four bytes at a time, one side unsigned. */
VNNI static void of_bytes(uint64_t rounds)
{
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    __m512i sum[QFW_PEAK_SUMS];
    clear(sum);
    for (uint64_t n = 0; n < rounds; n++) {
        for (int i = 0; i < QFW_PEAK_SUMS; i++) {
            sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
        }
    }
    use(sum);
}

/* Floats, with the instruction that rounds once. */
static void of_floats(uint64_t rounds)
{
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    __m512 sum[QFW_PEAK_SUMS];
    for (int i = 0; i < QFW_PEAK_SUMS; i++) {
        sum[i] = _mm512_setzero_ps();
    }
    for (uint64_t n = 0; n < rounds; n++) {
        for (int i = 0; i < QFW_PEAK_SUMS; i++) {
            sum[i] = _mm512_fmadd_ps(a, b, sum[i]);
        }
    }
    for (int i = 0; i < QFW_PEAK_SUMS; i++) {
        __asm__ volatile("" : : "x"(sum[i]));
    }
}

uint64_t qfw_peak_avx512(uint32_t width, uint64_t rounds)
{
    const bool vnni = __builtin_cpu_supports("avx512vnni");
    uint64_t lanes = 32;
    if (width == 32) {
        of_floats(rounds);
        lanes = 16;
    } else if (!vnni) { /* int8 is exact as int16 only */
        of_words(rounds);
    } else if (width == 16) {
        of_pairs(rounds);
    } else {
        of_bytes(rounds);
        lanes = 64;
    }
    return rounds * QFW_PEAK_SUMS * lanes;
}
