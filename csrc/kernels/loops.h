/* Loops that a compiler turns into vectors by itself. loops.c is the definition; loops_<isa>.c are
 * the same lines for a larger instruction set. */
#ifndef QFW_KERNELS_LOOPS_H
#define QFW_KERNELS_LOOPS_H

#include <math.h>

#include "base/fixed.h"
#include "base/random.h"
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
            if (QFW_HAS_HALF_EVEN && mode == QFW_HALF_EVEN) {
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
    if (QFW_DIRECT) { /* one loop for all of them */
        return loop_rescale_columns(a, u, n, r, rule, rule->rounding, codes);
    }
    switch (rule->rounding) {
    case QFW_STOCHASTIC:
        return loop_rescale_columns(a, u, n, r, rule, QFW_STOCHASTIC, codes);
    case QFW_HALF_EVEN:
        return loop_rescale_columns(a, u, n, r, rule, QFW_HALF_EVEN, codes);
    default:
        return loop_rescale_columns(a, u, n, r, rule, QFW_HALF_AWAY, codes);
    }
}

static inline void loop_load(const void *from, int32_t width, size_t first, size_t n, int32_t *m)
{
    for (size_t i = 0; width == 8 && i < n; i++) {
        m[i] = ((const int8_t *)from)[first + i];
    }
    for (size_t i = 0; width == 16 && i < n; i++) {
        m[i] = ((const int16_t *)from)[first + i];
    }
    if (width == 32) {
        memcpy(m, (const int32_t *)from + first, n * sizeof *m);
    }
}

static inline void loop_store(void *to, int32_t width, size_t first, size_t n, const int32_t *m)
{
    for (size_t i = 0; width == 8 && i < n; i++) {
        ((uint8_t *)to)[first + i] = (uint8_t)((uint32_t)m[i] & 0xFFu);
    }
    for (size_t i = 0; width == 16 && i < n; i++) {
        ((uint16_t *)to)[first + i] = (uint16_t)((uint32_t)m[i] & 0xFFFFu);
    }
    if (width == 32) {
        memcpy((int32_t *)to + first, m, n * sizeof *m);
    }
}

static inline uint32_t loop_rescale_rows(const qfw_rescaling *c, const qfw_code_rule *rule)
{
    uint32_t saturated = 0, u[QFW_TILE];
    int32_t m[QFW_TILE];
    for (size_t row = 0; row < c->rows; row++) {
        for (size_t j = 0; j < c->columns; j += QFW_TILE) {
            const size_t n = c->columns - j < QFW_TILE ? c->columns - j : QFW_TILE;
            const size_t at = row * c->columns + j;
            const qfw_ratios *r = &c->ratios;
            const qfw_ratios here = {r->mult + j, r->limit + j, r->up + j, r->down + j};
            if (rule->rounding == QFW_STOCHASTIC) {
                qfw_uniforms(c->key, c->first + at, n, u);
            }
            loop_load(c->from, c->from_width, at, n, m);
            saturated += loop_rescale(m, u, n, &here, rule, m);
            loop_store(c->to, c->to_width, at, n, m);
        }
    }
    return saturated;
}

/* qfw_ratio_of of base/scale.h, by a product with recip: with m = mant << d < 2^25 that is short of
 * the quotient by less than m / 2^24 + 1 < 3, and the remainder tells by how much. */
static inline void loop_ratios(const float *restrict from, size_t n, const qfw_divisor *to,
                               int32_t bits, uint32_t *restrict mult, uint32_t *restrict limit,
                               uint32_t *restrict up, uint32_t *restrict down)
{
    const uint32_t recip = to->recip, over = to->mant;
    const int32_t exp = to->exp;
    for (size_t i = 0; i < n; i++) {
        const uint32_t word = qfw_bits_f32(from[i]), mant = (word & 0x7FFFFFu) | 0x800000u;
        const uint32_t d = mant < over ? 1 : 0, m = mant << d;
        const uint32_t least = (uint32_t)(((uint64_t)m * recip) >> 24);
        const uint32_t rest = qfw_sub32((m & 3u) << 30, qfw_mul32(least, over)); /* < 3 over */
        const uint32_t q = least + (rest >= over ? 1u : 0u) + (rest >= 2 * over ? 1u : 0u);
        const int32_t k = 30 - ((int32_t)(word >> 23) - 150 - exp) + (int32_t)d;
        const int32_t e = 61 - k - bits, t = k - 32, beyond = t > 30 ? t - 30 : 0;
        const uint32_t small = q >> (beyond < 31 ? beyond : 31);
        up[i] = (uint32_t)(e > 30 ? 30 : e < 0 ? 0 : e);
        down[i] = (uint32_t)(e >= 0 ? 29 - bits : t < 30 ? t : 30);
        mult[i] = e > 30 ? (uint32_t)INT32_MAX : e >= 0 ? q : small; /* any a but 0 saturates */
        limit[i] = (uint32_t)INT32_MAX >> (e > 30 ? 30 : e < 0 ? 0 : e);
    }
}

/* ---- accumulators to floats ---- */

enum { LOOP_FLOATS = 256 };

/* qfw_product_f32; where all numbers have at most 24 bits, in the way of those. */
static inline void loop_floats(const int32_t *restrict a, size_t n, float s, float *restrict y)
{
    for (size_t i = 0; i < n; i += LOOP_FLOATS) {
        const size_t count = n - i < LOOP_FLOATS ? n - i : LOOP_FLOATS;
        int32_t wide = QFW_SOFT_FLOAT ? -1 : 0;
        for (size_t k = 0; k < count && !QFW_SOFT_FLOAT; k++) {
            wide |= a[i + k] ^ (a[i + k] >> 31);
        }
        for (size_t k = 0; k < count && wide >> 24 == 0; k++) {
            y[i + k] = (float)a[i + k] * s;
        }
        for (size_t k = 0; k < count && wide >> 24 != 0; k++) {
            y[i + k] = qfw_product_f32(a[i + k], s);
        }
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
        for (size_t j = 0; QFW_HAS_F32_MASK && j < n; j++) {
            acc[j] = ((const float *)mask)[first + j] > 0.0f ? acc[j] : 0;
        }
        break;
    }
}

/* |sum >> shift| + |seed| < 2^31 by the proof of headroom. */
static inline void loop_finish_rows(int32_t *acc, size_t rows, size_t n, const qfw_finish *f)
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

/* Rows of few columns, several of them as one: vectors are full, and loops are long. */
static inline void loop_finish(int32_t *acc, size_t rows, size_t n, const qfw_finish *f,
                               qfw_finish_s32_fn *finish_rows)
{
    enum { WIDE = QFW_TILE };
    const size_t times = n < WIDE ? WIDE / n : 1, wide = times * n;
    if (QFW_DIRECT || times < 2 || rows < 2 * times) {
        finish_rows(acc, rows, n, f);
        return;
    }
    int32_t seed[WIDE];
    uint8_t shift[WIDE];
    uint32_t absmax[WIDE] = {0};
    for (size_t j = 0; f->seed != NULL && j < wide; j++) {
        seed[j] = f->seed[j % n];
        shift[j] = f->shift[j % n];
    }
    qfw_finish several = *f;
    several.seed = f->seed != NULL ? seed : NULL;
    several.shift = shift;
    several.absmax = f->columns ? absmax : f->absmax;
    finish_rows(acc, rows / times, wide, &several);
    for (size_t j = 0; f->columns && j < wide; j++) {
        f->absmax[j % n] = absmax[j] > f->absmax[j % n] ? absmax[j] : f->absmax[j % n];
    }
    const size_t done = rows / times * times,
                 bytes = f->mask_kind == 0 ? 4 : (size_t)f->mask_kind / 8;
    several = *f;
    several.mask = f->mask != NULL ? (const uint8_t *)f->mask + done * n * bytes : NULL;
    finish_rows(acc + done * n, rows - done, n, &several);
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

/* ---- channels side by side: the widths are constants at each call ---- */

static inline int32_t loop_at(const void *x, int32_t width, size_t i)
{
    return width == 8 ? ((const int8_t *)x)[i] : ((const int16_t *)x)[i];
}

static inline void loop_lines_of(const qfw_lines *l, int32_t width, const int32_t *restrict w,
                                 int32_t *restrict out)
{
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            out[i * l->y_row + j] += loop_at(l->x, width, i * l->x_row + j) * w[j];
        }
    }
}

static inline void loop_lines_s32(const qfw_lines *l, const int32_t *w, int32_t *out)
{
    if (l->x_width == 8) {
        loop_lines_of(l, 8, w, out);
    } else {
        loop_lines_of(l, 16, w, out);
    }
}

static inline void loop_lines_f32(const qfw_lines *l, const float *restrict w, float *restrict out)
{
    const float *x = l->x;
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            out[i * l->y_row + j] += x[i * l->x_row + j] * w[j];
        }
    }
}

static inline void loop_dots_of(const qfw_lines *l, int32_t x_width, int32_t y_width, const void *y,
                                int32_t *restrict sum)
{
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            sum[j] +=
                loop_at(l->x, x_width, i * l->x_row + j) * loop_at(y, y_width, i * l->y_row + j);
        }
    }
}

static inline void loop_dots_s32(const qfw_lines *l, const void *y, int32_t *sum)
{
    if (l->x_width == 8 && l->y_width == 8) {
        loop_dots_of(l, 8, 8, y, sum);
    } else if (l->x_width == 8) {
        loop_dots_of(l, 8, 16, y, sum);
    } else if (l->y_width == 8) {
        loop_dots_of(l, 16, 8, y, sum);
    } else {
        loop_dots_of(l, 16, 16, y, sum);
    }
}

static inline void loop_dots_f32(const qfw_lines *l, const float *restrict y, float *restrict sum)
{
    const float *x = l->x;
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            sum[j] += x[i * l->x_row + j] * y[i * l->y_row + j];
        }
    }
}

static inline void loop_sums_of(const qfw_lines *l, int32_t width, int32_t *restrict sum)
{
    for (size_t i = 0; i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            sum[j] += loop_at(l->x, width, i * l->x_row + j);
        }
    }
}

/* Where lines follow each other and are short, several of them are one. */
static inline void loop_sums_s32(const qfw_lines *l, int32_t *sum)
{
    enum { WIDE = QFW_TILE };
    const bool narrow = !QFW_DIRECT && l->n < WIDE && l->x_row == l->n;
    const size_t times = narrow && l->count >= WIDE / l->n ? WIDE / l->n : 1;
    int32_t several[WIDE] = {0};
    qfw_lines part = *l;
    if (times > 1) {
        part.n = part.x_row = times * l->n;
        part.count = l->count / times;
    }
    if (l->x_width == 8) {
        loop_sums_of(&part, 8, times > 1 ? several : sum);
    } else {
        loop_sums_of(&part, 16, times > 1 ? several : sum);
    }
    for (size_t j = 0; times > 1 && j < part.n; j++) {
        sum[j % l->n] += several[j];
    }
    for (size_t i = part.count * times; times > 1 && i < l->count; i++) {
        for (size_t j = 0; j < l->n; j++) {
            sum[j] += loop_at(l->x, l->x_width, i * l->n + j);
        }
    }
}

#endif
