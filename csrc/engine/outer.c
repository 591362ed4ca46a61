/* Gradients of one row: an outer product, whose absmax is known without looking at it. */
#include "base/layout.h"
#include "engine/count.h"
#include "kernels/codes.h"

bool qfw_takes_outer(const qfw_operand *x, const qfw_operand *grad, ptrdiff_t row)
{
    const qfw_layout *l = &grad->t.layout;
    const bool bytes = grad->plan->kind == QFW_SYM && qfw_slot(&grad->t.format) == 8;
    return bytes && grad->plan->range == QFW_DYNAMIC && qfw_slot(&x->t.format) == 8 &&
           (l->shared == 0 || l->outer == 1) && grad->scales * row == grad->n &&
           qfw_run_length(l) == row;
}

static uint32_t absmax(const int8_t *x, size_t n)
{
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t size = x[i] < 0 ? -x[i] : x[i];
        most = size > most ? size : most;
    }
    return (uint32_t)most;
}

void qfw_encode_outer(const qfw_call *call, const qfw_operand *e, const qfw_operand *x, float sigma,
                      const qfw_operand *grad)
{
    const size_t n = (size_t)x->n;
    const bool pow2 = qfw_is_pow2(grad->t.format.pow2);
    qfw_outer outer = {x->t.codes,
                       n,
                       absmax(x->t.codes, n),
                       sigma,
                       grad->t.format.bits,
                       {(qfw_rounding)grad->plan->rounding, 0, 0, 0},
                       qfw_key_of(call, grad)};
    uint64_t saturated = 0;
    int32_t e_o[QFW_TILE];
    uint32_t most[QFW_TILE];
    qfw_code_range(&grad->t.format, &outer.rule.qmin, &outer.rule.qmax);
    for (ptrdiff_t o = 0; o < grad->scales; o += QFW_TILE) {
        const ptrdiff_t left = grad->scales - o, rows = left < QFW_TILE ? left : QFW_TILE;
        const uint64_t first = (uint64_t)o * n;
        qfw_load_codes(&e->t, o, (size_t)rows, 0, e_o);
        for (ptrdiff_t k = 0; k < rows; k++) {
            most[k] = qfw_abs32(e_o[k]) * outer.most;
        }
        QFW_K(call->kernels, scales_s32)(sigma, most, (size_t)rows, (uint32_t)outer.rule.qmax, pow2,
                                         grad->t.scale + o);
        saturated += QFW_K(call->kernels, outer_s8)(&outer, e_o, grad->t.scale + o, (size_t)rows,
                                                    first, (int8_t *)grad->t.codes + first);
    }
    qfw_count_encoded(grad, saturated);
}
