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

/* sigma[i] = qfw_scale_mul(a, by[i * step]), and then what seeds_s32 makes of it; sigma may be by. */
void qfw_seeded_scales(const int16_t *m, float s, float a, const float *by, size_t step, size_t n,
                       float *sigma, int32_t *seed, uint8_t *shift);

/* The same, and what follows one row of sums with a scale a column: the sums and their sizes, or Sym(8) codes,
 * half away. Offsets 0, 4, ... in instructions. */
typedef struct {
    const float *by;
    const int16_t *m;
    int32_t *acc;
    float *sigma;
    uint32_t least, times, mant, exp; /* of seeds.c */
    union {
        struct {
            ptrdiff_t sizes; /* bytes from a sum to its size, which need not be 0 before */
            uint32_t keep;   /* all bits where negative sums become 0, else none */
            const int32_t *end;
        } sums;
        struct {
            uint32_t keep, exp, mant, recip; /* of qfw_ratio_to */
            int8_t *codes;
            const int32_t *end;
            uint32_t saturated;
        } codes;
    } rest;
    uint32_t stopped; /* above 252: at a column that has no sigma */
    float s, a, to;
    bool has_codes;
} qfw_seeded;

#if defined(__ARM_FEATURE_DSP)
enum { QFW_HAS_SEEDED_ROW = 1, QFW_HAS_SEEDED_CODES = QFW_HAS_REQUANTIZE && !QFW_HAS_MVE };

/* Some columns of it, one at least; it stops at the end, or at one which is left, `by` and `sigma` one further
 * than that. */
void qfw_seeded_until(qfw_seeded *columns);
#else
enum { QFW_HAS_SEEDED_ROW = 0, QFW_HAS_SEEDED_CODES = 0 };

static inline void qfw_seeded_until(qfw_seeded *columns)
{
    (void)columns;
}
#endif

/* Where there is QFW_HAS_SEEDED_ROW: n >= 1 columns by, m, acc, sigma (by having step 1), the bias at scale s, the
 * row at a. */
void qfw_seeded_sums(qfw_seeded *columns, size_t n, bool relu, uint32_t *sizes);

/* The same with QFW_HAS_SEEDED_CODES, the codes at scale `to`; acc stays. Returns how many a clamp changed. */
uint32_t qfw_seeded_codes(qfw_seeded *columns, size_t n, bool relu, float to, int8_t *codes);

#endif
