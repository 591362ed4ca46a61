/* The integer step of a device by one row of errors, where no parameter has a state: inside of moves_rows.c. */
#ifndef QFW_ENGINE_MOVES_FOURS_H
#define QFW_ENGINE_MOVES_FOURS_H

#include "base/random.h"
#include "engine/moves_begin.h"
#include "kernels/rows.h"

/* ---- weights ---- */

/* Row o of the parameter by itself; it has an error. */
QFW_INLINE void move_param(qfw_step_rows *s, ptrdiff_t o, qfw_row *r)
{
    const ptrdiff_t at = begun(s, s->param, r, o, s->step_g);
    const float s_w = s->param->t.scale[at];
    const qfw_pace of = {qfw_row_slope(s->of_param, s_w), 0, &s->key};
    int8_t *m = (int8_t *)s->param->t.codes + r->first;
    qfw_flag_row(s, at, qfw_move_row(m, r, &of));
}

/* Whether rows are of fours, which have room where their sums would have it. */
static bool is_of_fours(ptrdiff_t row)
{
    return QFW_HAS_OUTER_ROWS && (!QFW_HAS_RESTS || (row % 4 == 0 && row >= QFW_FOURS_LEAST));
}

/* Row o, of which `why` is told. */
QFW_COLD static void move_apart(qfw_step_rows *s, ptrdiff_t o, qfw_row *r, qfw_rows_stop why)
{
    const qfw_operand *m = s->param;
    const ptrdiff_t at = scale_of(m, o);
    uint32_t out = 1;
    if (why == QFW_ROW_ONE) {
        if (m->scales == s->rows) {
            begin(s, m, r, at, s->step_g);
        }
        return;
    }
    if (why == QFW_ROW_FAR) {
        const qfw_pace of = {qfw_row_slope(s->of_param, m->t.scale[at]), 0, &s->key};
        out = qfw_move_row((int8_t *)m->t.codes + r->first, r, &of);
    }
    qfw_flag_row(s, at, out);
}

/* All rows of such a parameter, by e x^T; scales have begun, or are a row's own. */
QFW_SMALL static void move_fours(qfw_step_rows *s, const int8_t *e, const int8_t *x)
{
    const qfw_operand *m = s->param;
    const size_t row = (size_t)s->row;
    uint32_t *fours = s->call->at[3].t.codes; /* sums of a row at least */
    const uint32_t top = qfw_bits_f32(s->of_param);
    qfw_outer_rows r = {e,
                        e + s->rows,
                        e + 1,
                        row,
                        m->t.scale,
                        m->scales == 1 ? 0 : sizeof *m->t.scale,
                        (top & 0x7FFFFFu) | 0x800000u,
                        top == 0 ? -1000 : (int32_t)(top >> 23) + 17,
                        s->key,
                        m->t.codes,
                        fours,
                        NULL};
    qfw_rows_stop why = qfw_fours_of(x, row, fours) ? qfw_move_rows(&r) : QFW_ROWS_END;
    for (; why != QFW_ROWS_END; why = qfw_move_rows(&r)) {
        const ptrdiff_t o = r.e - r.second;
        qfw_row one = {x, NULL, NULL, row, o * s->row, e[o], 0};
        move_apart(s, o, &one, why);
        if (why == QFW_ROW_ONE) {
            r.looked_at = r.e--;
        }
    }
}

/* ---- biases ---- */

/* Biases i .. end - 1, which have the words of one block, by errors alone; whether one left its codes. Terms
 * are at most 2^28, without a clamp, where up <= 5: |e mu| < 2^23. */
QFW_INLINE int32_t move_plain(qfw_step_rows *s, ptrdiff_t i, ptrdiff_t end, const int8_t *e,
                              qfw_slope k)
{
    const int32_t mu = moved_mu(k), lift = moved_lift(k) + QFW_BIAS_FRAC - MOVED_FRAC;
    const int32_t up = lift < 0 ? 0 : lift < 28 ? lift : 28, most = (1 << 28) >> up;
    const int32_t down = lift > 0 ? 0 : lift > -31 ? -lift : 31;
    int16_t *m = s->param->t.codes;
    int32_t out = 0;
    for (qfw_words w = moved_words(&s->key, i); i < end; i++, w.u = qfw_add32(w.u, w.step)) {
        if (e[i] != 0) {
            int32_t v = e[i] * mu;
            if (up > 5) {
                v = v > most ? most : v < -most ? -most : v;
            }
            v = v * (1 << up) >> down;
            m[i] = qfw_bias_held(m[i] - loop_round(v, QFW_BIAS_FRAC, QFW_STOCHASTIC, w.u), &out);
        }
    }
    return out;
}

#endif
