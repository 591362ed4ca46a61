/* The operands of gemm_avx2.c and gemm_avx512.c: integers as pairs along p, floats as panels. */
#ifndef QFW_KERNELS_GEMM_AVX2_H
#define QFW_KERNELS_GEMM_AVX2_H

#include "kernels/avx2.h"

enum { SIDE = 16 }; /* lines of a panel: two vectors of sums */

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A matrix of int8 or int16 whose lines are contiguous along p, or across it. */
typedef struct {
    const char *x, *end;
    int32_t width;
    bool along;
    size_t line; /* from one line to the next */
} operand;

static inline bool operand_of(const void *x, int32_t width, size_t k, size_t n, size_t p_stride,
                              size_t j_stride, operand *o)
{
    const size_t last = (k - 1) * p_stride + (n - 1) * j_stride;
    o->x = x;
    o->end = o->x + (last + 1) * (size_t)(width / 8);
    o->width = width;
    o->along = p_stride == 1;
    o->line = o->along ? j_stride : p_stride;
    return p_stride == 1 || j_stride == 1;
}

QFW_ALWAYS_INLINE const char *element(const operand *o, size_t line, size_t i, int32_t width)
{
    return o->x + (line * o->line + i) * (size_t)(width / 8);
}

QFW_ALWAYS_INLINE size_t line_bytes(const operand *o, int32_t width)
{
    return o->line * (size_t)(width / 8);
}

static inline __m256i load(const void *x)
{
    return _mm256_loadu_si256((const __m256i *)x);
}

static inline __m128i load_half(const void *x)
{
    return _mm_loadu_si128((const __m128i *)x);
}

static inline void store(void *to, __m256i v)
{
    _mm256_storeu_si256((__m256i *)to, v);
}

static inline void store_half(void *to, __m128i v)
{
    _mm_storeu_si128((__m128i *)to, v);
}

QFW_ALWAYS_INLINE __m256i widened(const void *x, int32_t width)
{
    return width == 8 ? _mm256_cvtepi8_epi16(load_half(x)) : load(x);
}

/* x, or a copy of what is there if 16 elements would be read past the operand's end. */
static inline const void *readable(const operand *o, const char *x, char *copy)
{
    const size_t there = (size_t)(o->end - x), want = 16 * (size_t)(o->width / 8);
    return there >= want ? x : memcpy(memset(copy, 0, want), x, there);
}

/* The `count` < 16 elements at x, widened, and zeros. */
static inline __m256i widened_part(const operand *o, const char *x, size_t count)
{
    char copy[32];
    const __m128i lane = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i there = _mm256_cvtepi8_epi16(_mm_cmpgt_epi8(_mm_set1_epi8((char)count), lane));
    x = readable(o, x, copy);
    return _mm256_and_si256(there, o->width == 8 ? widened(x, 8) : widened(x, 16));
}

/* k elements of a line from p0, widened, and zeros up to a multiple of 16. */
static inline void widen_line(const operand *o, size_t line, size_t p0, size_t k, int16_t *to)
{
    for (size_t p = 0; p < k; p += 16) {
        const char *x = element(o, line, p0 + p, o->width);
        store(to + p, k - p < 16      ? widened_part(o, x, k - p)
                      : o->width == 8 ? widened(x, 8)
                                      : widened(x, 16));
    }
}

/* pairs = (x[j], y[j]) for 16 lines j across p, x being line p and y line p + 1, or zeros.
 *   whole  16 elements are there; else what is beyond them is any number */
QFW_ALWAYS_INLINE void pairs_at(const operand *o, const char *x, bool last, bool whole,
                                int32_t width, __m256i *pairs)
{
    static const char zeros[32] = {0};
    char copy[2][32];
    const char *y = last ? zeros : x + line_bytes(o, width);
    if (!whole) {
        x = readable(o, x, copy[0]);
        y = last ? y : readable(o, y, copy[1]);
    }
    if (width == 8) {
        const __m128i u = load_half(x), v = load_half(y);
        pairs[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(u, v));
        pairs[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(u, v));
    } else {
        const __m256i u = load(x), v = load(y);
        const __m256i lo = _mm256_unpacklo_epi16(u, v), hi = _mm256_unpackhi_epi16(u, v);
        pairs[0] = _mm256_permute2x128_si256(lo, hi, 0x20);
        pairs[1] = _mm256_permute2x128_si256(lo, hi, 0x31);
    }
}

QFW_ALWAYS_INLINE void pack_across(const operand *o, size_t p0, size_t k, size_t j0, bool whole,
                                   int32_t width, int32_t *panel)
{
    const char *x = element(o, p0, j0, width);
    for (size_t p = p0; p < k; p += 2, panel += SIDE, x += 2 * line_bytes(o, width)) {
        __m256i pairs[2];
        pairs_at(o, x, p + 1 == k, whole, width, pairs);
        store(panel, pairs[0]);
        store(panel + 8, pairs[1]);
    }
}

QFW_ALWAYS_INLINE void pack_along(const operand *o, size_t p0, size_t k, size_t j0, size_t lines,
                                  size_t fill, int32_t width, int32_t *panel)
{
    for (size_t p = p0; p < k; p += 16, panel += 8 * SIDE) {
        for (size_t j = 0; j < fill; j += 4) {
            __m256i r[4];
            for (size_t c = 0; c < 4; c++) {
                const char *x = element(o, j0 + least(j + c, lines - 1), p, width);
                r[c] = k - p < 16 ? widened_part(o, x, k - p) : widened(x, width);
            }
            /* Pairs 0 to 3 of the four lines in the lower halves, 4 to 7 in the upper ones. */
            const __m256i a = _mm256_unpacklo_epi32(r[0], r[1]);
            const __m256i b = _mm256_unpacklo_epi32(r[2], r[3]);
            const __m256i c = _mm256_unpackhi_epi32(r[0], r[1]);
            const __m256i d = _mm256_unpackhi_epi32(r[2], r[3]);
            const __m256i t[4] = {_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b),
                                  _mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)};
            for (int q = 0; q < 4; q++) {
                int32_t *lower = panel + q * SIDE + j, *upper = lower + 4 * SIDE;
                store_half(lower, _mm256_castsi256_si128(t[q]));
                store_half(upper, _mm256_extracti128_si256(t[q], 1));
            }
        }
    }
}

/* panel[p / 2][j] = (x(p, j), x(p + 1, j)) for p0 <= p < k and `lines` lines from j0; up to `fill`
 * lines, a multiple of 4, any numbers follow. */
static inline void pack(const operand *o, size_t p0, size_t k, size_t j0, size_t lines, size_t fill,
                        int32_t *panel)
{
    if (o->along && o->width == 8) {
        pack_along(o, p0, k, j0, lines, fill, 8, panel);
    } else if (o->along) {
        pack_along(o, p0, k, j0, lines, fill, 16, panel);
    } else if (lines < SIDE && o->width == 8) {
        pack_across(o, p0, k, j0, false, 8, panel);
    } else if (lines < SIDE) {
        pack_across(o, p0, k, j0, false, 16, panel);
    } else if (o->width == 8) {
        pack_across(o, p0, k, j0, true, 8, panel);
    } else {
        pack_across(o, p0, k, j0, true, 16, panel);
    }
}

/* ---- floats ---- */

/* panel[p][j] = b(p0 + p, j0 + j) for p < k and j < wide, zeros up to 16. */
static inline void pack_f32(const qfw_gemm *g, size_t p0, size_t k, size_t j0, size_t wide,
                            float *panel)
{
    const float *b = (const float *)g->b + p0 * g->b_row + j0 * g->b_col;
    size_t p = 0;
    for (; g->b_row == 1 && wide == SIDE && k - p >= 4; p += 4) {
        for (size_t j = 0; j < SIDE; j += 8) {
            __m256 r[4];
            for (size_t c = 0; c < 4; c++) {
                const float *x = b + p + (j + c) * g->b_col;
                r[c] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)),
                                            _mm_loadu_ps(x + 4 * g->b_col), 1);
            }
            const __m256 lo = _mm256_unpacklo_ps(r[0], r[1]), hi = _mm256_unpackhi_ps(r[0], r[1]);
            const __m256 lo2 = _mm256_unpacklo_ps(r[2], r[3]), hi2 = _mm256_unpackhi_ps(r[2], r[3]);
            float *to = panel + p * SIDE + j;
            _mm256_storeu_ps(to, _mm256_shuffle_ps(lo, lo2, 0x44));
            _mm256_storeu_ps(to + SIDE, _mm256_shuffle_ps(lo, lo2, 0xEE));
            _mm256_storeu_ps(to + 2 * SIDE, _mm256_shuffle_ps(hi, hi2, 0x44));
            _mm256_storeu_ps(to + 3 * SIDE, _mm256_shuffle_ps(hi, hi2, 0xEE));
        }
    }
    for (; p < k; p++) {
        for (size_t j = 0; j < SIDE; j++) {
            panel[p * SIDE + j] = j < wide ? b[p * g->b_row + j * g->b_col] : 0.0f;
        }
    }
}

#endif
