/* Rows of floats to int8 codes: the definition. */
#include "base/random.h"
#include "base/round.h"
#include "kernels/kernels.h"

/* Patterns of one sign are ordered as the floats are; seen as int32, those of the other sign are
 * negative. */
void qfw_extent_f32_scalar(const float *x, size_t n, int32_t *hi, int32_t *lo)
{
    int32_t h = *hi, l = *lo;
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = qfw_bits_f32(x[i]);
        const int32_t up = (int32_t)u, down = (int32_t)(u ^ 0x80000000u);
        h = up > h ? up : h;
        l = down > l ? down : l;
    }
    *hi = h;
    *lo = l;
}

/* `mode` is a constant at each call, so each becomes a loop of its own. */
static inline uint64_t encode(const float *x, size_t n, const qfw_row_encoding *how,
                              const qfw_divisor *s, const qfw_rounding mode, uint64_t first,
                              int8_t *codes)
{
    const int32_t q = (int32_t)how->q;
    uint64_t saturated = 0;
    qfw_uniform draws = {NULL, 0, 0, 0};
    if (mode == QFW_STOCHASTIC) {
        qfw_uniform_seek(&draws, how->key, first);
    }
    for (size_t i = 0; i < n; i++) {
        const int32_t v = qfw_round_quotient(x[i], s, mode,
                                             mode == QFW_STOCHASTIC ? qfw_uniform_next(&draws) : 0);
        const int32_t c = v > q ? q : v < -q ? -q : v;
        saturated += c != v;
        codes[i] = (int8_t)c;
    }
    return saturated;
}

qfw_status qfw_quantize_s8_scalar(const float *x, size_t n, size_t run, const qfw_row_encoding *how,
                                  float *scale, int8_t *codes, uint64_t *saturated)
{
    for (size_t i = 0; i < n; i += run, scale++) {
        const size_t count = n - i < run ? n - i : run;
        int32_t hi = 0, lo = 0;
        qfw_extent_f32_scalar(x + i, count, &hi, &lo);
        const int32_t most = hi > lo ? hi : lo;
        if (most >= QFW_F32_INF) {
            return QFW_E_NONFINITE;
        }
        if (how->dynamic) {
            const qfw_num top = qfw_num_f32(qfw_from_bits_f32((uint32_t)most));
            *scale = qfw_num_scale_f32(qfw_num_ratio_up(top, 1, how->q, 24), how->pow2);
        }
        const qfw_divisor s = qfw_divisor_of(*scale);
        const uint64_t first = how->first + i;
        switch (how->rounding) {
        case QFW_STOCHASTIC:
            *saturated += encode(x + i, count, how, &s, QFW_STOCHASTIC, first, codes + i);
            break;
        case QFW_HALF_EVEN:
            *saturated += encode(x + i, count, how, &s, QFW_HALF_EVEN, first, codes + i);
            break;
        case QFW_HALF_AWAY:
        default:
            *saturated += encode(x + i, count, how, &s, QFW_HALF_AWAY, first, codes + i);
            break;
        }
    }
    return QFW_OK;
}
