/* Products with AVX-512: the bits of gemm.c, and of gemm_avx2.c the operands and the panels.
 *
 * A panel of b has 16 pairs side by side, which is a vector; a tile is up to 16 rows high, each with
 * one vector of sums. Rows of a that are contiguous along p are widened as they are, and pairs of
 * them read in place. */
#include "kernels/gemm_vnni_simd.h"

#define ALIGNED __attribute__((aligned(64)))

enum {
    TALL = 16,           /* rows of a tile */
    FEW = 4,             /* rows that a product line by line is for */
    DEPTH = 128,         /* p of a block, a multiple of 32 */
    BLOCK = 128 * DEPTH, /* elements of a block of b */
    LONG = 1024,         /* p of a dot product, a multiple of 32 */
    FLOATS = 256         /* p of a block of floats */
};

/* The size of equal parts of n, at most `most`, both multiples of 16. */
static inline size_t part(size_t n, size_t most)
{
    const size_t parts = (n + most - 1) / most;
    return ((n + parts - 1) / parts + 15) / 16 * 16;
}

QFW_ALWAYS_INLINE __mmask16 first_lanes(size_t count)
{
    return (__mmask16)(0xFFFFu >> (16 - least(count, 16)));
}

/* ---- integers ---- */

QFW_ALWAYS_INLINE __m512i plus_products(__m512i sum, __m512i a, __m512i b)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}

/* The `count` <= 32 elements at x, widened, and zeros. */
QFW_ALWAYS_INLINE __m512i widened_32(const void *x, size_t count, int32_t width)
{
    const __mmask32 there = (__mmask32)(0xFFFFFFFFu >> (32 - count));
    return width == 8 ? _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(there, x))
                      : _mm512_maskz_loadu_epi16(there, x);
}

/* k elements of a line from p0, widened, and zeros up to a multiple of 32. */
QFW_ALWAYS_INLINE void widen_wide(const char *x, size_t k, int32_t width, int16_t *to)
{
    for (size_t p = 0; p < k; p += 32) {
        const __m512i v = widened_32(x + p * (size_t)(width / 8), least(32, k - p), width);
        _mm512_storeu_si512(to + p, v);
    }
}

/* A block of the product: some rows of a times a panel of b, over `deep` p. */
typedef struct {
    const int32_t *a; /* pairs */
    const int32_t *b;
    size_t deep, out_row;
    int32_t *out;
    __mmask16 some; /* columns that are there */
    bool add;       /* to what is there */
} block;

/* `row` and `pair`: from one row of a, one pair of a row, to the next. */
QFW_ALWAYS_INLINE void tile(const block *t, const int rows, const size_t row, const size_t pair)
{
    const int32_t *a = t->a, *b = t->b;
    __m512i sum[TALL];
    for (int r = 0; r < rows; r++) {
        sum[r] = t->add ? _mm512_maskz_loadu_epi32(t->some, t->out + (size_t)r * t->out_row)
                        : _mm512_setzero_si512();
    }
    for (size_t p = 0; p < t->deep; p += 2, a += pair, b += SIDE) {
        const __m512i pairs = _mm512_loadu_si512(b);
        for (int r = 0; r < rows; r++) {
            sum[r] = plus_products(sum[r], _mm512_set1_epi32(a[(size_t)r * row]), pairs);
        }
    }
    for (int r = 0; r < rows; r++) {
        _mm512_mask_storeu_epi32(t->out + (size_t)r * t->out_row, t->some, sum[r]);
    }
}

/* As many rows as there are, in tiles of powers of two. */
QFW_ALWAYS_INLINE void tiles(block t, size_t rows, const size_t row, const size_t pair)
{
    while (rows > 0) {
        size_t done;
        if (rows >= 16) {
            tile(&t, 16, row, pair);
            done = 16;
        } else if (rows >= 8) {
            tile(&t, 8, row, pair);
            done = 8;
        } else if (rows >= 4) {
            tile(&t, 4, row, pair);
            done = 4;
        } else if (rows >= 2) {
            tile(&t, 2, row, pair);
            done = 2;
        } else {
            tile(&t, 1, row, pair);
            done = 1;
        }
        t.a += done * row;
        t.out += done * t.out_row;
        rows -= done;
    }
}

/* Pairs of the rows of a from i on: rows one after the other, or a panel. */
static void take_rows(const operand *a, size_t i, size_t rows, size_t p0, size_t deep, int32_t *to)
{
    if (!a->along) {
        pack(a, p0, p0 + deep, i, rows, TALL, to);
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        const char *x = element(a, i + r, p0, a->width);
        int16_t *line = (int16_t *)(void *)(to + r * (DEPTH / 2));
        if (a->width == 8) {
            widen_wide(x, deep, 8, line);
        } else {
            widen_wide(x, deep, 16, line);
        }
    }
}

static void by_blocks(const operand *a, const operand *b, size_t m, size_t n, size_t k, bool add,
                      int32_t *out, size_t out_row)
{
    ALIGNED int32_t a_pairs[DEPTH / 2 * TALL];
    ALIGNED int32_t b_panels[BLOCK / 2];
    const size_t depth = part(k, DEPTH), width = part(n, BLOCK / depth / SIDE * SIDE);
    for (size_t j0 = 0; j0 < n; j0 += width) {
        const size_t j1 = least(n, j0 + width);
        for (size_t p0 = 0; p0 < k; p0 += depth) {
            const size_t deep = least(k - p0, depth);
            for (size_t j = j0; j < j1; j += SIDE) {
                pack(b, p0, p0 + deep, j, least(SIDE, j1 - j), SIDE,
                     b_panels + (j - j0) / SIDE * (depth / 2 * SIDE));
            }
            for (size_t i = 0; i < m; i += TALL) {
                const size_t rows = least(TALL, m - i);
                take_rows(a, i, rows, p0, deep, a_pairs);
                for (size_t j = j0; j < j1; j += SIDE) {
                    const int32_t *panel = b_panels + (j - j0) / SIDE * (depth / 2 * SIDE);
                    const block t = {a_pairs,
                                     panel,
                                     deep,
                                     out_row,
                                     out + i * out_row + j,
                                     first_lanes(j1 - j),
                                     add || p0 > 0};
                    if (a->along) {
                        tiles(t, rows, DEPTH / 2, 1);
                    } else {
                        tiles(t, rows, 1, SIDE);
                    }
                }
            }
        }
    }
}

/* `rows` rows of k widened elements, LONG apart, times four lines of b from p0. */
QFW_ALWAYS_INLINE void dots(const int16_t *a, size_t k, const operand *b, size_t p0, size_t j,
                            size_t lines, const int rows, const int32_t width, bool add,
                            int32_t *out, size_t out_row)
{
    const size_t bytes = (size_t)(width / 8);
    const __mmask8 some = (__mmask8)(0xFu >> (4 - lines));
    const char *b_j[4];
    __m512i sum[2][4];
    for (size_t c = 0; c < 4; c++) {
        b_j[c] = element(b, j + least(c, lines - 1), p0, width);
        sum[0][c] = sum[1][c] = _mm512_setzero_si512();
    }
    for (size_t p = 0; p < k; p += 32) {
        const size_t count = least(32, k - p);
        for (size_t c = 0; c < 4; c++) {
            const __m512i v = widened_32(b_j[c] + p * bytes, count, width);
            for (int r = 0; r < rows; r++) {
                sum[r][c] =
                    plus_products(sum[r][c], _mm512_loadu_si512(a + (size_t)r * LONG + p), v);
            }
        }
    }
    for (int r = 0; r < rows; r++, out += out_row) {
        __m256i half[4];
        for (size_t c = 0; c < 4; c++) {
            half[c] = _mm256_add_epi32(_mm512_castsi512_si256(sum[r][c]),
                                       _mm512_extracti64x4_epi64(sum[r][c], 1));
        }
        const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(half[0], half[1]),
                                            _mm256_hadd_epi32(half[2], half[3]));
        __m128i dot = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        dot = add ? _mm_add_epi32(dot, _mm_maskz_loadu_epi32(some, out)) : dot;
        _mm_mask_storeu_epi32(out, some, dot);
    }
}

/* Few rows, both operands along p: b is read as it lies in memory. */
static void by_lines(const operand *a, const operand *b, size_t m, size_t n, size_t k, bool add,
                     int32_t *out, size_t out_row)
{
    ALIGNED int16_t a_rows[2 * LONG];
    for (size_t p0 = 0; p0 < k; p0 += LONG) {
        const size_t deep = least(k - p0, LONG);
        const bool more = add || p0 > 0;
        for (size_t i = 0; i < m; i += 2) {
            const size_t rows = least(2, m - i);
            for (size_t r = 0; r < rows; r++) {
                const char *x = element(a, i + r, p0, a->width);
                if (a->width == 8) {
                    widen_wide(x, deep, 8, a_rows + r * LONG);
                } else {
                    widen_wide(x, deep, 16, a_rows + r * LONG);
                }
            }
            for (size_t j = 0; j < n; j += 4) {
                const size_t lines = least(4, n - j);
                int32_t *out_ij = out + i * out_row + j;
                if (rows == 2 && b->width == 8) {
                    dots(a_rows, deep, b, p0, j, lines, 2, 8, more, out_ij, out_row);
                } else if (rows == 2) {
                    dots(a_rows, deep, b, p0, j, lines, 2, 16, more, out_ij, out_row);
                } else if (b->width == 8) {
                    dots(a_rows, deep, b, p0, j, lines, 1, 8, more, out_ij, out_row);
                } else {
                    dots(a_rows, deep, b, p0, j, lines, 1, 16, more, out_ij, out_row);
                }
            }
        }
    }
}

void qfw_gemm_s32_avx512(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    operand a, b;
    if (g->m == 0 || g->n == 0 || g->k == 0 ||
        !operand_of(g->a, g->a_width, g->k, g->m, g->a_col, g->a_row, &a) ||
        !operand_of(g->b, g->b_width, g->k, g->n, g->b_row, g->b_col, &b)) {
        qfw_gemm_s32_scalar(g, out, out_row);
        return;
    }
    const bool quads = a.width == 8 && b.width == 8 && __builtin_cpu_supports("avx512vnni");
    if (g->m <= FEW && a.along && b.along && quads) {
        by_byte_lines(&a, &b, g->m, g->n, g->k, g->add != 0, out, out_row);
    } else if (g->m <= FEW && a.along && b.along) { /* packing b would cost more than its product */
        by_lines(&a, &b, g->m, g->n, g->k, g->add != 0, out, out_row);
    } else if (g->m <= FEW && !b.along) { /* nor is b packed there */
        qfw_gemm_s32_avx2(g, out, out_row);
    } else if (quads) {
        by_quads(&a, &b, g->m, g->n, g->k, g->add != 0, out, out_row);
    } else {
        by_blocks(&a, &b, g->m, g->n, g->k, g->add != 0, out, out_row);
    }
}

/* ---- floats: outputs side by side, each with its own sum in ascending p; no FMA ---- */

QFW_ALWAYS_INLINE void tile_f32(const qfw_gemm *g, const float *a, const float *b, size_t b_row,
                                size_t k, const int rows, __mmask16 some, bool add, float *out,
                                size_t out_row)
{
    __m512 sum[8];
    for (int r = 0; r < rows; r++) {
        sum[r] = add ? _mm512_maskz_loadu_ps(some, out + (size_t)r * out_row) : _mm512_setzero_ps();
    }
    for (size_t p = 0; p < k; p++, a += g->a_col, b += b_row) {
        const __m512 b_p = _mm512_loadu_ps(b);
        for (int r = 0; r < rows; r++) {
            const __m512 a_r = _mm512_set1_ps(a[(size_t)r * g->a_row]);
            sum[r] = _mm512_add_ps(sum[r], _mm512_mul_ps(a_r, b_p));
        }
    }
    for (int r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(out + (size_t)r * out_row, some, sum[r]);
    }
}

static void tiles_f32(const qfw_gemm *g, const float *a, const float *b, size_t b_row, size_t k,
                      __mmask16 some, bool add, float *out, size_t out_row)
{
    for (size_t i = 0, rows; i < g->m; i += rows) {
        const size_t left = g->m - i;
        const float *a_i = a + i * g->a_row;
        float *to = out + i * out_row;
        if (left >= 8) {
            tile_f32(g, a_i, b, b_row, k, 8, some, add, to, out_row);
            rows = 8;
        } else if (left >= 4) {
            tile_f32(g, a_i, b, b_row, k, 4, some, add, to, out_row);
            rows = 4;
        } else if (left >= 2) {
            tile_f32(g, a_i, b, b_row, k, 2, some, add, to, out_row);
            rows = 2;
        } else {
            tile_f32(g, a_i, b, b_row, k, 1, some, add, to, out_row);
            rows = 1;
        }
    }
}

void qfw_gemm_f32_avx512(const qfw_gemm *g, float *out, size_t out_row)
{
    ALIGNED float panel[FLOATS * SIDE];
    for (size_t j = 0; j < g->n; j += SIDE) {
        const size_t wide = least(SIDE, g->n - j);
        size_t p = 0;
        do { /* once also for k = 0 */
            const size_t k = least(FLOATS, g->k - p);
            const bool more = g->add != 0 || p > 0;
            const float *a = (const float *)g->a + p * g->a_col;
            const float *b = (const float *)g->b + p * g->b_row + j;
            if (g->b_col == 1 && wide == SIDE) {
                tiles_f32(g, a, b, g->b_row, k, first_lanes(wide), more, out + j, out_row);
            } else {
                pack_f32(g, p, k, j, wide, panel);
                tiles_f32(g, a, panel, SIDE, k, first_lanes(wide), more, out + j, out_row);
            }
            p += k;
        } while (p < g->k);
    }
}
