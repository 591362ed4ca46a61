/* Ranges from what earlier steps saw: docs/numerics.md section 26.
 *
 * A gain is two floats of the state: the one in force, 0 while there is none, and the next one, 0
 * while no pass has asked for any.
 * commit: up to eight gains. */
#include "base/scale.h"
#include "engine/engine.h"
#include "engine/rescale.h"
#include "kernels/codes.h"

enum { NOW = 0, NEXT };

bool qfw_is_gain(const qfw_operand *x)
{
    return x->plan->role == QFW_STATE && x->plan->kind == QFW_FLOAT32 && x->n == 2;
}

/* The state is the caller's memory: what is no gain must not become a scale. */
static qfw_status check_gain(const float *g)
{
    const bool next = qfw_bits_f32(g[NEXT]) == 0 || qfw_is_scale_f32(g[NEXT]);
    return qfw_is_scale_f32(g[NOW]) && next ? QFW_OK : QFW_E_SCALE;
}

qfw_status qfw_hindsight_scales(const qfw_operand *dst, float *scale, const qfw_operand *gain,
                                float s_in)
{
    const float *g = gain->t.codes;
    QFW_TRY(check_gain(g));
    int32_t lo, hi;
    qfw_code_range(&dst->t.format, &lo, &hi);
    const qfw_num a = qfw_num_f32(s_in), b = qfw_num_f32(g[NOW]);
    const qfw_num range = {(qfw_mant)((uint64_t)a.mant * b.mant),
                           a.exp + b.exp}; /* exact: 48 bits */
    const qfw_num s = qfw_num_ratio_up(range, 1, (uint32_t)hi, 24);
    const float each = qfw_num_scale_f32(s, qfw_is_pow2(dst->t.format.pow2));
    for (ptrdiff_t i = 0; i < dst->scales; i++) {
        scale[i] = each;
        if (qfw_is_asym(dst->t.format.kind)) {
            dst->t.zero_point[i] = 0;
        }
    }
    return QFW_OK;
}

qfw_num qfw_largest_sum(const qfw_operand *sums)
{
    qfw_num most = {0, 0};
    for (ptrdiff_t i = 0; i < sums->scales; i++) {
        most = qfw_num_max(most, qfw_scale_for(sums->t.scale[i], sums->absmax[i], 1));
    }
    return most;
}

void qfw_hindsight_ask(const qfw_call *call, const qfw_operand *gain, qfw_num most, float s_in)
{
    if (call->infer) {
        return;
    }
    float *g = gain->t.codes;
    const float kept = qfw_scale_mul(g[NOW], 0x1.f8p-1f); /* 63/64 */
    const float asked =
        most.mant == 0 ? 0.0f : qfw_scale_quot(qfw_num_scale_f32(most, false), s_in);
    const float next = asked > kept ? asked : kept;
    g[NEXT] = next > g[NEXT] ? next : g[NEXT];
}

const char *qfw_rule_commit(const qfw_call *call)
{
    for (int i = 0; i < QFW_OP_TENSORS; i++) {
        if (qfw_has(call, i) && !qfw_is_gain(&call->at[i])) {
            return "gain";
        }
    }
    return NULL;
}

qfw_status qfw_op_commit(const qfw_call *call)
{
    for (int i = 0; i < QFW_OP_TENSORS; i++) {
        float *g = call->at[i].t.codes;
        if (qfw_has(call, i) && qfw_bits_f32(g[NEXT]) != 0) {
            QFW_TRY(check_gain(g));
            g[NOW] = g[NEXT];
            g[NEXT] = 0.0f;
        }
    }
    return QFW_OK;
}
