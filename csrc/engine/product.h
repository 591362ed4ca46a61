/* The sizes and scales of acc = a b, for its rules and its run. */
#ifndef QFW_ENGINE_PRODUCT_H
#define QFW_ENGINE_PRODUCT_H

#include "engine/engine.h"

enum { FORWARD = 0, BACK };
enum { RELU = 1, FOLDED = 2 };

typedef struct {
    int64_t m, n, k;
} sizes;

static inline sizes sizes_of(const qfw_call *call)
{
    const int64_t positions = call->op->param[3] != 0 ? call->op->param[3] : 1;
    const sizes s = {call->rows * positions, call->at[0].row / positions,
                     call->at[1].row / positions};
    return s;
}

/* Whether accumulators have a scale for each row, for each column. */
static inline bool scaled_by_row(const qfw_call *call)
{
    return qfw_by_rows(&call->at[1]);
}

static inline bool scaled_by_column(const qfw_call *call)
{
    const bool folded = (call->op->flags & FOLDED) != 0;
    return qfw_has(call, 3) || (!folded && call->at[2].scales != 1);
}

/* Whether the product writes codes at a scale that is known before. */
static inline bool requantizes(const qfw_call *call)
{
    return call->at[0].plan->bits != 32;
}

/* Matrix rows that a tile of accumulators has room for. */
static inline int64_t tile_of(const qfw_call *call)
{
    return call->at[6].n / sizes_of(call).n;
}

/* Bytes of scratch: the columns' ratios, then seeds and shifts. */
static inline int64_t ratio_bytes(const qfw_call *call)
{
    return requantizes(call) && scaled_by_column(call) ? 16 * sizes_of(call).n : 0;
}

#endif
