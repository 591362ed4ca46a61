/* Factors of columns. Those of a normalisation whose statistics are known, y = a x + b, are floats
 * (docs/numerics.md section 36); those of an error on its way back are codes (section 20).
 *
 * fold_norm:    a, b, running mean, running variance, gamma, beta; param[1]: eps, a float
 * fold_s32:     accumulators, codes or the accumulators themselves, a, b, scratch (5 bytes a column)
 * fold_f32:     y, x or y itself, a, b
 * columns_s32:  accumulators, a, b: every row of a times b
 * param[3]: matrix rows in a row of the step. flags: 1 ReLU. */
#include <math.h>

#include "base/layout.h"
#include "base/round.h"
#include "engine/lasting.h"
#include "engine/norm.h"
#include "kernels/codes.h"

enum { RELU = 1 };
enum { EPS = 1, POSITIONS = 3 };
enum { LIFTED = 30 }; /* bits of codes that a bias is added to */

typedef struct {
    ptrdiff_t m, n;
} sizes;

static sizes sizes_of(const qfw_call *call)
{
    const ptrdiff_t positions = qfw_positions_of(call->op, POSITIONS);
    const sizes s = {qfw_times(call->rows, positions), call->at[0].row / positions};
    return s;
}

/* ---- the coefficients ---- */

const char *qfw_rule_fold_norm(const qfw_call *call)
{
    for (int i = 0; i < 6; i++) {
        const qfw_operand *x = &call->at[i];
        if (qfw_has(call, i) && (x->n != call->at[0].n || x->plan->rows != QFW_NO_ROWS)) {
            return "the sizes differ";
        }
    }
    return qfw_norm_eps_fault(call, EPS);
}

qfw_status qfw_op_fold_norm(const qfw_call *call)
{
    const float *mean = call->at[2].t.codes, *variance = call->at[3].t.codes;
    const float eps = qfw_param_f32(call->op, EPS);
    float *a = call->at[0].t.codes, *b = call->at[1].t.codes;
    const size_t n = (size_t)call->at[0].n;
    for (size_t i = 0; i < n; i++) {
        const float gamma = qfw_has(call, 4) ? qfw_value_at(&call->at[4], (ptrdiff_t)i) : 1.0f;
        const float beta = qfw_has(call, 5) ? qfw_value_at(&call->at[5], (ptrdiff_t)i) : 0.0f;
        a[i] = qfw_div_f32(gamma, sqrtf(variance[i] + eps));
        b[i] = beta - mean[i] * a[i];
    }
    QFW_TRY(qfw_finite_f32(call->kernels, a, n));
    return qfw_finite_f32(call->kernels, b, n);
}

/* ---- integers ---- */

static bool is_sums(const qfw_operand *x)
{
    return x->plan->bits == 32;
}

/* Whether every matrix row has scales of its own. */
static bool by_row(const qfw_call *call)
{
    return qfw_by_rows(&call->at[1]);
}

static const char *sizes_fault(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    for (int i = 0; i <= 3; i++) {
        const qfw_operand *x = &call->at[i];
        const bool rows = i <= 1;
        if (qfw_has(call, i) && (x->n != (rows ? qfw_times(s.m, s.n) : s.n) ||
                                 (x->plan->rows != QFW_NO_ROWS) != rows)) {
            return "the sizes differ";
        }
    }
    return NULL;
}

/* Codes have one scale, or one for each matrix row. */
static const char *scales_fault(const qfw_call *call)
{
    const qfw_operand *x = &call->at[1];
    const sizes s = sizes_of(call);
    return x->plan->rows == QFW_ROWS_AXIS || (by_row(call) && qfw_has_row_scales(x, s.m, s.n))
               ? NULL
               : "more than a scale a row";
}

const char *qfw_rule_fold_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const char *broken = sizes_fault(call);
    if (broken == NULL && is_sums(&call->at[1])) {
        broken = call->at[0].plan == call->at[1].plan ? NULL : "other accumulators";
    } else {
        broken = broken != NULL ? broken : scales_fault(call);
    }
    broken = broken != NULL ? broken : qfw_acc_fault(&call->at[0], s.m, s.n, by_row(call), true);
    if (broken != NULL) {
        return broken;
    }
    const bool scratch = qfw_has(call, 4) ? call->at[4].n >= 5 * s.n : !qfw_has(call, 3);
    return scratch ? NULL : "scratch";
}

/* The scale of x at row `i`, column j. */
static float scale_at(const qfw_operand *x, sizes s, ptrdiff_t i, ptrdiff_t j)
{
    if (is_sums(x)) {
        return x->t.scale[x->t.layout.shared != 0 ? j : i * s.n + j];
    }
    return x->t.scale[x->scales == 1 ? 0 : i];
}

/* Codes as accumulators: with room below for a bias, which is added at their scale. */
static void load(const qfw_call *call, ptrdiff_t first, ptrdiff_t n)
{
    const qfw_operand *x = &call->at[1];
    const int32_t up = qfw_has(call, 3) ? LIFTED - x->plan->bits : 0;
    int32_t *acc = (int32_t *)call->at[0].t.codes + first;
    for (ptrdiff_t i = 0; i < n; i += QFW_TILE) {
        const size_t some = (size_t)qfw_shorter(n - i, QFW_TILE);
        qfw_load_codes(&x->t, first + i, some, 0, acc + i);
        for (size_t k = 0; k < some; k++) {
            acc[i + (ptrdiff_t)k] *= 1 << up;
        }
    }
}

/* Signs of the columns, for rows of accumulators. */
static void turn(const float *a, int32_t *acc, ptrdiff_t rows, ptrdiff_t n)
{
    bool all = true;
    for (ptrdiff_t j = 0; j < n; j++) {
        all = all && a[j] > 0.0f;
    }
    for (ptrdiff_t i = 0; !all && i < rows; i++) {
        for (ptrdiff_t j = 0; j < n; j++) {
            const int32_t v = acc[i * n + j];
            acc[i * n + j] = a[j] > 0.0f ? v : a[j] < 0.0f ? -v : 0;
        }
    }
}

/* Seeds of columns whose accumulators reach up to absmax: those of 2^30 and more make room. */
static void seed(const qfw_call *call, ptrdiff_t n, float *sigma, const uint32_t *absmax,
                 qfw_finish *f)
{
    int32_t *seeds = call->at[4].t.codes;
    uint8_t *shifts = (uint8_t *)(seeds + n);
    for (ptrdiff_t j = 0; j < n; j++) {
        sigma[j] = qfw_scale_lift(sigma[j], absmax[j] >> 30 != 0 ? 1 : 0);
    }
    qfw_seed_columns(call->kernels, &call->at[3], sigma, n, seeds, shifts);
    for (ptrdiff_t j = 0; j < n; j++) {
        if (absmax[j] >> 30 != 0 && shifts[j] < 31) {
            shifts[j]++;
        }
    }
    f->seed = seeds;
    f->shift = shifts;
}

/* Rows that share scales, from row `i` on. |v| < 2^30 where a seed below 2^30 is added. */
static void fold_rows(const qfw_call *call, ptrdiff_t i, ptrdiff_t rows)
{
    const qfw_operand *acc = &call->at[0], *x = &call->at[1];
    const float *a = call->at[2].t.codes;
    const sizes s = sizes_of(call);
    const ptrdiff_t at = by_row(call) ? i * s.n : 0;
    const bool biased = qfw_has(call, 3);
    const int32_t up = biased && !is_sums(x) ? LIFTED - x->plan->bits : 0;
    int32_t *sums = (int32_t *)acc->t.codes + i * s.n;
    qfw_finish f = {NULL, NULL, (call->op->flags & RELU) != 0, true, NULL, 0, acc->absmax + at};
    if (!is_sums(x)) {
        load(call, i * s.n, rows * s.n);
        memset(f.absmax, 0, (size_t)s.n * sizeof *f.absmax);
    }
    for (ptrdiff_t j = 0; j < s.n; j++) {
        const float size = a[j] > 0.0f ? a[j] : a[j] < 0.0f ? -a[j] : 1.0f;
        acc->t.scale[at + j] = qfw_scale_lift(qfw_scale_mul(scale_at(x, s, i, j), size), -up);
    }
    turn(a, sums, rows, s.n);
    if (biased) {
        seed(call, s.n, acc->t.scale + at, f.absmax, &f);
    }
    memset(f.absmax, 0, (size_t)s.n * sizeof *f.absmax);
    QFW_K(call->kernels, finish_s32)(sums, (size_t)rows, (size_t)s.n, &f);
}

qfw_status qfw_op_fold_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const ptrdiff_t rows = by_row(call) ? 1 : s.m;
    for (int i = 2; i <= 3; i++) {
        const qfw_operand *c = &call->at[i];
        if (qfw_has(call, i)) {
            QFW_TRY(qfw_finite_f32(call->kernels, c->t.codes, (size_t)c->n));
        }
    }
    for (ptrdiff_t i = 0; i < s.m; i += rows) {
        fold_rows(call, i, rows);
    }
    return QFW_OK;
}

/* ---- codes as factors ---- */

const char *qfw_rule_columns_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const char *broken = sizes_fault(call);
    broken = broken != NULL ? broken : s.n > QFW_NORM_MAX ? "rows are too long" : NULL;
    broken = broken != NULL ? broken : scales_fault(call);
    return broken != NULL
               ? broken
               : qfw_acc_fault(&call->at[0], s.m, s.n, by_row(call), call->at[2].scales != 1);
}

/* |a|, |b| <= 2^15. */
qfw_status qfw_op_columns_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *a = &call->at[1], *b = &call->at[2];
    const sizes s = sizes_of(call);
    const ptrdiff_t wide = b->scales == 1 ? 1 : s.n, blocks = by_row(call) ? s.m : 1;
    const int32_t width = qfw_slot(&a->t.format);
    const size_t rows = (size_t)s.m, row = (size_t)s.n;
    int32_t m[QFW_TILE], *out = acc->t.codes;
    memset(out, 0, (size_t)acc->n * sizeof *out);
    for (ptrdiff_t j = 0; j < s.n; j += QFW_TILE) {
        const uint8_t *first = (const uint8_t *)a->t.codes + j * (width / 8);
        const size_t n = (size_t)qfw_shorter(s.n - j, QFW_TILE);
        const qfw_lines lines = {first, width, 32, n, rows, row, row};
        qfw_load_codes(&b->t, j, n, 0, m);
        QFW_K(call->kernels, lines_s32)(&lines, m, out + j);
    }
    for (ptrdiff_t i = 0; i < blocks && b->scales == wide; i++) { /* one each, in order */
        qfw_scales_mul(scale_at(a, s, i, 0), b->t.scale, (size_t)wide, acc->t.scale + i * wide);
    }
    for (ptrdiff_t i = 0; i < acc->scales && b->scales != wide; i++) {
        const ptrdiff_t at = qfw_run_at(&b->t.layout, i % wide).scale;
        acc->t.scale[i] = qfw_scale_mul(scale_at(a, s, i / wide, 0), b->t.scale[at]);
    }
    memset(acc->absmax, 0, (size_t)acc->scales * sizeof *acc->absmax);
    for (ptrdiff_t i = 0; i < blocks; i++) {
        const qfw_finish f = {NULL, NULL, false, wide != 1, NULL, 0, acc->absmax + i * wide};
        QFW_K(call->kernels, finish_s32)(out + i * s.n, rows / (size_t)blocks, row, &f);
    }
    return QFW_OK;
}

/* ---- floats ---- */

const char *qfw_rule_fold_f32(const qfw_call *call)
{
    return sizes_fault(call);
}

qfw_status qfw_op_fold_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const float *x = call->at[1].t.codes, *a = call->at[2].t.codes;
    const float *b = qfw_has(call, 3) ? call->at[3].t.codes : NULL;
    const bool relu = (call->op->flags & RELU) != 0;
    float *y = call->at[0].t.codes;
    for (ptrdiff_t i = 0; i < s.m; i++, x += s.n, y += s.n) {
        for (ptrdiff_t j = 0; j < s.n; j++) {
            const float v = b != NULL ? x[j] * a[j] + b[j] : x[j] * a[j];
            y[j] = relu && !(v > 0.0f) ? 0.0f : v;
        }
    }
    return QFW_OK;
}
