/* Products of int8 along the rows of both for ARMv6-M and v8-M Baseline, which have no product that is also
 * added; elsewhere none. */
#ifndef QFW_KERNELS_GEMM_V6M_H
#define QFW_KERNELS_GEMM_V6M_H

#include "kernels/kernels.h"

#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)

/* gemm_s32 of bytes, a_col and b_row being 1. */
enum { QFW_HAS_V6M = 1 };
void qfw_gemm_bytes_v6m(const qfw_gemm *g, int32_t *out, size_t out_row);

#else

enum { QFW_HAS_V6M = 0 };
static inline void qfw_gemm_bytes_v6m(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    (void)g, (void)out, (void)out_row;
}

#endif
#endif
