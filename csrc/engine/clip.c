/* The norm of all gradients, and the factor that holds it: docs/numerics.md section 25.
 *
 * square_sum: the sum, gradient, the sum so far
 * clip_factor: the factor, the sum; param[0], float32: the largest norm */
#include <math.h>

#include "base/layout.h"
#include "base/round.h"
#include "engine/rescale.h"

enum { PARTS = 8 };

static bool is_number(const qfw_operand *x)
{
    return x->n == 1 && x->plan->rows == QFW_NO_ROWS;
}

const char *qfw_rule_square_sum(const qfw_call *call)
{
    const bool one = is_number(&call->at[0]) && (!qfw_has(call, 2) || is_number(&call->at[2]));
    return one && call->at[1].plan->rows == QFW_NO_ROWS ? NULL : "the sizes differ";
}

/* m^2 <= 2^32 and at most 2^30 elements: the sum is exact. */
static uint64_t squares_of(const qfw_tensor *g, ptrdiff_t scale)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&g->layout);
    uint64_t sum = 0;
    int32_t m[QFW_TILE];
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&g->layout, scale, r);
        for (ptrdiff_t i = 0; i < run.n; i += QFW_TILE) {
            const size_t n = run.n - i < QFW_TILE ? (size_t)(run.n - i) : QFW_TILE;
            qfw_load_held(g, run.first + i, n, scale, m);
            for (size_t k = 0; k < n; k++) {
                sum += (uint64_t)qfw_abs32(m[k]) * qfw_abs32(m[k]);
            }
        }
    }
    return sum;
}

qfw_status qfw_op_square_sum(const qfw_call *call)
{
    const qfw_operand *g = &call->at[1];
    float p[PARTS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (g->plan->kind == QFW_FLOAT32) {
        const float *x = g->t.codes;
        for (ptrdiff_t i = 0; i < g->n; i++) {
            p[i % PARTS] += x[i] * x[i];
        }
    }
    for (ptrdiff_t i = 0; i < g->scales; i++) {
        const float s = g->t.scale[i];
        p[i % PARTS] += ((float)squares_of(&g->t, i) * s) * s;
    }
    const float sum = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
    *(float *)call->at[0].t.codes =
        qfw_has(call, 2) ? *(const float *)call->at[2].t.codes + sum : sum;
    return QFW_OK;
}

const char *qfw_rule_clip_factor(const qfw_call *call)
{
    if (!is_number(&call->at[0]) || !is_number(&call->at[1])) {
        return "the sizes differ";
    }
    return qfw_are_factors(call->op, 1u) && call->op->param[0] != 0 ? NULL : "coefficients";
}

qfw_status qfw_op_clip_factor(const qfw_call *call)
{
    const float sum = *(const float *)call->at[1].t.codes;
    if (!(sum >= 0.0f && sum <= FLT_MAX)) {
        return QFW_E_NORM;
    }
    const float k = qfw_div_f32(qfw_param_f32(call->op, 0), sqrtf(sum) + 1e-6f);
    *(float *)call->at[0].t.codes = k < 1.0f ? k : 1.0f;
    return QFW_OK;
}
