#include "kernels/softmax.h"
#include "base/elementary.h"
#include "base/round.h"

/* floor(2^(31 + k) / sum) for 2^k <= sum < 2^(k+1), 30 <= k <= 46: in (2^30, 2^31]. With D the 32 bits
 * that lead, 2^31 <= D < 2^32, r is 2^48 / D but for 2^-15 of it, off = 2^48 - r D below 2^34 in size, and r
 * (1 + off 2^-48) 2^14 is off by less than 8: the remainder tells by how much. That is a few times sum at
 * most, so it is known from its 64 lower bits. */
static uint32_t reciprocal(uint64_t sum, int k)
{
    const uint32_t top = (uint32_t)(k > 31 ? sum >> (k - 31) : sum << (31 - k));
    const uint32_t r = UINT32_MAX / (top >> 16);
    const int64_t off = (INT64_C(1) << 48) - (int64_t)((uint64_t)r * top);
    uint32_t q = qfw_add32(r << 14, (uint32_t)(((off >> 3) * (int64_t)r) >> 31));
    const uint64_t low = (sum & 0xFFFFFFFFu) * q;
    const uint32_t whole = k < 33 ? UINT32_C(1) << (k - 1) : 0; /* the high word of 2^(31 + k) */
    const uint32_t high = qfw_add32((uint32_t)(low >> 32), qfw_mul32((uint32_t)(sum >> 32), q));
    int64_t rest = (int64_t)(int32_t)qfw_sub32(whole, high) * (INT64_C(1) << 32) -
                   (int64_t)(low & 0xFFFFFFFFu);
    for (; rest < 0; rest += (int64_t)sum) {
        q--;
    }
    for (; rest >= (int64_t)sum; rest -= (int64_t)sum) {
        q++;
    }
    return q;
}

/* 2^30 2^-(below mu 2^-down), below < 2^16, 1 <= down <= 31: the distance is a word, or beyond what is
 * not 0. */
static inline uint32_t power(uint32_t below, uint32_t mu, uint32_t down)
{
    const uint64_t product = qfw_mul64(below, mu);
    const uint32_t high = (uint32_t)(product >> 32), low = (uint32_t)(product & 0xFFFFFFFFu);
    const uint32_t t = qfw_mul32(high, UINT32_C(1) << (32 - down)) | low >> down;
    return high >> down == 0 && t < QFW_EXP2_END ? qfw_exp2_word(t) : 0;
}

/* Twice exp2 is at most 2^31, so p <= 2^30. */
qfw_softmax_sum qfw_softmax_s16(const int16_t *z, size_t classes, const qfw_log2_scale *s,
                                int32_t *p)
{
    qfw_softmax_sum row = {0, z[0]};
    for (size_t c = 1; c < classes; c++) {
        row.top = z[c] > row.top ? z[c] : row.top;
    }
    const uint32_t down = (uint32_t)-s->shift;
    for (size_t c = 0; c < classes; c++) {
        const uint32_t below = (uint32_t)(row.top - z[c]);
        const uint32_t e = qfw_sub32(down, 1) < 31 ? power(below, s->mu, down)
                                                   : qfw_exp2_q30(qfw_distance(below, s));
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
