/* The operations of a step with their operands, found once. */
#ifndef QFW_HOST_BOUND_H
#define QFW_HOST_BOUND_H

#include "engine/engine.h"

typedef struct qfw_bound qfw_bound; /* what qfw_host_bind writes */

/* Whether a step of so many rows is one that `bound` knows. */
bool qfw_bound_has(const qfw_bound *bound, const qfw_net *net, uint32_t rows);

/* qfw_step of such a step. */
qfw_status qfw_bound_step(const qfw_bound *bound, qfw_net *net, const void *x, const void *y,
                          float *loss);

#endif
