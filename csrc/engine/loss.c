/* Losses. Places: error of the logits, logits, labels, loss (one float). */
#include "base/round.h"
#include "engine/engine.h"
#include "kernels/softmax.h"

static const char *fault(const qfw_call *call)
{
    const qfw_operand *error = &call->at[0], *z = &call->at[1], *y = &call->at[2];
    const bool rows = error->plan->rows != QFW_NO_ROWS && z->plan->rows != QFW_NO_ROWS &&
                      y->plan->rows != QFW_NO_ROWS;
    if (!rows || error->n != z->n || y->row != 1 || z->row > 1 << 16) {
        return "the sizes do not make a loss";
    }
    return call->at[3].n == 1 && call->at[3].plan->rows == QFW_NO_ROWS ? NULL : "loss";
}

const char *qfw_rule_cross_entropy_f32(const qfw_call *call)
{
    return fault(call);
}

const char *qfw_rule_cross_entropy_s16(const qfw_call *call)
{
    const char *broken = fault(call);
    const bool one =
        call->at[0].plan->rows == QFW_ROWS_AXIS && call->at[1].plan->rows == QFW_ROWS_AXIS;
    return broken != NULL ? broken : one ? NULL : "one scale";
}

void qfw_take_share(const qfw_call *call, const qfw_operand *error)
{
    if (!(QFW_HAS_MICRO || QFW_HAS_BATCH) || call->rows == call->step_rows) {
        return;
    }
    const float share = qfw_div_f32((float)call->rows, (float)call->step_rows);
    for (ptrdiff_t i = 0; i < error->scales; i++) {
        error->t.scale[i] = qfw_scale_mul(error->t.scale[i], share);
    }
    for (ptrdiff_t i = 0; error->scales == 0 && i < error->n; i++) {
        ((float *)error->t.codes)[i] *= share;
    }
}

qfw_status qfw_op_cross_entropy_f32(const qfw_call *call)
{
    QFW_TRY(qfw_cross_entropy_f32(call->at[1].t.codes, call->at[2].t.codes, (size_t)call->rows,
                                  (size_t)call->at[1].row, call->at[0].t.codes,
                                  call->at[3].t.codes));
    qfw_take_share(call, &call->at[0]);
    return QFW_OK;
}

QFW_SMALL qfw_status qfw_op_cross_entropy_s16(const qfw_call *call)
{
    const qfw_operand *error = &call->at[0], *z = &call->at[1];
    QFW_TRY(qfw_cross_entropy_rows(z->t.codes, z->t.scale[0], call->at[2].t.codes,
                                   (size_t)qfw_rows_in(call), (size_t)z->row, error->t.codes,
                                   error->t.scale, error->absmax, call->at[3].t.codes));
    qfw_take_share(call, error);
    return QFW_OK;
}
