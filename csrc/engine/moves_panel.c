/* The integer step of a device by sums over some rows: the wire is brought into a panel once, and every row
 * of weights meets it. Bits are those of moves.c. */
#include "engine/moves_panel.h"

static bool is_one(const qfw_operand *t, ptrdiff_t at)
{
    return qfw_bits_f32(t->t.scale[at]) == QFW_F32_ONE;
}

/* Row o, whose codes and their size are there, and not 0. False: it has to be moved by sums. */
static bool move_row(qfw_step_rows *s, ptrdiff_t o, qfw_panel_row *r)
{
    qfw_panel_slopes of;
    r->made = false;
    if (is_one(s->param, o) || is_one(s->state, o)) { /* which may have no range yet */
        const uint32_t most = qfw_panel_largest(r);
        qfw_begin_scale(s, s->param, o, most, s->step_g);
        qfw_begin_scale(s, s->state, o, most, s->v->state_g);
    }
    const float s_w = s->param->t.scale[o], s_v = s->state->t.scale[o];
    float by_v;
    if (!qfw_find_by_state(s->v, s_v, &by_v) || !qfw_find_slope(s->of_param, s_w, &of.g) ||
        !qfw_find_slope(by_v, s_w, &of.v) || !qfw_find_slope(s->v->of_state, s_v, &of.g_v)) {
        return false;
    }
    r->first = o * s->row;
    r->m = (int8_t *)s->param->t.codes + r->first;
    r->v = (int8_t *)s->state->t.codes + r->first;
    const int32_t out = qfw_move_by_panel(r, &of);
    if (out > 0) {
        qfw_flag_both(s, o, (uint32_t)out);
    }
    return out >= 0;
}

bool qfw_move_panel(qfw_step_rows *s, const int8_t *e, const int8_t *x, size_t terms, int32_t *room,
                    size_t words)
{
    const size_t n = (size_t)s->row, rows = (size_t)s->rows;
    if (!QFW_HAS_STATE || s->state == NULL || !qfw_takes_panel(rows, n, terms) ||
        words < (1 + QFW_PANEL_WORDS) * n || s->param->scales != s->rows ||
        s->state->scales != s->rows) {
        return false;
    }
    uint32_t *panel = (uint32_t *)room + n, codes[8]; /* of four rows */
    qfw_panel_row r = {NULL, NULL, NULL, 0, false, 0, n, room, panel, s->key, s->v->key, 0};
    const bool some = qfw_bits_f32(s->v->step_v) != 0 && qfw_bits_f32(s->of_param) != 0 &&
                      qfw_bits_f32(s->v->of_state) != 0;
    if (!some || !qfw_panel_own(&r, qfw_panel_slope_of(s->v->own))) {
        return false;
    }
    qfw_fill_panel(x, n, terms, panel);
    for (size_t o = 0; o < rows; o++) {
        if (o % 4 == 0) { /* the last four begin earlier */
            const size_t first = rows - o < 4 ? rows - 4 : o;
            qfw_panel_codes(e + first, rows, terms, codes);
            r.codes = codes + 2 * (o - first);
        }
        r.all = qfw_panel_sum(r.codes);
        if (r.all == 0) {
            qfw_move_sums(s, (ptrdiff_t)o, room, -1);
        } else if (!move_row(s, (ptrdiff_t)o, &r)) {
            qfw_move_summed(s, (ptrdiff_t)o, e, x, terms, room);
        }
        r.codes += 2;
    }
    return true;
}
