/* Softmax as a layer: docs/numerics.md section 22. Places: probabilities, logits; backward: error of
 * the logits, error, probabilities. param[0]: elements that sum to 1, 0 standing for a row. */
#include "kernels/softmax.h"
#include "base/round.h"
#include "engine/engine.h"
#include "kernels/codes.h"

enum { EXTRA = 13 }; /* bits of the mean error below those of the error */

static ptrdiff_t columns_of(const qfw_call *call)
{
    return call->op->param[0] != 0 ? qfw_param_size(call->op, 0) : call->at[0].row;
}

static const char *fault(const qfw_call *call, int places, bool one_scale)
{
    const ptrdiff_t columns = columns_of(call);
    for (int k = 0; k < places; k++) {
        if (call->at[k].plan->rows == QFW_NO_ROWS || call->at[k].n != call->at[0].n) {
            return "the sizes differ";
        }
        if (one_scale && call->at[k].plan->rows != QFW_ROWS_AXIS) {
            return "one scale";
        }
    }
    return columns <= QFW_MAX_CLASSES && call->at[0].row % columns == 0 ? NULL : "columns";
}

const char *qfw_rule_softmax_s16(const qfw_call *call)
{
    return fault(call, 2, true);
}

const char *qfw_rule_softmax_f32(const qfw_call *call)
{
    return fault(call, 2, false);
}

const char *qfw_rule_softmax_back_s32(const qfw_call *call)
{
    return fault(call, 3, true);
}

const char *qfw_rule_softmax_back_f32(const qfw_call *call)
{
    return fault(call, 3, false);
}

static uint32_t absmax_of(const qfw_call *call)
{
    return QFW_K(call->kernels, absmax_s32)(call->at[0].t.codes, (size_t)call->at[0].n);
}

qfw_status qfw_op_softmax_s16(const qfw_call *call)
{
    const qfw_operand *p = &call->at[0], *z = &call->at[1];
    const qfw_log2_scale s = qfw_log2_scale_of(qfw_num_f32(z->t.scale[0]));
    const ptrdiff_t columns = columns_of(call);
    for (ptrdiff_t i = 0; i < p->n; i += columns) {
        (void)qfw_softmax_s16((const int16_t *)z->t.codes + i, (size_t)columns, &s,
                              (int32_t *)p->t.codes + i);
    }
    p->t.scale[0] = 0x1p-30f;
    p->absmax[0] = absmax_of(call);
    return QFW_OK;
}

qfw_status qfw_op_softmax_f32(const qfw_call *call)
{
    const ptrdiff_t columns = columns_of(call);
    for (ptrdiff_t i = 0; i < call->at[0].n; i += columns) {
        float *p = (float *)call->at[0].t.codes + i, top, sum;
        QFW_TRY(qfw_softmax_f32((const float *)call->at[1].t.codes + i, (size_t)columns, p, &top,
                                &sum));
        const float r = qfw_div_f32(1.0f, sum);
        for (ptrdiff_t c = 0; c < columns; c++) {
            p[c] *= r;
        }
    }
    return QFW_OK;
}

/* forward was p[c] = softmax(z)[c]; dz[c] = p[c] (e[c] - sum of p e) */
qfw_status qfw_op_softmax_back_f32(const qfw_call *call)
{
    const ptrdiff_t columns = columns_of(call);
    for (ptrdiff_t i = 0; i < call->at[0].n; i += columns) {
        float *d = (float *)call->at[0].t.codes + i;
        const float *e = (const float *)call->at[1].t.codes + i;
        const float *p = (const float *)call->at[2].t.codes + i;
        float mean = 0.0f;
        for (ptrdiff_t c = 0; c < columns; c++) {
            mean += p[c] * e[c];
        }
        for (ptrdiff_t c = 0; c < columns; c++) {
            d[c] = p[c] * (e[c] - mean);
        }
    }
    return QFW_OK;
}

static int32_t code_at(const qfw_tensor *t, ptrdiff_t i)
{
    return qfw_slot(&t->format) == 8 ? ((const int8_t *)t->codes)[i]
                                     : ((const int16_t *)t->codes)[i];
}

/* floor(sum * scale * 2^EXTRA), between -limit and limit; sum is brought below 2^38 in magnitude
 * first, by `drop` bits, so that its product with the scale's mantissa is below 2^62. */
static int32_t mean_of(int64_t sum, int32_t drop, float scale, int32_t limit)
{
    const qfw_num s = qfw_num_f32(scale);
    const int64_t product = (sum >> drop) * (int64_t)s.mant;
    const int32_t up = s.exp + drop + EXTRA;
    if (up <= 0) {
        const int64_t mean = product >> (up > -63 ? -up : 63);
        return mean > limit ? limit : mean < -limit ? -limit : (int32_t)mean;
    }
    const int32_t by = up < 31 ? up : 31; /* limit < 2^31: further up only 0 has room */
    const int64_t room = limit >> by;
    return product > room    ? limit
           : product < -room ? -limit
                             : (int32_t)(product * (INT64_C(1) << by));
}

/* A row. |e| < 2^(bits_e - 1), so |e 2^13 - mean| < 2^(bits_e + 13), and times p it is below
 * 2^(bits_e + bits_p + 12) <= 2^44; `down` brings that below 2^31. */
static void back_row(const qfw_call *call, ptrdiff_t first, ptrdiff_t columns, int32_t drop,
                     uint32_t down)
{
    const qfw_operand *e = &call->at[1], *p = &call->at[2];
    int32_t *d = (int32_t *)call->at[0].t.codes + first;
    int64_t sum = 0;
    for (ptrdiff_t c = 0; c < columns; c++) {
        sum += code_at(&p->t, first + c) * code_at(&e->t, first + c);
    }
    const int32_t limit = 1 << (e->plan->bits - 1 + EXTRA);
    const int32_t mean = mean_of(sum, drop, p->t.scale[0], limit);
    const int64_t half = down != 0 ? INT64_C(1) << (down - 1) : 0;
    for (ptrdiff_t c = 0; c < columns; c++) {
        const int32_t rest = code_at(&e->t, first + c) * (1 << EXTRA) - mean;
        const int64_t v = (int64_t)code_at(&p->t, first + c) * rest;
        const int64_t size = ((v < 0 ? -v : v) + half) >> down;
        d[c] = (int32_t)(v < 0 ? -size : size);
    }
}

qfw_status qfw_op_softmax_back_s32(const qfw_call *call)
{
    const qfw_operand *d = &call->at[0], *e = &call->at[1], *p = &call->at[2];
    const ptrdiff_t columns = columns_of(call);
    const int32_t bits = e->plan->bits + p->plan->bits;
    const uint32_t down = bits > 19 ? (uint32_t)bits - 19 : 0;
    int32_t drop = 0; /* |sum| <= columns 2^30 */
    while (columns > INT64_C(1) << (8 + drop)) {
        drop++;
    }
    for (ptrdiff_t i = 0; i < d->n; i += columns) {
        back_row(call, i, columns, drop, down);
    }
    const float s = qfw_scale_mul(p->t.scale[0], e->t.scale[0]);
    d->t.scale[0] = qfw_scale_lift(s, (int32_t)down - EXTRA);
    d->absmax[0] = absmax_of(call);
    return QFW_OK;
}
