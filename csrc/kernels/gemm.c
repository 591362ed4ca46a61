/* Products: the definitions. */
#include "kernels/gemm_v6m.h"
#include "kernels/kernels.h"

/* The caller has proved that sums stay within int32. A product has two forms, and each a function for
 * its types: QFW_PRODUCT(name, type of a, type of b, whether it takes each of the forms).
 *
 * Rows of a with rows of b, both in order of memory: four outputs share what is read of a; those
 * beyond the last read what the last one does. Else, for any strides, rows of b, each times an
 * element of a, are added up; on a device four columns at a time, whose sums stay in registers. */
#define QFW_PRODUCT(name, of_a, of_b, dots, rows)                                       \
    static void name##_dots(const qfw_gemm *g, int32_t *out, size_t out_row)            \
    {                                                                                   \
        for (size_t i = 0; i < g->m; i++) {                                             \
            const of_a *first = (const of_a *)g->a + i * g->a_row, *end = first + g->k; \
            for (size_t j = 0; j < g->n; j += 4) {                                      \
                const size_t n = g->n - j < 4 ? g->n - j : 4, last = n - 1;             \
                const of_b *b0 = (const of_b *)g->b + j * g->b_col;                     \
                const of_b *b1 = b0 + (last < 1 ? last : 1) * g->b_col;                 \
                const of_b *b2 = b0 + (last < 2 ? last : 2) * g->b_col;                 \
                const of_b *b3 = b0 + last * g->b_col;                                  \
                int32_t sum[4] = {0, 0, 0, 0}, *o = out + i * out_row + j;              \
                for (const of_a *a = first; a < end;) {                                 \
                    const int32_t a_p = *a++;                                           \
                    sum[0] += a_p * *b0++;                                              \
                    sum[1] += a_p * *b1++;                                              \
                    sum[2] += a_p * *b2++;                                              \
                    sum[3] += a_p * *b3++;                                              \
                }                                                                       \
                for (size_t c = 0; c < n; c++) {                                        \
                    const int32_t s = c == last ? sum[3] : sum[c];                      \
                    o[c] = g->add != 0 ? o[c] + s : s;                                  \
                }                                                                       \
            }                                                                           \
        }                                                                               \
    }                                                                                   \
                                                                                        \
    static void name##_fours(const qfw_gemm *g, size_t n, int32_t *out, size_t out_row) \
    {                                                                                   \
        for (size_t i = 0; i < g->m; i++, out += out_row) {                             \
            const of_a *first = (const of_a *)g->a + i * g->a_row;                      \
            for (size_t j = 0; j < n; j += 4) {                                         \
                const of_a *a = first, *end = a + g->k * g->a_col;                      \
                const of_b *b = (const of_b *)g->b + j;                                 \
                int32_t *o = out + j, s0 = 0, s1 = 0, s2 = 0, s3 = 0;                   \
                for (; a < end; a += g->a_col, b += g->b_row) {                         \
                    const int32_t a_p = *a;                                             \
                    s0 += a_p * b[0];                                                   \
                    s1 += a_p * b[1];                                                   \
                    s2 += a_p * b[2];                                                   \
                    s3 += a_p * b[3];                                                   \
                }                                                                       \
                const bool add = g->add != 0;                                           \
                o[0] = add ? o[0] + s0 : s0;                                            \
                o[1] = add ? o[1] + s1 : s1;                                            \
                o[2] = add ? o[2] + s2 : s2;                                            \
                o[3] = add ? o[3] + s3 : s3;                                            \
            }                                                                           \
        }                                                                               \
    }                                                                                   \
                                                                                        \
    static void name##_rows(const qfw_gemm *g, int32_t *out, size_t out_row)            \
    {                                                                                   \
        const size_t done = QFW_DIRECT && g->b_col == 1 ? g->n & ~(size_t)3 : 0;        \
        if (done != 0) {                                                                \
            name##_fours(g, done, out, out_row);                                        \
        }                                                                               \
        for (size_t i = 0; i < g->m; i++, out += out_row) {                             \
            const of_a *a = (const of_a *)g->a + i * g->a_row;                          \
            int32_t *end = out + g->n;                                                  \
            for (int32_t *o = out + done; g->add == 0 && o < end;) {                    \
                *o++ = 0;                                                               \
            }                                                                           \
            for (size_t p = 0; done < g->n && p < g->k; p++, a += g->a_col) {           \
                const of_b *b = (const of_b *)g->b + p * g->b_row + done * g->b_col;    \
                const int32_t a_p = *a;                                                 \
                for (int32_t *o = out + done; a_p != 0 && o < end; b += g->b_col) {     \
                    *o++ += a_p * *b;                                                   \
                }                                                                       \
            }                                                                           \
        }                                                                               \
    }                                                                                   \
                                                                                        \
    static void name(const qfw_gemm *g, int32_t *out, size_t out_row)                   \
    {                                                                                   \
        if (dots && (!rows || (g->a_col == 1 && g->b_row == 1))) {                      \
            name##_dots(g, out, out_row);                                               \
        } else if (rows) {                                                              \
            name##_rows(g, out, out_row);                                               \
        }                                                                               \
    }

/* Firmware for a core with the DSP extension has a twin for the dots of int8, but for few columns. */
#if QFW_DIRECT && defined(__ARM_FEATURE_DSP)
enum { BYTE_DOTS = QFW_HAS_FEW_COLUMNS };
#else
enum { BYTE_DOTS = !QFW_HAS_V6M };
#endif

QFW_PRODUCT(s8_s8, int8_t, int8_t, BYTE_DOTS, QFW_HAS_BYTE_ROWS)
QFW_PRODUCT(s8_s16, int8_t, int16_t, QFW_HAS_WIDE_DOTS, 1)
QFW_PRODUCT(s16_s8, int16_t, int8_t, QFW_HAS_WIDE_DOTS, 1)
QFW_PRODUCT(s16_s16, int16_t, int16_t, QFW_HAS_WIDE_DOTS, 1)

void qfw_gemm_s32_scalar(const qfw_gemm *g, int32_t *out, size_t out_row)
{
    if (QFW_HAS_V6M && g->a_width == 8 && g->b_width == 8 && g->a_col == 1 && g->b_row == 1) {
        qfw_gemm_bytes_v6m(g, out, out_row);
    } else if (g->a_width == 8 && g->b_width == 8) {
        s8_s8(g, out, out_row);
    } else if (QFW_HAS_S8_S16 && g->a_width == 8) {
        s8_s16(g, out, out_row);
    } else if (QFW_HAS_S16_S8 && g->b_width == 8) {
        s16_s8(g, out, out_row);
    } else if (QFW_HAS_S16_S16) {
        s16_s16(g, out, out_row);
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
            for (size_t j = 0; g->add != 0 && j < wide; j++) {
                sum[j] = out[i * out_row + j0 + j];
            }
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
    if (!qfw_has_kernels(kernels) || g == NULL || g->a == NULL || g->b == NULL || out == NULL) {
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
    QFW_K(kernels, gemm_s32)(gemm, out, gemm->n);
    return QFW_OK;
}

qfw_status qfw_gemm_f32(const qfw_kernels *kernels, const qfw_gemm *gemm, float *out)
{
    QFW_TRY(check(kernels, gemm, out, true));
    QFW_K(kernels, gemm_f32)(gemm, out, gemm->n);
    return QFW_OK;
}
