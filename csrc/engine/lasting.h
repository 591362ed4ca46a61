/* Values of what lasts, a tile at a time: read as floats, written back by their formats. */
#ifndef QFW_ENGINE_LASTING_H
#define QFW_ENGINE_LASTING_H

#include "engine/rescale.h"

static inline ptrdiff_t qfw_shorter(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

/* n <= QFW_TILE values from `first` on, all of one scale: where they stand, or decoded into `room`,
 * their codes into m. */
float *qfw_floats_at(const qfw_tensor *t, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m,
                     float *room);

/* The value of element i. */
float qfw_value_at(const qfw_operand *x, ptrdiff_t i);

/* clip * g[i] in `room`, or g itself where clip is 1. */
const float *qfw_clipped(const float *g, size_t n, float clip, float *room);

/* Stores codes that are minus the zero point; m is used up. */
void qfw_put_held(const qfw_operand *x, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m);

/* Stores round(value / s), or m - round(value / s), held to the codes; m holds what was there.
 *   u        words for stochastic rounding
 *   returns  whether one left the codes */
bool qfw_put_value(const qfw_call *call, const qfw_operand *x, qfw_rounding rounding,
                   ptrdiff_t first, size_t n, ptrdiff_t scale, const float *value,
                   const uint32_t *u, int32_t *m);
bool qfw_put_less(const qfw_call *call, const qfw_operand *x, qfw_rounding rounding,
                  ptrdiff_t first, size_t n, ptrdiff_t scale, const float *value, const uint32_t *u,
                  int32_t *m);

#endif
