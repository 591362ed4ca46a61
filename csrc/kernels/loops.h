/* Loops that a compiler turns into vectors by itself. loops.c is the definition; loops_<isa>.c are
 * the same lines for a larger instruction set. */
#ifndef QFW_KERNELS_LOOPS_H
#define QFW_KERNELS_LOOPS_H

#include <math.h>

#include "base/fixed.h"
#include "base/round.h"
#include "kernels/kernels.h"

/* ---- requantization, a ratio an element: qfw_rescale of base/round.h ---- */

static inline uint32_t loop_rescale_columns(const int32_t *a, const uint32_t *u, size_t n,
                                            const qfw_ratios *r, const qfw_code_rule *rule,
                                            const qfw_rounding mode, int32_t *codes)
{
    uint32_t saturated = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = qfw_abs32(a[i]), down = r->down[i];
        const uint32_t lifted = (size < r->limit[i] ? size : r->limit[i]) << r->up[i];
        const uint64_t product = (uint64_t)lifted * r->mult[i];
        const uint32_t hi = (uint32_t)(product >> 32), lo = (uint32_t)(product & 0xFFFFFFFFu);
        int32_t v;
        if (mode == QFW_STOCHASTIC) {
            const int32_t floor_hi = a[i] >= 0 ? (int32_t)hi : -(int32_t)hi - (lo != 0 ? 1 : 0);
            v = (floor_hi + (int32_t)(u[i] >> (32 - down))) >> down;
        } else {
            const uint32_t sum = hi + (UINT32_C(1) << (down - 1));
            uint32_t w = sum >> down;
            if (mode == QFW_HALF_EVEN) {
                const bool tie = (sum & ((UINT32_C(1) << down) - 1)) == 0 && lo == 0;
                w &= ~(tie ? UINT32_C(1) : 0);
            }
            v = a[i] < 0 ? -(int32_t)w : (int32_t)w;
        }
        v += rule->zp;
        const int32_t code = v > rule->qmax ? rule->qmax : v < rule->qmin ? rule->qmin : v;
        saturated += code != v ? 1u : 0u;
        codes[i] = code;
    }
    return saturated;
}

static inline uint32_t loop_rescale(const int32_t *a, const uint32_t *u, size_t n,
                                    const qfw_ratios *r, const qfw_code_rule *rule, int32_t *codes)
{
    switch (rule->rounding) {
    case QFW_STOCHASTIC:
        return loop_rescale_columns(a, u, n, r, rule, QFW_STOCHASTIC, codes);
    case QFW_HALF_EVEN:
        return loop_rescale_columns(a, u, n, r, rule, QFW_HALF_EVEN, codes);
    default:
        return loop_rescale_columns(a, u, n, r, rule, QFW_HALF_AWAY, codes);
    }
}

/* ---- what follows a product ---- */

static inline void loop_mask(int32_t *acc, size_t n, const void *mask, int32_t kind, size_t first)
{
    switch (kind) {
    case 8:
        for (size_t j = 0; j < n; j++) {
            acc[j] = ((const int8_t *)mask)[first + j] > 0 ? acc[j] : 0;
        }
        break;
    case 16:
        for (size_t j = 0; j < n; j++) {
            acc[j] = ((const int16_t *)mask)[first + j] > 0 ? acc[j] : 0;
        }
        break;
    case 32:
        for (size_t j = 0; j < n; j++) {
            acc[j] = ((const int32_t *)mask)[first + j] > 0 ? acc[j] : 0;
        }
        break;
    default:
        for (size_t j = 0; j < n; j++) {
            acc[j] = ((const float *)mask)[first + j] > 0.0f ? acc[j] : 0;
        }
        break;
    }
}

/* |sum >> shift| + |seed| < 2^31 by the proof of headroom. */
static inline void loop_finish(int32_t *acc, size_t rows, size_t n, const qfw_finish *f)
{
    for (size_t i = 0; i < rows; i++, acc += n) {
        for (size_t j = 0; f->seed != NULL && j < n; j++) {
            acc[j] = (acc[j] >> f->shift[j]) + f->seed[j];
        }
        for (size_t j = 0; f->relu && j < n; j++) {
            acc[j] = acc[j] > 0 ? acc[j] : 0;
        }
        if (f->mask != NULL) {
            loop_mask(acc, n, f->mask, f->mask_kind, i * n);
        }
        if (f->columns) {
            for (size_t j = 0; j < n; j++) {
                const uint32_t size = qfw_abs32(acc[j]);
                f->absmax[j] = size > f->absmax[j] ? size : f->absmax[j];
            }
        } else {
            uint32_t most = f->absmax[0];
            for (size_t j = 0; j < n; j++) {
                const uint32_t size = qfw_abs32(acc[j]);
                most = size > most ? size : most;
            }
            f->absmax[0] = most;
        }
    }
}

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
    if (mode == QFW_HALF_EVEN && (sum & (2 * half - 1)) == 0) {
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
    if (!all) {
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

/* ---- the float32 update ---- */

static inline void loop_update_f32(const float *restrict w, const float *restrict g,
                                   float *restrict v, size_t n, const qfw_float_step *s,
                                   float *restrict d)
{
    const float lr = s->lr, momentum = s->momentum, kappa = s->kappa, decay = s->decay;
    for (size_t i = 0; i < n; i++) {
        d[i] = decay != 0.0f ? g[i] + decay * w[i] : g[i];
    }
    for (size_t i = 0; v != NULL && i < n; i++) {
        v[i] = momentum * v[i] + kappa * d[i];
        d[i] = s->nesterov ? d[i] + momentum * v[i] : v[i];
    }
    for (size_t i = 0; i < n; i++) {
        d[i] = lr * d[i];
    }
}

/* v < least is false for a NaN, which stays one. */
static inline void loop_adamw_f32(const float *restrict w, const float *restrict g,
                                  float *restrict m, float *restrict v, size_t n,
                                  const qfw_adamw_step *s, float *restrict d)
{
    for (size_t i = 0; i < n; i++) {
        m[i] = s->beta1 * m[i] + s->rest1 * g[i];
        v[i] = s->beta2 * v[i] + s->rest2 * (g[i] * g[i]);
        const float held = v[i] < s->least ? s->least : v[i];
        d[i] = qfw_div_f32(s->rate * m[i], sqrtf(held) * s->unbias + s->eps);
    }
    for (size_t i = 0; s->decay != 0.0f && i < n; i++) {
        d[i] += s->decay * w[i];
    }
}

#endif
