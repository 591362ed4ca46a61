/* What the variants of the affine family share: docs/numerics.md section 10. */
#ifndef QFW_KERNELS_AFFINE_H
#define QFW_KERNELS_AFFINE_H

#include "base/half.h"
#include "kernels/kernels.h"

/* n reals of a type, from element `first` on, to double (exact) and back (rounded once; float
 * values are exact in float32). */
static inline void qfw_load_reals(const void *x, int32_t real, int64_t first, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t at = first + (int64_t)i;
        switch (real) {
        case QFW_F64:
            out[i] = ((const double *)x)[at];
            break;
        case QFW_F16:
            out[i] = (double)qfw_from_f16(((const uint16_t *)x)[at]);
            break;
        case QFW_BF16:
            out[i] = (double)qfw_from_bf16(((const uint16_t *)x)[at]);
            break;
        default:
            out[i] = (double)((const float *)x)[at];
            break;
        }
    }
}

static inline void qfw_store_reals(void *y, int32_t real, int64_t first, size_t n, const double *v)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t at = first + (int64_t)i;
        switch (real) {
        case QFW_F64:
            ((double *)y)[at] = v[i];
            break;
        case QFW_F16:
            ((uint16_t *)y)[at] = qfw_to_f16((float)v[i]);
            break;
        case QFW_BF16:
            ((uint16_t *)y)[at] = qfw_to_bf16((float)v[i]);
            break;
        default:
            ((float *)y)[at] = (float)v[i];
            break;
        }
    }
}

/* NaN or infinity. */
static inline bool qfw_not_finite(double v)
{
    return (qfw_bits_f64(v) & UINT64_C(0x7FF0000000000000)) == UINT64_C(0x7FF0000000000000);
}

#endif
