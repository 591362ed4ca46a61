/* affine_rows with AVX-512: float32 to int8 and uint8 codes, sixteen at a time, the quotients of sixteen
 * scales at once; the rest is handed to affine_avx2.c, which says why the bits are those of affine.c. */
#include "kernels/affine.h"

#include "base/layout.h"
#include "kernels/avx2.h"

enum { EXACT = 1 << 22, SCALES = 16 };

static bool accepts(const qfw_affine *a, const qfw_affine_data *d, uint32_t max_zp)
{
    return a->op == QFW_QUANTIZE && a->real == QFW_F32 && a->rounding != QFW_STOCHASTIC &&
           (a->code == QFW_I8 || a->code == QFW_U8) && d->mask_out == NULL &&
           qfw_run_length(&a->layout) >= 16 && max_zp <= EXACT && a->qmin >= -EXACT &&
           a->qmax <= EXACT;
}

const char *qfw_affine_name_avx512(const qfw_affine *affine, const qfw_affine_data *data,
                                   uint32_t max_zp)
{
    return accepts(affine, data, max_zp) ? "affine_rows_avx512"
                                         : qfw_affine_name_avx2(affine, data, max_zp);
}

/* Of sixteen scales, and of one. */
typedef struct {
    float r[SCALES], lo[SCALES], hi[SCALES];
    int32_t zp[SCALES];
} points;

typedef struct {
    __m512 r, lo, hi;
    __m512i zp;
} point;

/* Scales `first` .. first + n - 1, n <= 16. */
static inline void find_points(const qfw_affine *a, const qfw_affine_data *d, int64_t first,
                               int64_t n, points *p)
{
    const __mmask16 there = (__mmask16)(0xFFFFu >> (SCALES - n));
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 s = _mm512_mask_loadu_ps(one, there, (const float *)d->scale + first);
    const __m512i zp = d->zero_point == NULL
                           ? _mm512_setzero_si512()
                           : _mm512_maskz_loadu_epi32(there, d->zero_point + first);
    const __m512i lo = _mm512_sub_epi32(_mm512_set1_epi32(a->qmin), zp);
    const __m512i hi = _mm512_sub_epi32(_mm512_set1_epi32(a->qmax), zp);
    _mm512_storeu_ps(p->r, _mm512_div_ps(one, s));
    _mm512_storeu_ps(p->lo, _mm512_cvtepi32_ps(lo));
    _mm512_storeu_ps(p->hi, _mm512_cvtepi32_ps(hi));
    _mm512_storeu_si512(p->zp, zp);
}

static inline point point_of(const points *p, int64_t i)
{
    const point of = {_mm512_set1_ps(p->r[i]), _mm512_set1_ps(p->lo[i]), _mm512_set1_ps(p->hi[i]),
                      _mm512_set1_epi32(p->zp[i])};
    return of;
}

QFW_ALWAYS_INLINE __m512 rounded(__m512 t, bool to_even)
{
    enum { QUIET = _MM_FROUND_NO_EXC };
    if (to_even) {
        return _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | QUIET);
    }
    /* towards zero, then one further where the exact fraction is 1/2 or more */
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_ZERO | QUIET),
                 one = _mm512_set1_ps(1.0f);
    const __m512 half = _mm512_set1_ps(0.5f), fraction = _mm512_abs_ps(_mm512_sub_ps(t, n));
    const __mmask16 far = _mm512_cmp_ps_mask(fraction, half, _CMP_GE_OQ);
    const __mmask16 down = _mm512_movepi32_mask(_mm512_castps_si512(t));
    return _mm512_mask_add_ps(n, far, n, _mm512_mask_sub_ps(one, down, _mm512_setzero_ps(), one));
}

/* Up to sixteen; the largest pattern of |x| so far. */
QFW_ALWAYS_INLINE __m512i encode(const float *from, __mmask16 there, const point *p, bool to_even,
                                 uint8_t *codes, __m512i most)
{
    QFW_PREFETCH(from);
    const __m512 x = _mm512_maskz_loadu_ps(there, from);
    const __m512 raw = rounded(_mm512_mul_ps(x, p->r), to_even);
    const __m512 c = _mm512_min_ps(_mm512_max_ps(raw, p->lo), p->hi);
    const __m512i code = _mm512_add_epi32(_mm512_cvtps_epi32(c), p->zp);
    if (there == 0xFFFF) { /* known where it is called: stores by a mask are slow on some cores */
        _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(code));
    } else {
        _mm_mask_storeu_epi8(codes, there, _mm512_cvtepi32_epi8(code));
    }
    return _mm512_max_epi32(most, _mm512_castps_si512(_mm512_abs_ps(x)));
}

QFW_ALWAYS_INLINE __m512i encode_run(const float *x, size_t n, const point *p, bool to_even,
                                     uint8_t *codes, __m512i most)
{
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        most = encode(x + i, 0xFFFF, p, to_even, codes + i, most);
        most = encode(x + i + 16, 0xFFFF, p, to_even, codes + i + 16, most);
    }
    for (; n - i >= 16; i += 16) {
        most = encode(x + i, 0xFFFF, p, to_even, codes + i, most);
    }
    if (i < n) {
        const __mmask16 there = (__mmask16)(0xFFFFu >> (16 - (n - i)));
        most = encode(x + i, there, p, to_even, codes + i, most);
    }
    return most;
}

/* A row of groups; the first one's scale is number `scale`. `to_even` is a constant at each call. */
QFW_ALWAYS_INLINE __m512i encode_row(const qfw_affine *a, const qfw_affine_data *d, int64_t first,
                                     int64_t scale, const bool to_even, __m512i most)
{
    const int64_t row = a->layout.axis * a->layout.inner, run = qfw_run_length(&a->layout);
    const int64_t groups = qfw_groups(&a->layout);
    const float *x = (const float *)d->x + first;
    uint8_t *codes = (uint8_t *)d->out + first;
    points sixteen;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t left = row - g * run, some = groups - g;
        if (g % SCALES == 0) {
            find_points(a, d, scale + g, some < SCALES ? some : SCALES, &sixteen);
        }
        const point p = point_of(&sixteen, g % SCALES);
        const size_t n = (size_t)(left < run ? left : run);
        most = encode_run(x + g * run, n, &p, to_even, codes + g * run, most);
    }
    return most;
}

qfw_status qfw_affine_rows_avx512(const qfw_affine *affine, const qfw_affine_data *data,
                                  uint32_t max_zp)
{
    if (!accepts(affine, data, max_zp)) {
        return qfw_affine_rows_avx2(affine, data, max_zp);
    }
    const qfw_affine a = *affine; /* copies, which nothing that is written can change */
    const qfw_affine_data d = *data;
    const int64_t row = a.layout.axis * a.layout.inner, groups = qfw_groups(&a.layout);
    __m512i most = _mm512_setzero_si512();
    for (int64_t o = 0; o < a.layout.outer; o++) {
        const int64_t scale = a.layout.shared != 0 ? 0 : o * groups;
        most = a.rounding == QFW_HALF_EVEN ? encode_row(&a, &d, o * row, scale, true, most)
                                           : encode_row(&a, &d, o * row, scale, false, most);
    }
    return _mm512_reduce_max_epi32(most) < QFW_F32_INF ? QFW_OK : QFW_E_NONFINITE;
}
