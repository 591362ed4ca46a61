/* Biases in steps of accumulators, eight at a time: seeds_avx2.c says why. */
#include "kernels/avx2.h"

/* Whether eight quotients are below 2^30 - 1 and none is next to where its rounding changes. */
QFW_ALWAYS_INLINE bool seeds_8(__m256i m, __m512d s, __m256 sigma, int32_t *seed)
{
    const __m512d size = _mm512_cvtepi32_pd(_mm256_abs_epi32(m)), half = _mm512_set1_pd(0.5);
    const __m512d quotient = _mm512_div_pd(_mm512_mul_pd(size, s), _mm512_cvtps_pd(sigma));
    const __m512d sum = _mm512_add_pd(quotient, half);
    const __m512d whole = _mm512_roundscale_pd(sum, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512d above = _mm512_sub_pd(sum, whole), near = _mm512_set1_pd(0x1p-20);
    const __m512d below = _mm512_sub_pd(_mm512_set1_pd(1.0), above);
    const __mmask8 sure =
        _mm512_cmp_pd_mask(above, near, _CMP_GT_OQ) & _mm512_cmp_pd_mask(below, near, _CMP_GT_OQ) &
        _mm512_cmp_pd_mask(sum, _mm512_set1_pd((double)((1 << 30) - 1)), _CMP_LT_OQ);
    const __m256i found = _mm512_cvttpd_epi32(whole);
    _mm256_storeu_si256((__m256i *)(void *)seed, _mm256_sign_epi32(found, m));
    return sure == 0xFF;
}

void qfw_seeds_s32_avx512(const int32_t *m, float s, size_t n, float *sigma, int32_t *seed,
                          uint8_t *shift)
{
    const __m512d scale = _mm512_set1_pd((double)s);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        const __m256i eight = _mm256_loadu_si256((const __m256i *)(const void *)(m + i));
        if (seeds_8(eight, scale, _mm256_loadu_ps(sigma + i), seed + i)) {
            memset(shift + i, 0, 8);
        } else {
            qfw_seeds_s32_avx2(m + i, s, 8, sigma + i, seed + i, shift + i);
        }
    }
    qfw_seeds_s32_avx2(m + i, s, n - i, sigma + i, seed + i, shift + i);
}
