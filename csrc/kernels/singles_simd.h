/* Elements with scales of their own that move, in vectors of any width. singles_<isa>.c says which: `vec`, VEC(op),
 * VEC_SI(op) and `as_int`, `as_float` for casts; ACROSS elements in one; load_8, load_16, store_8 and store_16 for
 * codes of so many bits; load_part, store_part for elements i .. i + there - 1 of a tensor and load_part_ps for as
 * many scales, 1 beyond them; signs for the sign bits of a vector. */
#ifndef QFW_KERNELS_SINGLES_SIMD_H
#define QFW_KERNELS_SINGLES_SIMD_H

#include "base/random.h"
#include "kernels/update_loops.h"

/* Elements i .. i + ACROSS - 1 of a tensor, `there` of them: codes, and scales. */
typedef struct {
    vec codes;
    vfloat scale;
} elements;

QFW_ALWAYS_INLINE elements load_singles(const qfw_single *x, size_t i, size_t there)
{
    elements e;
    if (there < ACROSS) {
        e.codes = load_part(x, i, there);
        e.scale = x->each ? load_part_ps(x->scale + i, there) : VEC(set1_ps)(x->scale[0]);
        return e;
    }
    e.codes = x->width == 8 ? load_8((const int8_t *)x->codes + i)
                            : load_16((const int16_t *)x->codes + i);
    e.scale = x->each ? VEC(loadu_ps)(x->scale + i) : VEC(set1_ps)(x->scale[0]);
    return e;
}

QFW_ALWAYS_INLINE void store_singles(const qfw_single *x, size_t i, size_t there, vec codes)
{
    if (there < ACROSS) {
        store_part(x, i, there, codes);
    } else if (x->width == 8) {
        store_8((int8_t *)x->codes + i, codes);
    } else {
        store_16((int16_t *)x->codes + i, codes);
    }
}

/* qfw_normal_f32 of numbers >= 0 or infinite, whose words are ordered as they are. */
QFW_ALWAYS_INLINE vec normal(vfloat v)
{
    const vec bits = VEC(min_epi32)(as_int(v), VEC(set1_epi32)(QFW_F32_MAX));
    const vec under = VEC(sub_epi32)(bits, VEC(set1_epi32)(QFW_F32_MIN_NORMAL));
    return VEC_SI(andnot)(VEC(srai_epi32)(under, 31), bits);
}

/* loop_coef_of and loop_term: c from / to in units of 2^-frac, times a code. */
QFW_ALWAYS_INLINE vec term_of(vec code, float c, vfloat from, vfloat to, int32_t frac)
{
    const vec zero = VEC(set1_epi32)(0), one = VEC(set1_epi32)(1);
    const vfloat top = as_float(normal(VEC(mul_ps)(VEC(set1_ps)(c), from)));
    const vec bits = normal(VEC(div_ps)(top, to));
    const vec shift = VEC(add_epi32)(VEC(srai_epi32)(bits, 23), VEC(set1_epi32)(frac + 8 - 150));
    const vec left = VEC(min_epi32)(VEC(max_epi32)(shift, zero), VEC(set1_epi32)(28));
    const vec back = VEC(sub_epi32)(zero, shift);
    const vec right = VEC(min_epi32)(VEC(max_epi32)(back, zero), VEC(set1_epi32)(31));
    const vec mant =
        VEC_SI(or)(VEC_SI(and)(bits, VEC(set1_epi32)(0x7FFFFF)), VEC(set1_epi32)(0x800000));
    const vec none = VEC(srai_epi32)(VEC(sub_epi32)(bits, one), 31);
    const vec mu = VEC_SI(andnot)(none, VEC(srai_epi32)(mant, 8));
    const vec limit = VEC(srlv_epi32)(VEC(set1_epi32)(1 << 28), left);
    const vec v = VEC(srav_epi32)(VEC(mullo_epi32)(code, mu), right);
    const vec held = VEC(max_epi32)(VEC(min_epi32)(v, limit), VEC(sub_epi32)(zero, limit));
    return VEC(sllv_epi32)(held, left);
}

/* How a tensor's codes are rounded and held. */
typedef struct {
    int32_t frac;
    vec draw, down, most, least;
} range;

QFW_ALWAYS_INLINE range range_of(const qfw_single *x)
{
    const int32_t q = (1 << (x->bits - 1)) - 1, frac = 28 - x->bits;
    const range r = {frac, VEC(set1_epi32)(32 - frac), VEC(set1_epi32)(frac), VEC(set1_epi32)(q),
                     VEC(set1_epi32)(-q)};
    return r;
}

/* (y + (u >> (32 - F))) >> F */
QFW_ALWAYS_INLINE vec rounded(vec y, vec u, const range *r)
{
    return VEC(srav_epi32)(VEC(add_epi32)(y, VEC(srlv_epi32)(u, r->draw)), r->down);
}

/* The codes that values become; flags where one was outside -q - 1 .. q. */
QFW_ALWAYS_INLINE vec held(vec v, const range *r, const qfw_single *x, size_t i, size_t there)
{
    const vec above = VEC(sub_epi32)(r->most, v);
    const vec below = VEC(add_epi32)(VEC(sub_epi32)(v, r->least), VEC(set1_epi32)(1));
    uint32_t out = signs(VEC_SI(or)(above, below));
    for (; out != 0; out &= out - 1) {
        const size_t k = (size_t)__builtin_ctz(out);
        if (k < there) {
            x->flags[x->each ? i + k : 0] = 1;
        }
    }
    return VEC(max_epi32)(VEC(min_epi32)(v, r->most), r->least);
}

/* Words of a block of 32 elements, from its element number `from` on. */
QFW_ALWAYS_INLINE vec words_of(qfw_draw_pair d, size_t from)
{
    int32_t first[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vec index =
        VEC(add_epi32)(VEC_SI(loadu)((const void *)first), VEC(set1_epi32)((int32_t)from));
    return VEC(add_epi32)(VEC(set1_epi32)((int32_t)d.a),
                          VEC(mullo_epi32)(VEC(set1_epi32)((int32_t)d.b), index));
}

QFW_ALWAYS_INLINE void move_singles(const qfw_singles *s, size_t n, const bool has_state)
{
    const range p = range_of(&s->m), q = has_state ? range_of(&s->v) : p;
    qfw_draw_pair d = {0, 0}, d_v = {0, 0};
    for (size_t i = 0; i < n; i += ACROSS) {
        const size_t there = n - i < ACROSS ? n - i : ACROSS;
        if (i % 32 == 0) {
            d = qfw_block_draw(s->key, i);
            d_v = has_state ? qfw_block_draw(s->state_key, i) : d;
        }
        const elements m = load_singles(&s->m, i, there), g = load_singles(&s->g, i, there);
        vec y = term_of(g.codes, s->step_g, g.scale, m.scale, p.frac);
        if (has_state) {
            const elements v = load_singles(&s->v, i, there);
            const vec y_v = VEC(add_epi32)(term_of(g.codes, s->state_g, g.scale, v.scale, q.frac),
                                           term_of(v.codes, s->state_v, v.scale, v.scale, q.frac));
            y = VEC(add_epi32)(y, term_of(v.codes, s->step_v, v.scale, m.scale, p.frac));
            const vec to = rounded(y_v, words_of(d_v, i % 32), &q);
            store_singles(&s->v, i, there, held(to, &q, &s->v, i, there));
        }
        const vec to = VEC(sub_epi32)(m.codes, rounded(y, words_of(d, i % 32), &p));
        store_singles(&s->m, i, there, held(to, &p, &s->m, i, there));
    }
}

static inline void update_singles(const qfw_singles *s, size_t n)
{
    const bool has_state = s->v.codes != NULL;
    if (s->rounding != QFW_STOCHASTIC || (has_state && s->state_rounding != QFW_STOCHASTIC)) {
        qfw_update_singles_scalar(s, n);
    } else if (has_state) {
        move_singles(s, n, true);
    } else {
        move_singles(s, n, false);
    }
}

#endif
