/* Rows normalised, and what their backward needs (docs/numerics.md sections 20 and 36).
 *
 * normalize_s32:       accumulators, x, gamma, beta, scratch (5 bytes a column, for beta)
 * normalize_back_s32:  accumulators, g, x
 * normalize_f32:       y, x, gamma, beta
 * normalize_back_f32:  dx, error, x, gamma
 * param[0]: F; param[1]: eps, a float; param[2]: k; param[3]: matrix rows in a row of the step;
 * param[4]: 0 each matrix row is normalised, else groups of columns over those of a row of the step.
 * flags: 1 ReLU. */
#include "kernels/normalize.h"
#include "base/layout.h"
#include "base/round.h"
#include "engine/engine.h"
#include "engine/norm.h"
#include "kernels/codes.h"

enum { RELU = 1 };
enum { FRAC = 0, EPS, DOWN, POSITIONS, GROUPS };

/* The matrix, m x n, and the rows that are normalised: `rows` of them, `groups` side by side, those
 * `block` elements before the next. */
typedef struct {
    ptrdiff_t m, n, rows, groups, block;
    qfw_row_shape shape;
} sizes;

static sizes sizes_of(const qfw_call *call)
{
    const ptrdiff_t positions = qfw_positions_of(call->op, POSITIONS);
    const ptrdiff_t row = call->at[0].row, n = row / positions,
                    m = qfw_times(call->rows, positions);
    const ptrdiff_t groups = qfw_param_size(call->op, GROUPS);
    const qfw_row_shape whole = {1, (size_t)n, (size_t)n};
    if (groups == 0) {
        const sizes s = {m, n, m, 1, n, whole};
        return s;
    }
    const qfw_row_shape part = {(size_t)positions, (size_t)(n / groups), (size_t)n};
    const sizes s = {m, n, qfw_times(call->rows, groups), groups, row, part};
    return s;
}

/* Places 0 to `last` are m x n with rows; places after that, up to 3, have n elements. */
static const char *sizes_fault(const qfw_call *call, int last)
{
    const sizes s = sizes_of(call);
    for (int i = 0; i <= 3; i++) {
        const qfw_operand *x = &call->at[i];
        const bool rows = i <= last;
        if (qfw_has(call, i) && (x->n != (rows ? qfw_times(s.m, s.n) : s.n) ||
                                 (x->plan->rows != QFW_NO_ROWS) != rows)) {
            return "the sizes differ";
        }
    }
    if (call->op->param[GROUPS] != 0) {
        return s.n % s.groups == 0 && s.n >= s.groups ? NULL : "groups";
    }
    return s.n > QFW_NORM_MAX ? "rows are too long" : NULL;
}

/* One scale, or one for each matrix row, if that is normalised alone. */
static const char *row_fault(const qfw_operand *x, sizes s)
{
    const bool one = x->plan->rows == QFW_ROWS_AXIS, alone = s.shape.pieces == 1;
    return one || (alone && qfw_by_rows(x) && qfw_has_row_scales(x, s.m, s.n))
               ? NULL
               : "more than a scale a row";
}

/* Where normalised row `row` begins. */
static ptrdiff_t offset_of(sizes s, ptrdiff_t row)
{
    return row / s.groups * s.block + row % s.groups * (ptrdiff_t)s.shape.wide;
}

static qfw_row_codes row_at(const qfw_operand *x, sizes s, ptrdiff_t row)
{
    const int32_t width = qfw_slot(&x->t.format);
    const qfw_row_codes codes = {(const uint8_t *)x->t.codes + offset_of(s, row) * (width / 8),
                                 width};
    return codes;
}

static float scale_at(const qfw_operand *x, ptrdiff_t row)
{
    return x->t.scale[x->scales == 1 ? 0 : row];
}

/* Elements further on. */
static qfw_row_codes after(qfw_row_codes x, size_t elements)
{
    const qfw_row_codes codes = {(const uint8_t *)x.codes + elements * (size_t)(x.width / 8),
                                 x.width};
    return codes;
}

/* eps of a row of x. */
static uint64_t eps_at(const qfw_call *call, const qfw_operand *x, sizes s, ptrdiff_t row)
{
    return qfw_norm_eps(qfw_param_f32(call->op, EPS), scale_at(x, row / s.groups),
                        qfw_row_length(&s.shape));
}

/* What normalises a row of x; `first` is eps of row 0, that of all where there is one scale. */
static qfw_norm_line norm_line(const qfw_call *call, const qfw_operand *x, sizes s, ptrdiff_t row,
                               uint64_t first)
{
    const size_t n = qfw_row_length(&s.shape);
    const qfw_row_codes codes = row_at(x, s, row);
    int32_t sum[QFW_CHANNELS];
    uint64_t squares[QFW_CHANNELS], all = 0;
    int64_t total = 0;
    qfw_columns at;
    for (size_t i = 0, taken; i < s.shape.wide; i += taken) {
        taken = qfw_norm_block(&s.shape, i, &at);
        QFW_K(call->kernels, norm_sums)(&at, after(codes, i), sum, squares);
        for (size_t j = 0; j < at.n; j++) {
            total += sum[j];
            all += squares[j];
        }
    }
    return qfw_norm_line_of(n, total, all, x->scales == 1 ? first : eps_at(call, x, s, row));
}

/* h of a row. */
static void norm_codes(const qfw_call *call, const qfw_norm_line *line, sizes s, qfw_row_codes x,
                       int32_t *acc)
{
    qfw_norm_lines lines;
    qfw_columns at;
    for (size_t j = 0; j < QFW_CHANNELS && j < s.shape.wide; j++) {
        qfw_norm_put_line(line, (int32_t)call->op->param[FRAC], 1, j, &lines);
    }
    for (size_t i = 0, taken; i < s.shape.wide; i += taken) {
        taken = qfw_norm_block(&s.shape, i, &at);
        QFW_K(call->kernels, norm_codes)(&at, after(x, i), &lines, acc + i);
    }
}

/* ---- forward ---- */

static bool has_columns(const qfw_call *call)
{
    return qfw_has(call, 3) || (qfw_has(call, 2) && call->at[2].scales != 1);
}

const char *qfw_rule_normalize_s32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 1);
    broken = broken != NULL ? broken : qfw_norm_eps_fault(call, EPS);
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
    const uint64_t a = qfw_has(call, 2) ? qfw_norm_most(&call->at[2]) : 1;
    const uint64_t length = qfw_row_length(&s.shape);
    if (!qfw_norm_fits(&call->at[1], length) || call->op->param[FRAC] > 24 ||
        qfw_norm_reach(length, call->op->param[FRAC]) * a > UINT64_C(1) << 29) {
        return "headroom";
    }
    const bool scratch = qfw_has(call, 4) ? call->at[4].n >= 5 * s.n : !qfw_has(call, 3);
    return scratch ? NULL : "scratch";
}

/* Rows times gamma, of which their first column is number `column`. */
static void times_gamma(const qfw_operand *gamma, sizes s, ptrdiff_t column, ptrdiff_t rows,
                        int32_t *acc)
{
    int32_t m[QFW_TILE];
    for (size_t i = 0; i < s.shape.wide; i += QFW_TILE) {
        const size_t n = s.shape.wide - i < QFW_TILE ? s.shape.wide - i : QFW_TILE;
        qfw_load_codes(&gamma->t, column + (ptrdiff_t)i, n, 0, m);
        for (size_t p = 0; p < (size_t)rows * s.shape.pieces; p++) {
            for (size_t k = 0; k < n; k++) {
                acc[p * s.shape.stride + i + k] *= m[k];
            }
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
        QFW_TRY(qfw_finite_f32(call->kernels, beta->t.codes, (size_t)beta->n));
    }
    const uint64_t eps = s.rows > 0 ? eps_at(call, x, s, 0) : 0;
    for (ptrdiff_t r = 0; r < s.rows; r++) {
        const qfw_norm_line line = norm_line(call, x, s, r, eps);
        int32_t *acc_r = (int32_t *)acc->t.codes + offset_of(s, r);
        norm_codes(call, &line, s, row_at(x, s, r), acc_r);
        if (gamma != NULL && s.groups > 1) {
            times_gamma(gamma, s, r % s.groups * (ptrdiff_t)s.shape.wide, 1, acc_r);
        }
    }
    if (gamma != NULL && s.groups == 1) {
        times_gamma(gamma, s, 0, s.rows, acc->t.codes);
    }
    const float unit = qfw_scale_lift(1.0f, -(int32_t)call->op->param[FRAC]);
    if (gamma != NULL && gamma->scales == acc->scales) { /* one each, in order */
        qfw_scales_mul(unit, gamma->t.scale, (size_t)gamma->scales, acc->t.scale);
    }
    for (ptrdiff_t j = 0; (gamma == NULL || gamma->scales != acc->scales) && j < acc->scales; j++) {
        const ptrdiff_t at = gamma == NULL ? 0 : qfw_run_at(&gamma->t.layout, j).scale;
        acc->t.scale[j] = gamma == NULL ? unit : qfw_scale_mul(unit, gamma->t.scale[at]);
    }
    qfw_finish f = {NULL, NULL,       (call->op->flags & RELU) != 0, has_columns(call), NULL,
                    0,    acc->absmax};
    if (qfw_has(call, 3)) {
        int32_t *seed = call->at[4].t.codes;
        uint8_t *shift = (uint8_t *)(seed + s.n);
        qfw_seed_columns(call->kernels, beta, acc->t.scale, s.n, seed, shift);
        f.seed = seed;
        f.shift = shift;
    }
    memset(acc->absmax, 0, (size_t)acc->scales * sizeof *acc->absmax);
    QFW_K(call->kernels, finish_s32)(acc->t.codes, (size_t)s.m, (size_t)s.n, &f);
    return QFW_OK;
}

/* ---- backward ---- */

const char *qfw_rule_normalize_back_s32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 2);
    broken = broken != NULL ? broken : qfw_norm_eps_fault(call, EPS);
    if (broken != NULL) {
        return broken;
    }
    const sizes s = sizes_of(call);
    broken = row_fault(&call->at[1], s);
    broken = broken != NULL ? broken : row_fault(&call->at[2], s);
    broken = broken != NULL ? broken
                            : qfw_acc_fault(&call->at[0], s.rows / s.groups, s.block, true, false);
    if (broken != NULL) {
        return broken;
    }
    return qfw_norm_back_fault(&call->at[1], &call->at[2], qfw_row_length(&s.shape),
                               call->op->param[FRAC], call->op->param[DOWN]);
}

/* half_away(y / 2^k) of row r. */
static void back_codes(const qfw_call *call, const qfw_norm_line *line, sizes s, ptrdiff_t r,
                       int32_t *acc)
{
    const qfw_row_codes g = row_at(&call->at[1], s, r);
    int64_t total = 0, all = 0;
    qfw_norm_back back;
    qfw_columns at;
    norm_codes(call, line, s, row_at(&call->at[2], s, r), acc);
    for (size_t i = 0, taken; i < s.shape.wide; i += taken) {
        int64_t sum[QFW_CHANNELS] = {0}, along[QFW_CHANNELS] = {0};
        taken = qfw_norm_block(&s.shape, i, &at);
        QFW_K(call->kernels, norm_along)(&at, after(g, i), acc + i, sum, along);
        for (size_t j = 0; j < at.n; j++) {
            total += sum[j];
            all += along[j];
        }
    }
    qfw_norm_back_of(call->op->param[FRAC], call->op->param[DOWN], qfw_row_length(&s.shape), &back);
    for (size_t j = 0; j < QFW_CHANNELS && j < s.shape.wide; j++) {
        qfw_norm_put_back(total, all, 1, j, &back);
    }
    for (size_t i = 0, taken; i < s.shape.wide; i += taken) {
        taken = qfw_norm_block(&s.shape, i, &at);
        QFW_K(call->kernels, norm_back)(&at, after(g, i), &back, acc + i);
    }
}

/* The groups of a row of the step brought to one scale: u rho 2^-(31 + up - j), up the largest j of
 * theirs. |u| <= 2^30, rho < 2^31, and up - j <= 31. */
static void even_out(qfw_root root, sizes s, int32_t up, int32_t *acc)
{
    for (size_t p = 0; p < s.shape.pieces; p++) {
        for (size_t k = 0; k < s.shape.wide; k++) {
            int32_t *u = &acc[p * s.shape.stride + k];
            *u = (int32_t)qfw_shifted((int64_t)*u * root.rho, 31 + up - root.exp);
        }
    }
}

static void back_groups(const qfw_call *call, sizes s, ptrdiff_t i, uint64_t eps)
{
    const qfw_operand *acc = &call->at[0], *g = &call->at[1], *x = &call->at[2];
    const int32_t down = (int32_t)call->op->param[DOWN];
    int32_t *sums = acc->t.codes, up = INT32_MIN;
    for (ptrdiff_t r = i * s.groups; r < (i + 1) * s.groups; r++) {
        const qfw_norm_line line = norm_line(call, x, s, r, eps);
        up = line.root.exp > up ? line.root.exp : up;
    }
    for (ptrdiff_t r = i * s.groups; r < (i + 1) * s.groups; r++) {
        const qfw_norm_line line = norm_line(call, x, s, r, eps);
        back_codes(call, &line, s, r, sums + offset_of(s, r));
        even_out(line.root, s, up, sums + offset_of(s, r));
    }
    const float ratio = qfw_scale_quot(scale_at(g, i), scale_at(x, i));
    acc->t.scale[i] = qfw_scale_lift(ratio, down + 25 + up);
    acc->absmax[i] = QFW_K(call->kernels, absmax_s32)(sums + i * s.block, (size_t)s.block);
}

static void back_row(const qfw_call *call, sizes s, ptrdiff_t r, uint64_t eps)
{
    const qfw_operand *acc = &call->at[0], *g = &call->at[1], *x = &call->at[2];
    const int32_t down = (int32_t)call->op->param[DOWN];
    const qfw_norm_line line = norm_line(call, x, s, r, eps);
    int32_t *acc_r = (int32_t *)acc->t.codes + r * s.n;
    back_codes(call, &line, s, r, acc_r);
    acc->t.scale[r] = qfw_norm_back_scale(scale_at(g, r), scale_at(x, r), line.root, down);
    acc->absmax[r] = QFW_K(call->kernels, absmax_s32)(acc_r, (size_t)s.n);
}

qfw_status qfw_op_normalize_back_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const uint64_t eps = s.rows > 0 ? eps_at(call, &call->at[2], s, 0) : 0;
    for (ptrdiff_t i = 0; i < s.rows / s.groups; i++) {
        if (call->op->param[GROUPS] != 0) {
            back_groups(call, s, i, eps);
        } else {
            back_row(call, s, i, eps);
        }
    }
    return QFW_OK;
}

/* ---- floats ---- */

/* Row `row`, whose gamma and beta stand at these places (-1: at none). */
static qfw_norm_f32 norm_of(const qfw_call *call, sizes s, ptrdiff_t row, int gamma, int beta)
{
    const ptrdiff_t column = row % s.groups * (ptrdiff_t)s.shape.wide;
    const float *g = qfw_has(call, gamma) ? call->at[gamma].t.codes : NULL;
    const float *b = beta >= 0 && qfw_has(call, beta) ? call->at[beta].t.codes : NULL;
    const qfw_norm_f32 norm = {g != NULL ? g + column : NULL, b != NULL ? b + column : NULL,
                               s.shape, qfw_param_f32(call->op, EPS)};
    return norm;
}

const char *qfw_rule_normalize_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 1);
    return broken != NULL ? broken : qfw_norm_eps_fault(call, EPS);
}

qfw_status qfw_op_normalize_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const float *x = call->at[1].t.codes;
    float *y = call->at[0].t.codes;
    for (ptrdiff_t r = 0; r < s.rows; r++) {
        const qfw_norm_f32 norm = norm_of(call, s, r, 2, 3);
        qfw_norm_row_f32(&norm, x + offset_of(s, r), y + offset_of(s, r));
    }
    for (ptrdiff_t i = 0; (call->op->flags & RELU) != 0 && i < call->at[0].n; i++) {
        y[i] = y[i] > 0.0f ? y[i] : 0.0f;
    }
    return QFW_OK;
}

const char *qfw_rule_normalize_back_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 2);
    return broken != NULL ? broken : qfw_norm_eps_fault(call, EPS);
}

qfw_status qfw_op_normalize_back_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const float *e = call->at[1].t.codes, *x = call->at[2].t.codes;
    float *dx = call->at[0].t.codes;
    for (ptrdiff_t r = 0; r < s.rows; r++) {
        const qfw_norm_f32 norm = norm_of(call, s, r, 3, -1);
        const ptrdiff_t at = offset_of(s, r);
        qfw_norm_back_f32(&norm, x + at, e + at, dx + at);
    }
    return QFW_OK;
}
