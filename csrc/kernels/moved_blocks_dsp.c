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
    b->room = 2 * ((127 << 20) - 128 * b->own - 1); /* a term is at most |g_v| / 2 and 1 */
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

/* A slope of mu 2^(field - 142) moves up by field - 122 a term of a code in steps of 2^-20, mu < 2^16. Terms
 * are at most 2^28. */
QFW_ALWAYS_INLINE uint32_t move_alone(qfw_blocks *b, int8_t *m, int8_t *v, qfw_soft_upper s)
{
    const uint32_t up = qfw_sub32(s.field, 106); /* 16 more */
    if (up > 21) {
        return 4;
    }
    dsp_clear_flag();
    if (up < 16) {
        b->mu = (int32_t)(s.mu << up);
        alone_low(m, v, b);
    } else {
        b->mu = (int32_t)(s.mu << (up - 16));
        alone_up(m, v, b);
    }
    return dsp_flag();
}

/* Terms of the parameter are at most 2^22 of x and 2^26 of v, so that steps are bytes; those of the state 2^28
 * each, and its steps are held. Of a code with `zeros` of 32 bits before its first |code mu| < 2^(48 -
 * zeros); factors have 16 bits more than terms, or where they are of codes that are moved up by 8. */
QFW_ALWAYS_INLINE uint32_t move_up(qfw_blocks *b, int8_t *m, int8_t *v, const int8_t *x,
                                   int32_t code, const qfw_slopes *s)
{
    const uint32_t zeros = 31 - (uint32_t)qfw_msb64(qfw_abs32(code));
    const uint32_t of_v = qfw_sub32(s->v.field, 114), g = qfw_sub32(s->g.field, 106);
    const uint32_t g_v = qfw_sub32(s->g_v.field, 114);
    if (of_v > 11 || g > zeros - 17 || g_v > zeros - 19) {
        return 4;
    }
    b->mu = (int32_t)(s->v.mu << of_v);
    b->g = (int32_t)((uint32_t)(code * (int32_t)s->g.mu) << g);
    b->g_v = (int32_t)((uint32_t)(code * (int32_t)s->g_v.mu) << g_v);
    b->out = 0;
    dsp_clear_flag();
    const int32_t size = b->g_v ^ (b->g_v >> 31);
    const uint32_t out = size < b->room ? up_free(m, v, x, b) : up_held(m, v, x, b);
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

/* ---- halved ---- */

/* (x + y) >> 1 of four pairs of bytes. */
static inline uint32_t halves(uint32_t x, uint32_t y)
{
    uint32_t four;
    __asm__("shadd8 %0, %1, %2" : "=r"(four) : "r"(x), "r"(y));
    return four;
}

void qfw_halve_row(int8_t *m, ptrdiff_t first, size_t n, const qfw_key *key)
{
    for (size_t left = n, some; left > 0; left -= some, first += (ptrdiff_t)some) {
        qfw_words w = moved_words(key, first);
        some = moved_count(first, left);
        for (int8_t *end = m + (some & ~(size_t)3); m < end; m += 4) {
            uint32_t bits = w.u >> 31;
            for (uint32_t k = 8; k < 32; k += 8) {
                w.u = qfw_add32(w.u, w.step);
                bits |= w.u >> 31 << k;
            }
            w.u = qfw_add32(w.u, w.step);
            dsp_put_word(m, halves(dsp_word(m), bits));
        }
        moved_halve(m, some & 3, w);
        m += some & 3;
    }
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
