/* The integer step of a device's biases by sums, each with a state and its scale: what of it is short. Bits are
 * those of moves.c. */
#include "engine/moves_panel.h"

/* Bits that a step of Sym(8), of Sym(16) has more than its code. */
enum { FRAC = 20, BIAS_FRAC = 12 };

/* The term of a sum, |g| < 2^12: |g mu| < 2^28. Moved down it needs no clamp, and none up where that is at
 * most 2^28. False: it is another. A slope of 0 has the least lift. */
QFW_ALWAYS_INLINE bool sum_term(int32_t g, int32_t mu, int32_t lift, int32_t *to)
{
    const int32_t y = g * mu;
    if (lift <= 0) {
        *to = y >> (-lift & 31);
        return lift > -31;
    }
    *to = y * (1 << (lift & 15));
    return lift < 16 && qfw_abs32(y) <= 1u << (28 - lift);
}

/* And that of a code of 8 bits: |v mu| <= 2^23. */
enum { MOST_LIFT = 5 };

/* What all biases share: the slope of a sum; a code of the state is `own` times itself. */
typedef struct {
    const qfw_state_rows *v;
    float s_w;
    int32_t mu, lift, own;
} shared;

/* From steps of a state to those of a parameter. */
enum { LESS = FRAC - BIAS_FRAC };

/* Steps of both by the sum g and the state's code v, whose scale is s_v, without what rounds them. */
QFW_ALWAYS_INLINE bool find_steps(const shared *of, int32_t g, int32_t v, float s_v, int32_t *y,
                                  int32_t *y_v)
{
    qfw_panel_slope by_v, by_g;
    float top;
    int32_t of_g, of_g_v;
    const bool fast = qfw_find_by_state(of->v, s_v, &top) && qfw_find_slope(top, of->s_w, &by_v) &&
                      qfw_find_slope(of->v->of_state, s_v, &by_g) &&
                      sum_term(g, of->mu, of->lift, &of_g) &&
                      sum_term(g, (int32_t)by_g.mu, by_g.lift, &of_g_v);
    if (!fast || by_v.lift - LESS <= -31 || by_v.lift - LESS > MOST_LIFT) {
        return false;
    }
    const int32_t lift = by_v.lift - LESS, up = lift > 0 ? lift : 0;
    *y = of_g + ((v * (int32_t)by_v.mu * (1 << up)) >> (up - lift));
    *y_v = of_g_v + v * of->own;
    return true;
}

/* Element i, which has a sum or a state. False: it moves as others do. */
QFW_ALWAYS_INLINE bool move_bias(const shared *of, int32_t g, float s_v, uint32_t u, uint32_t u_v,
                                 int16_t *m, int8_t *v)
{
    int32_t y, y_v;
    if (qfw_abs32(g) >= 1u << 12 || !find_steps(of, g, *v, s_v, &y, &y_v)) {
        return false;
    }
    const int32_t to = *m - ((y + (int32_t)(u >> (32 - BIAS_FRAC))) >> BIAS_FRAC);
    const int32_t to_v = (y_v + (int32_t)(u_v >> (32 - FRAC))) >> FRAC;
    if ((uint32_t)(to + INT16_MAX) > 2 * INT16_MAX || (uint32_t)(to_v + INT8_MAX) > 2 * INT8_MAX) {
        return false; /* it is held */
    }
    *m = (int16_t)to;
    *v = (int8_t)to_v;
    return true;
}

bool qfw_move_short_biases(qfw_step_rows *s, const int32_t *sums, qfw_slope k, int32_t *out)
{
    if (!QFW_SOFT_FLOAT || !QFW_HAS_STATE || s->state == NULL || s->state->scales != s->rows) {
        return false;
    }
    const qfw_panel_slope own = qfw_panel_slope_of(s->v->own), g = qfw_panel_slope_of(k);
    if (qfw_bits_f32(s->v->step_v) == 0 || qfw_bits_f32(s->v->of_state) == 0 || own.lift < 0 ||
        own.lift > MOST_LIFT) {
        return false;
    }
    const shared of = {s->v, s->param->t.scale[0], (int32_t)g.mu, g.lift - LESS,
                       (int32_t)own.mu << own.lift};
    const float *s_v = s->state->t.scale;
    int16_t *m = s->param->t.codes;
    int8_t *v = s->state->t.codes;
    for (ptrdiff_t i = 0, end; i < s->rows; i = end) {
        qfw_words w = moved_words(&s->key, i), w_v = moved_words(&s->v->key, i);
        end = i + (ptrdiff_t)moved_count(i, (size_t)(s->rows - i));
        for (; i < end; i++, w.u = qfw_add32(w.u, w.step), w_v.u = qfw_add32(w_v.u, w_v.step)) {
            if ((sums[i] | v[i]) == 0) {
                continue;
            }
            if (v[i] == 0) {
                qfw_begin_scale(s, s->state, i, qfw_abs32(sums[i]), s->v->state_g);
            }
            if (!move_bias(&of, sums[i], s_v[i], w.u, w_v.u, m + i, v + i)) {
                *out |= qfw_move_bias(s, i, sums, k);
            }
        }
    }
    return true;
}
