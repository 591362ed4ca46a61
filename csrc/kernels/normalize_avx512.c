/* Sixteen columns at a time in two vectors of 64-bit lanes; sums of int8 in 32-bit ones. */
#include "kernels/avx2.h"
#include "kernels/normalize_loops.h"

enum { LANES = 8 };

/* Columns 8 half .. 8 half + 7, as far as there are n. */
QFW_ALWAYS_INLINE __mmask8 columns_of(size_t n, size_t half)
{
    const size_t count = n > LANES * half ? n - LANES * half : 0;
    return (__mmask8)(0xFFu >> (LANES - (count < LANES ? count : LANES)));
}

/* The codes of eight columns as 64-bit integers. */
QFW_ALWAYS_INLINE __m512i codes_at(qfw_row_codes x, size_t i, __mmask8 there)
{
    return x.width == 8
               ? _mm512_cvtepi8_epi64(_mm_maskz_loadu_epi8(there, (const int8_t *)x.codes + i))
               : _mm512_cvtepi16_epi64(_mm_maskz_loadu_epi16(there, (const int16_t *)x.codes + i));
}

QFW_ALWAYS_INLINE __m512i sums_at(const int32_t *acc, __mmask8 there)
{
    return _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(there, acc));
}

QFW_ALWAYS_INLINE __m512i words_at(const void *v, __mmask8 there)
{
    return _mm512_maskz_loadu_epi64(there, v);
}

/* half_away(v / 2^shift). */
QFW_ALWAYS_INLINE __m512i shifted(__m512i v, __m512i shift, __m512i half)
{
    const __m512i n = _mm512_srlv_epi64(_mm512_add_epi64(_mm512_abs_epi64(v), half), shift);
    return _mm512_mask_sub_epi64(n, _mm512_movepi64_mask(v), _mm512_setzero_si512(), n);
}

QFW_ALWAYS_INLINE __m512i half_of(__m512i shift)
{
    return _mm512_srli_epi64(_mm512_sllv_epi64(_mm512_set1_epi64(1), shift), 1);
}

/* sign * v as int32 numbers. */
QFW_ALWAYS_INLINE void store(__m512i v, __m256i sign, __mmask8 there, int32_t *acc)
{
    _mm256_mask_storeu_epi32(acc, there, _mm256_sign_epi32(_mm512_cvtepi64_epi32(v), sign));
}

/* ---- sums ---- */

/* Two rows of sixteen int8 as pairs of int16; none: a row of zeros. */
QFW_ALWAYS_INLINE __m512i pairs_at(const int8_t *x, const int8_t *y, __mmask16 there,
                                   __mmask16 there_y)
{
    const __m128i u = _mm_maskz_loadu_epi8(there, x), v = _mm_maskz_loadu_epi8(there_y, y);
    const __m256i lo = _mm256_castsi128_si256(_mm_unpacklo_epi8(u, v));
    return _mm512_cvtepi8_epi16(_mm256_inserti128_si256(lo, _mm_unpackhi_epi8(u, v), 1));
}

enum { PAIRS = 1 << 15 }; /* whose squares, at most 2^15 a pair, fit an int32 */

static void sums_of_bytes(const qfw_columns *at, const int8_t *x, int32_t *sum, uint64_t *squares)
{
    const __mmask16 there = (__mmask16)(0xFFFFu >> (16 - at->n));
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i total = _mm512_setzero_si512(), lower = total, upper = total;
    for (size_t i = 0; i < at->rows;) {
        const size_t end = at->rows - i < 2 * PAIRS ? at->rows : i + 2 * PAIRS;
        __m512i square = _mm512_setzero_si512();
        for (; i < end; i += 2) {
            const bool both = i + 1 < at->rows;
            const int8_t *row = x + i * at->stride;
            const __m512i m = pairs_at(row, both ? row + at->stride : row, there, both ? there : 0);
            total = _mm512_add_epi32(total, _mm512_madd_epi16(m, ones));
            square = _mm512_add_epi32(square, _mm512_madd_epi16(m, m));
        }
        lower = _mm512_add_epi64(lower, _mm512_cvtepu32_epi64(_mm512_castsi512_si256(square)));
        upper =
            _mm512_add_epi64(upper, _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(square, 1)));
    }
    _mm512_mask_storeu_epi32(sum, there, total);
    _mm512_mask_storeu_epi64(squares, columns_of(at->n, 0), lower);
    _mm512_mask_storeu_epi64(squares + LANES, columns_of(at->n, 1), upper);
}

void qfw_norm_sums_avx512(const qfw_columns *at, qfw_row_codes x, int32_t *sum, uint64_t *squares)
{
    if (x.width == 8 && at->n > 0) {
        sums_of_bytes(at, x.codes, sum, squares);
        return;
    }
    for (size_t h = 0, j = 0; j < at->n; h++, j += LANES) {
        const __mmask8 there = columns_of(at->n, h);
        __m512i total = _mm512_setzero_si512(), square = total;
        for (size_t i = 0; i < at->rows; i++) {
            const __m512i m = codes_at(x, i * at->stride + j, there);
            total = _mm512_add_epi64(total, m);
            square = _mm512_add_epi64(square, _mm512_mul_epi32(m, m));
        }
        store(total, _mm256_set1_epi32(1), there, sum + j);
        _mm512_mask_storeu_epi64(squares + j, there, square);
    }
}

/* ---- the others ---- */

void qfw_norm_codes_avx512(const qfw_columns *at, qfw_row_codes x, const qfw_norm_lines *lines,
                           int32_t *acc)
{
    for (size_t h = 0, j = 0; j < at->n; h++, j += LANES) {
        const __mmask8 there = columns_of(at->n, h);
        const __m512i slope = words_at(lines->slope + j, there);
        const __m512i offset = words_at(lines->offset + j, there);
        const __m512i shift =
            _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(there, lines->shift + j));
        const __m256i sign = _mm256_maskz_loadu_epi32(there, lines->sign + j);
        const __m512i half = half_of(shift);
        for (size_t i = 0; i < at->rows; i++) {
            const size_t from = i * at->stride + j;
            const __m512i p = _mm512_mullo_epi64(codes_at(x, from, there), slope);
            store(shifted(_mm512_sub_epi64(p, offset), shift, half), sign, there, acc + from);
        }
    }
}

void qfw_norm_along_avx512(const qfw_columns *at, qfw_row_codes g, const int32_t *acc, int64_t *sum,
                           int64_t *along)
{
    for (size_t h = 0, j = 0; j < at->n; h++, j += LANES) {
        const __mmask8 there = columns_of(at->n, h);
        __m512i total = words_at(sum + j, there), all = words_at(along + j, there);
        for (size_t i = 0; i < at->rows; i++) {
            const size_t from = i * at->stride + j;
            const __m512i m = codes_at(g, from, there);
            total = _mm512_add_epi64(total, m);
            all = _mm512_add_epi64(all, _mm512_mul_epi32(m, sums_at(acc + from, there)));
        }
        _mm512_mask_storeu_epi64(sum + j, there, total);
        _mm512_mask_storeu_epi64(along + j, there, all);
    }
}

void qfw_norm_back_avx512(const qfw_columns *at, qfw_row_codes g, const qfw_norm_back *back,
                          int32_t *acc)
{
    const __m512i slope = _mm512_set1_epi64(back->slope);
    const __m512i frac = _mm512_set1_epi64(back->frac), down = _mm512_set1_epi64(back->down);
    const __m512i frac_half = half_of(frac), down_half = half_of(down);
    for (size_t h = 0, j = 0; j < at->n; h++, j += LANES) {
        const __mmask8 there = columns_of(at->n, h);
        const __m512i t = words_at(back->t + j, there);
        const __m512i offset = words_at(back->offset + j, there);
        const __m256i sign = _mm256_maskz_loadu_epi32(there, back->sign + j);
        for (size_t i = 0; i < at->rows; i++) {
            const size_t from = i * at->stride + j;
            const __m512i across = _mm512_mullo_epi64(sums_at(acc + from, there), t);
            const __m512i along = _mm512_mullo_epi64(codes_at(g, from, there), slope);
            const __m512i y =
                _mm512_sub_epi64(_mm512_sub_epi64(along, offset), shifted(across, frac, frac_half));
            store(shifted(y, down, down_half), sign, there, acc + from);
        }
    }
}
