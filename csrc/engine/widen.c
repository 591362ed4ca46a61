/* widen: scales that lie inside a reduction, folded into codes (docs/numerics.md section 14).
 * Places: codes out, codes in, the operand whose scales are folded in as well, 16 bytes a column.
 * param[0]: 0 none; 1 that operand has a scale a column; 2 a scale a row. param[1]: columns. */
#include "engine/widen.h"
#include "base/layout.h"
#include "base/round.h"
#include "engine/rescale.h"
#include "kernels/at_once.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

enum { BY_NONE = 0, BY_COLUMN, BY_ROW };

static ptrdiff_t columns_of(const qfw_call *call)
{
    return QFW_HAS_MANY_ROWS && call->op->param[1] != 0 ? qfw_param_size(call->op, 1)
                                                        : call->at[1].row;
}

const char *qfw_rule_widen(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1], *by = &call->at[2];
    const uint32_t mode = call->op->param[0];
    if (dst->n != src->n || (dst->plan->rows == QFW_NO_ROWS) != (src->plan->rows == QFW_NO_ROWS)) {
        return "the sizes differ";
    }
    if ((mode != BY_NONE) != qfw_has(call, 2) || mode > BY_ROW) {
        return "mode";
    }
    if (qfw_is_pow2(dst->plan->pow2)) {
        return "pow2";
    }
    const ptrdiff_t columns = columns_of(call);
    if (columns < 1 || src->row % columns != 0) {
        return "columns";
    }
    /* The number of scales holds for fewer rows too. */
    if (mode == BY_COLUMN && by->scales != 1 &&
        (by->scales != columns || by->plan->rows != QFW_NO_ROWS)) {
        return "a scale a column";
    }
    if (mode == BY_ROW && by->scales != 1 &&
        (by->scales != src->n / columns || !qfw_by_rows(by) || src->plan->rows == QFW_NO_ROWS)) {
        return "a scale a row";
    }
    return qfw_has(call, 3) && call->at[3].n / 16 < columns ? "scratch" : NULL;
}

/* The scales of element i: its own, and the one folded in (-1: none). */
typedef struct {
    ptrdiff_t own, folded;
} pair;

static pair scales_at(const qfw_call *call, ptrdiff_t i)
{
    const qfw_operand *src = &call->at[1], *by = &call->at[2];
    const ptrdiff_t columns = columns_of(call);
    const ptrdiff_t at = call->op->param[0] == BY_COLUMN ? i % columns : i / columns;
    const pair p = {qfw_run_at(&src->t.layout, i).scale, call->op->param[0] == BY_NONE ? -1
                                                         : by->scales == 1             ? 0
                                                                                       : at};
    return p;
}

/* Of numbers that are not negative: a > b, without a float's comparison. */
static bool is_above(float a, float b)
{
    return qfw_bits_f32(a) > qfw_bits_f32(b);
}

static float sigma_of(const qfw_call *call, pair p)
{
    const float own = call->at[1].t.scale[p.own];
    return p.folded < 0 ? own : qfw_scale_mul(own, call->at[2].t.scale[p.folded]);
}

/* Elements from i on, up to the end of the row, that have the scales of i. */
static ptrdiff_t alike(const qfw_call *call, ptrdiff_t i)
{
    const qfw_operand *src = &call->at[1];
    if (call->op->param[0] == BY_COLUMN && call->at[2].scales != 1) {
        return 1;
    }
    const ptrdiff_t columns = columns_of(call), left = columns - i % columns,
                    run = qfw_run_at(&src->t.layout, i).n;
    return left < run ? left : run;
}

/* The scale of dst number `to`: the largest sigma of its elements. */
static void find_scale(const qfw_call *call, ptrdiff_t to)
{
    const qfw_operand *dst = &call->at[0];
    const int32_t extra = dst->plan->bits - qfw_signed_bits(&call->at[1].t.format);
    const ptrdiff_t runs = qfw_runs_per_scale(&dst->t.layout);
    float most = 0.0f;
    for (ptrdiff_t r = 0; r < runs; r++) {
        const qfw_run run = qfw_run_of(&dst->t.layout, to, r);
        for (ptrdiff_t i = run.first; i < run.first + run.n; i += alike(call, i)) {
            const pair p = scales_at(call, i);
            const float sigma = sigma_of(call, p);
            const bool counts = is_above(sigma, most) && !qfw_has_no_range(&call->at[1], p.own) &&
                                (p.folded < 0 || !qfw_has_no_range(&call->at[2], p.folded));
            most = counts ? sigma : most;
        }
    }
    dst->t.scale[to] = is_above(most, 0.0f) ? qfw_scale_lift(most, -extra) : 1.0f;
}

/* Any sharing of scales, a stretch at a time. */
static void widen_stretches(const qfw_call *call, const qfw_code_rule *rule)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    float s_in = 0.0f, s_out = 0.0f;
    qfw_ratio ratio = {0, 0, 0, 0};
    int32_t m[QFW_TILE];
    for (ptrdiff_t to = 0; to < dst->scales; to++) {
        find_scale(call, to);
    }
    for (ptrdiff_t i = 0, n; i < src->n; i += n) {
        const qfw_run to = qfw_run_at(&dst->t.layout, i);
        const pair p = scales_at(call, i);
        const float sigma = sigma_of(call, p);
        if (qfw_bits_f32(sigma) != qfw_bits_f32(s_in) ||
            qfw_bits_f32(dst->t.scale[to.scale]) != qfw_bits_f32(s_out)) {
            s_in = sigma;
            s_out = dst->t.scale[to.scale];
            ratio = qfw_ratio_of(s_in, s_out, dst->plan->bits);
        }
        n = alike(call, i);
        n = n < to.n ? n : to.n;
        n = n < QFW_TILE ? n : QFW_TILE;
        qfw_load_codes(&src->t, i, (size_t)n, p.own, m);
        (void)QFW_K(call->kernels, rescale_s32)(m, NULL, (size_t)n, &ratio, rule, m);
        qfw_store_codes(&dst->t, i, (size_t)n, m);
    }
}

float qfw_folded_scale(const qfw_operand *src, const qfw_operand *by, ptrdiff_t columns,
                       int32_t bits)
{
    const float *folded = by->t.scale;
    float most = 0.0f;
    for (ptrdiff_t c = 0; c < columns; c++) {
        most = is_above(folded[c], most) && !qfw_has_no_range(by, c) ? folded[c] : most;
    }
    if (!is_above(most, 0.0f) || qfw_has_no_range(src, 0)) {
        return 1.0f;
    }
    const int32_t extra = bits - qfw_signed_bits(&src->t.format);
    return qfw_scale_lift(qfw_scale_mul(src->t.scale[0], most), -extra);
}

void qfw_fold_columns(const qfw_kernels *kernels, const qfw_operand *src, const qfw_operand *by,
                      ptrdiff_t columns, int32_t bits, float scale, uint32_t *ratios)
{
    const size_t wide = (size_t)columns;
    float sigma[QFW_TILE];
    for (size_t c = 0; c < wide; c += QFW_TILE) {
        const size_t n = wide - c < QFW_TILE ? wide - c : QFW_TILE;
        qfw_scales_mul(src->t.scale[0], by->t.scale + c, n, sigma);
        QFW_K(kernels, ratios_f32)(sigma, n, scale, bits, ratios + c, wide);
    }
}

/* One scale in, one out, and one folded in a column: a ratio a column serves all rows. */
static void widen_columns(const qfw_call *call, const qfw_code_rule *rule, uint32_t *ratios)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const ptrdiff_t columns = columns_of(call);
    const float scale = qfw_folded_scale(src, &call->at[2], columns, dst->plan->bits);
    dst->t.scale[0] = scale;
    const bool one_row = src->n == columns && qfw_slot(&src->t.format) == 8 &&
                         qfw_slot(&dst->t.format) == 16 && src->plan->kind == QFW_SYM;
    if (QFW_DIRECT && (!QFW_HAS_MANY_ROWS || one_row) &&
        qfw_fold_row(src->t.codes, (size_t)columns, src->t.scale[0], call->at[2].t.scale, scale,
                     dst->plan->bits, dst->t.codes)) {
        return;
    }
    qfw_fold_columns(call->kernels, src, &call->at[2], columns, dst->plan->bits, scale, ratios);
    const qfw_encoding how = {(int32_t)rule->rounding, 0, {0, 0}, 0};
    (void)qfw_encode_rows(call->kernels, &src->t, &dst->t, &how, rule, ratios,
                          (size_t)(src->n / columns), (size_t)columns);
}

qfw_status qfw_op_widen(const qfw_call *call)
{
    const qfw_operand *dst = &call->at[0], *src = &call->at[1];
    const int32_t q = (1 << (dst->plan->bits - 1)) - 1;
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -q, q};
    const bool columns = call->op->param[0] == BY_COLUMN && call->at[2].scales == columns_of(call);
    if (!QFW_HAS_ANY_WIDEN ||
        (columns && qfw_has(call, 3) && src->scales == 1 && dst->scales == 1)) {
        widen_columns(call, &rule, call->at[3].t.codes);
    } else {
        widen_stretches(call, &rule);
    }
    return QFW_OK;
}
