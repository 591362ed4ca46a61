/* What follows an integer product, sixteen columns at a time. */
#include "kernels/avx2.h"
#include "kernels/loops.h"

/* Where a mask of this kind is above 0. */
QFW_ALWAYS_INLINE __mmask16 above_zero(const void *mask, int32_t kind, size_t i, __mmask16 there)
{
    const __m512i zero = _mm512_setzero_si512();
    switch (kind) {
    case 8:
        return _mm_mask_cmpgt_epi8_mask(
            there, _mm_maskz_loadu_epi8(there, (const int8_t *)mask + i), _mm_setzero_si128());
    case 16:
        return _mm256_mask_cmpgt_epi16_mask(
            there, _mm256_maskz_loadu_epi16(there, (const int16_t *)mask + i),
            _mm256_setzero_si256());
    case 32:
        return _mm512_mask_cmpgt_epi32_mask(
            there, _mm512_maskz_loadu_epi32(there, (const int32_t *)mask + i), zero);
    default:
        return _mm512_mask_cmp_ps_mask(there, _mm512_maskz_loadu_ps(there, (const float *)mask + i),
                                       _mm512_setzero_ps(), _CMP_GT_OQ);
    }
}

static void finish_rows(int32_t *acc, size_t rows, size_t n, const qfw_finish *f)
{
    const __m512i zero = _mm512_setzero_si512();
    const bool changes = f->seed != NULL || f->relu || f->mask != NULL;
    __m512i most = zero;
    for (size_t i = 0; i < rows; i++, acc += n) {
        for (size_t j = 0; j < n; j += 16) {
            const __mmask16 there = (__mmask16)(n - j < 16 ? 0xFFFFu >> (16 - (n - j)) : 0xFFFFu);
            __m512i x = _mm512_maskz_loadu_epi32(there, acc + j);
            if (f->seed != NULL) {
                const __m128i shift = _mm_maskz_loadu_epi8(there, f->shift + j);
                x = _mm512_add_epi32(_mm512_srav_epi32(x, _mm512_cvtepu8_epi32(shift)),
                                     _mm512_maskz_loadu_epi32(there, f->seed + j));
            }
            x = f->relu ? _mm512_max_epi32(x, zero) : x;
            if (f->mask != NULL) {
                x = _mm512_maskz_mov_epi32(above_zero(f->mask, f->mask_kind, i * n + j, there), x);
            }
            if (changes) {
                _mm512_mask_storeu_epi32(acc + j, there, x);
            }
            const __m512i size = _mm512_abs_epi32(x);
            if (f->columns) {
                const __m512i before = _mm512_maskz_loadu_epi32(there, f->absmax + j);
                _mm512_mask_storeu_epi32(f->absmax + j, there, _mm512_max_epu32(before, size));
            } else {
                most = _mm512_max_epu32(most, size);
            }
        }
    }
    if (!f->columns) {
        const uint32_t found = _mm512_reduce_max_epu32(most);
        f->absmax[0] = found > f->absmax[0] ? found : f->absmax[0];
    }
}

void qfw_finish_s32_avx512(int32_t *acc, size_t rows, size_t n, const qfw_finish *finish)
{
    loop_finish(acc, rows, n, finish, finish_rows);
}
