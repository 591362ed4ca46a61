/* Panels of a product for the DSP extension of a Cortex-M: four rows widened to 16 bits, and columns
 * that go over them. */
#ifndef QFW_KERNELS_PANEL_DSP_H
#define QFW_KERNELS_PANEL_DSP_H

#include "kernels/dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* For each four terms a panel has the words {terms 0 and 2, terms 1 and 3} of rows 0, 1, 2 and 3; terms
 * that are missing from the last four are 0. */
enum { WORDS = 128, BLOCK = 8, TERMS = WORDS / BLOCK * 4, FEW_TERMS = 16 };

/* One side of a product: elements `row` and `term` apart. */
typedef struct {
    const void *x;
    int32_t width;
    size_t row, term;
} side;

/* Where sums go: rows `row` apart, columns `col` apart. */
typedef struct {
    int32_t *out;
    size_t row, col;
} place;

typedef struct {
    int32_t s0, s1, s2, s3;
} sums;

static inline int32_t code_at(const void *x, int32_t width, size_t i)
{
    return width == 8 ? ((const int8_t *)x)[i] : ((const int16_t *)x)[i];
}

static inline const void *moved(const void *x, int32_t width, size_t i)
{
    return (const uint8_t *)x + (width == 8 ? i : 2 * i);
}

/* ---- panels ---- */

/* Four terms of four rows, each a word of bytes. */
static inline void block_across(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, uint32_t *to)
{
    const uint32_t e0 = dsp_even(w0), o0 = dsp_odd(w0), e2 = dsp_even(w2), o2 = dsp_odd(w2);
    to[0] = dsp_lows(e0, e2);
    to[2] = dsp_lows(o0, o2);
    to[4] = dsp_highs(e0, e2);
    to[6] = dsp_highs(o0, o2);
    const uint32_t e1 = dsp_even(w1), o1 = dsp_odd(w1), e3 = dsp_even(w3), o3 = dsp_odd(w3);
    to[1] = dsp_lows(e1, e3);
    to[3] = dsp_lows(o1, o3);
    to[5] = dsp_highs(e1, e3);
    to[7] = dsp_highs(o1, o3);
}

/* Four rows of bytes side by side, their terms `term` apart; in order: {0, 1} and {2, 3} of each four terms
 * are a word. */
QFW_ALWAYS_INLINE void fill_rows(const int8_t *x, size_t term, size_t terms, const bool in_order,
                                 uint32_t *to)
{
    for (; terms >= 4; terms -= 4, to += BLOCK) {
        const uint32_t w0 = dsp_word(x), w1 = dsp_word(x + term);
        x += 2 * term;
        const uint32_t w2 = dsp_word(x), w3 = dsp_word(x + term);
        x += 2 * term;
        block_across(w0, in_order ? w2 : w1, in_order ? w1 : w2, w3, to);
    }
    if (terms != 0) {
        const uint32_t w0 = dsp_word(x), w1 = terms > 1 ? dsp_word(x + term) : 0;
        const uint32_t w2 = terms > 2 ? dsp_word(x + 2 * term) : 0;
        block_across(w0, in_order ? w2 : w1, in_order ? w1 : w2, 0, to);
    }
}

static void fill_across(const int8_t *x, size_t term, size_t terms, uint32_t *to)
{
    fill_rows(x, term, terms, false, to);
}

/* One row of bytes, or of 16 bits, whose terms lie in order. */
static void fill_bytes(const int8_t *x, size_t blocks, uint32_t *to)
{
    if ((blocks & 1) != 0) {
        const uint32_t w = dsp_word(x);
        to[0] = dsp_even(w);
        to[1] = dsp_odd(w);
        x += 4;
        to += BLOCK;
    }
    for (uint32_t *end = to + BLOCK * (blocks & ~(size_t)1); to < end; x += 8, to += 2 * BLOCK) {
        const uint32_t w = dsp_word(x), w1 = dsp_word(x + 4);
        to[0] = dsp_even(w);
        to[1] = dsp_odd(w);
        to[BLOCK] = dsp_even(w1);
        to[BLOCK + 1] = dsp_odd(w1);
    }
}

static void fill_halves(const int16_t *x, size_t blocks, uint32_t *to)
{
    if ((blocks & 1) != 0) {
        const uint32_t low = dsp_word(x), high = dsp_word(x + 2);
        to[0] = dsp_lows(low, high);
        to[1] = dsp_highs(low, high);
        x += 4;
        to += BLOCK;
    }
    for (uint32_t *end = to + BLOCK * (blocks & ~(size_t)1); to < end; x += 8, to += 2 * BLOCK) {
        const uint32_t low = dsp_word(x), high = dsp_word(x + 2);
        const uint32_t low1 = dsp_word(x + 4), high1 = dsp_word(x + 6);
        to[0] = dsp_lows(low, high);
        to[1] = dsp_highs(low, high);
        to[BLOCK] = dsp_lows(low1, high1);
        to[BLOCK + 1] = dsp_highs(low1, high1);
    }
}

/* One row of anything: `n` terms. */
static void fill_any(const void *x, int32_t width, size_t term, size_t n, uint32_t *to)
{
    for (size_t i = 0; i < n; i += 4, to += BLOCK, x = moved(x, width, 4 * term)) {
        const size_t left = n - i;
        const uint32_t t0 = (uint32_t)code_at(x, width, 0);
        const uint32_t t1 = left > 1 ? (uint32_t)code_at(x, width, term) : 0;
        const uint32_t t2 = left > 2 ? (uint32_t)code_at(x, width, 2 * term) : 0;
        const uint32_t t3 = left > 3 ? (uint32_t)code_at(x, width, 3 * term) : 0;
        to[0] = dsp_lows(t0, t2);
        to[1] = dsp_lows(t1, t3);
    }
}

/* `terms` terms of the rows at x. Rows that are missing hold anything: their sums are not written. */
static void fill(const side *a, const void *x, size_t rows, size_t terms, uint32_t *panel)
{
    const int32_t width = a->width;
    const bool along = a->term == 1;
    if (a->row == 1 && width == 8 && rows == 4 && !along) {
        fill_across(x, a->term, terms, panel);
        return;
    }
    const size_t blocks = along ? terms / 4 : 0;
    for (uint32_t *to = panel; rows > 0; rows--, to += 2, x = moved(x, width, a->row)) {
        if (along && width == 8) {
            fill_bytes(x, blocks, to);
        } else if (along) {
            fill_halves(x, blocks, to);
        }
        if (4 * blocks < terms) {
            fill_any(moved(x, width, 4 * blocks * a->term), width, a->term, terms - 4 * blocks,
                     to + BLOCK * blocks);
        }
    }
}

/* ---- sums of a panel ---- */

/* Columns that go over a panel, and where the sums of its four rows go; in bytes what is apart. */
typedef struct {
    const uint32_t *panel, *end; /* of a block at least */
    int32_t *out;
    size_t n;         /* columns, one at least */
    size_t row, next; /* from a sum to the next one, of the next row and of the next column */
    ptrdiff_t skip;   /* from the end of a column of b to the next column */
    size_t odd;       /* not 0: so is the number of blocks */
} course;

/* What a block of the panel meets: bytes that lie in order, numbers of 16 bits that do, or one row of another
 * panel. */
#define NEXT_BYTES         \
    "ldr lr, [r2], #4\n\t" \
    "sxtb16 r0, lr\n\t"    \
    "sxtb16 lr, lr, ror #8\n\t"
#define NEXT_HALVES        \
    "ldr r0, [r2], #4\n\t" \
    "ldr lr, [r2], #4\n\t"
#define NEXT_PANEL "ldrd r0, lr, [r2], #32\n\t"

#define WRITTEN                  \
    "str r9, [r4]\n\t"           \
    "str r10, [r4, r5]\n\t"      \
    "add r1, r4, r5, lsl #1\n\t" \
    "str r11, [r1]\n\t"          \
    "str r12, [r1, r5]\n\t"
#define TWO_ADDED(at, first, second) \
    "ldr r3, [" at "]\n\t"           \
    "ldr lr, [" at ", r5]\n\t"       \
    "add r3, r3, " first "\n\t"      \
    "add lr, lr, " second "\n\t"     \
    "str r3, [" at "]\n\t"           \
    "str lr, [" at ", r5]\n\t"
#define ADDED \
    TWO_ADDED("r4", "r9", "r10") "add r1, r4, r5, lsl #1\n\t" TWO_ADDED("r1", "r11", "r12")

/* The columns of a course, by registers that are named: no compiler has to find room for them all. Blocks
 * go in pairs, an odd one first. */
#define COURSE(name, meets, placed)                                                             \
    static __attribute__((noinline)) void name(course *c, const void *b)                        \
    {                                                                                           \
        register course *with __asm__("r0") = c;                                                \
        register const void *at __asm__("r2") = b;                                              \
        __asm__ volatile("push {r0}\n"                                                          \
                         "2:\n\t"                                                               \
                         "ldrd r1, r3, [r0]\n\t" /* the panel and its end */                    \
                         "mov r9, #0\n\t"                                                       \
                         "mov r10, #0\n\t"                                                      \
                         "mov r11, #0\n\t"                                                      \
                         "mov r12, #0\n\t"                                                      \
                         "ldr r4, [r0, #28]\n\t" /* odd */                                      \
                         "cbnz r4, 3f\n"                                                        \
                         "1:\n\t" DSP_FOUR_TERMS(meets) "3:\n\t" DSP_FOUR_TERMS(                \
                             meets) "cmp r1, r3\n\t"                                            \
                                    "bne 1b\n\t"                                                \
                                    "ldr r0, [sp]\n\t"                                          \
                                    "ldrd r4, r6, [r0, #8]\n\t"  /* out and n */                \
                                    "ldrd r5, r8, [r0, #16]\n\t" /* row and next */             \
                         placed "add r4, r4, r8\n\t"                                            \
                                    "subs r6, r6, #1\n\t"                                       \
                                    "strd r4, r6, [r0, #8]\n\t"                                 \
                                    "ldr r3, [r0, #24]\n\t" /* skip */                          \
                                    "add r2, r2, r3\n\t"                                        \
                                    "bne 2b\n\t"                                                \
                                    "pop {r0}"                                                  \
                         : "+r"(with), "+r"(at)                                                 \
                         :                                                                      \
                         : "r1", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", \
                           "memory", "cc");                                                     \
    }

COURSE(write_bytes, NEXT_BYTES, WRITTEN)
COURSE(add_bytes, NEXT_BYTES, ADDED)
COURSE(write_halves, NEXT_HALVES, WRITTEN)
COURSE(write_panel, NEXT_PANEL, WRITTEN)
COURSE(add_panel, NEXT_PANEL, ADDED)

/* n columns of `step` bytes each, of bytes or in a panel; sums of missing rows go nowhere. */
static void run_columns(const uint32_t *panel, const uint32_t *end, size_t rows, const void *b,
                        bool bytes, ptrdiff_t step, size_t n, const place *to, bool add)
{
    const ptrdiff_t blocks = (end - panel) / BLOCK;
    course c = {panel,
                end,
                to->out,
                n,
                4 * to->row,
                4 * to->col,
                step - (bytes ? 4 * blocks : 4 * BLOCK * blocks),
                (size_t)blocks & 1};
    if (n == 0) {
        return;
    }
    if (rows == 4) {
        if (bytes) {
            (add ? add_bytes : write_bytes)(&c, b);
        } else {
            (add ? add_panel : write_panel)(&c, b);
        }
        return;
    }
    enum { SOME = 8 }; /* columns by way of a block of their own */
    int32_t block[4 * SOME];
    for (size_t j = 0; j < n; j += SOME, b = (const uint8_t *)b + SOME * step) {
        const size_t some = n - j < SOME ? n - j : SOME;
        c.out = block;
        c.n = some;
        c.row = SOME * sizeof *block;
        c.next = sizeof *block;
        if (bytes) {
            write_bytes(&c, b);
        } else {
            write_panel(&c, b);
        }
        for (size_t r = 0; r < rows; r++) {
            int32_t *o = to->out + r * to->row + j * to->col;
            for (size_t i = 0; i < some; i++, o += to->col) {
                *o = add ? *o + block[r * SOME + i] : block[r * SOME + i];
            }
        }
    }
}

#endif
#endif
