/* Rows normalised, and what their backward needs (docs/numerics.md section 20).
 *
 * normalize_s32:       accumulators, x, gamma, beta, scratch (5 bytes a column, for beta)
 * normalize_back_s32:  accumulators, g, x
 * columns_s32:         accumulators, a, b: every row of a times b
 * normalize_f32:       y, x, gamma, beta
 * normalize_back_f32:  dx, error, x, gamma
 * param[0]: F; param[1]: eps, a float; param[2]: k; param[3]: matrix rows in a row of the step.
 * flags: 1 ReLU. */
#include "kernels/normalize.h"
#include "base/layout.h"
#include "base/round.h"
#include "engine/engine.h"
#include "kernels/codes.h"

enum { RELU = 1 };
enum { FRAC = 0, EPS, DOWN, POSITIONS };

/* Rows and elements of a row. */
typedef struct {
    int64_t m, n;
} sizes;

static sizes sizes_of(const qfw_call *call)
{
    const int64_t positions = call->op->param[POSITIONS] != 0 ? call->op->param[POSITIONS] : 1;
    const sizes s = {call->rows * positions, call->at[0].row / positions};
    return s;
}

/* Places 0 to `last` are m x n with rows; places after that, up to 3, have n elements. */
static const char *sizes_fault(const qfw_call *call, int last)
{
    const sizes s = sizes_of(call);
    for (int i = 0; i <= 3; i++) {
        const qfw_operand *x = &call->at[i];
        const bool rows = i <= last;
        if (qfw_has(call, i) &&
            (x->n != (rows ? s.m * s.n : s.n) || (x->plan->rows != QFW_NO_ROWS) != rows)) {
            return "the sizes differ";
        }
    }
    return s.n > QFW_NORM_MAX ? "rows are too long" : NULL;
}

static const char *eps_fault(const qfw_call *call)
{
    const uint32_t eps = call->op->param[EPS];
    return eps <= QFW_F32_MAX && (eps == 0 || eps >= QFW_F32_MIN_NORMAL) ? NULL : "eps";
}

/* One scale, or one for each matrix row. */
static const char *row_fault(const qfw_operand *x, sizes s)
{
    const bool one = x->plan->rows == QFW_ROWS_AXIS;
    return one || (qfw_by_rows(x) && qfw_has_row_scales(x, s.m, s.n)) ? NULL
                                                                      : "more than a scale a row";
}

static uint64_t largest(const qfw_operand *x)
{
    return (UINT64_C(1) << (x->plan->bits - 1)) - 1;
}

/* The smallest r with r^2 >= n. */
static uint64_t ceil_sqrt(uint64_t n)
{
    const uint64_t r = qfw_isqrt(n);
    return r * r < n ? r + 1 : r;
}

static qfw_row_codes row_at(const qfw_operand *x, sizes s, int64_t row)
{
    const int32_t width = qfw_slot(&x->t.format);
    const qfw_row_codes codes = {(const uint8_t *)x->t.codes + row * s.n * (width / 8), width};
    return codes;
}

static float scale_at(const qfw_operand *x, int64_t row)
{
    return x->t.scale[x->scales == 1 ? 0 : row];
}

/* The row of x, its statistics included. */
static qfw_norm_row norm_row(const qfw_call *call, const qfw_operand *x, sizes s, int64_t row)
{
    const uint64_t eps = qfw_norm_eps(qfw_param_f32(call->op, EPS), scale_at(x, row), (size_t)s.n);
    return qfw_norm_row_of(row_at(x, s, row), (size_t)s.n, eps, (int32_t)call->op->param[FRAC]);
}

/* ---- forward ---- */

static bool has_columns(const qfw_call *call)
{
    return qfw_has(call, 3) || (qfw_has(call, 2) && call->at[2].scales != 1);
}

const char *qfw_rule_normalize_s32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 1);
    broken = broken != NULL ? broken : eps_fault(call);
    if (broken != NULL) {
        return broken;
    }
    const sizes s = sizes_of(call);
    broken = row_fault(&call->at[1], s);
    broken =
        broken != NULL ? broken : qfw_acc_fault(&call->at[0], s.m, s.n, false, has_columns(call));
    if (broken != NULL) {
        return broken;
    }
    const uint64_t a = qfw_has(call, 2) ? largest(&call->at[2]) : 1;
    const uint32_t frac = call->op->param[FRAC];
    if (frac > 24 || ((ceil_sqrt((uint64_t)s.n - 1) << frac) + 1) * a > UINT64_C(1) << 29) {
        return "headroom";
    }
    const bool scratch = qfw_has(call, 4) ? call->at[4].n >= 5 * s.n : !qfw_has(call, 3);
    return scratch ? NULL : "scratch";
}

/* A row of h, times gamma where there is one. */
static void normalize_row(const qfw_norm_row *row, const qfw_operand *gamma, int32_t *acc)
{
    int32_t m[QFW_TILE];
    qfw_norm_codes(row, 0, row->n, acc);
    for (size_t i = 0; gamma != NULL && i < row->n; i += QFW_TILE) {
        const size_t n = row->n - i < QFW_TILE ? row->n - i : QFW_TILE;
        qfw_load_codes(&gamma->t, (int64_t)i, n, 0, m);
        for (size_t k = 0; k < n; k++) {
            acc[i + k] *= m[k];
        }
    }
}

qfw_status qfw_op_normalize_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *x = &call->at[1], *beta = &call->at[3];
    const qfw_operand *gamma = qfw_has(call, 2) ? &call->at[2] : NULL;
    const sizes s = sizes_of(call);
    if (gamma != NULL && !qfw_codes_in_range(gamma)) {
        return QFW_E_RANGE;
    }
    if (qfw_has(call, 3) && beta->plan->kind == QFW_FLOAT32) {
        QFW_TRY(qfw_check_finite(call->kernels, beta->t.codes, (size_t)beta->n, QFW_F32));
    }
    for (int64_t r = 0; r < s.m; r++) {
        const qfw_norm_row row = norm_row(call, x, s, r);
        normalize_row(&row, gamma, (int32_t *)acc->t.codes + r * s.n);
    }
    const float unit = qfw_scale_lift(1.0f, -(int32_t)call->op->param[FRAC]);
    for (int64_t j = 0; j < acc->scales; j++) {
        const int64_t at = gamma == NULL ? 0 : qfw_run_at(&gamma->t.layout, j).scale;
        acc->t.scale[j] = gamma == NULL ? unit : qfw_scale_mul(unit, gamma->t.scale[at]);
    }
    qfw_finish f = {NULL, NULL,       (call->op->flags & RELU) != 0, has_columns(call), NULL,
                    0,    acc->absmax};
    if (qfw_has(call, 3)) {
        int32_t *seed = call->at[4].t.codes;
        uint8_t *shift = (uint8_t *)(seed + s.n);
        qfw_seed_columns(beta, acc->t.scale, s.n, seed, shift);
        f.seed = seed;
        f.shift = shift;
    }
    memset(acc->absmax, 0, (size_t)acc->scales * sizeof *acc->absmax);
    call->kernels->finish_s32(acc->t.codes, (size_t)s.m, (size_t)s.n, &f);
    return QFW_OK;
}

/* ---- backward ---- */

const char *qfw_rule_normalize_back_s32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 2);
    broken = broken != NULL ? broken : eps_fault(call);
    if (broken != NULL) {
        return broken;
    }
    const sizes s = sizes_of(call);
    broken = row_fault(&call->at[1], s);
    broken = broken != NULL ? broken : row_fault(&call->at[2], s);
    broken = broken != NULL ? broken : qfw_acc_fault(&call->at[0], s.m, s.n, true, false);
    if (broken != NULL) {
        return broken;
    }
    const uint64_t n = (uint64_t)s.n, most = 128 * n * ceil_sqrt(n) * largest(&call->at[1]);
    const uint32_t frac = call->op->param[FRAC], down = call->op->param[DOWN];
    return frac >= 6 && frac <= 16 && down <= 31 && most <= UINT64_C(1) << (30 + down) ? NULL
                                                                                       : "headroom";
}

qfw_status qfw_op_normalize_back_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *g = &call->at[1], *x = &call->at[2];
    const sizes s = sizes_of(call);
    const int32_t down = (int32_t)call->op->param[DOWN];
    for (int64_t r = 0; r < s.m; r++) {
        const qfw_norm_row row = norm_row(call, x, s, r);
        int32_t *acc_r = (int32_t *)acc->t.codes + r * s.n;
        qfw_norm_back(&row, row_at(g, s, r), down, acc_r);
        const float ratio = qfw_scale_quot(scale_at(g, r), scale_at(x, r));
        const float scale = qfw_scale_mul(ratio, (float)(int32_t)row.root.rho);
        acc->t.scale[r] = qfw_scale_lift(scale, down - 6 + row.root.exp);
        acc->absmax[r] = call->kernels->absmax_s32(acc_r, (size_t)s.n);
    }
    return QFW_OK;
}

const char *qfw_rule_columns_s32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 1);
    const sizes s = sizes_of(call);
    broken = broken != NULL ? broken : row_fault(&call->at[1], s);
    return broken != NULL ? broken
                          : qfw_acc_fault(&call->at[0], s.m, s.n, qfw_by_rows(&call->at[1]),
                                          call->at[2].scales != 1);
}

/* |a|, |b| <= 2^15. */
qfw_status qfw_op_columns_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *a = &call->at[1], *b = &call->at[2];
    const sizes s = sizes_of(call);
    const int64_t wide = b->scales == 1 ? 1 : s.n;
    int32_t m[QFW_TILE], *out = acc->t.codes;
    for (int64_t i = 0; i < s.m * s.n;) {
        const int64_t column = i % s.n, left = s.n - column;
        const size_t n = left < QFW_TILE ? (size_t)left : QFW_TILE;
        qfw_load_codes(&a->t, i, n, 0, out + i);
        qfw_load_codes(&b->t, column, n, 0, m);
        for (size_t k = 0; k < n; k++) {
            out[i + (int64_t)k] *= m[k];
        }
        i += (int64_t)n;
    }
    for (int64_t i = 0; i < acc->scales; i++) {
        const int64_t at = wide == 1 ? 0 : qfw_run_at(&b->t.layout, i % wide).scale;
        acc->t.scale[i] = qfw_scale_mul(scale_at(a, i / wide), b->t.scale[at]);
    }
    qfw_find_absmax(acc);
    return QFW_OK;
}

/* ---- floats ---- */

static qfw_norm_f32 norm_of(const qfw_call *call, int gamma, int beta)
{
    const qfw_norm_f32 norm = {
        qfw_has(call, gamma) ? call->at[gamma].t.codes : NULL,
        beta >= 0 && qfw_has(call, beta) ? call->at[beta].t.codes : NULL,
        (size_t)sizes_of(call).n,
        qfw_param_f32(call->op, EPS),
    };
    return norm;
}

const char *qfw_rule_normalize_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 1);
    return broken != NULL ? broken : eps_fault(call);
}

qfw_status qfw_op_normalize_f32(const qfw_call *call)
{
    const qfw_norm_f32 norm = norm_of(call, 2, 3);
    const float *x = call->at[1].t.codes;
    float *y = call->at[0].t.codes;
    for (int64_t r = 0; r < sizes_of(call).m; r++) {
        qfw_norm_row_f32(&norm, x + r * (int64_t)norm.n, y + r * (int64_t)norm.n);
    }
    for (int64_t i = 0; (call->op->flags & RELU) != 0 && i < call->at[0].n; i++) {
        y[i] = y[i] > 0.0f ? y[i] : 0.0f;
    }
    return QFW_OK;
}

const char *qfw_rule_normalize_back_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 2);
    return broken != NULL ? broken : eps_fault(call);
}

qfw_status qfw_op_normalize_back_f32(const qfw_call *call)
{
    const qfw_norm_f32 norm = norm_of(call, 3, -1);
    const float *e = call->at[1].t.codes, *x = call->at[2].t.codes;
    float *dx = call->at[0].t.codes;
    for (int64_t r = 0; r < sizes_of(call).m; r++) {
        const int64_t at = r * (int64_t)norm.n;
        qfw_norm_back_f32(&norm, x + at, e + at, dx + at);
    }
    return QFW_OK;
}
