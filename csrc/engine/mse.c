/* The mean of squared differences: docs/numerics.md section 23. Places: error, output, targets, loss
 * (one float). */
#include "base/round.h"
#include "engine/engine.h"
#include "engine/rescale.h"

static const char *fault(const qfw_call *call)
{
    for (int k = 0; k < 3; k++) {
        if (call->at[k].plan->rows == QFW_NO_ROWS || call->at[k].n != call->at[0].n) {
            return "the sizes do not make a loss";
        }
    }
    return call->at[3].n == 1 && call->at[3].plan->rows == QFW_NO_ROWS ? NULL : "loss";
}

const char *qfw_rule_mse_f32(const qfw_call *call)
{
    return fault(call);
}

const char *qfw_rule_mse_s16(const qfw_call *call)
{
    const char *broken = fault(call);
    for (int k = 0; k < 3 && broken == NULL; k++) {
        broken = call->at[k].plan->rows == QFW_ROWS_AXIS ? NULL : "one scale";
    }
    return broken;
}

qfw_status qfw_op_mse_f32(const qfw_call *call)
{
    const float *z = call->at[1].t.codes, *y = call->at[2].t.codes;
    float *error = call->at[0].t.codes, *loss = call->at[3].t.codes;
    const ptrdiff_t n = call->at[0].n;
    const float count = (float)n, share = qfw_div_f32(2.0f, count);
    QFW_TRY(qfw_finite_f32(call->kernels, z, (size_t)n));
    QFW_TRY(qfw_finite_f32(call->kernels, y, (size_t)n));
    float sum = 0.0f;
    for (ptrdiff_t i = 0; i < n; i++) {
        const float d = z[i] - y[i];
        error[i] = d * share;
        sum += d * d;
    }
    *loss = qfw_div_f32(sum, count);
    qfw_take_share(call, &call->at[0]);
    return QFW_OK;
}

/* The larger scale, without that of a tensor of zeros; 1 if both are such. */
static float common_scale(const qfw_operand *z, const qfw_operand *y)
{
    const float a = qfw_has_no_range(z, 0) ? 0.0f : z->t.scale[0];
    const float b = qfw_has_no_range(y, 0) ? 0.0f : y->t.scale[0];
    const float s = a > b ? a : b;
    return s > 0.0f ? s : 1.0f;
}

qfw_status qfw_op_mse_s16(const qfw_call *call)
{
    const qfw_operand *error = &call->at[0], *z = &call->at[1], *y = &call->at[2];
    const float s = common_scale(z, y), count = (float)error->n;
    const qfw_ratio of_z = qfw_ratio_of(z->t.scale[0], s, 16);
    const qfw_ratio of_y = qfw_ratio_of(y->t.scale[0], s, 16);
    qfw_wide sum = {0, 0};
    const uint32_t most = QFW_K(call->kernels, differences_s16)(
        z->t.codes, y->t.codes, (size_t)error->n, &of_z, &of_y, error->t.codes, &sum);
    const float unit = qfw_scale_lift(s, -QFW_JOINED_BITS);
    error->t.scale[0] = qfw_scale_quot(qfw_scale_lift(s, 1 - QFW_JOINED_BITS), count);
    error->absmax[0] = most;
    *(float *)call->at[3].t.codes = qfw_div_f32(qfw_wide_f32(&sum), count) * unit * unit;
    qfw_take_share(call, &call->at[0]);
    return QFW_OK;
}
