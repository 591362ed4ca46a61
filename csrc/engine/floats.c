/* The float32 step: docs/numerics.md section 17. */
#include "engine/count.h"
#include "engine/moves.h"
#include "kernels/codes.h"

static qfw_float_step step_of(const qfw_job *j)
{
    const qfw_float_step step = {j->f.lr, qfw_param_f32(j->call->op, QFW_MOMENTUM), j->f.kappa,
                                 qfw_param_f32(j->call->op, QFW_DECAY),
                                 (j->call->op->flags & QFW_NESTEROV) != 0};
    return step;
}

/* Plain int8 that moves by floats, and without a look at its own value. */
static bool is_light(const qfw_job *j)
{
    return !qfw_is_counted(j->param) && qfw_is_bytes(&j->param->t.format) &&
           j->g->format.kind == QFW_FLOAT32 && j->f.clip == 1.0f &&
           (j->state == NULL || j->state->plan->kind == QFW_FLOAT32) &&
           qfw_param_f32(j->call->op, QFW_DECAY) == 0.0f;
}

static void move_light(const qfw_job *j, const qfw_stretch *s)
{
    enum { MANY = 4 * QFW_TILE };
    const qfw_kernels *kernels = j->call->kernels;
    const qfw_float_step step = step_of(j);
    uint32_t events = 0;
    float d[MANY];
    int32_t lo, hi;
    qfw_code_range(&j->param->t.format, &lo, &hi);
    for (ptrdiff_t i = s->at, end = s->at + s->n, n; i < end; i += n) {
        n = qfw_shorter(end - i, MANY - i % QFW_TILE); /* ends where words do */
        const float *g = (const float *)j->g->codes + (i - j->first);
        float *v = j->state != NULL ? (float *)j->state->t.codes + i : NULL;
        QFW_K(kernels, update_f32)(g, g, v, (size_t)n, &step, d);
        events |= QFW_K(kernels, less_s8)((int8_t *)j->param->t.codes + i, d, (size_t)n,
                                          j->param->t.scale[s->param], hi, j->rounding, &j->key,
                                          (uint64_t)i);
    }
    qfw_flag(j, s, events);
}

/* Floats that move by floats: nothing is rounded to a code. */
static bool is_float(const qfw_job *j)
{
    return !QFW_DIRECT && j->param->plan->kind == QFW_FLOAT32 && j->g->format.kind == QFW_FLOAT32 &&
           j->f.clip == 1.0f && (j->state == NULL || j->state->plan->kind == QFW_FLOAT32);
}

static void move_float(const qfw_job *j, const qfw_stretch *s)
{
    enum { MANY = 32 * QFW_TILE };
    const qfw_float_step step = step_of(j);
    float d[MANY];
    for (ptrdiff_t i = s->at, end = s->at + s->n, n; i < end; i += n) {
        n = qfw_shorter(end - i, MANY);
        const float *g = (const float *)j->g->codes + (i - j->first);
        float *w = (float *)j->param->t.codes + i;
        float *v = j->state != NULL ? (float *)j->state->t.codes + i : NULL;
        QFW_K(j->call->kernels, update_f32)(w, g, v, (size_t)n, &step, d);
        for (ptrdiff_t k = 0; k < n; k++) {
            w[k] -= d[k];
        }
    }
}

/* Any formats, a tile at a time. */
static void move_tiles(qfw_job *j, const qfw_stretch *s)
{
    const qfw_float_step step = step_of(j);
    const bool has_state = j->state != NULL;
    int32_t m[QFW_TILE], m_v[QFW_TILE];
    float of_w[QFW_TILE], of_g[QFW_TILE], of_v[QFW_TILE], d[QFW_TILE];
    uint32_t events = 0;
    for (ptrdiff_t i = s->at, end = s->at + s->n; i < end;) {
        const size_t from = qfw_draw_words(j, i);
        const size_t n = (size_t)qfw_shorter(end - i, QFW_TILE - (ptrdiff_t)from);
        const float *g =
            qfw_clipped(qfw_floats_at(j->g, i - j->first, n, s->g, m, of_g), n, j->f.clip, of_g);
        float *w = qfw_floats_at(&j->param->t, i, n, s->param, m, of_w);
        float *v = has_state ? qfw_floats_at(&j->state->t, i, n, s->state, m_v, of_v) : NULL;
        QFW_K(j->call->kernels, update_f32)(w, g, v, n, &step, d);
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
        i += (ptrdiff_t)n;
    }
    qfw_flag(j, s, events);
}

void qfw_move_floats(qfw_job *j, ptrdiff_t first, ptrdiff_t end)
{
    qfw_cursors at;
    qfw_begin_stretches(j, first, &at);
    const bool light = is_light(j), is_f32 = is_float(j);
    for (ptrdiff_t i = first; i < end;) {
        const qfw_stretch s = qfw_next_stretch(j, i, end);
        if (is_f32) {
            move_float(j, &s);
        } else if (light) {
            move_light(j, &s);
        } else {
            move_tiles(j, &s);
        }
        i += s.n;
    }
    j->at = NULL;
}
