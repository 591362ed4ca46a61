/* Requantization with a ratio a column, sixteen elements at a time. */
#include "base/random.h"
#include "kernels/avx2.h"

typedef struct {
    __m512i mult, limit, up, down;
} ratios;

typedef struct {
    __m512i zp, least, most;
} range;

QFW_ALWAYS_INLINE __m512i load_words(const uint32_t *x, __mmask16 there)
{
    return _mm512_maskz_loadu_epi32(there, x);
}

/* The ratios of the columns from j on; beyond the last any that are defined. */
QFW_ALWAYS_INLINE ratios ratios_at(const qfw_ratios *r, size_t j, __mmask16 there)
{
    const ratios at = {load_words(r->mult + j, there), load_words(r->limit + j, there),
                       load_words(r->up + j, there), load_words(r->down + j, there)};
    return at;
}

QFW_ALWAYS_INLINE __m512i load_numbers(const void *from, int32_t width, size_t i, __mmask16 there)
{
    return width == 8 ? _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(there, (const int8_t *)from + i))
           : width == 16
               ? _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(there, (const int16_t *)from + i))
               : _mm512_maskz_loadu_epi32(there, (const int32_t *)from + i);
}

QFW_ALWAYS_INLINE void store_codes(void *to, int32_t width, size_t i, __mmask16 there, __m512i x)
{
    if (width == 8) {
        _mm_mask_storeu_epi8((int8_t *)to + i, there, _mm512_cvtepi32_epi8(x));
    } else if (width == 16) {
        _mm256_mask_storeu_epi16((int16_t *)to + i, there, _mm512_cvtepi32_epi16(x));
    } else {
        _mm512_mask_storeu_epi32((int32_t *)to + i, there, x);
    }
}

/* qfw_rescale, half away or stochastic: the 64-bit products of even and odd elements apart. */
QFW_ALWAYS_INLINE __m512i rescaled(__m512i a, const uint32_t *u, const ratios *r)
{
    const __m512i sign = _mm512_srai_epi32(a, 31), one = _mm512_set1_epi32(1);
    const __m512i held = _mm512_min_epu32(_mm512_abs_epi32(a), r->limit);
    const __m512i lifted = _mm512_sllv_epi32(held, r->up);
    const __m512i even = _mm512_mul_epu32(lifted, r->mult);
    const __m512i odd =
        _mm512_mul_epu32(_mm512_srli_epi64(lifted, 32), _mm512_srli_epi64(r->mult, 32));
    const __m512i hi = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    if (u == NULL) {
        const __m512i half = _mm512_sllv_epi32(one, _mm512_sub_epi32(r->down, one));
        const __m512i n = _mm512_srlv_epi32(_mm512_add_epi32(hi, half), r->down);
        return _mm512_sub_epi32(_mm512_xor_si512(n, sign), sign);
    }
    /* The floor of a negative one: -hi, and one less where there is a lower word. */
    const __m512i lo = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
    const __mmask16 less = _mm512_test_epi32_mask(lo, lo);
    const __m512i negative = _mm512_sub_epi32(_mm512_setzero_si512(), hi);
    const __m512i below = _mm512_mask_sub_epi32(negative, less, negative, one);
    const __m512i floor_hi = _mm512_mask_blend_epi32(_mm512_movepi32_mask(a), hi, below);
    const __m512i cut = _mm512_sub_epi32(_mm512_set1_epi32(32), r->down);
    const __m512i word = _mm512_srlv_epi32(_mm512_loadu_si512(u), cut);
    return _mm512_srav_epi32(_mm512_add_epi32(floor_hi, word), r->down);
}

/* Elements i .. i + 15, or those of them that are there; returns how many the clamp changed. */
QFW_ALWAYS_INLINE uint32_t encode_16(const qfw_rescaling *c, size_t i, __mmask16 there,
                                     const uint32_t *u, const ratios *r, const range *to,
                                     const int32_t from_width, const int32_t to_width)
{
    const __m512i a = load_numbers(c->from, from_width, i, there);
    const __m512i v = _mm512_add_epi32(rescaled(a, u, r), to->zp);
    const __m512i code = _mm512_max_epi32(_mm512_min_epi32(v, to->most), to->least);
    store_codes(c->to, to_width, i, there, code);
    return (uint32_t)__builtin_popcount(_mm512_mask_cmpneq_epi32_mask(there, code, v));
}

/* Rows of `wide` columns whose ratios stand at r; n elements in all. */
QFW_ALWAYS_INLINE uint32_t encode_all(const qfw_rescaling *c, const qfw_ratios *r, size_t wide,
                                      size_t n, const range *to, const bool draws,
                                      const int32_t from_width, const int32_t to_width)
{
    uint32_t saturated = 0, u[16];
    for (size_t row = 0; row < n; row += wide) {
        const size_t columns = n - row < wide ? n - row : wide;
        for (size_t j = 0; j < columns; j += 16) {
            const size_t count = columns - j < 16 ? columns - j : 16;
            const __mmask16 there = (__mmask16)(0xFFFFu >> (16 - count));
            const ratios here = ratios_at(r, j, there);
            if (draws) {
                qfw_uniforms(c->key, c->first + row + j, 16, u);
            }
            saturated +=
                encode_16(c, row + j, there, draws ? u : NULL, &here, to, from_width, to_width);
        }
    }
    return saturated;
}

/* Few columns: their ratios over and over, so that vectors are full. */
typedef struct {
    uint32_t part[4][16];
} repeated;

static qfw_ratios repeat(const qfw_rescaling *c, size_t wide, repeated *to)
{
    for (size_t j = 0; j < wide; j++) {
        const size_t k = j % c->columns;
        to->part[0][j] = c->ratios.mult[k];
        to->part[1][j] = c->ratios.limit[k];
        to->part[2][j] = c->ratios.up[k];
        to->part[3][j] = c->ratios.down[k];
    }
    const qfw_ratios r = {to->part[0], to->part[1], to->part[2], to->part[3]};
    return r;
}

uint32_t qfw_rescale_rows_avx512(const qfw_rescaling *c, const qfw_code_rule *rule)
{
    const range to = {_mm512_set1_epi32(rule->zp), _mm512_set1_epi32(rule->qmin),
                      _mm512_set1_epi32(rule->qmax)};
    const size_t n = c->rows * c->columns;
    if (rule->rounding == QFW_HALF_EVEN || n == 0) {
        return qfw_rescale_rows_avx2(c, rule);
    }
    repeated room;
    const bool few = c->columns <= 8 && c->rows > 1;
    const size_t wide = few ? 16 / c->columns * c->columns : c->columns;
    const qfw_ratios r = few ? repeat(c, wide, &room) : c->ratios;
    if (rule->rounding == QFW_STOCHASTIC) {
        return encode_all(c, &r, wide, n, &to, true, c->from_width, c->to_width);
    }
    if (c->from_width == 32 && c->to_width == 8) {
        return encode_all(c, &r, wide, n, &to, false, 32, 8);
    }
    if (c->from_width == 8 && c->to_width == 16) {
        return encode_all(c, &r, wide, n, &to, false, 8, 16);
    }
    return encode_all(c, &r, wide, n, &to, false, c->from_width, c->to_width);
}
