/* The way back of a product over a line, b's scales being folded into a few positions of a at a time:
 * the bits of widen and product_s32, without the widened operand in memory.
 *
 * Places as of product_s32 back, without bias; scratch begins with the columns' ratios (16 bytes each),
 * and then has the widened positions. Params and flags as of product_s32, but param[4], the bits of
 * widened codes, which have 16 bits of room. */
#include "engine/product.h"
#include "engine/widen.h"
#include "engine/window.h"
#include "kernels/codes.h"

/* Operand a as it is widened: its scale, and where some of its positions stand. */
typedef struct {
    uint32_t *ratios;
    int16_t *codes;
    ptrdiff_t room; /* positions */
    float scale;
} folded;

static ptrdiff_t ratios_end(const qfw_call *call)
{
    return 16 * a_channels_of(call);
}

const char *qfw_rule_product_fold_s32(const qfw_call *call)
{
    const qfw_window *w = call->window;
    const uint32_t bits = call->op->param[4];
    const bool line = w != NULL && w->in_h == 1 && w->out_h == 1 && w->kernel_h == 1 &&
                      w->pad_h == 0 && w->groups == 1 && w->dilation_w == 1 &&
                      w->stride_w <= w->kernel_w;
    if (!line || call->op->param[0] != BACK) {
        return "window";
    }
    if (call->op->flags != FOLDED || bits <= 8 || bits > 16 || bits < call->at[1].plan->bits) {
        return "flags, param";
    }
    const char *broken = qfw_product_fault(call, (int32_t)bits);
    if (broken != NULL) {
        return broken;
    }
    const ptrdiff_t channels = a_channels_of(call);
    if (call->at[2].scales != channels) {
        return "a scale a column";
    }
    /* A pixel meets no more positions than that. */
    const ptrdiff_t least = (w->kernel_w + w->stride_w - 1) / w->stride_w;
    return (call->at[5].n - ratios_end(call)) / (2 * channels) < least ? "scratch" : NULL;
}

/* Positions first .. first + n - 1 of a. */
static void widen(const qfw_call *call, const folded *f, ptrdiff_t first, ptrdiff_t n)
{
    const qfw_operand *a = &call->at[1];
    const ptrdiff_t channels = a_channels_of(call);
    const size_t wide = (size_t)channels;
    const int32_t q = (1 << (call->op->param[4] - 1)) - 1;
    const qfw_code_rule rule = {QFW_HALF_AWAY, 0, -q, q};
    const qfw_key none = {0, 0};
    const qfw_rescaling c = {
        (const int8_t *)a->t.codes + first * channels,
        f->codes,
        8,
        16,
        (size_t)n,
        wide,
        {f->ratios, f->ratios + wide, f->ratios + 2 * wide, f->ratios + 3 * wide},
        &none,
        0};
    (void)QFW_K(call->kernels, rescale_rows)(&c, &rule);
}

/* Pixels x0 .. x1 - 1 of a line as an image of their own, over positions first .. first + n - 1. The
 * padding is at least 0, since strides are no longer than the kernel, and less than that. */
static qfw_window window_of(const qfw_window *w, const qfw_line *at, const qfw_meeting *m)
{
    qfw_window part = *w;
    part.in_w = (int32_t)(at->x1 - at->x0);
    part.out_w = (int32_t)m->n;
    part.pad_w = (uint16_t)(w->pad_w + at->x0 - m->first * w->stride_w);
    return part;
}

/* Sums of the pixels first .. first + m - 1: as many at a time as meet positions there is room for. */
static void sum_rows(const qfw_call *call, const folded *f, ptrdiff_t first, ptrdiff_t m,
                     int32_t *out)
{
    const qfw_window *w = call->window;
    const ptrdiff_t n = sizes_of(call).n, step = w->stride_w;
    for (ptrdiff_t i = 0; i < m;) {
        qfw_line at = qfw_line_at(w->in_w, 1, first + i, m - i);
        qfw_meeting some = {qfw_meet(w, w->kernel_w - 1, at.x0, at.x0 + 1).first, 0};
        const ptrdiff_t most = (some.first + f->room) * step - w->pad_w; /* > x0 */
        at.x1 = at.x1 < most ? at.x1 : most;
        const ptrdiff_t last = (at.x1 - 1 + w->pad_w) / step;
        some.n = (last < w->out_w ? last + 1 : w->out_w) - some.first;
        int32_t *to = out + i * n;
        if (some.n > 0) {
            const qfw_window part = window_of(w, &at, &some);
            const qfw_convolution c = {call->kernels,       &part, f->codes,
                                       call->at[2].t.codes, 16,    qfw_slot(&call->at[2].t.format),
                                       a_channels_of(call), n,     qfw_param_size(call->op, 1),
                                       call->op->param[2],  NULL,  0};
            widen(call, f, at.sample * w->out_w + some.first, some.n);
            qfw_convolve_back(&c, 0, at.x1 - at.x0, to);
        } else {
            memset(to, 0, (size_t)((at.x1 - at.x0) * n) * sizeof *to);
        }
        i += at.x1 - at.x0;
    }
}

/* Sums of the pixels first .. first + rows - 1 in the tile, and what follows them. */
static void fill_tile(const qfw_call *call, const folded *f, ptrdiff_t first, ptrdiff_t rows,
                      qfw_finish *after)
{
    int32_t *sums = call->at[6].t.codes;
    sum_rows(call, f, first, rows, sums);
    qfw_product_mask(call, first, after);
    QFW_K(call->kernels, finish_s32)(sums, (size_t)rows, (size_t)sizes_of(call).n, after);
}

/* A tile of pixels at a time: the sums, what follows them, and their codes. */
static qfw_status requantize(const qfw_call *call, const folded *f)
{
    const qfw_operand *out = &call->at[0], *tile = &call->at[6];
    const sizes all = sizes_of(call);
    const ptrdiff_t most = tile_of(call);
    const bool gain = QFW_HAS_HINDSIGHT && qfw_has(call, 7);
    qfw_tensor sums = tile->t;
    memset(tile->absmax, 0, sizeof *tile->absmax);
    qfw_finish after = qfw_product_finish(call, f->scale, sums.scale, tile->absmax);
    if (gain) {
        QFW_TRY(qfw_hindsight_scales(out, out->t.scale, &call->at[7], f->scale));
    } else if (recomputes(call)) {
        for (ptrdiff_t i = 0; i < all.m; i += most) {
            fill_tile(call, f, i, all.m - i < most ? all.m - i : most, &after);
        }
        qfw_set_found_scale(call, qfw_tile_scale(call));
    } else {
        qfw_fix_scales(out, out->t.scale);
    }
    for (ptrdiff_t i = 0; i < all.m; i += most) {
        const ptrdiff_t rows = all.m - i < most ? all.m - i : most;
        sums.layout.axis = sums.layout.group = rows * all.n;
        fill_tile(call, f, i, rows, &after);
        QFW_TRY(qfw_product_encode(call, &sums, i));
    }
    if (gain) {
        qfw_hindsight_ask(call, &call->at[7], qfw_largest_sum(tile), f->scale);
    }
    return QFW_OK;
}

qfw_status qfw_op_product_fold_s32(const qfw_call *call)
{
    const qfw_operand *acc = &call->at[0];
    const ptrdiff_t channels = a_channels_of(call);
    const int32_t bits = (int32_t)call->op->param[4];
    uint8_t *scratch = call->at[5].t.codes;
    folded f = {(uint32_t *)(void *)scratch, (int16_t *)(void *)(scratch + ratios_end(call)),
                (call->at[5].n - ratios_end(call)) / (2 * channels), 0.0f};
    QFW_TRY(qfw_product_codes(call, bits));
    f.scale = qfw_folded_scale(&call->at[1], &call->at[2], channels, bits);
    qfw_fold_columns(call->kernels, &call->at[1], &call->at[2], channels, bits, f.scale, f.ratios);
    if (requantizes(call)) {
        return requantize(call, &f);
    }
    const sizes all = sizes_of(call);
    acc->absmax[0] = 0;
    qfw_finish after = qfw_product_finish(call, f.scale, acc->t.scale, acc->absmax);
    sum_rows(call, &f, 0, all.m, acc->t.codes);
    qfw_product_mask(call, 0, &after);
    QFW_K(call->kernels, finish_s32)(acc->t.codes, (size_t)all.m, (size_t)all.n, &after);
    return QFW_OK;
}
