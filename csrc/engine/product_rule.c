/* What must hold of the operands of a product: docs/format.md. */
#include "engine/product.h"
#include "kernels/codes.h"

/* Whether image, result and weights are those of the window. */
static bool window_fits(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const bool back = call->op->param[0] == BACK;
    const ptrdiff_t own = a_channels_of(call), n = sizes_of(call).n;
    const ptrdiff_t positions = back ? qfw_in_positions(w) : qfw_out_positions(w);
    return positions_of(call) == positions &&
           call->at[1].row == qfw_times(a_positions_of(call), own) && own > 0 && n > 0 &&
           own % w->groups == 0 && n % w->groups == 0 &&
           call->at[2].n / qfw_taps(w) == qfw_times(own, n) / w->groups &&
           call->at[2].n == qfw_times(qfw_taps(w), qfw_times(own, n) / w->groups);
}

static const char *sizes_fault(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *a = &call->at[1], *b = &call->at[2];
    const sizes s = sizes_of(call);
    const qfw_window *pool = pool_of(call);
    const ptrdiff_t made = pool != NULL ? qfw_times(call->rows, qfw_out_positions(pool)) : s.m;
    if (acc->plan->rows == QFW_NO_ROWS || a->plan->rows == QFW_NO_ROWS ||
        b->plan->rows != QFW_NO_ROWS || acc->n != qfw_times(made, s.n)) {
        return "the sizes do not make a product";
    }
    if (qfw_has_window(call) ? !window_fits(call)
                             : b->n != qfw_times(s.n, s.k) || a->n != qfw_times(s.m, s.k)) {
        return "the sizes do not make a product";
    }
    if (qfw_has(call, 3) && (call->at[3].plan->rows != QFW_NO_ROWS || call->at[3].n != s.n)) {
        return "the bias has another size";
    }
    const bool masked = qfw_has(call, 4) && pool == NULL;
    if (masked && (call->at[4].plan->rows == QFW_NO_ROWS || call->at[4].n != acc->n)) {
        return "the mask has another size";
    }
    return call->op->param[0] <= BACK ? NULL : "form";
}

/* Whether scratch of `n` bytes, `used` of them for something else, has room for a patch. */
static bool has_patch(const qfw_call *call, ptrdiff_t n, ptrdiff_t bytes)
{
    if (!qfw_has_window(call) || call->op->param[0] == BACK) {
        return true;
    }
    const ptrdiff_t least = qfw_patch_bytes(call->window, a_channels_of(call), bytes);
    return least == 0 || n - least >= patches_at(call);
}

const char *qfw_rule_product_f32(const qfw_call *call)
{
    const char *broken = sizes_fault(call);
    if (broken != NULL) {
        return broken;
    }
    return has_patch(call, qfw_has(call, 5) ? call->at[5].n : 0, 4) ? NULL : "scratch";
}

/* A matrix of rows x columns with a scale for each row, or for each column. */
const char *qfw_acc_fault(const qfw_operand *acc, ptrdiff_t rows, ptrdiff_t columns, bool by_row,
                          bool by_column)
{
    const qfw_layout *l = &acc->t.layout;
    const bool matrix = l->outer == rows && l->axis == columns && l->inner == 1;
    const bool fits = by_column ? matrix && l->group == 1 && (l->shared == 0) == by_row
                      : by_row  ? matrix && l->group >= l->axis && l->shared == 0
                                : acc->plan->rows == QFW_ROWS_AXIS;
    return fits && (acc->plan->rows == QFW_ROWS_OUTER) == (by_row || by_column)
               ? NULL
               : "the scales of the accumulator";
}

bool qfw_has_row_scales(const qfw_operand *x, ptrdiff_t rows, ptrdiff_t columns)
{
    const qfw_layout *l = &x->t.layout;
    const bool along_axis =
        l->outer == 1 && l->axis == rows && l->inner == columns && l->group == 1;
    const bool along_outer = l->shared == 0 && l->outer == rows &&
                             qfw_times(l->axis, l->inner) == columns && l->group >= l->axis;
    return along_axis || along_outer;
}

static bool has_column_scales(const qfw_operand *x, ptrdiff_t rows, ptrdiff_t columns)
{
    const qfw_layout *l = &x->t.layout;
    return l->shared != 0 && l->outer == rows && l->axis == columns && l->inner == 1 &&
           l->group == 1;
}

static const char *scales_fault(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0], *a = &call->at[1], *b = &call->at[2];
    const sizes s = sizes_of(call);
    const bool folded = (call->op->flags & FOLDED) != 0;
    const bool by_row = scaled_by_row(call), by_column = scaled_by_column(call);
    if (by_row ? qfw_has_window(call) || !qfw_has_row_scales(a, s.m, s.k)
               : a->plan->rows != QFW_ROWS_AXIS) {
        return "a has more than a scale a row";
    }
    const bool grouped = qfw_has_window(call) && call->window->groups != 1;
    if (!folded && b->scales != 1 &&
        !(call->op->param[0] == FORWARD ? qfw_has_row_scales(b, s.n, s.k)
                                        : !grouped && has_column_scales(b, s.k, s.n))) {
        return "b has scales along the sum";
    }
    if (acc->plan->bits != 32) {
        return NULL;
    }
    return qfw_acc_fault(acc, s.m, s.n, by_row, by_column);
}

/* chunk * A * B fits an int32, and ceil(K A B / 2^h) + 2^30 for a bias does. */
const char *qfw_headroom_fault(int32_t a_bits, const qfw_operand *b, ptrdiff_t k, bool bias,
                               uint32_t chunk, uint32_t shift)
{
    const uint64_t most = ((UINT64_C(1) << (a_bits - 1)) - 1) *
                          (b == NULL ? 1 : (UINT64_C(1) << (b->plan->bits - 1)) - 1);
    const uint64_t limit = bias ? (1u << 30) - 1 : INT32_MAX;
    const uint64_t all = (uint64_t)k * most; /* < 2^30 * 2^30 */
    if (shift > 31 || chunk < 1 || (uint64_t)chunk * most > INT32_MAX) {
        return "headroom";
    }
    const bool one = chunk >= (uint64_t)k && shift == 0;
    return (one && all <= limit) || (!one && ((all - 1) >> shift) + 1 <= limit) ? NULL : "headroom";
}

static const char *tile_fault(const qfw_call *call)
{
    const qfw_operand *out = &call->at[0], *tile = &call->at[6];
    if (!requantizes(call)) {
        return qfw_has(call, 6) || qfw_has(call, 7) ? "tile" : NULL;
    }
    if (out->plan->rows != QFW_ROWS_AXIS) {
        return "codes of several scales";
    }
    if (qfw_has(call, 7) != (out->plan->range == QFW_HINDSIGHT) ||
        (qfw_has(call, 7) && (!qfw_is_gain(&call->at[7]) || scaled_by_row(call)))) {
        return "gain";
    }
    const sizes s = sizes_of(call);
    const qfw_layout *l = &tile->t.layout;
    if (!qfw_has(call, 6) || tile->plan->rows != QFW_NO_ROWS) {
        return "tile";
    }
    const ptrdiff_t t = tile_of(call);
    const bool fits = scaled_by_column(call) ? l->outer == t && l->axis == s.n && l->inner == 1 &&
                                                   l->group == 1 && l->shared != 0
                                             : l->axis == tile->n && tile->scales == 1;
    return fits && t >= 1 && tile->n == t * s.n && t <= (scaled_by_row(call) ? 1 : s.m) ? NULL
                                                                                        : "tile";
}

const char *qfw_product_fault(const qfw_call *call, int32_t a_bits)
{
    const char *broken = sizes_fault(call);
    broken = broken != NULL ? broken : scales_fault(call);
    broken = broken != NULL ? broken : tile_fault(call);
    if (broken != NULL) {
        return broken;
    }
    const ptrdiff_t least = pool_of(call) != NULL ? patches_at(call) : seeds_end(call);
    const ptrdiff_t there = qfw_has(call, 5) ? call->at[5].n : 0;
    const ptrdiff_t bytes = qfw_slot(&call->at[1].t.format) / 8;
    if (there < least || !has_patch(call, there, bytes)) {
        return "scratch";
    }
    return qfw_headroom_fault(a_bits, &call->at[2], sizes_of(call).k, qfw_has(call, 3),
                              call->op->param[1], call->op->param[2]);
}

const char *qfw_rule_product_s32(const qfw_call *call)
{
    return qfw_product_fault(call, call->at[1].plan->bits);
}
