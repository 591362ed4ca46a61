/* Rows of a parameter and its state that are whole blocks of random words, with the DSP extension. */
#include "kernels/whole_dsp.h"

#if defined(__ARM_FEATURE_DSP)

/* 127 / 128, and the least slope whose terms have no more bits than a step. */
enum { MOST_OWN = 0x3F7E0000, LEAST_OWN = 122 << 23 };

bool qfw_begin_blocks(qfw_blocks *b, const qfw_key *key, const qfw_key *key_v, size_t n,
                      qfw_slope own)
{
    if (n % 32 != 0 || n == 0 || own < LEAST_OWN || own > MOST_OWN) {
        return false;
    }
    b->own = moved_mu(own) * (1 << moved_lift(own)); /* below 2^20 */
    b->mu_v = b->own * 256;
    b->key = key->k0;
    b->k1 = key->k1;
    b->key_v = key_v->k0;
    b->k1_v = key_v->k1;
    b->weyl = 0x9E3779B9u;
    b->mix = 0x7feb352du;
    b->mix_2 = 0x846ca68bu;
    b->n = n;
    return true;
}

static inline int32_t lift_of(qfw_soft_upper s)
{
    return (int32_t)s.field - 122;
}

/* Terms are at most 2^28. */
static uint32_t move_alone(qfw_blocks *b, int8_t *m, int8_t *v, qfw_soft_upper s)
{
    const int32_t lift = lift_of(s);
    if (lift < -16 || lift > 5) {
        return 4;
    }
    dsp_clear_flag();
    if (lift < 0) {
        b->mu = (int32_t)(s.mu << (lift + 16));
        alone_low(m, v, b);
    } else {
        b->mu = (int32_t)(s.mu << lift);
        alone_up(m, v, b);
    }
    return dsp_flag();
}

/* Terms of the parameter are at most 2^22 of x and 2^26 of v, so that steps are bytes; those of the state 2^28
 * each, and its steps are held. |code mu| < 2^bits, mu < 2^16. */
static uint32_t move_up(qfw_blocks *b, int8_t *m, int8_t *v, const int8_t *x, int32_t code,
                        const qfw_slopes *s)
{
    const int32_t bits = 17 + qfw_msb64(qfw_abs32(code));
    const int32_t g = lift_of(s->g), of_v = lift_of(s->v), g_v = lift_of(s->g_v);
    if (g < -16 || bits + g > 15 || of_v < -8 || of_v > 3 || g_v < -8 || bits + g_v > 21) {
        return 4;
    }
    b->mu = (int32_t)(s->v.mu << (of_v + 8));
    b->g = (int32_t)((uint32_t)(code * (int32_t)s->g.mu) << (g + 16));
    b->g_v = (int32_t)((uint32_t)(code * (int32_t)s->g_v.mu) << (g_v + 8));
    b->out = 0;
    dsp_clear_flag();
    const uint32_t out = up(m, v, x, b);
    return (out & 1u) | dsp_flag() << 1;
}

uint32_t qfw_move_blocks(qfw_blocks *b, size_t first, int8_t *m, int8_t *v, const int8_t *x,
                         int32_t code, const qfw_slopes *s)
{
    const uint32_t draws = qfw_mul32((uint32_t)first >> 4, b->weyl);
    b->k0 = qfw_add32(b->key, draws);
    b->k0_v = qfw_add32(b->key_v, draws);
    b->last = v + b->n;
    return code == 0 ? move_alone(b, m, v, s->v) : move_up(b, m, v, x, code, s);
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
