/* Elements with scales of their own. */
#ifndef QFW_KERNELS_SINGLES_H
#define QFW_KERNELS_SINGLES_H

#include "base/scale.h"
#include "include/qfw.h"

/* A tensor of Sym codes, of `bits` bits in slots of `width`, 8 or 16: a scale for each element, or one. */
typedef struct {
    void *codes;
    const float *scale;
    uint8_t
        *flags; /* one for each scale: set where a value was outside -q - 1 .. q; of no gradient */
    int32_t width, bits;
    bool each;
} qfw_single;

/* update_each of elements 0 .. n - 1 without a term of the parameter's own (w), each with the coefficients that
 * coefs_f32 makes of the factors and its scales.
 *   v.codes  NULL without a state */
typedef struct {
    qfw_single m, v, g;
    float step_g, step_v, state_g, state_v;
    qfw_rounding rounding, state_rounding;
    const qfw_key *key, *state_key;
} qfw_singles;

/* Sums that become codes with a scale each, found: scale[i] = scale(s_in, |a[i]|, q) of docs/numerics.md section
 * 5, 1 of a 0, and then codes[i] is q with the sign of a[i], if `key`'s words (NULL: none) do not round otherwise.
 * Eight at a time, the last ones fewer, up to the first eight of which that is not sure.
 *   sure     every |a[i]| is below 2^27, every scale of another than 0 above FLT_MIN and below FLT_MAX, every word
 *            at least 2^18 from 0 and 2^32: a[i] s_in / scale[i] is within 2^-14 of +-q (section 6, point 5)
 *   q        64 .. 127
 *   first    the index of a[0] in its tensor
 *   returns  how many were made: 0 unless `first` is a multiple of 8. codes may begin where a does */
enum { QFW_SURE_SUM = 1 << 27, QFW_SURE_WORD = 1 << 18 };
typedef size_t qfw_singles_s8_fn(const int32_t *a, size_t n, float s_in, uint32_t q,
                                 const qfw_key *key, uint64_t first, float *scale, int8_t *codes);

/* The largest scale[i] * most[i], exactly: normalised to 63 bits, 0 where all are; most[i] <= 2^31. */
typedef qfw_num qfw_largest_s32_fn(const float *scale, const uint32_t *most, size_t n);

/* s * m, so. */
static inline qfw_num qfw_num_product(float s, uint32_t m)
{
    const qfw_num v = qfw_num_normal(s);
    const uint64_t p = (uint64_t)v.mant * m;
    const int up = p != 0 ? 62 - qfw_msb64(p) : 0;
    const qfw_num n = {(qfw_mant)(p << up), v.exp - up};
    return n;
}

/* Products of floats, m rounded too, are off by less than 2^-22 of themselves: what is further below the
 * largest of these is not it. */
#define QFW_NEAR_LARGEST (1.0f - 0x1p-20f)

#endif
