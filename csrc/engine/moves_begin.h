/* Scales that begin, of the step of a device row by row: inside of moves_rows.c. */
#ifndef QFW_ENGINE_MOVES_BEGIN_H
#define QFW_ENGINE_MOVES_BEGIN_H

#include "engine/moves_rows.h"
#include "engine/rescale.h"
#include "kernels/update_loops.h"

/* ---- scales without a range ---- */

static inline ptrdiff_t scale_of(const qfw_operand *t, ptrdiff_t row)
{
    return t->scales == 1 ? 0 : row;
}

static bool is_one(float scale)
{
    return qfw_bits_f32(scale) == qfw_bits_f32(1.0f);
}

QFW_SMALL_APART static uint32_t largest(const int8_t *x, ptrdiff_t n)
{
    uint32_t most = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        most = qfw_abs32(x[i]) > most ? qfw_abs32(x[i]) : most;
    }
    return most;
}

static uint32_t largest_sum(const int32_t *sums, ptrdiff_t n)
{
    uint32_t most = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        most = qfw_abs32(sums[i]) > most ? qfw_abs32(sums[i]) : most;
    }
    return most;
}

QFW_INLINE bool is_without_range(const qfw_operand *t, ptrdiff_t at)
{
    return is_one(t->t.scale[at]) && qfw_has_no_range(t, at);
}

/* By codes up to `most` of the gradient; c is the factor of a step. */
static void start(const qfw_step_rows *s, const qfw_operand *t, ptrdiff_t at, uint32_t most,
                  float c)
{
    if (most != 0) {
        qfw_start_scale(t, at, qfw_scale_for(s->sigma, most, 1), c, QFW_AS_GRADIENT);
    }
}

/* Begins scale `at` by the row's own gradient, if it has no range. */
static QFW_COLD void begin(qfw_step_rows *s, const qfw_operand *t, const qfw_row *r, ptrdiff_t at,
                           float c)
{
    if (!qfw_has_no_range(t, at)) {
        return;
    }
    if (QFW_HAS_ANY_MOVE && r->x == NULL) {
        start(s, t, at, largest_sum(r->sums, s->row), c);
        return;
    }
    if (s->most == 0) {
        s->most = largest(r->x, s->row);
    }
    start(s, t, at, qfw_abs32(r->code) * s->most, c);
}

/* The scale of a row, which begins by its own gradient; one of all rows has begun. */
QFW_INLINE ptrdiff_t begun(qfw_step_rows *s, const qfw_operand *t, const qfw_row *r, ptrdiff_t o,
                           float c)
{
    const ptrdiff_t at = scale_of(t, o);
    if (is_one(t->t.scale[at]) && t->scales == s->rows) {
        begin(s, t, r, at, c);
    }
    return at;
}

#endif
