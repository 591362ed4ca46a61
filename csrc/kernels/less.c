/* Codes in int8 that move by floats: the definition. */
#include "base/random.h"
#include "base/round.h"
#include "kernels/kernels.h"

uint32_t qfw_less_s8_scalar(int8_t *m, const float *d, size_t n, float s, int32_t q,
                            qfw_rounding rounding, const qfw_key *key, uint64_t first)
{
    const qfw_divisor by = qfw_divisor_of(s);
    uint32_t u[QFW_TILE] = {0}, out = 0;
    for (size_t i = 0; i < n; i += QFW_TILE) {
        const size_t count = n - i < QFW_TILE ? n - i : QFW_TILE;
        if (rounding == QFW_STOCHASTIC) {
            qfw_uniforms(key, first + i, count, u);
        }
        for (size_t k = 0; k < count; k++) {
            const int32_t to = m[i + k] - qfw_round_quotient(d[i + k], &by, rounding, u[k]);
            out |= to < -q - 1 || to > q ? 1u : 0u;
            m[i + k] = (int8_t)(to > q ? q : to < -q ? -q : to);
        }
    }
    return out;
}
