/* Elements with scales of their own. */
#ifndef QFW_KERNELS_SINGLES_H
#define QFW_KERNELS_SINGLES_H

#include "base/fixed.h"
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

#endif
