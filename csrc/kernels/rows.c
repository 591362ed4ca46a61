/* Rows of int8 codes that an outer product moves: the definition of what a device does for all at once. */
#include "kernels/rows.h"
#include "base/soft.h"
#include "kernels/moved.h"

#if !defined(__ARM_FEATURE_DSP)

bool qfw_fours_of(const int8_t *x, size_t n, uint32_t *fours)
{
    uint32_t *to = fours;
    for (size_t i = 0; i < n; i += 4) {
        to[0] = (uint32_t)(x[i] & 0xFF) << 8 | (uint32_t)(x[i + 2] & 0xFF) << 24;
        to[1] = (uint32_t)(x[i + 1] & 0xFF) << 8 | (uint32_t)(x[i + 3] & 0xFF) << 24;
        to[2] = (uint32_t)i;
        to += (to[0] | to[1]) != 0 ? 3 : 0;
    }
    to[2] = QFW_FOURS_END;
    return to != fours;
}

/* Element k of a four. */
static int32_t element(const uint32_t *four, size_t k)
{
    const uint32_t two = four[k & 1];
    return (int32_t)(k < 2 ? two << 16 : two) >> 24;
}

/* |code x| <= 2^14, so that a term's product with mu < 2^16 is an int32. */
static bool move_row(const qfw_outer_rows *r, size_t o, int32_t code, float scale)
{
    const uint32_t mant = r->mant & 0x7FFFFFu, exp = (uint32_t)(r->exp - 17);
    const float top = qfw_from_bits_f32(r->exp < 0 ? 0 : exp << 23 | mant);
    const qfw_slope slope = qfw_bits_f32(qfw_soft_div_upper(top, scale));
    const qfw_coef g = moved_coef(slope, MOVED_FRAC, 31);
    int8_t *to = r->to + o * r->row;
    uint32_t out = 0;
    for (const uint32_t *four = r->fours; four[2] != QFW_FOURS_END; four += 3) {
        const size_t at = o * r->row + four[2];
        qfw_words w = moved_words(&r->key, (ptrdiff_t)at);
        for (size_t k = 0; k < 4; k++, w.u = qfw_add32(w.u, w.step)) {
            const int32_t y = loop_term(code * element(four, k), &g);
            int8_t *m = to + four[2] + k;
            moved_hold(m, *m - loop_round(y, MOVED_FRAC, QFW_STOCHASTIC, w.u), &out);
        }
    }
    return out != 0;
}

qfw_rows_stop qfw_move_rows(qfw_outer_rows *r)
{
    while (r->e != r->end) {
        const int32_t code = *r->e++;
        const size_t o = (size_t)(r->e - r->second);
        const float scale = r->scale[o * (r->next / sizeof scale)];
        if (code == 0) {
            continue;
        }
        if (qfw_bits_f32(scale) == QFW_F32_ONE && r->looked_at != r->e) {
            return QFW_ROW_ONE;
        }
        if (move_row(r, o, code, scale)) {
            return QFW_ROW_LEFT;
        }
    }
    return QFW_ROWS_END;
}

#else
typedef int qfw_no_scalar; /* a unit that is not empty */
#endif
