/* Floats made of integers, where floats are software: half of the work of the compiler's helpers, and
 * the same bits. */
#ifndef QFW_BASE_SOFT_H
#define QFW_BASE_SOFT_H

#include "base/fixed.h"

/* a * b and a / b, a and b 0 or positive and normal, a divisor not 0: the nearest float, ties to even;
 * 0 below the normal numbers, the largest above. */
float qfw_soft_mul(float a, float b);
float qfw_soft_div(float a, float b);

/* qfw_soft_div, the last eight bits of its mantissa 0. */
float qfw_soft_div_upper(float a, float b);

/* mant 2^exp to the nearest float, ties to even; at least 2^-126, or 0. Infinite above. */
float qfw_soft_float(uint64_t mant, int32_t exp);

#endif
