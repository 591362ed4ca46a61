/* Sigmoid and tanh as layers: docs/numerics.md section 34. Places: result, source; backward: error,
 * result. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/engine.h"
#include "kernels/codes.h"

enum { FRACTION = 15 }; /* bits of a result in backward */

/* Two places with rows and as many elements. */
static const char *sizes_fault(const qfw_call *call)
{
    const bool rows =
        call->at[0].plan->rows != QFW_NO_ROWS && call->at[1].plan->rows != QFW_NO_ROWS;
    return rows && call->at[0].n == call->at[1].n ? NULL : "the sizes differ";
}

/* ---- forward ---- */

static const char *sums_fault(const qfw_call *call)
{
    const char *broken = sizes_fault(call);
    return broken != NULL ? broken : call->at[0].plan->rows == QFW_ROWS_AXIS ? NULL : "one scale";
}

const char *qfw_rule_sigmoid_s32(const qfw_call *call)
{
    return sums_fault(call);
}

const char *qfw_rule_tanh_s32(const qfw_call *call)
{
    return sums_fault(call);
}

const char *qfw_rule_sigmoid_f32(const qfw_call *call)
{
    return sizes_fault(call);
}

const char *qfw_rule_tanh_f32(const qfw_call *call)
{
    return sizes_fault(call);
}

/* Floats as integers with a scale each: their 24 bits at a power of two. */
static void split_floats(const float *x, size_t n, int32_t *m, qfw_log2_scale *s)
{
    for (size_t i = 0; i < n; i++) {
        const qfw_num size = qfw_num_f32(x[i]), unit = {UINT64_C(1) << 23, size.exp - 23};
        m[i] = x[i] < 0.0f ? -(int32_t)size.mant : (int32_t)size.mant;
        s[i] = qfw_log2_scale_of(unit);
    }
}

/* Codes first .. first + n - 1, and the scale of each unless s is NULL. */
static void load(const qfw_tensor *x, ptrdiff_t first, size_t n, int32_t *m, qfw_log2_scale *s)
{
    for (size_t i = 0; i < n;) {
        const qfw_run run = qfw_run_at(&x->layout, first + (ptrdiff_t)i);
        const size_t end = run.n < (ptrdiff_t)(n - i) ? i + (size_t)run.n : n;
        qfw_load_codes(x, run.first, end - i, run.scale, m + i);
        if (s != NULL) {
            const qfw_log2_scale scale = qfw_log2_scale_of(qfw_num_f32(x->scale[run.scale]));
            for (size_t k = i; k < end; k++) {
                s[k] = scale;
            }
        }
        i = end;
    }
}

/* Some columns at a time: where rows share scales, these are looked at once. Accumulators are read
 * where they lie. */
static void squash_rows(const qfw_call *call, qfw_squash kind)
{
    const qfw_operand *y = &call->at[0], *x = &call->at[1];
    const qfw_layout *l = &x->t.layout;
    const ptrdiff_t row = l->axis * l->inner;
    const bool floats = x->plan->kind == QFW_FLOAT32, sums = x->absmax != NULL;
    int32_t m[QFW_TILE];
    qfw_log2_scale s[QFW_TILE];
    for (ptrdiff_t at = 0; at < row; at += QFW_TILE) {
        const size_t n = row - at < QFW_TILE ? (size_t)(row - at) : QFW_TILE;
        for (ptrdiff_t o = 0; o < l->outer; o++) {
            const ptrdiff_t first = o * row + at;
            const bool again = o == 0 || l->shared == 0;
            if (floats) {
                split_floats((const float *)x->t.codes + first, n, m, s);
            } else if (again || !sums) {
                load(&x->t, first, n, m, again ? s : NULL);
            }
            const int32_t *codes = sums ? (const int32_t *)x->t.codes + first : m;
            QFW_K(call->kernels, squash_s32)(codes, s, n, kind, (int32_t *)y->t.codes + first);
        }
    }
}

static qfw_status squash_codes(const qfw_call *call, qfw_squash kind)
{
    const qfw_operand *y = &call->at[0], *x = &call->at[1];
    if (x->plan->kind == QFW_FLOAT32) {
        QFW_TRY(qfw_finite_f32(call->kernels, x->t.codes, (size_t)x->n));
    }
    squash_rows(call, kind);
    y->t.scale[0] = 0x1p-30f;
    y->absmax[0] = QFW_K(call->kernels, absmax_s32)(y->t.codes, (size_t)y->n);
    return QFW_OK;
}

static qfw_status squash_floats(const qfw_call *call, qfw_squash kind)
{
    const qfw_operand *y = &call->at[0], *x = &call->at[1];
    QFW_TRY(qfw_finite_f32(call->kernels, x->t.codes, (size_t)x->n));
    QFW_K(call->kernels, squash_f32)(x->t.codes, (size_t)x->n, kind, y->t.codes);
    return QFW_OK;
}

qfw_status qfw_op_sigmoid_s32(const qfw_call *call)
{
    return squash_codes(call, QFW_SIGMOID);
}

qfw_status qfw_op_tanh_s32(const qfw_call *call)
{
    return squash_codes(call, QFW_TANH);
}

qfw_status qfw_op_sigmoid_f32(const qfw_call *call)
{
    return squash_floats(call, QFW_SIGMOID);
}

qfw_status qfw_op_tanh_f32(const qfw_call *call)
{
    return squash_floats(call, QFW_TANH);
}

/* ---- backward: forward was y = sigmoid(x), dx = e y (1 - y); y = tanh(x), dx = e (1 - y^2) ---- */

const char *qfw_rule_sigmoid_back(const qfw_call *call)
{
    return sizes_fault(call);
}

const char *qfw_rule_tanh_back(const qfw_call *call)
{
    return sizes_fault(call);
}

/* y[i] of elements first + i, as a float. */
static void results_f32(const qfw_operand *y, ptrdiff_t first, size_t n, float *out)
{
    int32_t m[QFW_TILE];
    if (y->plan->kind == QFW_FLOAT32) {
        memcpy(out, (const float *)y->t.codes + first, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n;) {
        const qfw_run run = qfw_run_at(&y->t.layout, first + (ptrdiff_t)i);
        const size_t end = run.n < (ptrdiff_t)(n - i) ? i + (size_t)run.n : n;
        qfw_load_codes(&y->t, run.first, end - i, run.scale, m + i);
        for (; i < end; i++) {
            out[i] = qfw_product_f32(m[i], y->t.scale[run.scale]);
        }
    }
}

/* y[i] of elements first + i in units of 2^-15, half away, within what the function can be. */
static void results_q15(const qfw_call *call, ptrdiff_t first, size_t n, qfw_squash kind,
                        int32_t *out)
{
    const qfw_operand *y = &call->at[1];
    const int32_t top = 1 << FRACTION;
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, kind == QFW_TANH ? -top : 0, top};
    const float unit = 0x1p-15f;
    if (y->plan->kind == QFW_FLOAT32) {
        const float *x = (const float *)y->t.codes + first;
        (void)QFW_K(call->kernels, quotient_f32)(x, NULL, n, unit, &rule, out);
        return;
    }
    for (size_t i = 0; i < n;) {
        const qfw_run run = qfw_run_at(&y->t.layout, first + (ptrdiff_t)i);
        const size_t count = run.n < (ptrdiff_t)(n - i) ? (size_t)run.n : n - i;
        const qfw_ratio ratio = qfw_ratio_of(y->t.scale[run.scale], unit, FRACTION + 2);
        qfw_load_codes(&y->t, run.first, count, run.scale, out + i);
        (void)QFW_K(call->kernels, rescale_s32)(out + i, NULL, count, &ratio, &rule, out + i);
        i += count;
    }
}

/* A code that lies a little beyond 1 has the derivative 0; a NaN keeps itself. */
static void back_floats(const qfw_call *call, qfw_squash kind)
{
    const qfw_operand *error = &call->at[0];
    float y[QFW_TILE], *e = error->t.codes;
    for (ptrdiff_t i = 0; i < error->n; i += QFW_TILE) {
        const size_t n = error->n - i < QFW_TILE ? (size_t)(error->n - i) : QFW_TILE;
        results_f32(&call->at[1], i, n, y);
        for (size_t k = 0; k < n; k++) {
            const float rest = 1.0f - y[k], d = (kind == QFW_TANH ? 1.0f + y[k] : y[k]) * rest;
            e[i + (ptrdiff_t)k] *= d < 0.0f ? 0.0f : d;
        }
    }
}

/* Bits that the products of accumulators and derivatives, in units of 2^-30, lose: as many as are
 * beyond int32, and as many as the smallest scale cannot be made smaller by. */
static int32_t drop_of(const qfw_operand *error, qfw_squash kind)
{
    uint32_t most = 0;
    float least = FLT_MAX;
    for (ptrdiff_t i = 0; i < error->scales; i++) {
        most = error->absmax[i] > most ? error->absmax[i] : most;
        least = error->t.scale[i] < least ? error->t.scale[i] : least;
    }
    const int32_t bits = most != 0 ? qfw_msb64(most) + 1 : 0;
    const int32_t over = bits + (kind == QFW_TANH ? 30 : 28) - 31;
    const int32_t under = 31 - (int32_t)(qfw_bits_f32(least) >> 23);
    const int32_t drop = over > under ? over : under;
    return drop > 0 ? drop : 0;
}

/* A derivative y (1 - y) is at most 2^28, 1 - y^2 at most 2^30; times an accumulator that is at most
 * 2^61. */
static void back_codes(const qfw_call *call, qfw_squash kind)
{
    const qfw_operand *error = &call->at[0];
    const int32_t one = 1 << FRACTION, drop = drop_of(error, kind);
    int32_t y[QFW_TILE], *e = error->t.codes;
    for (ptrdiff_t i = 0; i < error->n; i += QFW_TILE) {
        const size_t n = error->n - i < QFW_TILE ? (size_t)(error->n - i) : QFW_TILE;
        results_q15(call, i, n, kind, y);
        for (size_t k = 0; k < n; k++) {
            const int32_t slope = (kind == QFW_TANH ? one + y[k] : y[k]) * (one - y[k]);
            int32_t *e_k = e + i + (ptrdiff_t)k;
            *e_k = qfw_brought_back((int64_t)*e_k * slope, (uint32_t)drop);
        }
    }
    for (ptrdiff_t j = 0; j < error->scales; j++) {
        error->t.scale[j] = qfw_scale_lift(error->t.scale[j], drop - 2 * FRACTION);
    }
    qfw_find_absmax(call->kernels, error);
}

static qfw_status squash_back(const qfw_call *call, qfw_squash kind)
{
    const qfw_operand *y = &call->at[1];
    if (call->at[0].plan->kind == QFW_FLOAT32) {
        back_floats(call, kind);
        return QFW_OK;
    }
    if (y->plan->kind == QFW_FLOAT32) {
        QFW_TRY(qfw_finite_f32(call->kernels, y->t.codes, (size_t)y->n));
    }
    back_codes(call, kind);
    return QFW_OK;
}

qfw_status qfw_op_sigmoid_back(const qfw_call *call)
{
    return squash_back(call, QFW_SIGMOID);
}

qfw_status qfw_op_tanh_back(const qfw_call *call)
{
    return squash_back(call, QFW_TANH);
}
