/* Those of the loops of loops.h that are longer than a vector, compiled for AVX-512. */
#include "kernels/loops.h"
#include "kernels/update_loops.h"

void qfw_ratios_f32_avx512(const float *from, size_t n, float to, int32_t bits, uint32_t *ratios,
                           size_t columns)
{
    const qfw_divisor d = qfw_divisor_of(to);
    loop_ratios(from, n, &d, bits, ratios, ratios + columns, ratios + 2 * columns,
                ratios + 3 * columns);
}

void qfw_floats_s32_avx512(const int32_t *a, size_t n, float s, float *y)
{
    loop_floats(a, n, s, y);
}

uint32_t qfw_update_s32_avx512(int32_t *m, int32_t *v, const int32_t *g, size_t n, bool wide,
                               const qfw_move *move, const qfw_move *state, const uint32_t *u,
                               const uint32_t *u_v)
{
    return loop_update_any(m, v, g, n, wide, move, state, u, u_v);
}

void qfw_coefs_f32_avx512(float c, const float *from, const float *to, int32_t frac, int32_t last,
                          qfw_coefs *k)
{
    loop_coefs(c, from, to, frac, last, k);
}

uint32_t qfw_update_each_avx512(int32_t *m, int32_t *v, const int32_t *g, bool wide,
                                const qfw_moves *move, const qfw_moves *state, const uint32_t *u,
                                const uint32_t *u_v, uint32_t *out)
{
    return loop_update_each_any(m, v, g, wide, move, state, u, u_v, out);
}

void qfw_update_f32_avx512(const float *w, const float *g, float *v, size_t n,
                           const qfw_float_step *step, float *d)
{
    loop_update_f32(w, g, v, n, step, d);
}

void qfw_adamw_f32_avx512(const float *w, const float *g, float *m, float *v, size_t n,
                          const qfw_adamw_step *step, float *d)
{
    loop_adamw_f32(w, g, m, v, n, step, d);
}
