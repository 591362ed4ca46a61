/* What a state adds to the step of a device, row by row: moves_rows.c. */
#include "base/random.h"
#include "engine/moves_rows.h"
#include "engine/rescale.h"

enum { FRAC = MOVED_FRAC };

/* ---- weights ---- */

/* A number that slopes are quotients of. */
typedef struct {
    float v;
    qfw_soft_number soft;
} number;

QFW_INLINE number number_of(float v)
{
    const number n = {v, qfw_soft_number_of(v)};
    return n;
}

/* a over b, a not 0. False: it is beyond what is found so. */
QFW_INLINE bool find_slope(number a, number b, qfw_soft_upper *s)
{
    if (QFW_SOFT_FLOAT) {
        return qfw_soft_find_upper(a.soft, b.soft, s);
    }
    const qfw_slope slope = qfw_row_slope(a.v, b.v);
    s->mu = (uint32_t)moved_mu(slope);
    s->field = slope >> 23;
    return slope != 0;
}

/* All rows of whole blocks: where they are, and what their slopes are made of. */
typedef struct {
    const float *s_w, *s_v;
    int8_t *m, *v;
    const int8_t *x;
    size_t row;
    number of_param, of_state;
    qfw_blocks b;
} matrix;

/* False: they are not all such rows, with scales of their own. */
static bool begin_matrix(const qfw_step_rows *s, const int8_t *x, matrix *t)
{
    t->s_w = s->param->t.scale;
    t->s_v = s->state->t.scale;
    t->m = s->param->t.codes;
    t->v = s->state->t.codes;
    t->x = x;
    t->row = (size_t)s->row;
    t->of_param = number_of(s->of_param);
    t->of_state = number_of(s->v->of_state);
    const bool each = s->param->scales == s->rows && s->state->scales == s->rows;
    return each && qfw_bits_f32(s->of_param) != 0 && qfw_bits_f32(s->v->of_state) != 0 &&
           qfw_begin_blocks(&t->b, &s->key, &s->v->key, t->row, s->v->own);
}

/* Row o, where both scales have begun. What qfw_move_both returns, or 4: nothing was done. */
QFW_INLINE uint32_t move_blocks(const qfw_step_rows *s, matrix *t, size_t o, int32_t code)
{
    const float s_w = t->s_w[o], s_v = t->s_v[o];
    if (qfw_bits_f32(s_w) == QFW_F32_ONE || qfw_bits_f32(s_v) == QFW_F32_ONE) {
        return 4;
    }
    const float of_v = qfw_by_state(s->v, s_v);
    const number by_w = number_of(s_w), by_v = number_of(s_v);
    qfw_slopes k;
    if (qfw_bits_f32(of_v) == 0 || !find_slope(number_of(of_v), by_w, &k.v)) {
        return 4;
    }
    if (code != 0 &&
        !(find_slope(t->of_param, by_w, &k.g) && find_slope(t->of_state, by_v, &k.g_v))) {
        return 4;
    }
    const size_t first = o * t->row;
    return qfw_move_blocks(&t->b, first, t->m + first, t->v + first, t->x, code, &k);
}

void qfw_move_outer_by_state(qfw_step_rows *s, const int8_t *e, const int8_t *x)
{
    matrix t;
    const bool whole = begin_matrix(s, x, &t);
    for (ptrdiff_t o = 0; o < s->rows; o++) {
        const uint32_t events = whole ? move_blocks(s, &t, (size_t)o, e[o]) : 4;
        if (events == 4) {
            qfw_row r = {x, NULL, NULL, (size_t)s->row, o * s->row, e[o], 0};
            qfw_move_row_by_state(s, o, e[o] != 0, &r);
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
    to->down = (uint32_t)(147 - frac) - (k >> 23);
    return to->down <= 31;
}

/* The slope of a state's codes in a parameter that has one scale s_w is the state's scale times a quotient,
 * step_v / s_w: 2^31 times its mantissa, less than 1 is left out, and what `down` of a factor is more than
 * the other's exponent field, for products of mantissas below 2. Fields from `least` to least + span have
 * factors, and their products by step_v are normal numbers. */
typedef struct {
    uint32_t mant, down, least, span;
} ratio;

/* Eight bits more of a quotient. */
static inline uint32_t digit(uint32_t q, uint32_t *rest, uint32_t by)
{
    const uint32_t word = *rest << 8, more = word / by;
    *rest = word - more * by;
    return q << 8 | more;
}

static ratio ratio_of(float step_v, float s_w)
{
    const uint32_t x = qfw_bits_f32(step_v), y = qfw_bits_f32(s_w), by = qfw_mantissa(y);
    uint32_t rest = qfw_mantissa(x);
    int32_t exp = (int32_t)(x >> 23) - (int32_t)(y >> 23);
    if (rest < by) {
        rest *= 2;
        exp--;
    }
    rest -= by;
    const uint32_t one = (rest << 7) / by, first = 1u << 7 | one;
    rest = (rest << 7) - one * by;
    const uint32_t two = digit(first, &rest, by), three = digit(two, &rest, by);
    /* a factor's `down` is 135 - field, of a product's field; 1 .. 30 here */
    const int32_t of_factor = 105 - exp, normal = 129 - (int32_t)(x >> 23);
    const int32_t least = of_factor > normal ? of_factor : normal;
    const int32_t most = of_factor + 29 < normal + 250 ? of_factor + 29 : normal + 250;
    const bool some = x != 0 && least <= most;
    const ratio r = {digit(three, &rest, by), (uint32_t)(135 - exp), some ? (uint32_t)least : 512u,
                     some ? (uint32_t)(most - least) : 0u};
    return r;
}

/* The factor is that of the nearest float to the quotient of the nearest to step_v s_v, by s_w: the product
 * here differs by less than 2^-22.9 of it. 16 bits are the same where those that follow are not close to
 * 0 or 1: a unit here is 2^-31, so that 2^9.1 would do. */
static inline bool find_product(const ratio *r, uint32_t s_v, factor *to)
{
    const uint32_t field = s_v >> 23;
    uint32_t high = qfw_mulhi(r->mant, qfw_mul32(s_v, 1u << 8) | 0x80000000u);
    uint32_t down = qfw_sub32(r->down, field);
    if (high >> 31 != 0) {
        down = qfw_sub32(down, 1);
    } else {
        high *= 2;
    }
    to->mu = (int32_t)(high >> 16) * 32;
    to->down = down;
    const bool clear = (qfw_sub32(high, 1024) & 0xFFFFu) < 0x10000u - 2048;
    return clear && qfw_sub32(field, r->least) <= r->span;
}

/* What is the same for all biases of a block. */
typedef struct {
    float s_w;
    number of_state;
    ratio by_v;
    factor k, own; /* of the gradient in the parameter, of a state in itself */
    qfw_slope slope, slope_own;
    bool fast; /* both are factors, and errors are bytes */
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
                     qfw_bias_term(was, b->slope_own, FRAC)};
    return t;
}

/* Of a gradient's, any. */
static QFW_COLD terms terms_by_error(const biases *b, int32_t g, float s_v)
{
    const qfw_slope of_v = qfw_row_slope(b->of_state.v, s_v);
    const terms t = {qfw_bias_term(g, b->slope, QFW_BIAS_FRAC), qfw_bias_term(g, of_v, FRAC)};
    return t;
}

QFW_INLINE terms add_state(const qfw_step_rows *s, const biases *b, bool fast, int32_t was,
                           float s_v)
{
    factor f;
    if (fast && find_product(&b->by_v, qfw_bits_f32(s_v), &f)) {
        const terms t = {(was * f.mu) >> f.down, (was * b->own.mu) >> b->own.down};
        return t;
    }
    return terms_by_state(s, b, was, s_v);
}

QFW_INLINE terms add_error(const biases *b, bool fast, int32_t g, float s_v)
{
    qfw_soft_upper q;
    if (fast && qfw_soft_find_upper(b->of_state.soft, qfw_soft_number_of(s_v), &q)) {
        const uint32_t down = qfw_sub32(147 - FRAC, q.field);
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

static biases biases_of(const qfw_step_rows *s, bool wide, qfw_slope k)
{
    biases b;
    b.s_w = s->param->t.scale[0];
    b.of_state = number_of(s->v->of_state);
    b.by_v = ratio_of(s->v->step_v, b.s_w);
    b.slope = k;
    b.slope_own = s->v->own;
    const bool both = find_factor(k, QFW_BIAS_FRAC, &b.k) & find_factor(b.slope_own, FRAC, &b.own);
    b.fast = QFW_SOFT_FLOAT && !wide && both && qfw_bits_f32(b.of_state.v) != 0;
    return b;
}

/* `wide`, `fast`: constants at each call. */
QFW_INLINE int32_t move_biases(qfw_step_rows *s, const biases *b, ptrdiff_t i, ptrdiff_t end,
                               const int8_t *e, const int32_t *sums, const bool wide,
                               const bool fast)
{
    const ptrdiff_t each = s->state->scales == s->rows ? -1 : 0;
    int8_t *v = s->state->t.codes;
    int16_t *m = s->param->t.codes;
    const float *scale = s->state->t.scale;
    int32_t out = 0;
    qfw_words w = moved_words(&s->key, i), w_v = moved_words(&s->v->key, i);
    for (; i < end; i++, w.u = qfw_add32(w.u, w.step), w_v.u = qfw_add32(w_v.u, w_v.step)) {
        const int32_t g = wide ? sums[i] : e[i], was = v[i];
        const ptrdiff_t at = i & each;
        if (was == 0) {
            if (g == 0) {
                continue;
            }
            if (each != 0 && qfw_bits_f32(scale[at]) == QFW_F32_ONE) {
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
        uint32_t left = 0;
        moved_hold(v + i, loop_round(t.y_v, FRAC, QFW_STOCHASTIC, w_v.u), &left);
        m[i] = qfw_bias_held(m[i] - loop_round(t.y, QFW_BIAS_FRAC, QFW_STOCHASTIC, w.u), &out);
        if (left != 0) {
            qfw_flag_row(s, s->param->scales + at, 1);
        }
    }
    return out;
}

int32_t qfw_move_biases_by_state(qfw_step_rows *s, ptrdiff_t i, ptrdiff_t end, const int8_t *e,
                                 const int32_t *sums, qfw_slope k)
{
    const bool wide = QFW_HAS_ANY_MOVE && e == NULL;
    const biases b = biases_of(s, wide, k);
    if (b.fast) {
        return move_biases(s, &b, i, end, e, sums, false, true);
    }
    return move_biases(s, &b, i, end, e, sums, wide, false);
}
