/* Differences of two tensors: the definition. */
#include "base/round.h"
#include "kernels/kernels.h"

uint32_t qfw_differences_s16_scalar(const int16_t *a, const int16_t *b, size_t n,
                                    const qfw_ratio *of_a, const qfw_ratio *of_b, int32_t *d,
                                    qfw_wide *squares)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        d[i] = qfw_joined(a[i], of_a) - qfw_joined(b[i], of_b);
        const uint32_t size = qfw_abs32(d[i]);
        most = size > most ? size : most;
        qfw_wide_add(squares, (uint64_t)size * size);
    }
    return most;
}
