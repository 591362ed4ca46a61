/* The integer step of a device, row by row of the parameter's matrix: by one row of errors, where the
 * gradient of a weight is the outer product of the error and the wire and that of a bias the error
 * itself, or by sums. Bits are those of moves.c. */
#include "base/random.h"
#include "engine/count.h"
#include "engine/moves.h"
#include "engine/moves_fours.h"
#include "engine/rescale.h"
#include "kernels/moved.h"

qfw_coef qfw_coef_of(float top, float to, int32_t frac, bool wide)
{
    return moved_coef(slope_of(top, to), frac, wide ? 63 : 31);
}

/* ---- what it can be ---- */

/* Sym codes of so many bits with one scale, or one for each row. */
static bool has_rows(const qfw_operand *t, int bits, ptrdiff_t row)
{
    const qfw_layout *l = &t->t.layout;
    return t->plan->kind == QFW_SYM && t->plan->bits == bits && qfw_slot(&t->t.format) == bits &&
           (t->scales == 1 || (l->outer == 1 && l->group == 1 && l->inner == row));
}

/* Steps by w would move what has no error. One scale of several rows begins by all of their sums. */
static bool takes(const qfw_step_rows *s, const qfw_factors *f, bool bias, bool sums)
{
    const bool own = has_rows(s->param, bias ? 16 : 8, s->row) && !qfw_is_counted(s->param) &&
                     (bias ? s->param->scales == 1 : !sums || s->param->scales == s->rows);
    const bool state =
        s->state == NULL ||
        (has_rows(s->state, 8, s->row) && s->state->plan->rounding == QFW_STOCHASTIC &&
         (!sums || s->state->scales == s->rows) && qfw_bits_f32(f->state_w) == 0);
    return own && state && qfw_rounding_of(s->call->op) == QFW_STOCHASTIC &&
           qfw_bits_f32(f->step_w) == 0;
}

bool qfw_begin_rows(const qfw_call *call, ptrdiff_t rows, ptrdiff_t row, bool bias, bool sums,
                    float sigma, qfw_step_rows *s, qfw_state_rows *v)
{
    const bool has_state = QFW_HAS_STATE && qfw_has(call, 4);
    const qfw_factors f = qfw_factors_of(call, 1.0f);
    s->call = call;
    s->param = &call->at[0];
    s->state = has_state ? &call->at[4] : NULL;
    s->flags = call->at[5].t.codes;
    s->flagged = false;
    s->rows = rows;
    s->row = row;
    s->most = 0;
    s->sigma = sigma;
    s->step_g = f.step_g;
    if (QFW_HAS_ANY_MOVE && !takes(s, &f, bias, sums)) {
        return false;
    }
    s->key = qfw_key_of(call, s->param);
    s->of_param = qfw_coef_mul(f.step_g, sigma);
    s->v = NULL;
    if (has_state) {
        v->step_v = f.step_v;
        v->soft_v = qfw_soft_factor_of(f.step_v);
        v->state_g = f.state_g;
        v->of_state = qfw_coef_mul(f.state_g, sigma);
        v->own = slope_of(f.state_v, 1.0f);
        v->key = qfw_key_of(call, s->state);
        s->v = v;
    }
    return true;
}

void qfw_end_rows(qfw_step_rows *s)
{
    if (!s->flagged) {
        if (!qfw_looks_at_scales(s->call)) {
            return;
        }
        clear_flags(s);
    }
    qfw_settle_scales(s->call, s->param, s->flags);
    if (QFW_HAS_STATE && s->state != NULL) {
        qfw_settle_scales(s->call, s->state, s->flags + s->param->scales);
    }
}

/* step_v times a scale of the state. */
static inline float by_state(const qfw_step_rows *s, float s_v)
{
    uint32_t exp = 253, bits = 0;
    if (QFW_SOFT_FLOAT && qfw_bits_f32(s->v->step_v) != 0) {
        bits = qfw_soft_times(s->v->soft_v, qfw_bits_f32(s_v), &exp);
    }
    return exp <= 252 ? qfw_from_bits_f32(bits) : qfw_coef_mul(s->v->step_v, s_v);
}

/* ---- weights ---- */

/* Row o of the parameter and of the state, whose part in both is as it was. Without an error the
 * coefficients of g are multiplied by 0. */
static void move_both(qfw_step_rows *s, ptrdiff_t o, bool moves, qfw_row *r)
{
    ptrdiff_t at_w = scale_of(s->param, o), at_v = scale_of(s->state, o);
    bool begins = false;
    if (moves) {
        const bool had_one = is_one(s->state->t.scale[at_v]);
        at_w = begun(s, s->param, r, o, s->step_g);
        at_v = begun(s, s->state, r, o, s->v->state_g);
        begins = had_one && !is_one(s->state->t.scale[at_v]);
    } else if (is_without_range(s->state, at_v)) {
        return; /* it never began */
    }
    const float s_w = s->param->t.scale[at_w], s_v = s->state->t.scale[at_v];
    int8_t *m = (int8_t *)s->param->t.codes + r->first;
    int8_t *v = (int8_t *)s->state->t.codes + r->first;
    r->v = v;
    /* codes that begin are 0; without an error there is no gradient */
    const qfw_slope by_v = begins ? 0 : slope_of(by_state(s, s_v), s_w);
    const qfw_pace of_m = {moves ? slope_of(s->of_param, s_w) : 0, by_v, &s->key};
    const qfw_pace of_v = {moves ? slope_of(s->v->of_state, s_v) : 0, s->v->own, &s->v->key};
    const uint32_t out = qfw_move_both(m, v, r, &of_m, &of_v);
    flag(s, at_w, out & 1u);
    flag(s, s->param->scales + at_v, out >> 1);
}

QFW_INLINE void move_weights(qfw_step_rows *s, ptrdiff_t o, bool moves, qfw_row *r)
{
    if (QFW_HAS_STATE && s->state != NULL) {
        move_both(s, o, moves, r);
    } else if (moves) {
        move_param(s, o, r);
    }
}

void qfw_move_outer(qfw_step_rows *s, const int8_t *e, const int8_t *x)
{
    if (s->param->scales == 1 && is_without_range(s->param, 0)) {
        start(s, s->param, 0, largest(e, s->rows) * largest(x, s->row), s->step_g);
    }
    if (QFW_HAS_STATE && s->state != NULL && s->state->scales == 1 &&
        is_without_range(s->state, 0)) {
        start(s, s->state, 0, largest(e, s->rows) * largest(x, s->row), s->v->state_g);
    }
    const bool has_state = QFW_HAS_STATE && s->state != NULL;
    const ptrdiff_t rows = s->rows, row = s->row;
    if (is_of_fours(row) && !has_state) {
        move_fours(s, e, x);
        return;
    }
    qfw_row r = {x, NULL, NULL, (size_t)row, 0, 0, 0};
    for (ptrdiff_t o = 0; o < rows; o++) {
        if (e[o] != 0 || has_state) {
            r.code = e[o];
            r.first = o * row;
            move_weights(s, o, e[o] != 0, &r);
        }
    }
}

void qfw_move_sums(qfw_step_rows *s, ptrdiff_t o, int32_t *sums, int32_t bits)
{
    qfw_row r = {NULL, sums, NULL, (size_t)s->row, o * s->row, 0, bits};
    if (bits < 0) { /* 0 times anything */
        r.x = (const int8_t *)s->param->t.codes + r.first;
    }
    move_weights(s, o, bits >= 0, &r);
}

void qfw_begin_scale(const qfw_step_rows *s, const qfw_operand *t, ptrdiff_t at, uint32_t most,
                     float c)
{
    if (is_without_range(t, at)) {
        start(s, t, at, most, c);
    }
}

void qfw_flag_both(qfw_step_rows *s, ptrdiff_t o, uint32_t out)
{
    flag(s, o, out & 1u);
    flag(s, s->param->scales + o, out >> 1);
}

/* ---- biases ---- */

/* A code's term, in steps with `frac` bits. Of fewer than 13 bits |code mu| < 2^28; what is to be moved down
 * then needs no clamp, and hardly ever what is to be moved up. */
static QFW_NOINLINE int32_t term_of(int32_t code, qfw_slope k, int32_t frac)
{
    const int32_t mu = (int32_t)(k >> 8 & 0x7FFFu) | 0x8000, lift = (int32_t)(k >> 23) - 142 + frac;
    if (k != 0 && qfw_abs32(code) < 1u << 12) {
        const int32_t v = code * mu;
        if (lift <= 0) {
            return v >> (lift > -31 ? -lift : 31);
        }
        if (lift < 28 && qfw_abs32(v) <= 1u << (28 - lift)) {
            return v * (1 << lift);
        }
    }
    const qfw_coef any = moved_coef(k, frac, 63);
    return loop_wide_term(code, &any);
}

/* The state of element i moves, by itself at the slope `own`, and by the gradient g; what it was adds to the
 * step y of the parameter. */
static int32_t with_state(qfw_step_rows *s, ptrdiff_t i, int32_t g, int32_t y, uint32_t u)
{
    const qfw_state_rows *of = s->v;
    const ptrdiff_t at = scale_of(s->state, i);
    int8_t *v = (int8_t *)s->state->t.codes + i;
    const int32_t was = *v;
    uint32_t out = 0;
    if (g != 0 && was == 0 && s->state->scales == s->rows && is_without_range(s->state, at)) {
        start(s, s->state, at, qfw_abs32(g), of->state_g);
    }
    const float s_v = s->state->t.scale[at];
    int32_t y_v = 0;
    if (was != 0) {
        y += term_of(was, slope_of(by_state(s, s_v), s->param->t.scale[0]), BIAS_FRAC);
        y_v = term_of(was, of->own, FRAC);
    }
    if (g != 0) {
        y_v += term_of(g, slope_of(of->of_state, s_v), FRAC);
    }
    moved_hold(v, loop_round(y_v, FRAC, QFW_STOCHASTIC, u), &out);
    flag(s, s->param->scales + at, out);
    return y;
}

/* One scale of all begins by the largest gradient. */
static void start_biases(const qfw_step_rows *s, const qfw_operand *t, const int8_t *e,
                         const int32_t *sums, float c)
{
    if (t->scales == 1 && is_without_range(t, 0)) {
        const bool ones = !QFW_HAS_ANY_MOVE || e != NULL;
        start(s, t, 0, ones ? largest(e, s->rows) : largest_sum(sums, s->rows), c);
    }
}

/* Elements i .. end - 1, which have the words of one block. One whose error and state are 0 stays. */
QFW_INLINE int32_t move_block(qfw_step_rows *s, ptrdiff_t i, ptrdiff_t end, const int8_t *e,
                              const int32_t *sums, qfw_slope k)
{
    const bool has_state = QFW_HAS_STATE && s->state != NULL;
    const bool wide = QFW_HAS_ANY_MOVE && e == NULL;
    int16_t *m = s->param->t.codes;
    int32_t out = 0;
    qfw_words w = moved_words(&s->key, i), w_v = {0, 0};
    if (has_state) {
        w_v = moved_words(&s->v->key, i);
    }
    for (; i < end; i++, w.u = qfw_add32(w.u, w.step), w_v.u = qfw_add32(w_v.u, w_v.step)) {
        const bool moves_on = has_state && ((const int8_t *)s->state->t.codes)[i] != 0;
        const int32_t g = wide ? sums[i] : e[i];
        if (g != 0 || moves_on) {
            int32_t y = g != 0 ? term_of(g, k, BIAS_FRAC) : 0;
            y = has_state ? with_state(s, i, g, y, w_v.u) : y;
            const int32_t by = loop_round(y, BIAS_FRAC, QFW_STOCHASTIC, w.u);
            m[i] = held(m[i] - by, &out);
        }
    }
    return out;
}

int32_t qfw_move_bias(qfw_step_rows *s, ptrdiff_t i, const int32_t *sums, qfw_slope k)
{
    return move_block(s, i, i + 1, NULL, sums, k);
}

void qfw_move_biases(qfw_step_rows *s, const int8_t *e, const int32_t *sums)
{
    start_biases(s, s->param, e, sums, s->step_g);
    if (QFW_HAS_STATE && s->state != NULL) {
        start_biases(s, s->state, e, sums, s->v->state_g);
    }
    const qfw_slope k = slope_of(s->of_param, s->param->t.scale[0]);
    const bool has_terms = (QFW_HAS_STATE && s->state != NULL) || (QFW_HAS_ANY_MOVE && e == NULL);
    int32_t out = 0;
    const bool few = QFW_HAS_ANY_MOVE && e == NULL && qfw_move_short_biases(s, sums, k, &out);
    for (ptrdiff_t i = few ? s->rows : 0, end; i < s->rows; i = end) {
        end = i + (ptrdiff_t)moved_count(i, (size_t)(s->rows - i));
        out |= has_terms ? move_block(s, i, end, e, sums, k) : move_plain(s, i, end, e, k);
    }
    flag(s, 0, out != 0 ? 1 : 0);
}
