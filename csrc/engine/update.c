/* The optimizer's step: docs/numerics.md section 17.
 *
 * update: parameter, gradient, state, flags (a byte for each scale of the parameter and the state),
 * the factor of all gradients
 * param[0..8], float32: momentum, kappa, weight decay, and the factors of the integer step: v, g, w
 * of the parameter; w of the state; g, w of the parameter in the first update.
 * param[12], float32: what lr is multiplied by, 0 standing for 1.
 * flags: 1 nesterov; 8 * the parameter's rounding. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/count.h"
#include "engine/lasting.h"
#include "kernels/codes.h"
#include "kernels/loops.h"

enum { NESTEROV = 1 };
enum { MOMENTUM = 0, KAPPA, DECAY, STEP_V, STEP_G, STEP_W, STATE_W, STEP_G1, STEP_W1, FACTORS };

bool qfw_are_factors(const qfw_plan_op *op, uint32_t params)
{
    for (int i = 0; i < QFW_OP_PARAMS; i++) {
        const uint32_t bits = (params >> i & 1u) != 0 ? op->param[i] : 0;
        if (bits > QFW_F32_MAX || (bits != 0 && bits < QFW_F32_MIN_NORMAL)) {
            return false;
        }
    }
    return true;
}

bool qfw_is_clip(const qfw_operand *x)
{
    return x->plan == NULL || (x->n == 1 && x->plan->rows == QFW_NO_ROWS);
}

float qfw_clip_of(const qfw_operand *x)
{
    const float k = x->plan == NULL ? 1.0f : *(const float *)x->t.codes;
    return k < 1.0f ? qfw_normal_f32(k) : 1.0f;
}

float qfw_rate_of(const qfw_call *call)
{
    const float lr = call->progress.lr, ratio = qfw_param_f32(call->op, QFW_LR_PARAM);
    return ratio == 0.0f ? lr : qfw_normal_f32(lr * ratio);
}

const char *qfw_update_fault(const qfw_call *call, const qfw_operand *param,
                             const qfw_operand *state, const qfw_operand *flags)
{
    if (!qfw_are_factors(call->op, ((1u << FACTORS) - 1) | 1u << QFW_LR_PARAM)) {
        return "coefficients";
    }
    if (qfw_rounding_of(call->op) > QFW_STOCHASTIC) {
        return "rounding";
    }
    const int64_t scales = param->scales + (state->plan != NULL ? state->scales : 0);
    if (param->plan->role != QFW_PARAMETER ||
        (state->plan != NULL && (state->n != param->n || state->plan->role != QFW_STATE))) {
        return "the state does not fit the parameter";
    }
    return scales > 0 && (flags->plan == NULL || flags->n < scales) ? "scratch" : NULL;
}

const char *qfw_rule_update(const qfw_call *call)
{
    if (call->at[0].n != call->at[1].n || call->at[1].plan->rows != QFW_NO_ROWS) {
        return "the sizes differ";
    }
    if (!qfw_is_clip(&call->at[4])) {
        return "the factor is not one number";
    }
    return qfw_update_fault(call, &call->at[0], &call->at[2], &call->at[3]);
}

/* ---- coefficients ---- */

static qfw_coef coef(float c, float s_from, float s_to, int32_t frac, bool wide)
{
    if (c == 0.0f) {
        const qfw_coef none = {0, 1 << 28, 0, 0};
        return none;
    }
    const float v = qfw_normal_f32(qfw_div_f32(qfw_normal_f32(c * s_from), s_to));
    qfw_coef k = {0, 1 << 28, 0, 0};
    if (v == 0.0f) {
        return k;
    }
    const uint32_t bits = qfw_bits_f32(v); /* normal */
    const int32_t shift = (int32_t)(bits >> 23) - 150 + 8 + frac, last = wide ? 63 : 31;
    k.mu = (int32_t)(((bits & 0x7FFFFFu) | 0x800000u) >> 8);
    if (shift >= 0) {
        k.left = (uint8_t)(shift < 28 ? shift : 28);
        k.limit = (1 << 28) >> k.left;
    } else {
        k.right = (uint8_t)(-shift < last ? -shift : last);
    }
    return k;
}

/* The factors of this update, lr in those of the parameter, that of all gradients in those of g. */
typedef struct {
    float step_v, step_g, step_w, state_v, state_g, state_w;
    float lr, kappa, clip;
} factors;

static factors factors_of(const qfw_call *call, float clip)
{
    const bool first = call->progress.updates == 0;
    const float lr = qfw_rate_of(call);
    const float kappa = first ? 1.0f : qfw_param_f32(call->op, KAPPA);
    const float step_g = qfw_normal_f32(lr * qfw_param_f32(call->op, first ? STEP_G1 : STEP_G));
    const factors f = {
        qfw_normal_f32(lr * qfw_param_f32(call->op, STEP_V)),
        qfw_normal_f32(step_g * clip),
        qfw_normal_f32(lr * qfw_param_f32(call->op, first ? STEP_W1 : STEP_W)),
        qfw_param_f32(call->op, MOMENTUM),
        qfw_normal_f32(kappa * clip),
        qfw_param_f32(call->op, first ? DECAY : STATE_W),
        lr,
        kappa,
        clip,
    };
    return f;
}

/* ---- a stretch of elements with one scale each ---- */

typedef struct {
    const qfw_call *call;
    const qfw_operand *param, *state; /* state NULL: none */
    const qfw_tensor *g;
    int64_t first;       /* the element that g begins with */
    bool wide;           /* g has codes of more than 16 bits */
    bool long_w, long_v; /* the parameter, the state has: Asym(16), minus its zero point */
    bool bytes;          /* all codes are plain int8, and are not counted */
    factors f;
    qfw_rounding rounding;
    qfw_rounding state_rounding;
    qfw_key key, state_key;
    uint8_t *flags;
    int64_t drawn; /* the element that u and u_v begin with; -1: none yet */
    uint32_t u[QFW_TILE], u_v[QFW_TILE];
} job;

typedef struct {
    int64_t at, n, param, g, state; /* elements and the scales' numbers */
} stretch;

/* Words for the tile that element i lies in; returns i's place in them. */
static size_t draw(job *j, int64_t i)
{
    const int64_t at = i - i % QFW_TILE;
    if (j->drawn != at) {
        j->drawn = at;
        if (j->rounding == QFW_STOCHASTIC && j->param->scales > 0) {
            qfw_uniforms(&j->key, (uint64_t)at, QFW_TILE, j->u);
        }
        if (j->state != NULL && j->state_rounding == QFW_STOCHASTIC && j->state->scales > 0) {
            qfw_uniforms(&j->state_key, (uint64_t)at, QFW_TILE, j->u_v);
        }
    }
    return (size_t)(i - at);
}

static stretch stretch_at(const job *j, int64_t i, int64_t end)
{
    stretch s = {i, end - i, 0, 0, 0};
    if (j->param->plan->kind != QFW_FLOAT32) {
        const qfw_run run = qfw_run_at(&j->param->t.layout, i);
        s.n = qfw_shorter(s.n, run.n);
        s.param = run.scale;
    }
    if (j->g->format.kind != QFW_FLOAT32) {
        const qfw_run run = qfw_run_at(&j->g->layout, i - j->first);
        s.n = qfw_shorter(s.n, run.n);
        s.g = run.scale;
    }
    if (j->state != NULL && j->state->plan->kind != QFW_FLOAT32) {
        const qfw_run run = qfw_run_at(&j->state->t.layout, i);
        s.n = qfw_shorter(s.n, run.n);
        s.state = run.scale;
    }
    return s;
}

static void flag(const job *j, const stretch *s, uint32_t events)
{
    if ((events & 1u) != 0) {
        j->flags[s->param] = 1;
    }
    if ((events & 2u) != 0) {
        j->flags[j->param->scales + s->state] = 1;
    }
}

/* ---- integers ---- */

static qfw_move move_of(const job *j, const stretch *s, const qfw_operand *x, int64_t scale,
                        qfw_rounding rounding)
{
    const bool is_param = x == j->param;
    const int32_t frac = 28 - qfw_signed_bits(&x->t.format);
    const float to = x->t.scale[scale], s_w = j->param->t.scale[s->param];
    const float s_v = j->state != NULL ? j->state->t.scale[s->state] : 1.0f;
    const float c_v = is_param ? j->f.step_v : j->f.state_v;
    const float c_g = is_param ? j->f.step_g : j->f.state_g;
    const float c_w = is_param ? j->f.step_w : j->f.state_w;
    qfw_move m = {coef(c_g, j->g->scale[s->g], to, frac, j->wide),
                  coef(c_v, is_param ? s_v : 1.0f, is_param ? to : 1.0f, frac, j->long_v),
                  coef(c_w, is_param ? 1.0f : s_w, is_param ? 1.0f : to, frac, j->long_w),
                  frac,
                  0,
                  0,
                  rounding};
    qfw_codes_at(x, scale, &m.lo, &m.hi);
    return m;
}

/* update_s32 for codes of 17 bits, which that does not take: every term in 64. */
static uint32_t move_long(int32_t *m, int32_t *v, const int32_t *g, size_t n, const qfw_move *p,
                          const qfw_move *s, const uint32_t *u, const uint32_t *u_v)
{
    int32_t out = 0, state_out = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t y = loop_wide_term(g[i], &p->g) + loop_wide_term(m[i], &p->w);
        if (v != NULL) {
            const int32_t y_v = loop_wide_term(g[i], &s->g) + loop_wide_term(m[i], &s->w) +
                                loop_wide_term(v[i], &s->v);
            y += loop_wide_term(v[i], &p->v);
            v[i] = loop_held(loop_round(y_v, s->frac, s->rounding, u_v[i]), s, &state_out);
        }
        m[i] = loop_held(m[i] - loop_round(y, p->frac, p->rounding, u[i]), p, &out);
    }
    return (out != 0 ? 1u : 0u) | (state_out != 0 ? 2u : 0u);
}

enum { SHORT = 16 };

static void move_codes(job *j, const stretch *s)
{
    const qfw_move move = move_of(j, s, j->param, s->param, j->rounding);
    const qfw_move state_move =
        j->state != NULL ? move_of(j, s, j->state, s->state, j->state_rounding) : move;
    uint32_t events = 0;
    if (j->bytes && s->n >= SHORT) {
        int8_t *v = j->state != NULL ? (int8_t *)j->state->t.codes + s->at : NULL;
        events = j->call->kernels->update_s8((int8_t *)j->param->t.codes + s->at, v,
                                             (const int8_t *)j->g->codes + (s->at - j->first),
                                             (size_t)s->n, &move, &state_move, &j->key,
                                             &j->state_key, (uint64_t)s->at);
        flag(j, s, events);
        return;
    }
    int32_t m[QFW_TILE], v[QFW_TILE], g[QFW_TILE];
    for (int64_t i = s->at, end = s->at + s->n; i < end;) {
        const size_t from = draw(j, i);
        const size_t n = (size_t)qfw_shorter(end - i, QFW_TILE - (int64_t)from);
        qfw_load_held(&j->param->t, i, n, s->param, m);
        qfw_load_held(j->g, i - j->first, n, s->g, g);
        if (j->state != NULL) {
            qfw_load_held(&j->state->t, i, n, s->state, v);
        }
        qfw_count_codes(j->param, j->state, m, v, g, n, &move, &state_move, j->u + from,
                        j->u_v + from);
        int32_t *of_state = j->state != NULL ? v : NULL;
        events |= j->long_w || j->long_v
                      ? move_long(m, of_state, g, n, &move, &state_move, j->u + from, j->u_v + from)
                      : j->call->kernels->update_s32(m, of_state, g, n, j->wide, &move, &state_move,
                                                     j->u + from, j->u_v + from);
        qfw_put_held(j->param, i, n, s->param, m);
        if (j->state != NULL) {
            qfw_put_held(j->state, i, n, s->state, v);
        }
        i += (int64_t)n;
    }
    flag(j, s, events);
}

/* ---- floats ---- */

static void move_floats(job *j, const stretch *s)
{
    const qfw_float_step step = {j->f.lr, qfw_param_f32(j->call->op, MOMENTUM), j->f.kappa,
                                 qfw_param_f32(j->call->op, DECAY),
                                 (j->call->op->flags & NESTEROV) != 0};
    const bool has_state = j->state != NULL;
    int32_t m[QFW_TILE], m_v[QFW_TILE];
    float of_w[QFW_TILE], of_g[QFW_TILE], of_v[QFW_TILE], d[QFW_TILE];
    uint32_t events = 0;
    for (int64_t i = s->at, end = s->at + s->n; i < end;) {
        const size_t from = draw(j, i);
        const size_t n = (size_t)qfw_shorter(end - i, QFW_TILE - (int64_t)from);
        const float *g =
            qfw_clipped(qfw_floats_at(j->g, i - j->first, n, s->g, m, of_g), n, j->f.clip, of_g);
        float *w = qfw_floats_at(&j->param->t, i, n, s->param, m, of_w);
        float *v = has_state ? qfw_floats_at(&j->state->t, i, n, s->state, m_v, of_v) : NULL;
        j->call->kernels->update_f32(w, g, v, n, &step, d);
        if (v == of_v) {
            events |= qfw_put_value(j->call, j->state, j->state_rounding, i, n, s->state, v,
                                    j->u_v + from, m_v)
                          ? 2u
                          : 0u;
        }
        if (w == of_w) {
            events |=
                qfw_put_less(j->call, j->param, j->rounding, i, n, s->param, d, j->u + from, m)
                    ? 1u
                    : 0u;
        }
        for (size_t k = 0; w != of_w && k < n; k++) {
            w[k] -= d[k];
        }
        i += (int64_t)n;
    }
    flag(j, s, events);
}

/* ---- a range of a tensor ---- */

static bool is_wide(const qfw_format *f)
{
    return f->bits == 32 || (f->kind == QFW_ASYM && f->bits == 16);
}

static bool is_bytes(const qfw_format *f)
{
    return f->kind == QFW_SYM && qfw_slot(f) == 8;
}

qfw_status qfw_move_range(const qfw_call *call, const qfw_operand *param, const qfw_operand *state,
                          const qfw_tensor *g, float clip, int64_t first, int64_t n, uint8_t *flags,
                          bool last)
{
    const bool has_state = state->plan != NULL;
    job j;
    memset(&j, 0, sizeof j);
    j.call = call;
    j.param = param;
    j.state = has_state ? state : NULL;
    j.g = g;
    j.first = first;
    j.f = factors_of(call, clip);
    j.rounding = (qfw_rounding)qfw_rounding_of(call->op);
    j.state_rounding = has_state ? (qfw_rounding)state->plan->rounding : QFW_HALF_AWAY;
    j.key = qfw_key_of(call, param);
    j.flags = flags;
    j.drawn = -1;
    const int64_t scales = param->scales + (has_state ? state->scales : 0);
    if (first == 0 && scales > 0) {
        memset(flags, 0, (size_t)scales);
    }
    qfw_start_scales(param, g, first, n, j.f.step_g, QFW_AS_GRADIENT);
    bool integers = param->plan->kind != QFW_FLOAT32 && g->format.kind != QFW_FLOAT32;
    j.wide = is_wide(&g->format);
    j.long_w = is_wide(&param->t.format);
    if (has_state) {
        j.state_key = qfw_key_of(call, state);
        qfw_start_scales(state, g, first, n, j.f.state_g, QFW_AS_GRADIENT);
        integers = integers && state->plan->kind != QFW_FLOAT32;
        j.long_v = is_wide(&state->t.format);
    }
    j.bytes = param->counter == NULL && is_bytes(&param->t.format) && is_bytes(&g->format) &&
              (!has_state || is_bytes(&state->t.format));
    for (int64_t i = first; i < first + n;) {
        const stretch s = stretch_at(&j, i, first + n);
        if (integers) {
            move_codes(&j, &s);
        } else {
            move_floats(&j, &s);
        }
        i += s.n;
    }
    if (last && param->scales > 0) {
        qfw_settle_scales(call, param, flags);
    }
    if (last && has_state && state->scales > 0) {
        qfw_settle_scales(call, state, flags + param->scales);
    }
    return QFW_OK;
}

qfw_status qfw_op_update(const qfw_call *call)
{
    return qfw_move_range(call, &call->at[0], &call->at[2], &call->at[1].t,
                          qfw_clip_of(&call->at[4]), 0, call->at[0].n, call->at[3].t.codes, true);
}
