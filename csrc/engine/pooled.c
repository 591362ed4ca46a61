/* A product over a window whose sums are pooled, some at a time, before they become codes: the bits of
 * product_s32, max_pool and convert, without their sums in memory.
 *
 * Places, params and flags as of product_s32 forward with codes, but 4, the picks, and param[4], the
 * number of the pool's window plus 1. */
#include "base/round.h"
#include "engine/pool.h"
#include "engine/product.h"
#include "kernels/convert.h"

/* Matrix rows first .. first + n - 1, of which rows out .. out + outs - 1 of the result are made. */
typedef struct {
    ptrdiff_t first, n, out, outs;
} band;

/* The next rows of a line of the result: as many as there is room for, or the whole line where a
 * window has several lines of the image. The first band comes after zeros; false: there is none. */
static bool next_band(const qfw_call *call, ptrdiff_t room, band *b)
{
    const qfw_window *w = pool_of(call);
    b->out += b->outs;
    if (b->out >= call->rows * qfw_out_positions(w)) {
        return false;
    }
    const ptrdiff_t line = b->out / w->out_w, x = b->out % w->out_w;
    const ptrdiff_t y = line / w->out_h * w->in_h + line % w->out_h * w->stride_h;
    b->first = y * w->in_w;
    b->n = w->kernel_h * (ptrdiff_t)w->in_w;
    b->outs = w->out_w;
    if (w->kernel_h == 1) {
        const ptrdiff_t most = (room - w->kernel_w) / w->stride_w + 1;
        b->outs = w->out_w - x < most ? w->out_w - x : most;
        b->first += x * w->stride_w;
        b->n = (b->outs - 1) * w->stride_w + w->kernel_w;
    }
    return true;
}

/* The pool over the sums of a band, which are an image by themselves. */
static qfw_window window_of(const qfw_window *pool, const band *b)
{
    qfw_window w = *pool;
    w.in_h = w.kernel_h;
    w.in_w = (int32_t)(b->n / w.kernel_h);
    w.out_h = 1;
    w.out_w = (int32_t)b->outs;
    return w;
}

static bool is_inside(const qfw_window *w)
{
    return (ptrdiff_t)(w->out_h - 1) * w->stride_h + w->kernel_h <= w->in_h &&
           (ptrdiff_t)(w->out_w - 1) * w->stride_w + w->kernel_w <= w->in_w;
}

const char *qfw_rule_product_pool_s32(const qfw_call *call)
{
    const qfw_window *conv = call->window, *pool = pool_of(call);
    const bool plain = (pool->pad_h | pool->pad_w) == 0 && pool->groups == 1 &&
                       pool->dilation_h == 1 && pool->dilation_w == 1;
    if (!plain || !is_inside(pool) || pool->in_h != conv->out_h || pool->in_w != conv->out_w ||
        call->op->param[0] != FORWARD) {
        return "window";
    }
    const char *broken = qfw_product_fault(call, call->at[1].plan->bits);
    if (broken != NULL) {
        return broken;
    }
    const ptrdiff_t t = tile_of(call), lines = pool->kernel_h * (ptrdiff_t)pool->in_w;
    if (pool->kernel_h == 1 ? t < pool->kernel_w || t > pool->in_w : t != lines) {
        return "tile";
    }
    return qfw_has(call, 4) && !qfw_is_pick(pool, &call->at[4], &call->at[0]) ? "picks" : NULL;
}

/* The largest of each window of a band, in the tile; picks: NULL, or where these go. */
static void fill_band(const qfw_call *call, const band *b, const qfw_finish *f,
                      const qfw_operand *picks, bool look)
{
    const qfw_operand *tile = &call->at[6];
    const ptrdiff_t n = sizes_of(call).n;
    const qfw_window w = window_of(pool_of(call), b);
    const qfw_finish largest = {NULL, NULL, false, scaled_by_column(call), NULL, 0, tile->absmax};
    qfw_product_sums(call, b->first, b->n, tile->t.codes);
    QFW_K(call->kernels, finish_s32)(tile->t.codes, (size_t)b->n, (size_t)n, f);
    qfw_pool_sums(call->kernels, &w, tile->t.codes, n, picks, b->out * n);
    if (look) { /* at what is stored */
        QFW_K(call->kernels, finish_s32)(tile->t.codes, (size_t)b->outs, (size_t)n, &largest);
    }
}

/* The scale of the codes, the sums having theirs. */
static qfw_status find_scale(const qfw_call *call, const qfw_finish *f)
{
    const qfw_operand *out = &call->at[0];
    band b = {0, 0, 0, 0};
    if (QFW_HAS_HINDSIGHT && qfw_has(call, 7)) {
        return qfw_hindsight_scales(out, out->t.scale, &call->at[7], call->at[1].t.scale[0]);
    }
    if (!recomputes(call)) {
        qfw_fix_scales(out, out->t.scale);
        return QFW_OK;
    }
    while (next_band(call, tile_of(call), &b)) {
        fill_band(call, &b, f, NULL, true);
    }
    qfw_set_found_scale(call, qfw_tile_scale(call));
    return QFW_OK;
}

qfw_status qfw_op_product_pool_s32(const qfw_call *call)
{
    const qfw_operand *out = &call->at[0], *tile = &call->at[6];
    const qfw_operand *picks = qfw_has(call, 4) ? &call->at[4] : NULL;
    const ptrdiff_t n = sizes_of(call).n;
    const bool each = scaled_by_column(call), gain = QFW_HAS_HINDSIGHT && qfw_has(call, 7);
    const float s_a = call->at[1].t.scale[0];
    uint32_t *unused =
        (uint32_t *)(void *)((uint8_t *)call->at[5].t.codes + aligned(seeds_end(call)));
    qfw_tensor sums = tile->t;
    band b = {0, 0, 0, 0};
    QFW_TRY(qfw_product_codes(call, call->at[1].plan->bits));
    QFW_TRY(qfw_product_bias(call));
    memset(tile->absmax, 0, (size_t)tile->scales * sizeof *tile->absmax);
    memset(unused, 0, (size_t)n * sizeof *unused);
    const qfw_finish f = qfw_product_finish(call, s_a, sums.scale, unused);
    QFW_TRY(find_scale(call, &f));
    if (picks != NULL) {
        ((uint8_t *)picks->t.codes)[qfw_codes_bytes(picks) - 1] = 0; /* after the last one */
    }
    if (each) {
        qfw_find_ratios(call->kernels, &sums, &out->t, call->at[5].t.codes);
    }
    while (next_band(call, tile_of(call), &b)) {
        fill_band(call, &b, &f, picks, gain);
        sums.layout.outer = each ? b.outs : 1;
        sums.layout.axis = each ? n : b.outs * n;
        sums.layout.group = each ? 1 : sums.layout.axis;
        QFW_TRY(qfw_product_encode(call, &sums, b.out));
    }
    if (gain) {
        qfw_hindsight_ask(call, &call->at[7], qfw_largest_sum(tile), s_a);
    }
    return QFW_OK;
}
