#include "engine/count.h"
#include "engine/rescale.h"
#include "kernels/update_loops.h"

static void see_scale(qfw_counter *c, float s)
{
    c->least = c->least == 0.0f || s < c->least ? s : c->least;
    c->most = s > c->most ? s : c->most;
}

/* Of a tile. */
typedef struct {
    uint32_t saturated, asked, unmoved, dead;
} tally;

/* A code that would be `to` without the clamp. */
static inline void see_code(tally *t, int32_t to, int32_t lo, int32_t hi)
{
    t->saturated += to < lo || to > hi ? 1u : 0u;
}

/* A step that was `asked` for, or is 0; `dead`: no draw would have made it another. */
static inline void see_step(tally *t, bool asked, int32_t rounded, bool dead)
{
    const bool unmoved = asked && rounded == 0;
    t->asked += asked ? 1u : 0u;
    t->unmoved += unmoved ? 1u : 0u;
    t->dead += unmoved && dead ? 1u : 0u;
}

static void add(qfw_counter *c, const tally *t, size_t n)
{
    c->written += n;
    c->saturated += t->saturated;
    c->asked += t->asked;
    c->unmoved += t->unmoved;
    c->dead += t->dead;
}

void qfw_see_encoded(const qfw_operand *dst, uint64_t saturated)
{
    qfw_counter *c = QFW_COUNTER(dst);
    if (dst->scales == 0) {
        return;
    }
    const qfw_layout *l = &dst->t.layout; /* of the part: dst->n is the whole's */
    c->written += (uint64_t)(l->outer * l->axis * l->inner);
    c->saturated += saturated;
    for (ptrdiff_t i = 0; i < dst->scales; i++) {
        if (!qfw_has_no_range(dst, i)) {
            see_scale(c, dst->t.scale[i]);
        }
    }
}

/* ---- integers ---- */

static inline bool has_term(int32_t code, const qfw_coef *c)
{
    return code != 0 && c->mu != 0;
}

/* y of docs/numerics.md section 17. In 64 bits a term is what it is in 32. */
static inline int32_t step_of(int32_t m, int32_t v, int32_t g, const qfw_move *p)
{
    return loop_wide_term(g, &p->g) + loop_wide_term(m, &p->w) + loop_wide_term(v, &p->v);
}

void qfw_see_codes(const qfw_operand *param, const qfw_operand *state, const int32_t *m,
                   const int32_t *v, const int32_t *g, size_t n, const qfw_move *move,
                   const qfw_move *state_move, const uint32_t *u, const uint32_t *u_v)
{
    const qfw_move p = *move, s = *state_move;
    const bool random = p.rounding == QFW_STOCHASTIC, random_v = s.rounding == QFW_STOCHASTIC;
    tally of_m = {0, 0, 0, 0}, of_v = {0, 0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        const int32_t v_i = state != NULL ? v[i] : 0, y = step_of(m[i], v_i, g[i], &p);
        const int32_t by = loop_round(y, p.frac, p.rounding, random ? u[i] : 0);
        const bool asked = has_term(g[i], &p.g) || has_term(m[i], &p.w) || has_term(v_i, &p.v);
        see_step(&of_m, asked, by, !random || y == 0);
        see_code(&of_m, m[i] - by, p.lo, p.hi);
    }
    add(QFW_COUNTER(param), &of_m, n);
    for (size_t i = 0; state != NULL && i < n; i++) {
        const int32_t y = step_of(m[i], v[i], g[i], &s);
        see_code(&of_v, loop_round(y, s.frac, s.rounding, random_v ? u_v[i] : 0), s.lo, s.hi);
    }
    if (state != NULL) {
        add(QFW_COUNTER(state), &of_v, n);
    }
}

/* ---- floats ---- */

void qfw_see_floats(const qfw_call *call, const qfw_operand *x, ptrdiff_t scale, const int32_t *m,
                    const float *value, const int32_t *steps, size_t n, const qfw_code_rule *rule)
{
    const bool is_param = x->plan->role == QFW_PARAMETER;
    const bool random = rule->rounding == QFW_STOCHASTIC;
    int32_t most[QFW_TILE], lo, hi;
    uint32_t largest[QFW_TILE];
    tally t = {0, 0, 0, 0};
    qfw_codes_at(x, scale, &lo, &hi);
    memset(largest, 0xFF, sizeof largest);
    (void)QFW_K(call->kernels, quotient_f32)(value, largest, n, x->t.scale[scale], rule, most);
    for (size_t i = 0; i < n; i++) {
        /* Below 0 the smallest draw moves it, above 0 the largest does if one does. */
        const bool dead = !random || (value[i] > 0.0f && most[i] == 0);
        see_step(&t, is_param && value[i] != 0.0f, steps[i], dead);
        see_code(&t, is_param ? m[i] - steps[i] : steps[i], lo, hi);
    }
    add(QFW_COUNTER(x), &t, n);
}

/* ---- scales ---- */

void qfw_see_scale(const qfw_operand *x, ptrdiff_t scale, float before)
{
    qfw_counter *c = QFW_COUNTER(x);
    const float now = x->t.scale[scale];
    if (qfw_has_no_range(x, scale)) {
        return;
    }
    see_scale(c, before);
    see_scale(c, now);
    c->doubled += now > before ? 1u : 0u;
    c->halved += now < before ? 1u : 0u;
}
