/* The integer step of a device: a stretch at a time, its coefficients one by one. Bits are those of
 * moves.c. */
#include "base/random.h"
#include "engine/count.h"
#include "engine/moves.h"
#include "kernels/update_loops.h"

/* The term of codes at the scale `from` in a step of codes at the scale `to`. */
static qfw_coef coef_of(float c, float from, float to, int32_t frac, bool wide)
{
    qfw_coef k = {0, 0, 0, 0};
    int32_t right, left;
    if (c != 0.0f) {
        loop_coef(c, from, to, frac, wide ? 63 : 31, &k.mu, &k.limit, &right, &left);
        k.right = (uint8_t)right;
        k.left = (uint8_t)left;
    }
    return k;
}

static qfw_move move_of(const qfw_operand *x, ptrdiff_t scale, qfw_rounding rounding)
{
    const qfw_coef none = {0, 0, 0, 0};
    qfw_move m = {none, none, none, 28 - qfw_signed_bits(&x->t.format), 0, 0, rounding};
    qfw_codes_at(x, scale, &m.lo, &m.hi);
    return m;
}

static void move_stretch(qfw_job *j, const qfw_stretch *s)
{
    const float s_w = j->param->t.scale[s->param], s_g = j->g->scale[s->g];
    qfw_move move = move_of(j->param, s->param, j->rounding);
    move.g = coef_of(j->f.step_g, s_g, s_w, move.frac, j->wide);
    move.w = coef_of(j->f.step_w, 1.0f, 1.0f, move.frac, j->long_w);
    if (QFW_HAS_STATE && j->state != NULL) {
        const float s_v = j->state->t.scale[s->state];
        qfw_move of_state = move_of(j->state, s->state, j->state_rounding);
        move.v = coef_of(j->f.step_v, s_v, s_w, move.frac, j->long_v);
        of_state.v = coef_of(j->f.state_v, 1.0f, 1.0f, of_state.frac, j->long_v);
        of_state.g = coef_of(j->f.state_g, s_g, s_v, of_state.frac, j->wide);
        of_state.w = coef_of(j->f.state_w, s_w, s_v, of_state.frac, j->long_w);
        qfw_flag(j, s, qfw_move_tiles(j, s, &move, &of_state));
    } else {
        qfw_flag(j, s, qfw_move_tiles(j, s, &move, &move));
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

/* ---- the gradient of one row: an outer product, which is not stored ---- */

/* Sym(8), stochastic: terms have 20 more bits. */
enum { FRAC = 20, MOST = 127 };

/* Terms that are shifted to the left: steps of many codes. */
static uint32_t move_far(int8_t *m, const int8_t *x, const int8_t *end, int32_t e,
                         const qfw_coef *k, uint32_t u, uint32_t step)
{
    const qfw_move move = {*k, *k, *k, FRAC, -MOST, MOST, QFW_STOCHASTIC};
    int32_t out = 0;
    for (; x < end; x++, m++, u = qfw_add32(u, step)) {
        const int32_t y = loop_wide_term(e * *x, k);
        *m = (int8_t)loop_held(*m - loop_round(y, FRAC, QFW_STOCHASTIC, u), &move, &out);
    }
    return out != 0 ? 1u : 0u;
}

static qfw_words words_at(const qfw_key *key, ptrdiff_t i)
{
    const qfw_draw_pair d = qfw_block_draw(key, (uint64_t)i);
    const qfw_words w = {qfw_add32(d.a, qfw_mul32((uint32_t)(i & 31), d.b)), d.b};
    return w;
}

static uint32_t move_row(int8_t *m, const int8_t *x, ptrdiff_t n, int32_t e, const qfw_coef *k,
                         const qfw_key *key, ptrdiff_t first)
{
    const int32_t c = e * k->mu;
    const uint32_t right = k->right < 31 ? k->right : 31;
    uint32_t out = 0;
    for (ptrdiff_t count; n > 0; n -= count, m += count, x += count, first += count) {
        const qfw_words w = words_at(key, first);
        count = qfw_shorter(n, 32 - (first & 31));
        out |= k->left != 0 ? move_far(m, x, x + count, e, k, w.u, w.step)
                            : qfw_move_products(m, x, (size_t)count, c, right, w.u, w.step);
    }
    return out;
}

/* Whether what moves is Sym without a counter, and by int8 codes. */
static bool is_plain(const qfw_call *call, const qfw_operand *param, const qfw_operand *e, int bits)
{
    return param->plan->kind == QFW_SYM && param->plan->bits == bits &&
           qfw_slot(&param->t.format) == bits && qfw_is_bytes(&e->t.format) &&
           !qfw_is_counted(param) && qfw_rounding_of(call->op) == QFW_STOCHASTIC;
}

/* Whether no scale looks for a range in the gradient: one that has none and whose rows have one. */
static bool has_ranges(const qfw_operand *param, const qfw_operand *e)
{
    for (ptrdiff_t k = 0; k < param->scales; k++) {
        const bool still = param->scales == e->n && ((const int8_t *)e->t.codes)[k] == 0;
        if (qfw_bits_f32(param->t.scale[k]) == qfw_bits_f32(1.0f) && !still) {
            return false;
        }
    }
    return true;
}

/* One scale, or one for each row of x's size. */
static bool is_outer(const qfw_operand *param, const qfw_operand *x)
{
    const qfw_layout *l = &param->t.layout;
    return qfw_is_bytes(&param->t.format) && param->plan->bits == 8 &&
           (param->scales == 1 || (l->outer == 1 && l->group == 1 && l->inner == x->n));
}

static ptrdiff_t scale_of(const qfw_operand *x, ptrdiff_t row)
{
    return x->scales == 1 ? 0 : row;
}

/* Row o of parameter and state, both Sym(8) and stochastic. */
static void move_both(const qfw_call *call, const qfw_operand *param, const qfw_operand *state,
                      int32_t code, const qfw_operand *x, float sigma, const qfw_factors *f,
                      ptrdiff_t o, uint8_t *flags)
{
    const ptrdiff_t at_w = scale_of(param, o), at_v = scale_of(state, o);
    const float s_w = param->t.scale[at_w], s_v = state->t.scale[at_v];
    const qfw_key key = qfw_key_of(call, param), state_key = qfw_key_of(call, state);
    qfw_move move = move_of(param, at_w, QFW_STOCHASTIC), of_state = move;
    move.g = coef_of(f->step_g, sigma, s_w, FRAC, true);
    move.v = coef_of(f->step_v, s_v, s_w, FRAC, false);
    of_state.g = coef_of(f->state_g, sigma, s_v, FRAC, true);
    of_state.v = coef_of(f->state_v, 1.0f, 1.0f, FRAC, false);
    uint32_t out = 0;
    for (ptrdiff_t i = 0, n; i < x->n; i += n) {
        const ptrdiff_t at = o * x->n + i;
        n = qfw_shorter(x->n - i, 32 - (at & 31));
        out |= qfw_move_states((int8_t *)param->t.codes + at, (int8_t *)state->t.codes + at,
                               (const int8_t *)x->t.codes + i, (size_t)n, code, &move, &of_state,
                               words_at(&key, at), words_at(&state_key, at));
    }
    flags[at_w] |= (uint8_t)(out & 1u);
    flags[param->scales + at_v] |= (uint8_t)(out >> 1);
}

bool qfw_move_outer(const qfw_call *call, const qfw_operand *param, const qfw_operand *e,
                    const qfw_operand *x, const qfw_operand *state, float sigma, uint8_t *flags)
{
    const qfw_factors f = qfw_factors_of(call, 1.0f);
    if (f.step_w != 0.0f || !is_plain(call, param, e, 8) || !is_outer(param, x) ||
        !qfw_is_bytes(&x->t.format) || !has_ranges(param, e)) {
        return false;
    }
    const bool has_state = QFW_HAS_STATE && state != NULL;
    if (has_state && (f.state_w != 0.0f || !is_outer(state, x) || !has_ranges(state, e) ||
                      state->plan->rounding != QFW_STOCHASTIC)) {
        return false;
    }
    const qfw_key key = qfw_key_of(call, param);
    memset(flags, 0, (size_t)(param->scales + (has_state ? state->scales : 0)));
    for (ptrdiff_t o = 0; o < e->n; o++) {
        const int32_t e_o = ((const int8_t *)e->t.codes)[o];
        const ptrdiff_t scale = scale_of(param, o);
        if (has_state) {
            move_both(call, param, state, e_o, x, sigma, &f, o, flags);
        } else if (e_o != 0) {
            const qfw_coef k = coef_of(f.step_g, sigma, param->t.scale[scale], FRAC, true);
            flags[scale] |= (uint8_t)move_row((int8_t *)param->t.codes + o * x->n, x->t.codes, x->n,
                                              e_o, &k, &key, o * x->n);
        }
    }
    qfw_settle_scales(call, param, flags);
    if (has_state) {
        qfw_settle_scales(call, state, flags + param->scales);
    }
    return true;
}

/* Sym(16), stochastic. |e| mu < 2^23: a term needs no 64 bits, and no shift above 31. Where e is 0
 * nothing moves. */
static uint32_t move_each(int16_t *m, const int8_t *e, ptrdiff_t n, const qfw_coef *k,
                          const qfw_key *key)
{
    const qfw_move move = {*k, *k, *k, 12, -INT16_MAX, INT16_MAX, QFW_STOCHASTIC};
    qfw_draw_pair d = {0, 0};
    int32_t out = 0;
    for (ptrdiff_t i = 0; i < n; i++, d.a = qfw_add32(d.a, d.b)) {
        if (i % 32 == 0) {
            d = qfw_block_draw(key, (uint64_t)i);
        }
        if (e[i] != 0) {
            const int32_t by = loop_round(loop_term(e[i], k), 12, QFW_STOCHASTIC, d.a);
            m[i] = (int16_t)loop_held(m[i] - by, &move, &out);
        }
    }
    return out != 0 ? 1u : 0u;
}

bool qfw_move_one_row(const qfw_call *call, const qfw_operand *param, const qfw_operand *e,
                      float sigma, uint8_t *flags)
{
    const qfw_factors f = qfw_factors_of(call, 1.0f);
    if (f.step_w != 0.0f || param->scales != 1 || !is_plain(call, param, e, 16) ||
        !has_ranges(param, e)) {
        return false;
    }
    const qfw_key key = qfw_key_of(call, param);
    qfw_coef k = coef_of(f.step_g, sigma, param->t.scale[0], 12, true);
    k.right = k.right < 31 ? k.right : 31;
    flags[0] = (uint8_t)move_each(param->t.codes, e->t.codes, e->n, &k, &key);
    qfw_settle_scales(call, param, flags);
    return true;
}
