/* Codes that move by the products of one number, with the DSP extension of a Cortex-M. */
#include "kernels/dsp.h"
#include "kernels/moved.h"

#if defined(__ARM_FEATURE_DSP)

/* The random word of a step, as its last bits. */
static inline int32_t word(uint32_t u)
{
    return (int32_t)(u >> (32 - MOVED_FRAC));
}

static inline void put_four(int8_t *m, uint32_t four)
{
    uint8_t *b = (uint8_t *)m; /* one instruction, whatever the alignment */
    b[0] = (uint8_t)(four & 0xFFu);
    b[1] = (uint8_t)(four >> 8 & 0xFFu);
    b[2] = (uint8_t)(four >> 16 & 0xFFu);
    b[3] = (uint8_t)(four >> 24);
}

/* Four codes less four steps, of which y has 20 bits more. */
static inline void move_four(int8_t *m, int32_t y0, int32_t y1, int32_t y2, int32_t y3)
{
    const uint32_t four = dsp_word(m);
    const uint32_t by02 = dsp_pack_tops((uint32_t)(y2 >> 4), y0);
    const uint32_t by13 = dsp_pack_tops((uint32_t)(y3 >> 4), y1);
    const uint32_t v02 = dsp_held(dsp_less(dsp_even(four), by02));
    const uint32_t v13 = dsp_held(dsp_less(dsp_odd(four), by13));
    put_four(m, dsp_no_least(dsp_low_bytes(v02) | dsp_low_bytes(v13) << 8));
}

/* c 2^-16 x is the term; `up`: x is multiplied by 2^8 first. A term is below 2^30, so a step has at
 * most 11 bits, and the difference of a code and a step fits 16. */
static inline void move_fours(int8_t *m, const int8_t *x, const int8_t *end, int32_t c,
                              const bool up, uint32_t u, uint32_t step)
{
    for (; x < end; x += 4, m += 4) {
        const uint32_t four = dsp_word(x), upper = 0xFF00FF00u;
        if (four == 0) {
            u += 4 * step;
            continue;
        }
        const uint32_t x02 = up ? four << 8 & upper : dsp_even(four);
        const uint32_t x13 = up ? four & upper : dsp_odd(four);
        const int32_t y0 = dsp_low(c, x02, word(u));
        const int32_t y1 = dsp_low(c, x13, word(u += step));
        const int32_t y2 = dsp_high(c, x02, word(u += step));
        const int32_t y3 = dsp_high(c, x13, word(u += step));
        u += step;
        if ((uint32_t)(y0 | y1 | y2 | y3) >> MOVED_FRAC != 0) { /* else they stay */
            move_four(m, y0, y1, y2, y3);
        }
    }
}

/* |c| < 2^23, shifted by at most 8: below 2^31. */
uint32_t qfw_move_products(int8_t *m, const int8_t *x, size_t n, int32_t c, uint32_t right,
                           uint32_t u, uint32_t step)
{
    const size_t most = right <= 16 ? n & ~(size_t)3 : 0;
    uint32_t out = 0;
    if (most != 0) {
        const bool up = right <= 8;
        const int32_t by = (int32_t)((uint32_t)c << ((up ? 8u : 16u) - right));
        dsp_clear_flag();
        if (up) {
            move_fours(m, x, x + most, by, true, u, step);
        } else {
            move_fours(m, x, x + most, by, false, u, step);
        }
        out = dsp_flag();
        u += (uint32_t)most * step;
    }
    return out | moved_one_by_one(m + most, x + most, x + n, c, right, u, step);
}

#else
typedef int qfw_no_dsp; /* a unit that is not empty */
#endif
