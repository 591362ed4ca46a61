/* Accumulators whose columns have scales of their own. */
#include "kernels/codes.h"
#include "kernels/convert.h"

uint64_t qfw_encode_columns(const qfw_kernels *kernels, const qfw_tensor *src,
                            const qfw_tensor *dst, const qfw_encoding *how,
                            const qfw_code_rule *rule, uint32_t *ratios)
{
    const size_t columns = (size_t)src->layout.axis;
    uint32_t *mult = ratios, *limit = mult + columns, *up = limit + columns, *down = up + columns;
    for (size_t c = 0; c < columns; c++) {
        const qfw_ratio r =
            qfw_ratio_of(src->scale[c], dst->scale[0], qfw_signed_bits(&dst->format));
        mult[c] = r.mult;
        limit[c] = r.limit;
        up[c] = r.up;
        down[c] = r.down;
    }
    uint64_t saturated = 0;
    uint32_t u[QFW_TILE];
    int32_t m[QFW_TILE];
    for (int64_t row = 0; row < src->layout.outer; row++) {
        for (size_t c = 0; c < columns; c += QFW_TILE) {
            const size_t n = columns - c < QFW_TILE ? columns - c : QFW_TILE;
            const int64_t first = row * (int64_t)columns + (int64_t)c;
            const qfw_ratios here = {mult + c, limit + c, up + c, down + c};
            if (rule->rounding == QFW_STOCHASTIC) {
                qfw_uniforms(&how->key, how->first + (uint64_t)first, n, u);
            }
            const int32_t *a = (const int32_t *)src->codes + first;
            saturated += kernels->rescale_columns(a, u, n, &here, rule, m);
            qfw_store_codes(dst, first, n, m);
        }
    }
    return saturated;
}
