/* Scales that are found with their codes, sixteen at a time: columns_avx2.c says why. */
#include "base/random.h"
#include "kernels/avx2.h"

typedef struct {
    __m512d mant, power, by;
} quotients;

/* Eight of scale(s_in, m, q), s_in being mant * power; *inside: those above FLT_MIN and below FLT_MAX. */
QFW_ALWAYS_INLINE __m256 scales_8(__m256i m, const quotients *x, __mmask8 *inside)
{
    const __m512i below = _mm512_set1_epi64((INT64_C(1) << 29) - 1);
    const __m512d t = _mm512_div_pd(_mm512_mul_pd(x->mant, _mm512_cvtepi32_pd(m)), x->by);
    const __m512i up = _mm512_andnot_si512(below, _mm512_add_epi64(_mm512_castpd_si512(t), below));
    const __m512d s = _mm512_mul_pd(_mm512_castsi512_pd(up), x->power);
    *inside = _mm512_cmp_pd_mask(s, _mm512_set1_pd((double)FLT_MIN), _CMP_GT_OQ) &
              _mm512_cmp_pd_mask(s, _mm512_set1_pd((double)FLT_MAX), _CMP_LT_OQ);
    return _mm512_cvtpd_ps(s);
}

/* Those of sixteen words, u + k step, that are as far from 0 and 2^32 as QFW_SURE_WORD. */
QFW_ALWAYS_INLINE __mmask16 far_words(uint32_t u, uint32_t step)
{
    const __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i from = _mm512_set1_epi32((int32_t)qfw_sub32(u, QFW_SURE_WORD));
    const __m512i x =
        _mm512_add_epi32(from, _mm512_mullo_epi32(_mm512_set1_epi32((int32_t)step), index));
    return _mm512_cmple_epu32_mask(x, _mm512_set1_epi32(-2 * QFW_SURE_WORD - 1));
}

size_t qfw_singles_s8_avx512(const int32_t *a, size_t n, float s_in, uint32_t q, const qfw_key *key,
                             uint64_t first, float *scale, int8_t *codes)
{
    const uint32_t word = qfw_bits_f32(s_in), e = (word >> 23) + 1023 - 150;
    const quotients x = {_mm512_set1_pd((double)((word & 0x7FFFFFu) | 0x800000u)),
                         _mm512_set1_pd(qfw_from_bits_f64((uint64_t)e << 52)),
                         _mm512_set1_pd((double)q)};
    const __m512i top = _mm512_set1_epi32((int32_t)q), zero = _mm512_setzero_si512();
    qfw_draw_pair d = {0, 0};
    size_t i = 0;
    for (; first % 16 == 0 && i < n; i += 16) {
        const __mmask16 there = (__mmask16)(n - i < 16 ? 0xFFFFu >> (16 - (n - i)) : 0xFFFFu);
        const __m512i m = _mm512_maskz_loadu_epi32(there, a + i), size = _mm512_abs_epi32(m);
        const __mmask16 some = _mm512_test_epi32_mask(m, m);
        if (key != NULL && (i == 0 || (first + i) % 32 == 0)) {
            d = qfw_block_draw(key, first + i);
        }
        __mmask8 lower, upper;
        const __m256 s0 = scales_8(_mm512_castsi512_si256(size), &x, &lower);
        const __m256 s1 = scales_8(_mm512_extracti64x4_epi64(size, 1), &x, &upper);
        const __mmask16 small =
            _mm512_cmplt_epu32_mask(size, _mm512_set1_epi32((int32_t)QFW_SURE_SUM));
        const uint32_t at = (uint32_t)((first + i) & 31), u = qfw_add32(d.a, qfw_mul32(at, d.b));
        const uint32_t sure = small & (lower | (uint32_t)upper << 8 | (uint32_t)(uint16_t)~some) &
                              (key == NULL ? 0xFFFFu : far_words(u, d.b) | (uint16_t)~there);
        if (sure != 0xFFFF) {
            break;
        }
        const __m512 s = _mm512_insertf32x8(_mm512_castps256_ps512(s0), s1, 1);
        const __m512i code = _mm512_mask_sub_epi32(_mm512_maskz_mov_epi32(some, top),
                                                   _mm512_movepi32_mask(m), zero, top);
        _mm512_mask_storeu_ps(scale + i, there, _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), some, s));
        _mm_mask_storeu_epi8(codes + i, there, _mm512_cvtepi32_epi8(code));
    }
    if (i >= n) {
        return n;
    }
    return i + qfw_singles_s8_avx2(a + i, n - i, s_in, q, key, first + i, scale + i, codes + i);
}
