/* Loops over tiles: the definitions. */
#include "kernels/loops.h"
#include "kernels/update_loops.h"

/* loop_ratios, where most of them are neither very large nor very small. */
static void ratios_few(const float *from, size_t n, const qfw_divisor *to, int32_t bits,
                       uint32_t *ratios, size_t columns)
{
    const uint32_t recip = to->recip, over = to->mant;
    for (const float *end = from + n; from < end; from++, ratios++) {
        const uint32_t word = qfw_bits_f32(*from), mant = (word & 0x7FFFFFu) | 0x800000u;
        const uint32_t d = mant < over ? 1 : 0, m = mant << d;
        const int32_t e = 31 - bits - to->exp + (int32_t)(word >> 23) - 150 - (int32_t)d;
        if (e < 0 || e > 30) {
            loop_ratios(from, 1, to, bits, ratios, ratios + columns, ratios + 2 * columns,
                        ratios + 3 * columns);
            continue;
        }
        uint32_t q = (uint32_t)(((uint64_t)m * recip) >> 24);
        const uint32_t rest = qfw_sub32((m & 3u) << 30, qfw_mul32(q, over));
        q += (rest >= over ? 1u : 0u) + (rest >= 2 * over ? 1u : 0u);
        ratios[0] = q;
        ratios[columns] = (uint32_t)INT32_MAX >> e;
        ratios[2 * columns] = (uint32_t)e;
        ratios[3 * columns] = (uint32_t)(29 - bits);
    }
}

void qfw_ratios_f32_scalar(const float *from, size_t n, float to, int32_t bits, uint32_t *ratios,
                           size_t columns)
{
    const qfw_divisor d = qfw_divisor_of(to);
    if (QFW_DIRECT) {
        ratios_few(from, n, &d, bits, ratios, columns);
    } else {
        loop_ratios(from, n, &d, bits, ratios, ratios + columns, ratios + 2 * columns,
                    ratios + 3 * columns);
    }
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
