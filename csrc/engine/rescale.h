/* How the scale of a parameter or a state changes. */
#ifndef QFW_ENGINE_RESCALE_H
#define QFW_ENGINE_RESCALE_H

#include "engine/engine.h"

/* Whether scale number `scale` is 1 because all its codes are 0. */
bool qfw_has_no_range(const qfw_operand *x, ptrdiff_t scale);

/* The codes a scale can have: lo .. hi, Asym minus the zero point. */
void qfw_codes_at(const qfw_operand *x, ptrdiff_t scale, int32_t *lo, int32_t *hi);

/* Codes (Asym: minus the zero point), held to those of the format where a slot has room for more
 * than 16 bits: what lasts is the caller's memory. */
void qfw_load_held(const qfw_tensor *t, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m);

/* The largest |value| of a tensor of n elements, rounded up to 24 bits. */
qfw_num qfw_largest(const qfw_tensor *x, ptrdiff_t n);

/* What a step of a tensor is proportional to: 1, |g| or g^2 (then its values are never negative). */
typedef enum { QFW_AS_ONE, QFW_AS_GRADIENT, QFW_AS_SQUARE } qfw_growth;

/* Gives a scale without a range one that holds four steps of c * most^growth, unless those are 0. */
QFW_COLD void qfw_start_scale(const qfw_operand *x, ptrdiff_t scale, qfw_num most, float c,
                              qfw_growth growth);

/* Gives the scales of elements first .. first + n - 1 that have no range yet, and whose g is not 0,
 * one that holds four steps of c * |g|^growth; g's element 0 is number `first`. */
void qfw_start_scales(const qfw_operand *x, const qfw_tensor *g, ptrdiff_t first, ptrdiff_t n,
                      float c, qfw_growth growth);

/* Whether scales are looked at after this step, flagged or not. */
static inline bool qfw_looks_at_scales(const qfw_call *call)
{
    return call->progress.step != 0 && call->progress.step % 256 == 0;
}

/* After a step: halves the codes of scales whose flag is set, doubles those that need little. */
void qfw_settle_scales(const qfw_call *call, const qfw_operand *x, const uint8_t *flags);

#endif
