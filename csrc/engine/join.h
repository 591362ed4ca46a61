/* Sums of values that meet. */
#ifndef QFW_ENGINE_JOIN_H
#define QFW_ENGINE_JOIN_H

#include "engine/engine.h"

/* Codes come to the common scale with so many bits: |v| < 2^26 for each operand. */
enum { QFW_JOIN_BITS = 28 };

/* The sums of join_s32 that are added, at the scale of them all, and their absmax; false: it does not
 * do these. */
bool qfw_join_directly(const qfw_call *call, int operands, float scale);

#endif
