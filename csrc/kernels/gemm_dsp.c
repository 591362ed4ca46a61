/* Integer products with the DSP extension of a Cortex-M: two terms an instruction.
 *
 * Four rows of a are widened to 16 bits into a panel, some terms at a time, and every column of b goes
 * over it: a code of b is read and widened once for four sums. Or b's columns are the rows of panels,
 * and a's rows go over them, where those are more. Where a has one row and the codes of b
 * that it meets lie in order, four of b's columns share what is read of a; where columns lie side by
 * side, they are the rows of the panel. Sums are exact in any order. */
#include "kernels/panel_dsp.h"

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

#if defined(__ARM_FEATURE_MVE)
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
    for (size_t j = 0; j < g->n; j += 4) {
        const size_t over = g->n - j < 4 ? 4 - (g->n - j) : 0, from = j - over;
        const sums s = one_by_four(a, (const int8_t *)g->b + from * g->b_col, g->b_col, g->k);
        put_last(out + from, over, &s, g->add != 0);
    }
}
#else
/* Pairs of columns of bytes that meet a row of numbers of 16 bits; in bytes what is apart. */
typedef struct {
    const uint32_t *x, *end; /* as `widen` leaves them: blocks of eight, one at least */
    int32_t *out;
    uint32_t keep;  /* of what stands there: all bits or none */
    size_t n;       /* pairs, one at least */
    ptrdiff_t skip; /* from the end of a column to the next but one */
    size_t next;    /* and from a column to the next */
} pairs;

/* Four terms of a column in w by those of the row in x and y. */
#define MEET(w, x, y, sum)                  \
    "sxtb16 r6, " w "\n\t"                  \
    "smlad " sum ", " x ", r6, " sum "\n\t" \
    "sxtb16 " w ", " w ", ror #8\n\t"       \
    "smlad " sum ", " y ", " w ", " sum "\n\t"

#define LOAD_ALIGNED(from) "ldmia " from "!, {r4, r5}\n\t"
#define LOAD_ANYWHERE(from) "ldr r4, [" from "], #4\n\tldr r5, [" from "], #4\n\t"

/* Eight terms of both columns. */
#define EIGHT_TERMS(load)                                                        \
    "ldmia r0!, {r8, r9, r10, r11}\n\t" load("r1") MEET("r4", "r8", "r9", "r12") \
        MEET("r5", "r10", "r11", "r12") load("r2") MEET("r4", "r8", "r9", "lr")  \
            MEET("r5", "r10", "r11", "lr")

/* By registers that are named; blocks go in twos, an odd one first. */
#define ALL_PAIRS(name, load)                                                                  \
    static __attribute__((noinline)) void name(pairs *all, const int8_t *b)                    \
    {                                                                                          \
        register pairs *with __asm__("r0") = all;                                              \
        register const int8_t *first __asm__("r1") = b;                                        \
        register const int8_t *second __asm__("r2") = b + all->next;                           \
        __asm__ volatile(                                                                      \
            "push {r0}\n"                                                                      \
            "2:\n\t"                                                                           \
            "ldrd r4, r5, [r0, #8]\n\t"                                                        \
            "ldrd r12, lr, [r4]\n\t"                                                           \
            "and r12, r12, r5\n\t"                                                             \
            "and lr, lr, r5\n\t"                                                               \
            "ldrd r0, r3, [r0]\n\t"                                                            \
            "sub r4, r3, r0\n\t"                                                               \
            "lsls r4, r4, #27\n\t"                                                             \
            "bmi 3f\n"                                                                         \
            "1:\n\t" EIGHT_TERMS(load) "3:\n\t" EIGHT_TERMS(load) "cmp r0, r3\n\t"             \
                                                                  "bne 1b\n\t"                 \
                                                                  "ldr r0, [sp]\n\t"           \
                                                                  "ldr r4, [r0, #8]\n\t"       \
                                                                  "strd r12, lr, [r4], #8\n\t" \
                                                                  "str r4, [r0, #8]\n\t"       \
                                                                  "ldrd r4, r5, [r0, #16]\n\t" \
                                                                  "add r1, r2, r5\n\t"         \
                                                                  "ldr r6, [r0, #24]\n\t"      \
                                                                  "add r2, r1, r6\n\t"         \
                                                                  "subs r4, r4, #1\n\t"        \
                                                                  "str r4, [r0, #16]\n\t"      \
                                                                  "bne 2b\n\t"                 \
                                                                  "pop {r0}"                   \
            : "+r"(with), "+r"(first), "+r"(second)                                            \
            :                                                                                  \
            : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "memory", "cc");  \
    }

ALL_PAIRS(pairs_aligned, LOAD_ALIGNED)
ALL_PAIRS(pairs_anywhere, LOAD_ANYWHERE)

/* Bytes as numbers of 16 bits: of each four 0 and 2, then 1 and 3; a multiple of 4. */
static inline void widen(const int8_t *a, size_t terms, uint32_t *x)
{
    for (const int8_t *end = a + terms; a < end; a += 4) {
        const uint32_t four = dsp_word(a);
        *x++ = dsp_even(four);
        *x++ = dsp_odd(four);
    }
}

static void run_pairs(pairs p, const int8_t *b)
{
    if ((((uintptr_t)b | p.next) & 3u) == 0) {
        pairs_aligned(&p, b);
    } else {
        pairs_anywhere(&p, b);
    }
}

/* Some terms at a time; those beyond a multiple of 8 one by one. An odd column comes last, with the one
 * before it; n >= 2. */
static void row_by_columns(const qfw_gemm *g, const int8_t *a, int32_t *out)
{
    enum { MOST = 256 };
    uint32_t x[MOST / 2];
    const int8_t *b = g->b;
    const size_t odd = g->n & 1, last = g->n - 1;
    for (size_t p = 0; p < g->k; p += MOST, a += MOST, b += MOST) {
        const size_t terms = g->k - p < MOST ? g->k - p : MOST, whole = terms & ~(size_t)7;
        const bool add = g->add != 0 || p > 0;
        int32_t two[2] = {0, add ? out[last] : 0};
        pairs some = {x,        x + whole / 2,
                      out,      add ? UINT32_MAX : 0,
                      g->n / 2, (ptrdiff_t)(g->b_col - whole),
                      g->b_col};
        widen(a, whole, x);
        if (whole != 0) {
            run_pairs(some, b);
            some.out = two;
            some.keep = UINT32_MAX;
            some.n = 1;
            if (odd != 0) {
                run_pairs(some, b + (last - 1) * g->b_col);
                out[last] = two[1];
            }
        }
        for (size_t j = 0; whole < terms && j < g->n; j++) {
            int32_t sum = add || whole != 0 ? out[j] : 0;
            for (size_t i = whole; i < terms; i++) {
                sum += a[i] * b[j * g->b_col + i];
            }
            out[j] = sum;
        }
    }
}
#endif

/* Two terms of a, side by side. */
static inline uint32_t two_at(const void *a, const int32_t width)
{
    return width == 16 ? dsp_word(a)
                       : dsp_lows((uint32_t)code_at(a, 8, 0), (uint32_t)code_at(a, 8, 1));
}

/* A row by four columns of bytes side by side, whose terms lie `row` apart. */
static inline sums one_across(const void *a, const int32_t width, const int8_t *b, size_t row,
                              size_t k)
{
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (const void *end = moved(a, width, k & ~(size_t)1); a < end; a = moved(a, width, 2)) {
        const uint32_t x = two_at(a, width), w0 = dsp_word(b), w1 = dsp_word(b + row);
        const uint32_t e0 = dsp_even(w0), o0 = dsp_odd(w0), e1 = dsp_even(w1), o1 = dsp_odd(w1);
        b += 2 * row;
        s0 = dsp_twice(x, dsp_lows(e0, e1), s0);
        s1 = dsp_twice(x, dsp_lows(o0, o1), s1);
        s2 = dsp_twice(x, dsp_highs(e0, e1), s2);
        s3 = dsp_twice(x, dsp_highs(o0, o1), s3);
    }
    if (k % 2 != 0) {
        const int32_t x = code_at(a, width, 0);
        s0 += x * b[0];
        s1 += x * b[1];
        s2 += x * b[2];
        s3 += x * b[3];
    }
    const sums s = {s0, s1, s2, s3};
    return s;
}

static void row_across(const qfw_gemm *g, const void *a, int32_t *out)
{
    for (size_t j = 0; j < g->n; j += 4) {
        const size_t over = g->n - j < 4 ? 4 - (g->n - j) : 0, from = j - over;
        const int8_t *b = (const int8_t *)g->b + from;
        const sums s = g->a_width == 8 ? one_across(a, 8, b, g->b_row, g->k)
                                       : one_across(a, 16, b, g->b_row, g->k);
        put_last(out + from, over, &s, g->add != 0);
    }
}

void qfw_gemm_s32_dsp(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    const bool few = g->m < 4 && g->n >= 4 && g->b_width == 8 && g->a_col == 1;
    const bool along = g->b_width == 8 && g->b_row == 1;
    const bool across = few && g->b_col == 1;
    if (QFW_HAS_ANY_GEMM &&
        (g->k == 0 || (!few && (g->k < 2 || !QFW_HAS_PANELS)))) { /* too short for a panel */
        qfw_gemm_s32_scalar(g, out, out_row);
        return;
    }
    if (!QFW_HAS_ANY_GEMM || across || (few && along && g->a_width == 8)) {
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
