#ifndef QFW_ENGINE_DIAGONAL_H
#define QFW_ENGINE_DIAGONAL_H

#include "engine/engine.h"

/* qfw_line_products of the error and the wire of a call, at places 1 and 2. */
void qfw_diagonal_sums(const qfw_call *call, ptrdiff_t out, ptrdiff_t terms, ptrdiff_t first,
                       ptrdiff_t n, uint32_t shift, int32_t *sum);

#endif
