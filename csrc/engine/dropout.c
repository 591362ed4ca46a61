/* Dropout: docs/numerics.md section 21. Places: result, source. param[0]: elements whose draw is below
 * it are dropped; param[1]: the factor of the others, a float; param[2]: the generator's tensor
 * number. flags: 1 all are dropped. */
#include "base/layout.h"
#include "base/random.h"
#include "engine/engine.h"
#include "kernels/codes.h"

enum { ALL = 1 };

const char *qfw_rule_dropout(const qfw_call *call)
{
    const qfw_plan_tensor *dst = call->at[0].plan, *src = call->at[1].plan;
    if (src->rows == QFW_NO_ROWS) {
        return "rows";
    }
    const bool floats = dst->kind == QFW_FLOAT32;
    const bool alike = call->at[0].n == call->at[1].n && dst->kind == src->kind &&
                       dst->bits == src->bits && dst->container == src->container &&
                       dst->rows == src->rows && (floats || qfw_same_sharing(dst, src));
    if (!alike || (dst->pow2 | dst->range) != 0) {
        return "the formats differ";
    }
    return qfw_is_scale_f32(qfw_param_f32(call->op, 1)) ? NULL : "factor";
}

static void drop_floats(const qfw_call *call, const qfw_key *key)
{
    const float *x = call->at[1].t.codes, factor = qfw_param_f32(call->op, 1);
    float *y = call->at[0].t.codes;
    const bool all = (call->op->flags & ALL) != 0;
    for (ptrdiff_t i = 0; i < call->at[0].n; i++) {
        const bool dropped = all || qfw_draw(key, (uint32_t)i) < call->op->param[0];
        y[i] = dropped ? 0.0f : x[i] * factor;
    }
}

/* The factor goes into the scales; codes stay or become 0. */
static void drop_codes(const qfw_call *call, const qfw_key *key)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const float factor = qfw_param_f32(call->op, 1);
    const bool all = (call->op->flags & ALL) != 0, asym = qfw_is_asym(dst->plan->kind);
    for (ptrdiff_t i = 0; i < dst->scales; i++) {
        dst->t.scale[i] = qfw_scale_mul(src->t.scale[i], factor);
        if (asym) {
            dst->t.zero_point[i] = src->t.zero_point[i];
        }
    }
    if (dst->plan->container == 0 && dst->t.codes != src->t.codes) { /* after the last code */
        ((uint8_t *)dst->t.codes)[qfw_codes_bytes(dst) - 1] = 0;
    }
    int32_t m[QFW_TILE];
    for (ptrdiff_t i = 0; i < dst->n;) {
        const qfw_run run = qfw_run_at(&src->t.layout, i);
        const size_t n = run.n < QFW_TILE ? (size_t)run.n : QFW_TILE;
        const int32_t zp = asym ? dst->t.zero_point[run.scale] : 0;
        qfw_load_codes(&src->t, i, n, run.scale, m);
        for (size_t k = 0; k < n; k++, i++) {
            const bool dropped = all || qfw_draw(key, (uint32_t)i) < call->op->param[0];
            m[k] = dropped ? zp : m[k] + zp;
        }
        qfw_store_codes(&dst->t, i - (ptrdiff_t)n, n, m);
    }
    qfw_find_absmax(call->kernels, dst);
}

qfw_status qfw_op_dropout(const qfw_call *call)
{
    qfw_key key;
    qfw_make_key(call->seed, call->progress.step, call->op->param[2], &key);
    if (call->at[0].plan->kind == QFW_FLOAT32) {
        drop_floats(call, &key);
    } else {
        drop_codes(call, &key);
    }
    return QFW_OK;
}
