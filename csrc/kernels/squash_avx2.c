/* Sigmoid and tanh, four integers or eight floats at a time: squash.c with the functions of
 * base/elementary.c written out. */
#include "kernels/avx2.h"

/* ---- integers: a number in each 64-bit lane ---- */

/* qfw_distance of magnitudes; a lane of s holds mu, and above it the shift. Counts of 64 and more leave
 * 0, as the definition does. */
QFW_ALWAYS_INLINE __m256i distances(__m256i below, __m256i s, __m256i more)
{
    const __m256i zero = _mm256_setzero_si256(), top = _mm256_set1_epi64x(INT64_C(1) << 36);
    const __m256i product = _mm256_mul_epu32(below, s);
    const __m256i shift = _mm256_add_epi32(_mm256_srli_epi64(s, 32), more);
    const __m256i down = _mm256_max_epi32(_mm256_sub_epi32(zero, shift), zero);
    const __m256i up = _mm256_min_epi32(_mm256_max_epi32(shift, zero), _mm256_set1_epi64x(36));
    const __m256i lowered = _mm256_srlv_epi64(product, down);
    const __m256i over = _mm256_cmpgt_epi64(lowered, _mm256_srlv_epi64(top, up));
    return _mm256_blendv_epi8(_mm256_sllv_epi64(lowered, up), top, over);
}

QFW_ALWAYS_INLINE __m256i high_word(__m256i a, __m256i b)
{
    return _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
}

/* qfw_exp2_q30. */
QFW_ALWAYS_INLINE __m256i powers(__m256i t)
{
    static const int64_t c[] = {632021, 5702271, 41298234, 238385490, 1031764650, 2977044459};
    const __m256i one = _mm256_set1_epi64x(1);
    const __m256i n = _mm256_srli_epi64(t, 26);
    const __m256i u = _mm256_slli_epi64(_mm256_and_si256(t, _mm256_set1_epi64x(0x3FFFFFF)), 6);
    __m256i h = _mm256_set1_epi64x(46333);
    for (int i = 0; i < 6; i++) {
        h = _mm256_sub_epi64(_mm256_set1_epi64x(c[i]), high_word(u, h));
    }
    const __m256i part = _mm256_srli_epi64(_mm256_add_epi64(high_word(u, h), one), 1);
    const __m256i v = _mm256_sub_epi64(_mm256_set1_epi64x(INT64_C(1) << 31), part);
    const __m256i rounded = _mm256_add_epi64(v, _mm256_sllv_epi64(one, n));
    const __m256i near = _mm256_cmpgt_epi64(_mm256_set1_epi64x(INT64_C(31) << 26), t);
    return _mm256_and_si256(near, _mm256_srlv_epi64(rounded, _mm256_add_epi64(n, one)));
}

/* floor(2^61 / d), 2^30 <= d <= 2^31. The quotient of doubles is not below that floor, and no more than
 * rounding above: to nearest it is the floor or one more, which the remainder tells. 2^52 more makes
 * an integer of a double's low bits, and of it a double. */
QFW_ALWAYS_INLINE __m256i reciprocals(__m256i d)
{
    const __m256d magic = _mm256_set1_pd(0x1p52);
    const __m256i magic_bits = _mm256_castpd_si256(magic);
    const __m256d real = _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(d, magic_bits)), magic);
    const __m256d quotient = _mm256_div_pd(_mm256_set1_pd(0x1p61), real);
    const __m256i r =
        _mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(quotient, magic)), magic_bits);
    const __m256i product = _mm256_mul_epu32(r, d);
    return _mm256_add_epi64(r, _mm256_cmpgt_epi64(product, _mm256_set1_epi64x(INT64_C(1) << 61)));
}

void qfw_squash_s32_avx2(const int32_t *m, const qfw_log2_scale *s, size_t n, qfw_squash kind,
                         int32_t *y)
{
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi64x(INT64_C(1) << 30);
    const __m256i more = _mm256_set1_epi64x(kind == QFW_TANH ? 1 : 0);
    const __m256i low = _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0);
    size_t i = 0;
    for (; n - i >= 4; i += 4) {
        const __m256i x =
            _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(const void *)(m + i)));
        const __m256i scale = _mm256_loadu_si256((const __m256i *)(const void *)(s + i));
        const __m256i minus = _mm256_cmpgt_epi64(zero, x);
        const __m256i size = _mm256_sub_epi64(_mm256_xor_si256(x, minus), minus);
        const __m256i e = powers(distances(size, scale, more));
        const __m256i r = reciprocals(_mm256_add_epi64(one, e));
        const __m256i half = _mm256_srli_epi64(_mm256_add_epi64(r, _mm256_set1_epi64x(1)), 1);
        const __m256i p = kind == QFW_TANH ? _mm256_sub_epi64(r, one) : half;
        const __m256i from = kind == QFW_TANH ? zero : one;
        const __m256i v = _mm256_blendv_epi8(p, _mm256_sub_epi64(from, p), minus);
        _mm_storeu_si128((__m128i *)(void *)(y + i),
                         _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(v, low)));
    }
    qfw_squash_s32_scalar(m + i, s + i, n - i, kind, y + i);
}

/* ---- floats ---- */

QFW_ALWAYS_INLINE __m256 times_plus(__m256 a, __m256 b, float c)
{
    return _mm256_add_ps(_mm256_mul_ps(a, b), _mm256_set1_ps(c)); /* two roundings */
}

/* qfw_exp_f32. */
QFW_ALWAYS_INLINE __m256 exps(__m256 x)
{
    const __m256 inside = _mm256_cmp_ps(x, _mm256_set1_ps(-88.0f), _CMP_GE_OQ);
    const __m256 top = _mm256_min_ps(x, _mm256_set1_ps(89.0f));
    const __m256 shifted = times_plus(top, _mm256_set1_ps(0x1.715476p+0f), 12582912.0f);
    const __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(12582912.0f));
    const __m256 r = _mm256_sub_ps(_mm256_sub_ps(top, _mm256_mul_ps(n, _mm256_set1_ps(0x1.63p-1f))),
                                   _mm256_mul_ps(n, _mm256_set1_ps(-0x1.bd0106p-13f)));
    __m256 p = times_plus(_mm256_set1_ps(0x1.6db446p-10f), r, 0x1.123b6ap-7f);
    p = times_plus(p, r, 0x1.55545ep-5f);
    p = times_plus(p, r, 0x1.55548ep-3f);
    p = times_plus(p, r, 0.5f);
    const __m256 sum = _mm256_add_ps(_mm256_mul_ps(p, _mm256_mul_ps(r, r)), r);
    const __m256i bits = _mm256_castps_si256(_mm256_add_ps(sum, _mm256_set1_ps(1.0f)));
    const __m256i raise =
        _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4B400000));
    const __m256i field = _mm256_add_epi32(_mm256_srli_epi32(bits, 23), raise);
    const __m256i value = _mm256_or_si256(_mm256_slli_epi32(field, 23),
                                          _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFF)));
    const __m256i high = _mm256_cmpgt_epi32(field, _mm256_set1_epi32(254));
    const __m256i some = _mm256_cmpgt_epi32(field, _mm256_setzero_si256());
    const __m256i held = _mm256_blendv_epi8(value, _mm256_set1_epi32(QFW_F32_INF), high);
    return _mm256_and_ps(inside, _mm256_castsi256_ps(_mm256_and_si256(some, held)));
}

/* qfw_div_f32 of numbers that are not negative. */
QFW_ALWAYS_INLINE __m256 quotients(__m256 a, __m256 b)
{
    const __m256 q = _mm256_div_ps(a, b);
    return _mm256_and_ps(q, _mm256_cmp_ps(q, _mm256_set1_ps(0x1p-126f), _CMP_GE_OQ));
}

QFW_ALWAYS_INLINE __m256 sigmoids(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    return quotients(one, _mm256_add_ps(one, exps(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)))));
}

QFW_ALWAYS_INLINE __m256 tanhs(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
    const __m256 size = _mm256_xor_ps(x, sign), z = _mm256_mul_ps(x, x);
    __m256 p = times_plus(_mm256_set1_ps(-0x1.75e1ccp-8f), z, 0x1.52269cp-6f);
    p = times_plus(p, z, -0x1.b83c5ap-5f);
    p = times_plus(p, z, 0x1.110726p-3f);
    p = times_plus(p, z, -0x1.555532p-2f);
    const __m256 near = _mm256_add_ps(_mm256_mul_ps(_mm256_mul_ps(x, z), p), x);
    const __m256 e = exps(_mm256_mul_ps(_mm256_set1_ps(-2.0f), size));
    const __m256 far = quotients(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
    const __m256 small = _mm256_cmp_ps(size, _mm256_set1_ps(0.625f), _CMP_LT_OQ);
    return _mm256_blendv_ps(_mm256_or_ps(far, sign), near, small);
}

void qfw_squash_f32_avx2(const float *x, size_t n, qfw_squash kind, float *y)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        _mm256_storeu_ps(y + i, kind == QFW_TANH ? tanhs(v) : sigmoids(v));
    }
    qfw_squash_f32_scalar(x + i, n - i, kind, y + i);
}
