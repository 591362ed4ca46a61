/* The words of stochastic rounding, block by block of 32 neighbours. */
#ifndef QFW_KERNELS_WORDS_AVX2_H
#define QFW_KERNELS_WORDS_AVX2_H

#include "base/random.h"
#include "kernels/avx2.h"

/* The pairs (A, B) of eight blocks in a row: eight draws cost what one does. */
typedef struct {
    uint64_t from; /* the first block; UINT64_MAX: none yet */
    uint32_t a[8], b[8];
} pairs;

/* qfw_draw of eight places. */
QFW_ALWAYS_INLINE __m256i draws(const qfw_key *key, __m256i i)
{
    __m256i x = _mm256_add_epi32(_mm256_set1_epi32((int32_t)key->k0),
                                 _mm256_mullo_epi32(i, _mm256_set1_epi32((int32_t)0x9E3779B9u)));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(0x7feb352d));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
    x = _mm256_add_epi32(x, _mm256_set1_epi32((int32_t)key->k1));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int32_t)0x846ca68bu));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

static inline void draw_pairs(const qfw_key *key, uint64_t block, pairs *p)
{
    const __m256i one = _mm256_set1_epi32(1), lane = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const uint32_t twice = qfw_mul32((uint32_t)(block & 0xFFFFFFFFu), 2);
    const __m256i i = _mm256_add_epi32(_mm256_set1_epi32((int32_t)twice), lane);
    p->from = block;
    _mm256_storeu_si256((__m256i *)(void *)p->a, draws(key, i));
    _mm256_storeu_si256((__m256i *)(void *)p->b,
                        _mm256_or_si256(draws(key, _mm256_add_epi32(i, one)), one));
}

/* u of the elements `index` of a block, and the step from one element to the next. */
typedef struct {
    __m256i first, step;
} block;

QFW_ALWAYS_INLINE block block_of(const qfw_key *key, uint64_t at, __m256i index, pairs *p)
{
    const uint64_t number = at >> 5;
    if (number - p->from >= 8) {
        draw_pairs(key, number, p);
    }
    const uint64_t k = number - p->from;
    const __m256i step = _mm256_set1_epi32((int32_t)p->b[k]);
    const block b = {
        _mm256_add_epi32(_mm256_set1_epi32((int32_t)p->a[k]), _mm256_mullo_epi32(step, index)),
        step};
    return b;
}

#endif
