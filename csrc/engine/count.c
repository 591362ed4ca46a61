#include "engine/count.h"
#include "engine/rescale.h"
#include "kernels/loops.h"

static void see_scale(qfw_counter *c, float s)
{
    c->least = c->least == 0.0f || s < c->least ? s : c->least;
    c->most = s > c->most ? s : c->most;
}

/* A code that would be `to` without the clamp. */
static void see_code(qfw_counter *c, int32_t to, int32_t lo, int32_t hi)
{
    c->written++;
    c->saturated += to < lo || to > hi ? 1u : 0u;
}

/* A step that was not 0, rounded; `dead`: no draw would have made it another. */
static void see_step(qfw_counter *c, int32_t rounded, bool dead)
{
    c->asked++;
    c->unmoved += rounded == 0 ? 1u : 0u;
    c->dead += rounded == 0 && dead ? 1u : 0u;
}

void qfw_count_encoded(const qfw_operand *dst, uint64_t saturated)
{
    qfw_counter *c = dst->counter;
    if (c == NULL || dst->scales == 0) {
        return;
    }
    const qfw_layout *l = &dst->t.layout; /* of the part: dst->n is the whole's */
    c->written += (uint64_t)(l->outer * l->axis * l->inner);
    c->saturated += saturated;
    for (int64_t i = 0; i < dst->scales; i++) {
        if (!qfw_has_no_range(dst, i)) {
            see_scale(c, dst->t.scale[i]);
        }
    }
}

/* ---- integers ---- */

static bool has_term(int32_t code, const qfw_coef *c)
{
    return code != 0 && c->mu != 0;
}

/* y of docs/numerics.md section 17. In 64 bits a term is what it is in 32. */
static int32_t step_of(int32_t m, int32_t v, int32_t g, const qfw_move *p)
{
    return loop_wide_term(g, &p->g) + loop_wide_term(m, &p->w) + loop_wide_term(v, &p->v);
}

void qfw_see_codes(const qfw_operand *param, const qfw_operand *state, const int32_t *m,
                   const int32_t *v, const int32_t *g, size_t n, const qfw_move *move,
                   const qfw_move *state_move, const uint32_t *u, const uint32_t *u_v)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t v_i = state != NULL ? v[i] : 0, y = step_of(m[i], v_i, g[i], move);
        const bool random = move->rounding == QFW_STOCHASTIC;
        const int32_t by = loop_round(y, move->frac, move->rounding, random ? u[i] : 0);
        if (has_term(g[i], &move->g) || has_term(m[i], &move->w) || has_term(v_i, &move->v)) {
            see_step(param->counter, by, !random || y == 0);
        }
        see_code(param->counter, m[i] - by, move->lo, move->hi);
    }
    for (size_t i = 0; state != NULL && i < n; i++) {
        const bool random = state_move->rounding == QFW_STOCHASTIC;
        const int32_t to = loop_round(step_of(m[i], v[i], g[i], state_move), state_move->frac,
                                      state_move->rounding, random ? u_v[i] : 0);
        see_code(state->counter, to, state_move->lo, state_move->hi);
    }
}

/* ---- floats ---- */

void qfw_see_floats(const qfw_call *call, const qfw_operand *x, int64_t scale, const int32_t *m,
                    const float *value, const int32_t *steps, size_t n, const qfw_code_rule *rule)
{
    const bool is_param = x->plan->role == QFW_PARAMETER;
    const bool random = rule->rounding == QFW_STOCHASTIC;
    int32_t most[QFW_TILE], lo, hi;
    uint32_t largest[QFW_TILE];
    qfw_codes_at(x, scale, &lo, &hi);
    memset(largest, 0xFF, sizeof largest);
    (void)call->kernels->quotient_f32(value, largest, n, x->t.scale[scale], rule, most);
    for (size_t i = 0; i < n; i++) {
        if (is_param && value[i] != 0.0f) {
            /* Below 0 the smallest draw moves it, above 0 the largest does if one does. */
            see_step(x->counter, steps[i], !random || (value[i] > 0.0f && most[i] == 0));
        }
        see_code(x->counter, is_param ? m[i] - steps[i] : steps[i], lo, hi);
    }
}

/* ---- scales ---- */

void qfw_count_scale(const qfw_operand *x, int64_t scale, float before)
{
    qfw_counter *c = x->counter;
    const float now = x->t.scale[scale];
    if (c == NULL || qfw_has_no_range(x, scale)) {
        return;
    }
    see_scale(c, before);
    see_scale(c, now);
    c->doubled += now > before ? 1u : 0u;
    c->halved += now < before ? 1u : 0u;
}
