/* Codes in int8: the definitions. */
#include "base/random.h"
#include "base/round.h"
#include "kernels/kernels.h"

uint32_t qfw_absmax_s32_scalar(const int32_t *a, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = qfw_abs32(a[i]);
        most = size > most ? size : most;
    }
    return most;
}

uint32_t qfw_rescale_s8_scalar(const int32_t *a, size_t n, const qfw_ratio *ratio,
                               const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                               int8_t *codes)
{
    uint32_t u[QFW_TILE], saturated = 0;
    int32_t m[QFW_TILE];
    for (size_t i = 0; i < n; i += QFW_TILE) {
        const size_t count = n - i < QFW_TILE ? n - i : QFW_TILE;
        if (rule->rounding == QFW_STOCHASTIC) {
            qfw_uniforms(key, first + i, count, u);
        }
        saturated += qfw_rescale_s32_scalar(a + i, u, count, ratio, rule, m);
        for (size_t k = 0; k < count; k++) {
            codes[i + k] = (int8_t)m[k];
        }
    }
    return saturated;
}

static void widen(const int8_t *x, size_t n, int32_t *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i];
    }
}

static void narrow(const int32_t *x, size_t n, int8_t *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (int8_t)x[i];
    }
}

uint32_t qfw_update_s8_scalar(int8_t *m, int8_t *v, const int8_t *g, size_t n, const qfw_move *move,
                              const qfw_move *state, const qfw_key *key, const qfw_key *state_key,
                              uint64_t first)
{
    int32_t wide_m[QFW_TILE], wide_v[QFW_TILE], wide_g[QFW_TILE];
    uint32_t u[QFW_TILE], u_v[QFW_TILE], events = 0;
    for (size_t i = 0; i < n; i += QFW_TILE) {
        const size_t count = n - i < QFW_TILE ? n - i : QFW_TILE;
        widen(m + i, count, wide_m);
        widen(g + i, count, wide_g);
        if (move->rounding == QFW_STOCHASTIC) {
            qfw_uniforms(key, first + i, count, u);
        }
        if (v != NULL) {
            widen(v + i, count, wide_v);
            if (state->rounding == QFW_STOCHASTIC) {
                qfw_uniforms(state_key, first + i, count, u_v);
            }
        }
        events |= qfw_update_s32_scalar(wide_m, v != NULL ? wide_v : NULL, wide_g, count, false,
                                        move, state, u, u_v);
        narrow(wide_m, count, m + i);
        if (v != NULL) {
            narrow(wide_v, count, v + i);
        }
    }
    return events;
}
