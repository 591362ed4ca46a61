/* The int8 update of rows: which of them are moved how, by update_simd.h. */
#ifndef QFW_KERNELS_UPDATE_ROWS_SIMD_H
#define QFW_KERNELS_UPDATE_ROWS_SIMD_H

#include "kernels/update_simd.h"

/* A term that the vectors make: mu = 2^16 - 1 has no two halves, and a code times 2^8 is lifted no
 * further. */
static inline bool is_plain(const qfw_coefs *c, size_t i)
{
    return c->mu[i] < 0xFFFF && c->left[i] <= 8;
}

/* The largest |term| of a code, in units of 2^-F; 2^29 if it may be beyond 2^28. |code * mu| <=
 * 2^23: lifted by up to 5 bits it is not. */
static inline int32_t reach(const qfw_coefs *c, size_t i)
{
    return c->left[i] > 5 ? 1 << 29 : (((128 * c->mu[i]) >> c->right[i]) + 1) * (1 << c->left[i]);
}

/* Whether rounding, range and terms are what the vectors are for. */
static inline bool are_plain(const qfw_moves *m)
{
    int32_t decays = 0;
    for (size_t i = 0; i < QFW_LANES; i++) {
        decays |= m->w.mu[i];
    }
    return m->rounding == QFW_STOCHASTIC && decays == 0 && m->hi == -m->lo && m->hi <= 127;
}

/* reach of terms that the vectors make and that need no clamp, side by side; of others 2^29. */
static inline void find_reach(const qfw_coefs *c, int32_t *restrict far)
{
    for (size_t i = 0; i < QFW_LANES; i++) {
        const int32_t most = (((128 * c->mu[i]) >> c->right[i]) + 1) * (1 << (c->left[i] & 7));
        const bool made = c->mu[i] < 0xFFFF && c->left[i] <= 5;
        far[i] = made ? most : 1 << 29;
    }
}

/* Rows whose terms are small steps, whatever their codes. q is 127. */
enum { ALL_QUICK = 1, STATE_QUICK = 2 }; /* those of gradient and state, of the state alone */

QFW_ALWAYS_INLINE void find_quick(const qfw_moves *p, const qfw_moves *s, const bool has_state,
                                  int32_t *restrict quick)
{
    int32_t p_g[QFW_LANES], p_v[QFW_LANES] = {0}, s_g[QFW_LANES] = {0}, s_v[QFW_LANES] = {0};
    find_reach(&p->g, p_g);
    if (has_state) {
        find_reach(&p->v, p_v);
        find_reach(&s->g, s_g);
        find_reach(&s->v, s_v);
    }
    for (size_t i = 0; i < QFW_LANES; i++) {
        const int32_t all = p_g[i] | p_v[i] | s_g[i] | s_v[i];
        const int32_t small = (all < 1 << 29) & ((p_g[i] + p_v[i]) >> p->frac < 126);
        const int32_t alone = ((p_v[i] | s_v[i]) < 1 << 29) & (p_v[i] >> p->frac < 126);
        quick[i] = small * ALL_QUICK | alone * STATE_QUICK;
    }
}

/* Whether one of a spread's numbers is no byte. */
QFW_ALWAYS_INLINE vec no_bytes(const spread *x)
{
    const vec mid = VEC(set1_epi16)(128);
    return VEC_SI(or)(VEC(add_epi16)(x->half[0], mid), VEC(add_epi16)(x->half[1], mid));
}

/* Quick rows of whole vectors, from a multiple of 32 on, whose words are drawn: they are moved one
 * after the other, and nothing is called or asked between them. */
typedef struct {
    int8_t *m, *v; /* v NULL: no state, and nothing of it is there */
    const int8_t *g;
    size_t n, row, count;              /* rows row .. row + count - 1 */
    const uint32_t *a, *b, *a_v, *b_v; /* pairs of draws, those of the first of them on */
    factors p_g, p_v, s_g, s_v;
    motion p, s; /* all but their factors */
    uint32_t *out;
} quick_rows;

QFW_ALWAYS_INLINE void move_quick(const quick_rows *of, const kind k)
{
    motion p = of->p, s = k.state ? of->s : p;
    const size_t n = of->n;
    const uint32_t *a = of->a, *b = of->b, *a_v = of->a_v, *b_v = of->b_v;
    for (size_t r = of->row; r < of->row + of->count; r++) {
        vec lost = VEC(set1_epi32)(0), beyond = lost;
        p.g = factor_at(&of->p_g, r);
        if (k.state) {
            p.v = factor_at(&of->p_v, r);
            s.g = factor_at(&of->s_g, r);
            s.v = factor_at(&of->s_v, r);
        }
        for (size_t at = r * n; at < r * n + n; at += WIDE, a += WIDE / 32, b += WIDE / 32) {
            const vec g = load(of->g + at), m = load(of->m + at);
            const vec v = k.state ? load(of->v + at) : g;
            const spread of_g = spread_of(g), of_v = spread_of(v);
            const spread steps = steps_of(&of_g, &of_v, words_of(a, b), &p, k);
            const vec by = narrow(&steps), to = VEC(subs_epi8)(m, by);
            lost = VEC_SI(or)(lost, VEC_SI(xor)(to, VEC(sub_epi8)(m, by)));
            VEC_SI(storeu)((void *)(of->m + at), held(to, p.q, k));
            if (k.state) {
                const spread moved = steps_of(&of_g, &of_v, words_of(a_v, b_v), &s, k);
                beyond = VEC_SI(or)(beyond, no_bytes(&moved));
                VEC_SI(storeu)((void *)(of->v + at), held(narrow(&moved), s.q, k));
                a_v += WIDE / 32;
                b_v += WIDE / 32;
            }
        }
        const vec upper = VEC_SI(and)(beyond, VEC(set1_epi16)((int16_t)-256));
        of->out[r] = (is_zero(lost) ? 0u : 1u) | (k.state && !is_zero(upper) ? 2u : 0u);
    }
}

/* Functions of their own, so that all they need stays in registers. */
QFW_NOINLINE static void move_quick_alone(const quick_rows *of)
{
    const kind alone = {true, false, false};
    move_quick(of, alone);
}

QFW_NOINLINE static void move_quick_both(const quick_rows *of)
{
    const kind both = {true, true, false};
    move_quick(of, both);
}

/* How many rows from k on are quick; of what moves by its state alone the gradient's factor
 * becomes 0. */
static size_t quick_from(size_t k, const int8_t *g, const qfw_rows_move *rows, const int32_t *quick,
                         factors *p_g, factors *s_g)
{
    size_t end = k;
    for (; end < rows->count && quick[end] != 0; end++) {
        if ((quick[end] & ALL_QUICK) == 0) {
            if (!are_zero(g + end * rows->n, rows->n)) {
                break;
            }
            p_g->mu[end] = s_g->mu[end] = 0;
        }
    }
    return end - k;
}

/* How many of `count` rows of n elements from `first` on, at least one, have their words drawn. */
static size_t draw_rows(drawn *d, uint64_t first, size_t n, size_t count)
{
    const uint64_t number = first >> 5;
    if (number < d->from || number + (n - WIDE) / 32 >= d->end) {
        renew_words(d, number);
    }
    const size_t most = (size_t)(d->end - number - 1 + WIDE / 32) * 32 / n;
    return count < most ? count : most;
}

/* `count` quick rows from row k on. */
static void move_drawn(quick_rows *of, size_t k, size_t count, const qfw_rows_move *rows,
                       drawn *of_p, drawn *of_s)
{
    const size_t n = rows->n;
    for (const size_t end = k + count; k < end; k += of->count) {
        const uint64_t first = rows->first + k * n;
        of->count = draw_rows(of_p, first, n, end - k);
        if (of->v != NULL) {
            of->count = draw_rows(of_s, first, n, of->count);
            of->a_v = of_s->a + (first / 32 - of_s->from);
            of->b_v = of_s->b + (first / 32 - of_s->from);
        }
        of->a = of_p->a + (first / 32 - of_p->from);
        of->b = of_p->b + (first / 32 - of_p->from);
        of->row = k;
        if (of->v != NULL) {
            move_quick_both(of);
        } else {
            move_quick_alone(of);
        }
    }
}

enum { FEW = 4 }; /* vectors of a row that is done before one could look whether it moves */

static inline motion motion_of(const qfw_moves *m)
{
    const vec zero = VEC(set1_epi32)(0);
    const motion t = {{zero, zero},
                      {zero, zero},
                      VEC(set1_epi32)(32 - m->frac),
                      VEC(set1_epi32)(m->frac),
                      VEC(set1_epi8)((int8_t)m->hi)};
    return t;
}

static inline bool are_all_quick(const int32_t *quick, size_t count)
{
    int32_t all = ALL_QUICK;
    for (size_t i = 0; i < QFW_LANES; i++) {
        all &= quick[i] | (i < count ? 0 : ALL_QUICK);
    }
    return all != 0;
}

/* Rows of any kind; `whole`: what is quick can be moved as such. */
QFW_ALWAYS_INLINE void update_any(quick_rows *of, const qfw_rows_move *rows, const int32_t *quick,
                                  bool whole, drawn *of_p, drawn *of_s, const bool has_state)
{
    const qfw_moves *p = rows->move, *s = rows->state;
    const size_t n = rows->n;
    uint32_t *out = of->out;
    const bool fits = are_plain(p) && (!has_state || are_plain(s));
    const bool short_range = p->hi != 127 || (has_state && s->hi != 127);
    const vec zero = VEC(set1_epi32)(0);
    const factor none = {zero, zero};
    const kind small = {true, has_state, false}, large = {true, has_state, true};
    const kind still = {false, true, false};
    task t = {of->p, has_state ? of->s : of->p, {zero, zero, zero}, {zero, zero, zero}};
    for (size_t k = 0; k < rows->count; k++) {
        const size_t at = k * n;
        int8_t *m_k = of->m + at, *v_k = has_state ? of->v + at : NULL;
        const int8_t *g_k = of->g + at;
        const size_t run = whole ? quick_from(k, of->g, rows, quick, &of->p_g, &of->s_g) : 0;
        if (run > 0) {
            move_drawn(of, k, run, rows, of_p, of_s);
            k += run - 1;
            continue;
        }
        if ((quick[k] & ALL_QUICK) != 0) { /* a block finds that it is of zeros */
            t.out.lost = t.state_out.most = t.state_out.least = zero;
            t.p.g = factor_at(&of->p_g, k);
            if (has_state) {
                t.p.v = factor_at(&of->p_v, k);
                t.s.g = factor_at(&of->s_g, k);
                t.s.v = factor_at(&of->s_v, k);
            }
            if (has_state && are_zero(g_k, n)) {
                move_row(m_k, v_k, g_k, n, rows->first + at, of_p, of_s, &t, still);
            } else {
                move_row(m_k, v_k, g_k, n, rows->first + at, of_p, of_s, &t, small);
            }
            out[k] = is_zero(t.out.lost) ? 0 : 1;
            out[k] |= has_state && is_outside(&t.state_out, s->hi) ? 2u : 0u;
            continue;
        }
        /* Of what is 0 throughout the scale may be anything. */
        const bool moved = !are_zero(g_k, n), moving = has_state && !are_zero(v_k, n);
        if (!fits || (moved && !is_plain(&p->g, k)) || (moving && !is_plain(&p->v, k)) ||
            (moved && has_state && !is_plain(&s->g, k)) || (moving && !is_plain(&s->v, k))) {
            out[k] = qfw_update_row(m_k, v_k, g_k, rows, k);
            continue;
        }
        out[k] = 0;
        if (!moving && !moved && !short_range) {
            hold(m_k, n);
            continue;
        }
        t.out.lost = t.out.most = t.out.least = zero;
        t.state_out = t.out;
        t.p.g = moved ? factor_at(&of->p_g, k) : none;
        t.p.v = moving ? factor_at(&of->p_v, k) : none;
        t.s.g = moved && has_state ? factor_at(&of->s_g, k) : none;
        t.s.v = moving ? factor_at(&of->s_v, k) : none;
        const int32_t far = (moved ? reach(&p->g, k) : 0) + (moving ? reach(&p->v, k) : 0);
        const int32_t state_far =
            (moved && has_state ? reach(&s->g, k) : 0) | (moving ? reach(&s->v, k) : 0);
        if (short_range || far >> p->frac >= 126 || state_far >= 1 << 29) {
            move_row(m_k, v_k, g_k, n, rows->first + at, of_p, of_s, &t, large);
        } else if (moved) {
            move_row(m_k, v_k, g_k, n, rows->first + at, of_p, of_s, &t, small);
        } else if (has_state) {
            move_row(m_k, v_k, g_k, n, rows->first + at, of_p, of_s, &t, still);
        }
        out[k] |= is_outside(&t.out, p->hi) ? 1u : 0u;
        out[k] |= has_state && is_outside(&t.state_out, s->hi) ? 2u : 0u;
    }
}

QFW_NOINLINE static void update_alone(quick_rows *of, const qfw_rows_move *rows,
                                      const int32_t *quick, bool whole, drawn *of_p, drawn *of_s)
{
    update_any(of, rows, quick, whole, of_p, of_s, false);
}

QFW_NOINLINE static void update_both(quick_rows *of, const qfw_rows_move *rows,
                                     const int32_t *quick, bool whole, drawn *of_p, drawn *of_s)
{
    update_any(of, rows, quick, whole, of_p, of_s, true);
}

/* All rows, with a state or without: most often all are quick. */
QFW_ALWAYS_INLINE void update_rows(int8_t *m, int8_t *v, const int8_t *g, const qfw_rows_move *rows,
                                   uint32_t *out, const bool has_state)
{
    const qfw_moves *p = rows->move, *s = rows->state;
    const size_t n = rows->n;
    quick_rows of;
    of.m = m;
    of.v = v;
    of.g = g;
    of.n = n;
    of.out = out;
    of.p = motion_of(p);
    of.p_g = factors_of(&p->g);
    drawn of_p, of_s;
    begin_words(&of_p, rows->key, rows->first, rows->count * n);
    if (has_state) {
        of.s = motion_of(s);
        of.p_v = factors_of(&p->v);
        of.s_g = factors_of(&s->g);
        of.s_v = factors_of(&s->v);
        begin_words(&of_s, rows->state_key, rows->first, rows->count * n);
    }
    const bool fits = are_plain(p) && (!has_state || are_plain(s));
    const bool whole = n > 0 && n <= FEW * WIDE && n % WIDE == 0 && rows->first % 32 == 0;
    int32_t quick[QFW_LANES] = {0};
    if (fits && p->hi == 127 && (!has_state || s->hi == 127)) {
        find_quick(p, s, has_state, quick);
        if (whole && are_all_quick(quick, rows->count)) {
            move_drawn(&of, 0, rows->count, rows, &of_p, &of_s);
            return;
        }
    }
    if (has_state) {
        update_both(&of, rows, quick, whole, &of_p, &of_s);
    } else {
        update_alone(&of, rows, quick, whole, &of_p, &of_s);
    }
}

#endif
