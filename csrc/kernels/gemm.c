/* Products: the definitions. */
#include "kernels/kernels.h"

/* Element i of a row of signed integers of 8 or 16 bits. */
static inline int32_t at(const void *x, int32_t width, size_t i)
{
    return width == 8 ? ((const int8_t *)x)[i] : ((const int16_t *)x)[i];
}

static inline int32_t dot(const qfw_gemm *g, size_t i, size_t j, int32_t a_width, int32_t b_width)
{
    int32_t sum = 0; /* the caller has proved that it stays within int32 */
    for (size_t p = 0; p < g->k; p++) {
        sum += at(g->a, a_width, i * g->a_row + p * g->a_col) *
               at(g->b, b_width, p * g->b_row + j * g->b_col);
    }
    return sum;
}

/* The widths are constants at each call, so each call becomes a loop of its own. */
static inline void rows(const qfw_gemm *g, int32_t *out, size_t out_row, int32_t a_width,
                        int32_t b_width)
{
    for (size_t i = 0; i < g->m; i++) {
        for (size_t j = 0; j < g->n; j++) {
            out[i * out_row + j] = dot(g, i, j, a_width, b_width);
        }
    }
}

void qfw_gemm_s32_scalar(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    if (g->a_width == 8 && g->b_width == 8) {
        rows(g, out, out_row, 8, 8);
    } else if (g->a_width == 8) {
        rows(g, out, out_row, 8, 16);
    } else if (g->b_width == 8) {
        rows(g, out, out_row, 16, 8);
    } else {
        rows(g, out, out_row, 16, 16);
    }
}

/* Outputs side by side, each with its own sum in ascending p. */
enum { WIDE = 8 };

void qfw_gemm_f32_scalar(const qfw_gemm *g, float *out, size_t out_row)
{
    const float *a = g->a, *b = g->b;
    for (size_t i = 0; i < g->m; i++) {
        for (size_t j0 = 0; j0 < g->n; j0 += WIDE) {
            const size_t wide = g->n - j0 < WIDE ? g->n - j0 : WIDE;
            float sum[WIDE] = {0};
            for (size_t p = 0; p < g->k; p++) {
                const float a_ip = a[i * g->a_row + p * g->a_col];
                for (size_t j = 0; j < wide; j++) {
                    sum[j] += a_ip * b[p * g->b_row + (j0 + j) * g->b_col];
                }
            }
            memcpy(out + i * out_row + j0, sum, wide * sizeof *sum);
        }
    }
}

static qfw_status check(const qfw_kernels *kernels, const qfw_gemm *g, const void *out,
                        bool is_float)
{
    if (kernels == NULL || g == NULL || g->a == NULL || g->b == NULL || out == NULL) {
        return QFW_E_NULL;
    }
    const bool ints =
        (g->a_width == 8 || g->a_width == 16) && (g->b_width == 8 || g->b_width == 16);
    return is_float ? (g->a_width == 32 && g->b_width == 32 ? QFW_OK : QFW_E_KIND)
           : ints   ? QFW_OK
                    : QFW_E_KIND;
}

qfw_status qfw_gemm_s32(const qfw_kernels *kernels, const qfw_gemm *gemm, int32_t *out)
{
    QFW_TRY(check(kernels, gemm, out, false));
    kernels->gemm_s32(gemm, out, gemm->n);
    return QFW_OK;
}

qfw_status qfw_gemm_f32(const qfw_kernels *kernels, const qfw_gemm *gemm, float *out)
{
    QFW_TRY(check(kernels, gemm, out, true));
    kernels->gemm_f32(gemm, out, gemm->n);
    return QFW_OK;
}
