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
    const float *scale = (const float *)d->scale + first;
    const __m512 s = _mm512_mask_loadu_ps(one, there, scale);
    QFW_PREFETCH(scale);
    QFW_PREFETCH(d->zero_point != NULL ? (const float *)(const void *)(d->zero_point + first)
                                       : scale);
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

/* A half goes away from 0: towards it, then one further where the exact fraction is 1/2 or more. */
QFW_ALWAYS_INLINE __m512 rounded(__m512 t)
{
    enum { QUIET = _MM_FROUND_NO_EXC };
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_ZERO | QUIET),
                 one = _mm512_set1_ps(1.0f);
    const __m512 half = _mm512_set1_ps(0.5f), fraction = _mm512_abs_ps(_mm512_sub_ps(t, n));
    const __mmask16 far = _mm512_cmp_ps_mask(fraction, half, _CMP_GE_OQ);
    const __mmask16 down = _mm512_movepi32_mask(_mm512_castps_si512(t));
    return _mm512_mask_add_ps(n, far, n, _mm512_mask_sub_ps(one, down, _mm512_setzero_ps(), one));
}

/* The codes of sixteen. Where a half goes to the even one the conversion rounds: limits are
 * integers, so that a number may be held before as well as after. `bad` turns into NaNs at a NaN
 * or an infinity: what else is multiplied by 0 is 0. */
QFW_ALWAYS_INLINE __m512i codes_of(__m512 x, const point *p, bool to_even, __m512 *bad)
{
    const __m512 t = _mm512_mul_ps(x, p->r), raw = to_even ? t : rounded(t);
    const __m512 c = _mm512_min_ps(_mm512_max_ps(raw, p->lo), p->hi);
    *bad = _mm512_fmadd_ps(x, _mm512_setzero_ps(), *bad);
    return _mm512_add_epi32(_mm512_cvtps_epi32(c), p->zp);
}

/* Up to sixteen. */
QFW_ALWAYS_INLINE void encode(const float *from, __mmask16 there, const point *p, bool to_even,
                              uint8_t *codes, __m512 *bad)
{
    QFW_PREFETCH(from);
    const __m512i code = codes_of(_mm512_maskz_loadu_ps(there, from), p, to_even, bad);
    if (there == 0xFFFF) { /* known where it is called: stores by a mask are slow on some cores */
        _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(code));
    } else {
        _mm_mask_storeu_epi8(codes, there, _mm512_cvtepi32_epi8(code));
    }
}

/* What is further ahead than QFW_PREFETCH is there in time even where a page ends. */
enum { FURTHER = 4 * QFW_AHEAD };

/* `stream`: past the caches, in whole lines or in the quarters that arrays are aligned to. */
QFW_ALWAYS_INLINE void store_64(uint8_t *to, __m512i x, bool stream)
{
    if (!stream || (uintptr_t)to % 16 != 0) {
        _mm512_storeu_si512(to, x);
    } else if ((uintptr_t)to % 64 == 0) {
        _mm512_stream_si512((__m512i *)(void *)to, x);
    } else {
        __m128i *quarter = (__m128i *)(void *)to;
        _mm_stream_si128(quarter, _mm512_castsi512_si128(x));
        _mm_stream_si128(quarter + 1, _mm512_extracti32x4_epi32(x, 1));
        _mm_stream_si128(quarter + 2, _mm512_extracti32x4_epi32(x, 2));
        _mm_stream_si128(quarter + 3, _mm512_extracti32x4_epi32(x, 3));
    }
}

/* How the codes of a row are stored, and what was found. */
typedef struct {
    bool is_signed, stream;
    __m512 bad;
} work;

/* Sixty-four, the second half of another scale. Packing saturates nothing, as codes are in range,
 * and leaves the words of each quarter four apart. */
QFW_ALWAYS_INLINE void encode_64(const float *from, const point *p, const point *q, bool to_even,
                                 uint8_t *codes, work *w)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i c[4];
    for (int k = 0; k < 4; k++) {
        _mm_prefetch((const char *)((uintptr_t)(from + 16 * k) + FURTHER * sizeof *from),
                     _MM_HINT_T0);
        c[k] = codes_of(_mm512_loadu_ps(from + 16 * k), k < 2 ? p : q, to_even, &w->bad);
    }
    const __m512i lo = _mm512_packs_epi32(c[0], c[1]), hi = _mm512_packs_epi32(c[2], c[3]);
    const __m512i all = w->is_signed ? _mm512_packs_epi16(lo, hi) : _mm512_packus_epi16(lo, hi);
    store_64(codes, _mm512_permutexvar_epi32(order, all), w->stream);
}

QFW_ALWAYS_INLINE void encode_run(const float *x, size_t n, const point *p, bool to_even,
                                  uint8_t *codes, work *w)
{
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        encode_64(x + i, p, p, to_even, codes + i, w);
    }
    for (; n - i >= 16; i += 16) {
        encode(x + i, 0xFFFF, p, to_even, codes + i, &w->bad);
    }
    if (i < n) {
        const __mmask16 there = (__mmask16)(0xFFFFu >> (16 - (n - i)));
        encode(x + i, there, p, to_even, codes + i, &w->bad);
    }
}

/* A row of groups; the first one's scale is number `scale`. `to_even` is a constant at each call.
 * Groups of 32 are done in pairs: scales are found sixteen at a time, so that both of a pair are
 * there. */
QFW_ALWAYS_INLINE void encode_row(const qfw_affine *a, const qfw_affine_data *d, int64_t first,
                                  int64_t scale, const bool to_even, work *w)
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
        if (run == 32 && g % 2 == 0 && left >= 64) {
            const point q = point_of(&sixteen, g % SCALES + 1);
            encode_64(x + g * run, &p, &q, to_even, codes + g * run, w);
            g++;
            continue;
        }
        const size_t n = (size_t)(left < run ? left : run);
        encode_run(x + g * run, n, &p, to_even, codes + g * run, w);
    }
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
    work w = {a.code == QFW_I8, d.stream != 0, _mm512_setzero_ps()};
    for (int64_t o = 0; o < a.layout.outer; o++) {
        const int64_t scale = a.layout.shared != 0 ? 0 : o * groups;
        if (a.rounding == QFW_HALF_EVEN) {
            encode_row(&a, &d, o * row, scale, true, &w);
        } else {
            encode_row(&a, &d, o * row, scale, false, &w);
        }
    }
    if (w.stream) {
        _mm_sfence();
    }
    return _mm512_cmp_ps_mask(w.bad, w.bad, _CMP_UNORD_Q) == 0 ? QFW_OK : QFW_E_NONFINITE;
}
