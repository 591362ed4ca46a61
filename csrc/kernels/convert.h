/* Conversion with what a plan knows beforehand. */
#ifndef QFW_KERNELS_CONVERT_H
#define QFW_KERNELS_CONVERT_H

#include "include/qfw.h"
#include "kernels/kernels.h"

/* absmax: of src's elements at each of its scales, or NULL: then they are looked at.
 * ratios: 4 words a column of src, or NULL; with them an accumulator whose columns have scales of
 * their own becomes codes of one scale without a detour. Bits do not depend on either. */
typedef struct {
    const uint32_t *absmax;
    uint32_t *ratios;
} qfw_convert_hints;

/* qfw_convert without its checks: scales, formats and sizes are those of a plan. */
qfw_status qfw_convert_hinted(const qfw_kernels *kernels, const qfw_tensor *src,
                              const qfw_tensor *dst, const qfw_encoding *how,
                              const qfw_convert_hints *hints, uint64_t *saturated);

/* The largest scale(scale[i], absmax[i], q) of docs/numerics.md section 5, not yet clamped. */
qfw_num qfw_known_scale(const float *scale, const uint32_t *absmax, ptrdiff_t n, uint32_t q);

/* The ratio of each column of src to dst's one scale. */
void qfw_find_ratios(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                     uint32_t *ratios);

/* Rows of n columns at ratios that were found; returns how many codes the clamp changed. */
uint64_t qfw_encode_rows(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                         const qfw_encoding *how, const qfw_code_rule *rule, const uint32_t *ratios,
                         size_t rows, size_t n);

/* Both of it. */
uint64_t qfw_encode_columns(const qfw_kernels *kernels, const qfw_tensor *src,
                            const qfw_tensor *dst, const qfw_encoding *how,
                            const qfw_code_rule *rule, uint32_t *ratios);

/* An accumulator of one scale to int8 codes of `scales` scales, found: as many runs of equal length,
 * one after the other. */
uint64_t qfw_encode_runs(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                         const qfw_encoding *how, const qfw_code_rule *rule, ptrdiff_t scales);

#endif
