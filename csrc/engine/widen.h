/* Scales that are folded into codes, by columns. */
#ifndef QFW_ENGINE_WIDEN_H
#define QFW_ENGINE_WIDEN_H

#include "engine/engine.h"

/* The scale of src's codes once `by`'s scales, one for each of so many columns, are folded in and they
 * have so many bits. Products of scales do not fall as a factor grows: the largest is that of the largest. */
float qfw_folded_scale(const qfw_operand *src, const qfw_operand *by, ptrdiff_t columns,
                       int32_t bits);

/* The columns' ratios to that scale, 16 bytes each. */
void qfw_fold_columns(const qfw_kernels *kernels, const qfw_operand *src, const qfw_operand *by,
                      ptrdiff_t columns, int32_t bits, float scale, uint32_t *ratios);

#endif
