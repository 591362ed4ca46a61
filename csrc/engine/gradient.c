/* Gradients: sums over the rows of a step, a tile of outputs at a time.
 *
 * gradient_s32:         gradient, error, wire, accumulators of a tile, scales of a sum
 * gradient_update_s32:  parameter, error, wire, accumulators of a tile, state, flags
 * Without a wire it is the bias's: the sum of the error itself.
 * With a window the wire is an image, and the last place has room for patches of it.
 * param[9]: terms a chunk; param[10]: shift; param[11]: matrix rows in a row of the step.
 * flags: 4 the wire's scales are folded into the error; 32 the gradient is the sum of error * wire
 * element by element, i = 1 and the wire being of the error's size. */
#include "engine/gradient.h"
#include "engine/diagonal.h"
#include "engine/moves_panel.h"
#include "engine/rescale.h"
#include "engine/tiles.h"
#include "kernels/codes.h"
#include "kernels/moved.h"

/* Rows that are made at once. Kernels of a device take four of a window's at a time: where a gradient
 * comes in parts, fewer rows are a part too, and 4 i rows of it have whole bytes if some have. */
static ptrdiff_t step_of(const qfw_call *call)
{
    const ptrdiff_t tile = tile_of(call);
    const bool parts = tile > 4 && tile < sizes_of(call).out;
    return QFW_DIRECT && qfw_has_window(call) && parts ? tile / 4 * 4 : tile;
}

static void sum_rows(const qfw_call *call, sizes s, ptrdiff_t first, ptrdiff_t n, int32_t *sum)
{
    const qfw_operand *e = &call->at[1];
    const int32_t width = qfw_slot(&e->t.format);
    if (QFW_DIRECT && width == 8 && n == s.out) {
        qfw_sum_biases(sum, e->t.codes, (size_t)n, (size_t)s.terms);
        return;
    }
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
    return QFW_HAS_ANY_MOVE ? qfw_scale_lift(sigma, (int32_t)call->op->param[SHIFT]) : sigma;
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

/* Rows first .. first + n - 1 of the gradient as accumulators at `sums`; the view of them. */
static qfw_tensor accumulate(const qfw_call *call, int patches, ptrdiff_t first, ptrdiff_t n,
                             int32_t *sums)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2], *tile = &call->at[3];
    const sizes s = sizes_of(call);
    qfw_tensor t = tile->t;
    t.codes = sums;
    t.layout.axis = t.layout.group = n * s.in;
    t.scale[0] = sigma_of(call);
    if (QFW_IS_SUMMED(call)) {
        return t;
    } else if (!qfw_has(call, 2)) {
        sum_rows(call, s, first, n, t.codes);
    } else if (is_diagonal(call)) {
        qfw_diagonal_sums(call, s.out, s.terms, first, n, call->op->param[SHIFT], t.codes);
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
    const bool apart = !qfw_adds(call) && call->op->param[SHIFT] == 0 &&
                       s.terms <= qfw_param_size(call->op, CHUNK);
    const ptrdiff_t tile = step_of(call), most = qfw_rows_at_once(s.in, tile, apart);
    float *joint = call->at[4].t.codes;
    int32_t room[QFW_TILE_ROOM];
    for (ptrdiff_t o = 0; o < s.out; o += most) {
        const ptrdiff_t n = s.out - o < most ? s.out - o : most;
        const bool many = !QFW_DIRECT && n > tile;
        const qfw_tensor acc =
            accumulate(call, STORED_PATCHES, o, n, many ? room : call->at[3].t.codes);
        qfw_operand part = *grad, from = call->at[3];
        from.t = acc;
        from.absmax = NULL; /* of the whole tile, which is not what the scales are for */
        if (n < s.out) {
            part.t = qfw_rows_of(grad, s.in, o, n);
        }
        part.scales = part.scales * n / s.out;
        QFW_TRY(qfw_adds(call) ? qfw_add_part(call, &from, &part, (uint64_t)(o * s.in), joint)
                               : qfw_encode_part(call, &from, &part, (uint64_t)(o * s.in)));
        if (many) {
            qfw_leave_tile(room, n, s.in, tile, call->at[3].t.codes);
        }
    }
    return QFW_OK;
}

/* ---- fused ---- */

static bool are_bytes(const qfw_operand *x)
{
    return x->plan->kind == QFW_SYM && qfw_slot(&x->t.format) == 8;
}

/* By sums of bytes that are made row by row. */
static void move_summed(const qfw_call *call, sizes s, qfw_step_rows *step)
{
    const qfw_operand *tile = &call->at[3];
    const int8_t *e = call->at[1].t.codes, *x = call->at[2].t.codes;
    const size_t terms = (size_t)s.terms;
    if (qfw_move_panel(step, e, x, terms, tile->t.codes, (size_t)tile->n)) {
        return;
    }
    for (ptrdiff_t o = 0; o < s.out; o++) {
        qfw_move_summed(step, o, e, x, terms, tile->t.codes);
    }
}

/* By sums of anything, a tile at a time. */
static void move_tiles(const qfw_call *call, sizes s, qfw_step_rows *step)
{
    const ptrdiff_t tile = step_of(call);
    for (ptrdiff_t o = 0; o < s.out; o += tile) {
        const ptrdiff_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, UPDATE_PATCHES, o, n, call->at[3].t.codes);
        for (ptrdiff_t k = 0; k < n; k++) {
            qfw_move_sums(step, o + k, (int32_t *)acc.codes + k * s.in, 31);
        }
    }
}

/* Where there are no other moves, sums are of one row of errors, and are not shifted. */
static sizes row_sizes(const qfw_call *call)
{
    const sizes one = {call->at[1].row, qfw_has(call, 2) ? call->at[2].row : 1, 1};
    return QFW_HAS_ANY_MOVE ? sizes_of(call) : one;
}

/* A device's parameters that are of the usual kind; false: it is not, and nothing was done. */
QFW_INLINE bool move_rows(const qfw_call *call, sizes s)
{
    const qfw_operand *e = &call->at[1], *x = &call->at[2];
    const bool bias = !qfw_has(call, 2), single = is_single(call, s);
    const bool bytes = are_bytes(e) && (bias || are_bytes(x));
    qfw_step_rows step;
    qfw_state_rows state;
    if (QFW_HAS_ANY_MOVE &&
        (single ? !bytes : is_diagonal(call) || (bias && tile_of(call) < s.out))) {
        return false;
    }
    if (!qfw_begin_rows(call, s.out, s.in, bias, !single, sigma_of(call), &step,
                        QFW_HAS_STATE ? &state : NULL)) {
        return false;
    }
    const bool whole = call->op->param[SHIFT] == 0 && s.terms <= qfw_param_size(call->op, CHUNK);
    if (!QFW_HAS_ANY_MOVE || single) {
        if (bias) {
            qfw_move_biases(&step, e->t.codes, NULL);
        } else {
            qfw_move_outer(&step, e->t.codes, x->t.codes);
        }
    } else if (bias) {
        const qfw_tensor acc = accumulate(call, UPDATE_PATCHES, 0, s.out, call->at[3].t.codes);
        qfw_move_biases(&step, NULL, acc.codes);
    } else if (bytes && whole && !qfw_has_window(call)) {
        move_summed(call, s, &step);
    } else {
        move_tiles(call, s, &step);
    }
    qfw_end_rows(&step);
    return true;
}

QFW_SMALL qfw_status qfw_op_gradient_update_s32(const qfw_call *call)
{
    const sizes s = row_sizes(call);
    if (QFW_DIRECT && move_rows(call, s)) {
        return QFW_OK;
    }
    if (!QFW_HAS_ANY_MOVE) {
        return QFW_E_PLAN;
    }
    const ptrdiff_t tile = step_of(call);
    for (ptrdiff_t o = 0; o < s.out; o += tile) {
        const ptrdiff_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, UPDATE_PATCHES, o, n, call->at[3].t.codes);
        QFW_TRY(qfw_move_range(call, &call->at[0], &call->at[4], &acc, 1.0f, o * s.in, n * s.in,
                               call->at[5].t.codes, o + n == s.out));
    }
    return QFW_OK;
}

qfw_status qfw_op_gradient_adamw_s32(const qfw_call *call)
{
    const qfw_moments of = moments_of(call);
    const sizes s = sizes_of(call);
    const ptrdiff_t tile = tile_of(call);
    for (ptrdiff_t o = 0; o < s.out; o += tile) {
        const ptrdiff_t n = s.out - o < tile ? s.out - o : tile;
        const qfw_tensor acc = accumulate(call, ADAMW_PATCHES, o, n, call->at[3].t.codes);
        qfw_adamw_range(call, &of, &acc, 1.0f, o * s.in, n * s.in, o + n == s.out);
    }
    return QFW_OK;
}

/* ---- float32: gradient, error, wire, sums of a tile ---- */

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
#if !QFW_DIRECT
void qfw_gradient_sums(const qfw_call *call, int patches, ptrdiff_t first, ptrdiff_t n)
{
    if (call->at[1].plan->kind == QFW_FLOAT32) {
        sum_f32(call, first, n, (float *)call->at[0].t.codes + first * sizes_of(call).in);
    } else {
        (void)accumulate(call, patches, first, n, call->at[3].t.codes);
    }
}
#endif

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
