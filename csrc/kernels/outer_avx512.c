/* Outer products to codes in int8, sixteen blocks of 32 words at a time. */
#include "kernels/words_avx512.h"

enum { BLOCKS = 16, NEAR = 1 << 18 };

/* Bit k: whether block number + k has a word below NEAR or above 2^32 - 1 - NEAR. Where none is,
 * rounding x +- 2^-14 gives x: of the t >= 21 bits that a word is cut to, 2^(t - 14) are NEAR. A
 * block a lane. */
static inline uint32_t look(const qfw_key *key, uint64_t number)
{
    const sixteen p = draw_sixteen(key, number);
    const __m512i b = p.b, b8 = _mm512_slli_epi32(b, 3);
    __m512i x0 = _mm512_sub_epi32(p.a, _mm512_set1_epi32(NEAR)), x1 = _mm512_add_epi32(x0, b8);
    __m512i x2 = _mm512_add_epi32(x1, b8), x3 = _mm512_add_epi32(x2, b8);
    __m512i most = _mm512_setzero_si512(), other = most;
    for (int k = 0; k < 8; k++) {
        most = _mm512_max_epu32(most, _mm512_max_epu32(x0, x1));
        other = _mm512_max_epu32(other, _mm512_max_epu32(x2, x3));
        x0 = _mm512_add_epi32(x0, b);
        x1 = _mm512_add_epi32(x1, b);
        x2 = _mm512_add_epi32(x2, b);
        x3 = _mm512_add_epi32(x3, b);
    }
    const __m512i inside = _mm512_set1_epi32(-2 * NEAR - 1);
    return _mm512_cmpgt_epu32_mask(_mm512_max_epu32(most, other), inside);
}

QFW_ALWAYS_INLINE __m512i with_sign(__m512i v, __m512i sign)
{
    return _mm512_sub_epi8(_mm512_xor_si512(v, sign), sign);
}

/* codes = x or -x, no x being -128. */
static void copy(const int8_t *x, size_t n, bool negative, int8_t *codes)
{
    const __m512i sign = _mm512_set1_epi8(negative ? -1 : 0);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        _mm512_storeu_si512(codes + i, with_sign(_mm512_loadu_si512(x + i), sign));
    }
    if (i < n) {
        const __mmask64 there = UINT64_MAX >> (64 - (n - i));
        const __m512i v = _mm512_maskz_loadu_epi8(there, x + i);
        _mm512_mask_storeu_epi8(codes + i, there, with_sign(v, sign));
    }
}

#include "kernels/outer_simd.h"

uint32_t qfw_outer_s8_avx512(const qfw_outer *outer, const int32_t *e, const float *scale,
                             size_t rows, uint64_t first, int8_t *codes)
{
    return encode_rows(outer, e, scale, rows, first, codes);
}
