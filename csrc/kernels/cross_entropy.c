/* Softmax and cross-entropy: docs/numerics.md section 15. */
#include "base/elementary.h"
#include "base/round.h"
#include "base/scale.h"
#include "include/qfw.h"

enum { MAX_ROWS = 1 << 24, MAX_CLASSES = 1 << 16 };

/* The sizes, and then every label. */
static qfw_status check(const int32_t *labels, size_t rows, size_t classes)
{
    if (rows == 0) {
        return QFW_E_ROWS;
    }
    if (rows > MAX_ROWS || classes == 0 || classes > MAX_CLASSES ||
        (uint64_t)rows * classes > SIZE_MAX / sizeof(int32_t)) {
        return QFW_E_SIZE;
    }
    for (size_t i = 0; i < rows; i++) {
        if (labels[i] < 0 || (size_t)labels[i] >= classes) {
            return QFW_E_LABEL;
        }
    }
    return QFW_OK;
}

/* The scale of the logits times log2(e), as distances need it: mu * 2^shift. */
typedef struct {
    uint32_t mu; /* 2^30 < mu < 2^32 */
    int32_t shift;
} log2_scale;

static log2_scale log2_scale_of(float scale)
{
    const qfw_num s = qfw_num_f32(scale);
    const log2_scale out = {(uint32_t)((s.mant * UINT64_C(3098164009)) >> 24), s.exp + 19};
    return out;
}

/* floor(below * mu * 2^shift), at most 2^36; below < 2^16. The product is 0 or in [2^30, 2^48), so
 * a shift up by 36 or more saturates it and one down by 63 or more leaves 0: neither is made
 * longer. */
static uint64_t distance(uint32_t below, const log2_scale *s)
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

/* One row: writes its error codes, raises *absmax, returns its loss in units of 2^-26.
 * sum: 2^30 for the largest logit, at most 2^16 times that. Twice exp2 is at most 2^31, so p <= 2^30
 * and every code fits. loss <= (2^36 + 16 * 2^26) * ln 2, before the shift below 2^62. */
static uint64_t row_s16(const int16_t *z, size_t classes, size_t label, const log2_scale *s,
                        int32_t *error, uint32_t *absmax)
{
    int32_t top = z[0];
    for (size_t c = 1; c < classes; c++) {
        top = z[c] > top ? z[c] : top;
    }
    uint64_t sum = 0;
    for (size_t c = 0; c < classes; c++) {
        const uint32_t e = qfw_exp2_q30(distance((uint32_t)(top - z[c]), s));
        error[c] = (int32_t)e;
        sum += e;
    }
    const int k = qfw_msb64(sum);
    const uint32_t r = reciprocal(sum, k);
    for (size_t c = 0; c < classes; c++) {
        const uint32_t p = qfw_mulhi((uint32_t)error[c] << 1, r) >> (k - 30);
        error[c] = (int32_t)p - (c == label ? 1 << 30 : 0);
        *absmax = qfw_abs32(error[c]) > *absmax ? qfw_abs32(error[c]) : *absmax;
    }
    const uint64_t l =
        qfw_log2_q26(sum) - (UINT64_C(30) << 26) + distance((uint32_t)(top - z[label]), s);
    return (l * 46516320) >> 26;
}

qfw_status qfw_cross_entropy_s16(const int16_t *z, float scale, const int32_t *labels, size_t rows,
                                 size_t classes, int32_t *error, float *error_scale,
                                 uint32_t *absmax, float *loss)
{
    if (z == NULL || labels == NULL || error == NULL || error_scale == NULL || loss == NULL) {
        return QFW_E_NULL;
    }
    if (!qfw_is_scale_f32(scale)) {
        return QFW_E_SCALE;
    }
    const qfw_status status = check(labels, rows, classes);
    if (status != QFW_OK) {
        return status;
    }
    const log2_scale s = log2_scale_of(scale);
    uint64_t sum = 0; /* of 2^24 losses below 2^36: below 2^60 */
    uint32_t largest = 0;
    for (size_t i = 0; i < rows; i++) {
        sum +=
            row_s16(z + i * classes, classes, (size_t)labels[i], &s, error + i * classes, &largest);
    }
    const float n = (float)rows; /* exact up to 2^24 */
    *error_scale = qfw_div_f32(0x1p-30f, n);
    *loss = qfw_div_f32((float)sum * 0x1p-26f, n);
    if (absmax != NULL) {
        *absmax = largest;
    }
    return QFW_OK;
}

/* One row: its error, per row of the mean, and its loss. Every difference from the largest logit is
 * at most 0 or -infinity, so 1 <= sum <= classes. A loss that overflows is infinite. */
static float row_f32(const float *z, size_t classes, size_t label, float share, float *error,
                     float top)
{
    const float behind = top - z[label];
    float sum = 0.0f;
    for (size_t c = 0; c < classes; c++) {
        error[c] = qfw_exp_f32(z[c] - top);
        sum += error[c];
    }
    const float r = qfw_div_f32(1.0f, sum);
    for (size_t c = 0; c < classes; c++) {
        error[c] = (error[c] * r - (c == label ? 1.0f : 0.0f)) * share;
    }
    return qfw_log_f32(sum) + behind;
}

qfw_status qfw_cross_entropy_f32(const float *z, const int32_t *labels, size_t rows, size_t classes,
                                 float *error, float *loss)
{
    if (z == NULL || labels == NULL || error == NULL || loss == NULL) {
        return QFW_E_NULL;
    }
    const qfw_status status = check(labels, rows, classes);
    if (status != QFW_OK) {
        return status;
    }
    const float n = (float)rows, share = qfw_div_f32(1.0f, n);
    float sum = 0.0f;
    for (size_t i = 0; i < rows; i++) {
        const float *z_i = z + i * classes;
        float top = z_i[0];
        for (size_t c = 0; c < classes; c++) {
            if ((qfw_bits_f32(z_i[c]) & 0x7FFFFFFFu) >= QFW_F32_INF) {
                return QFW_E_NONFINITE;
            }
            top = z_i[c] > top ? z_i[c] : top;
        }
        sum += row_f32(z_i, classes, (size_t)labels[i], share, error + i * classes, top);
    }
    *loss = qfw_div_f32(sum, n);
    return QFW_OK;
}
