/* From one format to another, within a plan: convert, and parts of tensors. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/count.h"
#include "engine/engine.h"
#include "engine/rescale.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

/* ---- convert ---- */

enum { ABSOLUTE = 0 }; /* param[0]: a hindsight range is relative to 1 */

bool qfw_same_sharing(const qfw_plan_tensor *a, const qfw_plan_tensor *b)
{
    const uint32_t a_run = QFW_GROUP_OF(a) < a->axis ? QFW_GROUP_OF(a) : a->axis;
    const uint32_t b_run = QFW_GROUP_OF(b) < b->axis ? QFW_GROUP_OF(b) : b->axis;
    return a->rows == b->rows && QFW_OUTER_OF(a) == QFW_OUTER_OF(b) && a->axis == b->axis &&
           a->inner == b->inner && a_run == b_run && a->shared == b->shared;
}

bool qfw_same_codes(const qfw_operand *a, const qfw_operand *b)
{
    const qfw_plan_tensor *p = a->plan, *q = b->plan;
    return p->kind == q->kind && p->kind != QFW_FLOAT32 && p->bits == q->bits &&
           p->pow2 == q->pow2 && p->range == q->range && QFW_LIMIT(p) == QFW_LIMIT(q) &&
           qfw_same_sharing(p, q);
}

/* scale(R, 1, Q) of the numerics page. */
void qfw_fix_scales(const qfw_operand *dst, float *scale)
{
    int32_t lo, hi;
    qfw_code_range(&dst->t.format, &lo, &hi);
    const qfw_num s = qfw_num_ratio_up(qfw_num_f32(QFW_LIMIT(dst->plan)), 1, (uint32_t)hi, 24);
    const float each = qfw_num_scale_f32(s, qfw_is_pow2(dst->t.format.pow2));
    for (ptrdiff_t i = 0; i < dst->scales; i++) {
        scale[i] = each;
        if (qfw_is_asym(dst->t.format.kind)) {
            dst->t.zero_point[i] = 0;
        }
    }
}

/* Whether one scale of Sym codes is kept apart until they are written: codes may lie over the sums that
 * they are made of, and it among those that are still to be read. Code i takes at most the bytes of sum
 * i / 2, which has been read. */
static bool is_apart(const qfw_operand *dst)
{
    return dst->scales == 1 && dst->plan->kind == QFW_SYM;
}

/* How dst is encoded at scales that are known, from its element `first` on. */
static qfw_encoding encoding_of(const qfw_call *call, const qfw_operand *dst, uint64_t first)
{
    qfw_encoding how = {dst->plan->rounding, 0, {0, 0}, first};
    if (dst->plan->rounding == QFW_STOCHASTIC) {
        how.key = qfw_key_of(call, dst);
    }
    return how;
}

static qfw_status encode(const qfw_call *call, const qfw_operand *src, const qfw_operand *dst,
                         uint32_t *ratios, uint64_t first)
{
    float scale = 1.0f;
    qfw_tensor to = dst->t;
    to.scale = is_apart(dst) ? &scale : to.scale;
    const qfw_convert_hints hints = {src->absmax, ratios};
    qfw_encoding how = encoding_of(call, dst, first);
    uint64_t saturated;
    if (QFW_HAS_ANY_CONVERT && qfw_same_codes(src, dst)) {
        memcpy(to.scale, src->t.scale, (size_t)dst->scales * sizeof(float));
        if (qfw_is_asym(dst->t.format.kind)) {
            memcpy(dst->t.zero_point, src->t.zero_point, (size_t)dst->scales * sizeof(uint16_t));
        }
        how.rounding = QFW_HALF_AWAY;
    } else if (QFW_HAS_FIXED && dst->plan->range == QFW_FIXED) {
        qfw_fix_scales(dst, to.scale);
    } else {
        how.dynamic = 1;
    }
    QFW_TRY(qfw_convert_hinted(call->kernels, &src->t, &to, &how, &hints, &saturated));
    if (to.scale == &scale) {
        dst->t.scale[0] = scale;
    }
    qfw_count_encoded(dst, saturated);
    return QFW_OK;
}

qfw_status qfw_encode_part(const qfw_call *call, const qfw_operand *src, const qfw_operand *dst,
                           uint64_t first)
{
    return encode(call, src, dst, NULL, first);
}

const char *qfw_rule_convert(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1], *scratch = &call->at[2];
    if (dst->n != src->n || (dst->plan->rows == QFW_NO_ROWS) != (src->plan->rows == QFW_NO_ROWS)) {
        return "the sizes differ";
    }
    const bool hindsight = dst->plan->range == QFW_HINDSIGHT && !qfw_same_codes(src, dst);
    const bool absolute = call->op->param[ABSOLUTE] != 0;
    if (hindsight != qfw_has(call, 3) || (hindsight && !qfw_is_gain(&call->at[3])) ||
        (qfw_has(call, 4) && (!hindsight || absolute || call->at[4].scales != 1)) ||
        (absolute && !hindsight) || call->op->param[ABSOLUTE] > 1) {
        return "gain";
    }
    const bool own = hindsight && !absolute && !qfw_has(call, 4);
    if (own && src->plan->kind != QFW_FLOAT32 && src->scales != 1) {
        return "the gain of several scales";
    }
    return qfw_has(call, 2) && scratch->n < 16 * src->t.layout.axis ? "scratch" : NULL;
}

static qfw_status convert_in_hindsight(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1], *gain = &call->at[3];
    const qfw_convert_hints hints = {src->absmax, call->at[2].t.codes};
    const bool one = src->plan->kind == QFW_FLOAT32 || call->op->param[ABSOLUTE] != 0;
    const float s_in = qfw_has(call, 4) ? call->at[4].t.scale[0] : one ? 1.0f : src->t.scale[0];
    const qfw_encoding how = encoding_of(call, dst, 0);
    float scale = 1.0f;
    qfw_tensor to = dst->t;
    to.scale = is_apart(dst) ? &scale : to.scale;
    uint64_t saturated;
    QFW_TRY(qfw_hindsight_scales(dst, to.scale, gain, s_in));
    QFW_TRY(qfw_convert_hinted(call->kernels, &src->t, &to, &how, &hints, &saturated));
    const qfw_num most = src->absmax != NULL ? qfw_largest_sum(src) : qfw_largest(&src->t, src->n);
    if (to.scale == &scale) {
        dst->t.scale[0] = scale;
    }
    qfw_count_encoded(dst, saturated);
    qfw_hindsight_ask(call, gain, most, s_in);
    return QFW_OK;
}

QFW_SMALL qfw_status qfw_op_convert(const qfw_call *call)
{
    const uint64_t first = (uint64_t)(QFW_ROWS_BEFORE(call) * call->at[0].row);
    return QFW_HAS_HINDSIGHT && qfw_has(call, 3)
               ? convert_in_hindsight(call)
               : encode(call, &call->at[1], &call->at[0], call->at[2].t.codes, first);
}

/* ---- parts of a matrix ---- */

bool qfw_has_rows_of(const qfw_operand *whole, ptrdiff_t row, ptrdiff_t rows)
{
    const qfw_layout *l = &whole->t.layout;
    if (rows * row == whole->n) {
        return true;
    }
    const bool bytes =
        whole->plan->container != 0 || (uint64_t)(rows * row) * whole->plan->bits % 8 == 0;
    const bool along_axis = l->outer == 1 && l->group == 1 && l->inner == row;
    const bool along_outer = l->shared == 0 && l->axis * l->inner == row;
    return bytes && (whole->plan->kind == QFW_FLOAT32 || along_axis || along_outer);
}

qfw_tensor qfw_rows_of(const qfw_operand *whole, ptrdiff_t row, ptrdiff_t first, ptrdiff_t rows)
{
    qfw_tensor t = whole->t;
    if (rows * row == whole->n) {
        return t;
    }
    const ptrdiff_t bits = t.format.container != 0 ? t.format.container : t.format.bits;
    t.codes = (uint8_t *)t.codes + first * row * bits / 8;
    if (t.format.kind == QFW_FLOAT32) {
        const qfw_layout flat = {1, rows * row, 1, rows * row, 0, 0};
        t.layout = flat;
        return t;
    }
    ptrdiff_t scales = 1;
    if (t.layout.outer == 1) {
        t.layout.axis = rows;
    } else {
        t.layout.outer = rows;
        scales = whole->scales / (whole->n / row);
    }
    t.scale += first * scales;
    t.zero_point = t.zero_point != NULL ? t.zero_point + first * scales : NULL;
    return t;
}
