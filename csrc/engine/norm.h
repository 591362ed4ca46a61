/* What the rules of all normalisations share: docs/numerics.md sections 20 and 36. */
#ifndef QFW_ENGINE_NORM_H
#define QFW_ENGINE_NORM_H

#include "engine/engine.h"
#include "kernels/normalize.h"

/* The largest code of a Sym format. */
uint64_t qfw_norm_most(const qfw_operand *x);

/* Whether n codes of x can be normalised together. */
bool qfw_norm_fits(const qfw_operand *x, uint64_t n);

/* The largest |h| of n elements; 1 <= n <= 2^31, frac <= 24. */
uint64_t qfw_norm_reach(uint64_t n, uint32_t frac);

/* What is wrong with eps, a float among the params. */
const char *qfw_norm_eps_fault(const qfw_call *call, int param);

/* What is wrong with F and k of a backward over n elements of g and x. */
const char *qfw_norm_back_fault(const qfw_operand *g, const qfw_operand *x, uint64_t n,
                                uint32_t frac, uint32_t down);

/* The scale of y / 2^down. */
float qfw_norm_back_scale(float s_g, float s_x, qfw_root root, int32_t down);

#endif
