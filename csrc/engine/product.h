/* The sizes and scales of acc = a b, for its rules and its run. */
#ifndef QFW_ENGINE_PRODUCT_H
#define QFW_ENGINE_PRODUCT_H

#include "engine/patches.h"

enum { FORWARD = 0, BACK };
enum { RELU = 1, FOLDED = 2, COLUMNS = 4 };

typedef struct {
    ptrdiff_t m, n, k;
} sizes;

/* Matrix rows in a row of the step, of the result and of a. */
static inline ptrdiff_t positions_of(const qfw_call *call)
{
    return qfw_positions_of(call->op, 3);
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
    const ptrdiff_t positions = positions_of(call), own = a_channels_of(call);
    const sizes s = {qfw_times(call->rows, positions), call->at[0].row / positions,
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
    return qfw_has(call, 3) || asked || (!folded && call->at[2].scales != 1);
}

/* Whether the product writes codes at a scale that is known before. */
static inline bool requantizes(const qfw_call *call)
{
    return QFW_HAS_REQUANTIZE && call->at[0].plan->kind == QFW_SYM && call->at[0].plan->bits != 32;
}

/* Matrix rows that a tile of accumulators has room for. */
static inline ptrdiff_t tile_of(const qfw_call *call)
{
    return call->at[6].n / sizes_of(call).n;
}

/* Bytes of scratch: the columns' ratios, then seeds and shifts, then patches of an image. */
static inline ptrdiff_t ratio_bytes(const qfw_call *call)
{
    return requantizes(call) && scaled_by_column(call) ? 16 * sizes_of(call).n : 0;
}

static inline ptrdiff_t patches_at(const qfw_call *call)
{
    const bool floats = call->at[0].plan->kind == QFW_FLOAT32;
    const ptrdiff_t seeds = !floats && qfw_has(call, 3) ? 5 * sizes_of(call).n : 0;
    return (ratio_bytes(call) + seeds + QFW_ALIGN - 1) / QFW_ALIGN * QFW_ALIGN;
}

#endif
