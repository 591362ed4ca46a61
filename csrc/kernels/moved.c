/* Codes that move by the products of one number: the inside of an outer product's step. */
#include "kernels/moved.h"

#if !defined(__ARM_FEATURE_DSP)

uint32_t qfw_move_products(int8_t *m, const int8_t *x, size_t n, int32_t c, uint32_t right,
                           uint32_t u, uint32_t step)
{
    const int8_t *last = x + (n & ~(size_t)3), *end = x + n;
    uint32_t out = 0;
    for (; x < last; x += 4, m += 4) {
        if ((x[0] | x[1] | x[2] | x[3]) != 0) {
            out |= moved_one_by_one(m, x, x + 4, c, right, u, step);
        }
        u = qfw_add32(u, qfw_mul32(4, step));
    }
    return out | moved_one_by_one(m, x, end, c, right, u, step);
}

#endif

/* ---- with a state ---- */

/* Whether terms of codes up to 2^bits are below 2^28 and so need no clamp: mu < 2^16. */
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

/* to[i] less a step of x[i] and v[i], or `anew`, as the state does, that step. `both`: x has a part in
 * it. Each is a constant at each call. */
static inline uint32_t move_small(int8_t *to, const int8_t *x, const int8_t *v, size_t n, factor g,
                                  factor w, qfw_words u, const bool both, const bool anew)
{
    const uint32_t event = anew ? 2 : 1;
    uint32_t out = 0;
    for (const int8_t *end = v + n; v < end; v++, to++, u.u = qfw_add32(u.u, u.step)) {
        const int32_t of_x = both ? (*x++ * g.c) >> g.right : 0;
        const int32_t y = of_x + ((*v * w.c) >> w.right);
        const int32_t by = loop_round(y, MOVED_FRAC, QFW_STOCHASTIC, u.u);
        if (anew || by != 0) {
            moved_hold(to, anew ? by : *to - by, event, &out);
        }
    }
    return out;
}

/* The parameter's step is by the state as it was. */
static uint32_t move_both(int8_t *m, int8_t *v, const int8_t *x, size_t n, int32_t code,
                          const qfw_move *move, const qfw_move *state, qfw_words u, qfw_words u_v)
{
    const factor g = factor_of(&move->g, code), w = factor_of(&move->v, 1);
    const factor g_v = factor_of(&state->g, code), v_v = factor_of(&state->v, 1);
    if (code == 0) {
        const uint32_t out = move_small(m, x, v, n, g, w, u, false, false);
        return out | move_small(v, x, v, n, g_v, v_v, u_v, false, true);
    }
    const uint32_t out = move_small(m, x, v, n, g, w, u, true, false);
    return out | move_small(v, x, v, n, g_v, v_v, u_v, true, true);
}

uint32_t qfw_move_states(int8_t *m, int8_t *v, const int8_t *x, size_t n, int32_t code,
                         const qfw_move *move, const qfw_move *state, qfw_words u, qfw_words u_v)
{
    const uint32_t size = qfw_abs32(code);
    const int32_t bits = 7 + (size > 1 ? qfw_msb64(2 * size - 1) : 0); /* |code x| <= 2^bits */
    if (is_small(&move->g, bits) && is_small(&state->g, bits) && is_small(&move->v, 7) &&
        is_small(&state->v, 7)) {
        return move_both(m, v, x, n, code, move, state, u, u_v);
    }
    uint32_t out = 0;
    for (const int8_t *end = x + n; x < end; x++, m++, v++) {
        const int32_t g = code * *x;
        const int32_t y = loop_wide_term(g, &move->g) + loop_term(*v, &move->v);
        const int32_t y_v = loop_wide_term(g, &state->g) + loop_term(*v, &state->v);
        moved_hold(v, loop_round(y_v, MOVED_FRAC, QFW_STOCHASTIC, u_v.u), 2, &out);
        moved_hold(m, *m - loop_round(y, MOVED_FRAC, QFW_STOCHASTIC, u.u), 1, &out);
        u.u = qfw_add32(u.u, u.step);
        u_v.u = qfw_add32(u_v.u, u_v.step);
    }
    return out;
}
