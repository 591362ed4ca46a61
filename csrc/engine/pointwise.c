/* What changes codes and leaves their scales: relu, mask. docs/numerics.md sections 13, 21 and 34. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/engine.h"
#include "kernels/codes.h"

/* ---- relu: v > 0 ? min(v, top) : v * slope; param[0]: the slope, param[1]: the top, 0: none ---- */

enum { SLOPE = 0, TOP };

/* A factor in a plan is 0 or a positive normal number. */
static bool is_factor(uint32_t bits)
{
    return bits == 0 || qfw_is_scale_f32(qfw_from_bits_f32(bits));
}

static bool same_format(const qfw_operand *a, const qfw_operand *b)
{
    const bool floats = a->plan->kind == QFW_FLOAT32 && b->plan->kind == QFW_FLOAT32;
    return a->n == b->n && a->plan->container == b->plan->container &&
           a->plan->rows == b->plan->rows && (floats || qfw_same_codes(a, b));
}

/* With rows, so that the codes were made by an operation and are those of their format. */
const char *qfw_rule_relu(const qfw_call *call)
{
    if (call->at[1].plan->rows == QFW_NO_ROWS) {
        return "rows";
    }
    if (!is_factor(call->op->param[SLOPE])) {
        return "slope";
    }
    if (!is_factor(call->op->param[TOP])) {
        return "top";
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

/* Run by run, so that no element asks where it lies. */
void qfw_find_absmax(const qfw_kernels *kernels, const qfw_operand *x)
{
    if (x->absmax == NULL) {
        return;
    }
    const qfw_layout *l = &x->t.layout;
    const ptrdiff_t groups = qfw_groups(l), row = l->axis * l->inner;
    memset(x->absmax, 0, (size_t)x->scales * sizeof *x->absmax);
    for (ptrdiff_t o = 0; o < l->outer; o++) {
        const int32_t *codes = (const int32_t *)x->t.codes + o * row;
        uint32_t *absmax = x->absmax + (l->shared != 0 ? 0 : o * groups);
        if (groups == row) { /* an element each */
            for (ptrdiff_t i = 0; i < row; i++) {
                const uint32_t size = qfw_abs32(codes[i]);
                absmax[i] = size > absmax[i] ? size : absmax[i];
            }
            continue;
        }
        for (ptrdiff_t g = 0, i = 0; g < groups; g++) {
            const ptrdiff_t end = qfw_group_end(l, g);
            const uint32_t most = QFW_K(kernels, absmax_s32)(codes + i, (size_t)(end - i));
            absmax[g] = most > absmax[g] ? most : absmax[g];
            i = end;
        }
    }
}

/* With slope 0 a negative zero or a NaN becomes 0. */
static void relu_f32(const float *x, ptrdiff_t n, float slope, float top, float *y)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const float held = top != 0.0f && x[i] > top ? top : x[i];
        y[i] = x[i] > 0.0f ? held : slope != 0.0f ? x[i] * slope : 0.0f;
    }
}

/* The largest code of a scale: that of the top, or none. */
static int32_t most_at(float top, float scale)
{
    const uint32_t most = top != 0.0f ? qfw_units_of(top, scale) : INT32_MAX;
    return most < INT32_MAX ? (int32_t)most : INT32_MAX;
}

static inline int32_t bent(int32_t v, const qfw_num *slope, int32_t most)
{
    return v <= 0 ? qfw_scaled(v, slope) : v < most ? v : most;
}

/* Accumulators, some columns at a time: where rows share scales, these are looked at once. */
static void relu_sums(const qfw_call *call, const qfw_num *slope, float top)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const qfw_layout *l = &src->t.layout;
    const ptrdiff_t row = l->axis * l->inner;
    int32_t most[QFW_TILE];
    for (ptrdiff_t at = 0; at < row; at += QFW_TILE) {
        const size_t n = row - at < QFW_TILE ? (size_t)(row - at) : QFW_TILE;
        for (ptrdiff_t o = 0; o < l->outer; o++) {
            const ptrdiff_t first = o * row + at;
            for (size_t k = 0; k < n && (o == 0 || l->shared == 0);) {
                const qfw_run run = qfw_run_at(l, first + (ptrdiff_t)k);
                const int32_t here = most_at(top, src->t.scale[run.scale]);
                for (ptrdiff_t i = 0; i < run.n && k < n; i++) {
                    most[k++] = here;
                }
            }
            const int32_t *x = (const int32_t *)src->t.codes + first;
            int32_t *y = (int32_t *)dst->t.codes + first;
            for (size_t k = 0; k < n && slope->mant == 0; k++) {
                const int32_t v = x[k] > 0 ? x[k] : 0;
                y[k] = v < most[k] ? v : most[k];
            }
            for (size_t k = 0; k < n && slope->mant != 0; k++) {
                y[k] = bent(x[k], slope, most[k]);
            }
        }
    }
}

/* A run of codes. */
static void relu_run(const qfw_call *call, qfw_run run, const qfw_num *slope, int32_t most)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const int32_t zp = qfw_is_asym(dst->plan->kind) ? dst->t.zero_point[run.scale] : 0;
    int32_t m[QFW_TILE], lo, hi;
    qfw_code_range(&dst->t.format, &lo, &hi);
    for (ptrdiff_t i = 0; i < run.n; i += QFW_TILE) {
        const size_t n = run.n - i < QFW_TILE ? (size_t)(run.n - i) : QFW_TILE;
        qfw_load_codes(&src->t, run.first + i, n, run.scale, m);
        for (size_t k = 0; k < n; k++) {
            const int32_t v = bent(m[k], slope, most);
            m[k] = (v > lo - zp ? v : lo - zp) + zp;
        }
        qfw_store_codes(&dst->t, run.first + i, n, m);
    }
}

static void relu_codes(const qfw_call *call, const qfw_num *slope, float top)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    if (dst->plan->container == 0 && dst->t.codes != src->t.codes) { /* after the last code */
        ((uint8_t *)dst->t.codes)[qfw_codes_bytes(dst) - 1] = 0;
    }
    for (ptrdiff_t scale = 0; scale < src->scales; scale++) {
        const int32_t most = most_at(top, src->t.scale[scale]);
        for (ptrdiff_t r = 0; r < qfw_runs_per_scale(&src->t.layout); r++) {
            relu_run(call, qfw_run_of(&src->t.layout, scale, r), slope, most);
        }
    }
}

qfw_status qfw_op_relu(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const float slope = qfw_param_f32(call->op, SLOPE), top = qfw_param_f32(call->op, TOP);
    if (dst->plan->kind == QFW_FLOAT32) {
        relu_f32(src->t.codes, dst->n, slope, top, dst->t.codes);
        return QFW_OK;
    }
    const qfw_num factor = qfw_num_f32(slope);
    carry_scales(src, dst);
    if (dst->absmax != NULL) {
        relu_sums(call, &factor, top);
        qfw_find_absmax(call->kernels, dst);
    } else {
        relu_codes(call, &factor, top);
    }
    return QFW_OK;
}

/* ---- mask: an error passes where a wire's code is > 0, and below param[2] unless that is 0; or,
 * param[0] = 1, inside its range. Elsewhere it is multiplied by param[1] ---- */

/* Whether an error is stored in codes, which no slope can be applied to. */
static bool is_codes(const qfw_operand *error)
{
    return error->plan->kind != QFW_FLOAT32 && error->plan->bits != 32;
}

const char *qfw_rule_mask(const qfw_call *call)
{
    const uint32_t *param = call->op->param;
    if (call->at[0].n != call->at[1].n || call->at[0].plan->rows == QFW_NO_ROWS ||
        call->at[1].plan->rows == QFW_NO_ROWS) {
        return "the sizes differ";
    }
    if (param[0] > 1 || (param[0] == 1 && (param[1] | param[2]) != 0)) {
        return "mode";
    }
    if (param[1] != 0 && is_codes(&call->at[0])) {
        return "slope";
    }
    return !is_factor(param[1]) ? "slope" : is_factor(param[2]) ? NULL : "top";
}

/* pass[i]: whether element first + i lets an error through. */
static void passes(const qfw_operand *wire, ptrdiff_t first, size_t n, const qfw_gate *gate,
                   bool *pass)
{
    int32_t m[QFW_TILE], lo, hi;
    if (wire->plan->kind == QFW_FLOAT32) {
        const float *y = (const float *)wire->t.codes + first;
        for (size_t i = 0; i < n; i++) {
            pass[i] = gate->inside || (y[i] > 0.0f && (gate->top == 0.0f || y[i] < gate->top));
        }
        return;
    }
    qfw_code_range(&wire->t.format, &lo, &hi);
    for (size_t i = 0; i < n;) {
        const qfw_run run = qfw_run_at(&wire->t.layout, first + (ptrdiff_t)i);
        const size_t end = run.n < (ptrdiff_t)(n - i) ? i + (size_t)run.n : n;
        const int32_t zp = qfw_is_asym(wire->plan->kind) ? wire->t.zero_point[run.scale] : 0;
        const uint32_t most =
            gate->top != 0.0f ? qfw_units_of(gate->top, wire->t.scale[run.scale]) : UINT32_MAX;
        qfw_load_codes(&wire->t, run.first, end - i, run.scale, m + i);
        for (; i < end; i++) {
            pass[i] =
                gate->inside ? m[i] + zp > lo && m[i] + zp < hi : m[i] > 0 && (uint32_t)m[i] < most;
        }
    }
}

/* What does not pass, times the slope; times 0 it is +0 whatever its sign. */
static void mask_floats(float *e, const bool *pass, size_t n, float slope)
{
    for (size_t k = 0; k < n; k++) {
        const float low = slope != 0.0f ? e[k] * slope : 0.0f;
        e[k] = pass[k] ? e[k] : low;
    }
}

static void mask_sums(int32_t *e, const bool *pass, size_t n, const qfw_num *slope)
{
    for (size_t k = 0; k < n && slope->mant == 0; k++) {
        e[k] = pass[k] ? e[k] : 0;
    }
    for (size_t k = 0; k < n && slope->mant != 0; k++) {
        e[k] = pass[k] ? e[k] : qfw_scaled(e[k], slope);
    }
}

static bool is_bytes(const qfw_operand *x)
{
    return x->plan->kind == QFW_SYM && qfw_slot(&x->t.format) == 8;
}

/* Codes of the value 0 from element `first` on, in whatever slots. */
static void mask_codes(const qfw_operand *error, const bool *pass, size_t n, ptrdiff_t first)
{
    int8_t *bytes = is_bytes(error) ? (int8_t *)error->t.codes + first : NULL;
    for (size_t k = 0; k < n && bytes != NULL; k++) {
        bytes[k] = pass[k] ? bytes[k] : 0;
    }
    for (size_t k = 0; k < n && bytes == NULL; k++) {
        const ptrdiff_t at = first + (ptrdiff_t)k, scale = qfw_run_at(&error->t.layout, at).scale;
        const int32_t zero = qfw_is_asym(error->plan->kind) ? error->t.zero_point[scale] : 0;
        if (!pass[k]) {
            qfw_store_codes(&error->t, at, 1, &zero);
        }
    }
}

/* Bytes of an error that pass where those of a wire are above 0. */
static void mask_bytes(int8_t *e, const int8_t *wire, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        e[i] = (int8_t)(e[i] & -(wire[i] > 0));
    }
}

/* Floats that pass where those of a wire are above 0, which a NaN is not. */
static void mask_words(uint32_t *e, const float *wire, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        e[i] &= wire[i] > 0.0f ? UINT32_MAX : 0;
    }
}

void qfw_apply_mask(const qfw_kernels *kernels, const qfw_operand *error, const qfw_operand *wire,
                    const qfw_gate *gate)
{
    if (is_bytes(error) && is_bytes(wire) && !gate->inside && gate->top == 0.0f) {
        mask_bytes(error->t.codes, wire->t.codes, error->n);
        return;
    }
    if (!QFW_DIRECT && error->plan->kind == QFW_FLOAT32 && wire->plan->kind == QFW_FLOAT32 &&
        !gate->inside && gate->top == 0.0f && gate->slope == 0.0f) {
        mask_words(error->t.codes, wire->t.codes, error->n);
        return;
    }
    const qfw_num slope = qfw_num_f32(gate->slope);
    bool pass[QFW_TILE];
    for (ptrdiff_t i = 0; i < error->n; i += QFW_TILE) {
        const size_t n = error->n - i < QFW_TILE ? (size_t)(error->n - i) : QFW_TILE;
        passes(wire, i, n, gate, pass);
        if (error->plan->kind == QFW_FLOAT32) {
            mask_floats((float *)error->t.codes + i, pass, n, gate->slope);
        } else if (is_codes(error)) {
            mask_codes(error, pass, n, i);
        } else {
            mask_sums((int32_t *)error->t.codes + i, pass, n, &slope);
        }
    }
    qfw_find_absmax(kernels, error);
}

qfw_status qfw_op_mask(const qfw_call *call)
{
    const qfw_gate gate = {call->op->param[0] == 1, qfw_param_f32(call->op, 1),
                           qfw_param_f32(call->op, 2)};
    qfw_apply_mask(call->kernels, &call->at[0], &call->at[1], &gate);
    return QFW_OK;
}
