/* Differences of two tensors, eight at a time. */
#include "base/round.h"
#include "kernels/avx2.h"

typedef struct {
    __m256i limit, mult;
    __m128i up, down;
} lanes;

static inline lanes lanes_of(const qfw_ratio *r)
{
    const lanes k = {_mm256_set1_epi32((int32_t)r->limit), _mm256_set1_epi32((int32_t)r->mult),
                     _mm_cvtsi32_si128(r->up), _mm_cvtsi32_si128(r->down - QFW_JOINED_BITS)};
    return k;
}

/* qfw_joined */
QFW_ALWAYS_INLINE __m256i joined(const int16_t *a, const lanes *k)
{
    const __m256i v = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)a));
    const __m256i lifted = _mm256_sll_epi32(_mm256_min_epu32(_mm256_abs_epi32(v), k->limit), k->up);
    return _mm256_sign_epi32(_mm256_srl_epi32(qfw_mulhi_avx2(lifted, k->mult), k->down), v);
}

static inline uint64_t all_of(__m256i v)
{
    uint64_t part[4];
    _mm256_storeu_si256((__m256i *)(void *)part, v);
    return part[0] + part[1] + part[2] + part[3];
}

/* Of squares the upper and the lower words are summed apart, as qfw_wide_add does. */
uint32_t qfw_differences_s16_avx2(const int16_t *a, const int16_t *b, size_t n,
                                  const qfw_ratio *of_a, const qfw_ratio *of_b, int32_t *d,
                                  qfw_wide *squares)
{
    const lanes of_x = lanes_of(of_a), of_y = lanes_of(of_b);
    const __m256i words = _mm256_set1_epi64x(0xFFFFFFFF);
    __m256i high = _mm256_setzero_si256(), low = high, most = high;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        const __m256i v = _mm256_sub_epi32(joined(a + i, &of_x), joined(b + i, &of_y));
        const __m256i size = _mm256_abs_epi32(v), odd = _mm256_srli_epi64(size, 32);
        const __m256i s0 = _mm256_mul_epu32(size, size), s1 = _mm256_mul_epu32(odd, odd);
        _mm256_storeu_si256((__m256i *)(void *)(d + i), v);
        most = _mm256_max_epi32(most, size);
        high = _mm256_add_epi64(
            high, _mm256_add_epi64(_mm256_srli_epi64(s0, 32), _mm256_srli_epi64(s1, 32)));
        low = _mm256_add_epi64(
            low, _mm256_add_epi64(_mm256_and_si256(s0, words), _mm256_and_si256(s1, words)));
    }
    squares->high += all_of(high);
    squares->low += all_of(low);
    uint32_t eight[8],
        found = qfw_differences_s16_scalar(a + i, b + i, n - i, of_a, of_b, d + i, squares);
    _mm256_storeu_si256((__m256i *)(void *)eight, most);
    for (int k = 0; k < 8; k++) {
        found = eight[k] > found ? eight[k] : found;
    }
    return found;
}
