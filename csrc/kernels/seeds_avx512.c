/* Biases in steps of accumulators, eight at a time: seeds_avx2.c says why. */
#include "kernels/avx2.h"

/* The lanes of eight whose quotients are below 2^30 - 1 and not next to where their rounding changes. */
QFW_ALWAYS_INLINE __mmask8 seeds_8(__m256i m, __m512d s, __m256 sigma, __m256i *seed)
{
    const __m512d size = _mm512_cvtepi32_pd(_mm256_abs_epi32(m)), half = _mm512_set1_pd(0.5);
    const __m512d quotient = _mm512_div_pd(_mm512_mul_pd(size, s), _mm512_cvtps_pd(sigma));
    const __m512d sum = _mm512_add_pd(quotient, half);
    const __m512d whole = _mm512_roundscale_pd(sum, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512d above = _mm512_sub_pd(sum, whole), near = _mm512_set1_pd(0x1p-20);
    const __m512d below = _mm512_sub_pd(_mm512_set1_pd(1.0), above);
    *seed = _mm256_sign_epi32(_mm512_cvttpd_epi32(whole), m);
    return _mm512_cmp_pd_mask(above, near, _CMP_GT_OQ) &
           _mm512_cmp_pd_mask(below, near, _CMP_GT_OQ) &
           _mm512_cmp_pd_mask(sum, _mm512_set1_pd((double)((1 << 30) - 1)), _CMP_LT_OQ);
}

void qfw_seeds_s32_avx512(const int32_t *m, float s, size_t n, float *sigma, int32_t *seed,
                          uint8_t *shift)
{
    const __m512d scale = _mm512_set1_pd((double)s);
    for (size_t i = 0; i < n; i += 8) {
        const size_t count = n - i < 8 ? n - i : 8;
        const __mmask8 there = (__mmask8)(0xFFu >> (8 - count));
        const __m256 ones = _mm256_set1_ps(1.0f);
        __m256i found;
        if (seeds_8(_mm256_maskz_loadu_epi32(there, m + i), scale,
                    _mm256_mask_loadu_ps(ones, there, sigma + i), &found) == 0xFF) {
            _mm256_mask_storeu_epi32(seed + i, there, found);
            _mm_mask_storeu_epi8(shift + i, there, _mm_setzero_si128());
        } else {
            qfw_seeds_s32_avx2(m + i, s, count, sigma + i, seed + i, shift + i);
        }
    }
}
