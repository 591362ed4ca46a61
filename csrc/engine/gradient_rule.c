/* What must hold of the operands of a gradient: gradient.c. */
#include "engine/gradient.h"
#include "kernels/codes.h"

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
    broken = qfw_headroom_fault(e->plan->bits, qfw_has(call, 2) ? x : NULL, s.terms, false, chunk,
                                shift);
    return broken != NULL ? broken : has_patches(call, patches, rows) ? NULL : "scratch";
}

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
