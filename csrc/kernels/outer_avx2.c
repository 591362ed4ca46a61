/* Outer products to codes in int8, eight blocks of 32 words at a time. */
#include "kernels/words_avx2.h"

enum { BLOCKS = 8, NEAR = 1 << 18 };

/* Bit k: whether block number + k has a word below NEAR or above 2^32 - 1 - NEAR. Where none is,
 * rounding x +- 2^-14 gives x: of the t >= 21 bits that a word is cut to, 2^(t - 14) are NEAR. A
 * block a lane. */
static inline uint32_t look(const qfw_key *key, uint64_t number)
{
    pairs p;
    draw_pairs(key, number, &p);
    const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)p.a);
    const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)p.b);
    const __m256i b8 = _mm256_slli_epi32(b, 3);
    __m256i x0 = _mm256_sub_epi32(a, _mm256_set1_epi32(NEAR)), x1 = _mm256_add_epi32(x0, b8);
    __m256i x2 = _mm256_add_epi32(x1, b8), x3 = _mm256_add_epi32(x2, b8);
    __m256i most = _mm256_setzero_si256(), other = most;
    for (int k = 0; k < 8; k++) {
        most = _mm256_max_epu32(most, _mm256_max_epu32(x0, x1));
        other = _mm256_max_epu32(other, _mm256_max_epu32(x2, x3));
        x0 = _mm256_add_epi32(x0, b);
        x1 = _mm256_add_epi32(x1, b);
        x2 = _mm256_add_epi32(x2, b);
        x3 = _mm256_add_epi32(x3, b);
    }
    const __m256i inside = _mm256_set1_epi32(-2 * NEAR - 1);
    const __m256i all = _mm256_max_epu32(_mm256_max_epu32(most, other), inside);
    const __m256 sure = _mm256_castsi256_ps(_mm256_cmpeq_epi32(all, inside));
    return ~(uint32_t)_mm256_movemask_ps(sure) & 0xFFu;
}

/* codes = x or -x, no x being -128. */
static void copy(const int8_t *x, size_t n, bool negative, int8_t *codes)
{
    const __m256i sign = _mm256_set1_epi8(negative ? -1 : 1);
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        _mm256_storeu_si256((__m256i *)(void *)(codes + i), _mm256_sign_epi8(v, sign));
    }
    if (n - i >= 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(x + i));
        _mm_storeu_si128((__m128i *)(void *)(codes + i),
                         _mm_sign_epi8(v, _mm256_castsi256_si128(sign)));
        i += 16;
    }
    for (; i < n; i++) {
        codes[i] = (int8_t)(negative ? -x[i] : x[i]);
    }
}

static void copies(const int8_t *x, size_t n, const int32_t *e, size_t rows, int8_t *codes)
{
    for (size_t k = 0; k < rows; k++, codes += n) {
        if (e[k] == 0) {
            memset(codes, 0, n);
        } else {
            copy(x, n, e[k] < 0, codes);
        }
    }
}

#include "kernels/outer_simd.h"

uint32_t qfw_outer_s8_avx2(const qfw_outer *outer, const int32_t *e, const float *scale,
                           size_t rows, uint64_t first, int8_t *codes)
{
    return encode_rows(outer, e, scale, rows, first, codes);
}
