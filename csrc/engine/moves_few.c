/* The integer step of a device: a stretch at a time, its coefficients one by one. Bits are those of
 * moves.c. */
#include "base/round.h"
#include "engine/moves.h"
#include "kernels/moved.h"

static qfw_move move_of(const qfw_operand *x, ptrdiff_t scale, qfw_rounding rounding)
{
    const qfw_coef none = {0, 0, 0, 0};
    qfw_move m = {none, none, none, 28 - qfw_signed_bits(&x->t.format), 0, 0, rounding};
    qfw_codes_at(x, scale, &m.lo, &m.hi);
    return m;
}

/* ---- int8 by sums ---- */

static bool is_row_of(const qfw_operand *x, const qfw_move *m)
{
    return qfw_is_bytes(&x->t.format) && m->frac == MOVED_FRAC && m->rounding == QFW_STOCHASTIC &&
           m->w.mu == 0;
}

/* A stretch of which both are rows of Sym(8): what qfw_move_tiles returns. */
static uint32_t move_row(const qfw_job *j, const qfw_stretch *s, const qfw_move *move,
                         const qfw_move *of_state)
{
    const bool has_state = QFW_HAS_STATE && j->state != NULL;
    const int32_t *sums = (const int32_t *)j->g->codes + (s->at - j->first);
    int8_t *v = has_state ? (int8_t *)j->state->t.codes + s->at : NULL;
    qfw_row row = {NULL, sums, v, (size_t)s->n, s->at, 0, 31};
    int8_t *m = (int8_t *)j->param->t.codes + s->at;
    if (has_state) {
        const qfw_pace of_m = {qfw_slope_of(&move->g), qfw_slope_of(&move->v), &j->key};
        const qfw_pace of_v = {qfw_slope_of(&of_state->g), qfw_slope_of(&of_state->v),
                               &j->state_key};
        return qfw_move_both(m, v, &row, &of_m, &of_v);
    }
    const qfw_pace of = {qfw_slope_of(&move->g), 0, &j->key};
    return qfw_move_row(m, &row, &of);
}

static uint32_t move_any(qfw_job *j, const qfw_stretch *s, const qfw_move *move,
                         const qfw_move *of_state)
{
    const bool rows = j->plain && j->wide && is_row_of(j->param, move) &&
                      (!QFW_HAS_STATE || j->state == NULL || is_row_of(j->state, of_state));
    return rows ? move_row(j, s, move, of_state) : qfw_move_tiles(j, s, move, of_state);
}

/* ---- stretches ---- */

static void move_stretch(qfw_job *j, const qfw_stretch *s)
{
    const float s_w = j->param->t.scale[s->param], s_g = j->g->scale[s->g];
    qfw_move move = move_of(j->param, s->param, j->rounding);
    move.g = qfw_coef_of(qfw_coef_mul(j->f.step_g, s_g), s_w, move.frac, j->wide);
    move.w = qfw_coef_of(j->f.step_w, 1.0f, move.frac, j->long_w);
    if (QFW_HAS_STATE && j->state != NULL) {
        const float s_v = j->state->t.scale[s->state];
        qfw_move of_state = move_of(j->state, s->state, j->state_rounding);
        move.v = qfw_coef_of(qfw_coef_mul(j->f.step_v, s_v), s_w, move.frac, j->long_v);
        of_state.v = qfw_coef_of(j->f.state_v, 1.0f, of_state.frac, j->long_v);
        of_state.g = qfw_coef_of(qfw_coef_mul(j->f.state_g, s_g), s_v, of_state.frac, j->wide);
        of_state.w = qfw_coef_of(qfw_coef_mul(j->f.state_w, s_w), s_v, of_state.frac, j->long_w);
        qfw_flag(j, s, move_any(j, s, &move, &of_state));
    } else {
        qfw_flag(j, s, move_any(j, s, &move, &move));
    }
}

void qfw_move_few(qfw_job *j, ptrdiff_t first, ptrdiff_t end)
{
    for (ptrdiff_t i = first; i < end;) {
        const qfw_run w = qfw_run_at(&j->param->t.layout, i);
        const qfw_run g = qfw_run_at(&j->g->layout, i - j->first);
        qfw_stretch s = {i, qfw_shorter(end - i, qfw_shorter(w.n, g.n)), w.scale, g.scale, 0};
        if (QFW_HAS_STATE && j->state != NULL) {
            const qfw_run v = qfw_run_at(&j->state->t.layout, i);
            s.n = qfw_shorter(s.n, v.n);
            s.state = v.scale;
        }
        move_stretch(j, &s);
        i += s.n;
    }
}
