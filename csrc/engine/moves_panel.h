/* Rows of weights that move by sums of bytes: one by one, or by a panel of the wire. */
#ifndef QFW_ENGINE_MOVES_PANEL_H
#define QFW_ENGINE_MOVES_PANEL_H

#include "engine/moves_rows.h"
#include "kernels/panel_rows.h"

/* The slope top / to, that of qfw_soft_div_upper without its ends: a slope of which `lift` is not far from
 * 0, so that it is a normal number, and top not 0. False: it is close to the next one. */
static inline bool qfw_find_slope(float top, float to, qfw_panel_slope *s)
{
    if (!QFW_SOFT_FLOAT) {
        *s = qfw_panel_slope_of(qfw_bits_f32(qfw_coef_div(top, to)));
        return true;
    }
    qfw_soft_upper q;
    const bool is_clear = qfw_soft_find_upper(qfw_soft_number_of(top), qfw_soft_number_of(to), &q);
    s->mu = q.mu;
    s->lift = (int32_t)q.field - 122;
    return is_clear;
}

/* step_v times a scale of the state; false: it is no normal number. */
static inline bool qfw_find_by_state(const qfw_state_rows *of, float s_v, float *to)
{
    if (!QFW_SOFT_FLOAT) {
        *to = qfw_coef_mul(of->step_v, s_v);
        return qfw_bits_f32(*to) != 0;
    }
    uint32_t exp;
    *to = qfw_from_bits_f32(qfw_soft_times(of->soft_v, qfw_bits_f32(s_v), &exp));
    return exp <= 252;
}

/* Row o by the sums over `terms` rows of errors and wires, which are made at `sums`: what has no error
 * costs nothing. */
static inline void qfw_move_summed(qfw_step_rows *s, ptrdiff_t o, const int8_t *e, const int8_t *x,
                                   size_t terms, int32_t *sums)
{
    const uint32_t all = qfw_sum_row(sums, e + o, (size_t)s->rows, x, (size_t)s->row, terms);
    /* |x| <= 2^7 */
    qfw_move_sums(s, o, sums, all == 0 ? -1 : 8 + qfw_msb64(all));
}

/* All rows; false, and nothing was done, where a panel is not worth it. room: of so many words. */
bool qfw_move_panel(qfw_step_rows *s, const int8_t *e, const int8_t *x, size_t terms, int32_t *room,
                    size_t words);

#endif
