/* The sizes of gradients, for what makes them and what checks them. */
#ifndef QFW_ENGINE_GRADIENT_H
#define QFW_ENGINE_GRADIENT_H

#include "engine/convolve.h"
#include "engine/patches.h"

enum { FOLDED = 4, DIAGONAL = 32 };
enum { CHUNK = 9, SHIFT = 10, POSITIONS = 11 };

enum { STORED_PATCHES = 5, UPDATE_PATCHES = 6, ADAMW_PATCHES = 7, FLOAT_PATCHES = 4 };

/* Rows of the gradient's matrix, elements of a row, terms of a sum. */
typedef struct {
    ptrdiff_t out, in, terms;
} sizes;

static inline bool is_diagonal(const qfw_call *call)
{
    return QFW_HAS_DIAGONAL && (call->op->flags & DIAGONAL) != 0;
}

/* Of the wire, where it is an image that a window goes over. */
static inline ptrdiff_t image_channels(const qfw_call *call)
{
    return call->at[2].row / qfw_in_positions(call->window);
}

static inline sizes sizes_of(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const ptrdiff_t positions = qfw_positions_of(call->op, POSITIONS);
    ptrdiff_t in = 1;
    if (qfw_has_window(call)) {
        in = qfw_times(qfw_taps(w), image_channels(call) / w->groups);
    } else if (qfw_has(call, 2) && !is_diagonal(call)) {
        in = call->at[2].row / positions;
    }
    const sizes s = {call->at[1].row / positions, in, qfw_times(call->rows, positions)};
    return s;
}

/* Rows a tile of accumulators has room for. */
static inline ptrdiff_t tile_of(const qfw_call *call)
{
    return call->at[3].n / sizes_of(call).in;
}

static inline qfw_moments moments_of(const qfw_call *call)
{
    const qfw_moments of = {&call->at[0], &call->at[4], &call->at[5], &call->at[6]};
    return of;
}

#endif
