/* exp, log and roots without a libm, in integers and in floats: docs/numerics.md section 19. */
#ifndef QFW_BASE_ELEMENTARY_H
#define QFW_BASE_ELEMENTARY_H

#include "base/fixed.h"
#include "base/scale.h"

/* 2^30 * 2^-(t / 2^26), off by less than 1.4: exactly 2^30 at t = 0, 0 from t = 31 * 2^26 on, and
 * never growing with t. */
uint32_t qfw_exp2_q30(uint64_t t);

/* The same of t below QFW_EXP2_END, from which on it is 0. */
#define QFW_EXP2_END (UINT32_C(31) << 26)
uint32_t qfw_exp2_word(uint32_t t);

/* A scale times log2(e), as distances need it: mu * 2^shift, in units of 2^-26. */
typedef struct {
    uint32_t mu; /* 2^30 < mu < 2^32 */
    int32_t shift;
} qfw_log2_scale;

/* Of mant * 2^exp, a number of 24 bits. */
qfw_log2_scale qfw_log2_scale_of(qfw_num s);

/* floor(below * mu * 2^shift), at most 2^36: what exp2 takes for e^-(below * scale). below <= 2^31. */
uint64_t qfw_distance(uint32_t below, const qfw_log2_scale *s);

/* log2(s) in units of 2^-26, off by less than 0.62, s >= 1: exact at powers of two, never falling
 * as s grows, at most 64 * 2^26. */
uint64_t qfw_log2_q26(uint64_t s);

/* floor(sqrt(w)). */
uint32_t qfw_isqrt(uint64_t w);

/* 1 / sqrt(w) = rho * 2^exp, off by less than 2^-30 of itself; w not 0, 2^30 <= rho < 2^31. */
typedef struct {
    uint32_t rho;
    int32_t exp; /* -62 .. -31 */
} qfw_root;

qfw_root qfw_rsqrt(uint64_t w);

/* e^x, off by less than 1.02 ulp; 0 below FLT_MIN, infinity above FLT_MAX. A NaN gives 0. */
float qfw_exp_f32(float x);

/* ln(x) for finite x >= 1, off by less than 0.88 ulp; never below 0. */
float qfw_log_f32(float x);

#endif
