/* Codes that move by the products of one number: the inside of an outer product's step. */
#ifndef QFW_KERNELS_MOVED_H
#define QFW_KERNELS_MOVED_H

#include "kernels/update_loops.h"

/* The words u, u + step, ... of neighbours in a block. */
typedef struct {
    uint32_t u, step;
} qfw_words;

/* m[i] moves by the term of c * x[i], c = code * mu and |code|, |x[i]| <= 2^7: Sym(8), rounded
 * stochastically by u + i step. A product is below 2^30; that its term, (c x[i]) >> right, is not clamped
 * to 2^28 changes nothing, as m[i] leaves its codes either way.
 *   right   <= 31
 *   returns 1 if one was outside -128 .. 127 */
uint32_t qfw_move_products(int8_t *m, const int8_t *x, size_t n, int32_t c, uint32_t right,
                           uint32_t u, uint32_t step);

/* m[i] moves by the terms of code * x[i] and v[i], v[i] becomes those of the state, as update_s32 does
 * it: Sym(8), rounded stochastically by u and u_v, and |code|, |x[i]| <= 2^7. No coefficients of w. */
uint32_t qfw_move_states(int8_t *m, int8_t *v, const int8_t *x, size_t n, int32_t code,
                         const qfw_move *move, const qfw_move *state, qfw_words u, qfw_words u_v);

/* Sym(8), stochastic: terms have 20 more bits. */
enum { MOVED_FRAC = 20, MOVED_MOST = 127 };

/* Moves a code; -128 is held, and is no event. */
static inline void moved_hold(int8_t *at, int32_t v, uint32_t event, uint32_t *out)
{
    if (v > MOVED_MOST || v < -MOVED_MOST) {
        *out |= v != -MOVED_MOST - 1 ? event : 0u;
        v = v > 0 ? MOVED_MOST : -MOVED_MOST;
    }
    *(uint8_t *)at = (uint8_t)((uint32_t)v & 0xFFu);
}

/* y is a step with its random word added. Where it is 0 nothing moves. */
static inline void moved_by(int8_t *m, int32_t y, uint32_t *out)
{
    const int32_t by = y >> MOVED_FRAC;
    if (by != 0) {
        moved_hold(m, *m - by, 1, out);
    }
}

static inline uint32_t moved_one_by_one(int8_t *m, const int8_t *x, const int8_t *end, int32_t c,
                                        uint32_t right, uint32_t u, uint32_t step)
{
    uint32_t out = 0;
    for (; x < end; x++, m++, u = qfw_add32(u, step)) {
        moved_by(m, ((c * *x) >> right) + (int32_t)(u >> (32 - MOVED_FRAC)), &out);
    }
    return out;
}

#endif
