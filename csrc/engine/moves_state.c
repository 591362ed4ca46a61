/* What a state adds to the step of a device, row by row: moves_rows.c. */
#include "base/random.h"
#include "engine/moves_rows.h"
#include "engine/rescale.h"
#include "engine/slopes.h"

/* ---- weights ---- */

/* All rows of whole blocks: where they are, and what their slopes are made of. */
typedef struct {
    const float *s_w, *s_v;
    int8_t *m, *v;
    const int8_t *x;
    size_t row;
    slope_factor step_v, of_param;
    qfw_soft_number of_state;
    qfw_blocks b;
} matrix;

/* False: they are not all such rows, with scales of their own. */
static bool begin_matrix(const qfw_step_rows *s, const int8_t *x, matrix *t)
{
    const qfw_state_rows *of = s->v;
    t->s_w = s->param->t.scale;
    t->s_v = s->state->t.scale;
    t->m = s->param->t.codes;
    t->v = s->state->t.codes;
    t->x = x;
    t->row = (size_t)s->row;
    t->step_v = slope_factor_of(of->step_v);
    t->of_param = slope_factor_of(s->of_param);
    t->of_state = qfw_soft_number_of(of->of_state);
    const bool each = s->param->scales == s->rows && s->state->scales == s->rows;
    const bool some = qfw_bits_f32(of->step_v) != 0 && qfw_bits_f32(s->of_param) != 0 &&
                      qfw_bits_f32(of->of_state) != 0;
    return each && some && qfw_begin_blocks(&t->b, &s->key, &of->key, t->row, of->own);
}

/* A slope as it is defined. */
static QFW_COLD qfw_slope defined(float top, float to)
{
    return qfw_row_slope(top, to);
}

static inline qfw_soft_upper upper_of(qfw_slope slope)
{
    const qfw_soft_upper u = {(uint32_t)moved_mu(slope), slope >> 23};
    return u;
}

/* Whether n bytes are 0, n a multiple of 16. */
static bool are_zero(const int8_t *v, size_t n)
{
    uint32_t a, b, c, d, any = 0;
    for (const int8_t *end = v + n; v < end; v += 16) {
        QFW_COPY_FEW(&a, v, sizeof a);
        QFW_COPY_FEW(&b, v + 4, sizeof b);
        QFW_COPY_FEW(&c, v + 8, sizeof c);
        QFW_COPY_FEW(&d, v + 12, sizeof d);
        any |= (a | b) | (c | d);
    }
    return any == 0;
}

/* Row o, where both scales have begun. What qfw_move_both returns, or 4: nothing was done. Three mantissas
 * make 2^71 of a product by a reciprocal, of which 2^7 are left of the quotient. Fields of slopes that are
 * not those of normal numbers are no rows of blocks. */
QFW_INLINE uint32_t move_blocks(const qfw_step_rows *s, matrix *t, size_t o, int32_t code)
{
    const float s_w = t->s_w[o], s_v = t->s_v[o];
    const slope_factor v = slope_factor_of(s_v);
    const qfw_soft_number w = qfw_soft_number_of(s_w);
    const uint32_t normal = qfw_sub32(v.field + t->step_v.field, 128); /* that product's */
    const size_t first = o * t->row;
    if (qfw_bits_f32(s_v) == QFW_F32_ONE) { /* it does not begin without an error */
        return code == 0 && are_zero(t->v + first, t->row) ? 0 : 4;
    }
    if (qfw_bits_f32(s_w) == QFW_F32_ONE || normal > 252) {
        return 4;
    }
    const uint32_t by_w = slope_reciprocal(w.mant);
    const uint32_t of_v = qfw_mulhi(qfw_mulhi(by_w, t->step_v.mant), v.mant);
    qfw_slopes k;
    if (!slope_near(of_v, qfw_sub32(normal + 129, w.field), &k.v)) {
        k.v = upper_of(defined(qfw_by_state(s->v, s_v), s_w));
    }
    if (code != 0) {
        const qfw_soft_number by_v = {v.mant >> 8, v.field};
        const uint32_t of_g = qfw_mulhi(by_w, t->of_param.mant);
        if (!slope_near(of_g, qfw_sub32(t->of_param.field + 127, w.field), &k.g)) {
            k.g = upper_of(defined(s->of_param, s_w));
        }
        if (!qfw_soft_find_upper(t->of_state, by_v, &k.g_v)) {
            k.g_v = upper_of(defined(s->v->of_state, s_v));
        }
    }
    return qfw_move_blocks(&t->b, first, t->m + first, t->v + first, t->x, code, &k);
}

static QFW_NOINLINE void move_row(qfw_step_rows *s, ptrdiff_t o, int32_t code, const int8_t *x)
{
    qfw_row r = {x, NULL, NULL, (size_t)s->row, o * s->row, code, 0};
    qfw_move_row_by_state(s, o, code != 0, &r);
}

void qfw_move_outer_by_state(qfw_step_rows *s, const int8_t *e, const int8_t *x)
{
    const ptrdiff_t rows = s->rows;
    matrix t;
    if (!begin_matrix(s, x, &t)) {
        for (ptrdiff_t o = 0; o < rows; o++) {
            move_row(s, o, e[o], x);
        }
        return;
    }
    for (ptrdiff_t o = 0; o < rows; o++) {
        const uint32_t events = move_blocks(s, &t, (size_t)o, e[o]);
        if (events == 4) {
            move_row(s, o, e[o], x);
        } else if (events != 0) {
            qfw_flag_row(s, o, events & 1u);
            qfw_flag_row(s, s->param->scales + o, events >> 1);
        }
    }
}

/* ---- biases ---- */

/* The term of a byte: (code * mu) >> down, down <= 31, where 2^-5 mu is a coefficient's: |code mu| <= 2^28. */
typedef struct {
    int32_t mu;
    uint32_t down;
} factor;

/* Whether terms of bytes are so: a slope that moves them up by more than 5 bits may need a clamp. */
QFW_INLINE bool find_factor(qfw_slope k, int32_t frac, factor *to)
{
    to->mu = moved_mu(k) * 32;
    to->down = qfw_sub32((uint32_t)(147 - frac), k >> 23);
    return to->down <= 31;
}

/* The slope of a state's codes in a parameter that has one scale: the state's scale times `by`. `down` of a
 * factor is that of here less the scale's field, if the product's first bit is set. Scales of fields from
 * `least` to least + span have factors, and their products by step_v are normal numbers. */
typedef struct {
    uint32_t by, down, least, span;
} ratio;

static void find_ratio(float step_v, float s_w, ratio *r)
{
    const slope_factor v = slope_factor_of(step_v);
    const qfw_soft_number w = qfw_soft_number_of(s_w);
    const int32_t field = (int32_t)v.field - (int32_t)w.field;
    /* a factor's `down` is 135 less the slope's field, of which two bits at most are not set */
    const int32_t of_factor = 105 - field, normal = 128 - (int32_t)v.field;
    const int32_t least = of_factor > normal ? of_factor : normal;
    const int32_t most = of_factor + 29 < normal + 252 ? of_factor + 29 : normal + 252;
    const bool some = qfw_bits_f32(step_v) != 0 && least <= most;
    r->by = qfw_mulhi(slope_reciprocal(w.mant), v.mant);
    r->down = (uint32_t)(134 - field);
    r->least = some ? (uint32_t)least : 512u;
    r->span = some ? (uint32_t)(most - least) : 0u;
}

static inline bool find_product(const ratio *r, float s_v, factor *to)
{
    const slope_factor v = slope_factor_of(s_v);
    const uint32_t of_v = qfw_mulhi(r->by, v.mant), up = (uint32_t)(31 - qfw_msb64(of_v));
    to->mu = (int32_t)(of_v << up >> 16) * 32;
    to->down = qfw_sub32(r->down + up, v.field);
    return slope_is_clear(of_v << up) && qfw_sub32(v.field, r->least) <= r->span;
}

/* What is the same for all biases of a block. */
typedef struct {
    float s_w, of_state;
    qfw_soft_number soft;
    ratio by_v;
    factor k, own; /* of the gradient in the parameter, of a state in itself */
    qfw_slope slope, slope_own;
    bool fast; /* both are factors, errors are bytes, and states have scales of their own */
} biases;

/* A bias and its state: the terms of both. */
typedef struct {
    int32_t y, y_v;
} terms;

/* Of a state's code, any. */
static QFW_COLD terms terms_by_state(const qfw_step_rows *s, const biases *b, int32_t was,
                                     float s_v)
{
    const qfw_slope by_v = qfw_row_slope(qfw_by_state(s->v, s_v), b->s_w);
    const terms t = {qfw_bias_term(was, by_v, QFW_BIAS_FRAC),
                     qfw_bias_term(was, b->slope_own, MOVED_FRAC)};
    return t;
}

/* Of a gradient's, any. */
static QFW_COLD terms terms_by_error(const biases *b, int32_t g, float s_v)
{
    const qfw_slope of_v = qfw_row_slope(b->of_state, s_v);
    const terms t = {qfw_bias_term(g, b->slope, QFW_BIAS_FRAC), qfw_bias_term(g, of_v, MOVED_FRAC)};
    return t;
}

QFW_INLINE terms add_state(const qfw_step_rows *s, const biases *b, bool fast, int32_t was,
                           float s_v)
{
    factor f;
    if (fast && find_product(&b->by_v, s_v, &f)) {
        const terms t = {(was * f.mu) >> f.down, (was * b->own.mu) >> b->own.down};
        return t;
    }
    return terms_by_state(s, b, was, s_v);
}

QFW_INLINE terms add_error(const biases *b, bool fast, int32_t g, float s_v)
{
    qfw_soft_upper q;
    if (fast && qfw_soft_find_upper(b->soft, qfw_soft_number_of(s_v), &q)) {
        const uint32_t down = qfw_sub32(147 - MOVED_FRAC, q.field);
        if (down <= 31) {
            const terms t = {(g * b->k.mu) >> b->k.down, (g * ((int32_t)q.mu * 32)) >> down};
            return t;
        }
    }
    return terms_by_error(b, g, s_v);
}

/* The first error of a state that has a scale of its own. */
static QFW_COLD void start_state(const qfw_step_rows *s, ptrdiff_t at, int32_t g)
{
    const qfw_num most = qfw_scale_for(s->sigma, qfw_abs32(g), 1);
    qfw_start_scale(s->state, at, most, s->v->state_g, QFW_AS_GRADIENT);
}

static void find_biases(const qfw_step_rows *s, bool wide, qfw_slope k, biases *b)
{
    b->s_w = s->param->t.scale[0];
    b->of_state = s->v->of_state;
    b->soft = qfw_soft_number_of(b->of_state);
    find_ratio(s->v->step_v, b->s_w, &b->by_v);
    b->slope = k;
    b->slope_own = s->v->own;
    const bool has_k = find_factor(k, QFW_BIAS_FRAC, &b->k);
    const bool both = find_factor(b->slope_own, MOVED_FRAC, &b->own) && has_k;
    b->fast = QFW_SOFT_FLOAT && !wide && both && qfw_bits_f32(b->of_state) != 0 &&
              s->state->scales == s->rows;
}

/* What a state becomes; whether it left its codes. */
QFW_INLINE bool hold_state(int8_t *v, int32_t to)
{
    uint32_t left = 0;
    if (to <= MOVED_MOST && to >= -MOVED_MOST) {
        *v = (int8_t)to;
    } else {
        moved_hold(v, to, &left);
    }
    return left != 0;
}

/* `wide`, `fast`: constants at each call. */
QFW_INLINE int32_t move_biases(qfw_step_rows *s, const biases *b, ptrdiff_t i, ptrdiff_t end,
                               const int8_t *e, const int32_t *sums, const bool wide,
                               const bool fast)
{
    const bool each = fast || s->state->scales == s->rows;
    int8_t *v = s->state->t.codes;
    int16_t *m = s->param->t.codes;
    const float *scale = s->state->t.scale;
    const qfw_draw_pair w = qfw_block_draw(&s->key, (uint64_t)i),
                        w_v = qfw_block_draw(&s->v->key, (uint64_t)i);
    int32_t out = 0;
    for (; i < end; i++) {
        const int32_t g = wide ? sums[i] : e[i], was = v[i];
        const ptrdiff_t at = each ? i : 0;
        if (was == 0) {
            if (g == 0) {
                continue;
            }
            if (each && qfw_bits_f32(scale[at]) == QFW_F32_ONE) {
                start_state(s, at, g);
            }
        }
        const float s_v = scale[at];
        terms t = {0, 0};
        if (was != 0) {
            t = add_state(s, b, fast, was, s_v);
        }
        if (g != 0) {
            const terms more = add_error(b, fast, g, s_v);
            t.y += more.y;
            t.y_v += more.y_v;
        }
        const uint32_t place = (uint32_t)i & 31;
        const uint32_t u = qfw_add32(w.a, qfw_mul32(place, w.b)),
                       u_v = qfw_add32(w_v.a, qfw_mul32(place, w_v.b));
        m[i] = qfw_bias_held(m[i] - loop_round(t.y, QFW_BIAS_FRAC, QFW_STOCHASTIC, u), &out);
        if (hold_state(v + i, loop_round(t.y_v, MOVED_FRAC, QFW_STOCHASTIC, u_v))) {
            qfw_flag_row(s, s->param->scales + at, 1);
        }
    }
    return out;
}

int32_t qfw_move_biases_by_state(qfw_step_rows *s, ptrdiff_t i, ptrdiff_t end, const int8_t *e,
                                 const int32_t *sums, qfw_slope k)
{
    const bool wide = QFW_HAS_ANY_MOVE && e == NULL;
    biases b;
    find_biases(s, wide, k, &b);
    return b.fast ? move_biases(s, &b, i, end, e, sums, false, true)
                  : move_biases(s, &b, i, end, e, sums, wide, false);
}
