/* Elements with scales of their own that move, eight at a time. */
#include "kernels/avx2.h"
#include "kernels/singles.h"

typedef __m256i vec;
typedef __m256 vfloat;
#define VEC(op) _mm256_##op
#define VEC_SI(op) _mm256_##op##_si256
enum { ACROSS = 8 };

QFW_ALWAYS_INLINE vec as_int(vfloat x)
{
    return _mm256_castps_si256(x);
}

QFW_ALWAYS_INLINE vfloat as_float(vec x)
{
    return _mm256_castsi256_ps(x);
}

QFW_ALWAYS_INLINE uint32_t signs(vec x)
{
    return (uint32_t)_mm256_movemask_ps(as_float(x));
}

QFW_ALWAYS_INLINE vec load_8(const int8_t *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

QFW_ALWAYS_INLINE vec load_16(const int16_t *p)
{
    return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

QFW_ALWAYS_INLINE __m128i halves_of(vec x)
{
    return _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

QFW_ALWAYS_INLINE void store_8(int8_t *p, vec x)
{
    const __m128i halves = halves_of(x);
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(halves, halves));
}

QFW_ALWAYS_INLINE void store_16(int16_t *p, vec x)
{
    _mm_storeu_si128((__m128i *)(void *)p, halves_of(x));
}

static vec load_part(const qfw_single *x, size_t i, size_t there)
{
    int32_t m[ACROSS] = {0};
    for (size_t k = 0; k < there; k++) {
        m[k] =
            x->width == 8 ? ((const int8_t *)x->codes)[i + k] : ((const int16_t *)x->codes)[i + k];
    }
    return _mm256_loadu_si256((const vec *)(const void *)m);
}

static vfloat load_part_ps(const float *scale, size_t there)
{
    float s[ACROSS];
    for (size_t k = 0; k < ACROSS; k++) {
        s[k] = k < there ? scale[k] : 1.0f;
    }
    return _mm256_loadu_ps(s);
}

static void store_part(const qfw_single *x, size_t i, size_t there, vec codes)
{
    int32_t m[ACROSS];
    _mm256_storeu_si256((vec *)(void *)m, codes);
    for (size_t k = 0; k < there; k++) {
        if (x->width == 8) {
            ((int8_t *)x->codes)[i + k] = (int8_t)m[k];
        } else {
            ((int16_t *)x->codes)[i + k] = (int16_t)m[k];
        }
    }
}

#include "kernels/singles_simd.h"

void qfw_update_singles_avx2(const qfw_singles *singles, size_t n)
{
    update_singles(singles, n);
}
