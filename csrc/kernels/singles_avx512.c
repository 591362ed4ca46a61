/* Elements with scales of their own that move, sixteen at a time. */
#include "kernels/avx2.h"
#include "kernels/singles.h"

typedef __m512i vec;
typedef __m512 vfloat;
#define VEC(op) _mm512_##op
#define VEC_SI(op) _mm512_##op##_si512
enum { ACROSS = 16 };

QFW_ALWAYS_INLINE vec as_int(vfloat x)
{
    return _mm512_castps_si512(x);
}

QFW_ALWAYS_INLINE vfloat as_float(vec x)
{
    return _mm512_castsi512_ps(x);
}

QFW_ALWAYS_INLINE uint32_t signs(vec x)
{
    return _mm512_movepi32_mask(x);
}

QFW_ALWAYS_INLINE vec load_8(const int8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

QFW_ALWAYS_INLINE vec load_16(const int16_t *p)
{
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

QFW_ALWAYS_INLINE void store_8(int8_t *p, vec x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(x));
}

QFW_ALWAYS_INLINE void store_16(int16_t *p, vec x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(x));
}

QFW_ALWAYS_INLINE vec load_part(const qfw_single *x, size_t i, size_t there)
{
    const __mmask16 some = (__mmask16)(0xFFFFu >> (16 - there));
    return x->width == 8
               ? _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, (const int8_t *)x->codes + i))
               : _mm512_cvtepi16_epi32(
                     _mm256_maskz_loadu_epi16(some, (const int16_t *)x->codes + i));
}

QFW_ALWAYS_INLINE vfloat load_part_ps(const float *scale, size_t there)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(1.0f), (__mmask16)(0xFFFFu >> (16 - there)), scale);
}

QFW_ALWAYS_INLINE void store_part(const qfw_single *x, size_t i, size_t there, vec codes)
{
    const __mmask16 some = (__mmask16)(0xFFFFu >> (16 - there));
    if (x->width == 8) {
        _mm_mask_storeu_epi8((int8_t *)x->codes + i, some, _mm512_cvtepi32_epi8(codes));
    } else {
        _mm256_mask_storeu_epi16((int16_t *)x->codes + i, some, _mm512_cvtepi32_epi16(codes));
    }
}

#include "kernels/singles_simd.h"

void qfw_update_singles_avx512(const qfw_singles *singles, size_t n)
{
    update_singles(singles, n);
}
