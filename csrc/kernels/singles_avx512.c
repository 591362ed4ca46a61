/* Elements with scales of their own that move, sixteen at a time. */
#include "kernels/avx2.h"

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

#include "kernels/singles_simd.h"

void qfw_update_singles_avx512(const qfw_singles *singles, size_t n)
{
    update_singles(singles, n);
}
