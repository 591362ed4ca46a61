/* Products of int8 for the CPUs with AVX-512 that have VNNI: vpdpbusd adds four products of an unsigned
 * with a signed byte to an int32, without saturation.
 *
 * Bytes of a are lifted by 128, which makes them unsigned: b's columns get 128 times their sum too
 * much, which their sums begin without. In between an int32 may wrap; the result is exact. A panel of b
 * has 16 columns side by side, four p of each in a word; words of a are four p of a row. */
#ifndef QFW_KERNELS_GEMM_VNNI_SIMD_H
#define QFW_KERNELS_GEMM_VNNI_SIMD_H

#include "kernels/gemm_avx2.h"

#define VNNI __attribute__((target("avx512vnni")))

enum {
    HIGH = 16,  /* rows of a tile */
    DEEP = 256, /* p of a block, a multiple of 64 */
    PANEL = SIDE +
        DEEP / 4 * SIDE, /* words of a panel: what its sums begin with, then its columns */
    PANELS = 8
};

VNNI static inline __mmask16 first_bytes(size_t count)
{
    return (__mmask16)(0xFFFFu >> (16 - least(count, 16)));
}

/* ---- words of four p ---- */

/* to[p / 4][16]: lines across p, 16 at most from j on, for p0 <= p < p1; zeros beyond. `flip` is
 * added to every byte. */
VNNI static void quads_across(const operand *o, size_t p0, size_t p1, size_t j, size_t lines,
                              __m128i flip, int32_t *to)
{
    const __mmask16 there = first_bytes(lines);
    for (size_t p = p0; p < p1; p += 4, to += SIDE) {
        __m128i r[4];
        for (size_t c = 0; c < 4; c++) {
            const __mmask16 some = p + c < p1 ? there : 0;
            const char *x = element(o, least(p + c, p1 - 1), j, 8);
            r[c] = _mm_xor_si128(_mm_maskz_loadu_epi8(some, x), flip);
        }
        const __m128i lo = _mm_unpacklo_epi8(r[0], r[1]), hi = _mm_unpackhi_epi8(r[0], r[1]);
        const __m128i lo2 = _mm_unpacklo_epi8(r[2], r[3]), hi2 = _mm_unpackhi_epi8(r[2], r[3]);
        store_half(to, _mm_unpacklo_epi16(lo, lo2));
        store_half(to + 4, _mm_unpackhi_epi16(lo, lo2));
        store_half(to + 8, _mm_unpacklo_epi16(hi, hi2));
        store_half(to + 12, _mm_unpackhi_epi16(hi, hi2));
    }
}

/* The same of lines along p, up to a multiple of 16. */
VNNI static void quads_along(const operand *o, size_t p0, size_t p1, size_t j, size_t lines,
                             int32_t *to)
{
    for (size_t p = p0; p < p1; p += 16, to += 4 * SIDE) {
        const __mmask16 there = first_bytes(p1 - p);
        for (size_t i = 0; i < SIDE; i += 4) {
            __m128i r[4];
            for (size_t c = 0; c < 4; c++) {
                const __mmask16 some = i + c < lines ? there : 0;
                r[c] = _mm_maskz_loadu_epi8(some, element(o, j + least(i + c, lines - 1), p, 8));
            }
            const __m128i lo = _mm_unpacklo_epi32(r[0], r[1]), hi = _mm_unpackhi_epi32(r[0], r[1]);
            const __m128i lo2 = _mm_unpacklo_epi32(r[2], r[3]);
            const __m128i hi2 = _mm_unpackhi_epi32(r[2], r[3]);
            store_half(to + i, _mm_unpacklo_epi64(lo, lo2));
            store_half(to + SIDE + i, _mm_unpackhi_epi64(lo, lo2));
            store_half(to + 2 * SIDE + i, _mm_unpacklo_epi64(hi, hi2));
            store_half(to + 3 * SIDE + i, _mm_unpackhi_epi64(hi, hi2));
        }
    }
}

/* A panel of b; `deep` is a multiple of 4. */
VNNI static void take_columns(const operand *b, size_t p0, size_t p1, size_t deep, size_t j,
                              size_t columns, int32_t *panel)
{
    const __m512i lift = _mm512_set1_epi8(-128);
    __m512i even = _mm512_setzero_si512(), odd = even;
    if (b->along) {
        quads_along(b, p0, p1, j, columns, panel + SIDE);
    } else {
        quads_across(b, p0, p1, j, columns, _mm_setzero_si128(), panel + SIDE);
    }
    const int32_t *x = panel + SIDE;
    for (size_t p = 0; p < deep; p += 4, x += SIDE) {
        const __m512i next = _mm512_dpbusd_epi32(even, lift, _mm512_loadu_si512(x));
        even = odd;
        odd = next;
    }
    const __m512i much = _mm512_add_epi32(even, odd);
    _mm512_storeu_si512(panel, _mm512_sub_epi32(_mm512_setzero_si512(), much));
}

/* Rows of a: `apart` bytes from one to the next, or a panel. */
VNNI static void take_lifted(const operand *a, size_t i, size_t rows, size_t p0, size_t p1,
                             size_t apart, int32_t *to)
{
    if (!a->along) {
        quads_across(a, p0, p1, i, rows, _mm_set1_epi8(-128), to);
        return;
    }
    const __m512i lift = _mm512_set1_epi8(-128);
    for (size_t r = 0; r < rows; r++) {
        const char *x = element(a, i + r, p0, 8);
        for (size_t p = 0; p < p1 - p0; p += 64) {
            const __mmask64 there = UINT64_MAX >> (64 - least(64, p1 - p0 - p));
            _mm512_storeu_si512(to + (r * apart + p) / 4,
                                _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, x + p), lift));
        }
    }
}

/* ---- tiles ---- */

typedef struct {
    const int32_t *a, *panel;
    size_t deep, out_row;
    int32_t *out;
    __mmask16 some; /* columns that are there */
    bool add;       /* to what is there */
} byte_block;

/* `row` and `quad`: from one row of a, one word of a row, to the next. */
VNNI QFW_ALWAYS_INLINE void byte_tile(const byte_block *t, const int rows, const size_t row,
                                      const size_t quad)
{
    const int32_t *a = t->a, *b = t->panel + SIDE;
    const __m512i begin = _mm512_loadu_si512(t->panel);
    __m512i sum[HIGH];
    for (int r = 0; r < rows; r++) {
        const int32_t *out = t->out + (size_t)r * t->out_row;
        sum[r] = t->add ? _mm512_add_epi32(begin, _mm512_maskz_loadu_epi32(t->some, out)) : begin;
    }
    for (size_t p = 0; p < t->deep; p += 4, a += quad, b += SIDE) {
        const __m512i columns = _mm512_loadu_si512(b);
        for (int r = 0; r < rows; r++) {
            const __m512i word = _mm512_set1_epi32(a[(size_t)r * row]);
            sum[r] = _mm512_dpbusd_epi32(sum[r], word, columns);
        }
    }
    for (int r = 0; r < rows; r++) {
        _mm512_mask_storeu_epi32(t->out + (size_t)r * t->out_row, t->some, sum[r]);
    }
}

VNNI QFW_ALWAYS_INLINE void byte_tiles(byte_block t, size_t rows, const size_t row,
                                       const size_t quad)
{
    for (size_t done; rows > 0; rows -= done) {
        if (rows >= 16) {
            byte_tile(&t, 16, row, quad);
            done = 16;
        } else if (rows >= 8) {
            byte_tile(&t, 8, row, quad);
            done = 8;
        } else if (rows >= 4) {
            byte_tile(&t, 4, row, quad);
            done = 4;
        } else if (rows >= 2) {
            byte_tile(&t, 2, row, quad);
            done = 2;
        } else {
            byte_tile(&t, 1, row, quad);
            done = 1;
        }
        t.a += done * row;
        t.out += done * t.out_row;
    }
}

/* The whole product, m x n over k > 0. */
VNNI static void by_quads(const operand *a, const operand *b, size_t m, size_t n, size_t k,
                          bool add, int32_t *out, size_t out_row)
{
    __attribute__((aligned(64))) int32_t words[HIGH * DEEP / 4];
    __attribute__((aligned(64))) int32_t panels[PANELS * PANEL];
    for (size_t j0 = 0; j0 < n; j0 += PANELS * SIDE) {
        const size_t j1 = least(n, j0 + PANELS * SIDE);
        for (size_t p0 = 0, p1; p0 < k; p0 = p1) {
            p1 = least(k, p0 + DEEP);
            const size_t deep = (p1 - p0 + 3) / 4 * 4;
            for (size_t j = j0; j < j1; j += SIDE) {
                take_columns(b, p0, p1, deep, j, least(SIDE, j1 - j),
                             panels + (j - j0) / SIDE * PANEL);
            }
            for (size_t i = 0; i < m; i += HIGH) {
                const size_t rows = least(HIGH, m - i);
                take_lifted(a, i, rows, p0, p1, DEEP, words);
                for (size_t j = j0; j < j1; j += SIDE) {
                    const byte_block t = {words,
                                          panels + (j - j0) / SIDE * PANEL,
                                          deep,
                                          out_row,
                                          out + i * out_row + j,
                                          first_bytes(j1 - j),
                                          add || p0 > 0};
                    if (a->along) {
                        byte_tiles(t, rows, DEEP / 4, 1);
                    } else {
                        byte_tiles(t, rows, 1, SIDE);
                    }
                }
            }
        }
    }
}

/* ---- few rows ---- */

/* The sums of the words of sixteen vectors. */
QFW_ALWAYS_INLINE __m512i added_up(const __m512i *v)
{
    __m512i two[8], four[4], eight[2];
    for (int i = 0; i < 8; i++) {
        two[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                  _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    }
    for (int i = 0; i < 4; i++) {
        four[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(two[2 * i], two[2 * i + 1]),
                                   _mm512_unpackhi_epi64(two[2 * i], two[2 * i + 1]));
    }
    for (int i = 0; i < 2; i++) {
        eight[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(four[2 * i], four[2 * i + 1], 0x88),
                                    _mm512_shuffle_i32x4(four[2 * i], four[2 * i + 1], 0xDD));
    }
    return _mm512_add_epi32(_mm512_shuffle_i32x4(eight[0], eight[1], 0x88),
                            _mm512_shuffle_i32x4(eight[0], eight[1], 0xDD));
}

/* Products of the bytes at x with those of `lines` <= 16 lines, the first of which is y, `apart`
 * bytes from one to the next; the sums of what is not there are any. */
VNNI QFW_ALWAYS_INLINE void add_products(const char *x, const char *y, size_t apart, size_t lines,
                                         __mmask64 there, __m512i *sum)
{
    const __m512i lift = _mm512_set1_epi8(-128), v = _mm512_maskz_loadu_epi8(there, x);
    for (size_t c = 0; c < 16; c++) {
        const __m512i of_b = _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, y), lift);
        sum[c] = _mm512_dpbusd_epi32(sum[c], of_b, v);
        y += c + 1 < lines ? apart : 0;
    }
}

/* Minus 128 times the k bytes at x, in parts. */
VNNI QFW_ALWAYS_INLINE __m512i less_lift(const char *x, size_t k)
{
    const __m512i lift = _mm512_set1_epi8(-128);
    __m512i much = _mm512_setzero_si512();
    for (size_t p = 0; p < k; p += 64) {
        const __mmask64 there = UINT64_MAX >> (64 - least(64, k - p));
        much = _mm512_dpbusd_epi32(much, lift, _mm512_maskz_loadu_epi8(there, x + p));
    }
    return _mm512_sub_epi32(_mm512_setzero_si512(), much);
}

/* Row times lines j .. j + lines - 1: what `begin` has been lifted too much. */
VNNI QFW_ALWAYS_INLINE __m512i row_by_lines(const char *x, const operand *b, size_t j, size_t lines,
                                            size_t k, __m512i begin)
{
    const char *y = element(b, j, 0, 8);
    const size_t apart = line_bytes(b, 8);
    __m512i sum[16];
    for (size_t c = 0; c < 16; c++) {
        sum[c] = begin;
    }
    size_t p = 0;
    for (; k - p >= 64; p += 64) {
        add_products(x + p, y + p, apart, lines, UINT64_MAX, sum);
    }
    if (p < k) {
        add_products(x + p, y + p, apart, lines, UINT64_MAX >> (64 - (k - p)), sum);
    }
    return added_up(sum);
}

/* Both operands along p: b is read as it lies in memory, sixteen lines at a time. Here they are
 * what is lifted, so that all sums have the same too much, 128 times the row of a. */
VNNI static void by_byte_lines(const operand *a, const operand *b, size_t m, size_t n, size_t k,
                               bool add, int32_t *out, size_t out_row)
{
    for (size_t i = 0; i < m; i++, out += out_row) {
        const char *x = element(a, i, 0, 8);
        const __m512i begin = less_lift(x, k);
        size_t j = 0;
        for (; n - j >= 16; j += 16) {
            const __m512i dots = row_by_lines(x, b, j, 16, k, begin);
            const __m512i before = add ? _mm512_loadu_si512(out + j) : _mm512_setzero_si512();
            _mm512_storeu_si512(out + j, _mm512_add_epi32(dots, before));
        }
        if (j < n) {
            const __mmask16 some = first_bytes(n - j);
            const __m512i dots = row_by_lines(x, b, j, n - j, k, begin);
            const __m512i before = _mm512_maskz_loadu_epi32(add ? some : 0, out + j);
            _mm512_mask_storeu_epi32(out + j, some, _mm512_add_epi32(dots, before));
        }
    }
}

#endif
