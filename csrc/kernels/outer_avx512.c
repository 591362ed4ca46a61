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

/* -1, 0 or 1 of |e| < 2^31, without a branch: no one foresees the signs of errors. */
static inline int32_t sign_of(int32_t e)
{
    return (e >> 31) - (-e >> 31);
}

/* 64 columns at a time, which all rows have in three forms. */
static void copies(const int8_t *x, size_t n, const int32_t *e, size_t rows, int8_t *codes)
{
    for (size_t i = 0; i < n; i += 64) {
        const __mmask64 there = UINT64_MAX >> (n - i < 64 ? 64 - (n - i) : 0);
        const __m512i v = _mm512_maskz_loadu_epi8(there, x + i), zero = _mm512_setzero_si512();
        __m512i form[3] = {_mm512_sub_epi8(zero, v), zero, v};
        int8_t *to = codes + i;
        for (size_t k = 0; k < rows; k++, to += n) {
            const int32_t which = sign_of(e[k]) + 1;
            if (there == UINT64_MAX) { /* a store with a mask takes longer */
                _mm512_storeu_si512(to, form[which]);
            } else {
                _mm512_mask_storeu_epi8(to, there, form[which]);
            }
        }
    }
}

#include "kernels/outer_simd.h"

uint32_t qfw_outer_s8_avx512(const qfw_outer *outer, const int32_t *e, const float *scale,
                             size_t rows, uint64_t first, int8_t *codes)
{
    return encode_rows(outer, e, scale, rows, first, codes);
}
