/* affine_rows with AVX2: the bits of affine.c for float32 in the usual settings; the rest is handed
 * to affine.c.
 *
 * n stays an integral float: |qmin|, |qmax|, |zp| <= 2^22 make qmin - zp and qmax - zp exact
 * floats, so clamping n between them is the definition's clamp of n + zp, and (code - zp) is the
 * clamped n itself. */
#include "kernels/affine.h"

#include "base/layout.h"
#include "kernels/avx2.h"

enum {
    EXACT = 1 << 22,
};

static bool accepts(const qfw_affine *a, const qfw_affine_data *d, uint32_t max_zp)
{
    const int64_t row = a->layout.axis * a->layout.inner, run = qfw_run_length(&a->layout);
    const bool codes = a->op == QFW_QUANTIZE || a->op == QFW_DEQUANTIZE;
    const bool masks = d->mask_in != NULL || d->mask_out != NULL;
    /* each run's mask begins a byte */
    const bool by_bytes = (a->layout.outer == 1 || row % 8 == 0) && (run % 8 == 0 || run == row);
    return a->real == QFW_F32 && a->rounding != QFW_STOCHASTIC && (run >= 8 || run == 1) &&
           (!codes || a->code == QFW_I8 || a->code == QFW_U8) && (!masks || by_bytes) &&
           max_zp <= EXACT && a->qmin >= -EXACT && a->qmax <= EXACT;
}

const char *qfw_affine_name_avx2(const qfw_affine *affine, const qfw_affine_data *data,
                                 uint32_t max_zp)
{
    return accepts(affine, data, max_zp) ? "affine_rows_avx2"
                                         : qfw_affine_name_scalar(affine, data, max_zp);
}

/* Eight elements' parameters: one scale eight times, or eight scales. */
typedef struct {
    __m256 s, r, lo, hi;
    __m256i zp;
} lanes;

/* What the loops read, by value: a local copy stays in registers whatever is written. */
typedef struct {
    qfw_affine a;
    qfw_affine_data d;
    bool stream;  /* floats are written past the caches */
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
    const int32_t zp = j->d.zero_point != NULL ? j->d.zero_point[scale] : 0;
    /* a mask alone needs no scale */
    const float s = j->d.scale != NULL ? ((const float *)j->d.scale)[scale] : 1.0f;
    const __m128 r = _mm_div_ss(_mm_set_ss(1.0f), _mm_set_ss(s));
    const lanes k = {_mm256_set1_ps(s), _mm256_broadcastss_ps(r),
                     _mm256_set1_ps((float)(j->a.qmin - zp)),
                     _mm256_set1_ps((float)(j->a.qmax - zp)), _mm256_set1_epi32(zp)};
    return k;
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

/* n <= 8 floats, the rest 0. */
static inline __m256i existing(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

QFW_ALWAYS_INLINE __m256 load(job *j, const void *from, int64_t at, size_t n)
{
    const float *x = (const float *)from + at;
    QFW_PREFETCH(x);
    const __m256 v = n == 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, existing(n));
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    j->most = _mm256_max_epi32(j->most, _mm256_and_si256(_mm256_castps_si256(v), magnitude));
    return v;
}

QFW_ALWAYS_INLINE void store(const job *j, int64_t at, size_t n, __m256 y)
{
    float *out = (float *)j->d.out + at;
    if (n == 8 && j->stream) { /* in halves: arrays are 16-byte aligned, not more */
        _mm_stream_ps(out, _mm256_castps256_ps128(y));
        _mm_stream_ps(out + 4, _mm256_extractf128_ps(y, 1));
    } else if (n == 8) {
        _mm256_storeu_ps(out, y);
    } else {
        _mm256_maskstore_ps(out, existing(n), y);
    }
}

QFW_ALWAYS_INLINE void store_codes(const job *j, int64_t at, size_t n, __m256i code)
{
    const __m256i first_bytes = _mm256_setr_epi8(
        0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, /* of each half */
        0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i low = _mm256_shuffle_epi8(code, first_bytes);
    uint8_t bytes[16];
    _mm_storeu_si128(
        (__m128i *)(void *)bytes,
        _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
    memcpy((uint8_t *)j->d.out + at, bytes, n);
}

/* quantize, fake_quantize */
QFW_ALWAYS_INLINE void forward(job *j, const lanes *k, int64_t at, size_t n)
{
    const __m256 x = load(j, j->d.x, at, n);
    const __m256 raw = rounded(_mm256_mul_ps(x, k->r), j->a.rounding == QFW_HALF_EVEN);
    if (j->d.mask_out != NULL) {
        const __m256 in = passes(raw, k, j->a.in_range == QFW_STRICT);
        j->d.mask_out[at / 8] = (uint8_t)(_mm256_movemask_ps(in) & ((1 << n) - 1));
    }
    const __m256 c = _mm256_min_ps(_mm256_max_ps(raw, k->lo), k->hi);
    if (j->a.op == QFW_QUANTIZE) {
        store_codes(j, at, n, _mm256_add_epi32(_mm256_cvtps_epi32(c), k->zp));
    } else { /* + 0 turns -0 into 0 */
        store(j, at, n, _mm256_mul_ps(_mm256_add_ps(c, _mm256_setzero_ps()), k->s));
    }
}

QFW_ALWAYS_INLINE void dequantize(job *j, const lanes *k, int64_t at, size_t n)
{
    uint8_t bytes[16] = {0};
    memcpy(bytes, (const uint8_t *)j->d.x + at, n);
    const __m128i packed = _mm_loadl_epi64((const __m128i *)(const void *)bytes);
    const __m256i code =
        j->a.code == QFW_I8 ? _mm256_cvtepi8_epi32(packed) : _mm256_cvtepu8_epi32(packed);
    store(j, at, n, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(code, k->zp)), k->s));
}

/* All ones where the gradient passes: by the mask, or by the forward's own code. */
QFW_ALWAYS_INLINE __m256 open_lanes(job *j, const lanes *k, int64_t at, size_t n)
{
    if (j->d.mask_in != NULL) {
        const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        const __m256i bits = _mm256_and_si256(_mm256_set1_epi32(j->d.mask_in[at / 8]), bit);
        return _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, bit));
    }
    const __m256 x = load(j, j->d.x, at, n);
    const __m256 raw = rounded(_mm256_mul_ps(x, k->r), j->a.rounding == QFW_HALF_EVEN);
    return passes(raw, k, j->a.in_range == QFW_STRICT);
}

QFW_ALWAYS_INLINE void backward(job *j, const lanes *k, int64_t at, size_t n)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 dy = load(j, j->d.dy, at, n);
    if (j->a.op == QFW_DEQUANTIZE_BACKWARD) {
        store(j, at, n, _mm256_mul_ps(dy, k->s));
        return;
    }
    __m256 keep = open_lanes(j, k, at, n), dx = dy;
    if (j->a.op == QFW_QUANTIZE_BACKWARD) { /* what is not normal is 0, as in qfw_div_f32 */
        dx = _mm256_div_ps(dy, k->s);
        const __m256 size = _mm256_andnot_ps(sign, dx);
        keep = _mm256_and_ps(keep, _mm256_cmp_ps(size, _mm256_set1_ps(FLT_MIN), _CMP_GE_OQ));
    }
    store(j, at, n, _mm256_and_ps(dx, _mm256_or_ps(keep, sign)));
}

QFW_ALWAYS_INLINE void eight(job *j, const lanes *k, int64_t at, size_t n)
{
    switch (j->a.op) {
    case QFW_QUANTIZE:
    case QFW_FAKE_QUANTIZE:
        forward(j, k, at, n);
        break;
    case QFW_DEQUANTIZE:
        dequantize(j, k, at, n);
        break;
    default:
        backward(j, k, at, n);
        break;
    }
}

/* A run with one scale. */
QFW_ALWAYS_INLINE void one_scale(job *j, int64_t scale, int64_t first, int64_t n)
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
QFW_ALWAYS_INLINE void own_scales(job *j, int64_t scale, int64_t first, int64_t n)
{
    int64_t i = 0;
    for (; n - i >= 8; i += 8) {
        const __m256i zp =
            j->d.zero_point != NULL
                ? _mm256_loadu_si256((const __m256i *)(const void *)(j->d.zero_point + scale + i))
                : _mm256_setzero_si256();
        const lanes k =
            make_lanes(&j->a, _mm256_loadu_ps(((const float *)j->d.scale) + scale + i), zp);
        eight(j, &k, first + i, 8);
    }
    for (; i < n; i++) {
        const lanes k = splat(j, scale + i);
        eight(j, &k, first + i, 1);
    }
}

/* `op` is a constant at each call, so each becomes loops of its own. */
QFW_ALWAYS_INLINE qfw_status rows_of(const qfw_affine *affine, const qfw_affine_data *data,
                                     int32_t op)
{
    const qfw_layout *l = &affine->layout;
    const int64_t row = l->axis * l->inner, run = qfw_run_length(l), groups = qfw_groups(l);
    const bool aligned = (uintptr_t)data->out % 16 == 0 && row % 4 == 0 && run % 4 == 0;
    job j = {*affine, *data, data->stream != 0 && aligned, _mm256_setzero_si256()};
    j.a.op = op;
    for (int64_t o = 0; o < l->outer; o++) {
        const int64_t scale = l->shared != 0 ? 0 : o * groups, first = o * row;
        if (run == 1 && data->scale != NULL) {
            own_scales(&j, scale, first, row);
            continue;
        }
        for (int64_t g = 0; g < groups; g++) {
            const int64_t left = row - g * run;
            one_scale(&j, scale + g, first + g * run, left < run ? left : run);
        }
    }
    _mm_sfence();
    const __m256i limit = _mm256_set1_epi32(QFW_F32_INF - 1);
    const bool finite = _mm256_movemask_epi8(_mm256_cmpgt_epi32(j.most, limit)) == 0;
    return finite ? QFW_OK : QFW_E_NONFINITE;
}

qfw_status qfw_affine_rows_avx2(const qfw_affine *affine, const qfw_affine_data *data,
                                uint32_t max_zp)
{
    if (!accepts(affine, data, max_zp)) {
        return qfw_affine_rows_scalar(affine, data, max_zp);
    }
    switch (affine->op) {
    case QFW_QUANTIZE:
        return rows_of(affine, data, QFW_QUANTIZE);
    case QFW_DEQUANTIZE:
        return rows_of(affine, data, QFW_DEQUANTIZE);
    case QFW_FAKE_QUANTIZE:
        return rows_of(affine, data, QFW_FAKE_QUANTIZE);
    case QFW_QUANTIZE_BACKWARD:
        return rows_of(affine, data, QFW_QUANTIZE_BACKWARD);
    case QFW_DEQUANTIZE_BACKWARD:
        return rows_of(affine, data, QFW_DEQUANTIZE_BACKWARD);
    default:
        return rows_of(affine, data, QFW_FAKE_QUANTIZE_BACKWARD);
    }
}
