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
    return moved_coef(qfw_row_slope(top, to), frac, wide ? 63 : 31);
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
        v->of_state = is_one(f.state_g) ? sigma : qfw_coef_mul(f.state_g, sigma);
        v->own = qfw_bits_f32(qfw_normal_f32(f.state_v)) & ~0xFFu; /* over 1 */
        v->key = qfw_key_of(call, s->state);
        s->v = v;
    }
    return true;
}

static void clear_flags(qfw_step_rows *s)
{
    const bool has_state = QFW_HAS_STATE && s->state != NULL;
    memset(s->flags, 0, (size_t)(s->param->scales + (has_state ? s->state->scales : 0)));
    s->flagged = true;
    if (QFW_HAS_STATE) {
        s->param_flagged = qfw_looks_at_scales(s->call);
    }
}

void qfw_flag_row(qfw_step_rows *s, ptrdiff_t at, uint32_t out)
{
    if (out != 0) {
        if (!s->flagged) {
            clear_flags(s);
        }
        s->flags[at] = 1;
        if (QFW_HAS_STATE && at < s->param->scales) {
            s->param_flagged = true;
        }
    }
}

void qfw_end_rows(qfw_step_rows *s)
{
    if (!s->flagged) {
        if (!qfw_looks_at_scales(s->call)) {
            return;
        }
        clear_flags(s);
    }
    const bool has_state = QFW_HAS_STATE && s->state != NULL;
    if (!has_state || s->param_flagged) {
        qfw_settle_scales(s->call, s->param, s->flags);
    }
    if (has_state) {
        qfw_settle_scales(s->call, s->state, s->flags + s->param->scales);
    }
}

/* ---- weights ---- */

/* What the state was counts in both. Without an error the coefficients of g are multiplied by 0. */
void qfw_move_row_by_state(qfw_step_rows *s, ptrdiff_t o, bool moves, qfw_row *r)
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
    const qfw_slope by_v = begins ? 0 : qfw_row_slope(qfw_by_state(s->v, s_v), s_w);
    const qfw_pace of_m = {moves ? qfw_row_slope(s->of_param, s_w) : 0, by_v, &s->key};
    const qfw_pace of_v = {moves ? qfw_row_slope(s->v->of_state, s_v) : 0, s->v->own, &s->v->key};
    const uint32_t out = qfw_move_both(m, v, r, &of_m, &of_v);
    qfw_flag_row(s, at_w, out & 1u);
    qfw_flag_row(s, s->param->scales + at_v, out >> 1);
}

QFW_INLINE void move_weights(qfw_step_rows *s, ptrdiff_t o, bool moves, qfw_row *r)
{
    if (QFW_HAS_STATE && s->state != NULL) {
        qfw_move_row_by_state(s, o, moves, r);
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
    if (QFW_HAS_STATE && s->state != NULL) {
        qfw_move_outer_by_state(s, e, x);
        return;
    }
    const ptrdiff_t rows = s->rows, row = s->row;
    if (is_of_fours(row)) {
        move_fours(s, e, x);
        return;
    }
    qfw_row r = {x, NULL, NULL, (size_t)row, 0, 0, 0};
    for (ptrdiff_t o = 0; o < rows; o++) {
        if (e[o] != 0) {
            r.code = e[o];
            r.first = o * row;
            move_param(s, o, &r);
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
    qfw_flag_row(s, o, out & 1u);
    qfw_flag_row(s, s->param->scales + o, out >> 1);
}

/* ---- biases ---- */

/* Of fewer than 13 bits |code mu| < 2^28; what is to be moved down then needs no clamp, and hardly ever
 * what is to be moved up. */
QFW_NOINLINE int32_t qfw_bias_term(int32_t code, qfw_slope k, int32_t frac)
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

/* One scale of all begins by the largest gradient. */
static void start_biases(const qfw_step_rows *s, const qfw_operand *t, const int8_t *e,
                         const int32_t *sums, float c)
{
    if (t->scales == 1 && is_without_range(t, 0)) {
        const bool ones = !QFW_HAS_ANY_MOVE || e != NULL;
        start(s, t, 0, ones ? largest(e, s->rows) : largest_sum(sums, s->rows), c);
    }
}

/* Elements i .. end - 1, which have the words of one block, by sums. One whose sum is 0 stays. */
static int32_t move_sums(qfw_step_rows *s, ptrdiff_t i, ptrdiff_t end, const int32_t *sums,
                         qfw_slope k)
{
    int16_t *m = s->param->t.codes;
    int32_t out = 0;
    qfw_words w = moved_words(&s->key, i);
    for (; i < end; i++, w.u = qfw_add32(w.u, w.step)) {
        if (sums[i] != 0) {
            const int32_t y = qfw_bias_term(sums[i], k, QFW_BIAS_FRAC);
            const int32_t by = loop_round(y, QFW_BIAS_FRAC, QFW_STOCHASTIC, w.u);
            m[i] = qfw_bias_held(m[i] - by, &out);
        }
    }
    return out;
}

void qfw_move_biases(qfw_step_rows *s, const int8_t *e, const int32_t *sums)
{
    start_biases(s, s->param, e, sums, s->step_g);
    if (QFW_HAS_STATE && s->state != NULL) {
        start_biases(s, s->state, e, sums, s->v->state_g);
    }
    const qfw_slope k = qfw_row_slope(s->of_param, s->param->t.scale[0]);
    const bool has_state = QFW_HAS_STATE && s->state != NULL, wide = QFW_HAS_ANY_MOVE && e == NULL;
    int32_t out = 0;
    const bool few = wide && qfw_move_short_biases(s, sums, k, &out);
    for (ptrdiff_t i = few ? s->rows : 0, end; i < s->rows; i = end) {
        end = i + (ptrdiff_t)moved_count(i, (size_t)(s->rows - i));
        out |= has_state ? qfw_move_biases_by_state(s, i, end, e, sums, k)
               : wide    ? move_sums(s, i, end, sums, k)
                         : move_plain(s, i, end, e, k);
    }
    qfw_flag_row(s, 0, out != 0 ? 1 : 0);
}
