/* Elements with scales of their own that move: the definition. */
#include "base/random.h"
#include "kernels/update_loops.h"

enum { LAST = 31 };

static int32_t code_at(const qfw_single *x, size_t i)
{
    return x->width == 8 ? ((const int8_t *)x->codes)[i] : ((const int16_t *)x->codes)[i];
}

static void put(const qfw_single *x, size_t i, int32_t code, int32_t out)
{
    if (x->width == 8) {
        ((int8_t *)x->codes)[i] = (int8_t)code;
    } else {
        ((int16_t *)x->codes)[i] = (int16_t)code;
    }
    if (out != 0) {
        x->flags[x->each ? i : 0] = 1;
    }
}

static float scale_at(const qfw_single *x, size_t i)
{
    return x->scale[x->each ? i : 0];
}

static qfw_move move_of(const qfw_single *x, qfw_rounding rounding)
{
    const int32_t q = (1 << (x->bits - 1)) - 1;
    const qfw_coef none = {0, 1 << 28, 0, 0};
    const qfw_move move = {none, none, none, 28 - x->bits, -q, q, rounding};
    return move;
}

/* The term of a code at the scale `from` in a step of x. */
static int32_t term_of(int32_t code, float c, float from, const qfw_single *x, size_t i,
                       int32_t frac)
{
    int32_t mu, limit, right, left;
    const float v = qfw_coef_div(qfw_coef_mul(c, from), scale_at(x, i));
    loop_coef_of(v, frac, LAST, &mu, &limit, &right, &left);
    const qfw_coef k = {mu, limit, (uint8_t)right, (uint8_t)left};
    return loop_term(code, &k);
}

static uint32_t word_at(const qfw_key *key, size_t i)
{
    const qfw_draw_pair d = qfw_block_draw(key, i);
    return qfw_add32(d.a, qfw_mul32((uint32_t)(i & 31), d.b));
}

void qfw_update_singles_scalar(const qfw_singles *s, size_t n)
{
    const qfw_move p = move_of(&s->m, s->rounding);
    for (size_t i = 0; i < n; i++) {
        const int32_t m = code_at(&s->m, i), g = code_at(&s->g, i);
        const float s_g = scale_at(&s->g, i);
        int32_t y = term_of(g, s->step_g, s_g, &s->m, i, p.frac), out = 0;
        if (s->v.codes != NULL) {
            const qfw_move q = move_of(&s->v, s->state_rounding);
            const int32_t v = code_at(&s->v, i);
            const float s_v = scale_at(&s->v, i);
            const int32_t y_v = term_of(g, s->state_g, s_g, &s->v, i, q.frac) +
                                term_of(v, s->state_v, s_v, &s->v, i, q.frac);
            y += term_of(v, s->step_v, s_v, &s->m, i, p.frac);
            const int32_t to = loop_round(y_v, q.frac, q.rounding, word_at(s->state_key, i));
            int32_t state_out = 0;
            const int32_t held = loop_held(to, &q, &state_out);
            put(&s->v, i, held, state_out);
        }
        const int32_t by = loop_round(y, p.frac, p.rounding, word_at(s->key, i));
        const int32_t held = loop_held(m - by, &p, &out);
        put(&s->m, i, held, out);
    }
}

/* ---- sums to codes ---- */

static bool is_sure(int32_t a, float s_in, uint32_t q, uint32_t u, float *scale)
{
    const uint32_t size = qfw_abs32(a), near = QFW_SURE_WORD;
    qfw_scales_s32_scalar(s_in, &size, 1, q, false, scale);
    return size < QFW_SURE_SUM && *scale > FLT_MIN && *scale < FLT_MAX && u >= near &&
           u <= UINT32_MAX - near;
}

size_t qfw_singles_s8_scalar(const int32_t *a, size_t n, float s_in, uint32_t q, const qfw_key *key,
                             uint64_t first, float *scale, int8_t *codes)
{
    enum { AT_ONCE = 8 };
    size_t i = 0;
    for (size_t count; first % AT_ONCE == 0 && i < n; i += count) {
        int8_t made[AT_ONCE];
        float found[AT_ONCE];
        bool sure = true;
        count = n - i < AT_ONCE ? n - i : AT_ONCE;
        for (size_t k = 0; k < count; k++) {
            const int32_t m = a[i + k];
            const uint32_t u = key != NULL ? word_at(key, (size_t)(first + i + k)) : QFW_SURE_WORD;
            sure = is_sure(m, s_in, q, u, &found[k]) && sure;
            made[k] = (int8_t)(m > 0 ? (int32_t)q : m < 0 ? -(int32_t)q : 0);
        }
        if (!sure) {
            break;
        }
        memcpy(scale + i, found, count * sizeof *found);
        memcpy(codes + i, made, count);
    }
    return i;
}
