/* Rows of floats to plain int8, which have a kernel of their own. */
#include "base/layout.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

bool qfw_has_row_kernel(const qfw_tensor *src, const qfw_tensor *dst)
{
    const qfw_format *f = &dst->format;
    return src->format.kind == QFW_FLOAT32 && f->kind == QFW_SYM && qfw_slot(f) == 8 &&
           (dst->layout.shared == 0 || dst->layout.outer == 1);
}

qfw_status qfw_quantize_rows(const qfw_kernels *kernels, const qfw_tensor *src,
                             const qfw_tensor *dst, const qfw_encoding *how, uint64_t *saturated)
{
    const qfw_layout *l = &dst->layout;
    const ptrdiff_t row = l->axis * l->inner;
    qfw_row_encoding each = {
        (1u << (dst->format.bits - 1)) - 1, how->dynamic != 0, qfw_is_pow2(dst->format.pow2),
        (qfw_rounding)how->rounding,        &how->key,         how->first};
    if (!QFW_HAS_LINES) {
        return QFW_K(kernels, quantize_s8)(src->codes, (size_t)row, (size_t)row, &each, dst->scale,
                                           dst->codes, saturated);
    }
    for (ptrdiff_t o = 0; o < l->outer; o++, each.first += (uint64_t)row) {
        QFW_TRY(QFW_K(kernels, quantize_s8)(
            (const float *)src->codes + o * row, (size_t)row, (size_t)qfw_run_length(l), &each,
            dst->scale + o * qfw_groups(l), (int8_t *)dst->codes + o * row, saturated));
    }
    return QFW_OK;
}
