/* The loops of loops.h, compiled for AVX2. */
#include "kernels/loops.h"

uint32_t qfw_rescale_columns_avx2(const int32_t *a, const uint32_t *u, size_t n,
                                  const qfw_ratios *ratios, const qfw_code_rule *rule,
                                  int32_t *codes)
{
    return loop_rescale(a, u, n, ratios, rule, codes);
}

void qfw_finish_s32_avx2(int32_t *acc, size_t rows, size_t n, const qfw_finish *finish)
{
    loop_finish(acc, rows, n, finish);
}

uint32_t qfw_update_s32_avx2(int32_t *m, int32_t *v, const int32_t *g, size_t n, bool wide,
                             const qfw_move *move, const qfw_move *state, const uint32_t *u,
                             const uint32_t *u_v)
{
    return loop_update_any(m, v, g, n, wide, move, state, u, u_v);
}

void qfw_update_f32_avx2(const float *w, const float *g, float *v, size_t n,
                         const qfw_float_step *step, float *d)
{
    loop_update_f32(w, g, v, n, step, d);
}

void qfw_adamw_f32_avx2(const float *w, const float *g, float *m, float *v, size_t n,
                        const qfw_adamw_step *step, float *d)
{
    loop_adamw_f32(w, g, m, v, n, step, d);
}
