/* Biases in steps of accumulators, four at a time. */
#include "kernels/avx2.h"

/* Whether four quotients are below 2^30 - 1 and none is next to where its rounding changes.
 *
 * |m| * s is exact in a double, the quotient within 2^-53 of itself, so within 2^-23, and so is its
 * sum with 1/2: where that is further from an integer its floor is the quotient half away. */
QFW_ALWAYS_INLINE bool seeds_4(__m128i m, __m256d s, __m128 sigma, int32_t *seed)
{
    const __m256d size = _mm256_cvtepi32_pd(_mm_abs_epi32(m)), half = _mm256_set1_pd(0.5);
    const __m256d quotient = _mm256_div_pd(_mm256_mul_pd(size, s), _mm256_cvtps_pd(sigma));
    const __m256d sum = _mm256_add_pd(quotient, half), whole = _mm256_floor_pd(sum);
    const __m256d above = _mm256_sub_pd(sum, whole), near = _mm256_set1_pd(0x1p-20);
    const __m256d below = _mm256_sub_pd(_mm256_set1_pd(1.0), above);
    const __m256d sure = _mm256_and_pd(_mm256_cmp_pd(above, near, _CMP_GT_OQ),
                                       _mm256_cmp_pd(below, near, _CMP_GT_OQ));
    const __m256d small = _mm256_cmp_pd(sum, _mm256_set1_pd((double)((1 << 30) - 1)), _CMP_LT_OQ);
    const __m128i found = _mm256_cvttpd_epi32(whole);
    _mm_storeu_si128((__m128i *)(void *)seed, _mm_sign_epi32(found, m));
    return _mm256_movemask_pd(_mm256_and_pd(sure, small)) == 15;
}

void qfw_seeds_s32_avx2(const int32_t *m, float s, size_t n, float *sigma, int32_t *seed,
                        uint8_t *shift)
{
    const __m256d scale = _mm256_set1_pd((double)s);
    size_t i = 0;
    for (; n - i >= 4; i += 4) {
        const __m128i four = _mm_loadu_si128((const __m128i *)(const void *)(m + i));
        if (seeds_4(four, scale, _mm_loadu_ps(sigma + i), seed + i)) {
            memset(shift + i, 0, 4);
        } else {
            qfw_seeds_s32_scalar(m + i, s, 4, sigma + i, seed + i, shift + i);
        }
    }
    qfw_seeds_s32_scalar(m + i, s, n - i, sigma + i, seed + i, shift + i);
}
