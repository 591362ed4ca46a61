/* For a compiler that has no libm of its own: what the core uses of math.h. */
#ifndef QFW_BARE_MATH_H
#define QFW_BARE_MATH_H

float sqrtf(float x);

#endif
