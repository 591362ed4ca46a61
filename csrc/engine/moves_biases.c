/* The integer step of a device's biases by sums, each with a state and its scale: what of it is short. Bits are
 * those of moves.c. */
#include "engine/moves_panel.h"
#include "engine/rescale.h"
#include "kernels/ratio.h"

/* The term of a sum, |g| < 2^12: |g mu| < 2^28. Moved down it needs no clamp, and moved up it is at most
 * 2^most; false: it is another. A slope of 0 has the least lift. */
QFW_ALWAYS_INLINE bool sum_term(int32_t g, int32_t mu, int32_t lift, int32_t most, int32_t *to)
{
    const int32_t y = g * mu;
    if (lift <= 0) {
        *to = y >> (-lift & 31);
        return lift > -31;
    }
    *to = y * (1 << (lift & 15));
    return lift < 16 && qfw_abs32(y) <= 1u << (most - lift);
}

/* Terms of the parameter are at most 2^28 each, |v mu| <= 2^23. Those of the state are below 127 2^20 of its
 * codes, and at most 2^30 of sums: one above 2^28, which the definition clamps, leaves the codes by more
 * than one step either way. */
enum { MOST = 28, MOST_LIFT = 5, MOST_G_V = 30, MOST_OWN = 4 };

/* step_v / s_w: 2^31 times its mantissa, short of it by less than 2^-28 of that; lift: that of a slope,
 * less the field of a scale's exponent; product: the field of step_v times a scale, less that and 2. */
typedef struct {
    uint32_t mant;
    int32_t lift, product;
} quotient;

static quotient quotient_of(float step_v, float s_w)
{
    const uint32_t x = qfw_bits_f32(step_v), y = qfw_bits_f32(s_w);
    const qfw_ratio_to to = qfw_ratio_to_of(s_w);
    const uint32_t n = qfw_mantissa(x) << 7, small = n < to.mant ? 1 : 0;
    const quotient q = {qfw_mulhi(n << small, to.recip) << 1,
                        (int32_t)(x >> 23) - (int32_t)(y >> 23) - (int32_t)small - 122,
                        (int32_t)(x >> 23) - 129};
    return q;
}

/* The slope of a state's codes at the scale s_v: that of the nearest float to the quotient by s_w of the
 * nearest one to step_v s_v. The product here differs by less than 2^-22.9 of it, so that 16 bits are the
 * same where those that follow are not close to 0 or 1: by 2^9.1 units. */
static inline bool find_by_quotient(const quotient *q, uint32_t s_v, qfw_panel_slope *to)
{
    enum { CLOSE = 1024 };
    const int32_t field = (int32_t)(s_v >> 23);
    uint32_t high = qfw_mulhi(q->mant, s_v << 8 | 0x80000000u);
    to->lift = q->lift + field + 1;
    if (high >> 31 == 0) {
        high <<= 1;
        to->lift--;
    }
    to->mu = high >> 16;
    return (qfw_sub32(high, CLOSE) & 0xFFFFu) < 0x10000u - 2 * CLOSE &&
           (uint32_t)(field + q->product) < 248;
}

/* What all biases share: the slope of a sum; a code of the state is `own` times itself. */
typedef struct {
    const qfw_state_rows *v;
    float s_w;
    quotient by_v;
    int32_t mu, lift, own;
} shared;

/* From steps of a state to those of a parameter. */
enum { LESS = MOVED_FRAC - QFW_BIAS_FRAC };

QFW_ALWAYS_INLINE bool find_by_v(const shared *of, float s_v, qfw_panel_slope *to)
{
    float top;
    return find_by_quotient(&of->by_v, qfw_bits_f32(s_v), to) ||
           (qfw_find_by_state(of->v, s_v, &top) && qfw_find_slope(top, of->s_w, to));
}

/* Steps of both by the sum g and the state's code v, whose scale is s_v, without what rounds them. */
QFW_ALWAYS_INLINE bool find_steps(const shared *of, int32_t g, int32_t v, float s_v, int32_t *y,
                                  int32_t *y_v)
{
    qfw_panel_slope by_v, by_g;
    int32_t of_g, of_g_v;
    const bool fast = find_by_v(of, s_v, &by_v) && qfw_find_slope(of->v->of_state, s_v, &by_g) &&
                      sum_term(g, of->mu, of->lift, MOST, &of_g) &&
                      sum_term(g, (int32_t)by_g.mu, by_g.lift, MOST_G_V, &of_g_v);
    if (!fast || by_v.lift - LESS <= -31 || by_v.lift - LESS > MOST_LIFT) {
        return false;
    }
    const int32_t lift = by_v.lift - LESS, up = lift > 0 ? lift : 0;
    *y = of_g + ((v * (int32_t)by_v.mu * (1 << up)) >> (up - lift));
    *y_v = of_g_v + v * of->own;
    return true;
}

/* Codes that leave their range are held; one less than the least is no event. */
static QFW_COLD void hold(qfw_step_rows *s, ptrdiff_t i, int32_t *to, int32_t *to_v, int32_t *out)
{
    if (*to > INT16_MAX || *to < -INT16_MAX) {
        *out |= *to != -INT16_MAX - 1;
        *to = *to > 0 ? INT16_MAX : -INT16_MAX;
    }
    if (*to_v > INT8_MAX || *to_v < -INT8_MAX) {
        qfw_flag_both(s, i, *to_v != -INT8_MAX - 1 ? 2 : 0);
        *to_v = *to_v > 0 ? INT8_MAX : -INT8_MAX;
    }
}

/* Element i, which has a sum or a state, by its words. False: it moves as others do. */
QFW_ALWAYS_INLINE bool move_bias(qfw_step_rows *s, const shared *of, ptrdiff_t i, int32_t g,
                                 uint32_t u, uint32_t u_v, int32_t *out)
{
    int16_t *m = (int16_t *)s->param->t.codes + i;
    int8_t *v = (int8_t *)s->state->t.codes + i;
    int32_t y, y_v;
    if (qfw_abs32(g) >= 1u << 12 || !find_steps(of, g, *v, s->state->t.scale[i], &y, &y_v)) {
        return false;
    }
    int32_t to = *m - ((y + (int32_t)(u >> (32 - QFW_BIAS_FRAC))) >> QFW_BIAS_FRAC);
    int32_t to_v = (y_v + (int32_t)(u_v >> (32 - MOVED_FRAC))) >> MOVED_FRAC;
    if ((uint32_t)(to + INT16_MAX) > 2 * INT16_MAX || (uint32_t)(to_v + INT8_MAX) > 2 * INT8_MAX) {
        hold(s, i, &to, &to_v, out);
    }
    *m = (int16_t)to;
    *v = (int8_t)to_v;
    return true;
}

/* A state that is 0 at a scale of 1 begins by its first sum. */
static QFW_COLD void begin(const qfw_step_rows *s, ptrdiff_t i, int32_t g)
{
    const qfw_num most = qfw_scale_for(s->sigma, qfw_abs32(g), 1);
    qfw_start_scale(s->state, i, most, s->v->state_g, QFW_AS_GRADIENT);
}

bool qfw_move_short_biases(qfw_step_rows *s, const int32_t *sums, qfw_slope k, int32_t *out)
{
    if (!QFW_SOFT_FLOAT || !QFW_HAS_STATE || s->state == NULL || s->state->scales != s->rows) {
        return false;
    }
    const qfw_panel_slope own = qfw_panel_slope_of(s->v->own), g = qfw_panel_slope_of(k);
    if (qfw_bits_f32(s->v->step_v) == 0 || qfw_bits_f32(s->v->of_state) == 0 || own.lift < 0 ||
        own.lift > MOST_OWN) {
        return false;
    }
    const shared of = {
        s->v,          s->param->t.scale[0], quotient_of(s->v->step_v, s->param->t.scale[0]),
        (int32_t)g.mu, g.lift - LESS,        (int32_t)own.mu << own.lift};
    const int8_t *v = s->state->t.codes;
    for (ptrdiff_t i = 0, end; i < s->rows; i = end) {
        qfw_words w = moved_words(&s->key, i), w_v = moved_words(&s->v->key, i);
        end = i + (ptrdiff_t)moved_count(i, (size_t)(s->rows - i));
        for (; i < end; i++, w.u = qfw_add32(w.u, w.step), w_v.u = qfw_add32(w_v.u, w_v.step)) {
            if ((sums[i] | v[i]) == 0) {
                continue;
            }
            if (v[i] == 0 && qfw_bits_f32(s->state->t.scale[i]) == QFW_F32_ONE) {
                begin(s, i, sums[i]);
            }
            if (!move_bias(s, &of, i, sums[i], w.u, w_v.u, out)) {
                *out |= qfw_move_biases_by_state(s, i, i + 1, NULL, sums, k);
            }
        }
    }
    return true;
}
