/* Softmax and cross-entropy: docs/numerics.md section 15. */
#include "base/elementary.h"
#include "base/round.h"
#include "base/scale.h"
#include "include/qfw.h"
#include "kernels/softmax.h"

enum { MAX_ROWS = 1 << 24, IGNORED = -100 };

/* The sizes, and then every label; how many count. */
static qfw_status check(const int32_t *labels, size_t rows, size_t classes, size_t *count)
{
    *count = 0;
    if (rows == 0) {
        return QFW_E_ROWS;
    }
    if (rows > MAX_ROWS || classes == 0 || classes > QFW_MAX_CLASSES ||
        (uint64_t)rows * classes > SIZE_MAX / sizeof(int32_t)) {
        return QFW_E_SIZE;
    }
    for (size_t i = 0; i < rows; i++) {
        if (labels[i] != IGNORED && (labels[i] < 0 || (size_t)labels[i] >= classes)) {
            return QFW_E_LABEL;
        }
        *count += labels[i] != IGNORED ? 1 : 0;
    }
    return *count != 0 ? QFW_OK : QFW_E_LABEL;
}

/* One row: writes its error codes, raises *absmax, returns its loss in units of 2^-26: at most (2^36 +
 * 16 * 2^26) * ln 2, before the shift below 2^62. Probabilities are rounded down, so those of the other
 * classes sum to no more than what that of the label lacks. */
static uint64_t row_s16(const int16_t *z, size_t classes, size_t label, const qfw_log2_scale *s,
                        int32_t *error, uint32_t *absmax)
{
    const qfw_softmax_sum row = qfw_softmax_s16(z, classes, s, error);
    const uint32_t missing = (uint32_t)((1 << 30) - error[label]);
    error[label] -= 1 << 30;
    *absmax = missing > *absmax ? missing : *absmax;
    return (qfw_nll_s16(&row, z[label], s) * 46516320) >> 26;
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
    if (!QFW_HAS_BATCH && rows != 1) { /* firmware whose steps have one row */
        return QFW_E_ROWS;
    }
    size_t count;
    const qfw_status status = check(labels, rows, classes, &count);
    if (status != QFW_OK) {
        return status;
    }
    const qfw_log2_scale s = qfw_log2_scale_of(qfw_num_f32(scale));
    uint64_t sum = 0; /* of 2^24 losses below 2^36: below 2^60 */
    uint32_t largest = 0;
    for (size_t i = 0; i < rows; i++) {
        if (labels[i] == IGNORED) {
            memset(error + i * classes, 0, classes * sizeof *error);
            continue;
        }
        sum +=
            row_s16(z + i * classes, classes, (size_t)labels[i], &s, error + i * classes, &largest);
    }
    /* count is exact up to 2^24 */
    const float n = QFW_SOFT_FLOAT ? qfw_soft_float(count, 0) : (float)count;
    const float all = QFW_SOFT_FLOAT ? qfw_soft_float(sum, -26) : qfw_float_u64(sum) * 0x1p-26f;
    const bool one = !QFW_HAS_BATCH || count == 1;
    *error_scale = one ? 0x1p-30f : qfw_coef_div(0x1p-30f, n);
    *loss = one ? all : qfw_coef_div(all, n);
    if (absmax != NULL) {
        *absmax = largest;
    }
    return QFW_OK;
}

qfw_status qfw_cross_entropy_f32(const float *z, const int32_t *labels, size_t rows, size_t classes,
                                 float *error, float *loss)
{
    if (z == NULL || labels == NULL || error == NULL || loss == NULL) {
        return QFW_E_NULL;
    }
    size_t count;
    const qfw_status status = check(labels, rows, classes, &count);
    if (status != QFW_OK) {
        return status;
    }
    const float n = (float)count, share = qfw_div_f32(1.0f, n);
    float sum = 0.0f;
    for (size_t i = 0; i < rows; i++) {
        float *error_i = error + i * classes, top, of_row;
        if (labels[i] == IGNORED) {
            memset(error_i, 0, classes * sizeof *error_i);
            continue;
        }
        const size_t label = (size_t)labels[i];
        const qfw_status found = qfw_softmax_f32(z + i * classes, classes, error_i, &top, &of_row);
        if (found != QFW_OK) {
            return found;
        }
        const float behind = top - z[i * classes + label], r = qfw_div_f32(1.0f, of_row);
        for (size_t c = 0; c < classes; c++) {
            error_i[c] = (error_i[c] * r - (c == label ? 1.0f : 0.0f)) * share;
        }
        sum += qfw_log_f32(of_row) + behind; /* a loss that overflows is infinite */
    }
    *loss = qfw_div_f32(sum, n);
    return QFW_OK;
}
