/* Products that write codes: some rows of sums at a time, in a tile. */
#include "base/layout.h"
#include "base/round.h"
#include "engine/count.h"
#include "engine/product.h"
#include "kernels/at_once.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

qfw_status qfw_product_encode(const qfw_call *call, const qfw_tensor *sums, ptrdiff_t row)
{
    const qfw_operand *out = &call->at[0];
    const ptrdiff_t n = sums->layout.outer * sums->layout.axis, first = row * sizes_of(call).n;
    const qfw_layout flat = {1, n, 1, n, 0, 0};
    const uint64_t at = (uint64_t)(QFW_ROWS_BEFORE(call) * out->row + first);
    const qfw_encoding how = {out->plan->rounding, 0, qfw_key_of(call, out), at};
    const uint32_t *ratios = call->at[5].t.codes;
    qfw_tensor part = out->t;
    uint64_t saturated = 0;
    part.codes = (uint8_t *)part.codes + first * (qfw_slot(&part.format) / 8);
    part.layout = flat;
    if (ratio_bytes(call) == 0) {
        QFW_TRY(qfw_convert(call->kernels, sums, &part, &how, &saturated));
    } else {
        qfw_code_rule rule = {(qfw_rounding)how.rounding, 0, 0, 0};
        qfw_code_range(&part.format, &rule.qmin, &rule.qmax);
        const size_t rows = (size_t)sums->layout.outer, columns = (size_t)sums->layout.axis;
        saturated = qfw_encode_rows(call->kernels, sums, &part, &how, &rule, ratios, rows, columns);
    }
    qfw_operand counted = *out;
    counted.t = part;
    qfw_count_encoded(&counted, saturated);
    return QFW_OK;
}

/* The same of sums with what follows the sums, in one go; false: it has to be done one by one. Of one row
 * the ratios need not be there. */
static bool finish_rows(const qfw_call *call, const qfw_tensor *sums, ptrdiff_t rows, ptrdiff_t row,
                        const qfw_finish *finish, const uint32_t *ratios)
{
    qfw_operand out = call->at[0];
    const ptrdiff_t n = sizes_of(call).n;
    qfw_code_rule rule = {(qfw_rounding)out.plan->rounding, 0, 0, 0};
    qfw_finish f = *finish;
    uint64_t saturated = 0;
    qfw_code_range(&out.t.format, &rule.qmin, &rule.qmax);
    f.absmax = QFW_HAS_HINDSIGHT && qfw_has(call, 7) ? f.absmax : NULL;
    out.t.codes = (uint8_t *)out.t.codes + row * n;
    if (ratio_bytes(call) == 0 || qfw_slot(&out.t.format) != 8 ||
        !(ratios != NULL ? qfw_finish_codes(sums->codes, (size_t)rows, (size_t)n, &f, ratios, &rule,
                                            out.t.codes, &saturated)
                         : qfw_codes_of_row(sums->codes, (size_t)n, &f, sums->scale, &out.t, &rule,
                                            out.t.codes, &saturated))) {
        return false;
    }
    const qfw_layout flat = {1, rows * n, 1, rows * n, 0, 0};
    out.t.layout = flat;
    qfw_count_encoded(&out, saturated);
    return true;
}

qfw_status qfw_product_requantize(const qfw_call *call)
{
    const qfw_operand *out = &call->at[0], *tile = &call->at[6];
    const sizes all = sizes_of(call);
    const ptrdiff_t most = tile_of(call);
    const bool by_row = scaled_by_row(call), by_column = scaled_by_column(call);
    uint32_t *ratios = call->at[5].t.codes;
    qfw_tensor sums = tile->t;
    qfw_finish f = {NULL, NULL, false, false, NULL, 0, NULL};
    uint64_t saturated = 0;
    if (QFW_HAS_HINDSIGHT && qfw_has(call, 7)) {
        QFW_TRY(qfw_hindsight_scales(out, out->t.scale, &call->at[7], call->at[1].t.scale[0]));
    } else if (recomputes(call)) {
        qfw_product_range(call);
    } else {
        qfw_fix_scales(out, out->t.scale);
    }
    memset(tile->absmax, 0, (size_t)tile->scales * sizeof *tile->absmax);
    for (ptrdiff_t i = 0; i < all.m; i += most) {
        const ptrdiff_t rows = all.m - i < most ? all.m - i : most;
        sums.layout.outer = by_column ? rows : 1;
        sums.layout.axis = by_column ? all.n : rows * all.n;
        sums.layout.group = by_column ? 1 : sums.layout.axis;
        qfw_product_sums(call, i, rows, sums.codes);
        if (qfw_product_coded(call, &sums, &saturated)) {
            qfw_count_encoded(out, saturated);
            break;
        }
        if (i == 0 || by_row) {
            f = qfw_product_finish(call, call->at[1].t.scale[by_row ? i : 0], sums.scale,
                                   tile->absmax);
        }
        qfw_product_mask(call, i, &f);
        if (QFW_DIRECT && all.m == 1 && finish_rows(call, &sums, 1, 0, &f, NULL)) {
            continue;
        }
        if (by_column && (i == 0 || by_row)) {
            qfw_find_ratios(call->kernels, &sums, &out->t, ratios);
        }
        if (QFW_DIRECT && all.m != 1 && finish_rows(call, &sums, rows, i, &f, ratios)) {
            continue;
        }
        QFW_K(call->kernels, finish_s32)(sums.codes, (size_t)rows, (size_t)all.n, &f);
        QFW_TRY(qfw_product_encode(call, &sums, i));
    }
    if (QFW_HAS_HINDSIGHT && qfw_has(call, 7)) {
        qfw_hindsight_ask(call, &call->at[7], qfw_largest_sum(tile), call->at[1].t.scale[0]);
    }
    return QFW_OK;
}
