/* Codes in int8 that move by floats, a block of 32 at a time.
 *
 * floor(d / s + u) by t = d * (1 / s) in floats, where |t| <= 64: both roundings of t are below
 * 2^-23 of it together, u is cut to 24 bits and the sum is rounded below 2^-18, less than 2^-16 in
 * all. A sum that is further than that from an integer has its floor; what is not goes by the
 * definition, the whole block. */
#include "kernels/words_avx2.h"

enum { BLOCK = 32 };

typedef struct {
    __m256 recip;
    __m256i least; /* -q, q being 127 */
} by;

/* The floors of eight sums; *ok: whether they are right. */
QFW_ALWAYS_INLINE __m256i floors(const float *d, __m256i u, __m256 recip, __m256 *ok)
{
    const __m256 near = _mm256_set1_ps(0x1p-15f), far = _mm256_set1_ps(1.0f - 0x1p-15f);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 t = _mm256_mul_ps(_mm256_loadu_ps(d), recip);
    const __m256 draw = _mm256_cvtepi32_ps(_mm256_srli_epi32(u, 8));
    const __m256 sum = _mm256_add_ps(t, _mm256_mul_ps(draw, _mm256_set1_ps(0x1p-24f)));
    const __m256 below = _mm256_floor_ps(sum), rest = _mm256_sub_ps(sum, below);
    const __m256 inside =
        _mm256_and_ps(_mm256_cmp_ps(rest, near, _CMP_GE_OQ), _mm256_cmp_ps(rest, far, _CMP_LE_OQ));
    const __m256 small =
        _mm256_cmp_ps(_mm256_andnot_ps(sign, t), _mm256_set1_ps(64.0f), _CMP_LE_OQ);
    *ok = _mm256_and_ps(*ok, _mm256_and_ps(inside, small));
    return _mm256_cvttps_epi32(below);
}

/* A whole block, `at` being a multiple of 32. */
QFW_ALWAYS_INLINE uint32_t move_block(int8_t *m, const float *d, const by *k, float s,
                                      const qfw_key *key, uint64_t at, pairs *drawn)
{
    const __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)m);
    const __m256 any = _mm256_or_ps(_mm256_or_ps(_mm256_loadu_ps(d), _mm256_loadu_ps(d + 8)),
                                    _mm256_or_ps(_mm256_loadu_ps(d + 16), _mm256_loadu_ps(d + 24)));
    if (_mm256_testz_si256(_mm256_castps_si256(any), _mm256_set1_epi32(INT32_MAX))) {
        _mm256_storeu_si256((__m256i *)(void *)m, _mm256_max_epi8(codes, k->least));
        return 0; /* floor(0 + u) is 0 */
    }
    const block b = block_of(key, at, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), drawn);
    const __m256i step = _mm256_slli_epi32(b.step, 3), u1 = _mm256_add_epi32(b.first, step);
    const __m256i u2 = _mm256_add_epi32(u1, step), u3 = _mm256_add_epi32(u2, step);
    __m256 ok = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    const __m256i n0 = floors(d, b.first, k->recip, &ok), n1 = floors(d + 8, u1, k->recip, &ok);
    const __m256i n2 = floors(d + 16, u2, k->recip, &ok), n3 = floors(d + 24, u3, k->recip, &ok);
    if (_mm256_movemask_ps(ok) != 0xFF) {
        return qfw_less_s8_scalar(m, d, BLOCK, s, 127, QFW_STOCHASTIC, key, at);
    }
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i n = _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(n0, n1), _mm256_packs_epi32(n2, n3)), order);
    const __m256i less = _mm256_subs_epi8(codes, n), wrapped = _mm256_sub_epi8(codes, n);
    const __m256i lost = _mm256_xor_si256(less, wrapped);
    _mm256_storeu_si256((__m256i *)(void *)m, _mm256_max_epi8(less, k->least));
    return _mm256_testz_si256(lost, lost) ? 0u : 1u;
}

/* Less than a block: the elements before and after are zeros, which stay. */
static uint32_t move_part(int8_t *m, const float *d, size_t n, const by *k, float s,
                          const qfw_key *key, uint64_t at, pairs *drawn)
{
    const size_t from = (size_t)(at & 31u);
    int8_t part_m[BLOCK] = {0};
    float part_d[BLOCK] = {0};
    memcpy(part_m + from, m, n);
    memcpy(part_d + from, d, n * sizeof *d);
    const uint32_t out = move_block(part_m, part_d, k, s, key, at - from, drawn);
    memcpy(m, part_m + from, n);
    return out;
}

uint32_t qfw_less_s8_avx2(int8_t *m, const float *d, size_t n, float s, int32_t q,
                          qfw_rounding rounding, const qfw_key *key, uint64_t first)
{
    if (rounding != QFW_STOCHASTIC || q != 127 || s < 0x1p-120f || s > 0x1p120f || n == 0) {
        return qfw_less_s8_scalar(m, d, n, s, q, rounding, key, first);
    }
    const by k = {_mm256_broadcastss_ps(_mm_div_ss(_mm_set_ss(1.0f), _mm_set_ss(s))),
                  _mm256_set1_epi8(-127)};
    pairs drawn;
    uint32_t out = 0;
    draw_pairs(key, first >> 5, &drawn);
    for (size_t i = 0, count; i < n; i += count) {
        const size_t whole = BLOCK - (size_t)((first + i) & 31u);
        count = n - i < whole ? n - i : whole;
        out |= count == BLOCK ? move_block(m + i, d + i, &k, s, key, first + i, &drawn)
                              : move_part(m + i, d + i, count, &k, s, key, first + i, &drawn);
    }
    return out;
}
