/* A row of int8 codes that moves: the inside of a device's step. */
#include "kernels/moved.h"

#if !defined(__ARM_FEATURE_DSP)

/* A coefficient of terms that need no clamp: (code * c) >> right. */
typedef struct {
    int32_t c;
    uint32_t right;
} factor;

static factor factor_of(const qfw_coef *k, int32_t times)
{
    const factor f = {k->mu * times * (1 << k->left), k->right < 31 ? k->right : 31u};
    return f;
}

/* Whether the product is an int32 too. */
static bool fits(const qfw_coef *k, int32_t bits)
{
    return moved_is_small(k, bits) && bits + 16 + k->left <= 31;
}

/* n elements of x and v; `state`, `anew`: constants at each call. */
static inline uint32_t move_small(int8_t *to, const int8_t *x, const int8_t *v, size_t n, factor g,
                                  factor k, qfw_words w, const bool state, const bool anew)
{
    uint32_t out = 0;
    for (const int8_t *end = to + n; to < end; to++, w.u = qfw_add32(w.u, w.step)) {
        const int32_t of_v = state ? (*v++ * k.c) >> k.right : 0;
        const int32_t y = ((*x++ * g.c) >> g.right) + of_v;
        const int32_t by = loop_round(y, MOVED_FRAC, QFW_STOCHASTIC, w.u);
        if (anew || by != 0) {
            moved_hold(to, anew ? by : *to - by, &out);
        }
    }
    return out;
}

/* What moves is a state, r->v, if it begins anew. */
static uint32_t move_codes(int8_t *to, qfw_row *r, const qfw_pace *of, bool anew)
{
    const bool has_state = QFW_HAS_STATE && r->v != NULL;
    const qfw_coef g = moved_coef(of->g, MOVED_FRAC, 63),
                   v = moved_coef(has_state ? of->v : 0, MOVED_FRAC, 31);
    const bool small = r->x != NULL && fits(&g, moved_bits(r)) && (!has_state || fits(&v, 7));
    const factor of_g = factor_of(&g, small ? r->code : 0), of_v = factor_of(&v, small ? 1 : 0);
    uint32_t out = 0;
    for (size_t i = 0, n; i < r->n; i += n) {
        const ptrdiff_t at = r->first + (ptrdiff_t)i;
        const qfw_words w = moved_words(of->key, at);
        n = moved_count(at, r->n - i);
        if (!small) {
            out |= moved_one_by_one(to, r, i, i + n, &g, &v, w, anew);
        } else if (!has_state) {
            out |= move_small(to + i, r->x + i, NULL, n, of_g, of_v, w, false, false);
        } else if (anew) {
            out |= move_small(to + i, r->x + i, r->v + i, n, of_g, of_v, w, true, true);
        } else {
            out |= move_small(to + i, r->x + i, r->v + i, n, of_g, of_v, w, true, false);
        }
    }
    return out;
}

uint32_t qfw_move_row(int8_t *to, qfw_row *r, const qfw_pace *of)
{
    return move_codes(to, r, of, false);
}

uint32_t qfw_move_both(int8_t *m, int8_t *v, qfw_row *r, const qfw_pace *of_m, const qfw_pace *of_v)
{
    const uint32_t out = move_codes(m, r, of_m, false);
    return out | move_codes(v, r, of_v, true) << 1;
}

#else
typedef int qfw_no_scalar; /* a unit that is not empty */
#endif
