/* Scales of accumulators with a bias of int16, which may lift them, where kernels are called by name. */
#ifndef QFW_KERNELS_SEEDS_H
#define QFW_KERNELS_SEEDS_H

#include "base/soft.h"
#include "kernels/kernels.h"
#include "kernels/row_mve.h"

/* The bits of qfw_scale_mul(a, b), factor being that of a: of a product that is a normal number its own. */
static inline uint32_t qfw_scale_bits(qfw_soft_factor factor, float a, float b)
{
    uint32_t exp, bits;
    if (QFW_SOFT_FLOAT) {
        bits = qfw_soft_times(factor, qfw_bits_f32(b), &exp);
        if (exp <= 252) {
            return bits;
        }
    } else {
        bits = qfw_bits_f32(a * b);
        if (qfw_sub32(bits, QFW_F32_MIN_NORMAL) <= QFW_F32_MAX - QFW_F32_MIN_NORMAL) {
            return bits;
        }
    }
    return qfw_bits_f32(qfw_scale_mul(a, b));
}

/* sigma[i] = qfw_scale_mul(a, by[i * step]), and then what seeds_s32 makes of it; step is 0 or 1. sigma may
 * be by.
 * row: NULL, or what follows one row of sums, at acc, with a scale a column: its ReLU and its absmaxes, which
 * need not be 0 before.
 * codes: NULL, or Sym(8) codes at the scale `to`, half away, of what follows the row; then its sums stay as
 * they are, and nobody asks for absmaxes. */
typedef struct {
    const int16_t *m;
    float s, a;
    const float *by;
    float one; /* that `by` may stand at */
    size_t step, n;
    float *sigma;
    int32_t *seed;
    uint8_t *shift;
    const qfw_finish *row;
    int32_t *acc;
    int8_t *codes;
    float to;
    uint64_t *saturated;
} qfw_seeded;

/* Whether the row was finished too, without a seed or shift being written. */
bool qfw_seeded_scales(const qfw_seeded *columns);

#if defined(__ARM_FEATURE_DSP)
enum { QFW_HAS_SEEDED_UNTIL = 1, QFW_HAS_SEEDED_CODES = QFW_HAS_REQUANTIZE && !QFW_HAS_MVE };

/* The same of columns from i <= n on (step 1), and not the whole of it: without a row, shifts and seeds are 0
 * before. Returns the first column that it leaves, n at the end, and whether that has its sigma. */
size_t qfw_seeded_until(const qfw_seeded *columns, size_t i, bool *has_sigma);
#else
enum { QFW_HAS_SEEDED_UNTIL = 0, QFW_HAS_SEEDED_CODES = 0 };

static inline size_t qfw_seeded_until(const qfw_seeded *columns, size_t i, bool *has_sigma)
{
    *has_sigma = false;
    return columns->n + i;
}
#endif

#endif
