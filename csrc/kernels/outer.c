/* Outer products to codes in int8: the definition. */
#include "kernels/kernels.h"

static uint32_t encode_row(const qfw_outer *o, int32_t e, float scale, uint64_t first,
                           int8_t *codes)
{
    const qfw_ratio ratio = qfw_ratio_of(o->sigma, scale, o->bits);
    int32_t a[QFW_TILE];
    uint32_t saturated = 0;
    for (size_t i = 0; i < o->n; i += QFW_TILE) {
        const size_t n = o->n - i < QFW_TILE ? o->n - i : QFW_TILE;
        for (size_t k = 0; k < n; k++) {
            a[k] = e * o->x[i + k];
        }
        saturated += qfw_rescale_s8_scalar(a, n, &ratio, &o->rule, &o->key, first + i, codes + i);
    }
    return saturated;
}

uint32_t qfw_outer_s8_scalar(const qfw_outer *outer, const int32_t *e, const float *scale,
                             size_t rows, uint64_t first, int8_t *codes)
{
    uint32_t saturated = 0;
    for (size_t k = 0; k < rows; k++) {
        const size_t at = k * outer->n;
        if (e[k] == 0) {
            memset(codes + at, 0, outer->n);
        } else {
            saturated += encode_row(outer, e[k], scale[k], first + at, codes + at);
        }
    }
    return saturated;
}
