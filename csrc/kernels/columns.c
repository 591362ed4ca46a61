/* Accumulators and scales that go by column, or by element. */
#include "base/round.h"
#include "kernels/codes.h"
#include "kernels/convert.h"

void qfw_find_ratios(const qfw_tensor *src, const qfw_tensor *dst, uint32_t *ratios)
{
    const size_t columns = (size_t)src->layout.axis;
    for (size_t c = 0; c < columns; c++) {
        const int bits = qfw_signed_bits(&dst->format);
        qfw_put_ratio(ratios, columns, c, qfw_ratio_of(src->scale[c], dst->scale[0], bits));
    }
}

uint64_t qfw_encode_columns(const qfw_kernels *kernels, const qfw_tensor *src,
                            const qfw_tensor *dst, const qfw_encoding *how,
                            const qfw_code_rule *rule, uint32_t *ratios)
{
    qfw_find_ratios(src, dst, ratios);
    return qfw_encode_rows(kernels, src, dst, how, rule, ratios);
}

uint64_t qfw_encode_rows(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                         const qfw_encoding *how, const qfw_code_rule *rule, const uint32_t *ratios)
{
    const size_t columns = (size_t)src->layout.axis;
    uint64_t saturated = 0;
    uint32_t u[QFW_TILE];
    int32_t m[QFW_TILE];
    for (int64_t row = 0; row < src->layout.outer; row++) {
        for (size_t c = 0; c < columns; c += QFW_TILE) {
            const size_t n = columns - c < QFW_TILE ? columns - c : QFW_TILE;
            const int64_t first = row * (int64_t)columns + (int64_t)c;
            const qfw_ratios here = qfw_ratios_at(ratios, columns, c);
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

uint64_t qfw_encode_singles(const qfw_tensor *src, const qfw_tensor *dst, const qfw_encoding *how,
                            const qfw_code_rule *rule, int64_t n)
{
    const float s_in = src->scale[0];
    uint64_t saturated = 0;
    uint32_t u[QFW_TILE] = {0};
    for (int64_t i = 0; i < n; i++) {
        const size_t at = (size_t)(i % QFW_TILE);
        if (at == 0 && rule->rounding == QFW_STOCHASTIC) {
            qfw_uniforms(&how->key, how->first + (uint64_t)i, QFW_TILE, u);
        }
        const int32_t a = ((const int32_t *)src->codes)[i];
        const qfw_num found = qfw_scale_for(s_in, qfw_abs32(a), (uint32_t)rule->qmax);
        const float s_out = qfw_num_scale_f32(found, dst->format.pow2 != 0);
        const qfw_ratio ratio = qfw_ratio_of(s_in, s_out, dst->format.bits);
        const int32_t v = qfw_rescale(a, &ratio, rule->rounding, u[at]);
        const int32_t code = v > rule->qmax ? rule->qmax : v < rule->qmin ? rule->qmin : v;
        saturated += code != v ? 1u : 0u;
        dst->scale[i] = s_out;
        ((int8_t *)dst->codes)[i] = (int8_t)code;
    }
    return saturated;
}
