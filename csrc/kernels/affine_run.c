/* The affine family's edge: what is checked before anything is written; how scales are found. */
#include "base/layout.h"
#include "base/scale.h"
#include "kernels/affine.h"

static bool code_limits(int32_t type, int32_t *low, int32_t *high)
{
    switch (type) {
    case QFW_I8:
        *low = INT8_MIN, *high = INT8_MAX;
        return true;
    case QFW_U8:
        *low = 0, *high = UINT8_MAX;
        return true;
    case QFW_I16:
        *low = INT16_MIN, *high = INT16_MAX;
        return true;
    case QFW_U16:
        *low = 0, *high = UINT16_MAX;
        return true;
    case QFW_I32:
        *low = INT32_MIN, *high = INT32_MAX;
        return true;
    default:
        return false;
    }
}

static bool is_real(int32_t real)
{
    return real >= QFW_F32 && real <= QFW_BF16;
}

qfw_status qfw_affine_check(const qfw_affine *affine)
{
    ptrdiff_t elements = 0, scales = 0;
    if (affine == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(qfw_layout_check(&affine->layout, &elements, &scales));
    if (affine->op < QFW_QUANTIZE || affine->op > QFW_FAKE_QUANTIZE_BACKWARD ||
        !is_real(affine->real) || affine->rounding < QFW_HALF_AWAY ||
        affine->rounding > QFW_STOCHASTIC || affine->in_range < QFW_INCLUSIVE ||
        affine->in_range > QFW_STRICT) {
        return QFW_E_KIND;
    }
    if (affine->qmax < affine->qmin) {
        return QFW_E_RANGE;
    }
    if (affine->op == QFW_QUANTIZE || affine->op == QFW_DEQUANTIZE) {
        int32_t low = 0, high = 0;
        if (!code_limits(affine->code, &low, &high)) {
            return QFW_E_KIND;
        }
        if (affine->op == QFW_QUANTIZE && (affine->qmin < low || affine->qmax > high)) {
            return QFW_E_RANGE;
        }
    }
    return QFW_OK;
}

qfw_status qfw_affine_workspace(const qfw_affine *affine, size_t *bytes)
{
    if (bytes == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(qfw_affine_check(affine));
    *bytes = 0;
    return QFW_OK;
}

static qfw_status check_data(const qfw_affine *a, const qfw_affine_data *d)
{
    const bool backward = a->op >= QFW_QUANTIZE_BACKWARD,
               dequantize_backward = a->op == QFW_DEQUANTIZE_BACKWARD;
    const bool needs_x = !dequantize_backward && (!backward || d->mask_in == NULL);
    const bool needs_scale = needs_x || a->op != QFW_FAKE_QUANTIZE_BACKWARD;
    if (d->out == NULL || (needs_x && d->x == NULL) || (backward && d->dy == NULL) ||
        (needs_scale && d->scale == NULL)) {
        return QFW_E_NULL;
    }
    return QFW_OK;
}

static qfw_status check_points(const qfw_affine *a, const qfw_affine_data *d, ptrdiff_t scales,
                               uint32_t *max_zp)
{
    const ptrdiff_t n = d->scale != NULL ? scales : 0;
    const bool is_f64 = a->real == QFW_F64;
    const double *s64 = d->scale;
    const float *s32 = d->scale;
    uint32_t none = 0; /* without a branch: there may be one for 32 elements */
    for (ptrdiff_t i = 0, end = is_f64 ? n : 0; i < end; i++) {
        none |= qfw_is_scale_f64(s64[i]) ? 0u : 1u;
    }
    for (ptrdiff_t i = 0, end = is_f64 ? 0 : n; i < end; i++) {
        none |= qfw_is_scale_f32(s32[i]) ? 0u : 1u;
    }
    if (none != 0) {
        return QFW_E_SCALE;
    }
    uint32_t most = *max_zp, some = 0; /* most often all are 0, which takes less to see */
    for (ptrdiff_t i = 0, end = d->zero_point != NULL ? scales : 0; i < end; i++) {
        some |= (uint32_t)d->zero_point[i];
    }
    for (ptrdiff_t i = 0, end = some != 0 ? scales : 0; i < end; i++) {
        const uint32_t zp = qfw_abs32(d->zero_point[i]);
        most = zp > most ? zp : most;
    }
    *max_zp = most;
    return QFW_OK;
}

/* Everything that a run needs, before anything is written. */
static qfw_status check_run(const qfw_kernels *kernels, const qfw_affine *affine,
                            const qfw_affine_data *data, ptrdiff_t *elements, uint32_t *max_zp)
{
    ptrdiff_t scales = 0;
    if (!qfw_has_kernels(kernels) || data == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(qfw_affine_check(affine));
    QFW_TRY(qfw_layout_check(&affine->layout, elements, &scales));
    if (*elements > 0) {
        QFW_TRY(check_data(affine, data));
    }
    return check_points(affine, data, scales, max_zp);
}

qfw_status qfw_affine_run(const qfw_kernels *kernels, const qfw_affine *affine,
                          const qfw_affine_data *data)
{
    ptrdiff_t elements = 0;
    uint32_t max_zp = 0;
    QFW_TRY(check_run(kernels, affine, data, &elements, &max_zp));
    if (elements == 0) {
        return QFW_OK;
    }
    if (data->mask_out != NULL) {
        memset(data->mask_out, 0, (size_t)(elements + 7) / 8);
    }
    return QFW_K(kernels, affine_rows)(affine, data, max_zp);
}

const char *qfw_affine_kernel(const qfw_kernels *kernels, const qfw_affine *affine,
                              const qfw_affine_data *data)
{
    ptrdiff_t elements = 0;
    uint32_t max_zp = 0;
    if (check_run(kernels, affine, data, &elements, &max_zp) != QFW_OK) {
        return NULL;
    }
    return QFW_K(kernels, affine_name)(affine, data, max_zp);
}

/* The largest value and the largest negated value of a run, at least *hi and *lo: exact, whatever
 * the type. */
static qfw_status extent(const qfw_kernels *kernels, const void *x, int32_t real, qfw_run run,
                         double *hi, double *lo)
{
    if (run.n == 0) {
        return QFW_OK;
    }
    if (real == QFW_F32) {
        int32_t up = 0, down = 0;
        QFW_K(kernels, extent_f32)((const float *)x + run.first, (size_t)run.n, &up, &down);
        const double most = (double)qfw_from_bits_f32((uint32_t)up);
        const double least = (double)qfw_from_bits_f32((uint32_t)down);
        *hi = most > *hi ? most : *hi;
        *lo = least > *lo ? least : *lo;
        return up >= QFW_F32_INF || down >= QFW_F32_INF ? QFW_E_NONFINITE : QFW_OK;
    }
    double v[QFW_TILE];
    for (ptrdiff_t at = 0; at < run.n; at += QFW_TILE) {
        const size_t n = run.n - at < QFW_TILE ? (size_t)(run.n - at) : QFW_TILE;
        qfw_load_reals(x, real, run.first + at, n, v);
        for (size_t i = 0; i < n; i++) {
            if (qfw_not_finite(v[i])) {
                return QFW_E_NONFINITE;
            }
            *hi = v[i] > *hi ? v[i] : *hi;
            *lo = -v[i] > *lo ? -v[i] : *lo;
        }
    }
    return QFW_OK;
}

qfw_status qfw_affine_params(const qfw_kernels *kernels, const qfw_layout *layout, int32_t real,
                             int32_t bits, int32_t symmetric, const void *x, void *scale,
                             int32_t *zero_point)
{
    ptrdiff_t elements = 0, scales = 0;
    if (!qfw_has_kernels(kernels)) {
        return QFW_E_NULL;
    }
    QFW_TRY(qfw_layout_check(layout, &elements, &scales));
    if (!is_real(real)) {
        return QFW_E_KIND;
    }
    if (bits < (symmetric != 0 ? 2 : 1) || bits > 16) {
        return QFW_E_BITS;
    }
    if ((scales > 0 && (scale == NULL || zero_point == NULL)) || (elements > 0 && x == NULL)) {
        return QFW_E_NULL;
    }
    const bool wide = real == QFW_F64;
    const int width = wide ? 53 : 24;
    const ptrdiff_t runs = qfw_runs_per_scale(layout);
    const uint32_t top =
        symmetric != 0 ? (UINT32_C(1) << (bits - 1)) - 1 : (UINT32_C(1) << bits) - 1;
    for (ptrdiff_t i = 0; i < scales; i++) {
        double hi = 0.0, lo = 0.0;
        for (ptrdiff_t r = 0; r < runs; r++) {
            QFW_TRY(extent(kernels, x, real, qfw_run_of(layout, i, r), &hi, &lo));
        }
        const qfw_num up = wide ? qfw_num_f64(hi) : qfw_num_f32((float)hi);
        const qfw_num down = wide ? qfw_num_f64(lo) : qfw_num_f32((float)lo);
        const qfw_num range =
            symmetric != 0 ? qfw_num_max(up, down) : qfw_num_add_up(up, down, width);
        const qfw_num found = qfw_num_ratio_up(range, 1, top, width);
        qfw_num s;
        if (wide) {
            ((double *)scale)[i] = qfw_num_scale_f64(found);
            s = qfw_num_f64(((double *)scale)[i]);
        } else {
            ((float *)scale)[i] = qfw_num_scale_f32(found, false);
            s = qfw_num_f32(((float *)scale)[i]);
        }
        zero_point[i] = symmetric != 0 ? 0 : (int32_t)qfw_num_zero_point(down, s, top);
    }
    return QFW_OK;
}

qfw_status qfw_check_finite(const qfw_kernels *kernels, const void *x, size_t n, int32_t real)
{
    if (!is_real(real)) {
        return QFW_E_KIND;
    }
    if (!qfw_has_kernels(kernels) || (n > 0 && x == NULL)) {
        return QFW_E_NULL;
    }
    double hi = 0.0, lo = 0.0;
    const qfw_run all = {0, (ptrdiff_t)n, 0};
    return extent(kernels, x, real, all, &hi, &lo);
}
