/* From one format to another, within a plan: convert, relu, mask. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/count.h"
#include "engine/engine.h"
#include "engine/rescale.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

/* ---- convert ---- */

bool qfw_same_sharing(const qfw_plan_tensor *a, const qfw_plan_tensor *b)
{
    const uint32_t a_run = a->group < a->axis ? a->group : a->axis;
    const uint32_t b_run = b->group < b->axis ? b->group : b->axis;
    return a->rows == b->rows && a->outer == b->outer && a->axis == b->axis &&
           a->inner == b->inner && a_run == b_run && a->shared == b->shared;
}

/* Whether only the slots and the rounding differ: then scales carry over, and so do codes. */
static bool same_codes(const qfw_operand *a, const qfw_operand *b)
{
    const qfw_plan_tensor *p = a->plan, *q = b->plan;
    return p->kind == q->kind && p->kind != QFW_FLOAT32 && p->bits == q->bits &&
           p->pow2 == q->pow2 && p->range == q->range && p->limit == q->limit &&
           qfw_same_sharing(p, q);
}

/* scale(R, 1, Q) of the numerics page. */
void qfw_fix_scales(const qfw_operand *dst)
{
    int32_t lo, hi;
    qfw_code_range(&dst->t.format, &lo, &hi);
    const qfw_num s = qfw_num_ratio_up(qfw_num_f32(dst->plan->limit), 1, (uint32_t)hi, 24);
    const float scale = qfw_num_scale_f32(s, dst->t.format.pow2 != 0);
    for (int64_t i = 0; i < dst->scales; i++) {
        dst->t.scale[i] = scale;
        if (dst->t.format.kind == QFW_ASYM) {
            dst->t.zero_point[i] = 0;
        }
    }
}

static qfw_status encode(const qfw_call *call, const qfw_operand *src, const qfw_operand *dst,
                         uint32_t *ratios, uint64_t first)
{
    const qfw_convert_hints hints = {src->absmax, ratios};
    qfw_encoding how = {dst->plan->rounding, 0, qfw_key_of(call, dst), first};
    uint64_t saturated;
    if (same_codes(src, dst)) {
        memcpy(dst->t.scale, src->t.scale, (size_t)dst->scales * sizeof(float));
        if (dst->t.format.kind == QFW_ASYM) {
            memcpy(dst->t.zero_point, src->t.zero_point, (size_t)dst->scales * sizeof(uint16_t));
        }
        how.rounding = QFW_HALF_AWAY;
    } else if (dst->plan->range == QFW_FIXED) {
        qfw_fix_scales(dst);
    } else {
        how.dynamic = 1;
    }
    QFW_TRY(qfw_convert_hinted(call->kernels, &src->t, &dst->t, &how, &hints, &saturated));
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
    const bool hindsight = dst->plan->range == QFW_HINDSIGHT && !same_codes(src, dst);
    if (hindsight != qfw_has(call, 3) || (hindsight && !qfw_is_gain(&call->at[3])) ||
        (qfw_has(call, 4) && (!hindsight || call->at[4].scales != 1))) {
        return "gain";
    }
    if (hindsight && !qfw_has(call, 4) && src->plan->kind != QFW_FLOAT32 && src->scales != 1) {
        return "the gain of several scales";
    }
    return qfw_has(call, 2) && scratch->n < 16 * src->t.layout.axis ? "scratch" : NULL;
}

qfw_status qfw_op_convert(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1], *gain = &call->at[3];
    const qfw_convert_hints hints = {src->absmax, call->at[2].t.codes};
    if (!qfw_has(call, 3)) {
        return encode(call, src, dst, call->at[2].t.codes, 0);
    }
    const float s_in = qfw_has(call, 4)                 ? call->at[4].t.scale[0]
                       : src->plan->kind == QFW_FLOAT32 ? 1.0f
                                                        : src->t.scale[0];
    const qfw_encoding how = {dst->plan->rounding, 0, qfw_key_of(call, dst), 0};
    uint64_t saturated;
    QFW_TRY(qfw_hindsight_scales(dst, gain, s_in));
    QFW_TRY(qfw_convert_hinted(call->kernels, &src->t, &dst->t, &how, &hints, &saturated));
    qfw_count_encoded(dst, saturated);
    const qfw_num most = src->absmax != NULL ? qfw_largest_sum(src) : qfw_largest(&src->t, src->n);
    qfw_hindsight_ask(call, gain, most, s_in);
    return QFW_OK;
}

/* ---- parts of a matrix ---- */

bool qfw_has_rows_of(const qfw_operand *whole, int64_t row, int64_t rows)
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

qfw_tensor qfw_rows_of(const qfw_operand *whole, int64_t row, int64_t first, int64_t rows)
{
    qfw_tensor t = whole->t;
    if (rows * row == whole->n) {
        return t;
    }
    const int64_t bits = t.format.container != 0 ? t.format.container : t.format.bits;
    t.codes = (uint8_t *)t.codes + first * row * bits / 8;
    if (t.format.kind == QFW_FLOAT32) {
        const qfw_layout flat = {1, rows * row, 1, rows * row, 0, 0};
        t.layout = flat;
        return t;
    }
    int64_t scales = 1;
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

/* ---- relu: v > 0 ? v : v * slope, param[0] being the slope ---- */

/* A factor in a plan is 0 or a positive normal number. */
static bool is_factor(uint32_t bits)
{
    return bits == 0 || qfw_is_scale_f32(qfw_from_bits_f32(bits));
}

static bool same_format(const qfw_operand *a, const qfw_operand *b)
{
    const bool floats = a->plan->kind == QFW_FLOAT32 && b->plan->kind == QFW_FLOAT32;
    return a->n == b->n && a->plan->container == b->plan->container &&
           a->plan->rows == b->plan->rows && (floats || same_codes(a, b));
}

/* With rows, so that the codes were made by an operation and are those of their format. */
const char *qfw_rule_relu(const qfw_call *call)
{
    if (call->at[1].plan->rows == QFW_NO_ROWS) {
        return "rows";
    }
    if (!is_factor(call->op->param[0])) {
        return "slope";
    }
    return same_format(&call->at[0], &call->at[1]) ? NULL : "the formats differ";
}

/* Scales of src for dst. */
static void carry_scales(const qfw_operand *src, const qfw_operand *dst)
{
    const size_t n = (size_t)dst->scales;
    if (dst->t.codes == src->t.codes || n == 0) {
        return;
    }
    memcpy(dst->t.scale, src->t.scale, n * sizeof *dst->t.scale);
    if (dst->t.zero_point != NULL) {
        memcpy(dst->t.zero_point, src->t.zero_point, n * sizeof *dst->t.zero_point);
    }
}

void qfw_find_absmax(const qfw_operand *x)
{
    if (x->absmax == NULL) {
        return;
    }
    memset(x->absmax, 0, (size_t)x->scales * sizeof *x->absmax);
    for (int64_t i = 0; i < x->n;) {
        const qfw_run run = qfw_run_at(&x->t.layout, i);
        for (int64_t k = 0; k < run.n; k++, i++) {
            const uint32_t size = qfw_abs32(((const int32_t *)x->t.codes)[i]);
            x->absmax[run.scale] = size > x->absmax[run.scale] ? size : x->absmax[run.scale];
        }
    }
}

/* With slope 0 a negative zero or a NaN becomes 0. */
static void relu_f32(const float *x, int64_t n, float slope, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] > 0.0f ? x[i] : slope != 0.0f ? x[i] * slope : 0.0f;
    }
}

qfw_status qfw_op_relu(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const float slope = qfw_param_f32(call->op, 0);
    if (dst->plan->kind == QFW_FLOAT32) {
        relu_f32(src->t.codes, dst->n, slope, dst->t.codes);
        return QFW_OK;
    }
    const qfw_num factor = qfw_num_f32(slope);
    int32_t lo, hi;
    qfw_code_range(&dst->t.format, &lo, &hi);
    carry_scales(src, dst);
    if (dst->plan->container == 0 && dst->t.codes != src->t.codes) { /* after the last code */
        ((uint8_t *)dst->t.codes)[qfw_codes_bytes(dst) - 1] = 0;
    }
    int32_t m[QFW_TILE];
    for (int64_t i = 0; i < dst->n;) {
        const qfw_run run = qfw_run_at(&src->t.layout, i);
        const size_t n = run.n < QFW_TILE ? (size_t)run.n : QFW_TILE;
        const int32_t zp = dst->plan->kind == QFW_ASYM ? dst->t.zero_point[run.scale] : 0;
        qfw_load_codes(&src->t, i, n, run.scale, m);
        for (size_t k = 0; k < n; k++) {
            const int32_t v = m[k] > 0 ? m[k] : qfw_scaled(m[k], &factor);
            m[k] = (v > lo - zp ? v : lo - zp) + zp;
        }
        qfw_store_codes(&dst->t, i, n, m);
        i += (int64_t)n;
    }
    qfw_find_absmax(dst);
    return QFW_OK;
}

/* ---- mask: an error passes where a wire's code is > 0 or, param[0] = 1, inside its range; elsewhere
 * it is multiplied by param[1] ---- */

const char *qfw_rule_mask(const qfw_call *call)
{
    if (call->at[0].n != call->at[1].n || call->at[0].plan->rows == QFW_NO_ROWS ||
        call->at[1].plan->rows == QFW_NO_ROWS) {
        return "the sizes differ";
    }
    if (call->op->param[0] > 1 || (call->op->param[0] == 1 && call->op->param[1] != 0)) {
        return "mode";
    }
    return is_factor(call->op->param[1]) ? NULL : "slope";
}

/* pass[i]: whether element first + i lets an error through. */
static void passes(const qfw_operand *wire, int64_t first, size_t n, bool inside, bool *pass)
{
    int32_t m[QFW_TILE], lo, hi;
    if (wire->plan->kind == QFW_FLOAT32) {
        for (size_t i = 0; i < n; i++) {
            pass[i] = inside || ((const float *)wire->t.codes)[first + (int64_t)i] > 0.0f;
        }
        return;
    }
    qfw_code_range(&wire->t.format, &lo, &hi);
    for (size_t i = 0; i < n; i++) { /* one at a time: a tile may meet several zero points */
        const qfw_run run = qfw_run_at(&wire->t.layout, first + (int64_t)i);
        const int32_t zp = wire->plan->kind == QFW_ASYM ? wire->t.zero_point[run.scale] : 0;
        qfw_load_codes(&wire->t, first + (int64_t)i, 1, run.scale, m);
        pass[i] = inside ? m[0] + zp > lo && m[0] + zp < hi : m[0] > 0;
    }
}

void qfw_apply_mask(const qfw_operand *error, const qfw_operand *wire, bool inside, float slope)
{
    const bool floats = error->plan->kind == QFW_FLOAT32;
    const qfw_num factor = qfw_num_f32(slope);
    bool pass[QFW_TILE];
    for (int64_t i = 0; i < error->n; i += QFW_TILE) {
        const size_t n = error->n - i < QFW_TILE ? (size_t)(error->n - i) : QFW_TILE;
        passes(wire, i, n, inside, pass);
        for (size_t k = 0; k < n; k++) {
            if (pass[k]) {
                continue;
            }
            if (floats && slope != 0.0f) {
                ((float *)error->t.codes)[i + (int64_t)k] *= slope;
            } else { /* +0.0f is the pattern 0 too */
                int32_t *e = (int32_t *)error->t.codes + i + (int64_t)k;
                *e = slope != 0.0f ? qfw_scaled(*e, &factor) : 0;
            }
        }
    }
    qfw_find_absmax(error);
}

qfw_status qfw_op_mask(const qfw_call *call)
{
    qfw_apply_mask(&call->at[0], &call->at[1], call->op->param[0] == 1, qfw_param_f32(call->op, 1));
    return QFW_OK;
}
