/* Products with AVX2: the bits of gemm.c.
 *
 * Integers: vpmaddwd multiplies pairs of int16 and adds the two products, so operands are widened to
 * int16 and brought into pairs along p. Everything is exact modulo 2^32, also the one pair of
 * products that leaves int32 (-32768 * -32768 twice), so the order of a sum does not matter.
 *
 * Floats: outputs side by side, each with its own sum in ascending p; no FMA. */
#include "kernels/avx2.h"

#define ALIGNED __attribute__((aligned(64)))

enum {
    SIDE = 16,           /* lines of a panel: two vectors of sums */
    TILE = 4,            /* rows of a tile, TILE x SIDE sums being 8 registers */
    DEPTH = 112,         /* p of a block, a multiple of 16 */
    BLOCK = 128 * DEPTH, /* elements of a block of b: most of a small L1 cache */
    SHALLOW = 32,        /* p of a block if b is not packed: so many streams are read at a time */
    LONG = 1024,         /* p of a dot product */
    FLOATS = 256         /* p of a block of floats */
};

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

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

/* ---- integers: operands ---- */

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

QFW_ALWAYS_INLINE __m256i widened(const void *x, int32_t width)
{
    return width == 8 ? _mm256_cvtepi8_epi16(load_half(x)) : load(x);
}

/* x, or a copy of what is there if 16 elements would be read past the operand's end. */
static const void *readable(const operand *o, const char *x, char *copy)
{
    const size_t there = (size_t)(o->end - x), want = 16 * (size_t)(o->width / 8);
    return there >= want ? x : memcpy(memset(copy, 0, want), x, there);
}

/* The `count` < 16 elements at x, widened, and zeros. */
static __m256i widened_part(const operand *o, const char *x, size_t count)
{
    char copy[32];
    const __m128i lane = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i there = _mm256_cvtepi8_epi16(_mm_cmpgt_epi8(_mm_set1_epi8((char)count), lane));
    x = readable(o, x, copy);
    return _mm256_and_si256(there, o->width == 8 ? widened(x, 8) : widened(x, 16));
}

/* pairs = (x(p, j), x(p + 1, j)) of 16 lines j, contiguous across p; 0 for x(k, j).
 *   whole  16 lines are there; else what is beyond them is any number */
QFW_ALWAYS_INLINE void pairs_at(const operand *o, size_t p, size_t k, size_t j, bool whole,
                                int32_t width, __m256i *pairs)
{
    static const char zeros[32] = {0};
    char copy[2][32];
    const char *x = element(o, p, j, width);
    const char *y = p + 1 < k ? x + o->line * (size_t)(width / 8) : zeros;
    if (!whole) {
        y = p + 1 < k ? readable(o, y, copy[1]) : y;
        x = readable(o, x, copy[0]);
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
    for (size_t p = p0; p < k; p += 2, panel += SIDE) {
        __m256i pairs[2];
        pairs_at(o, p, k, j0, whole, width, pairs);
        store(panel, pairs[0]);
        store(panel + 8, pairs[1]);
    }
}

QFW_ALWAYS_INLINE void pack_along(const operand *o, size_t p0, size_t k, size_t j0, size_t lines,
                                  int32_t width, int32_t *panel)
{
    for (size_t p = p0; p < k; p += 16, panel += 8 * SIDE) {
        for (size_t j = 0; j < lines; j += 4) {
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
                __m128i *to = (__m128i *)(void *)(panel + q * SIDE + j);
                _mm_storeu_si128(to, _mm256_castsi256_si128(t[q]));
                _mm_storeu_si128(to + SIDE, _mm256_extracti128_si256(t[q], 1));
            }
        }
    }
}

/* panel[p / 2][j] = (x(p, j), x(p + 1, j)) for p0 <= p < k and `lines` lines from j0. */
static void pack(const operand *o, size_t p0, size_t k, size_t j0, size_t lines, int32_t *panel)
{
    if (o->along && o->width == 8) {
        pack_along(o, p0, k, j0, lines, 8, panel);
    } else if (o->along) {
        pack_along(o, p0, k, j0, lines, 16, panel);
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

/* ---- integers: sums ---- */

QFW_ALWAYS_INLINE __m256i plus_products(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

/* A block of the product: rows of a panel of a times columns of b from j0. */
typedef struct {
    const int32_t *a, *b; /* panels; b's are `panel` apart */
    size_t panel;
    const operand *direct; /* or b itself */
    size_t p0, k, j0, n;   /* p0 <= p < k and j0 <= j < n */
    int32_t *out;          /* of column j0 */
    size_t out_row;
} block;

/* `rows` rows times the 16 columns from j, `wide` of which are there.
 *   width  of b itself, or 0 for its panel */
QFW_ALWAYS_INLINE void tile(const block *t, size_t j, int rows, size_t wide, int32_t width)
{
    const int32_t *a = t->a, *b = t->b + (j - t->j0) / SIDE * t->panel;
    int32_t *out = t->out + (j - t->j0);
    const __m256i some[2] = {first_lanes(wide), first_lanes(wide > 8 ? wide - 8 : 0)};
    __m256i sum[TILE][2];
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < 2; v++) {
            int32_t *to = out + (size_t)r * t->out_row + 8 * v;
            sum[r][v] = t->p0 == 0     ? _mm256_setzero_si256()
                        : wide == SIDE ? load(to)
                                       : _mm256_maskload_epi32(to, some[v]);
        }
    }
    const size_t end = (t->k - t->p0 + 1) / 2 * SIDE;
    for (size_t q = 0; q < end; q += SIDE) {
        __m256i pairs[2];
        if (width != 0) {
            pairs_at(t->direct, t->p0 + q / 8, t->k, j, wide == SIDE, width, pairs);
        } else {
            pairs[0] = load(b + q);
            pairs[1] = load(b + q + 8);
        }
        for (int r = 0; r < rows; r++) {
            const __m256i a_r = _mm256_set1_epi32(a[q + (size_t)r]);
            sum[r][0] = plus_products(sum[r][0], a_r, pairs[0]);
            sum[r][1] = plus_products(sum[r][1], a_r, pairs[1]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < 2; v++) {
            int32_t *to = out + (size_t)r * t->out_row + 8 * v;
            if (wide == SIDE) {
                store(to, sum[r][v]);
            } else {
                _mm256_maskstore_epi32(to, some[v], sum[r][v]);
            }
        }
    }
}

QFW_ALWAYS_INLINE void tiles(const block *t, int rows, int32_t width)
{
    size_t j = t->j0;
    for (; t->n - j >= SIDE; j += SIDE) {
        tile(t, j, rows, SIDE, width);
    }
    if (j < t->n) {
        tile(t, j, rows, t->n - j, width);
    }
}

static void rows_times(const block *t, size_t rows, int32_t width)
{
#define ROWS(r, w)                   \
    if (rows == (r) && width == (w)) { \
        tiles(t, r, w);              \
    }
    ROWS(4, 0)
    ROWS(3, 0)
    ROWS(2, 0)
    ROWS(1, 0)
    ROWS(4, 8)
    ROWS(3, 8)
    ROWS(2, 8)
    ROWS(1, 8)
    ROWS(4, 16)
    ROWS(3, 16)
    ROWS(2, 16)
    ROWS(1, 16)
}

/* Block by block. a is packed, and so is b unless few rows need it. */
static void by_blocks(const operand *a, const operand *b, size_t m, size_t n, size_t k,
                      int32_t *out, size_t out_row)
{
    ALIGNED int32_t a_panel[DEPTH / 2 * SIDE];
    ALIGNED int32_t b_panels[BLOCK / 2];
    const bool direct = m <= TILE && !b->along;
    const size_t depth = direct ? SHALLOW : part(k, DEPTH), wide = part(n, BLOCK / depth / SIDE * SIDE);
    for (size_t j0 = 0; j0 < n; j0 += wide) {
        const size_t j1 = least(n, j0 + wide);
        for (size_t p0 = 0; p0 < k; p0 += depth) {
            const size_t p1 = least(k, p0 + depth);
            block t = {NULL, b_panels, depth / 2 * SIDE, b, p0, p1, j0, j1, NULL, out_row};
            for (size_t j = j0; j < j1 && !direct; j += SIDE) {
                pack(b, p0, p1, j, least(SIDE, j1 - j), b_panels + (j - j0) / SIDE * t.panel);
            }
            for (size_t i = 0; i < m; i += TILE) {
                if (i % SIDE == 0) {
                    pack(a, p0, p1, i, least(SIDE, m - i), a_panel);
                }
                t.a = a_panel + i % SIDE;
                t.out = out + i * out_row + j0;
                rows_times(&t, least(TILE, m - i), direct ? b->width : 0);
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
    by_blocks(&a, &b, g->m, g->n, g->k, out, out_row);
}

void qfw_gemm_f32_avx2(const qfw_gemm *g, float *out, size_t out_row)
{
    qfw_gemm_f32_scalar(g, out, out_row);
}
