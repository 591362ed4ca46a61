/* A step of AdamW: docs/numerics.md section 25.
 *
 * adamw: parameter, gradient, the two moments, flags (a byte for each scale of the three), the
 * factor of all gradients
 * param[0..5], float32: beta1, 1 - beta1, beta2, 1 - beta2, eps, weight decay
 * param[6..7]: beta1, beta2 in units of 2^-32
 * param[12], float32: what lr is multiplied by, 0 standing for 1.
 * flags: 8 * the parameter's rounding. */
#include <math.h>

#include "base/layout.h"
#include "base/round.h"
#include "engine/lasting.h"

enum { BETA1 = 0, REST1, BETA2, REST2, EPS, DECAY, FIXED1, FIXED2, FLOATS = FIXED1 };

const char *qfw_adamw_fault(const qfw_call *call, const qfw_moments *of)
{
    const qfw_plan_op *op = call->op;
    if (!qfw_are_factors(op, ((1u << FLOATS) - 1) | 1u << QFW_LR_PARAM) || op->param[EPS] == 0) {
        return "coefficients";
    }
    if (qfw_rounding_of(op) > QFW_STOCHASTIC) {
        return "rounding";
    }
    if (of->param->plan->role != QFW_PARAMETER || of->average->plan->role != QFW_STATE ||
        of->square->plan->role != QFW_STATE || of->average->n != of->param->n ||
        of->square->n != of->param->n) {
        return "the state does not fit the parameter";
    }
    const ptrdiff_t scales = of->param->scales + of->average->scales + of->square->scales;
    return scales > 0 && (of->flags->plan == NULL || of->flags->n < scales) ? "scratch" : NULL;
}

static qfw_moments moments_of(const qfw_call *call)
{
    const qfw_moments of = {&call->at[0], &call->at[2], &call->at[3], &call->at[4]};
    return of;
}

const char *qfw_rule_adamw(const qfw_call *call)
{
    const qfw_moments of = moments_of(call);
    if (call->at[0].n != call->at[1].n || call->at[1].plan->rows != QFW_NO_ROWS) {
        return "the sizes differ";
    }
    return qfw_is_clip(&call->at[5]) ? qfw_adamw_fault(call, &of) : "the factor is not one number";
}

/* 1 - beta^t, t >= 1: beta in units of 2^-32, each product rounded down. power, square <= 2^32 and
 * one of them is less, so products are below 2^64. */
static float correction(uint32_t beta, uint64_t t)
{
    uint64_t power = UINT64_C(1) << 32, square = beta;
    for (; t > 0; t >>= 1) {
        if ((t & 1u) != 0) {
            power = (power * square) >> 32;
        }
        square = (square * square) >> 32;
    }
    return (float)((UINT64_C(1) << 32) - power) * 0x1p-32f;
}

static qfw_adamw_step step_of(const qfw_call *call, float lr)
{
    const qfw_plan_op *op = call->op;
    const uint64_t t = (uint64_t)call->progress.updates + 1;
    const float one = correction(op->param[FIXED1], t), two = correction(op->param[FIXED2], t);
    const qfw_adamw_step s = {
        qfw_param_f32(op, BETA1),
        qfw_param_f32(op, REST1),
        qfw_param_f32(op, BETA2),
        qfw_param_f32(op, REST2),
        qfw_param_f32(op, EPS),
        qfw_normal_f32(qfw_div_f32(lr, one)),
        qfw_normal_f32(lr * qfw_param_f32(op, DECAY)),
        0.0f,
        qfw_div_f32(1.0f, sqrtf(two)),
    };
    return s;
}

/* ---- a stretch of elements with one scale each ---- */

enum { W, M, V, KEPT };

typedef struct {
    const qfw_operand *x;
    qfw_rounding rounding;
    qfw_key key;
    uint8_t *flags;
    ptrdiff_t scale; /* of the stretch */
    uint32_t u[QFW_TILE];
    int32_t codes[QFW_TILE];
    float room[QFW_TILE];
} kept;

typedef struct {
    const qfw_call *call;
    const qfw_tensor *g;
    float clip;
    ptrdiff_t first;   /* the element that g begins with */
    ptrdiff_t g_scale; /* of the stretch */
    ptrdiff_t drawn;   /* the element that u begins with; -1: none yet */
    qfw_adamw_step step;
    kept of[KEPT];
} job;

/* Words for the tile that element i lies in; returns i's place in them. */
static size_t draw(job *j, ptrdiff_t i)
{
    const ptrdiff_t at = i - i % QFW_TILE;
    for (int k = 0; k < KEPT && j->drawn != at; k++) {
        kept *t = &j->of[k];
        if (t->rounding == QFW_STOCHASTIC && t->x->scales > 0) {
            qfw_uniforms(&t->key, (uint64_t)at, QFW_TILE, t->u);
        }
    }
    j->drawn = at;
    return (size_t)(i - at);
}

/* Elements from i on, before `end`, that share a scale in every tensor. */
static ptrdiff_t stretch(job *j, ptrdiff_t i, ptrdiff_t end)
{
    ptrdiff_t n = end - i;
    if (j->g->format.kind != QFW_FLOAT32) {
        const qfw_run run = qfw_run_at(&j->g->layout, i - j->first);
        j->g_scale = run.scale;
        n = qfw_shorter(n, run.n);
    }
    for (int k = 0; k < KEPT; k++) {
        kept *t = &j->of[k];
        if (t->x->scales > 0) {
            const qfw_run run = qfw_run_at(&t->x->t.layout, i);
            t->scale = run.scale;
            n = qfw_shorter(n, run.n);
        }
    }
    return n;
}

/* n elements of one tile from i on. */
static void move(job *j, ptrdiff_t i, size_t from, size_t n)
{
    float *value[KEPT], of_g[QFW_TILE], d[QFW_TILE];
    int32_t codes[QFW_TILE];
    const float *g = qfw_floats_at(j->g, i - j->first, n, j->g_scale, codes, of_g);
    for (int k = 0; k < KEPT; k++) {
        kept *t = &j->of[k];
        value[k] = qfw_floats_at(&t->x->t, i, n, t->scale, t->codes, t->room);
    }
    g = qfw_clipped(g, n, j->clip, of_g);
    QFW_K(j->call->kernels, adamw_f32)(value[W], g, value[M], value[V], n, &j->step, d);
    for (int k = W; k < KEPT; k++) {
        kept *t = &j->of[k];
        if (t->x->scales > 0) {
            const bool left = (k == W ? qfw_put_less : qfw_put_value)(
                j->call, t->x, t->rounding, i, n, t->scale, k == W ? d : value[k], t->u + from,
                t->codes);
            t->flags[t->scale] |= left ? 1 : 0;
        }
    }
    for (size_t k = 0; value[W] != j->of[W].room && k < n; k++) {
        value[W][k] -= d[k];
    }
}

/* ---- a range of a tensor ---- */

static job job_of(const qfw_call *call, const qfw_moments *of, const qfw_tensor *g, float clip)
{
    const qfw_operand *const x[KEPT] = {of->param, of->average, of->square};
    uint8_t *flags = of->flags->t.codes;
    job j;
    memset(&j, 0, sizeof j);
    j.call = call;
    j.g = g;
    j.clip = clip;
    j.drawn = -1;
    for (int k = 0; k < KEPT; k++) {
        j.of[k].x = x[k];
        j.of[k].rounding =
            (qfw_rounding)(k == W ? qfw_rounding_of(call->op) : x[k]->plan->rounding);
        j.of[k].key = qfw_key_of(call, x[k]);
        j.of[k].flags = flags;
        flags = flags == NULL ? NULL : flags + x[k]->scales;
    }
    return j;
}

void qfw_adamw_range(const qfw_call *call, const qfw_moments *of, const qfw_tensor *g, float clip,
                     ptrdiff_t first, ptrdiff_t n, bool last)
{
    const float lr = qfw_rate_of(call);
    job j = job_of(call, of, g, clip);
    j.first = first;
    j.step = step_of(call, lr);
    for (int k = 0; k < KEPT; k++) {
        const kept *t = &j.of[k];
        if (first == 0 && t->x->scales > 0) {
            memset(t->flags, 0, (size_t)t->x->scales);
        }
    }
    qfw_start_scales(of->param, g, first, n, lr, QFW_AS_ONE);
    qfw_start_scales(of->average, g, first, n, qfw_normal_f32(j.step.rest1 * clip),
                     QFW_AS_GRADIENT);
    qfw_start_scales(of->square, g, first, n,
                     qfw_normal_f32(qfw_normal_f32(j.step.rest2 * clip) * clip), QFW_AS_SQUARE);
    for (ptrdiff_t i = first, end = first + n; i < end;) {
        const ptrdiff_t stop = i + stretch(&j, i, end);
        j.step.least = of->square->scales > 0 ? 0.5f * of->square->t.scale[j.of[V].scale] : 0.0f;
        while (i < stop) {
            const size_t from = draw(&j, i);
            const size_t count = (size_t)qfw_shorter(stop - i, QFW_TILE - (ptrdiff_t)from);
            move(&j, i, from, count);
            i += (ptrdiff_t)count;
        }
    }
    for (int k = 0; k < KEPT; k++) {
        if (last && j.of[k].x->scales > 0) {
            qfw_settle_scales(call, j.of[k].x, j.of[k].flags);
        }
    }
}

qfw_status qfw_op_adamw(const qfw_call *call)
{
    const qfw_moments of = moments_of(call);
    qfw_adamw_range(call, &of, &call->at[1].t, qfw_clip_of(&call->at[5]), 0, call->at[0].n, true);
    return QFW_OK;
}
