/* Finding scales and the ratio of two: docs/numerics.md sections 5 and 6. Integers only. */
#ifndef QFW_BASE_SCALE_H
#define QFW_BASE_SCALE_H

#include "base/config.h"
#include "base/fixed.h"

/* A word where one plan is served that multiplies no two numbers: what is moved up is widened before. */
#if QFW_ANY_PLAN || !QFW_DIRECT || QFW_HAS_HINDSIGHT
typedef uint64_t qfw_mant;
#else
typedef uint32_t qfw_mant;
#endif

/* mant * 2^exp. Normalised to `width` bits (24 or 53): 2^(width-1) <= mant < 2^width, any exponent;
 * or mant = 0. */
typedef struct {
    qfw_mant mant;
    int32_t exp;
} qfw_num;

/* A scale. */
static inline qfw_num qfw_num_normal(float v)
{
    const uint32_t u = qfw_bits_f32(v);
    const qfw_num n = {(u & 0x7FFFFFu) | 0x800000u, (int32_t)(u >> 23) - 150};
    return n;
}

/* The magnitude of a finite float, normalised. */
qfw_num qfw_num_f32(float v);
qfw_num qfw_num_f64(double v);

/* The smallest number of `width` bits >= v * times / over. times < 2^32, 1 <= over <= 2^17 - 1 and
 * v.mant * times < 2^63. */
qfw_num qfw_num_ratio_up(qfw_num v, uint32_t times, uint32_t over, int width);

/* The smallest number of 24 bits >= num * 2^exp / over; num 0 or with its 64th bit set. */
qfw_num qfw_num_short_up(uint64_t num, int32_t exp, uint32_t over);

/* The smallest number of `width` bits >= a + b. */
qfw_num qfw_num_add_up(qfw_num a, qfw_num b, int width);

/* The larger of two normalised numbers of one width. */
qfw_num qfw_num_max(qfw_num a, qfw_num b);

/* A found scale as a float: 1 for zero; pow2: up to the next power of two; clamped to the normal
 * floats. */
QFW_SMALL_APART float qfw_num_scale_f32(qfw_num v, bool pow2);
double qfw_num_scale_f64(qfw_num v);

/* floor(v / s + 1/2), at most `top` (< 2^17): a zero point, rounded half up. Both of one width, s
 * not 0. */
uint32_t qfw_num_zero_point(qfw_num v, qfw_num s, uint32_t top);

/* scale(s_in, m, q) of the numerics page: what a dynamic range needs for |a| <= m. s_in normal. */
qfw_num qfw_scale_for(float s_in, uint32_t m, uint32_t q);

/* s_in / s_out as the integer steps of a requantization to `bits` signed bits (2..17, and 28 where
 * two numbers are to be added): round(clamp(a, -limit, limit) * 2^up * mult / 2^(32 + down)). mult <
 * 2^31, 0 <= up <= 30, 29 - bits <= down <= 30. */
typedef struct {
    uint32_t mult;
    uint8_t up, down;
    uint32_t limit;
} qfw_ratio;

qfw_ratio qfw_ratio_of(float s_in, float s_out, int bits);

/* A scale to divide by: recip = floor(2^54 / mant), in (2^30, 2^31]. */
typedef struct {
    uint32_t mant, recip;
    int32_t exp;
} qfw_divisor;

qfw_divisor qfw_divisor_of(float s);

/* Scales that meet (docs/numerics.md section 12), clamped to the normal floats: a * b, a / b and
 * s * 2^h; -300 <= h <= 300. */
float qfw_scale_mul(float a, float b);
float qfw_scale_quot(float a, float b);
float qfw_scale_lift(float s, int32_t h);

/* out[i] = qfw_scale_mul(a, b[i]); out may be b. */
void qfw_scales_mul(float a, const float *b, size_t n, float *out);

/* A bias as an accumulator starts with it (section 13): value * 2^exp / sigma, rounded half away at
 * the smallest shift g with |seed| < 2^30. value <= 2^40 in magnitude, sigma a scale. */
typedef struct {
    int32_t seed;
    uint8_t shift;
} qfw_seed;

qfw_seed qfw_seed_of(int64_t value, int32_t exp, float sigma);

/* value / s rounded half away, at most 2^31, which no int32 reaches: the exact quotient. Both are
 * scales. */
uint32_t qfw_units_of(float value, float s);

#endif
