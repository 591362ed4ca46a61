/* Steps that firmware takes at once, some of them where the core has the DSP extension. */
#ifndef QFW_KERNELS_AT_ONCE_H
#define QFW_KERNELS_AT_ONCE_H

#include "kernels/kernels.h"

#if defined(__ARM_FEATURE_DSP)

/* rescale_s8 to the nearest where every |a[i]| <= most and that leaves no code out of range: it cannot
 * be asked for each of them, so it is not counted. False, and nothing is written, where that does not
 * hold or is not known. */
bool qfw_codes_within(const int32_t *a, size_t n, const qfw_ratio *ratio, const qfw_code_rule *rule,
                      uint32_t most, int8_t *codes);

/* Rows of n sums whose columns have the scales `from` as codes of bytes or 16 bits at the scale of `to`, to
 * the nearest, where every column's sums are at most absmax in size and that leaves no code out of range.
 * False where that does not hold: codes are anything then. They do not lie over the sums. */
bool qfw_codes_of_rows(const int32_t *a, size_t rows, size_t n, const float *from,
                       const uint32_t *absmax, const qfw_tensor *to, const qfw_code_rule *rule);

/* rescale_s8 of numbers of at most `most` in size. */
enum { QFW_HAS_RESCALE_MOST = QFW_DIRECT };
uint32_t qfw_rescale_s8_most(const int32_t *a, size_t n, const qfw_ratio *ratio,
                             const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                             uint32_t most, int8_t *codes);

/* What finish_s32 and, with a ratio a column (four parts of n words), rescale_rows make of rows of
 * sums, as bytes; acc stays as it is. finish->absmax may be NULL: nobody asks for it. False, and nothing
 * is written, where it does not do these. */
bool qfw_finish_codes(const int32_t *acc, size_t rows, size_t n, const qfw_finish *finish,
                      const uint32_t *ratios, const qfw_code_rule *rule, int8_t *codes,
                      uint64_t *saturated);

/* Both in fours, from the first on: how many are done. *twice becomes the largest pattern without its sign,
 * shifted up by one, if that is larger. */
size_t qfw_largest_of_fours(const float *x, size_t n, uint32_t *twice);

/* To the nearest, half away, where no code is above 127 in size. */
enum { QFW_HAS_FLOATS_WITHIN = 1 };
size_t qfw_floats_within(const float *x, size_t n, float s, int8_t *codes);

#else

static inline size_t qfw_largest_of_fours(const float *x, size_t n, uint32_t *twice)
{
    (void)x, (void)n, (void)twice;
    return 0;
}

enum { QFW_HAS_RESCALE_MOST = 0 };
static inline uint32_t qfw_rescale_s8_most(const int32_t *a, size_t n, const qfw_ratio *ratio,
                                           const qfw_code_rule *rule, const qfw_key *key,
                                           uint64_t first, uint32_t most, int8_t *codes)
{
    (void)a, (void)n, (void)ratio, (void)rule, (void)key, (void)first, (void)most, (void)codes;
    return 0;
}

enum { QFW_HAS_FLOATS_WITHIN = 0 };
static inline size_t qfw_floats_within(const float *x, size_t n, float s, int8_t *codes)
{
    (void)x, (void)n, (void)s, (void)codes;
    return 0;
}

static inline bool qfw_codes_of_rows(const int32_t *a, size_t rows, size_t n, const float *from,
                                     const uint32_t *absmax, const qfw_tensor *to,
                                     const qfw_code_rule *rule)
{
    (void)a, (void)rows, (void)n, (void)from, (void)absmax, (void)to, (void)rule;
    return false;
}

static inline bool qfw_codes_within(const int32_t *a, size_t n, const qfw_ratio *ratio,
                                    const qfw_code_rule *rule, uint32_t most, int8_t *codes)
{
    (void)a, (void)n, (void)ratio, (void)rule, (void)most, (void)codes;
    return false;
}

static inline bool qfw_finish_codes(const int32_t *acc, size_t rows, size_t n,
                                    const qfw_finish *finish, const uint32_t *ratios,
                                    const qfw_code_rule *rule, int8_t *codes, uint64_t *saturated)
{
    (void)acc, (void)rows, (void)n, (void)finish, (void)ratios, (void)rule, (void)codes;
    (void)saturated;
    return false;
}

#endif

/* The same of one row, where kernels are called by name: its columns have scales at `from`, codes the one
 * of `to`; without seeds, ReLU and absmaxes to 16 bits too. The codes may lie over the sums. */
bool qfw_codes_of_row(const int32_t *acc, size_t n, const qfw_finish *finish, const float *from,
                      const qfw_tensor *to, const qfw_code_rule *rule, void *codes,
                      uint64_t *saturated);

/* A row of int8 whose columns have the scales qfw_scale_mul(own, by[j]), as codes of int16 and `bits` bits
 * at the scale `to`, half away. */
bool qfw_fold_row(const int8_t *m, size_t n, float own, const float *by, float to, int32_t bits,
                  int16_t *codes);

/* rescale_s8; absmax[at] is the largest magnitude of its numbers, if absmax is not NULL. */
static inline uint32_t qfw_rescale_known(const qfw_kernels *kernels, const int32_t *a, size_t n,
                                         const qfw_ratio *ratio, const qfw_code_rule *rule,
                                         const qfw_key *key, uint64_t first, const uint32_t *absmax,
                                         ptrdiff_t at, int8_t *codes)
{
    const bool within = QFW_HAS_NEAREST_S8 && absmax != NULL &&
                        qfw_codes_within(a, n, ratio, rule, absmax[at], codes);
    if (within) {
        return 0;
    }
    if (QFW_HAS_RESCALE_MOST && (!QFW_HAS_ANY_CONVERT || absmax != NULL)) {
        return qfw_rescale_s8_most(a, n, ratio, rule, key, first, absmax[at], codes);
    }
    return QFW_K(kernels, rescale_s8)(a, n, ratio, rule, key, first, codes);
}

#endif
