/* Channels normalised over the rows of a step, and their running statistics (docs/numerics.md
 * section 36).
 *
 * batch_norm_s32:       accumulators, x, gamma, beta, scratch (5 bytes a column, for beta), running
 *                       mean, running variance, batches tracked
 * batch_norm_f32:       y, x, gamma, beta, none, and the same three
 * batch_norm_back_s32:  accumulators, error, x, gamma
 * batch_norm_back_f32:  dx, error, x, gamma
 * param[0]: F; param[1]: eps, a float; param[2]: k; param[3]: matrix rows in a row of the step;
 * param[5], param[6]: momentum and 1 - momentum, floats.
 * flags: 1 ReLU; 2 momentum is 1 / batches tracked. */
#include "kernels/batch_norm.h"
#include "base/round.h"
#include "engine/engine.h"
#include "engine/lasting.h"
#include "engine/norm.h"
#include "kernels/codes.h"

enum { RELU = 1, CUMULATIVE = 2 };
enum { FRAC = 0, EPS, DOWN, POSITIONS, MOMENTUM = 5, REST };
enum { GAMMA = 2, BETA, SEEDS, MEAN, VARIANCE, TRACKED };
enum { MOST_TRACKED = 1 << 24 };

/* Rows and channels. */
typedef struct {
    ptrdiff_t m, n;
} sizes;

static sizes sizes_of(const qfw_call *call)
{
    const ptrdiff_t positions = qfw_positions_of(call->op, POSITIONS);
    const sizes s = {qfw_times(call->rows, positions), call->at[0].row / positions};
    return s;
}

static bool has_columns(const qfw_call *call)
{
    return qfw_has(call, GAMMA) || qfw_has(call, BETA);
}

/* ---- rules ---- */

/* Places 0 to `last` are m x n with rows; gamma and beta have n elements. */
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
    return qfw_norm_eps_fault(call, EPS);
}

static const char *scales_fault(const qfw_operand *x)
{
    return x->plan->rows == QFW_ROWS_AXIS ? NULL : "more than one scale";
}

/* All three or none: states of a float for each channel, and one. */
static const char *running_fault(const qfw_call *call)
{
    for (int i = MEAN; i <= TRACKED; i++) {
        const qfw_operand *x = &call->at[i];
        if (qfw_has(call, i) != qfw_has(call, MEAN) ||
            (qfw_has(call, i) &&
             (x->plan->role != QFW_STATE || x->n != (i == TRACKED ? 1 : sizes_of(call).n)))) {
            return "running statistics";
        }
    }
    return qfw_are_factors(call->op, 1u << MOMENTUM | 1u << REST) ? NULL : "momentum";
}

const char *qfw_rule_batch_norm_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const char *broken = sizes_fault(call, 1);
    broken = broken != NULL ? broken : scales_fault(&call->at[1]);
    broken =
        broken != NULL ? broken : qfw_acc_fault(&call->at[0], s.m, s.n, false, has_columns(call));
    broken = broken != NULL ? broken : running_fault(call);
    if (broken != NULL) {
        return broken;
    }
    if (!qfw_norm_fits(&call->at[1], (uint64_t)s.m) || call->op->param[FRAC] > 24 ||
        qfw_norm_reach((uint64_t)s.m, call->op->param[FRAC]) > UINT64_C(1) << 29) {
        return "headroom";
    }
    const bool scratch = qfw_has(call, SEEDS) ? call->at[SEEDS].n >= 5 * s.n : !qfw_has(call, BETA);
    return scratch ? NULL : "scratch";
}

const char *qfw_rule_batch_norm_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call, 1);
    return broken != NULL ? broken : running_fault(call);
}

const char *qfw_rule_batch_norm_back_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    const char *broken = sizes_fault(call, 2);
    broken = broken != NULL ? broken : scales_fault(&call->at[1]);
    broken = broken != NULL ? broken : scales_fault(&call->at[2]);
    broken = broken != NULL ? broken : qfw_acc_fault(&call->at[0], s.m, s.n, false, true);
    return broken != NULL ? broken
                          : qfw_norm_back_fault(&call->at[1], &call->at[2], (uint64_t)s.m,
                                                call->op->param[FRAC], call->op->param[DOWN]);
}

const char *qfw_rule_batch_norm_back_f32(const qfw_call *call)
{
    return sizes_fault(call, 2);
}

/* ---- running statistics ---- */

/* What the old and the new value count. */
typedef struct {
    float old, now;
} weights;

/* One batch more; nothing changes in inference. */
static bool track(const qfw_call *call, weights *w)
{
    if (!qfw_has(call, TRACKED) || call->infer) {
        return false;
    }
    float *tracked = call->at[TRACKED].t.codes;
    *tracked = *tracked < (float)MOST_TRACKED ? *tracked + 1.0f : *tracked;
    w->old = qfw_param_f32(call->op, REST);
    w->now = qfw_param_f32(call->op, MOMENTUM);
    if ((call->op->flags & CUMULATIVE) != 0) {
        w->now = qfw_div_f32(1.0f, *tracked);
        w->old = 1.0f - w->now;
    }
    return true;
}

static void run_on(const qfw_call *call, ptrdiff_t channel, weights w, float mean, float variance)
{
    float *of_mean = (float *)call->at[MEAN].t.codes + channel;
    float *of_variance = (float *)call->at[VARIANCE].t.codes + channel;
    *of_mean = w.old * *of_mean + w.now * mean;
    *of_variance = w.old * *of_variance + w.now * variance;
}

/* ---- integers ---- */

/* The channels from `first` on, as many as are taken at a time. */
static qfw_columns columns_at(sizes s, ptrdiff_t first)
{
    const size_t n = (size_t)qfw_shorter(s.n - first, QFW_CHANNELS);
    const qfw_columns at = {(size_t)s.m, (size_t)s.n, n};
    return at;
}

static qfw_row_codes codes_at(const qfw_operand *x, ptrdiff_t first)
{
    const int32_t width = qfw_slot(&x->t.format);
    const qfw_row_codes codes = {(const uint8_t *)x->t.codes + first * (width / 8), width};
    return codes;
}

static float gamma_at(const qfw_call *call, int place, ptrdiff_t channel)
{
    return qfw_has(call, place) ? qfw_value_at(&call->at[place], channel) : 1.0f;
}

static int32_t sign_of(float v)
{
    return (v > 0.0f) - (v < 0.0f);
}

/* |v| as a factor of a scale, 1 for 0, whose codes are 0. */
static float factor_of(float v)
{
    return v > 0.0f ? v : v < 0.0f ? -v : 1.0f;
}

/* What normalises a block of channels, and S of each. */
static void block_lines(const qfw_call *call, const qfw_operand *x, const qfw_columns *at,
                        ptrdiff_t first, int32_t *sum, qfw_norm_line *lines)
{
    const float eps = qfw_param_f32(call->op, EPS);
    const uint64_t e = qfw_norm_eps(eps, x->t.scale[0], at->rows);
    uint64_t squares[QFW_CHANNELS];
    QFW_K(call->kernels, norm_sums)(at, codes_at(x, first), sum, squares);
    for (size_t k = 0; k < at->n; k++) {
        lines[k] = qfw_norm_line_of(at->rows, sum[k], squares[k], e);
    }
}

static void track_block(const qfw_call *call, const qfw_columns *at, ptrdiff_t first,
                        const int32_t *sum, const qfw_norm_line *lines, weights w)
{
    const float n = (float)at->rows, rest = (float)(at->rows - 1), s = call->at[1].t.scale[0];
    for (size_t k = 0; k < at->n; k++) {
        const float mean = qfw_div_f32(qfw_product_f32(sum[k], s), n);
        const float variance = qfw_div_f32(qfw_div_f32((float)lines[k].v, n), rest);
        run_on(call, first + (ptrdiff_t)k, w, mean, (variance * s) * s);
    }
}

/* Gamma and beta in floats are the caller's memory. */
static qfw_status check_affine(const qfw_call *call, int first, int last)
{
    for (int i = first; i <= last; i++) {
        const qfw_operand *x = &call->at[i];
        if (qfw_has(call, i) && x->plan->kind == QFW_FLOAT32) {
            QFW_TRY(qfw_finite_f32(call->kernels, x->t.codes, (size_t)x->n));
        }
    }
    return QFW_OK;
}

/* Beta, ReLU and the absmax. */
static void finish(const qfw_call *call, sizes s)
{
    const qfw_operand *acc = &call->at[0];
    qfw_finish f = {NULL, NULL,       (call->op->flags & RELU) != 0, has_columns(call), NULL,
                    0,    acc->absmax};
    if (qfw_has(call, BETA)) {
        int32_t *seed = call->at[SEEDS].t.codes;
        uint8_t *shift = (uint8_t *)(seed + s.n);
        qfw_seed_columns(call->kernels, &call->at[BETA], acc->t.scale, s.n, seed, shift);
        f.seed = seed;
        f.shift = shift;
    }
    memset(acc->absmax, 0, (size_t)acc->scales * sizeof *acc->absmax);
    QFW_K(call->kernels, finish_s32)(acc->t.codes, (size_t)s.m, (size_t)s.n, &f);
}

qfw_status qfw_op_batch_norm_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *x = &call->at[1];
    const sizes s = sizes_of(call);
    const int32_t frac = (int32_t)call->op->param[FRAC];
    const float unit = qfw_scale_lift(1.0f, -frac);
    if (s.m == 1) {
        return QFW_E_BATCH;
    }
    QFW_TRY(check_affine(call, GAMMA, BETA));
    weights w = {0.0f, 0.0f};
    const bool tracks = track(call, &w);
    acc->t.scale[0] = unit;
    for (ptrdiff_t j = 0; j < s.n; j += QFW_CHANNELS) {
        const qfw_columns at = columns_at(s, j);
        qfw_norm_line found[QFW_CHANNELS];
        qfw_norm_lines lines;
        int32_t sum[QFW_CHANNELS];
        block_lines(call, x, &at, j, sum, found);
        for (size_t k = 0; k < at.n; k++) {
            const float gamma = gamma_at(call, GAMMA, j + (ptrdiff_t)k);
            qfw_norm_put_line(&found[k], frac, sign_of(gamma), k, &lines);
            if (has_columns(call)) {
                acc->t.scale[j + (ptrdiff_t)k] = qfw_scale_mul(unit, factor_of(gamma));
            }
        }
        QFW_K(call->kernels, norm_codes)(&at, codes_at(x, j), &lines, (int32_t *)acc->t.codes + j);
        if (tracks) {
            track_block(call, &at, j, sum, found, w);
        }
    }
    finish(call, s);
    return QFW_OK;
}

/* The accumulators of a block of channels, and their scales. */
static void back_block(const qfw_call *call, const qfw_columns *at, ptrdiff_t first)
{
    const qfw_operand *acc = &call->at[0], *e = &call->at[1], *x = &call->at[2];
    const uint32_t frac = call->op->param[FRAC], down = call->op->param[DOWN];
    int32_t sum[QFW_CHANNELS], *sums = (int32_t *)acc->t.codes + first;
    int64_t of_e[QFW_CHANNELS] = {0}, along[QFW_CHANNELS] = {0};
    qfw_norm_line found[QFW_CHANNELS];
    qfw_norm_lines lines;
    qfw_norm_back back;
    block_lines(call, x, at, first, sum, found);
    for (size_t k = 0; k < at->n; k++) {
        qfw_norm_put_line(&found[k], (int32_t)frac, 1, k, &lines);
    }
    QFW_K(call->kernels, norm_codes)(at, codes_at(x, first), &lines, sums);
    QFW_K(call->kernels, norm_along)(at, codes_at(e, first), sums, of_e, along);
    qfw_norm_back_of(frac, down, at->rows, &back);
    for (size_t k = 0; k < at->n; k++) {
        const float gamma = gamma_at(call, 3, first + (ptrdiff_t)k);
        const float scale =
            qfw_norm_back_scale(e->t.scale[0], x->t.scale[0], found[k].root, (int32_t)down);
        qfw_norm_put_back(of_e[k], along[k], sign_of(gamma), k, &back);
        acc->t.scale[first + (ptrdiff_t)k] = qfw_scale_mul(scale, factor_of(gamma));
    }
    QFW_K(call->kernels, norm_back)(at, codes_at(e, first), &back, sums);
}

qfw_status qfw_op_batch_norm_back_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0];
    const sizes s = sizes_of(call);
    QFW_TRY(check_affine(call, 3, 3));
    for (ptrdiff_t j = 0; j < s.n; j += QFW_CHANNELS) {
        const qfw_columns at = columns_at(s, j);
        back_block(call, &at, j);
    }
    const qfw_finish f = {NULL, NULL, false, true, NULL, 0, acc->absmax};
    memset(acc->absmax, 0, (size_t)acc->scales * sizeof *acc->absmax);
    QFW_K(call->kernels, finish_s32)(acc->t.codes, (size_t)s.m, (size_t)s.n, &f);
    return QFW_OK;
}

/* ---- floats ---- */

static const float *floats_at(const qfw_call *call, int place, ptrdiff_t first)
{
    return qfw_has(call, place) ? (const float *)call->at[place].t.codes + first : NULL;
}

qfw_status qfw_op_batch_norm_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    float *y = call->at[0].t.codes;
    weights w = {0.0f, 0.0f};
    if (s.m == 1) {
        return QFW_E_BATCH;
    }
    const bool tracks = track(call, &w);
    for (ptrdiff_t j = 0; j < s.n; j += QFW_CHANNELS) {
        const qfw_columns at = columns_at(s, j);
        const float *x = floats_at(call, 1, j);
        qfw_float_channels c;
        qfw_channel_moments_f32(&at, x, qfw_param_f32(call->op, EPS), &c);
        qfw_channel_norm_f32(&at, x, &c, floats_at(call, GAMMA, j), floats_at(call, BETA, j),
                             y + j);
        for (size_t k = 0; tracks && k < at.n; k++) {
            const float variance = qfw_div_f32(c.squares[k], (float)(s.m - 1));
            run_on(call, j + (ptrdiff_t)k, w, c.mean[k], variance);
        }
    }
    for (ptrdiff_t i = 0; (call->op->flags & RELU) != 0 && i < call->at[0].n; i++) {
        y[i] = y[i] > 0.0f ? y[i] : 0.0f;
    }
    return QFW_OK;
}

qfw_status qfw_op_batch_norm_back_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    float *dx = call->at[0].t.codes;
    for (ptrdiff_t j = 0; j < s.n; j += QFW_CHANNELS) {
        const qfw_columns at = columns_at(s, j);
        const float *e = floats_at(call, 1, j), *x = floats_at(call, 2, j);
        qfw_float_channels c;
        qfw_channel_moments_f32(&at, x, qfw_param_f32(call->op, EPS), &c);
        qfw_channel_back_f32(&at, x, e, &c, floats_at(call, 3, j), dx + j);
    }
    return QFW_OK;
}
