/* The sizes and scales of acc = a b, for its rules and its run; what products of several kinds
 * share. */
#ifndef QFW_ENGINE_PRODUCT_H
#define QFW_ENGINE_PRODUCT_H

#include "engine/patches.h"

enum { FORWARD = 0, BACK };
enum { RELU = 1, FOLDED = 2, COLUMNS = 4 };

typedef struct {
    ptrdiff_t m, n, k;
} sizes;

/* The window over the image of sums, whose number plus 1 is param[4]; NULL: they are not pooled. */
static inline const qfw_window *pool_of(const qfw_call *call)
{
    const bool pooled = QFW_HAS_POOLED && call->op->kernel == QFW_NUMBER_product_pool_s32;
    const uint32_t *number = call->op->param; /* of the windows, which lie side by side */
    return pooled ? call->window + ((ptrdiff_t)number[4] - (ptrdiff_t)number[QFW_WINDOW_PARAM])
                  : NULL;
}

/* Matrix rows in a row of the step, of the sums and of a; one without QFW_HAS_ANY_GEMM, in a step of one
 * row. */
static inline ptrdiff_t positions_of(const qfw_call *call)
{
    return QFW_HAS_ANY_GEMM ? qfw_positions_of(call->op, 3) : 1;
}

static inline ptrdiff_t a_positions_of(const qfw_call *call)
{
    const qfw_window *w = call->window;
    return !qfw_has_window(call)           ? positions_of(call)
           : call->op->param[0] == FORWARD ? qfw_in_positions(w)
                                           : qfw_out_positions(w);
}

/* Channels of a position of a. */
static inline ptrdiff_t a_channels_of(const qfw_call *call)
{
    return call->at[1].row / a_positions_of(call);
}

/* k: the most terms of a sum. */
static inline sizes sizes_of(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const qfw_window *pool = pool_of(call);
    const ptrdiff_t positions = positions_of(call), own = a_channels_of(call);
    const ptrdiff_t made = pool != NULL ? qfw_out_positions(pool) : positions;
    const ptrdiff_t rows = QFW_HAS_ANY_GEMM ? qfw_times(qfw_rows_in(call), positions) : 1;
    const sizes s = {rows, call->at[0].row / made,
                     !qfw_has_window(call) ? own : qfw_times(qfw_taps(w), own / w->groups)};
    return s;
}

/* Whether accumulators have a scale for each row, for each column. */
static inline bool scaled_by_row(const qfw_call *call)
{
    return QFW_HAS_ROW_SCALES && qfw_by_rows(&call->at[1]);
}

static inline bool scaled_by_column(const qfw_call *call)
{
    const bool folded = (call->op->flags & FOLDED) != 0, asked = (call->op->flags & COLUMNS) != 0;
    const bool by_b = QFW_HAS_ANY_FINISH && (asked || (!folded && call->at[2].scales != 1));
    return qfw_has(call, 3) || by_b;
}

/* Whether the product writes codes. */
static inline bool requantizes(const qfw_call *call)
{
    return QFW_HAS_REQUANTIZE && call->at[0].plan->kind == QFW_SYM && call->at[0].plan->bits != 32;
}

/* And at a scale that only all of its sums tell: they are made twice. */
static inline bool recomputes(const qfw_call *call)
{
    return QFW_HAS_RECOMPUTE && requantizes(call) && call->at[0].plan->range == QFW_DYNAMIC;
}

/* Matrix rows that a tile of accumulators has room for. */
static inline ptrdiff_t tile_of(const qfw_call *call)
{
    return QFW_HAS_REQUANTIZE ? call->at[6].n / sizes_of(call).n : 0; /* else no place 6 */
}

/* Bytes of scratch: the columns' ratios, then seeds and shifts, then, where sums are pooled, the
 * absmaxes of all of them, then patches of an image. */
static inline ptrdiff_t ratio_bytes(const qfw_call *call)
{
    return requantizes(call) && scaled_by_column(call) ? 16 * sizes_of(call).n : 0;
}

static inline ptrdiff_t aligned(ptrdiff_t bytes)
{
    return (bytes + QFW_ALIGN - 1) / QFW_ALIGN * QFW_ALIGN;
}

static inline ptrdiff_t seeds_end(const qfw_call *call)
{
    const bool floats = call->at[0].plan->kind == QFW_FLOAT32;
    return ratio_bytes(call) + (!floats && qfw_has(call, 3) ? 5 * sizes_of(call).n : 0);
}

static inline ptrdiff_t patches_at(const qfw_call *call)
{
    const ptrdiff_t pooled = pool_of(call) != NULL ? 4 * sizes_of(call).n : 0;
    return aligned(aligned(seeds_end(call)) + pooled);
}

/* ---- product.c ---- */

/* Sums of the matrix rows first .. first + m - 1. */
QFW_NOINLINE void qfw_product_sums(const qfw_call *call, ptrdiff_t first, ptrdiff_t m, void *out);

/* What follows the sums of rows that share scales, a's being s_a. Sets sigma. */
qfw_finish qfw_product_finish(const qfw_call *call, float s_a, float *sigma, uint32_t *absmax);

/* One row of sums, which is there, to int8 codes at the scale of place 0, with what follows it; the sums
 * stay. False: it has to be done step by step. *saturated grows. */
bool qfw_product_coded(const qfw_call *call, const qfw_tensor *sums, uint64_t *saturated);

/* The mask of the matrix rows from `row` on. */
void qfw_product_mask(const qfw_call *call, ptrdiff_t row, qfw_finish *f);

/* QFW_E_RANGE for weights whose codes could take a sum with codes of `a_bits` bits beyond its bound;
 * QFW_E_NONFINITE for a bias that is none. */
qfw_status qfw_product_codes(const qfw_call *call, int32_t a_bits);
qfw_status qfw_product_bias(const qfw_call *call);

/* ---- requantized.c ---- */

/* Sums of some rows, as codes of the matrix rows from `row` on. */
qfw_status qfw_product_encode(const qfw_call *call, const qfw_tensor *sums, ptrdiff_t row);

/* All rows of a product without windows that pool: the sums, what follows them, and their codes. */
qfw_status qfw_product_requantize(const qfw_call *call);

/* ---- recomputed.c ---- */

/* The scale that the sums at place 6 need, as their absmaxes tell; for the codes at place 0. */
qfw_num qfw_tile_scale(const qfw_call *call);
void qfw_set_found_scale(const qfw_call *call, qfw_num found);

/* Makes all sums, a tile at a time, and sets the scale of their codes. */
void qfw_product_range(const qfw_call *call);

/* ---- product_rule.c ---- */

/* What is wrong with the operands of a product that writes codes, a's having `a_bits` bits. */
const char *qfw_product_fault(const qfw_call *call, int32_t a_bits);

#endif
