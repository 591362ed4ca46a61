/* Gradients: sums over the rows of a step, a tile of outputs at a time.
 *
 * gradient_s32:         gradient, error, wire, accumulators of a tile, scales of a sum
 * gradient_update_s32:  parameter, error, wire, accumulators of a tile, state, flags
 * Without a wire it is the bias's: the sum of the error itself.
 * With a window the wire is an image, and the last place has room for patches of it.
 * param[9]: terms a chunk; param[10]: shift; param[11]: matrix rows in a row of the step.
 * flags: 4 the wire's scales are folded into the error; 32 the gradient is the sum of error * wire
 * element by element, i = 1 and the wire being of the error's size. */
#include "engine/convolve.h"
#include "engine/patches.h"
#include "kernels/codes.h"

enum { FOLDED = 4, DIAGONAL = 32 };
enum { CHUNK = 9, SHIFT = 10, POSITIONS = 11 };

/* Rows of the gradient's matrix, elements of a row, terms of a sum. */
typedef struct {
    ptrdiff_t out, in, terms;
} sizes;

static bool is_diagonal(const qfw_call *call)
{
    return QFW_HAS_DIAGONAL && (call->op->flags & DIAGONAL) != 0;
}

/* Of the wire, where it is an image that a window goes over. */
static ptrdiff_t image_channels(const qfw_call *call)
{
    return call->at[2].row / qfw_in_positions(call->window);
}

static sizes sizes_of(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const ptrdiff_t positions = qfw_positions_of(call->op, POSITIONS);
    ptrdiff_t in = 1;
    if (qfw_has_window(call)) {
        in = qfw_times(qfw_taps(w), image_channels(call) / w->groups);
    } else if (qfw_has(call, 2) && !is_diagonal(call)) {
        in = call->at[2].row / positions;
    }
    const sizes s = {call->at[1].row / positions, in, qfw_times(call->rows, positions)};
    return s;
}

/* Whether error, image and gradient are those of the window. */
static bool window_fits(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const ptrdiff_t channels = qfw_has(call, 2) ? image_channels(call) : 0;
    return channels > 0 && !is_diagonal(call) && channels % w->groups == 0 &&
           call->at[2].row == qfw_times(channels, qfw_in_positions(w)) &&
           qfw_param_size(call->op, POSITIONS) == qfw_out_positions(w) && sizes_of(call).out > 0 &&
           sizes_of(call).out % w->groups == 0;
}

static const char *sizes_fault(const qfw_call *call)
{
    const qfw_operand *whole = &call->at[0], *e = &call->at[1], *x = &call->at[2];
    const sizes s = sizes_of(call);
    const bool rows = e->plan->rows != QFW_NO_ROWS && whole->plan->rows == QFW_NO_ROWS &&
                      (!qfw_has(call, 2) || x->plan->rows != QFW_NO_ROWS);
    const bool fit = e->n == qfw_times(s.out, s.terms) && whole->n == qfw_times(s.out, s.in) &&
                     s.terms < INT32_MAX && (!is_diagonal(call) || qfw_has(call, 2));
    const bool wire =
        qfw_has_window(call)
            ? window_fits(call)
            : !qfw_has(call, 2) || x->n == (is_diagonal(call) ? e->n : qfw_times(s.in, s.terms));
    return rows && fit && wire ? NULL : "the sizes do not make a gradient";
}

/* Rows a tile of accumulators has room for. */
static ptrdiff_t tile_of(const qfw_call *call)
{
    return call->at[3].n / sizes_of(call).in;
}

/* Rows that are made at once. Kernels of a device take four of a window's at a time: where a gradient
 * comes in parts, fewer rows are a part too, and 4 i rows of it have whole bytes if some have. */
static ptrdiff_t step_of(const qfw_call *call)
{
    const ptrdiff_t tile = tile_of(call);
    const bool parts = tile > 4 && tile < sizes_of(call).out;
    return QFW_DIRECT && qfw_has_window(call) && parts ? tile / 4 * 4 : tile;
}

/* Whether place `patches` has room for a patch of the image and, where `rows` rows of the gradient
 * are summed in parts, for their sums in 64 bits; without a window it is empty. */
static bool has_patches(const qfw_call *call, int patches, ptrdiff_t rows)
{
    if (!qfw_has_window(call)) {
        return !qfw_has(call, patches);
    }
    const qfw_operand *x = &call->at[2];
    const sizes s = sizes_of(call);
    const bool floats = x->plan->kind == QFW_FLOAT32;
    const bool split = !floats && (call->op->param[SHIFT] != 0 ||
                                   (uint64_t)s.terms > (uint64_t)call->op->param[CHUNK]);
    const ptrdiff_t bytes = floats ? 4 : qfw_slot(&x->t.format) / 8;
    const int64_t least = (int64_t)qfw_patch_bytes(call->window, image_channels(call), bytes) +
                          (split ? INT64_C(8) * rows * s.in : 0);
    return least == 0 || (qfw_has(call, patches) && call->at[patches].n >= least);
}

static const char *fault(const qfw_call *call, int patches)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *tile = &call->at[3];
    const char *broken = sizes_fault(call);
    if (broken != NULL) {
        return broken;
    }
    const sizes s = sizes_of(call);
    const bool folded = (call->op->flags & FOLDED) != 0;
    if (e->plan->rows != QFW_ROWS_AXIS ||
        (qfw_has(call, 2) && !folded && x->plan->rows != QFW_ROWS_AXIS)) {
        return "scales along the sum";
    }
    const ptrdiff_t rows = tile_of(call);
    if (tile->plan->rows != QFW_NO_ROWS || tile->scales != 1 || tile->t.layout.axis != tile->n ||
        tile->n != rows * s.in || rows < 1 || rows > s.out) {
        return "tile";
    }
    const uint32_t chunk = call->op->param[CHUNK], shift = call->op->param[SHIFT];
    if (!qfw_has(call, 2) && (folded || chunk < (uint64_t)s.terms || shift != 0)) {
        return "headroom"; /* a sum of errors is made at once */
    }
    if ((is_diagonal(call) || qfw_has_window(call)) && folded) {
        return "scales along the sum";
    }
    broken = qfw_headroom_fault(e, qfw_has(call, 2) ? x : NULL, s.terms, false, chunk, shift);
    return broken != NULL ? broken : has_patches(call, patches, rows) ? NULL : "scratch";
}

static void sum_rows(const qfw_call *call, sizes s, ptrdiff_t first, ptrdiff_t n, int32_t *sum)
{
    const qfw_operand *e = &call->at[1];
    const int32_t width = qfw_slot(&e->t.format);
    const qfw_lines lines = {(const uint8_t *)e->t.codes + first * (width / 8),
                             width,
                             width,
                             (size_t)n,
                             (size_t)s.terms,
                             (size_t)s.out,
                             0};
    memset(sum, 0, (size_t)n * sizeof *sum);
    QFW_K(call->kernels, line_sums_s32)(&lines, sum);
}

/* The scale of the sums: of e, or with a wire whose scales are not folded into it, of both. */
static float sigma_of(const qfw_call *call)
{
    const float s_e = call->at[1].t.scale[0];
    const bool alone = !qfw_has(call, 2) || (call->op->flags & FOLDED) != 0;
    const float sigma = alone ? s_e : qfw_scale_mul(s_e, call->at[2].t.scale[0]);
    return qfw_scale_lift(sigma, (int32_t)call->op->param[SHIFT]);
}

/* The error and the image, place `patches` being scratch. */
static qfw_convolution convolution_of(const qfw_call *call, int patches)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *scratch = &call->at[patches];
    const bool floats = e->plan->kind == QFW_FLOAT32;
    const qfw_convolution c = {call->kernels,
                               call->window,
                               e->t.codes,
                               x->t.codes,
                               floats ? 32 : qfw_slot(&e->t.format),
                               floats ? 32 : qfw_slot(&x->t.format),
                               sizes_of(call).out,
                               image_channels(call),
                               qfw_param_size(call->op, CHUNK),
                               call->op->param[SHIFT],
                               qfw_has(call, patches) ? scratch->t.codes : NULL,
                               qfw_has(call, patches) ? scratch->n : 0};
    return c;
}

/* Rows first .. first + n - 1 of the gradient as accumulators; the view of them. */
static qfw_tensor accumulate(const qfw_call *call, int patches, ptrdiff_t first, ptrdiff_t n)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *tile = &call->at[3];
    const sizes s = sizes_of(call);
    qfw_tensor t = tile->t;
    t.layout.axis = t.layout.group = n * s.in;
    t.scale[0] = sigma_of(call);
    if (!qfw_has(call, 2)) {
        sum_rows(call, s, first, n, t.codes);
    } else if (is_diagonal(call)) {
        qfw_line_products(e, x, s.out, s.terms, first, n, call->op->param[SHIFT], t.codes);
    } else if (qfw_has_window(call)) {
        const qfw_convolution c = convolution_of(call, patches);
        qfw_convolve_gradient(&c, s.terms, first, n, t.codes);
    } else {
        const int32_t width = qfw_slot(&e->t.format);
        const qfw_gemm g = {(const uint8_t *)e->t.codes + first * (width / 8),
                            x->t.codes,
                            width,
                            qfw_slot(&x->t.format),
                            (size_t)n,
                            (size_t)s.in,
                            (size_t)s.terms,
                            1,
                            (size_t)s.out,
                            (size_t)s.in,
                            1,
                            0};
        qfw_gemm_chunks(call->kernels, &g, call->op->param[CHUNK], call->op->param[SHIFT], t.codes,
                        g.n);
    }
    return t;
}

/* ---- stored ---- */

enum { STORED_PATCHES = 5, UPDATE_PATCHES = 6, ADAMW_PATCHES = 7, FLOAT_PATCHES = 4 };

const char *qfw_rule_gradient_s32(const qfw_call *call)
{
    const char *broken = fault(call, STORED_PATCHES);
    if (broken != NULL) {
        return broken;
    }
    const sizes s = sizes_of(call);
    const qfw_operand *grad = &call->at[0];
    const bool joins = qfw_may_add(call) && qfw_joins(grad);
    if (joins &&
        (!qfw_has(call, 4) || call->at[4].n < INT64_C(4) * grad->scales * tile_of(call) / s.out)) {
        return "scratch";
    }
    return qfw_has_rows_of(grad, s.in, tile_of(call)) ? NULL : "tile";
}

/* Whether the sums have one term each. */
static bool is_single(const qfw_call *call, sizes s)
{
    return s.terms == 1 && !qfw_has_window(call) && !is_diagonal(call) &&
           call->op->param[SHIFT] == 0;
}

qfw_status qfw_op_gradient_s32(const qfw_call *call)
{
    const qfw_operand *grad = &call->at[0];
    const sizes s = sizes_of(call);
    if (is_single(call, s) && qfw_has(call, 2) && !qfw_adds(call) &&
        qfw_takes_outer(&call->at[2], grad, s.in)) {
        qfw_encode_outer(call, &call->at[1], &call->at[2], sigma_of(call), grad);
        return QFW_OK;
    }
    const ptrdiff_t tile = step_of(call);
    float *joint = call->at[4].t.codes;
    for (ptrdiff_t o = 0; o < s.out; o += tile) {
        const ptrdiff_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, STORED_PATCHES, o, n);
        qfw_operand part = *grad, from = call->at[3];
        from.t = acc;
        from.absmax = NULL; /* of the whole tile, which is not what the scales are for */
        part.t = qfw_rows_of(grad, s.in, o, n);
        part.scales = part.scales * n / s.out;
        QFW_TRY(qfw_adds(call) ? qfw_add_part(call, &from, &part, (uint64_t)(o * s.in), joint)
                               : qfw_encode_part(call, &from, &part, (uint64_t)(o * s.in)));
    }
    return QFW_OK;
}

/* ---- fused ---- */

const char *qfw_rule_gradient_update_s32(const qfw_call *call)
{
    const char *broken = fault(call, UPDATE_PATCHES);
    broken =
        broken != NULL ? broken : qfw_update_fault(call, &call->at[0], &call->at[4], &call->at[5]);
    if (broken != NULL) {
        return broken;
    }
    const ptrdiff_t in = sizes_of(call).in, tile = tile_of(call);
    const bool parts = qfw_has_rows_of(&call->at[0], in, tile) &&
                       (!qfw_has(call, 4) || qfw_has_rows_of(&call->at[4], in, tile));
    return parts ? NULL : "tile";
}

qfw_status qfw_op_gradient_update_s32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    if (QFW_DIRECT && is_single(call, s)) {
        const qfw_operand *param = &call->at[0], *e = &call->at[1], *x = &call->at[2];
        const qfw_operand *state = qfw_has(call, 4) ? &call->at[4] : NULL;
        uint8_t *flags = call->at[5].t.codes;
        if (qfw_has(call, 2)
                ? qfw_move_outer(call, param, e, x, state, sigma_of(call), flags)
                : state == NULL && qfw_move_one_row(call, param, e, sigma_of(call), flags)) {
            return QFW_OK;
        }
    }
    const ptrdiff_t tile = step_of(call);
    for (ptrdiff_t o = 0; o < s.out; o += tile) {
        const ptrdiff_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, UPDATE_PATCHES, o, n);
        QFW_TRY(qfw_move_range(call, &call->at[0], &call->at[4], &acc, 1.0f, o * s.in, n * s.in,
                               call->at[5].t.codes, o + n == s.out));
    }
    return QFW_OK;
}

static qfw_moments moments_of(const qfw_call *call)
{
    const qfw_moments of = {&call->at[0], &call->at[4], &call->at[5], &call->at[6]};
    return of;
}

const char *qfw_rule_gradient_adamw_s32(const qfw_call *call)
{
    const qfw_moments of = moments_of(call);
    const char *broken = fault(call, ADAMW_PATCHES);
    broken = broken != NULL ? broken : qfw_adamw_fault(call, &of);
    if (broken != NULL) {
        return broken;
    }
    const ptrdiff_t in = sizes_of(call).in, tile = tile_of(call);
    const bool parts = qfw_has_rows_of(of.param, in, tile) &&
                       qfw_has_rows_of(of.average, in, tile) &&
                       qfw_has_rows_of(of.square, in, tile);
    return parts ? NULL : "tile";
}

qfw_status qfw_op_gradient_adamw_s32(const qfw_call *call)
{
    const qfw_moments of = moments_of(call);
    const sizes s = sizes_of(call);
    const ptrdiff_t tile = tile_of(call);
    for (ptrdiff_t o = 0; o < s.out; o += tile) {
        const ptrdiff_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, ADAMW_PATCHES, o, n);
        qfw_adamw_range(call, &of, &acc, 1.0f, o * s.in, n * s.in, o + n == s.out);
    }
    return QFW_OK;
}

/* ---- float32: gradient, error, wire, sums of a tile ---- */

const char *qfw_rule_gradient_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call);
    if (broken == NULL && !has_patches(call, FLOAT_PATCHES, 0)) {
        broken = "scratch";
    }
    if (broken != NULL || (!qfw_has(call, 3) && !qfw_may_add(call))) {
        return broken;
    }
    const ptrdiff_t in = sizes_of(call).in, n = call->at[3].n;
    const bool whole = qfw_has(call, 3) && call->at[3].plan->rows == QFW_NO_ROWS && n % in == 0;
    return whole && n <= call->at[0].n ? NULL : "tile";
}

/* Rows first .. first + n - 1 of the gradient. */
static void sum_f32(const qfw_call *call, ptrdiff_t first, ptrdiff_t n, float *sum)
{
    const sizes s = sizes_of(call);
    const size_t out = (size_t)s.out, in = (size_t)s.in, terms = (size_t)s.terms, rows = (size_t)n;
    const float *e = (const float *)call->at[1].t.codes + first;
    const float *x = qfw_has(call, 2) ? (const float *)call->at[2].t.codes + first : NULL;
    if (qfw_has_window(call)) {
        const qfw_convolution c = convolution_of(call, FLOAT_PATCHES);
        qfw_convolve_gradient(&c, s.terms, first, n, sum);
        return;
    }
    if (qfw_has(call, 2) && !is_diagonal(call)) {
        const qfw_gemm g = {e, call->at[2].t.codes, 32, 32, rows, in, terms, 1, out, in, 1, 0};
        QFW_K(call->kernels, gemm_f32)(&g, sum, in);
        return;
    }
    memset(sum, 0, rows * sizeof *sum);
    for (size_t i = 0; i < terms; i++) {
        for (size_t j = 0; j < rows; j++) {
            sum[j] += x != NULL ? e[i * out + j] * x[i * out + j] : e[i * out + j];
        }
    }
}

qfw_status qfw_op_gradient_f32(const qfw_call *call)
{
    const sizes s = sizes_of(call);
    float *grad = call->at[0].t.codes, *sum = call->at[3].t.codes;
    if (!qfw_adds(call)) {
        sum_f32(call, 0, s.out, grad);
        return QFW_OK;
    }
    const ptrdiff_t tile = tile_of(call);
    for (ptrdiff_t o = 0; o < s.out; o += tile) {
        const ptrdiff_t n = s.out - o < tile ? s.out - o : tile;
        sum_f32(call, o, n, sum);
        for (ptrdiff_t i = 0; i < n * s.in; i++) {
            grad[o * s.in + i] += sum[i];
        }
    }
    return QFW_OK;
}
