/* Products with AVX2. */
#include "kernels/kernels.h"

void qfw_gemm_s32_avx2(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    qfw_gemm_s32_scalar(g, out, out_row);
}

void qfw_gemm_f32_avx2(const qfw_gemm *g, float *out, size_t out_row)
{
    qfw_gemm_f32_scalar(g, out, out_row);
}
