/* Those of the loops of loops.h that are longer than a vector, compiled for AVX-512. */
#include "kernels/avx2.h"
#include "kernels/loops.h"
#include "kernels/update_loops.h"

/* loop_ratios of sixteen columns, `there` of them. With e >= 0 the shift t is below 30, so that
 * nothing of the multiplier is cut. */
QFW_ALWAYS_INLINE void ratios_16(const float *from, __mmask16 there, const qfw_divisor *to,
                                 int32_t bits, uint32_t *ratios, size_t columns)
{
    const __m512i one = _mm512_set1_epi32(1), zero = _mm512_setzero_si512();
    const __m512i over = _mm512_set1_epi32((int32_t)to->mant), thirty = _mm512_set1_epi32(30);
    const __m512i recip = _mm512_set1_epi32((int32_t)to->recip);
    const __m512i word = _mm512_maskz_loadu_epi32(there, from);
    const __m512i mant = _mm512_or_si512(_mm512_and_si512(word, _mm512_set1_epi32(0x7FFFFF)),
                                         _mm512_set1_epi32(0x800000));
    const __mmask16 d = _mm512_cmplt_epu32_mask(mant, over);
    const __m512i m = _mm512_mask_slli_epi32(mant, d, mant, 1);
    const __m512i even = _mm512_mul_epu32(m, recip);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(m, 32), recip);
    const __m512i least =
        _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 24), _mm512_slli_epi64(odd, 8));
    const __m512i rest =
        _mm512_sub_epi32(_mm512_slli_epi32(m, 30), _mm512_mullo_epi32(least, over));
    const __mmask16 above = _mm512_cmpge_epu32_mask(rest, over);
    const __mmask16 beyond = _mm512_cmpge_epu32_mask(rest, _mm512_add_epi32(over, over));
    __m512i q = _mm512_mask_add_epi32(least, above, least, one);
    q = _mm512_mask_add_epi32(q, beyond, q, one);
    const __m512i base = _mm512_set1_epi32(61 - 30 - 150 - to->exp - bits);
    __m512i e = _mm512_add_epi32(base, _mm512_srli_epi32(word, 23));
    e = _mm512_mask_sub_epi32(e, d, e, one);
    const __m512i t = _mm512_sub_epi32(_mm512_set1_epi32(29 - bits), _mm512_min_epi32(e, zero));
    const __m512i cut = _mm512_max_epi32(_mm512_sub_epi32(t, thirty), zero);
    const __m512i small =
        _mm512_srlv_epi32(q, _mm512_min_epi32(cut, _mm512_add_epi32(thirty, one)));
    const __m512i up = _mm512_max_epi32(_mm512_min_epi32(e, thirty), zero);
    const __m512i most = _mm512_set1_epi32(INT32_MAX);
    const __m512i mult = _mm512_mask_mov_epi32(small, _mm512_cmpgt_epi32_mask(e, thirty), most);
    _mm512_mask_storeu_epi32(ratios, there, mult);
    _mm512_mask_storeu_epi32(ratios + columns, there, _mm512_srlv_epi32(most, up));
    _mm512_mask_storeu_epi32(ratios + 2 * columns, there, up);
    _mm512_mask_storeu_epi32(ratios + 3 * columns, there, _mm512_min_epi32(t, thirty));
}

void qfw_ratios_f32_avx512(const float *from, size_t n, float to, int32_t bits, uint32_t *ratios,
                           size_t columns)
{
    const qfw_divisor d = qfw_divisor_of(to);
    for (size_t i = 0; i < n; i += 16) {
        const size_t count = n - i < 16 ? n - i : 16;
        ratios_16(from + i, (__mmask16)(0xFFFFu >> (16 - count)), &d, bits, ratios + i, columns);
    }
}

void qfw_floats_s32_avx512(const int32_t *a, size_t n, float s, float *y)
{
    loop_floats(a, n, s, y);
}

uint32_t qfw_update_s32_avx512(int32_t *m, int32_t *v, const int32_t *g, size_t n, bool wide,
                               const qfw_move *move, const qfw_move *state, const uint32_t *u,
                               const uint32_t *u_v)
{
    return loop_update_any(m, v, g, n, wide, move, state, u, u_v);
}

void qfw_coefs_f32_avx512(float c, const float *from, const float *to, int32_t frac, int32_t last,
                          qfw_coefs *k)
{
    loop_coefs(c, from, to, frac, last, k);
}

uint32_t qfw_update_each_avx512(int32_t *m, int32_t *v, const int32_t *g, bool wide,
                                const qfw_moves *move, const qfw_moves *state, const uint32_t *u,
                                const uint32_t *u_v, uint32_t *out)
{
    return loop_update_each_any(m, v, g, wide, move, state, u, u_v, out);
}

void qfw_update_f32_avx512(const float *w, const float *g, float *v, size_t n,
                           const qfw_float_step *step, float *d)
{
    loop_update_f32(w, g, v, n, step, d);
}

void qfw_adamw_f32_avx512(const float *w, const float *g, float *m, float *v, size_t n,
                          const qfw_adamw_step *step, float *d)
{
    loop_adamw_f32(w, g, m, v, n, step, d);
}
