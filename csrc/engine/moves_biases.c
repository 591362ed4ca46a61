/* The integer step of a device's biases by sums, each with a state and its scale: what of it is short. Bits are
 * those of moves.c. */
#include "engine/moves_rows.h"

/* Bits that a step of Sym(8), of Sym(16) has more than its code. */
enum { FRAC = 20, BIAS_FRAC = 12 };

/* What a term's slope moves a product of 16 bits by. */
static inline int32_t lift_of(qfw_slope k, int32_t frac)
{
    return (int32_t)(k >> 23) - 142 + frac;
}

static inline int32_t mu_of(qfw_slope k)
{
    return (int32_t)((k >> 8 & 0x7FFFu) | 0x8000u);
}

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

/* What all biases share. */
typedef struct {
    qfw_soft_factor step_v;
    float s_w, of_state;
    int32_t mu_g, lift_g, own; /* a code of the state is own times itself */
} shared;

/* Steps of both by the sum g and the state's code v, whose scale is s_v, without what rounds them. */
QFW_ALWAYS_INLINE bool find_steps(const shared *of, int32_t g, int32_t v, float s_v, int32_t *y,
                                  int32_t *y_v)
{
    uint32_t exp;
    const uint32_t top = qfw_soft_times(of->step_v, qfw_bits_f32(s_v), &exp);
    const qfw_slope by_v =
        exp <= 252 ? qfw_bits_f32(qfw_soft_div_upper(qfw_from_bits_f32(top), of->s_w)) : 0;
    const qfw_slope by_g = qfw_bits_f32(qfw_soft_div_upper(of->of_state, s_v));
    const int32_t lift = lift_of(by_v, BIAS_FRAC), up = lift > 0 ? lift : 0;
    int32_t of_g, of_g_v;
    const bool fast = sum_term(g, of->mu_g, of->lift_g, &of_g) &&
                      sum_term(g, mu_of(by_g), lift_of(by_g, FRAC), &of_g_v) && lift > -31 &&
                      lift <= MOST_LIFT;
    *y = of_g + ((v * mu_of(by_v) * (1 << (up & 7))) >> ((up - lift) & 31));
    *y_v = of_g_v + v * of->own;
    return fast;
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
    const int32_t lift = lift_of(s->v->own, FRAC);
    if (qfw_bits_f32(s->v->step_v) == 0 || lift < 0 || lift > MOST_LIFT) {
        return false;
    }
    const shared of = {s->v->soft_v, s->param->t.scale[0],  s->v->of_state,
                       mu_of(k),     lift_of(k, BIAS_FRAC), mu_of(s->v->own) << lift};
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
