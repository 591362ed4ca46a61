/* Conversion with what a plan knows beforehand. */
#ifndef QFW_KERNELS_CONVERT_H
#define QFW_KERNELS_CONVERT_H

#include "base/layout.h"
#include "include/qfw.h"
#include "kernels/kernels.h"

/* absmax: of src's elements at each of its scales, or NULL: then they are looked at.
 * ratios: 4 words a column of src, or NULL; with them an accumulator whose columns have scales of
 * their own becomes codes of one scale without a detour. Bits do not depend on either. */
typedef struct {
    const uint32_t *absmax;
    uint32_t *ratios;
} qfw_convert_hints;

/* Whether floats become plain int8 a row at a time; and then so. *saturated grows. */
bool qfw_has_row_kernel(const qfw_tensor *src, const qfw_tensor *dst);
qfw_status qfw_quantize_rows(const qfw_kernels *kernels, const qfw_tensor *src,
                             const qfw_tensor *dst, const qfw_encoding *how, uint64_t *saturated);

/* The largest scale(scale[i], absmax[i], q) of docs/numerics.md section 5, not yet clamped. */
qfw_num qfw_known_scale(const qfw_kernels *kernels, const float *scale, const uint32_t *absmax,
                        ptrdiff_t n, uint32_t q);

/* The ratio of each column of src to dst's one scale. */
void qfw_find_ratios(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                     uint32_t *ratios);

/* Rows of n columns at ratios that were found; returns how many codes the clamp changed. */
uint64_t qfw_encode_rows(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                         const qfw_encoding *how, const qfw_code_rule *rule, const uint32_t *ratios,
                         size_t rows, size_t n);

/* Whether an accumulator whose columns have scales of their own becomes codes of one scale that is known,
 * or found from its absmaxes; and then so. *saturated grows. */
bool qfw_has_columns(const qfw_tensor *src, const qfw_tensor *dst, const qfw_encoding *how,
                     const qfw_convert_hints *hints);
qfw_status qfw_convert_columns(const qfw_kernels *kernels, const qfw_tensor *src,
                               const qfw_tensor *dst, const qfw_encoding *how,
                               const qfw_convert_hints *hints, uint64_t *saturated);

/* The same of an accumulator of one scale that becomes int8 codes of one. */
bool qfw_has_sums(const qfw_tensor *src, const qfw_tensor *dst, const qfw_encoding *how,
                  const qfw_convert_hints *hints);
qfw_status qfw_convert_sums(const qfw_kernels *kernels, const qfw_tensor *src,
                            const qfw_tensor *dst, const qfw_encoding *how,
                            const qfw_convert_hints *hints, uint64_t *saturated);

/* An accumulator of one scale to int8 codes of `scales` scales, found: as many runs of equal length,
 * one after the other. */
uint64_t qfw_encode_runs(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                         const qfw_encoding *how, const qfw_code_rule *rule, ptrdiff_t scales);

/* Packed codes: the bits after the last one are 0. */
static inline void qfw_clear_last_byte(const qfw_tensor *t, ptrdiff_t elements)
{
    if (QFW_HAS_PACKED && t->format.container == 0 && elements > 0) {
        ((uint8_t *)t->codes)[(elements * t->format.bits - 1) / 8] = 0;
    }
}

/* Any other conversion. */
qfw_status qfw_convert_any(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                           const qfw_encoding *how, const qfw_convert_hints *hints,
                           uint64_t *saturated);

/* qfw_convert without its checks: scales, formats and sizes are those of a plan. */
static inline qfw_status qfw_convert_hinted(const qfw_kernels *kernels, const qfw_tensor *src,
                                            const qfw_tensor *dst, const qfw_encoding *how,
                                            const qfw_convert_hints *hints, uint64_t *saturated)
{
    *saturated = 0;
    if (QFW_HAS_ANY_CONVERT ? qfw_elements(&src->layout) > 0 && qfw_has_row_kernel(src, dst)
                            : src->format.kind == QFW_FLOAT32) {
        return qfw_quantize_rows(kernels, src, dst, how, saturated);
    }
    if (qfw_has_columns(src, dst, how, hints)) {
        return qfw_convert_columns(kernels, src, dst, how, hints, saturated);
    }
    if (qfw_has_sums(src, dst, how, hints)) {
        return qfw_convert_sums(kernels, src, dst, how, hints, saturated);
    }
    return qfw_convert_any(kernels, src, dst, how, hints, saturated);
}

#endif
