/* Cross-entropy with weights of classes, label smoothing and a label that does not count:
 * docs/numerics.md section 23. Places: error of the logits, logits, labels, loss (one float), weights
 * of the classes (all alike without). param[0]: of the label's own class; param[1]: of every class;
 * param[2]: the label that does not count. */
#include "base/round.h"
#include "base/wide.h"
#include "engine/engine.h"
#include "kernels/softmax.h"

enum { ONE = 1 << 30, ALIKE = 1 << 15, DOWN = 18 };

static const char *fault(const qfw_call *call)
{
    const qfw_operand *error = &call->at[0], *z = &call->at[1], *y = &call->at[2];
    const bool rows = error->plan->rows != QFW_NO_ROWS && z->plan->rows != QFW_NO_ROWS &&
                      y->plan->rows != QFW_NO_ROWS;
    if (!rows || error->n != z->n || y->row != 1 || z->row > QFW_MAX_CLASSES) {
        return "the sizes do not make a loss";
    }
    if (qfw_has(call, 4) && (call->at[4].plan->rows != QFW_NO_ROWS || call->at[4].n != z->row)) {
        return "a weight a class";
    }
    return call->at[3].n == 1 && call->at[3].plan->rows == QFW_NO_ROWS ? NULL : "loss";
}

const char *qfw_rule_weighted_cross_entropy_f32(const qfw_call *call)
{
    for (int i = 0; i < 2; i++) {
        const uint32_t bits = call->op->param[i];
        if (bits != 0 && !qfw_is_scale_f32(qfw_from_bits_f32(bits))) {
            return "shares";
        }
    }
    return fault(call);
}

/* The shares sum to 1 but for their rounding. */
const char *qfw_rule_weighted_cross_entropy_s16(const qfw_call *call)
{
    const char *broken = fault(call);
    if (broken != NULL) {
        return broken;
    }
    const uint64_t classes = (uint64_t)call->at[1].row;
    if (call->op->param[0] + classes * call->op->param[1] > ONE + classes) {
        return "shares";
    }
    const bool one =
        call->at[0].plan->rows == QFW_ROWS_AXIS && call->at[1].plan->rows == QFW_ROWS_AXIS;
    return one && (!qfw_has(call, 4) || call->at[4].scales == 1) ? NULL : "one scale";
}

/* Whether a label counts; QFW_E_LABEL if it is none. */
static qfw_status look_at(const qfw_call *call, ptrdiff_t row, bool *counts)
{
    const int32_t label = ((const int32_t *)call->at[2].t.codes)[row];
    *counts = (uint32_t)label != call->op->param[2];
    return *counts && (label < 0 || label >= call->at[1].row) ? QFW_E_LABEL : QFW_OK;
}

/* ---- integers ---- */

static uint32_t weight_s16(const qfw_call *call, ptrdiff_t c)
{
    return qfw_has(call, 4) ? (uint32_t)((const int16_t *)call->at[4].t.codes)[c] : ALIKE;
}

/* u <= 2^15 and the share is at most 2^30 + 2^16: below 2^46 before the shift. */
static uint32_t part(const qfw_call *call, ptrdiff_t c, int share)
{
    return (uint32_t)(((uint64_t)weight_s16(call, c) * call->op->param[share]) >> DOWN);
}

/* The weights of all labels that count, at most 2^24 * 2^15; the weights are looked at too. */
static qfw_status total_s16(const qfw_call *call, uint64_t *total)
{
    *total = 0;
    for (ptrdiff_t c = 0; qfw_has(call, 4) && c < call->at[4].n; c++) {
        if (((const int16_t *)call->at[4].t.codes)[c] < 0) {
            return QFW_E_RANGE;
        }
    }
    for (ptrdiff_t i = 0; i < call->rows; i++) {
        bool counts;
        QFW_TRY(look_at(call, i, &counts));
        const ptrdiff_t label = ((const int32_t *)call->at[2].t.codes)[i];
        *total += counts ? weight_s16(call, label) : 0;
    }
    return *total != 0 ? QFW_OK : QFW_E_LABEL;
}

/* One row. Targets sum to at most 2^27 + 2^13, so their product with p is below 2^58 and every code
 * fits; a loss of a class is below 2^36, its product with a target below 2^64. */
static void row_s16(const qfw_call *call, ptrdiff_t row, const qfw_log2_scale *s, uint64_t soft,
                    qfw_wide *loss)
{
    const ptrdiff_t classes = call->at[1].row;
    const int16_t *z = (const int16_t *)call->at[1].t.codes + row * classes;
    int32_t *error = (int32_t *)call->at[0].t.codes + row * classes;
    const ptrdiff_t label = ((const int32_t *)call->at[2].t.codes)[row];
    const qfw_softmax_sum sum = qfw_softmax_s16(z, (size_t)classes, s, error);
    const uint32_t hit = part(call, label, 0);
    for (ptrdiff_t c = 0; c < classes; c++) {
        const uint32_t target = part(call, c, 1) + (c == label ? hit : 0);
        const int64_t share = (int64_t)(((soft + hit) * (uint64_t)error[c]) >> 30);
        error[c] = (int32_t)(share - (int64_t)target);
        if (target != 0) {
            qfw_wide_add(loss, target * ((qfw_nll_s16(&sum, z[c], s) * 46516320) >> 26));
        }
    }
}

qfw_status qfw_op_weighted_cross_entropy_s16(const qfw_call *call)
{
    const qfw_operand *error = &call->at[0], *z = &call->at[1];
    const qfw_log2_scale s = qfw_log2_scale_of(qfw_num_f32(z->t.scale[0]));
    uint64_t total, soft = 0;
    qfw_wide loss = {0, 0};
    QFW_TRY(total_s16(call, &total));
    for (ptrdiff_t c = 0; c < z->row; c++) {
        soft += part(call, c, 1);
    }
    for (ptrdiff_t i = 0; i < call->rows; i++) {
        bool counts;
        QFW_TRY(look_at(call, i, &counts));
        if (counts) {
            row_s16(call, i, &s, soft, &loss);
        } else {
            memset((int32_t *)error->t.codes + i * z->row, 0, (size_t)z->row * sizeof(int32_t));
        }
    }
    const float n = (float)total;
    error->t.scale[0] = qfw_scale_quot(0x1p-12f, n);
    error->absmax[0] = QFW_K(call->kernels, absmax_s32)(error->t.codes, (size_t)error->n);
    *(float *)call->at[3].t.codes = qfw_div_f32(qfw_wide_f32(&loss) * 0x1p-38f, n);
    qfw_take_share(call, error);
    return QFW_OK;
}

/* ---- float32 ---- */

static float weight_f32(const qfw_call *call, ptrdiff_t c)
{
    return qfw_has(call, 4) ? ((const float *)call->at[4].t.codes)[c] : 1.0f;
}

static qfw_status total_f32(const qfw_call *call, float *total)
{
    *total = 0.0f;
    for (ptrdiff_t c = 0; qfw_has(call, 4) && c < call->at[4].n; c++) {
        if (qfw_bits_f32(weight_f32(call, c)) > QFW_F32_MAX) { /* negative, infinite or NaN */
            return QFW_E_RANGE;
        }
    }
    for (ptrdiff_t i = 0; i < call->rows; i++) {
        bool counts;
        QFW_TRY(look_at(call, i, &counts));
        const ptrdiff_t label = ((const int32_t *)call->at[2].t.codes)[i];
        *total += counts ? weight_f32(call, label) : 0.0f;
    }
    return *total > 0.0f ? QFW_OK : QFW_E_LABEL;
}

/* One row: its error times 1 / the sum of weights, and its loss. */
static qfw_status row_f32(const qfw_call *call, ptrdiff_t row, float weights, float share,
                          float *loss)
{
    const ptrdiff_t classes = call->at[1].row;
    const float *z = (const float *)call->at[1].t.codes + row * classes;
    float *error = (float *)call->at[0].t.codes + row * classes, top, sum;
    const ptrdiff_t label = ((const int32_t *)call->at[2].t.codes)[row];
    QFW_TRY(qfw_softmax_f32(z, (size_t)classes, error, &top, &sum));
    const float r = qfw_div_f32(1.0f, sum), of_all = qfw_log_f32(sum);
    const float soft = qfw_param_f32(call->op, 1);
    const float hit = qfw_param_f32(call->op, 0) * weight_f32(call, label);
    const float all = hit + soft * weights;
    float smooth = 0.0f;
    for (ptrdiff_t c = 0; c < classes; c++) {
        const float w = weight_f32(call, c);
        const float target = (c == label ? hit : 0.0f) + soft * w;
        error[c] = (all * (error[c] * r) - target) * share;
        if (soft != 0.0f) {
            smooth += w * (of_all + (top - z[c]));
        }
    }
    *loss = hit * (of_all + (top - z[label])) + soft * smooth;
    return QFW_OK;
}

qfw_status qfw_op_weighted_cross_entropy_f32(const qfw_call *call)
{
    const ptrdiff_t classes = call->at[1].row;
    float total, weights = 0.0f, sum = 0.0f;
    QFW_TRY(total_f32(call, &total));
    for (ptrdiff_t c = 0; c < classes; c++) {
        weights += weight_f32(call, c);
    }
    const float share = qfw_div_f32(1.0f, total);
    for (ptrdiff_t i = 0; i < call->rows; i++) {
        bool counts;
        float loss = 0.0f;
        QFW_TRY(look_at(call, i, &counts));
        if (counts) {
            QFW_TRY(row_f32(call, i, weights, share, &loss));
        } else {
            memset((float *)call->at[0].t.codes + i * classes, 0, (size_t)classes * sizeof(float));
        }
        sum += loss;
    }
    *(float *)call->at[3].t.codes = qfw_div_f32(sum, total);
    qfw_take_share(call, &call->at[0]);
    return QFW_OK;
}
