/* Four columns at a time in 64-bit lanes, those that are left by the definition. */
#include "kernels/avx2.h"
#include "kernels/normalize_loops.h"

enum { LANES = 4 };

/* The codes of columns j to j + 3 as 64-bit integers. */
static inline __m256i load_codes(const qfw_columns *at, qfw_row_codes x, size_t row, size_t j)
{
    const size_t i = row * at->stride + j;
    if (x.width == 8) {
        int32_t four;
        memcpy(&four, (const int8_t *)x.codes + i, sizeof four);
        return _mm256_cvtepi8_epi64(_mm_cvtsi32_si128(four));
    }
    return _mm256_cvtepi16_epi64(_mm_loadl_epi64((const void *)((const int16_t *)x.codes + i)));
}

static inline __m256i load_sums(const int32_t *acc)
{
    return _mm256_cvtepi32_epi64(_mm_loadu_si128((const void *)acc));
}

static inline __m256i load_words(const int64_t *v)
{
    return _mm256_loadu_si256((const void *)v);
}

/* A factor of up to 63 bits: high 2^32 + low, both int32. */
typedef struct {
    __m256i low, high;
} factor;

static inline factor factor_of(__m256i v)
{
    const __m256i low = _mm256_srli_epi64(_mm256_slli_epi64(v, 32), 32);
    const __m256i carry = _mm256_srli_epi64(low, 31); /* low is an int32: what it lacks goes up */
    const factor f = {low, _mm256_add_epi64(_mm256_srli_epi64(v, 32), carry)};
    return f;
}

/* m * f, m an int32 in each lane; the product fits. */
static inline __m256i times(__m256i m, factor f)
{
    const __m256i high = _mm256_slli_epi64(_mm256_mul_epi32(m, f.high), 32);
    return _mm256_add_epi64(_mm256_mul_epi32(m, f.low), high);
}

/* half_away(v / 2^shift). */
static inline __m256i shifted(__m256i v, __m256i shift, __m256i half)
{
    const __m256i below = _mm256_cmpgt_epi64(_mm256_setzero_si256(), v);
    const __m256i size = _mm256_sub_epi64(_mm256_xor_si256(v, below), below);
    const __m256i n = _mm256_srlv_epi64(_mm256_add_epi64(size, half), shift);
    return _mm256_sub_epi64(_mm256_xor_si256(n, below), below);
}

static inline __m256i half_of(__m256i shift)
{
    const __m256i one = _mm256_set1_epi64x(1);
    return _mm256_srli_epi64(_mm256_sllv_epi64(one, shift), 1);
}

/* sign * v as int32 numbers. */
static inline void store(__m256i v, __m128i sign, int32_t *acc)
{
    const __m256i even = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128((void *)acc, _mm_sign_epi32(_mm256_castsi256_si128(even), sign));
}

/* m^2 <= 2^30 is an int32. */
void qfw_norm_sums_avx2(const qfw_columns *at, qfw_row_codes x, int32_t *sum, uint64_t *squares)
{
    size_t j = 0;
    for (; j + LANES <= at->n; j += LANES) {
        __m256i total = _mm256_setzero_si256(), square = total;
        for (size_t i = 0; i < at->rows; i++) {
            const __m256i m = load_codes(at, x, i, j);
            total = _mm256_add_epi64(total, m);
            square = _mm256_add_epi64(square, _mm256_mul_epi32(m, m));
        }
        store(total, _mm_set1_epi32(1), sum + j);
        _mm256_storeu_si256((void *)(squares + j), square);
    }
    loop_norm_sums(at, x, j, sum, squares);
}

void qfw_norm_codes_avx2(const qfw_columns *at, qfw_row_codes x, const qfw_norm_lines *lines,
                         int32_t *acc)
{
    size_t j = 0;
    for (; j + LANES <= at->n; j += LANES) {
        const factor slope = factor_of(load_words(lines->slope + j));
        const __m256i offset = load_words(lines->offset + j);
        const __m256i shift =
            _mm256_cvtepu32_epi64(_mm_loadu_si128((const void *)(lines->shift + j)));
        const __m128i sign = _mm_loadu_si128((const void *)(lines->sign + j));
        const __m256i half = half_of(shift);
        for (size_t i = 0; i < at->rows; i++) {
            const __m256i p = _mm256_sub_epi64(times(load_codes(at, x, i, j), slope), offset);
            store(shifted(p, shift, half), sign, acc + i * at->stride + j);
        }
    }
    loop_norm_codes(at, x, j, lines, acc);
}

void qfw_norm_along_avx2(const qfw_columns *at, qfw_row_codes g, const int32_t *acc, int64_t *sum,
                         int64_t *along)
{
    size_t j = 0;
    for (; j + LANES <= at->n; j += LANES) {
        __m256i total = load_words(sum + j), all = load_words(along + j);
        for (size_t i = 0; i < at->rows; i++) {
            const __m256i m = load_codes(at, g, i, j), h = load_sums(acc + i * at->stride + j);
            total = _mm256_add_epi64(total, m);
            all = _mm256_add_epi64(all, _mm256_mul_epi32(m, h));
        }
        _mm256_storeu_si256((void *)(sum + j), total);
        _mm256_storeu_si256((void *)(along + j), all);
    }
    loop_norm_along(at, g, j, acc, sum, along);
}

void qfw_norm_back_avx2(const qfw_columns *at, qfw_row_codes g, const qfw_norm_back *back,
                        int32_t *acc)
{
    const factor slope = factor_of(_mm256_set1_epi64x(back->slope));
    const __m256i frac = _mm256_set1_epi64x(back->frac), down = _mm256_set1_epi64x(back->down);
    const __m256i frac_half = half_of(frac), down_half = half_of(down);
    size_t j = 0;
    for (; j + LANES <= at->n; j += LANES) {
        const factor t = factor_of(load_words(back->t + j));
        const __m256i offset = load_words(back->offset + j);
        const __m128i sign = _mm_loadu_si128((const void *)(back->sign + j));
        for (size_t i = 0; i < at->rows; i++) {
            int32_t *to = acc + i * at->stride + j;
            const __m256i across = shifted(times(load_sums(to), t), frac, frac_half);
            const __m256i along = times(load_codes(at, g, i, j), slope);
            const __m256i y = _mm256_sub_epi64(_mm256_sub_epi64(along, offset), across);
            store(shifted(y, down, down_half), sign, to);
        }
    }
    loop_norm_back(at, g, j, back, acc);
}
