/* Codes that move by the products of one number: the inside of an outer product's step. */
#include "kernels/update_loops.h"

/* Sym(8), stochastic: terms have 20 more bits. */
enum { FRAC = 20, MOST = 127 };

/* Where a product is 0 nothing moves. */
static inline void move_one(int8_t *m, int32_t x, int32_t c, uint32_t right, uint32_t u,
                            uint32_t *out)
{
    const int32_t by = (((c * x) >> right) + (int32_t)(u >> (32 - FRAC))) >> FRAC;
    if (by != 0) {
        int32_t v = *m - by;
        if (v > MOST || v < -MOST) {
            *out |= v != -MOST - 1 ? 1u : 0u;
            v = v > 0 ? MOST : -MOST;
        }
        *(uint8_t *)m = (uint8_t)((uint32_t)v & 0xFFu);
    }
}

uint32_t qfw_move_products(int8_t *m, const int8_t *x, size_t n, int32_t c, uint32_t right,
                           uint32_t u, uint32_t step)
{
    const int8_t *last = x + (n & ~(size_t)3), *end = x + n;
    uint32_t out = 0;
    while (x < last) {
        const uint8_t *b = (const uint8_t *)x;
        const uint32_t four =
            b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        if (four == 0) {
            u = qfw_add32(u, qfw_mul32(4, step));
        } else {
            move_one(m, x[0], c, right, u, &out);
            u = qfw_add32(u, step);
            move_one(m + 1, x[1], c, right, u, &out);
            u = qfw_add32(u, step);
            move_one(m + 2, x[2], c, right, u, &out);
            u = qfw_add32(u, step);
            move_one(m + 3, x[3], c, right, u, &out);
            u = qfw_add32(u, step);
        }
        x += 4;
        m += 4;
    }
    for (; x < end; x++, m++, u = qfw_add32(u, step)) {
        move_one(m, *x, c, right, u, &out);
    }
    return out;
}

/* ---- with a state ---- */

/* Whether terms of codes of `bits` bits, without a sign, are below 2^28 and so need no clamp. */
static bool is_small(const qfw_coef *k, int32_t bits)
{
    return bits + 16 + k->left - k->right <= 28 && bits + 16 + k->left <= 31;
}

/* A coefficient of terms that need no clamp: (x * c) >> right. */
typedef struct {
    int32_t c;
    uint32_t right;
} factor;

static factor factor_of(const qfw_coef *k, int32_t times)
{
    const factor f = {k->mu * times * (1 << k->left), k->right < 31 ? k->right : 31u};
    return f;
}

static inline void hold(int8_t *at, int32_t v, uint32_t event, uint32_t *out)
{
    if (v > MOST || v < -MOST) {
        *out |= v != -MOST - 1 ? event : 0u;
        v = v > 0 ? MOST : -MOST;
    }
    *(uint8_t *)at = (uint8_t)((uint32_t)v & 0xFFu);
}

/* Of the parameter by g and v, of the state by g and v. */
typedef struct {
    factor g, v, state_g, state_v;
} factors;

static uint32_t move_small(int8_t *m, int8_t *v, const int8_t *x, size_t n, const factors *f,
                           qfw_words u, qfw_words u_v)
{
    const factor g = f->g, w = f->v, g_v = f->state_g, v_v = f->state_v;
    uint32_t out = 0;
    for (const int8_t *end = x + n; x < end; x++, m++, v++) {
        const int32_t y = ((*x * g.c) >> g.right) + ((*v * w.c) >> w.right);
        const int32_t y_v = ((*x * g_v.c) >> g_v.right) + ((*v * v_v.c) >> v_v.right);
        hold(v, loop_round(y_v, FRAC, QFW_STOCHASTIC, u_v.u), 2, &out);
        hold(m, *m - loop_round(y, FRAC, QFW_STOCHASTIC, u.u), 1, &out);
        u.u = qfw_add32(u.u, u.step);
        u_v.u = qfw_add32(u_v.u, u_v.step);
    }
    return out;
}

uint32_t qfw_move_states(int8_t *m, int8_t *v, const int8_t *x, size_t n, int32_t code,
                         const qfw_move *move, const qfw_move *state, qfw_words u, qfw_words u_v)
{
    if (is_small(&move->g, 14) && is_small(&state->g, 14) && is_small(&move->v, 7) &&
        is_small(&state->v, 7)) {
        const factors f = {factor_of(&move->g, code), factor_of(&move->v, 1),
                           factor_of(&state->g, code), factor_of(&state->v, 1)};
        return move_small(m, v, x, n, &f, u, u_v);
    }
    uint32_t out = 0;
    for (const int8_t *end = x + n; x < end; x++, m++, v++) {
        const int32_t g = code * *x;
        const int32_t y = loop_wide_term(g, &move->g) + loop_term(*v, &move->v);
        const int32_t y_v = loop_wide_term(g, &state->g) + loop_term(*v, &state->v);
        hold(v, loop_round(y_v, FRAC, QFW_STOCHASTIC, u_v.u), 2, &out);
        hold(m, *m - loop_round(y, FRAC, QFW_STOCHASTIC, u.u), 1, &out);
        u.u = qfw_add32(u.u, u.step);
        u_v.u = qfw_add32(u_v.u, u_v.step);
    }
    return out;
}
