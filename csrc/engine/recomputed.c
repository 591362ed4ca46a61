/* Products whose sums are made twice, some at a time: for the range of them all, and for their codes.
 * The bits of a product and a dynamic convert, without the sums in memory. */
#include "base/layout.h"
#include "engine/product.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

qfw_num qfw_tile_scale(const qfw_call *call)
{
    const qfw_operand *tile = &call->at[6];
    int32_t lo, hi;
    qfw_code_range(&call->at[0].t.format, &lo, &hi);
    return qfw_known_scale(call->kernels, tile->t.scale, tile->absmax, tile->scales, (uint32_t)hi);
}

void qfw_set_found_scale(const qfw_call *call, qfw_num found)
{
    const qfw_operand *out = &call->at[0];
    out->t.scale[0] = qfw_num_scale_f32(found, qfw_is_pow2(out->t.format.pow2));
}

/* Where rows have scales of their own, each is a tile: rounding up is monotone, so the largest of
 * their scales is that of the largest. */
void qfw_product_range(const qfw_call *call)
{
    const qfw_operand *tile = &call->at[6];
    const sizes all = sizes_of(call);
    const ptrdiff_t most = tile_of(call);
    const bool by_row = scaled_by_row(call);
    const size_t bytes = (size_t)tile->scales * sizeof *tile->absmax;
    qfw_finish f = {NULL, NULL, false, false, NULL, 0, NULL};
    qfw_num found = {0, 0};
    memset(tile->absmax, 0, bytes);
    for (ptrdiff_t i = 0; i < all.m; i += most) {
        const ptrdiff_t rows = all.m - i < most ? all.m - i : most;
        if (i == 0 || by_row) {
            f = qfw_product_finish(call, call->at[1].t.scale[by_row ? i : 0], tile->t.scale,
                                   tile->absmax);
        }
        qfw_product_sums(call, i, rows, tile->t.codes);
        qfw_product_mask(call, i, &f);
        QFW_K(call->kernels, finish_s32)(tile->t.codes, (size_t)rows, (size_t)all.n, &f);
        if (by_row) {
            found = qfw_num_max(found, qfw_tile_scale(call));
            memset(tile->absmax, 0, bytes);
        }
    }
    qfw_set_found_scale(call, by_row ? found : qfw_tile_scale(call));
}
