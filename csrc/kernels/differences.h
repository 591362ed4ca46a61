/* Differences of two tensors at a scale that both reach. */
#ifndef QFW_KERNELS_DIFFERENCES_H
#define QFW_KERNELS_DIFFERENCES_H

#include "base/scale.h"
#include "base/wide.h"

/* d[i] = qfw_joined(a[i], of_a) - qfw_joined(b[i], of_b); adds their squares to *squares, returns their
 * absmax. Joined codes are below 2^28, differences below 2^29, squares below 2^58; n <= 2^30 of them.
 *   of_a, of_b  ratios to 16 bits, at most 1 */
typedef uint32_t qfw_differences_s16_fn(const int16_t *a, const int16_t *b, size_t n,
                                        const qfw_ratio *of_a, const qfw_ratio *of_b, int32_t *d,
                                        qfw_wide *squares);

#endif
