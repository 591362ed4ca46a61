/* Values of what lasts, a tile at a time: docs/numerics.md sections 7, 8 and 17. */
#include "engine/lasting.h"
#include "base/layout.h"
#include "base/round.h"
#include "engine/count.h"
#include "kernels/codes.h"

float *qfw_floats_at(const qfw_tensor *t, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m,
                     float *room)
{
    if (t->format.kind == QFW_FLOAT32) {
        return (float *)t->codes + first;
    }
    const float s = t->scale[scale];
    qfw_load_held(t, first, n, scale, m);
    if (t->format.bits <= 16) { /* what qfw_product_f32 does below 2^24 */
        for (size_t i = 0; i < n; i++) {
            room[i] = (float)m[i] * s;
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            room[i] = qfw_product_f32(m[i], s);
        }
    }
    return room;
}

float qfw_value_at(const qfw_operand *x, ptrdiff_t i)
{
    const bool floats = x->plan->kind == QFW_FLOAT32;
    int32_t m;
    float room;
    return *qfw_floats_at(&x->t, i, 1, floats ? 0 : qfw_run_at(&x->t.layout, i).scale, &m, &room);
}

const float *qfw_clipped(const float *g, size_t n, float clip, float *room)
{
    if (clip == 1.0f) {
        return g;
    }
    for (size_t i = 0; i < n; i++) {
        room[i] = clip * g[i];
    }
    return room;
}

void qfw_put_held(const qfw_operand *x, ptrdiff_t first, size_t n, ptrdiff_t scale, int32_t *m)
{
    if (qfw_is_asym(x->plan->kind)) {
        for (size_t i = 0; i < n; i++) {
            m[i] += x->t.zero_point[scale];
        }
    }
    qfw_store_codes(&x->t, first, n, m);
}

static bool put(const qfw_call *call, const qfw_operand *x, qfw_rounding rounding, ptrdiff_t first,
                size_t n, ptrdiff_t scale, const float *value, const uint32_t *u, int32_t *m,
                bool less)
{
    const qfw_code_rule rule = {rounding, 0, -QFW_QUOTIENT_MAX, QFW_QUOTIENT_MAX};
    int32_t steps[QFW_TILE], lo, hi;
    bool left = false;
    qfw_codes_at(x, scale, &lo, &hi);
    (void)QFW_K(call->kernels, quotient_f32)(value, u, n, x->t.scale[scale], &rule, steps);
    qfw_count_floats(call, x, scale, m, value, steps, n, &rule);
    for (size_t i = 0; i < n; i++) {
        const int32_t to = less ? m[i] - steps[i] : steps[i];
        left |= to < lo - 1 || to > hi;
        m[i] = to > hi ? hi : to < lo ? lo : to;
    }
    qfw_put_held(x, first, n, scale, m);
    return left;
}

bool qfw_put_value(const qfw_call *call, const qfw_operand *x, qfw_rounding rounding,
                   ptrdiff_t first, size_t n, ptrdiff_t scale, const float *value,
                   const uint32_t *u, int32_t *m)
{
    return put(call, x, rounding, first, n, scale, value, u, m, false);
}

bool qfw_put_less(const qfw_call *call, const qfw_operand *x, qfw_rounding rounding,
                  ptrdiff_t first, size_t n, ptrdiff_t scale, const float *value, const uint32_t *u,
                  int32_t *m)
{
    return put(call, x, rounding, first, n, scale, value, u, m, true);
}
