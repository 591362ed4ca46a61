/* The integer step of a device by one row of errors: the gradient of a weight is the outer product of
 * the error and the wire, that of a bias the error itself. Neither is stored. Bits are those of
 * moves.c. */
#include "base/random.h"
#include "engine/count.h"
#include "engine/moves.h"
#include "engine/rescale.h"
#include "kernels/moved.h"

qfw_coef qfw_coef_of(float top, float to, int32_t frac, bool wide)
{
    qfw_coef k = {0, 0, 0, 0};
    int32_t right, left;
    if (qfw_bits_f32(top) != 0) {
        const float v = QFW_SOFT_FLOAT ? qfw_soft_div_upper(top, to) : qfw_coef_div(top, to);
        loop_coef_of(v, frac, wide ? 63 : 31, &k.mu, &k.limit, &right, &left);
        k.right = (uint8_t)right;
        k.left = (uint8_t)left;
    }
    return k;
}

/* Bits that a step of Sym(8), of Sym(16) has more than its code. */
enum { FRAC = 20, BIAS_FRAC = 12 };

/* The step of a parameter. */
typedef struct {
    const qfw_call *call;
    const qfw_operand *param, *state; /* state NULL: none */
    const int8_t *e, *x;              /* x NULL: of a bias */
    ptrdiff_t rows, row;              /* of the parameter's matrix, elements of one */
    float sigma;                      /* the gradient's scale */
    qfw_factors f;
    qfw_key key, state_key;
    uint8_t *flags;
} step;

/* ---- what it can be ---- */

/* Sym codes of so many bits with one scale, or one for each row of `row` elements. */
static bool has_rows(const qfw_operand *t, int bits, ptrdiff_t row)
{
    const qfw_layout *l = &t->t.layout;
    return t->plan->kind == QFW_SYM && t->plan->bits == bits && qfw_slot(&t->t.format) == bits &&
           (t->scales == 1 || (l->outer == 1 && l->group == 1 && l->inner == row));
}

/* Steps by w would move what has no error. */
static bool takes(const step *s, const qfw_operand *e, const qfw_operand *x)
{
    const bool bytes = qfw_is_bytes(&e->t.format) && (x == NULL || qfw_is_bytes(&x->t.format));
    const bool own = has_rows(s->param, x != NULL ? 8 : 16, s->row) && !qfw_is_counted(s->param) &&
                     (x != NULL || s->param->scales == 1);
    const bool state = s->state == NULL || (has_rows(s->state, 8, s->row) &&
                                            s->state->plan->rounding == QFW_STOCHASTIC &&
                                            qfw_bits_f32(s->f.state_w) == 0);
    return bytes && own && state && qfw_rounding_of(s->call->op) == QFW_STOCHASTIC &&
           qfw_bits_f32(s->f.step_w) == 0;
}

/* ---- scales without a range ---- */

static bool is_one(float scale)
{
    return qfw_bits_f32(scale) == qfw_bits_f32(1.0f);
}

static uint32_t largest(const int8_t *x, ptrdiff_t n)
{
    uint32_t most = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        most = qfw_abs32(x[i]) > most ? qfw_abs32(x[i]) : most;
    }
    return most;
}

/* Those of rows with an error begin: c is the factor of a step. */
static void start_scales(const step *s, const qfw_operand *t, float c)
{
    for (ptrdiff_t k = 0; k < t->scales; k++) {
        if (is_one(t->t.scale[k])) {
            const uint32_t e = t->scales == 1 ? largest(s->e, s->rows) : qfw_abs32(s->e[k]);
            if (e != 0 && qfw_has_no_range(t, k)) {
                const uint32_t most = e * (s->x != NULL ? largest(s->x, s->row) : 1);
                qfw_start_scale(t, k, qfw_scale_for(s->sigma, most, 1), c, QFW_AS_GRADIENT);
            }
        }
    }
}

static ptrdiff_t scale_of(const qfw_operand *t, ptrdiff_t row)
{
    return t->scales == 1 ? 0 : row;
}

/* ---- weights ---- */

static qfw_row row_of(const step *s, ptrdiff_t o, int8_t *v)
{
    const qfw_row r = {s->x, NULL, v, (size_t)s->row, o * s->row, s->e[o], 0};
    return r;
}

/* Rows with an error, by it alone. */
static void move_rows(const step *s)
{
    const float top = qfw_coef_mul(s->f.step_g, s->sigma);
    for (ptrdiff_t o = 0; o < s->rows; o++) {
        if (s->e[o] != 0) {
            const ptrdiff_t at = scale_of(s->param, o);
            const qfw_coef g = qfw_coef_of(top, s->param->t.scale[at], FRAC, true);
            const qfw_row r = row_of(s, o, NULL);
            int8_t *m = (int8_t *)s->param->t.codes + r.first;
            s->flags[at] |= (uint8_t)qfw_move_row(m, &r, &g, &g, &s->key, false);
        }
    }
}

/* The gradient's scale times its factors, and the state's own part in itself. */
typedef struct {
    float of_param, of_state;
    qfw_coef own;
} pull;

/* Row o of the parameter and of the state, whose part in both is as it was. */
static void move_both(const step *s, ptrdiff_t o, const pull *p)
{
    const ptrdiff_t at_w = scale_of(s->param, o), at_v = scale_of(s->state, o);
    const float s_w = s->param->t.scale[at_w], s_v = s->state->t.scale[at_v];
    if (s->e[o] == 0 && is_one(s_v) && qfw_has_no_range(s->state, at_v)) {
        return; /* it never began */
    }
    const bool moves = s->e[o] != 0; /* else coefficients of g are multiplied by 0 */
    int8_t *v = (int8_t *)s->state->t.codes + o * s->row;
    const qfw_row r = row_of(s, o, v);
    const qfw_coef by_v = qfw_coef_of(qfw_coef_mul(s->f.step_v, s_v), s_w, FRAC, false);
    qfw_coef g = qfw_coef_of(moves ? p->of_param : 0.0f, s_w, FRAC, true);
    int8_t *m = (int8_t *)s->param->t.codes + r.first;
    s->flags[at_w] |= (uint8_t)qfw_move_row(m, &r, &g, &by_v, &s->key, false);
    g = qfw_coef_of(moves ? p->of_state : 0.0f, s_v, FRAC, true);
    s->flags[s->param->scales + at_v] |=
        (uint8_t)qfw_move_row(v, &r, &g, &p->own, &s->state_key, true);
}

static void move_weights(const step *s)
{
    if (!QFW_HAS_STATE || s->state == NULL) {
        move_rows(s);
        return;
    }
    const pull p = {qfw_coef_mul(s->f.step_g, s->sigma), qfw_coef_mul(s->f.state_g, s->sigma),
                    qfw_coef_of(s->f.state_v, 1.0f, FRAC, false)};
    for (ptrdiff_t o = 0; o < s->rows; o++) {
        move_both(s, o, &p);
    }
}

/* ---- biases ---- */

/* |e| mu < 2^23: a term needs no 64 bits, and no shift above 31. */
static qfw_coef of_error(float top, float to, int32_t frac)
{
    qfw_coef k = qfw_coef_of(top, to, frac, true);
    k.right = k.right < 31 ? k.right : 31;
    return k;
}

/* A code of a bias; -2^15 is held, and is no event. */
static int16_t held(int32_t v, int32_t *out)
{
    if (v > INT16_MAX || v < -INT16_MAX) {
        *out |= v != -INT16_MAX - 1;
        v = v > 0 ? INT16_MAX : -INT16_MAX;
    }
    return (int16_t)v;
}

/* The state of element i moves, by itself with the coefficient `own`; what it was adds to the step y of
 * the parameter. */
static int32_t with_state(const step *s, ptrdiff_t i, int32_t y, const qfw_coef *own, uint32_t u)
{
    const ptrdiff_t at = scale_of(s->state, i);
    const float s_v = s->state->t.scale[at];
    const float s_w = s->param->t.scale[0];
    int8_t *v = (int8_t *)s->state->t.codes + i;
    uint32_t out = 0;
    int32_t y_v = loop_term(*v, own);
    if (*v != 0) {
        const float top = qfw_coef_mul(s->f.step_v, s_v);
        const qfw_coef by_v = qfw_coef_of(top, s_w, BIAS_FRAC, false);
        y += loop_term(*v, &by_v);
    }
    if (s->e[i] != 0) {
        const qfw_coef g = of_error(qfw_coef_mul(s->f.state_g, s->sigma), s_v, FRAC);
        y_v += loop_term(s->e[i], &g);
    }
    moved_hold(v, loop_round(y_v, FRAC, QFW_STOCHASTIC, u), &out);
    s->flags[s->param->scales + at] |= (uint8_t)out;
    return y;
}

/* An element whose error and state are 0 stays. */
static void move_bias(const step *s)
{
    const float s_w = s->param->t.scale[0];
    const qfw_coef k = of_error(qfw_coef_mul(s->f.step_g, s->sigma), s_w, BIAS_FRAC);
    const bool has_state = QFW_HAS_STATE && s->state != NULL;
    qfw_coef own = {0, 0, 0, 0};
    if (has_state) {
        own = qfw_coef_of(s->f.state_v, 1.0f, FRAC, false);
    }
    int16_t *m = s->param->t.codes;
    int32_t out = 0;
    for (ptrdiff_t i = 0; i < s->rows; i++) {
        const bool moves_on = has_state && ((const int8_t *)s->state->t.codes)[i] != 0;
        if (s->e[i] != 0 || moves_on) {
            int32_t y = loop_term(s->e[i], &k);
            if (has_state) {
                y = with_state(s, i, y, &own, moved_words(&s->state_key, i).u);
            }
            const int32_t by = loop_round(y, BIAS_FRAC, QFW_STOCHASTIC, moved_words(&s->key, i).u);
            m[i] = held(m[i] - by, &out);
        }
    }
    s->flags[0] |= (uint8_t)(out != 0 ? 1 : 0);
}

bool qfw_move_one_row(const qfw_call *call, const qfw_operand *param, const qfw_operand *e,
                      const qfw_operand *x, const qfw_operand *state, float sigma, uint8_t *flags)
{
    const bool has_state = QFW_HAS_STATE && state != NULL;
    step s;
    s.call = call;
    s.param = param;
    s.state = has_state ? state : NULL;
    s.e = e->t.codes;
    s.x = x != NULL ? x->t.codes : NULL;
    s.rows = e->n;
    s.row = x != NULL ? x->n : 1;
    s.sigma = sigma;
    s.f = qfw_factors_of(call, 1.0f);
    s.flags = flags;
    if (QFW_HAS_ANY_MOVE && !takes(&s, e, x)) {
        return false;
    }
    memset(flags, 0, (size_t)(param->scales + (has_state ? state->scales : 0)));
    start_scales(&s, param, s.f.step_g);
    s.key = qfw_key_of(call, param);
    if (has_state) {
        start_scales(&s, state, s.f.state_g);
        s.state_key = qfw_key_of(call, state);
    }
    if (x != NULL) {
        move_weights(&s);
    } else {
        move_bias(&s);
    }
    return true;
}
