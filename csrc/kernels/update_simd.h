/* The int8 update in vectors of any width. update_<isa>.c says which: `vec`, VEC(op) and VEC_SI(op)
 * for the intrinsics, WIDE for its bytes; is_zero; load_part and store_part for elements from ..
 * from + count - 1 of a vector, the others being 0; BLOCKS, draw_blocks and words_of for random
 * words.
 *
 * A code is unpacked into the upper byte of 16 bits, twice in a word of 32, so that one vpmaddwd
 * makes code * 2^8 * mu of mu's two halves. |code * 2^8| <= 2^15 and mu < 2^16 - 1, so that is an
 * int32. Unpacking takes the elements of a block in four quarters, and packing puts them back. */
#ifndef QFW_KERNELS_UPDATE_SIMD_H
#define QFW_KERNELS_UPDATE_SIMD_H

#include "kernels/update_loops.h"

QFW_ALWAYS_INLINE vec load(const void *p)
{
    return VEC_SI(loadu)(p);
}

QFW_ALWAYS_INLINE vec load_at(const int8_t *p, size_t from, size_t count)
{
    return count == WIDE ? load(p) : load_part(p, from, count);
}

QFW_ALWAYS_INLINE void store_at(int8_t *p, size_t from, size_t count, vec x)
{
    if (count == WIDE) {
        VEC_SI(storeu)((void *)p, x);
    } else {
        store_part(p, from, count, x);
    }
}

/* ---- words ---- */

/* The pairs of draws of up to DRAWN blocks of 32 elements. Drawn together: a draw is a long chain,
 * but many take hardly longer than one. */
enum { DRAWN = 4 * BLOCKS };

typedef struct {
    const qfw_key *key;
    uint64_t from, end; /* a vector's words can begin with blocks from .. end - 1 */
    uint64_t last;      /* the block of the last element */
    uint32_t a[DRAWN + 1], b[DRAWN + 1];
} drawn;

/* For n elements from `first` on, n > 0. */
static void begin_words(drawn *d, const qfw_key *key, uint64_t first, uint64_t n)
{
    d->key = key;
    d->from = d->end = 0; /* none yet */
    d->last = (first + n - 1) >> 5;
}

/* A vector may reach a block beyond the last, whose words are any. */
static void renew_words(drawn *d, uint64_t number)
{
    size_t blocks = 0;
    do {
        draw_blocks(d->key, number + blocks, d->a + blocks, d->b + blocks);
        blocks += BLOCKS;
    } while (blocks < DRAWN && number + blocks <= d->last);
    d->a[blocks] = d->b[blocks] = 0;
    d->from = number;
    d->end = number + blocks <= d->last ? number + blocks + 1 - WIDE / 32 : number + blocks;
}

/* Of the elements from `at` on, a multiple of 32. */
QFW_ALWAYS_INLINE words words_at(drawn *d, uint64_t at)
{
    const uint64_t number = at >> 5;
    if (number < d->from || number >= d->end) {
        renew_words(d, number);
    }
    const size_t k = (size_t)(number - d->from);
    return words_of(d->a + k, d->b + k);
}

/* ---- terms ---- */

/* (code * 2^8 * mu) >> right */
typedef struct {
    vec mu, right;
} factor;

typedef struct {
    factor g, v;
    vec draw, frac, q;
} motion;

/* The same for QFW_LANES rows, mu as its two halves. */
typedef struct {
    int32_t mu[QFW_LANES], right[QFW_LANES];
} factors;

static inline factors factors_of(const qfw_coefs *c)
{
    factors f;
    for (size_t i = 0; i < QFW_LANES; i++) {
        const int32_t half = c->mu[i] / 2, right = 8 + c->right[i] - c->left[i];
        f.mu[i] = half * 65536 | (c->mu[i] - half);
        f.right[i] = right < 31 ? right : 31;
    }
    return f;
}

QFW_ALWAYS_INLINE factor factor_at(const factors *f, size_t i)
{
    const factor one = {VEC(set1_epi32)(f->mu[i]), VEC(set1_epi32)(f->right[i])};
    return one;
}

/* What a row is about; constants wherever it is used. */
typedef struct {
    bool g, state; /* which of the two there is, or both */
    bool large; /* terms may need their clamp, steps may be longer than a code's range, q < 127 */
} kind;

QFW_ALWAYS_INLINE vec term(vec twins, const factor *f, const kind k)
{
    const vec v = VEC(srav_epi32)(VEC(madd_epi16)(twins, f->mu), f->right);
    const vec most = VEC(set1_epi32)(1 << 28), least = VEC(set1_epi32)(-(1 << 28));
    return k.large ? VEC(max_epi32)(VEC(min_epi32)(v, most), least) : v;
}

/* (y + (u >> (32 - F))) >> F */
QFW_ALWAYS_INLINE vec rounded(vec y, words *w, const motion *t)
{
    const vec u = VEC(srlv_epi32)(w->u, t->draw);
    w->u = VEC(add_epi32)(w->u, w->step);
    return VEC(srav_epi32)(VEC(add_epi32)(y, u), t->frac);
}

/* ---- blocks ---- */

/* The 16-bit numbers of a block, of each 16 the lower and the upper eight. */
typedef struct {
    vec half[2];
} spread;

/* Codes times 2^8. */
QFW_ALWAYS_INLINE spread spread_of(vec x)
{
    const vec zero = VEC(set1_epi32)(0);
    const spread s = {{VEC(unpacklo_epi8)(zero, x), VEC(unpackhi_epi8)(zero, x)}};
    return s;
}

QFW_ALWAYS_INLINE vec narrow(const spread *x)
{
    return VEC(packs_epi16)(x->half[0], x->half[1]);
}

/* Each element of a quarter twice. */
QFW_ALWAYS_INLINE vec twins(const spread *s, const int quarter)
{
    const vec x = s->half[quarter / 2];
    return quarter % 2 == 0 ? VEC(unpacklo_epi16)(x, x) : VEC(unpackhi_epi16)(x, x);
}

QFW_ALWAYS_INLINE vec quarter_of(const spread *g, const spread *v, words *w, const motion *t,
                                 const int quarter, const kind k)
{
    vec y = VEC(set1_epi32)(0);
    if (k.g) {
        y = term(twins(g, quarter), &t->g, k);
    }
    if (k.state) {
        const vec of_v = term(twins(v, quarter), &t->v, k);
        y = k.g ? VEC(add_epi32)(y, of_v) : of_v;
    }
    return rounded(y, w, t);
}

/* The rounded sums of a block. */
QFW_ALWAYS_INLINE spread steps_of(const spread *g, const spread *v, words w, const motion *t,
                                  const kind k)
{
    const vec n0 = quarter_of(g, v, &w, t, 0, k), n1 = quarter_of(g, v, &w, t, 1, k);
    const vec n2 = quarter_of(g, v, &w, t, 2, k), n3 = quarter_of(g, v, &w, t, 3, k);
    const spread s = {{VEC(packs_epi32)(n0, n1), VEC(packs_epi32)(n2, n3)}};
    return s;
}

/* Where values left their codes: bits that a byte lost, and extremes. */
typedef struct {
    vec lost, most, least;
} outside;

QFW_ALWAYS_INLINE void see(const spread *x, outside *out)
{
    out->most = VEC(max_epi16)(out->most, VEC(max_epi16)(x->half[0], x->half[1]));
    out->least = VEC(min_epi16)(out->least, VEC(min_epi16)(x->half[0], x->half[1]));
}

/* Whether something was outside -q - 1 .. q. */
static inline bool is_outside(const outside *out, int32_t q)
{
    const vec above = VEC(subs_epi16)(out->most, VEC(set1_epi16)((int16_t)q));
    const vec below = VEC(subs_epi16)(VEC(set1_epi16)((int16_t)(-q - 1)), out->least);
    const vec zero = VEC(set1_epi32)(0);
    const vec beyond = VEC_SI(or)(VEC(max_epi16)(above, zero), VEC(max_epi16)(below, zero));
    return !is_zero(VEC_SI(or)(out->lost, beyond));
}

/* Bytes, none below -q or above q; no byte is above 127. */
QFW_ALWAYS_INLINE vec held(vec bytes, vec q, const kind k)
{
    const vec least = VEC(sub_epi8)(VEC(set1_epi32)(0), q);
    return VEC(max_epi8)(k.large ? VEC(min_epi8)(bytes, q) : bytes, least);
}

/* m - n. Small steps are bytes themselves, q is 127, and a difference that saturates is outside. */
QFW_ALWAYS_INLINE vec less(vec m, const spread *n, vec q, outside *out, const kind k)
{
    if (!k.large) {
        const vec by = narrow(n), to = VEC(subs_epi8)(m, by);
        out->lost = VEC_SI(or)(out->lost, VEC_SI(xor)(to, VEC(sub_epi8)(m, by)));
        return held(to, q, k);
    }
    spread x = spread_of(m);
    x.half[0] = VEC(sub_epi16)(VEC(srai_epi16)(x.half[0], 8), n->half[0]);
    x.half[1] = VEC(sub_epi16)(VEC(srai_epi16)(x.half[1], 8), n->half[1]);
    see(&x, out);
    return held(narrow(&x), q, k);
}

/* ---- rows ---- */

/* How the parameter and the state of a row move, and what left its codes. */
typedef struct {
    motion p, s;
    outside out, state_out;
} task;

/* Block by block from multiples of 32 on; where one is not whole, the rest is zeros. What has
 * neither gradient nor state stays where it can, whatever the word: floor(0 + u) is 0. */
QFW_ALWAYS_INLINE void move_row(int8_t *m, int8_t *v, const int8_t *g, size_t n, uint64_t first,
                                drawn *of_p, drawn *of_s, task *t, const kind k)
{
    size_t from = (size_t)(first & 31u);
    for (size_t i = 0, count; i < n; i += count, from = 0) {
        const uint64_t at = first + i - from;
        count = n - i < WIDE - from ? n - i : WIDE - from;
        const vec g_i = k.g ? load_at(g + i, from, count) : VEC(set1_epi32)(0);
        vec m_i = load_at(m + i, from, count), v_i = k.state ? load_at(v + i, from, count) : g_i;
        if (!k.large && is_zero(k.g ? VEC_SI(or)(g_i, v_i) : v_i)) {
            store_at(m + i, from, count, held(m_i, t->p.q, k));
            continue;
        }
        const words w = words_at(of_p, at), w_v = k.state ? words_at(of_s, at) : w;
        const spread of_g = spread_of(g_i), of_v = spread_of(v_i);
        const spread by = steps_of(&of_g, &of_v, w, &t->p, k);
        m_i = less(m_i, &by, t->p.q, &t->out, k);
        if (k.state) {
            const spread to = steps_of(&of_g, &of_v, w_v, &t->s, k);
            see(&to, &t->state_out);
            store_at(v + i, from, count, held(narrow(&to), t->s.q, k));
        }
        store_at(m + i, from, count, m_i);
    }
}

static inline bool are_zero(const int8_t *x, size_t n)
{
    size_t i = 0;
    for (; n - i >= 4 * WIDE; i += 4 * WIDE) {
        const vec lower = VEC_SI(or)(load(x + i), load(x + i + WIDE));
        const vec upper = VEC_SI(or)(load(x + i + 2 * WIDE), load(x + i + 3 * WIDE));
        if (!is_zero(VEC_SI(or)(lower, upper))) {
            return false;
        }
    }
    for (size_t count; i < n; i += count) {
        count = n - i < WIDE ? n - i : WIDE;
        if (!is_zero(load_at(x + i, 0, count))) {
            return false;
        }
    }
    return true;
}

/* A step of nothing, q being 127: a code of -128 comes back. */
static inline void hold(int8_t *m, size_t n)
{
    const vec least = VEC(set1_epi8)(-127);
    for (size_t i = 0, count; i < n; i += count) {
        count = n - i < WIDE ? n - i : WIDE;
        const vec x = load_at(m + i, 0, count), y = VEC(max_epi8)(x, least);
        if (!is_zero(VEC_SI(xor)(x, y))) {
            store_at(m + i, 0, count, y);
        }
    }
}

#endif
