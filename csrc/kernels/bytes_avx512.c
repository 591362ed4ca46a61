/* Codes in int8 by random words, sixteen at a time. */
#include "kernels/words_avx512.h"

typedef struct {
    __m512i mult, limit, least, qmin, qmax;
    __m128i up, down, draw;
} scaling;

/* qfw_rescale, stochastic: the signed product's high word is its floor. */
QFW_ALWAYS_INLINE __m512i rescaled(__m512i a, __m512i u, const scaling *s)
{
    const __m512i held = _mm512_max_epi32(_mm512_min_epi32(a, s->limit), s->least);
    const __m512i lifted = _mm512_sll_epi32(held, s->up);
    const __m512i even = _mm512_srli_epi64(_mm512_mul_epi32(lifted, s->mult), 32);
    const __m512i odd = _mm512_mul_epi32(_mm512_srli_epi64(lifted, 32), s->mult);
    const __m512i floor_hi = _mm512_mask_blend_epi32(0xAAAA, even, odd);
    return _mm512_sra_epi32(_mm512_add_epi32(floor_hi, _mm512_srl_epi32(u, s->draw)), s->down);
}

/* The `count` <= 16 numbers at a, by the words u; returns how many the clamp changed. */
QFW_ALWAYS_INLINE uint32_t encode_16(const int32_t *a, size_t count, __m512i u, const scaling *s,
                                     int8_t *codes)
{
    const __mmask16 there = (__mmask16)(0xFFFFu >> (16 - count));
    const __m512i v = rescaled(_mm512_maskz_loadu_epi32(there, a), u, s);
    const __m512i code = _mm512_max_epi32(_mm512_min_epi32(v, s->qmax), s->qmin);
    _mm_mask_storeu_epi8(codes, there, _mm512_cvtepi32_epi8(code));
    return (uint32_t)__builtin_popcount(_mm512_mask_cmpneq_epi32_mask(there, code, v));
}

enum { BLOCKS = 16 };

/* Elements up to the end of the sixteen blocks of 32 in which the first one lies; n of them. */
static uint32_t encode_blocks(const int32_t *a, size_t n, const scaling *s, const qfw_key *key,
                              uint64_t first, int8_t *codes)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const sixteen drawn = draw_sixteen(key, first >> 5);
    uint32_t word[BLOCKS], step[BLOCKS], saturated = 0;
    _mm512_storeu_si512(word, drawn.a);
    _mm512_storeu_si512(step, drawn.b);
    size_t from = (size_t)(first & 31u);
    for (size_t i = 0, k = 0; i < n; k++, from = 0) {
        const size_t count = n - i < 32 - from ? n - i : 32 - from;
        const __m512i b = _mm512_set1_epi32((int32_t)step[k]);
        const __m512i at = _mm512_add_epi32(_mm512_set1_epi32((int32_t)from), lane);
        const __m512i u =
            _mm512_add_epi32(_mm512_set1_epi32((int32_t)word[k]), _mm512_mullo_epi32(b, at));
        saturated += encode_16(a + i, count < 16 ? count : 16, u, s, codes + i);
        if (count > 16) {
            const __m512i next = _mm512_add_epi32(u, _mm512_slli_epi32(b, 4));
            saturated += encode_16(a + i + 16, count - 16, next, s, codes + i + 16);
        }
        i += count;
    }
    return saturated;
}

uint32_t qfw_rescale_s8_avx512(const int32_t *a, size_t n, const qfw_ratio *ratio,
                               const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                               int8_t *codes)
{
    if (rule->rounding != QFW_STOCHASTIC || rule->zp != 0) {
        return qfw_rescale_s8_avx2(a, n, ratio, rule, key, first, codes);
    }
    const scaling s = {_mm512_set1_epi32((int32_t)ratio->mult),
                       _mm512_set1_epi32((int32_t)ratio->limit),
                       _mm512_set1_epi32(-(int32_t)ratio->limit),
                       _mm512_set1_epi32(rule->qmin),
                       _mm512_set1_epi32(rule->qmax),
                       _mm_cvtsi32_si128(ratio->up),
                       _mm_cvtsi32_si128(ratio->down),
                       _mm_cvtsi32_si128(32 - ratio->down)};
    uint32_t saturated = 0;
    for (size_t i = 0, count; i < n; i += count) {
        const size_t room = BLOCKS * 32 - (size_t)((first + i) & 31u);
        count = n - i < room ? n - i : room;
        saturated += encode_blocks(a + i, count, &s, key, first + i, codes + i);
    }
    return saturated;
}
