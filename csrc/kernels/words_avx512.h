/* The words of stochastic rounding, block by block of 32 neighbours, for AVX-512. */
#ifndef QFW_KERNELS_WORDS_AVX512_H
#define QFW_KERNELS_WORDS_AVX512_H

#include "base/random.h"
#include "kernels/avx2.h"

/* qfw_draw of sixteen places. */
QFW_ALWAYS_INLINE __m512i draws(const qfw_key *key, __m512i i)
{
    __m512i x = _mm512_add_epi32(_mm512_set1_epi32((int32_t)key->k0),
                                 _mm512_mullo_epi32(i, _mm512_set1_epi32((int32_t)0x9E3779B9u)));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32(0x7feb352d));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
    x = _mm512_add_epi32(x, _mm512_set1_epi32((int32_t)key->k1));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int32_t)0x846ca68bu));
    return _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
}

/* The pairs (A, B) of sixteen blocks in a row. */
typedef struct {
    __m512i a, b;
} sixteen;

QFW_ALWAYS_INLINE sixteen draw_sixteen(const qfw_key *key, uint64_t number)
{
    const __m512i lane =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i one = _mm512_set1_epi32(1);
    const uint32_t twice = qfw_mul32((uint32_t)(number & 0xFFFFFFFFu), 2);
    const __m512i i = _mm512_add_epi32(_mm512_set1_epi32((int32_t)twice), lane);
    const sixteen p = {draws(key, i), _mm512_or_si512(draws(key, _mm512_add_epi32(i, one)), one)};
    return p;
}

#endif
