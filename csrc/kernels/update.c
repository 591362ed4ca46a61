/* The int8 update: the definition. */
#include "base/random.h"
#include "kernels/update_loops.h"

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

uint32_t qfw_update_row(int8_t *m, int8_t *v, const int8_t *g, const qfw_rows_move *rows, size_t k)
{
    const size_t n = rows->n;
    const uint64_t first = rows->first + k * n;
    const qfw_move move = loop_move_at(rows->move, k), state = loop_move_at(rows->state, k);
    int32_t wide_m[QFW_TILE], wide_v[QFW_TILE], wide_g[QFW_TILE];
    uint32_t u[QFW_TILE], u_v[QFW_TILE], events = 0;
    for (size_t i = 0; i < n; i += QFW_TILE) {
        const size_t count = n - i < QFW_TILE ? n - i : QFW_TILE;
        widen(m + i, count, wide_m);
        widen(g + i, count, wide_g);
        if (move.rounding == QFW_STOCHASTIC) {
            qfw_uniforms(rows->key, first + i, count, u);
        }
        if (v != NULL) {
            widen(v + i, count, wide_v);
            if (state.rounding == QFW_STOCHASTIC) {
                qfw_uniforms(rows->state_key, first + i, count, u_v);
            }
        }
        events |= qfw_update_s32_scalar(wide_m, v != NULL ? wide_v : NULL, wide_g, count, false,
                                        &move, &state, u, u_v);
        narrow(wide_m, count, m + i);
        if (v != NULL) {
            narrow(wide_v, count, v + i);
        }
    }
    return events;
}

void qfw_update_s8_scalar(int8_t *m, int8_t *v, const int8_t *g, const qfw_rows_move *rows,
                          uint32_t *out)
{
    for (size_t k = 0; k < rows->count; k++) {
        const size_t at = k * rows->n;
        out[k] = qfw_update_row(m + at, v != NULL ? v + at : NULL, g + at, rows, k);
    }
}
