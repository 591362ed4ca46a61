/* The integer update, element by element: docs/numerics.md section 17. What loops.h says of its loops
 * is true of these. */
#ifndef QFW_KERNELS_UPDATE_LOOPS_H
#define QFW_KERNELS_UPDATE_LOOPS_H

#include "base/fixed.h"
#include "base/round.h"
#include "kernels/kernels.h"

/* ---- the integer update ---- */

/* |code| < 2^15 and mu < 2^16, so the product is an int32; 2^28 >> left << left is 2^28. */
static inline int32_t loop_term(int32_t code, const qfw_coef *c)
{
    const int32_t v = (code * c->mu) >> c->right;
    const int32_t held = v > c->limit ? c->limit : v < -c->limit ? -c->limit : v;
    return held * (1 << c->left);
}

static inline int32_t loop_wide_term(int32_t code, const qfw_coef *c)
{
    const int64_t v = ((int64_t)code * c->mu) >> c->right;
    const int32_t held = v > c->limit ? c->limit : v < -c->limit ? -c->limit : (int32_t)v;
    return held * (1 << c->left);
}

/* y / 2^frac; |y| <= 3 * 2^28 and 2^frac <= 2^26. */
static inline int32_t loop_round(int32_t y, int32_t frac, const qfw_rounding mode, uint32_t u)
{
    if (mode == QFW_STOCHASTIC) {
        return (y + (int32_t)(u >> (32 - frac))) >> frac;
    }
    const int32_t half = 1 << (frac - 1), size = y < 0 ? -y : y, sum = size + half;
    int32_t n = sum >> frac;
    if (QFW_HAS_HALF_EVEN && mode == QFW_HALF_EVEN && (sum & (2 * half - 1)) == 0) {
        n &= ~1;
    }
    return y < 0 ? -n : n;
}

static inline int32_t loop_held(int32_t v, const qfw_move *p, int32_t *out)
{
    *out |= (v < p->lo - 1) | (v > p->hi);
    return v > p->hi ? p->hi : v < p->lo ? p->lo : v;
}

/* The roundings and `wide` are constants at each call. */
static inline uint32_t loop_update(int32_t *m, int32_t *v, const int32_t *g, size_t n,
                                   const bool wide, const qfw_move *p, const qfw_move *s,
                                   const qfw_rounding mode, const qfw_rounding state_mode,
                                   const uint32_t *u, const uint32_t *u_v)
{
    int32_t out = 0, state_out = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t g_term = wide ? loop_wide_term(g[i], &p->g) : loop_term(g[i], &p->g);
        int32_t y = g_term + loop_term(m[i], &p->w);
        if (v != NULL) {
            y += loop_term(v[i], &p->v);
            const int32_t gs_term = wide ? loop_wide_term(g[i], &s->g) : loop_term(g[i], &s->g);
            const int32_t y_v = gs_term + loop_term(m[i], &s->w) + loop_term(v[i], &s->v);
            v[i] = loop_held(
                loop_round(y_v, s->frac, state_mode, state_mode == QFW_STOCHASTIC ? u_v[i] : 0), s,
                &state_out);
        }
        m[i] = loop_held(m[i] - loop_round(y, p->frac, mode, mode == QFW_STOCHASTIC ? u[i] : 0), p,
                         &out);
    }
    return (out != 0 ? 1u : 0u) | (state_out != 0 ? 2u : 0u);
}

static inline uint32_t loop_update_any(int32_t *m, int32_t *v, const int32_t *g, size_t n,
                                       bool wide, const qfw_move *p, const qfw_move *s,
                                       const uint32_t *u, const uint32_t *u_v)
{
    const bool all = p->rounding == QFW_STOCHASTIC && (v == NULL || s->rounding == QFW_STOCHASTIC);
    if (QFW_DIRECT || !all) {
        return loop_update(m, v, g, n, wide, p, s, p->rounding,
                           v == NULL ? p->rounding : s->rounding, u, u_v);
    }
    if (wide) {
        return v == NULL
                   ? loop_update(m, NULL, g, n, true, p, s, QFW_STOCHASTIC, QFW_STOCHASTIC, u, u_v)
                   : loop_update(m, v, g, n, true, p, s, QFW_STOCHASTIC, QFW_STOCHASTIC, u, u_v);
    }
    return v == NULL
               ? loop_update(m, NULL, g, n, false, p, s, QFW_STOCHASTIC, QFW_STOCHASTIC, u, u_v)
               : loop_update(m, v, g, n, false, p, s, QFW_STOCHASTIC, QFW_STOCHASTIC, u, u_v);
}

/* ---- the integer update, a coefficient an element ---- */

/* v in units of 2^-frac; of its mantissa 16 bits count. */
static inline void loop_coef_of(float v, int32_t frac, int32_t last, int32_t *mu, int32_t *limit,
                                int32_t *right, int32_t *left)
{
    const int32_t bits = (int32_t)qfw_bits_f32(v); /* normal and positive, or 0 */
    const int32_t shift = (bits >> 23) - 150 + 8 + frac;
    const int32_t up = shift < 0 ? 0 : shift < 28 ? shift : 28;
    const int32_t down = shift > 0 ? 0 : -shift < last ? -shift : last;
    *mu = bits == 0 ? 0 : ((bits & 0x7FFFFF) | 0x800000) >> 8;
    *left = bits == 0 ? 0 : up;
    *right = bits == 0 ? 0 : down;
    *limit = (1 << 28) >> (bits == 0 ? 0 : up);
}

static inline void loop_coefs(float c, const float *restrict from, const float *restrict to,
                              int32_t frac, int32_t last, qfw_coefs *restrict k)
{
    for (size_t i = 0; i < QFW_LANES; i++) {
        const float v = qfw_coef_div(qfw_coef_mul(c, from[i]), to[i]);
        loop_coef_of(v, frac, last, &k->mu[i], &k->limit[i], &k->right[i], &k->left[i]);
    }
}

static inline qfw_coef loop_coef_at(const qfw_coefs *c, size_t i)
{
    const qfw_coef k = {c->mu[i], c->limit[i], (uint8_t)c->right[i], (uint8_t)c->left[i]};
    return k;
}

static inline qfw_move loop_move_at(const qfw_moves *m, size_t i)
{
    const qfw_move move = {loop_coef_at(&m->g, i),
                           loop_coef_at(&m->v, i),
                           loop_coef_at(&m->w, i),
                           m->frac,
                           m->lo,
                           m->hi,
                           m->rounding};
    return move;
}

static inline int32_t loop_term_at(int32_t code, const qfw_coefs *c, size_t i, const bool wide)
{
    const qfw_coef k = loop_coef_at(c, i);
    return wide ? loop_wide_term(code, &k) : loop_term(code, &k);
}

static inline int32_t loop_held_at(int32_t v, const qfw_moves *p, uint32_t event, uint32_t *out)
{
    *out |= v < p->lo - 1 || v > p->hi ? event : 0;
    return v > p->hi ? p->hi : v < p->lo ? p->lo : v;
}

/* `wide` and the roundings are constants where it matters. */
static inline uint32_t loop_update_each(int32_t *restrict m, int32_t *restrict v,
                                        const int32_t *restrict g, const bool wide,
                                        const qfw_moves *p, const qfw_moves *s,
                                        const qfw_rounding mode, const qfw_rounding state_mode,
                                        const uint32_t *u, const uint32_t *u_v,
                                        uint32_t *restrict out)
{
    uint32_t events = 0;
    for (size_t i = 0; i < QFW_LANES; i++) {
        int32_t y = loop_term_at(g[i], &p->g, i, wide) + loop_term_at(m[i], &p->w, i, false);
        out[i] = 0;
        if (v != NULL) {
            const int32_t y_v = loop_term_at(g[i], &s->g, i, wide) +
                                loop_term_at(m[i], &s->w, i, false) +
                                loop_term_at(v[i], &s->v, i, false);
            y += loop_term_at(v[i], &p->v, i, false);
            v[i] = loop_held_at(loop_round(y_v, s->frac, state_mode, u_v[i]), s, 2, &out[i]);
        }
        m[i] = loop_held_at(m[i] - loop_round(y, p->frac, mode, u[i]), p, 1, &out[i]);
        events |= out[i];
    }
    return events;
}

static inline uint32_t loop_update_each_any(int32_t *m, int32_t *v, const int32_t *g, bool wide,
                                            const qfw_moves *p, const qfw_moves *s,
                                            const uint32_t *u, const uint32_t *u_v, uint32_t *out)
{
    const qfw_rounding any = QFW_STOCHASTIC, of_v = v == NULL ? p->rounding : s->rounding;
    if (QFW_DIRECT || wide || p->rounding != any || of_v != any) {
        return loop_update_each(m, v, g, wide, p, s, p->rounding, of_v, u, u_v, out);
    }
    return v == NULL ? loop_update_each(m, NULL, g, false, p, s, any, any, u, u_v, out)
                     : loop_update_each(m, v, g, false, p, s, any, any, u, u_v, out);
}

#endif
