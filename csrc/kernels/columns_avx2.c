/* Scales that are found, four at a time. */
#include "base/random.h"
#include "base/scale.h"
#include "kernels/avx2.h"
#include "kernels/kernels.h"

/* The products that doubles are for: over q below 2^45, of s_in's 24 bits and 21, or 27 where q has 6. */
enum { MOST = 1 << 21, MOST_BY_64 = 1 << 27 };

/* Four of scale(s_in, m, q), s_in being mant * power; *ok: those that are normal floats, or of 0.
 *
 * mant * m < 2^51 is exact, the quotient t < 2^45 rounded to 53 bits. What is above a number of 24 bits
 * is so by 1 / q of its last bit or of 1, at least 2^-7 >= 2^-52 t, so that a rounded quotient is on
 * such a number only if the quotient is: adding all but one of the bits below the 24th rounds it
 * up. */
QFW_ALWAYS_INLINE __m128 scales_4(__m256d mant, __m256d power, __m256d q, __m128i m, int *ok)
{
    const __m256i below = _mm256_set1_epi64x((INT64_C(1) << 29) - 1);
    const __m256d t = _mm256_div_pd(_mm256_mul_pd(mant, _mm256_cvtepi32_pd(m)), q);
    const __m256i up = _mm256_andnot_si256(below, _mm256_add_epi64(_mm256_castpd_si256(t), below));
    const __m256d s = _mm256_mul_pd(_mm256_castsi256_pd(up), power);
    const __m256d least = _mm256_set1_pd((double)FLT_MIN), most = _mm256_set1_pd((double)FLT_MAX);
    const __m256d normal =
        _mm256_and_pd(_mm256_cmp_pd(s, least, _CMP_GE_OQ), _mm256_cmp_pd(s, most, _CMP_LE_OQ));
    const __m128 none = _mm_castsi128_ps(_mm_cmpeq_epi32(m, _mm_setzero_si128()));
    *ok = _mm256_movemask_pd(normal) | _mm_movemask_ps(none);
    return _mm_blendv_ps(_mm256_cvtpd_ps(s), _mm_set1_ps(1.0f), none);
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
        const __m128i large =
            _mm_cmpeq_epi32(_mm_max_epu32(m, _mm_set1_epi32(q < 64 ? MOST : MOST_BY_64)), m);
        int ok;
        _mm_storeu_ps(scale + i, scales_4(mant, power, _mm256_set1_pd((double)q), m, &ok));
        if (_mm_movemask_epi8(large) != 0 || ok != 15) {
            qfw_scales_s32_scalar(s_in, most + i, 4, q, false, scale + i);
        }
    }
    qfw_scales_s32_scalar(s_in, most + i, n - i, q, pow2, scale + i);
}

/* Those of eight words, u + k step, that are as far from 0 and 2^32 as QFW_SURE_WORD. */
QFW_ALWAYS_INLINE int far_words(uint32_t u, uint32_t step)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_set1_epi32((int32_t)qfw_sub32(u, QFW_SURE_WORD));
    const __m256i x =
        _mm256_add_epi32(from, _mm256_mullo_epi32(_mm256_set1_epi32((int32_t)step), index));
    const __m256i inside = _mm256_set1_epi32(-2 * QFW_SURE_WORD - 1);
    const __m256i held = _mm256_cmpeq_epi32(_mm256_max_epu32(x, inside), inside);
    return _mm256_movemask_ps(_mm256_castsi256_ps(held));
}

/* The sums of one call. */
typedef struct {
    __m256d mant, power, by;
    __m256i most, top;
} sums;

/* Eight sums, their scales and codes; whether they are sure, but for words. */
QFW_ALWAYS_INLINE bool encode_8(__m256i m, const sums *x, __m256 *scale, __m128i *codes)
{
    const __m256 least = _mm256_set1_ps(FLT_MIN), end = _mm256_set1_ps(FLT_MAX);
    const __m256i size = _mm256_abs_epi32(m);
    const __m256i small = _mm256_cmpeq_epi32(_mm256_max_epu32(size, x->most), x->most);
    int lower, upper;
    const __m128 s0 = scales_4(x->mant, x->power, x->by, _mm256_castsi256_si128(size), &lower);
    const __m128 s1 = scales_4(x->mant, x->power, x->by, _mm256_extracti128_si256(size, 1), &upper);
    const __m256 s = _mm256_set_m128(s1, s0);
    const __m256 inside =
        _mm256_and_ps(_mm256_cmp_ps(s, least, _CMP_GT_OQ), _mm256_cmp_ps(s, end, _CMP_LT_OQ));
    const __m256i code = _mm256_sign_epi32(x->top, m);
    const __m128i halves =
        _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    *scale = s;
    *codes = _mm_packs_epi16(halves, halves);
    return _mm256_movemask_epi8(small) == -1 && (lower & upper) == 15 &&
           _mm256_movemask_ps(inside) == 0xFF;
}

size_t qfw_singles_s8_avx2(const int32_t *a, size_t n, float s_in, uint32_t q, const qfw_key *key,
                           uint64_t first, float *scale, int8_t *codes)
{
    const uint32_t word = qfw_bits_f32(s_in), e = (word >> 23) + 1023 - 150;
    const sums x = {_mm256_set1_pd((double)((word & 0x7FFFFFu) | 0x800000u)),
                    _mm256_set1_pd(qfw_from_bits_f64((uint64_t)e << 52)), _mm256_set1_pd((double)q),
                    _mm256_set1_epi32(QFW_SURE_SUM - 1), _mm256_set1_epi32((int32_t)q)};
    qfw_draw_pair d = {0, 0};
    size_t i = 0;
    for (size_t count; first % 8 == 0 && i < n; i += count) {
        int32_t few[8] = {0};
        float found[8];
        __m256 s;
        __m128i bytes;
        if (key != NULL && (i == 0 || (first + i) % 32 == 0)) {
            d = qfw_block_draw(key, first + i);
        }
        count = n - i < 8 ? n - i : 8;
        if (count < 8) { /* those beyond are 0 */
            memcpy(few, a + i, count * sizeof *few);
        }
        const __m256i m =
            _mm256_loadu_si256((const __m256i *)(const void *)(count < 8 ? few : a + i));
        const uint32_t at = (uint32_t)((first + i) & 31), u = qfw_add32(d.a, qfw_mul32(at, d.b));
        const int far = key == NULL ? 0xFF : far_words(u, d.b) | (0xFF << count);
        if (!encode_8(m, &x, &s, &bytes) || (far & 0xFF) != 0xFF) {
            break;
        }
        if (count == 8) {
            _mm256_storeu_ps(scale + i, s);
            _mm_storel_epi64((__m128i *)(void *)(codes + i), bytes);
        } else {
            const int64_t eight = _mm_cvtsi128_si64(bytes);
            _mm256_storeu_ps(found, s);
            memcpy(scale + i, found, count * sizeof *found);
            memcpy(codes + i, &eight, count);
        }
    }
    return i;
}

/* Eight products in floats, m below 2^31. */
QFW_ALWAYS_INLINE __m256 products_8(const float *scale, __m256i m)
{
    return _mm256_mul_ps(_mm256_loadu_ps(scale), _mm256_cvtepi32_ps(m));
}

QFW_ALWAYS_INLINE float largest_of(__m256 x)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

qfw_num qfw_largest_s32_avx2(const float *scale, const uint32_t *most, size_t n)
{
    if (n < 16) {
        return qfw_largest_s32_scalar(scale, most, n);
    }
    const size_t whole = n / 8 * 8;
    __m256 top = _mm256_setzero_ps();
    __m256i all = _mm256_setzero_si256();
    for (size_t i = 0; i < whole; i += 8) {
        const __m256i m = _mm256_loadu_si256((const __m256i *)(const void *)(most + i));
        all = _mm256_or_si256(all, m);
        top = _mm256_max_ps(top, products_8(scale + i, m));
    }
    if (_mm256_movemask_ps(_mm256_castsi256_ps(all)) != 0) {
        return qfw_largest_s32_scalar(scale, most, n);
    }
    qfw_num found = qfw_largest_s32_scalar(scale + whole, most + whole, n - whole);
    const __m256 near = _mm256_set1_ps(largest_of(top) * QFW_NEAR_LARGEST);
    for (size_t i = 0; i < whole; i += 8) {
        const __m256i m = _mm256_loadu_si256((const __m256i *)(const void *)(most + i));
        const __m256 is = _mm256_cmp_ps(products_8(scale + i, m), near, _CMP_GE_OQ);
        for (uint32_t at = (uint32_t)_mm256_movemask_ps(is); at != 0; at &= at - 1) {
            const size_t k = i + (size_t)__builtin_ctz(at);
            found = most[k] != 0 ? qfw_num_max(found, qfw_num_product(scale[k], most[k])) : found;
        }
    }
    return found;
}
