/* A row of int8 codes that moves: the inside of a device's step (docs/numerics.md section 17). */
#ifndef QFW_KERNELS_MOVED_H
#define QFW_KERNELS_MOVED_H

#include "base/random.h"
#include "base/soft.h"
#include "kernels/update_loops.h"

/* What a row of n codes moves by, element `first` of its tensor being the first of them: a gradient,
 * and a state. */
typedef struct {
    const int8_t *x;     /* the gradient is code * x[i]; NULL: sums[i] */
    const int32_t *sums; /* -2^bits <= sums[i] < 2^bits, bits <= 31: the fewer, the faster */
    const int8_t *v;     /* the state's codes as they were; NULL: none */
    size_t n;
    ptrdiff_t first;
    int32_t code, bits; /* |code| <= 2^7 */
} qfw_row;

/* A coefficient of terms (docs/numerics.md section 17), as the bits of a float in steps of a code: 0, or
 * normal and positive. 16 bits of its mantissa count. */
typedef uint32_t qfw_slope;

static inline qfw_slope qfw_slope_of(const qfw_coef *k)
{
    const uint32_t mu = (uint32_t)k->mu, exp = (uint32_t)(122 + k->left - k->right);
    return mu == 0 ? 0 : exp << 23 | (mu & 0x7FFFu) << 8;
}

/* The slopes of a row, of the gradient's and of the state's codes, and its words. */
typedef struct {
    qfw_slope g, v;
    const qfw_key *key;
} qfw_pace;

/* to[i] less a step: y is the gradient's term, rounded stochastically. Sym(8).
 *   r->v    NULL
 *   r->bits may become what the sums have
 *   returns 1 if a value was outside -128 .. 127 */
uint32_t qfw_move_row(int8_t *to, qfw_row *r, const qfw_pace *of);

/* A row m of a parameter, and its state v, which r->v is: both by what the state was, y being a sum of two
 * terms. A state becomes its step.
 *   returns 1 if a value of m was outside -128 .. 127, plus 2 if one of v was */
uint32_t qfw_move_both(int8_t *m, int8_t *v, qfw_row *r, const qfw_pace *of_m,
                       const qfw_pace *of_v);

/* Rows of a parameter and its state that are whole blocks of random words each: what they share, and room
 * for a row. What draws begin with, k0 + i times `weyl`, stands at the next block's. */
typedef struct {
    int32_t mu;
    uint32_t u, step;
    int32_t g;
    uint32_t u_v, step_v;
    int32_t mu_v, g_v; /* of the state */
    const int8_t *end; /* of the state's block */
    uint32_t out;
    int32_t own; /* of the state in itself, of a row without an error */
    const int8_t *last;
    uint32_t k0, k1, k0_v, k1_v, weyl, mix, mix_2;
    uint32_t key, key_v; /* what k0 and k0_v begin with */
    int32_t room;        /* up to which g_v holds no state */
    size_t n;
} qfw_blocks;

/* Slopes of a row: of the gradient and the state in the parameter, of the gradient in the state. */
typedef struct {
    qfw_soft_upper g, v, g_v;
} qfw_slopes;

/* Rows of n elements and a state of the slope `own` in itself. False: they are not such rows, or not on
 * this core. */
bool qfw_begin_blocks(qfw_blocks *b, const qfw_key *key, const qfw_key *key_v, size_t n,
                      qfw_slope own);

/* The row that begins with element `first`, as qfw_move_both moves it; code 0: s->g and s->g_v are not
 * read, nor x. 4: its slopes are beyond what is done so, and nothing was done. */
uint32_t qfw_move_blocks(qfw_blocks *b, size_t first, int8_t *m, int8_t *v, const int8_t *x,
                         int32_t code, const qfw_slopes *s);

/* m[i] = floor((m[i] + b) / 2), b being the first bit of the word of element first + i. */
void qfw_halve_row(int8_t *m, ptrdiff_t first, size_t n, const qfw_key *key);

/* The gradient of a row of weights over the `terms` rows of a step: sums[i] is the sum of e[k out] x[k n
 * + i], i < n; |sum| <= 2^14 terms < 2^31. Returns the sum of |e[k out]|: where that is 0, sums are not
 * written. */
uint32_t qfw_sum_row(int32_t *sums, const int8_t *e, size_t out, const int8_t *x, size_t n,
                     size_t terms);

/* And those of n biases: sums[j] is the sum of e[k n + j], terms < 2^24 of them. */
void qfw_sum_biases(int32_t *sums, const int8_t *e, size_t n, size_t terms);

/* Sym(8), stochastic: terms have 20 more bits. */
enum { MOVED_FRAC = 20, MOVED_MOST = 127 };

static inline qfw_words moved_words(const qfw_key *key, ptrdiff_t i)
{
    return qfw_words_at(key, (size_t)i);
}

/* How many of n elements from number i on have the words of one block. */
static inline size_t moved_count(ptrdiff_t i, size_t n)
{
    const size_t left = 32 - (size_t)(i & 31);
    return n < left ? n : left;
}

/* |the gradient's codes| <= 2^bits. */
static inline int32_t moved_bits(const qfw_row *r)
{
    const uint32_t size = qfw_abs32(r->code);
    return r->x == NULL ? r->bits : 7 + (size > 1 ? qfw_msb64(2 * size - 1) : 0);
}

/* What terms of codes in steps of 2^-20 are multiplied by, and moved up by after. */
static inline int32_t moved_mu(qfw_slope slope)
{
    return slope == 0 ? 0 : (int32_t)(slope >> 8 & 0x7FFFu) | 0x8000;
}

static inline int32_t moved_lift(qfw_slope slope)
{
    return (int32_t)(slope >> 23) - 122;
}

/* The same of steps with `frac` bits as a coefficient, a shift being at most `last`. */
static inline qfw_coef moved_coef(qfw_slope slope, int32_t frac, int32_t last)
{
    qfw_coef k;
    int32_t right, left;
    loop_coef_of(qfw_from_bits_f32(slope), frac, last, &k.mu, &k.limit, &right, &left);
    k.right = (uint8_t)right;
    k.left = (uint8_t)left;
    return k;
}

/* Whether terms of codes up to 2^bits are at most 2^28, and so need no clamp: mu < 2^16. */
static inline bool moved_is_small(const qfw_coef *k, int32_t bits)
{
    return bits + 16 + k->left - k->right <= 28;
}

/* Moves a code; -128 is held, and is no event. */
static inline void moved_hold(int8_t *at, int32_t v, uint32_t *out)
{
    if (v > MOVED_MOST || v < -MOVED_MOST) {
        *out |= v != -MOVED_MOST - 1 ? 1u : 0u;
        v = v > 0 ? MOVED_MOST : -MOVED_MOST;
    }
    *(uint8_t *)at = (uint8_t)((uint32_t)v & 0xFFu);
}

/* Where there are no sums a product is a word: |code| <= 2^14, mu < 2^16. */
static inline int32_t moved_term(int32_t code, const qfw_coef *c)
{
    if (QFW_HAS_ANY_MOVE) {
        return loop_wide_term(code, c);
    }
    const qfw_coef k = {c->mu, c->limit, c->right < 31 ? c->right : 31, c->left};
    return loop_term(code, &k);
}

/* Some codes halved, which have the words w and those that follow. */
static inline void moved_halve(int8_t *m, size_t n, qfw_words w)
{
    for (int8_t *end = m + n; m < end; m++, w.u = qfw_add32(w.u, w.step)) {
        *m = (int8_t)((*m + (int32_t)(w.u >> 31)) >> 1);
    }
}

/* Elements from .. end - 1 of the row, the words of the first being w. */
static inline uint32_t moved_one_by_one(int8_t *to, const qfw_row *r, size_t from, size_t end,
                                        const qfw_coef *g, const qfw_coef *v, qfw_words w,
                                        bool anew)
{
    const bool has_state = QFW_HAS_STATE && r->v != NULL;
    uint32_t out = 0;
    for (size_t i = from; i < end; i++, w.u = qfw_add32(w.u, w.step)) {
        const bool ones = !QFW_HAS_ANY_MOVE || r->x != NULL;
        int32_t y = moved_term(ones ? r->code * r->x[i] : r->sums[i], g);
        y += has_state ? loop_term(r->v[i], v) : 0;
        const int32_t by = loop_round(y, MOVED_FRAC, QFW_STOCHASTIC, w.u);
        moved_hold(to + i, anew ? by : to[i] - by, &out);
    }
    return out;
}

#endif
