/* The mean of each window, and its error's way back: docs/numerics.md section 35.
 *
 * Places: result, image; back: error of the image, error. param[0]: what sums are divided by; 0: what
 * each window has. param[1]: F, then. flags: 1 padding counts; 2 windows that part the image. */
#include "base/round.h"
#include "engine/pool.h"
#include "kernels/codes.h"

enum { PADDING_COUNTS = 1, ADAPTIVE = 2 };

/* Windows along one axis of an image. */
typedef struct {
    ptrdiff_t size, windows, kernel, stride, pad;
    bool adaptive, counts;
} axis;

static axis axis_of(const qfw_call *call, bool high)
{
    const qfw_window *w = call->window;
    const bool adaptive = (call->op->flags & ADAPTIVE) != 0;
    const bool counts = (call->op->flags & PADDING_COUNTS) != 0;
    const axis h = {w->in_h, w->out_h, w->kernel_h, w->stride_h, w->pad_h, adaptive, counts};
    const axis v = {w->in_w, w->out_w, w->kernel_w, w->stride_w, w->pad_w, adaptive, counts};
    return high ? h : v;
}

/* Pixels from .. to - 1 of a window, and what it counts. */
typedef struct {
    ptrdiff_t from, to, count;
} span;

static span span_of(const axis *a, ptrdiff_t window)
{
    if (a->adaptive) {
        const ptrdiff_t from = window * a->size / a->windows;
        const ptrdiff_t to = ((window + 1) * a->size + a->windows - 1) / a->windows;
        const span s = {from, to, to - from};
        return s;
    }
    const ptrdiff_t begin = window * a->stride - a->pad, end = begin + a->kernel;
    const ptrdiff_t padded = end < a->size + a->pad ? end : a->size + a->pad;
    const ptrdiff_t from = begin > 0 ? begin : 0, to = padded < a->size ? padded : a->size;
    const span s = {from, to, a->counts ? padded - begin : to - from};
    return s;
}

/* No window has more pixels; no pixel is in more windows. */
static ptrdiff_t longest(const axis *a)
{
    return !a->adaptive ? a->kernel : a->size / a->windows + (a->size % a->windows != 0 ? 2 : 0);
}

static ptrdiff_t meeting(const axis *a)
{
    if (a->adaptive) {
        return a->size % a->windows == 0 ? 1 : (a->windows + a->size - 1) / a->size + 1;
    }
    const ptrdiff_t most = (a->kernel + a->stride - 1) / a->stride;
    return most < a->windows ? most : a->windows;
}

/* ---- rules ---- */

static const char *mean_fault(const qfw_call *call, const qfw_operand *image,
                              const qfw_operand *result)
{
    const char *broken = qfw_pool_fault(call, image, result);
    const qfw_window *w = call->window;
    if (broken != NULL) {
        return broken;
    }
    const bool plain = (w->kernel_h & w->kernel_w & w->stride_h & w->stride_w) == 1 &&
                       (w->kernel_h | w->kernel_w | w->stride_h | w->stride_w) == 1 &&
                       (w->pad_h | w->pad_w) == 0;
    /* Where windows part an image, a window's number times the image's size is a size too. */
    const bool parts = qfw_times(w->out_h + (ptrdiff_t)1, w->in_h) < PTRDIFF_MAX - w->out_h &&
                       qfw_times(w->out_w + (ptrdiff_t)1, w->in_w) < PTRDIFF_MAX - w->out_w;
    const bool adaptive = (call->op->flags & ADAPTIVE) != 0;
    if (w->dilation_h != 1 || w->dilation_w != 1 || (adaptive && !(plain && parts))) {
        return "window";
    }
    const uint32_t given = call->op->param[0];
    return given > INT32_MAX || (given != 0 && (call->op->flags & PADDING_COUNTS) != 0) ? "divisor"
                                                                                        : NULL;
}

/* `terms` codes add up to an int32, and 2^F times as much where quotients have F more bits: these are
 * no larger than codes, and so many of them are added. */
static const char *sums_fault(const qfw_call *call, const qfw_operand *codes, ptrdiff_t terms,
                              ptrdiff_t quotients)
{
    const uint64_t most = (UINT64_C(1) << (codes->plan->bits - 1)) - 1;
    const uint32_t extra = call->op->param[1];
    const bool one = call->at[0].plan->rows == QFW_ROWS_AXIS && codes->plan->rows == QFW_ROWS_AXIS;
    if (!one) {
        return "more than one scale";
    }
    const bool varies = call->op->param[0] == 0;
    return (uint64_t)terms * most > INT32_MAX || extra > (varies ? 30u : 0u) ||
                   (uint64_t)quotients * most > (uint64_t)INT32_MAX >> extra
               ? "headroom"
               : NULL;
}

const char *qfw_rule_avg_pool_f32(const qfw_call *call)
{
    return mean_fault(call, &call->at[1], &call->at[0]);
}

const char *qfw_rule_avg_pool_s32(const qfw_call *call)
{
    const char *broken = mean_fault(call, &call->at[1], &call->at[0]);
    if (broken != NULL) {
        return broken;
    }
    const axis h = axis_of(call, true), v = axis_of(call, false);
    return sums_fault(call, &call->at[1], qfw_times(longest(&h), longest(&v)), 1);
}

const char *qfw_rule_avg_pool_back_f32(const qfw_call *call)
{
    return mean_fault(call, &call->at[0], &call->at[1]);
}

const char *qfw_rule_avg_pool_back_s32(const qfw_call *call)
{
    const qfw_plan_tensor *dx = call->at[0].plan, *e = call->at[1].plan;
    const char *broken = mean_fault(call, &call->at[0], &call->at[1]);
    if (broken != NULL) {
        return broken;
    }
    const axis h = axis_of(call, true), v = axis_of(call, false);
    const ptrdiff_t terms = qfw_times(meeting(&h), meeting(&v));
    if (dx->bits != 32 &&
        (dx->bits != e->bits || dx->container != e->container || (dx->pow2 | dx->range) != 0)) {
        return "the formats differ";
    }
    if (dx->bits != 32 && (terms != 1 || call->op->param[0] == 0)) {
        return "windows overlap";
    }
    return sums_fault(call, &call->at[1], terms, terms);
}

/* ---- forward ---- */

/* Adds up the windows of a piece, in ascending (row, column). sums are int32 or floats. */
static void sum_piece(const qfw_call *call, const axis *h, const axis *v, const qfw_piece *p,
                      const void *ones, void *sums)
{
    const qfw_window *w = call->window;
    const qfw_operand *x = &call->at[1];
    const ptrdiff_t channels = qfw_channels_of(call, x);
    const bool floats = x->plan->kind == QFW_FLOAT32;
    const int32_t width = floats ? 32 : qfw_slot(&x->t.format);
    const span rows = span_of(h, p->y), columns = span_of(v, p->x);
    const bool alone = p->count == 1; /* all columns at once; else all positions, by column */
    const ptrdiff_t n = alone ? 1 : w->kernel_w;
    for (ptrdiff_t y = rows.from; y < rows.to; y++) {
        for (ptrdiff_t k = 0; k < n; k++) {
            qfw_pixels c = {0, columns.to - columns.from, columns.from};
            c = alone ? c : qfw_pixels_of(w, p, k);
            if (c.n < 1) {
                continue;
            }
            const qfw_lines lines = {
                qfw_element(x->t.codes, width, qfw_pixel_at(w, p, channels, y, c.pixel)),
                width,
                32,
                (size_t)p->n,
                (size_t)c.n,
                (size_t)(alone ? channels : w->stride_w * channels),
                (size_t)(alone ? 0 : p->n)};
            if (floats) {
                QFW_K(call->kernels, lines_f32)(&lines, ones, (float *)sums + c.first * p->n);
            } else {
                QFW_K(call->kernels, lines_s32)(&lines, ones, (int32_t *)sums + c.first * p->n);
            }
        }
    }
}

/* What the window of position x of a line counts; one without a pixel is divided by 1. */
static ptrdiff_t count_of(const axis *h, const axis *v, ptrdiff_t y, ptrdiff_t x)
{
    const span rows = span_of(h, y), columns = span_of(v, x);
    return rows.count < 1 || columns.count < 1 ? 1 : rows.count * columns.count;
}

/* One piece at a time; with windows that part the image, of one position. */
static bool next_of(const qfw_call *call, ptrdiff_t channels, qfw_piece *p)
{
    const bool more = qfw_next_piece(call->window, call->rows, channels, p);
    p->count = (call->op->flags & ADAPTIVE) != 0 ? 1 : p->count;
    return more;
}

qfw_status qfw_op_avg_pool_f32(const qfw_call *call)
{
    const ptrdiff_t channels = qfw_channels_of(call, &call->at[1]),
                    divisor = qfw_param_size(call->op, 0);
    const axis h = axis_of(call, true), v = axis_of(call, false);
    float ones[QFW_PIECE], sums[QFW_PIECE];
    qfw_piece p = {0, 0, 0, 0, 0, 0};
    for (int k = 0; k < QFW_PIECE; k++) {
        ones[k] = 1.0f;
    }
    while (next_of(call, channels, &p)) {
        float *y = (float *)call->at[0].t.codes + qfw_piece_at(call->window, &p, channels);
        memset(sums, 0, sizeof sums);
        sum_piece(call, &h, &v, &p, ones, sums);
        for (ptrdiff_t i = 0; i < p.count; i++) {
            const float by = (float)(divisor != 0 ? divisor : count_of(&h, &v, p.y, p.x + i));
            for (ptrdiff_t k = i * p.n; k < (i + 1) * p.n; k++) {
                y[k] = qfw_div_f32(sums[k], by);
            }
        }
    }
    return QFW_OK;
}

qfw_status qfw_op_avg_pool_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *x = &call->at[1];
    const ptrdiff_t channels = qfw_channels_of(call, x);
    const uint32_t divisor = call->op->param[0], extra = call->op->param[1];
    const axis h = axis_of(call, true), v = axis_of(call, false);
    int32_t ones[QFW_PIECE], sums[QFW_PIECE];
    qfw_piece p = {0, 0, 0, 0, 0, 0};
    for (int k = 0; k < QFW_PIECE; k++) {
        ones[k] = 1;
    }
    const bool directly = QFW_DIRECT && divisor != 0 && (call->op->flags & ADAPTIVE) == 0 &&
                          qfw_pools_directly(call->window) &&
                          qfw_sum_pool_directly(call, acc->absmax);
    while (!directly && next_of(call, channels, &p)) {
        int32_t *y = (int32_t *)acc->t.codes + qfw_piece_at(call->window, &p, channels);
        memset(sums, 0, sizeof sums);
        sum_piece(call, &h, &v, &p, ones, sums);
        for (ptrdiff_t i = 0; divisor == 0 && i < p.count; i++) {
            const ptrdiff_t by = count_of(&h, &v, p.y, p.x + i);
            for (ptrdiff_t k = i * p.n; k < (i + 1) * p.n; k++) {
                sums[k] = qfw_quotient(sums[k], extra, by);
            }
        }
        memcpy(y, sums, (size_t)(p.count * p.n) * sizeof *y);
    }
    const float s = x->t.scale[0];
    acc->t.scale[0] =
        divisor != 0 ? qfw_scale_quot(s, (float)divisor) : qfw_scale_lift(s, -(int32_t)extra);
    if (!directly) {
        acc->absmax[0] = QFW_K(call->kernels, absmax_s32)(acc->t.codes, (size_t)acc->n);
    }
    return QFW_OK;
}

/* ---- back: positions in ascending order ---- */

/* Adds a value a channel to every pixel of a position's window. */
static void spread(const qfw_call *call, const axis *h, const axis *v, const qfw_piece *p,
                   const void *ones, const void *values)
{
    const qfw_window *w = call->window;
    const qfw_operand *dx = &call->at[0];
    const ptrdiff_t channels = qfw_channels_of(call, dx);
    const bool floats = dx->plan->kind == QFW_FLOAT32;
    const span rows = span_of(h, p->y), columns = span_of(v, p->x);
    for (ptrdiff_t y = rows.from; y < rows.to && columns.from < columns.to; y++) {
        const ptrdiff_t at = qfw_pixel_at(w, p, channels, y, columns.from);
        const qfw_lines lines = {
            ones, floats ? 32 : 8, 32, (size_t)p->n, (size_t)(columns.to - columns.from),
            0,    (size_t)channels};
        if (floats) {
            QFW_K(call->kernels, lines_f32)(&lines, values, (float *)dx->t.codes + at);
        } else {
            QFW_K(call->kernels, lines_s32)(&lines, values, (int32_t *)dx->t.codes + at);
        }
    }
}

/* A piece of one position. */
static bool next_position(const qfw_call *call, ptrdiff_t channels, qfw_piece *p)
{
    const bool more = qfw_next_piece(call->window, call->rows, channels, p);
    p->count = 1;
    return more;
}

qfw_status qfw_op_avg_pool_back_f32(const qfw_call *call)
{
    const ptrdiff_t channels = qfw_channels_of(call, &call->at[0]),
                    divisor = qfw_param_size(call->op, 0);
    const axis h = axis_of(call, true), v = axis_of(call, false);
    float ones[QFW_PIECE], shares[QFW_PIECE];
    qfw_piece p = {0, 0, 0, 0, 0, 0};
    for (int k = 0; k < QFW_PIECE; k++) {
        ones[k] = 1.0f;
    }
    memset(call->at[0].t.codes, 0, (size_t)qfw_codes_bytes(&call->at[0]));
    while (next_position(call, channels, &p)) {
        const float *e =
            (const float *)call->at[1].t.codes + qfw_piece_at(call->window, &p, channels);
        const float by = (float)(divisor != 0 ? divisor : count_of(&h, &v, p.y, p.x));
        for (ptrdiff_t k = 0; k < p.n; k++) {
            shares[k] = qfw_div_f32(e[k], by);
        }
        spread(call, &h, &v, &p, ones, shares);
    }
    return QFW_OK;
}

/* The codes of each position, unchanged, at every pixel of its window. */
static void copy_codes(const qfw_call *call, const axis *h, const axis *v, ptrdiff_t channels)
{
    const qfw_window *w = call->window;
    const ptrdiff_t bytes = qfw_slot(&call->at[0].t.format) / 8, size = channels * bytes;
    const uint8_t *e = call->at[1].t.codes;
    uint8_t *dx = call->at[0].t.codes;
    for (ptrdiff_t i = 0; i < call->rows * w->out_h; i++) {
        const span rows = span_of(h, i % w->out_h);
        for (ptrdiff_t x = 0; x < w->out_w; x++, e += size) {
            const span columns = span_of(v, x);
            for (ptrdiff_t y = rows.from; y < rows.to; y++) {
                uint8_t *line = dx + (i / w->out_h * w->in_h + y) * w->in_w * size;
                for (ptrdiff_t k = columns.from; k < columns.to; k++) {
                    memcpy(line + k * size, e, (size_t)size);
                }
            }
        }
    }
}

static void add_shares(const qfw_call *call, const axis *h, const axis *v, ptrdiff_t channels)
{
    const uint32_t divisor = call->op->param[0], extra = call->op->param[1];
    int8_t ones[QFW_PIECE];
    int32_t shares[QFW_PIECE];
    qfw_piece p = {0, 0, 0, 0, 0, 0};
    memset(ones, 1, sizeof ones);
    while (next_position(call, channels, &p)) {
        const ptrdiff_t by = divisor != 0 ? 1 : count_of(h, v, p.y, p.x);
        qfw_load_codes(&call->at[1].t, qfw_piece_at(call->window, &p, channels), (size_t)p.n, 0,
                       shares);
        for (ptrdiff_t k = 0; divisor == 0 && k < p.n; k++) {
            shares[k] = qfw_quotient(shares[k], extra, by);
        }
        spread(call, h, v, &p, ones, shares);
    }
}

qfw_status qfw_op_avg_pool_back_s32(const qfw_call *call)
{
    const qfw_operand *dx = &call->at[0];
    const ptrdiff_t channels = qfw_channels_of(call, dx);
    const uint32_t divisor = call->op->param[0], extra = call->op->param[1];
    const axis h = axis_of(call, true), v = axis_of(call, false);
    const float s = call->at[1].t.scale[0];
    memset(dx->t.codes, 0, (size_t)qfw_codes_bytes(dx));
    if (dx->plan->bits != 32) {
        copy_codes(call, &h, &v, channels);
    } else {
        add_shares(call, &h, &v, channels);
    }
    dx->t.scale[0] =
        divisor != 0 ? qfw_scale_quot(s, (float)divisor) : qfw_scale_lift(s, -(int32_t)extra);
    if (dx->absmax != NULL) {
        dx->absmax[0] = QFW_K(call->kernels, absmax_s32)(dx->t.codes, (size_t)dx->n);
    }
    return QFW_OK;
}
