/* Integer products with the DSP extension of a Cortex-M: two terms an instruction.
 *
 * Four rows of a are widened to 16 bits into a panel, some terms at a time, and every column of b goes
 * over it: a code of b is read and widened once for four sums. Or b's columns are the rows of panels,
 * and a's rows go over them, where those are more. Where a has one row and the codes of b
 * that it meets lie in order, four of b's columns share what is read of a; where columns lie side by
 * side, they are the rows of the panel. Sums are exact in any order. */
#include "kernels/panel_dsp.h"
#include "kernels/row_dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* The last four terms of a column are read as a word, which may reach into the next column; the last
 * column is copied for that. */
static void panels_along(const side *a, size_t m, const side *b, size_t n, size_t k,
                         const place *to, bool add)
{
    uint32_t panel[WORDS];
    int8_t last[TERMS];
    const size_t parts = (k + TERMS - 1) / TERMS, most = ((k + parts - 1) / parts + 3) / 4 * 4;
    for (size_t p = 0; p < k; p += most) {
        const size_t terms = k - p < most ? k - p : most, safe = terms % 4 == 0 ? n : n - 1;
        const int8_t *x = (const int8_t *)b->x + p;
        const uint32_t *end = panel + (terms + 3) / 4 * BLOCK;
        const bool adds = add || p > 0;
        for (size_t i = 0; safe < n && i < (terms + 3) / 4 * 4; i++) {
            last[i] = i < terms ? x[safe * b->row + i] : 0;
        }
        for (size_t i = 0; i < m; i += 4) {
            const size_t rows = m - i < 4 ? m - i : 4;
            const place here = {to->out + i * to->row, to->row, to->col};
            const place rest = {here.out + safe * to->col, to->row, to->col};
            fill(a, moved(a->x, a->width, i * a->row + p * a->term), rows, terms, panel);
            run_columns(panel, end, rows, x, true, (ptrdiff_t)b->row, safe, &here, adds);
            run_columns(panel, end, rows, last, true, 0, n - safe, &rest, adds);
        }
    }
}

/* Both sides in panels: few terms at a time, of as many columns as there is room for. */
static void panels_of_both(const side *a, size_t m, const side *b, size_t n, size_t k,
                           const place *to, bool add)
{
    uint32_t panel[WORDS];
    for (size_t p = 0; p < k; p += FEW_TERMS) {
        const size_t terms = k - p < FEW_TERMS ? k - p : FEW_TERMS, wide = (terms + 3) / 4 * BLOCK;
        const size_t most = (WORDS / wide - 1) * 4;
        for (size_t j = 0; j < n; j += most) {
            const size_t columns = n - j < most ? n - j : most;
            const void *x = moved(b->x, b->width, j * b->row + p * b->term);
            for (size_t c = 0; c < columns; c += 4, x = moved(x, b->width, 4 * b->row)) {
                const size_t some = columns - c < 4 ? columns - c : 4;
                fill(b, x, some, terms, panel + wide + c / 4 * wide);
            }
            for (size_t i = 0; i < m; i += 4) {
                const size_t rows = m - i < 4 ? m - i : 4;
                const place here = {to->out + i * to->row + j * to->col, to->row, to->col};
                fill(a, moved(a->x, a->width, i * a->row + p * a->term), rows, terms, panel);
                for (size_t c = 0; c < columns; c += 4) {
                    const place four = {here.out + c * here.col, here.row, here.col};
                    run_columns(panel, panel + wide, rows, panel + wide + c / 4 * wide, false, 8,
                                columns - c < 4 ? columns - c : 4, &four, add || p > 0);
                }
            }
        }
    }
}

/* ---- one row ---- */

static inline void put(int32_t *o, int32_t sum, bool add)
{
    *o = add ? *o + sum : sum;
}

/* A term of a row by that of every column. */
static inline void put_term(int32_t x, const int8_t *b, size_t next, size_t n, int32_t *out,
                            bool add)
{
    for (const int32_t *end = out + n; out < end; b += next) {
        put(out++, x * *b, add);
    }
}

#if defined(__ARM_FEATURE_MVE)
/* Four sums side by side, without the first `over`. */
static inline void put_last(int32_t *o, size_t over, const sums *s, bool add)
{
    if (over == 0) {
        put(o, s->s0, add);
    }
    if (over < 2) {
        put(o + 1, s->s1, add);
    }
    if (over < 3) {
        put(o + 2, s->s2, add);
    }
    put(o + 3, s->s3, add);
}

/* A row of bytes by four of b, `next` apart: sixteen terms at a time, the last ones predicated. */
static sums one_by_four(const int8_t *a, const int8_t *b, size_t next, size_t k)
{
    register const int8_t *at __asm__("r0") = a, *b0 __asm__("r1") = b;
    register const int8_t *b1 __asm__("r2") = b + next, *b2 __asm__("r3") = b + 2 * next;
    register const int8_t *b3 __asm__("r5") = b + 3 * next;
    register int32_t s0 __asm__("r4") = 0, s1 __asm__("r6") = 0, s2 __asm__("r8") = 0;
    register int32_t s3 __asm__("r10") = 0;
    __asm__ volatile("dlstp.8 lr, %[k]\n"
                     "1:\n\t"
                     "vldrb.8 q0, [%[a]], #16\n\t"
                     "vldrb.8 q1, [%[b0]], #16\n\t"
                     "vmlava.s8 %[s0], q0, q1\n\t"
                     "vldrb.8 q2, [%[b1]], #16\n\t"
                     "vmlava.s8 %[s1], q0, q2\n\t"
                     "vldrb.8 q3, [%[b2]], #16\n\t"
                     "vmlava.s8 %[s2], q0, q3\n\t"
                     "vldrb.8 q1, [%[b3]], #16\n\t"
                     "vmlava.s8 %[s3], q0, q1\n\t"
                     "letp lr, 1b"
                     : [a] "+r"(at), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2), [b3] "+r"(b3),
                       [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [s3] "+r"(s3)
                     : [k] "r"(k)
                     : "lr", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10",
                       "s11", "s12", "s13", "s14", "s15", "memory", "cc");
    const sums s = {s0, s1, s2, s3};
    return s;
}
/* Fours of columns, the last of which begin earlier; n >= 4. */
static void row_by_columns(const qfw_gemm *g, const int8_t *a, int32_t *out)
{
    const size_t next = g->b_col, k = g->k;
    const int8_t *b = g->b;
    int32_t *end = out + g->n;
    const bool add = g->add != 0;
    for (; end - out >= 4; out += 4, b += 4 * next) {
        const sums s = one_by_four(a, b, next, k);
        put_last(out, 0, &s, add);
    }
    if (out < end) {
        const size_t over = 4 - (size_t)(end - out);
        const sums s = one_by_four(a, b - over * next, next, k);
        put_last(end - 4, over, &s, add);
    }
}
#else
/* Bytes as numbers of 16 bits: of each four 0 and 2, then 1 and 3; a multiple of 4. */
static inline void widen(const int8_t *a, size_t terms, uint32_t *x)
{
    for (const int8_t *end = a + terms; a < end; a += 4) {
        const uint32_t four = dsp_word(a);
        *x++ = dsp_even(four);
        *x++ = dsp_odd(four);
    }
}

/* Some terms at a time; those beyond a multiple of 8 one by one. An odd column comes last, with the one
 * before it; n >= 2. */
static void row_by_columns(const qfw_gemm *g, const int8_t *a, int32_t *out)
{
    enum { MOST = ROW_TERMS };
    pairs some;
    const int8_t *b = g->b;
    const size_t last = g->n - 1;
    some.next = g->b_col;
    for (size_t p = 0; p < g->k; p += MOST, a += MOST, b += MOST) {
        const size_t terms = g->k - p < MOST ? g->k - p : MOST;
        const size_t whole = QFW_HAS_RESTS ? terms & ~(size_t)7 : terms;
        const bool odd = QFW_HAS_RESTS && g->n % 2 != 0;
        const bool add = g->add != 0 || p > 0;
        uint32_t *x = some.row + (MOST - whole) / 2;
        int32_t two[2];
        some.x = x;
        some.skip = (ptrdiff_t)(g->b_col - whole);
        some.stop = out + (g->n & ~(size_t)1);
        some.over = whole / 8 % 4;
        some.keep = add ? UINT32_MAX : 0;
        widen(a, whole, x);
        if (whole != 0) {
            run_pairs(&some, b, out);
        }
        if (whole != 0 && odd) {
            some.stop = two + 2;
            some.keep = 0;
            run_pairs(&some, b + (last - 1) * g->b_col, two);
            put(out + last, two[1], add);
        }
        for (size_t i = whole; i < terms; i++) {
            put_term(a[i], b + i, g->b_col, g->n, out, add || i > 0);
        }
    }
}
#endif

/* Bytes of a row are widened some at a time. An odd last term comes by itself, and so do columns beyond
 * a multiple of four, with those before them; n >= 4. */
static void row_across(const qfw_gemm *g, const void *a, int32_t *out)
{
    enum { MOST = 64 };
    int16_t wide[MOST];
    const bool bytes = QFW_HAS_BYTE_ROWS && g->a_width == 8;
    const size_t part = bytes ? MOST : g->k, over = QFW_HAS_RESTS ? g->n % 4 : 0;
    const int8_t *b = g->b;
    for (size_t p = 0; p < g->k; p += part, b += part * g->b_row) {
        const size_t terms = g->k - p < part ? g->k - p : part;
        const size_t even = QFW_HAS_RESTS ? terms & ~(size_t)1 : terms;
        const bool add = g->add != 0 || p > 0;
        const int16_t *x = bytes ? wide : a;
        int32_t four[4];
        for (size_t i = 0; bytes && i < terms; i++) {
            wide[i] = ((const int8_t *)a)[p + i];
        }
        fours some = {x, b, x + even, out, add ? UINT32_MAX : 0, g->n / 4};
        if (even != 0) {
            run_fours(&some, g->b_row);
        }
        if (even != 0 && over != 0) {
            const fours last = {x, b + g->n - 4, x + even, four, 0, 1};
            some = last;
            run_fours(&some, g->b_row);
            for (size_t c = 4 - over; c < 4; c++) {
                put(out + g->n - 4 + c, four[c], add);
            }
        }
        if (even < terms) {
            put_term(x[even], b + even * g->b_row, 1, g->n, out, add || even > 0);
        }
    }
}

/* Some rows of 16 bits, whose terms lie in order, by bytes side by side: four columns are the rows of a panel,
 * the last ones begin earlier. Terms beyond a multiple of four meet zeros; of the last row they are copied. */
static void rows_across(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    uint32_t panel[WORDS];
    int16_t last[TERMS] = {0};
    const int16_t *a = g->a;
    const size_t k = g->k, rows = g->m - 1;
    const uint32_t *end = panel + (k + 3) / 4 * BLOCK;
    memcpy(last, a + rows * g->a_row, k * sizeof *last);
    const ptrdiff_t blocks = (end - panel) / BLOCK;
    course c = {panel,
                end,
                out,
                rows,
                sizeof *out,
                out_row * sizeof *out,
                (ptrdiff_t)(g->a_row * sizeof *a) - 8 * blocks,
                (size_t)blocks & 1};
    for (size_t j = 0; j < g->n; j += 4) {
        const size_t at = g->n - j < 4 ? g->n - 4 : j;
        fill_rows((const int8_t *)g->b + at, g->b_row, k, true, panel);
        c.out = out + at;
        c.n = rows;
        write_halves(&c, a);
        c.n = 1;
        write_halves(&c, last);
    }
}

void qfw_gemm_s32_dsp(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    const bool by_rows = !QFW_HAS_ANY_GEMM || (g->n >= 4 && g->b_width == 8 && g->a_col == 1);
    const bool few = by_rows && g->m < 4, along = g->b_width == 8 && g->b_row == 1;
    const bool by_columns = few && along && g->a_width == 8; /* also of one term */
    /* Panels of both are worth their filling from some rows on. */
    const bool across = by_rows && !by_columns && g->b_col == 1 &&
                        (QFW_HAS_BYTE_ROWS || g->a_width != 8) && (!QFW_HAS_ANY_GEMM || g->m < 12);
    if (QFW_HAS_ANY_GEMM &&
        (g->k == 0 || (!few && (g->k < 2 || !QFW_HAS_PANELS)))) { /* too short for a panel */
        qfw_gemm_s32_scalar(g, out, out_row);
        return;
    }
    if (QFW_HAS_PANELS && across && g->m >= 4 && g->a_width == 16 && g->add == 0 && g->k <= TERMS) {
        rows_across(g, out, out_row);
        return;
    }
    if (!QFW_HAS_ANY_GEMM || across || by_columns) {
        for (size_t i = 0; i < g->m; i++) {
            const void *a = moved(g->a, g->a_width, i * g->a_row);
            if (across) {
                row_across(g, a, out + i * out_row);
            } else {
                row_by_columns(g, a, out + i * out_row);
            }
        }
        return;
    }
    if (!QFW_HAS_PANELS) {
        qfw_gemm_s32_scalar(g, out, out_row);
        return;
    }
    const side a = {g->a, g->a_width, g->a_row, g->a_col};
    const side b = {g->b, g->b_width, g->b_col, g->b_row};
    const place rows = {out, out_row, 1};
    if (along && g->a_width == 8 && g->a_col == 1 && g->n < g->m) { /* the fewer rows in panels */
        const place columns = {out, 1, out_row};
        panels_along(&b, g->n, &a, g->m, g->k, &columns, g->add != 0);
    } else if (along) {
        panels_along(&a, g->m, &b, g->n, g->k, &rows, g->add != 0);
    } else {
        panels_of_both(&a, g->m, &b, g->n, g->k, &rows, g->add != 0);
    }
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
