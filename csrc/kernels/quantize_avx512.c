/* Floats to int8 with AVX-512, to the nearest: the bits of quantize.c by the argument of
 * quantize_avx2.c, sixteen at a time. Short runs have their scales found sixteen at a time too. */
#include "kernels/avx2.h"

enum {
    TOGETHER = 2, /* vectors; a loop over one has twice the branches */
    RUNS = 16,    /* whose scales are found together */
    SHORT = 256   /* so many of them stay in the first cache while they are read twice */
};

typedef struct {
    __m512 s, r, half;
    float q;
    bool to_even, held; /* held: codes may be beyond q, and are counted */
} rule512;

/* Right everywhere: also where the remainder is s/2 or more. What is beyond every code stays so and
 * fits int32. */
static __attribute__((noinline)) __m512i exact(__m512 x, const rule512 *k)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    const __m512 top = _mm512_set1_ps(0x1p17f), none = _mm512_setzero_ps();
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, k->r), NEAREST);
    const __m512 rest = _mm512_fnmadd_ps(n, k->s, x), size = _mm512_abs_ps(rest);
    const __mmask16 tie = _mm512_cmp_ps_mask(size, k->half, _CMP_EQ_OQ);
    const __mmask16 beyond = _mm512_cmp_ps_mask(size, k->half, _CMP_GT_OQ);
    const __mmask16 odd = _mm512_test_epi32_mask(_mm512_cvtps_epi32(n),
                                                 _mm512_set1_epi32(1)); /* of a tie: n is odd */
    const __mmask16 away = (__mmask16)~_mm512_movepi32_mask(
        _mm512_castps_si512(_mm512_xor_ps(rest, x))); /* the remainder's sign is x's */
    const __mmask16 step = (__mmask16)(beyond | (tie & (k->to_even ? odd : away)));
    const __mmask16 down = _mm512_movepi32_mask(_mm512_castps_si512(rest));
    const __m512 one = _mm512_mask_blend_ps(down, _mm512_set1_ps(1.0f), _mm512_set1_ps(-1.0f));
    const __m512 near = _mm512_mask_add_ps(n, step, n, one);
    return _mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(near, top), _mm512_sub_ps(none, top)));
}

/* Codes, clamped and counted where they may be beyond q. */
QFW_ALWAYS_INLINE __m128i bytes_of(__m512i n, const rule512 *k, uint64_t *saturated)
{
    if (k->held) {
        const __m512i q = _mm512_set1_epi32((int32_t)k->q);
        const __m512i least = _mm512_sub_epi32(_mm512_setzero_si512(), q);
        const __m512i code = _mm512_max_epi32(_mm512_min_epi32(n, q), least);
        *saturated += (uint64_t)__builtin_popcount(_mm512_cmpneq_epi32_mask(code, n));
        n = code;
    }
    return _mm512_cvtepi32_epi8(n);
}

/* Right where |remainder| < s/2; `worst` collects the remainders. Beyond int32 the conversion gives
 * -2^31, whose remainder is huge. */
QFW_ALWAYS_INLINE __m512i nearest(__m512 x, const rule512 *k, __m512 *worst)
{
    const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(x, k->r));
    const __m512 rest = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(n), k->s, x);
    *worst = _mm512_max_ps(*worst, _mm512_abs_ps(rest));
    return n;
}

/* `many` times sixteen floats, a constant at each call. */
QFW_ALWAYS_INLINE void encode(const float *x, const int many, const rule512 *k, int8_t *codes,
                              uint64_t *saturated)
{
    __m512 worst = _mm512_setzero_ps();
    __m512i n[TOGETHER];
    for (int j = 0; j < many; j++) {
        n[j] = nearest(_mm512_loadu_ps(x + 16 * j), k, &worst);
    }
    if (__builtin_expect(_mm512_cmp_ps_mask(worst, k->half, _CMP_GE_OQ) != 0, 0)) {
        for (int j = 0; j < many; j++) {
            n[j] = exact(_mm512_loadu_ps(x + 16 * j), k);
        }
    }
    for (int j = 0; j < many; j++) {
        _mm_storeu_si128((__m128i *)(void *)(codes + 16 * j), bytes_of(n[j], k, saturated));
    }
}

QFW_ALWAYS_INLINE void encode_run(const float *x, size_t n, const rule512 *how, int8_t *codes,
                                  uint64_t *saturated)
{
    const rule512 own = *how, *k = &own; /* a copy, which nothing that is written can change */
    size_t i = 0;
    for (; n - i >= 16 * TOGETHER; i += 16 * TOGETHER) {
        encode(x + i, TOGETHER, k, codes + i, saturated);
    }
    for (; n - i >= 16; i += 16) {
        encode(x + i, 1, k, codes + i, saturated);
    }
    if (i < n) { /* the rest are zeros */
        const __mmask16 there = (__mmask16)(0xFFFFu >> (16 - (n - i)));
        const __m512i code = exact(_mm512_maskz_loadu_ps(there, x + i), k);
        _mm_mask_storeu_epi8(codes + i, there, bytes_of(code, k, saturated));
    }
}

/* Patterns without their signs, as int32. */
QFW_ALWAYS_INLINE __m512i magnitudes(const float *x, __mmask16 there)
{
    return _mm512_and_si512(_mm512_set1_epi32(INT32_MAX), _mm512_maskz_loadu_epi32(there, x));
}

QFW_ALWAYS_INLINE __m512i largest_each(const float *x, size_t n)
{
    __m512i most = _mm512_setzero_si512();
    size_t i = 0;
    for (; n - i >= 16 * TOGETHER; i += 16 * TOGETHER) {
        for (size_t j = 0; j < TOGETHER; j++) {
            QFW_PREFETCH(x + i + 16 * j);
            most = _mm512_max_epi32(most, magnitudes(x + i + 16 * j, 0xFFFF));
        }
    }
    for (; n - i >= 16; i += 16) {
        QFW_PREFETCH(x + i);
        most = _mm512_max_epi32(most, magnitudes(x + i, 0xFFFF));
    }
    if (i < n) {
        const __mmask16 there = (__mmask16)(0xFFFFu >> (16 - (n - i)));
        most = _mm512_max_epi32(most, magnitudes(x + i, there));
    }
    return most;
}

/* The smallest floats >= most / q: the rounded quotient, one pattern up if its product with q falls
 * short (the FMA has the exact sign). */
QFW_ALWAYS_INLINE __m512 found_scales(__m512i most, float q, bool pow2)
{
    const __m512 top = _mm512_castsi512_ps(most), by = _mm512_set1_ps(q);
    const __m512 s = _mm512_div_ps(top, by), gap = _mm512_fmsub_ps(s, by, top);
    __m512i u =
        _mm512_add_epi32(_mm512_castps_si512(s), _mm512_srli_epi32(_mm512_castps_si512(gap), 31));
    if (pow2) {
        u = _mm512_and_si512(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFFFF)),
                             _mm512_set1_epi32((int32_t)0xFF800000u));
    }
    u = _mm512_max_epi32(u, _mm512_set1_epi32(QFW_F32_MIN_NORMAL));
    const __mmask16 zero = _mm512_testn_epi32_mask(most, most);
    return _mm512_mask_blend_ps(zero, _mm512_castsi512_ps(u), _mm512_set1_ps(1.0f));
}

static inline void set_scale(rule512 *k, float s, float r)
{
    k->s = _mm512_set1_ps(s);
    k->r = _mm512_set1_ps(r);
    k->half = _mm512_set1_ps(0.5f * s);
}

/* Lane i of the result is the largest lane of v[i]. */
QFW_ALWAYS_INLINE __m512i largest_of(const __m512i *v)
{
    __m512i two[8], four[4];
    for (int i = 0; i < 8; i++) {
        two[i] = _mm512_max_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                  _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    }
    for (int i = 0; i < 4; i++) {
        four[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(two[2 * i], two[2 * i + 1]),
                                   _mm512_unpackhi_epi64(two[2 * i], two[2 * i + 1]));
    }
    for (int i = 0; i < 2; i++) {
        two[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(four[2 * i], four[2 * i + 1], 0x44),
                                  _mm512_shuffle_i32x4(four[2 * i], four[2 * i + 1], 0xEE));
    }
    return _mm512_max_epi32(_mm512_shuffle_i32x4(two[0], two[1], 0x88),
                            _mm512_shuffle_i32x4(two[0], two[1], 0xDD));
}

/* Sixteen whole runs whose scales are found; false: one is out of the ordinary, and nothing was
 * done. */
QFW_ALWAYS_INLINE bool encode_runs(const float *x, size_t run, rule512 *k, bool pow2, float *scale,
                                   int8_t *codes)
{
    const __m512 least = _mm512_set1_ps(QFW_REACH_MIN), greatest = _mm512_set1_ps(QFW_REACH_MAX);
    __m512i each[RUNS];
    float r[RUNS];
    uint64_t none = 0;
    for (size_t j = 0; j < RUNS; j++) {
        each[j] = largest_each(x + j * run, run);
    }
    const __m512i most = largest_of(each);
    const __m512 s = found_scales(most, k->q, pow2);
    const __mmask16 good =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(s, least, _CMP_GE_OQ), s, greatest, _CMP_LE_OQ);
    if (good != 0xFFFF || _mm512_cmpge_epi32_mask(most, _mm512_set1_epi32(QFW_F32_INF)) != 0) {
        return false;
    }
    _mm512_storeu_ps(scale, s);
    _mm512_storeu_ps(r, _mm512_div_ps(_mm512_set1_ps(1.0f), s));
    for (size_t j = 0; j < RUNS; j++) {
        set_scale(k, scale[j], r[j]);
        encode_run(x + j * run, run, k, codes + j * run, &none);
    }
    return true;
}

/* One run. */
static qfw_status encode_one(const float *x, size_t n, rule512 *k, const qfw_row_encoding *how,
                             float *scale, int8_t *codes, uint64_t *saturated)
{
    const int32_t most = _mm512_reduce_max_epi32(largest_each(x, n));
    if (most >= QFW_F32_INF) {
        return QFW_E_NONFINITE;
    }
    if (how->dynamic) {
        *scale = _mm512_cvtss_f32(found_scales(_mm512_set1_epi32(most), k->q, how->pow2));
    }
    if (!qfw_in_reach(*scale)) {
        return qfw_quantize_s8_scalar(x, n, n, how, scale, codes, saturated);
    }
    const __m512 s = _mm512_set1_ps(*scale);
    set_scale(k, *scale, _mm512_cvtss_f32(_mm512_div_ps(_mm512_set1_ps(1.0f), s)));
    encode_run(x, n, k, codes, saturated);
    return QFW_OK;
}

qfw_status qfw_quantize_s8_avx512(const float *x, size_t n, size_t run, const qfw_row_encoding *how,
                                  float *scale, int8_t *codes, uint64_t *saturated)
{
    if (how->rounding == QFW_STOCHASTIC || run < 8) {
        return qfw_quantize_s8_scalar(x, n, run, how, scale, codes, saturated);
    }
    rule512 k;
    k.q = (float)how->q;
    k.to_even = how->rounding == QFW_HALF_EVEN;
    k.held = !how->dynamic; /* a scale that was found holds them */
    const size_t many = RUNS * run;
    size_t i = 0;
    while (i < n) {
        if (how->dynamic && run <= SHORT && n - i >= many &&
            encode_runs(x + i, run, &k, how->pow2, scale, codes + i)) {
            scale += RUNS;
            i += many;
            continue;
        }
        const size_t count = n - i < run ? n - i : run;
        QFW_TRY(encode_one(x + i, count, &k, how, scale, codes + i, saturated));
        scale++;
        i += count;
    }
    return QFW_OK;
}

/* ---- extents ---- */

typedef struct {
    __m512i up, down;
} extents;

QFW_ALWAYS_INLINE void extend(const float *x, __mmask16 there, extents *e)
{
    QFW_PREFETCH(x);
    const __m512i bits = _mm512_maskz_loadu_epi32(there, x);
    const __m512i negated = _mm512_xor_si512(bits, _mm512_set1_epi32(INT32_MIN));
    e->up = _mm512_mask_max_epi32(e->up, there, e->up, bits);
    e->down = _mm512_mask_max_epi32(e->down, there, e->down, negated);
}

/* So many are not in a core's caches, and memory gives more where it is read in several places. */
enum { STREAMS = 4, MANY = 1 << 18 };

/* From a line on: loads that are in two lines take twice as long. */
void qfw_extent_f32_avx512(const float *x, size_t n, int32_t *hi, int32_t *lo)
{
    extents e = {_mm512_set1_epi32(*hi), _mm512_set1_epi32(*lo)};
    const size_t before = (64 - (uintptr_t)x % 64) % 64 / 4, head = n >= MANY ? before : 0;
    const size_t part = n >= MANY ? (n - head) / STREAMS / 16 * 16 : 0;
    extend(x, (__mmask16)((1u << head) - 1), &e);
    x += head;
    n -= head;
    for (size_t i = 0; i < part; i += 16) {
        for (size_t k = 0; k < STREAMS; k++) {
            extend(x + k * part + i, 0xFFFF, &e);
        }
    }
    size_t i = STREAMS * part;
    for (; n - i >= 16; i += 16) {
        extend(x + i, 0xFFFF, &e);
    }
    if (i < n) {
        extend(x + i, (__mmask16)(0xFFFFu >> (16 - (n - i))), &e);
    }
    *hi = _mm512_reduce_max_epi32(e.up);
    *lo = _mm512_reduce_max_epi32(e.down);
}
