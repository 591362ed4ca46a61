/* Gradients that add up over the micro-batches of a step: docs/numerics.md section 24.
 *
 * accumulate:  gradient, floats of this micro-batch (the sum afterwards) */
#include "base/layout.h"
#include "base/round.h"
#include "engine/engine.h"
#include "engine/rescale.h"
#include "kernels/codes.h"

/* Bits that two addends are brought to: each is at most 2^27 then or, where a scale was clamped to
 * FLT_MAX, 2^29 (the high word of a product is below 2^30 and is halved). Sums fit an int32. */
enum { JOINT_BITS = 28 };

/* Stands for any larger number of steps: added to a code it leaves the code's range. */
enum { MOST_STEPS = 65535 };

static void add_floats(const qfw_tensor *acc, float *sum, ptrdiff_t n)
{
    const int32_t *a = acc->codes;
    for (ptrdiff_t i = 0; i < n; i++) {
        sum[i] += qfw_product_f32(a[i], acc->scale[0]);
    }
}

/* ---- a range that is found anew ---- */

typedef struct {
    uint32_t kept, added;
} sizes;

/* The largest |code| of a scale and the largest |accumulator| beside it. */
static sizes sizes_of(const qfw_tensor *t, const int32_t *acc, ptrdiff_t scale)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&t->layout);
    sizes most = {0, 0};
    int32_t m[QFW_TILE];
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&t->layout, scale, r);
        for (ptrdiff_t at = 0; at < run.n; at += QFW_TILE) {
            const size_t n = run.n - at < QFW_TILE ? (size_t)(run.n - at) : QFW_TILE;
            qfw_load_held(t, run.first + at, n, scale, m);
            for (size_t i = 0; i < n; i++) {
                const uint32_t a = qfw_abs32(acc[run.first + at + (ptrdiff_t)i]);
                most.kept = qfw_abs32(m[i]) > most.kept ? qfw_abs32(m[i]) : most.kept;
                most.added = a > most.added ? a : most.added;
            }
        }
    }
    return most;
}

/* acc = acc + codes at the scale `to`. */
static void join_scale(const qfw_tensor *t, int32_t *acc, float sigma, ptrdiff_t scale, float to)
{
    const ptrdiff_t runs = qfw_runs_per_scale(&t->layout);
    const qfw_ratio kept = qfw_ratio_of(t->scale[scale], to, JOINT_BITS);
    const qfw_ratio added = qfw_ratio_of(sigma, to, JOINT_BITS);
    int32_t m[QFW_TILE];
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&t->layout, scale, r);
        for (ptrdiff_t at = 0; at < run.n; at += QFW_TILE) {
            const size_t n = run.n - at < QFW_TILE ? (size_t)(run.n - at) : QFW_TILE;
            int32_t *a = acc + run.first + at;
            qfw_load_held(t, run.first + at, n, scale, m);
            for (size_t i = 0; i < n; i++) {
                a[i] = qfw_rescale(a[i], &added, QFW_HALF_AWAY, 0) +
                       qfw_rescale(m[i], &kept, QFW_HALF_AWAY, 0);
            }
        }
    }
}

static qfw_status add_dynamic(const qfw_call *call, const qfw_operand *acc, const qfw_operand *part,
                              uint64_t first, float *joint)
{
    const qfw_tensor *t = &part->t;
    const float sigma = acc->t.scale[0];
    qfw_operand sum = *acc;
    int32_t lo, hi;
    QFW_TRY(qfw_check_scales(part));
    qfw_code_range(&t->format, &lo, &hi);
    for (ptrdiff_t i = 0; i < part->scales; i++) {
        const sizes most = sizes_of(t, acc->t.codes, i);
        const qfw_num found = qfw_num_max(qfw_scale_for(t->scale[i], most.kept, (uint32_t)hi),
                                          qfw_scale_for(sigma, most.added, (uint32_t)hi));
        joint[i] = qfw_scale_lift(qfw_num_scale_f32(found, false),
                                  qfw_signed_bits(&t->format) - JOINT_BITS);
        join_scale(t, acc->t.codes, sigma, i, joint[i]);
    }
    sum.t.layout = t->layout;
    sum.t.scale = joint;
    return qfw_encode_part(call, &sum, part, first);
}

/* ---- a fixed range ---- */

/* n codes from element `at` on, moved by v steps each, as far as the range goes. */
static void move_codes(const qfw_tensor *t, ptrdiff_t at, size_t n, const int32_t *v)
{
    int32_t m[QFW_TILE], lo, hi;
    qfw_code_range(&t->format, &lo, &hi);
    qfw_load_held(t, at, n, 0, m); /* every zero point is 0 */
    for (size_t i = 0; i < n; i++) {
        const int32_t sum = m[i] + v[i];
        m[i] = sum < lo ? lo : sum > hi ? hi : sum;
    }
    qfw_store_codes(t, at, n, m);
}

/* x: accumulators of scale sigma or, if that is 0, finite floats. All scales of a fixed range are
 * one number, so the tensor is one run. */
static void add_fixed(const qfw_call *call, const void *x, float sigma, const qfw_operand *part,
                      ptrdiff_t count, uint64_t first)
{
    const qfw_key key = qfw_key_of(call, &call->at[0]);
    const qfw_code_rule rule = {(qfw_rounding)part->plan->rounding, 0, -MOST_STEPS, MOST_STEPS};
    qfw_fix_scales(part, part->t.scale);
    const float s = part->t.scale[0];
    const qfw_ratio ratio =
        qfw_ratio_of(sigma != 0.0f ? sigma : s, s, qfw_signed_bits(&part->t.format));
    uint32_t u[QFW_TILE];
    int32_t v[QFW_TILE];
    for (ptrdiff_t at = 0; at < count; at += QFW_TILE) {
        const size_t n = count - at < QFW_TILE ? (size_t)(count - at) : QFW_TILE;
        if (rule.rounding == QFW_STOCHASTIC) {
            qfw_uniforms(&key, first + (uint64_t)at, n, u);
        }
        if (sigma != 0.0f) {
            QFW_K(call->kernels, rescale_s32)((const int32_t *)x + at, u, n, &ratio, &rule, v);
        } else {
            QFW_K(call->kernels, quotient_f32)((const float *)x + at, u, n, s, &rule, v);
        }
        move_codes(&part->t, at, n, v);
    }
}

qfw_status qfw_add_part(const qfw_call *call, const qfw_operand *acc, const qfw_operand *part,
                        uint64_t first, float *joint)
{
    const ptrdiff_t n = acc->t.layout.axis;
    if (part->plan->kind == QFW_FLOAT32) {
        add_floats(&acc->t, part->t.codes, n);
        return QFW_OK;
    }
    if (part->plan->range == QFW_FIXED) {
        add_fixed(call, acc->t.codes, acc->t.scale[0], part, n, first);
        return QFW_OK;
    }
    return add_dynamic(call, acc, part, first, joint);
}

/* ---- floats to a gradient of codes ---- */

const char *qfw_rule_accumulate(const qfw_call *call)
{
    const qfw_operand *grad = &call->at[0], *x = &call->at[1];
    if (grad->plan->role != QFW_GRADIENT || x->plan->rows != QFW_NO_ROWS) {
        return "role, rows";
    }
    return grad->n == x->n ? NULL : "the sizes differ";
}

/* x += the values of t. */
static void add_values(const qfw_tensor *t, float *x, ptrdiff_t count)
{
    int32_t m[QFW_TILE];
    for (ptrdiff_t i = 0; i < count;) {
        const qfw_run run = qfw_run_at(&t->layout, i);
        const size_t n = run.n < QFW_TILE ? (size_t)run.n : QFW_TILE;
        qfw_load_held(t, i, n, run.scale, m);
        for (size_t k = 0; k < n; k++) {
            x[i + (ptrdiff_t)k] += qfw_product_f32(m[k], t->scale[run.scale]);
        }
        i += (ptrdiff_t)n;
    }
}

qfw_status qfw_op_accumulate(const qfw_call *call)
{
    const qfw_operand *grad = &call->at[0], *x = &call->at[1];
    if (qfw_adds(call) && grad->plan->range == QFW_FIXED) {
        QFW_TRY(qfw_finite_f32(call->kernels, x->t.codes, (size_t)x->n));
        add_fixed(call, x->t.codes, 0.0f, grad, grad->n, 0);
        return QFW_OK;
    }
    if (qfw_adds(call)) {
        QFW_TRY(qfw_check_scales(grad));
        add_values(&grad->t, x->t.codes, grad->n);
    }
    return qfw_encode_part(call, x, grad, 0);
}
