/* affine_rows with AVX2: the bits of affine.c for float32 in the usual settings; the rest is handed
 * to affine.c.
 *
 * n stays an integral float: |qmin|, |qmax|, |zp| <= 2^22 make qmin - zp and qmax - zp exact
 * floats, so clamping n between them is the definition's clamp of n + zp, and (code - zp) is the
 * clamped n itself. */
#include "kernels/affine.h"

#include "base/layout.h"

#include <immintrin.h>

enum { EXACT = 1 << 22 };

/* Asks for memory this many floats ahead: it is read while the last ones are being worked on, also
 * across the pages where the CPU's own prefetching stops. An address past the end does no harm. */
enum { AHEAD = 512 };

static inline void prefetch(const float *x)
{
    _mm_prefetch((const char *)((uintptr_t)x + AHEAD * sizeof *x), _MM_HINT_T0);
}

static bool accepts(const qfw_affine *a, const qfw_affine_data *d, uint32_t max_zp)
{
    const int64_t row = a->layout.axis * a->layout.inner, run = qfw_run_length(&a->layout);
    const bool op = (a->op == QFW_QUANTIZE && (a->code == QFW_I8 || a->code == QFW_U8)) ||
                    a->op == QFW_FAKE_QUANTIZE ||
                    (a->op == QFW_FAKE_QUANTIZE_BACKWARD && (d == NULL || d->mask_in == NULL));
    const bool by_bytes = row % 8 == 0 && run % 8 == 0; /* each run's mask is whole bytes */
    return op && a->real == QFW_F32 && a->rounding != QFW_STOCHASTIC && max_zp <= EXACT &&
           a->qmin >= -EXACT && a->qmax <= EXACT && (run >= 8 || run == 1) &&
           (d == NULL || d->mask_out == NULL || by_bytes);
}

const char *qfw_affine_name_avx2(const qfw_affine *affine)
{
    return accepts(affine, NULL, 0) ? "affine_rows_avx2" : qfw_affine_name_scalar(affine);
}

/* Eight elements' parameters: one scale eight times, or eight scales. */
typedef struct {
    __m256 s, r, lo, hi;
    __m256i zp;
} lanes;

typedef struct {
    const qfw_affine *a;
    const float *x, *dy, *scale;
    const int32_t *zero_point;
    void *out;
    uint8_t *mask;
    __m256i most; /* the largest pattern of |x| and |dy| so far */
} job;

static inline lanes make_lanes(const qfw_affine *a, __m256 s, __m256i zp)
{
    const lanes k = {s, _mm256_div_ps(_mm256_set1_ps(1.0f), s),
                     _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_set1_epi32(a->qmin), zp)),
                     _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_set1_epi32(a->qmax), zp)), zp};
    return k;
}

static inline lanes splat(const job *j, int64_t scale)
{
    const int32_t zp = j->zero_point != NULL ? j->zero_point[scale] : 0;
    return make_lanes(j->a, _mm256_set1_ps(j->scale[scale]), _mm256_set1_epi32(zp));
}

static inline __m256 rounded(__m256 t, bool to_even)
{
    if (to_even) {
        return _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    /* towards zero, then one further where the exact fraction is 1/2 or more */
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 n = _mm256_round_ps(t, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __m256 far = _mm256_cmp_ps(_mm256_andnot_ps(sign, _mm256_sub_ps(t, n)),
                                     _mm256_set1_ps(0.5f), _CMP_GE_OQ);
    const __m256 one = _mm256_or_ps(_mm256_and_ps(t, sign), _mm256_set1_ps(1.0f));
    return _mm256_add_ps(n, _mm256_and_ps(far, one));
}

/* All ones where n + zp is in range. */
static inline __m256 passes(__m256 n, const lanes *k, bool strict)
{
    if (strict) {
        return _mm256_and_ps(_mm256_cmp_ps(n, k->lo, _CMP_GT_OQ),
                             _mm256_cmp_ps(n, k->hi, _CMP_LT_OQ));
    }
    return _mm256_and_ps(_mm256_cmp_ps(n, k->lo, _CMP_GE_OQ), _mm256_cmp_ps(n, k->hi, _CMP_LE_OQ));
}

static inline __m256 watch(job *j, __m256 v)
{
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7FFFFFFF));
    j->most = _mm256_max_epi32(j->most, bits);
    return v;
}

/* Eight elements from `at` on, of which `n` exist. */
static inline void eight(job *j, const lanes *k, int64_t at, size_t n)
{
    const bool to_even = j->a->rounding == QFW_HALF_EVEN, strict = j->a->in_range == QFW_STRICT;
    prefetch(j->x + at);
    const __m256i exist =
        _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256 x =
        watch(j, n == 8 ? _mm256_loadu_ps(j->x + at) : _mm256_maskload_ps(j->x + at, exist));
    const __m256 raw = rounded(_mm256_mul_ps(x, k->r), to_even);
    if (j->mask != NULL) {
        const int bits = _mm256_movemask_ps(passes(raw, k, strict));
        j->mask[at / 8] = (uint8_t)(bits & ((1 << n) - 1));
    }
    const __m256 c = _mm256_min_ps(_mm256_max_ps(raw, k->lo), k->hi);
    __m256 y = _mm256_mul_ps(_mm256_add_ps(c, _mm256_setzero_ps()), k->s); /* + 0 turns -0 into 0 */
    switch (j->a->op) {
    case QFW_QUANTIZE: {
        const __m256i code = _mm256_add_epi32(_mm256_cvtps_epi32(c), k->zp);
        const __m256i low = _mm256_shuffle_epi8(
            code, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0,
                                   4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
        const __m128i eight_bytes =
            _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
        uint8_t bytes[16];
        _mm_storeu_si128((__m128i *)(void *)bytes, eight_bytes);
        memcpy((uint8_t *)j->out + at, bytes, n);
        return;
    }
    case QFW_FAKE_QUANTIZE_BACKWARD: {
        const __m256 dy =
            watch(j, n == 8 ? _mm256_loadu_ps(j->dy + at) : _mm256_maskload_ps(j->dy + at, exist));
        y = _mm256_and_ps(dy, _mm256_or_ps(passes(raw, k, strict), _mm256_set1_ps(-0.0f)));
        break;
    }
    default:
        break;
    }
    if (n == 8) {
        _mm256_storeu_ps((float *)j->out + at, y);
    } else {
        _mm256_maskstore_ps((float *)j->out + at, exist, y);
    }
}

/* A run with one scale. */
static void one_scale(job *j, int64_t scale, int64_t first, int64_t n)
{
    const lanes k = splat(j, scale);
    int64_t i = 0;
    for (; n - i >= 8; i += 8) {
        eight(j, &k, first + i, 8);
    }
    if (i < n) {
        eight(j, &k, first + i, (size_t)(n - i));
    }
}

/* A run in which each element has a scale of its own. */
static void own_scales(job *j, int64_t scale, int64_t first, int64_t n)
{
    int64_t i = 0;
    for (; n - i >= 8; i += 8) {
        const __m256i zp =
            j->zero_point != NULL
                ? _mm256_loadu_si256((const __m256i *)(const void *)(j->zero_point + scale + i))
                : _mm256_setzero_si256();
        const lanes k = make_lanes(j->a, _mm256_loadu_ps(j->scale + scale + i), zp);
        eight(j, &k, first + i, 8);
    }
    for (; i < n; i++) {
        const lanes k = splat(j, scale + i);
        eight(j, &k, first + i, 1);
    }
}

qfw_status qfw_affine_rows_avx2(const qfw_affine *affine, const qfw_affine_data *data,
                                uint32_t max_zp)
{
    if (!accepts(affine, data, max_zp)) {
        return qfw_affine_rows_scalar(affine, data, max_zp);
    }
    const qfw_layout *l = &affine->layout;
    const int64_t row = l->axis * l->inner, run = qfw_run_length(l), groups = qfw_groups(l);
    job j = {affine,           data->x,   data->dy,       data->scale,
             data->zero_point, data->out, data->mask_out, _mm256_setzero_si256()};
    for (int64_t o = 0; o < l->outer; o++) {
        const int64_t scale = l->shared != 0 ? 0 : o * groups, first = o * row;
        if (run == 1) {
            own_scales(&j, scale, first, row);
            continue;
        }
        for (int64_t g = 0; g < groups; g++) {
            const int64_t left = row - g * run;
            one_scale(&j, scale + g, first + g * run, left < run ? left : run);
        }
    }
    const __m256i limit = _mm256_set1_epi32(QFW_F32_INF - 1);
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(j.most, limit)) != 0 ? QFW_E_NONFINITE : QFW_OK;
}
