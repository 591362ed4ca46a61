/* Loops over tiles: the definitions. */
#include "kernels/loops.h"
#include "kernels/ratio.h"
#include "kernels/update_loops.h"

/* loop_ratios, where most of them are neither very large nor very small. */
static void ratios_few(const float *from, size_t n, float s, int32_t bits, uint32_t *ratios,
                       size_t columns)
{
    const qfw_ratio_to to = qfw_ratio_to_of(s);
    const uint32_t most = (uint32_t)(29 - bits);
    for (const float *end = from + n; from < end; from++, ratios++) {
        uint32_t down;
        ratios[0] = qfw_ratio_mult(qfw_bits_f32(*from), &to, &down);
        const uint32_t up = qfw_sub32(most - 1, down);
        if (up > 30) {
            const qfw_ratio r = qfw_ratio_of(*from, s, bits);
            ratios[0] = r.mult;
            ratios[columns] = r.limit;
            ratios[2 * columns] = r.up;
            ratios[3 * columns] = r.down;
            continue;
        }
        ratios[columns] = (uint32_t)INT32_MAX >> up;
        ratios[2 * columns] = up;
        ratios[3 * columns] = most;
    }
}

void qfw_ratios_f32_scalar(const float *from, size_t n, float to, int32_t bits, uint32_t *ratios,
                           size_t columns)
{
    if (QFW_DIRECT) {
        ratios_few(from, n, to, bits, ratios, columns);
        return;
    }
    const qfw_divisor d = qfw_divisor_of(to);
    loop_ratios(from, n, &d, bits, ratios, ratios + columns, ratios + 2 * columns,
                ratios + 3 * columns);
}

void qfw_floats_s32_scalar(const int32_t *a, size_t n, float s, float *y)
{
    loop_floats(a, n, s, y);
}

uint32_t qfw_update_s32_scalar(int32_t *m, int32_t *v, const int32_t *g, size_t n, bool wide,
                               const qfw_move *move, const qfw_move *state, const uint32_t *u,
                               const uint32_t *u_v)
{
    return loop_update_any(m, QFW_HAS_STATE ? v : NULL, g, n, wide, move, state, u, u_v);
}

void qfw_coefs_f32_scalar(float c, const float *from, const float *to, int32_t frac, int32_t last,
                          qfw_coefs *k)
{
    loop_coefs(c, from, to, frac, last, k);
}

uint32_t qfw_update_each_scalar(int32_t *m, int32_t *v, const int32_t *g, bool wide,
                                const qfw_moves *move, const qfw_moves *state, const uint32_t *u,
                                const uint32_t *u_v, uint32_t *out)
{
    return loop_update_each_any(m, v, g, wide, move, state, u, u_v, out);
}

void qfw_update_f32_scalar(const float *w, const float *g, float *v, size_t n,
                           const qfw_float_step *step, float *d)
{
    loop_update_f32(w, g, v, n, step, d);
}

void qfw_adamw_f32_scalar(const float *w, const float *g, float *m, float *v, size_t n,
                          const qfw_adamw_step *step, float *d)
{
    loop_adamw_f32(w, g, m, v, n, step, d);
}

void qfw_lines_s32_scalar(const qfw_lines *lines, const int32_t *w, int32_t *out)
{
    loop_lines_s32(lines, w, out);
}

void qfw_lines_f32_scalar(const qfw_lines *lines, const float *w, float *out)
{
    loop_lines_f32(lines, w, out);
}

void qfw_line_dots_s32_scalar(const qfw_lines *lines, const void *y, int32_t *sum)
{
    loop_dots_s32(lines, y, sum);
}

void qfw_line_dots_f32_scalar(const qfw_lines *lines, const void *y, float *sum)
{
    loop_dots_f32(lines, y, sum);
}

void qfw_line_sums_s32_scalar(const qfw_lines *lines, int32_t *sum)
{
    loop_sums_s32(lines, sum);
}
