/* Scales that are found, four at a time. */
#include "base/scale.h"
#include "kernels/avx2.h"

/* The products that doubles are for: below 2^45, so that s_in's 24 bits leave 21. */
enum { MOST = 1 << 21 };

/* Four of scale(s_in, m, q), s_in being mant * power; whether all are normal floats.
 *
 * mant * m < 2^45 is exact, the quotient t rounded to 53 bits. What is above a number of 24 bits is
 * so by 1 / q of its last bit or of 1, at least 2^-7 >= 2^-46 t, so that a rounded quotient is on
 * such a number only if the quotient is: adding all but one of the bits below the 24th rounds it
 * up. */
QFW_ALWAYS_INLINE bool scales_4(__m256d mant, __m256d power, __m256d q, __m128i m, float *scale)
{
    const __m256i below = _mm256_set1_epi64x((INT64_C(1) << 29) - 1);
    const __m256d t = _mm256_div_pd(_mm256_mul_pd(mant, _mm256_cvtepi32_pd(m)), q);
    const __m256i up = _mm256_andnot_si256(below, _mm256_add_epi64(_mm256_castpd_si256(t), below));
    const __m256d s = _mm256_mul_pd(_mm256_castsi256_pd(up), power);
    const __m256d least = _mm256_set1_pd((double)FLT_MIN), most = _mm256_set1_pd((double)FLT_MAX);
    const __m256d ok =
        _mm256_and_pd(_mm256_cmp_pd(s, least, _CMP_GE_OQ), _mm256_cmp_pd(s, most, _CMP_LE_OQ));
    const __m128 none = _mm_castsi128_ps(_mm_cmpeq_epi32(m, _mm_setzero_si128()));
    _mm_storeu_ps(scale, _mm_blendv_ps(_mm256_cvtpd_ps(s), _mm_set1_ps(1.0f), none));
    return (_mm256_movemask_pd(ok) | _mm_movemask_ps(none)) == 15;
}

void qfw_scales_s32_avx2(float s_in, const uint32_t *most, size_t n, uint32_t q, bool pow2,
                         float *scale)
{
    const uint32_t word = qfw_bits_f32(s_in), e = (word >> 23) + 1023 - 150;
    const __m256d mant = _mm256_set1_pd((double)((word & 0x7FFFFFu) | 0x800000u));
    const __m256d power = _mm256_set1_pd(qfw_from_bits_f64((uint64_t)e << 52));
    size_t i = 0;
    for (; !pow2 && q < 128 && n - i >= 4; i += 4) {
        const __m128i m = _mm_loadu_si128((const __m128i *)(const void *)(most + i));
        const __m128i large = _mm_cmpeq_epi32(_mm_max_epu32(m, _mm_set1_epi32(MOST)), m);
        if (_mm_movemask_epi8(large) != 0 ||
            !scales_4(mant, power, _mm256_set1_pd((double)q), m, scale + i)) {
            qfw_scales_s32_scalar(s_in, most + i, 4, q, false, scale + i);
        }
    }
    qfw_scales_s32_scalar(s_in, most + i, n - i, q, pow2, scale + i);
}
