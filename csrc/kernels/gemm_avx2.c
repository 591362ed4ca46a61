/* Products with AVX2: the bits of gemm.c.
 *
 * Integers: vpmaddwd multiplies pairs of int16 and adds the two products, so operands are widened to
 * int16 and brought into pairs along p. Everything is exact modulo 2^32, also the one pair of
 * products that leaves int32 (-32768 * -32768 twice), so the order of a sum does not matter.
 *
 * Floats: outputs side by side, each with its own sum in ascending p; no FMA. */
#include "kernels/gemm_avx2.h"

#define ALIGNED __attribute__((aligned(64)))

enum {
    TILE = 4,            /* rows of a tile, TILE x SIDE sums being 8 registers */
    NARROW = 8,          /* rows of a tile of at most 8 columns */
    DEPTH = 112,         /* p of a block, a multiple of 16 */
    BLOCK = 128 * DEPTH, /* elements of a block of b: what a small L1 cache holds */
    SHALLOW = 32,        /* p of a block if b is not packed: lines that are read side by side */
    LONG = 1024,         /* p of a dot product, a multiple of 16 */
    FLOATS = 256         /* p of a block of floats */
};

/* The size of equal parts of n, at most `most`, both multiples of 16. */
static inline size_t part(size_t n, size_t most)
{
    const size_t parts = (n + most - 1) / most;
    return ((n + parts - 1) / parts + 15) / 16 * 16;
}

/* Ones in the first `count` of eight lanes. */
static inline __m256i first_lanes(size_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)least(count, 8)), lane);
}

/* ---- integers ---- */

QFW_ALWAYS_INLINE __m256i plus_products(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

/* A block of the product: some rows of a times the columns j0 <= j < n of b, over `deep` p. */
typedef struct {
    const int32_t *a, *b;  /* panels; those of b are `panel` apart */
    const operand *direct; /* b itself */
    size_t panel, p0, deep, j0, n;
    int32_t *out; /* of column j0 */
    size_t out_row;
    bool add; /* to what is there */
} block;

/* The 16 pairs p0 + p of b from j: of the panel, or if width is not 0 of b itself. */
QFW_ALWAYS_INLINE void pairs_of_b(const block *t, size_t p, size_t j, int32_t width, __m256i *pairs)
{
    if (width != 0) {
        const char *x = element(t->direct, t->p0 + p, j, width);
        pairs_at(t->direct, x, p + 1 == t->deep, true, width, pairs);
    } else {
        const int32_t *b = t->b + (j - t->j0) / SIDE * t->panel + p * (SIDE / 2);
        pairs[0] = load(b);
        pairs[1] = load(b + 8);
    }
}

/* `rows` rows, of which `live` are there, times 16 columns, of which `wide` are there. */
QFW_ALWAYS_INLINE void tile(const block *t, size_t j, int rows, int live, size_t wide,
                            int32_t width)
{
    const __m256i some[2] = {first_lanes(wide), first_lanes(wide > 8 ? wide - 8 : 0)};
    const int32_t *a = t->a;
    __m256i pairs[2], sum[TILE][2];
    pairs_of_b(t, 0, j, width, pairs);
    for (int r = 0; r < rows; r++) {
        const __m256i a_r = _mm256_set1_epi32(a[r]);
        sum[r][0] = _mm256_madd_epi16(a_r, pairs[0]);
        sum[r][1] = _mm256_madd_epi16(a_r, pairs[1]);
    }
    for (size_t p = 2; p < t->deep; p += 2) {
        pairs_of_b(t, p, j, width, pairs);
        for (int r = 0; r < rows; r++) {
            const __m256i a_r = _mm256_set1_epi32(a[p * (SIDE / 2) + (size_t)r]);
            sum[r][0] = plus_products(sum[r][0], a_r, pairs[0]);
            sum[r][1] = plus_products(sum[r][1], a_r, pairs[1]);
        }
    }
    int32_t *out = t->out + (j - t->j0);
    for (int r = 0; r < rows && r < live; r++, out += t->out_row) {
        for (int v = 0; v < 2; v++) {
            if (t->add) {
                const __m256i before =
                    wide == SIDE ? load(out + 8 * v) : _mm256_maskload_epi32(out + 8 * v, some[v]);
                sum[r][v] = _mm256_add_epi32(before, sum[r][v]);
            }
            if (wide == SIDE) {
                store(out + 8 * v, sum[r][v]);
            } else {
                _mm256_maskstore_epi32(out + 8 * v, some[v], sum[r][v]);
            }
        }
    }
}

/* NARROW rows, of which `live` are there, times the first `wide` <= 8 columns of a panel. */
static void narrow_tile(const block *t, size_t live, size_t wide)
{
    const __m256i some = first_lanes(wide);
    const int32_t *a = t->a, *b = t->b;
    __m256i sum[NARROW];
    for (int r = 0; r < NARROW; r++) {
        sum[r] = _mm256_setzero_si256();
    }
    for (size_t p = 0; p < t->deep; p += 2, a += SIDE, b += SIDE) {
        const __m256i pairs = load(b);
        for (int r = 0; r < NARROW; r++) {
            sum[r] = plus_products(sum[r], _mm256_set1_epi32(a[r]), pairs);
        }
    }
    int32_t *out = t->out;
    for (size_t r = 0; r < NARROW && r < live; r++, out += t->out_row) {
        if (t->add) {
            sum[r] = _mm256_add_epi32(sum[r], _mm256_maskload_epi32(out, some));
        }
        if (wide == 8) {
            store(out, sum[r]);
        } else {
            _mm256_maskstore_epi32(out, some, sum[r]);
        }
    }
}

QFW_ALWAYS_INLINE void tiles(const block *t, int rows, int32_t width)
{
    for (size_t j = t->j0; t->n - j >= SIDE; j += SIDE) {
        tile(t, j, rows, rows, SIDE, width);
    }
}

QFW_ALWAYS_INLINE void rows_times(const block *t, size_t rows, int32_t width)
{
    switch (rows) {
    case 1:
        tiles(t, 1, width);
        break;
    case 2:
        tiles(t, 2, width);
        break;
    case 3:
        tiles(t, 3, width);
        break;
    default:
        tiles(t, TILE, width);
        break;
    }
}

/* Block by block. a is packed, and so is b unless one tile is high enough for a. */
static void by_blocks(const operand *a, const operand *b, size_t m, size_t n, size_t k, bool add,
                      int32_t *out, size_t out_row)
{
    ALIGNED int32_t a_panel[DEPTH / 2 * SIDE];
    ALIGNED int32_t b_panels[BLOCK / 2];
    const bool direct = m <= TILE && !b->along;
    const size_t depth = direct ? SHALLOW : part(k, DEPTH);
    const size_t width = part(n, BLOCK / depth / SIDE * SIDE);
    for (size_t j0 = 0; j0 < n; j0 += width) {
        const size_t j1 = least(n, j0 + width), rest = (j1 - j0) % SIDE;
        for (size_t p0 = 0; p0 < k; p0 += depth) {
            const size_t p1 = least(k, p0 + depth);
            block t = {NULL, b_panels, b,    depth / 2 * SIDE, p0,           p1 - p0,
                       j0,   j1,       NULL, out_row,          add || p0 > 0};
            for (size_t j = direct ? j1 - rest : j0; j < j1; j += SIDE) {
                int32_t *panel = b_panels + (j - j0) / SIDE * t.panel;
                pack(b, p0, p1, j, least(SIDE, j1 - j), SIDE, panel);
            }
            const bool narrow = !direct && j1 - j0 <= 8;
            for (size_t i = 0; i < m; i += narrow ? NARROW : TILE) {
                const size_t rows = least(TILE, m - i), lines = least(SIDE, m - i);
                if (i % SIDE == 0) {
                    pack(a, p0, p1, i, lines, lines, a_panel);
                }
                t.a = a_panel + i % SIDE;
                t.out = out + i * out_row + j0;
                if (narrow) {
                    narrow_tile(&t, m - i, j1 - j0);
                    continue;
                }
                if (!direct) {
                    rows_times(&t, rows, 0);
                } else if (b->width == 8) {
                    rows_times(&t, rows, 8);
                } else {
                    rows_times(&t, rows, 16);
                }
                if (rest > 0) {
                    tile(&t, j1 - rest, TILE, (int)rows, rest, 0);
                }
            }
        }
    }
}

/* `rows` rows of k widened elements, LONG apart, times four lines of b from p0. */
QFW_ALWAYS_INLINE void dots(const int16_t *a, size_t k, const operand *b, size_t p0, size_t j,
                            size_t lines, int rows, int32_t width, bool add, int32_t *out,
                            size_t out_row)
{
    const __m128i some = _mm256_castsi256_si128(first_lanes(lines));
    const size_t bytes = (size_t)(width / 8);
    const char *b_j[4];
    __m256i sum[2][4];
    for (size_t c = 0; c < 4; c++) {
        b_j[c] = element(b, j + least(c, lines - 1), p0, width);
        sum[0][c] = sum[1][c] = _mm256_setzero_si256();
    }
    size_t p = 0;
    for (; k - p >= 16; p += 16) {
        for (int c = 0; c < 4; c++) {
            const __m256i b_c = widened(b_j[c] + p * bytes, width);
            for (int r = 0; r < rows; r++) {
                sum[r][c] = plus_products(sum[r][c], load(a + r * LONG + p), b_c);
            }
        }
    }
    for (int c = 0; c < 4 && p < k; c++) {
        const __m256i b_c = widened_part(b, b_j[c] + p * bytes, k - p);
        for (int r = 0; r < rows; r++) {
            sum[r][c] = plus_products(sum[r][c], load(a + r * LONG + p), b_c);
        }
    }
    for (int r = 0; r < rows; r++, out += out_row) {
        const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[r][0], sum[r][1]),
                                            _mm256_hadd_epi32(sum[r][2], sum[r][3]));
        __m128i dot = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        dot = add ? _mm_add_epi32(dot, _mm_maskload_epi32(out, some)) : dot;
        _mm_maskstore_epi32(out, some, dot);
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
                widen_line(a, i + r, p0, deep, a_rows + r * LONG);
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

void qfw_gemm_s32_avx2(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    operand a, b;
    if (g->m == 0 || g->n == 0 || g->k == 0 ||
        !operand_of(g->a, g->a_width, g->k, g->m, g->a_col, g->a_row, &a) ||
        !operand_of(g->b, g->b_width, g->k, g->n, g->b_row, g->b_col, &b)) {
        qfw_gemm_s32_scalar(g, out, out_row);
        return;
    }
    if (g->m <= TILE && a.along && b.along) { /* packing b would cost more than its product */
        by_lines(&a, &b, g->m, g->n, g->k, g->add != 0, out, out_row);
    } else {
        by_blocks(&a, &b, g->m, g->n, g->k, g->add != 0, out, out_row);
    }
}

/* ---- floats ---- */

/* `rows` rows times 16 columns, of which `wide` are there; the rows of b are b_row apart. */
QFW_ALWAYS_INLINE void tile_f32(const qfw_gemm *g, const float *a, const float *b, size_t b_row,
                                size_t k, int rows, size_t wide, bool add, float *out,
                                size_t out_row)
{
    const __m256i some[2] = {first_lanes(wide), first_lanes(wide > 8 ? wide - 8 : 0)};
    __m256 sum[TILE][2];
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < 2; v++) {
            const float *from = out + (size_t)r * out_row + 8 * v;
            sum[r][v] = add ? _mm256_maskload_ps(from, some[v]) : _mm256_setzero_ps();
        }
    }
    for (size_t p = 0; p < k; p++, a += g->a_col, b += b_row) {
        const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
        for (int r = 0; r < rows; r++) {
            const __m256 a_r = _mm256_broadcast_ss(a + (size_t)r * g->a_row);
            sum[r][0] = _mm256_add_ps(sum[r][0], _mm256_mul_ps(a_r, b0));
            sum[r][1] = _mm256_add_ps(sum[r][1], _mm256_mul_ps(a_r, b1));
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < 2; v++) {
            float *to = out + (size_t)r * out_row + 8 * v;
            if (wide >= SIDE) {
                _mm256_storeu_ps(to, sum[r][v]);
            } else {
                _mm256_maskstore_ps(to, some[v], sum[r][v]);
            }
        }
    }
}

void qfw_gemm_f32_avx2(const qfw_gemm *g, float *out, size_t out_row)
{
    ALIGNED float panel[FLOATS * SIDE];
    for (size_t j = 0; j < g->n; j += SIDE) {
        const size_t wide = least(SIDE, g->n - j);
        size_t p = 0;
        do { /* once also for k = 0 */
            const size_t k = least(FLOATS, g->k - p);
            const bool more = g->add != 0 || p > 0;
            const float *b = panel;
            size_t b_row = SIDE;
            if (g->b_col == 1 && wide == SIDE) {
                b = (const float *)g->b + p * g->b_row + j;
                b_row = g->b_row;
            } else {
                pack_f32(g, p, k, j, wide, panel);
            }
            for (size_t i = 0; i < g->m; i += TILE) {
                const float *a = (const float *)g->a + i * g->a_row + p * g->a_col;
                float *to = out + i * out_row + j;
                switch (least(TILE, g->m - i)) {
                case 1:
                    tile_f32(g, a, b, b_row, k, 1, wide, more, to, out_row);
                    break;
                case 2:
                    tile_f32(g, a, b, b_row, k, 2, wide, more, to, out_row);
                    break;
                case 3:
                    tile_f32(g, a, b, b_row, k, 3, wide, more, to, out_row);
                    break;
                default:
                    tile_f32(g, a, b, b_row, k, TILE, wide, more, to, out_row);
                    break;
                }
            }
            p += k;
        } while (p < g->k);
    }
}
