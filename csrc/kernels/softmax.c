#include "kernels/softmax.h"
#include "base/elementary.h"
#include "base/round.h"
#include "base/scale.h"

qfw_log2_scale qfw_log2_scale_of(float scale)
{
    const qfw_num s = qfw_num_f32(scale);
    const qfw_log2_scale out = {(uint32_t)((s.mant * UINT64_C(3098164009)) >> 24), s.exp + 19};
    return out;
}

/* The product is 0 or in [2^30, 2^48), so a shift up by 36 or more saturates it and one down by 63 or
 * more leaves 0: neither is made longer. */
uint64_t qfw_distance(uint32_t below, const qfw_log2_scale *s)
{
    const uint64_t product = (uint64_t)below * s->mu, top = UINT64_C(1) << 36;
    if (s->shift > 0) {
        const int32_t up = s->shift < 36 ? s->shift : 36;
        return product > top >> up ? top : product << up;
    }
    const uint64_t t = product >> (s->shift > -63 ? -s->shift : 63);
    return t < top ? t : top;
}

/* floor(2^(31 + k) / sum) for 2^k <= sum < 2^(k+1), 30 <= k <= 46: in (2^30, 2^31]. By two digits,
 * of which the first numerator is at most 2^62 and the second below 2^15 sum < 2^62. */
static uint32_t reciprocal(uint64_t sum, int k)
{
    const uint64_t first = UINT64_C(1) << (k + 16);
    const uint64_t high = first / sum, low = ((first % sum) << 15) / sum;
    return (uint32_t)((high << 15) + low);
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
