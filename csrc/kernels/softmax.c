#include "kernels/softmax.h"
#include "base/elementary.h"
#include "base/round.h"

/* floor(2^(31 + k) / sum) for 2^k <= sum < 2^(k+1), 30 <= k <= 46: in (2^30, 2^31]. A bit at a time,
 * as the helper that divides 64 bits is as large as an operation. */
static uint32_t reciprocal(uint64_t sum, int k)
{
    uint64_t rest = UINT64_C(1) << k; /* < 2 sum */
    uint32_t q = 0;
    for (int i = 0; i < 32; i++) {
        const bool one = rest >= sum;
        q = q << 1 | (one ? 1u : 0u);
        rest = (rest - (one ? sum : 0)) << 1;
    }
    return q;
}

/* Twice exp2 is at most 2^31, so p <= 2^30. */
qfw_softmax_sum qfw_softmax_s16(const int16_t *z, size_t classes, const qfw_log2_scale *s,
                                int32_t *p)
{
    qfw_softmax_sum row = {0, z[0]};
    for (size_t c = 1; c < classes; c++) {
        row.top = z[c] > row.top ? z[c] : row.top;
    }
    for (size_t c = 0; c < classes; c++) {
        const uint32_t e = qfw_exp2_q30(qfw_distance((uint32_t)(row.top - z[c]), s));
        p[c] = (int32_t)e;
        row.sum += e;
    }
    const int k = qfw_msb64(row.sum);
    const uint32_t r = reciprocal(row.sum, k);
    for (size_t c = 0; c < classes; c++) {
        p[c] = (int32_t)(qfw_mulhi((uint32_t)p[c] << 1, r) >> (k - 30));
    }
    return row;
}

qfw_status qfw_softmax_f32(const float *z, size_t classes, float *e, float *top, float *sum)
{
    *top = z[0];
    for (size_t c = 0; c < classes; c++) {
        if ((qfw_bits_f32(z[c]) & 0x7FFFFFFFu) >= QFW_F32_INF) {
            return QFW_E_NONFINITE;
        }
        *top = z[c] > *top ? z[c] : *top;
    }
    *sum = 0.0f;
    for (size_t c = 0; c < classes; c++) {
        e[c] = qfw_exp_f32(z[c] - *top);
        *sum += e[c];
    }
    return QFW_OK;
}
