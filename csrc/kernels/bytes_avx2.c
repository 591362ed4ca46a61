/* Codes in int8, sixteen at a time. */
#include "base/random.h"
#include "kernels/avx2.h"

QFW_ALWAYS_INLINE __m256i load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

uint32_t qfw_absmax_s32_avx2(const int32_t *a, size_t n)
{
    __m256i m0 = _mm256_setzero_si256(), m1 = m0;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        m0 = _mm256_max_epu32(m0, _mm256_abs_epi32(load(a + i)));
        m1 = _mm256_max_epu32(m1, _mm256_abs_epi32(load(a + i + 8)));
    }
    uint32_t lanes[8], most = qfw_absmax_s32_scalar(a + i, n - i);
    _mm256_storeu_si256((__m256i *)(void *)lanes, _mm256_max_epu32(m0, m1));
    for (int k = 0; k < 8; k++) {
        most = lanes[k] > most ? lanes[k] : most;
    }
    return most;
}

/* ---- the words of sixteen neighbours ---- */

/* The pair of the block of 32 that element `at` lies in. */
typedef struct {
    __m256i a, b;
} block;

QFW_ALWAYS_INLINE block block_of(const qfw_key *key, uint64_t at)
{
    const qfw_draw_pair d = qfw_block_draw(key, at);
    const block b = {_mm256_set1_epi32((int32_t)d.a), _mm256_set1_epi32((int32_t)d.b)};
    return b;
}

/* u of the elements of the block whose places in it are `index`. */
QFW_ALWAYS_INLINE __m256i words(const block *b, __m256i index)
{
    return _mm256_add_epi32(b->a, _mm256_mullo_epi32(b->b, index));
}

/* ---- accumulators to codes ---- */

typedef struct {
    __m256i mult, limit, least, q;
    __m128i up, down, draw;
} scaling;

/* qfw_rescale, stochastic: the signed product's high word is its floor. */
QFW_ALWAYS_INLINE __m256i rescaled(__m256i a, __m256i u, const scaling *s)
{
    const __m256i held = _mm256_max_epi32(_mm256_min_epi32(a, s->limit), s->least);
    const __m256i lifted = _mm256_sll_epi32(held, s->up);
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epi32(lifted, s->mult), 32);
    const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(lifted, 32), s->mult);
    const __m256i floor_hi = _mm256_blend_epi32(even, odd, 0xAA);
    return _mm256_sra_epi32(_mm256_add_epi32(floor_hi, _mm256_srl_epi32(u, s->draw)), s->down);
}

/* Two times eight to sixteen codes; the count of those that the clamp changed. */
QFW_ALWAYS_INLINE uint32_t put_codes(__m256i lo, __m256i hi, const scaling *s, int8_t *codes)
{
    const __m256i least = _mm256_sub_epi32(_mm256_setzero_si256(), s->q);
    const __m256i c0 = _mm256_max_epi32(_mm256_min_epi32(lo, s->q), least);
    const __m256i c1 = _mm256_max_epi32(_mm256_min_epi32(hi, s->q), least);
    const __m256i same0 = _mm256_cmpeq_epi32(c0, lo), same1 = _mm256_cmpeq_epi32(c1, hi);
    const __m256i wide = _mm256_permute4x64_epi64(_mm256_packs_epi32(c0, c1), 0xD8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128((__m128i *)(void *)codes, bytes);
    const unsigned kept = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(same0)) |
                          (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(same1)) << 8;
    return 16u - (uint32_t)__builtin_popcount(kept);
}

/* Elements up to the next multiple of 16 in the tensor, as far as there are any. */
static size_t to_sixteen(uint64_t first, size_t n)
{
    const size_t gap = (size_t)(-first & 15u);
    return gap < n ? gap : n;
}

uint32_t qfw_rescale_s8_avx2(const int32_t *a, size_t n, const qfw_ratio *ratio,
                             const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                             int8_t *codes)
{
    if (rule->rounding != QFW_STOCHASTIC || rule->zp != 0) {
        uint32_t saturated = 0;
        int32_t m[QFW_TILE];
        for (size_t i = 0; i < n; i += QFW_TILE) {
            const size_t count = n - i < QFW_TILE ? n - i : QFW_TILE;
            uint32_t u[QFW_TILE];
            if (rule->rounding == QFW_STOCHASTIC) {
                qfw_uniforms(key, first + i, count, u);
            }
            saturated += qfw_rescale_s32_avx2(a + i, u, count, ratio, rule, m);
            for (size_t k = 0; k < count; k++) {
                codes[i + k] = (int8_t)m[k];
            }
        }
        return saturated;
    }
    const scaling s = {_mm256_set1_epi32((int32_t)ratio->mult),
                       _mm256_set1_epi32((int32_t)ratio->limit),
                       _mm256_set1_epi32(-(int32_t)ratio->limit),
                       _mm256_set1_epi32(rule->qmax),
                       _mm_cvtsi32_si128(ratio->up),
                       _mm_cvtsi32_si128(ratio->down),
                       _mm_cvtsi32_si128(32 - ratio->down)};
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    size_t i = to_sixteen(first, n);
    uint32_t saturated = qfw_rescale_s8_scalar(a, i, ratio, rule, key, first, codes);
    block b = block_of(key, first + i);
    for (; n - i >= 16; i += 16) {
        if (((first + i) & 31) == 0) {
            b = block_of(key, first + i);
        }
        const __m256i any = _mm256_or_si256(load(a + i), load(a + i + 8));
        if (_mm256_testz_si256(any, any)) { /* floor(0 + u) is 0 */
            _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm_setzero_si128());
            continue;
        }
        const __m256i at = _mm256_add_epi32(index, _mm256_set1_epi32((int32_t)((first + i) & 31)));
        const __m256i u0 = words(&b, at),
                      u1 = words(&b, _mm256_add_epi32(at, _mm256_set1_epi32(8)));
        saturated += put_codes(rescaled(load(a + i), u0, &s), rescaled(load(a + i + 8), u1, &s), &s,
                               codes + i);
    }
    return saturated + qfw_rescale_s8_scalar(a + i, n - i, ratio, rule, key, first + i, codes + i);
}

/* ---- the update ---- */

/* A term as pairs: code * mu = code * (mu - mu / 2) + code * (mu / 2), one vpmaddwd; mu < 2^16 - 1,
 * so that both halves are int16. */
typedef struct {
    __m256i mu, right, left, limit;
} factor;

typedef struct {
    factor g, v;
    __m256i draw, frac;
} motion;

static factor factor_of(const qfw_coef *c)
{
    const int32_t half = c->mu / 2;
    const factor f = {_mm256_set1_epi32(half << 16 | (c->mu - half)), _mm256_set1_epi32(c->right),
                      _mm256_set1_epi32(c->left), _mm256_set1_epi32(c->limit)};
    return f;
}

static motion motion_of(const qfw_move *m)
{
    const motion t = {factor_of(&m->g), factor_of(&m->v), _mm256_set1_epi32(32 - m->frac),
                      _mm256_set1_epi32(m->frac)};
    return t;
}

QFW_ALWAYS_INLINE __m256i term(__m256i pairs, const factor *f, const bool clamps)
{
    __m256i v = _mm256_srav_epi32(_mm256_madd_epi16(pairs, f->mu), f->right);
    if (clamps) {
        const __m256i least = _mm256_sub_epi32(_mm256_setzero_si256(), f->limit);
        v = _mm256_max_epi32(_mm256_min_epi32(v, f->limit), least);
    }
    return _mm256_sllv_epi32(v, f->left);
}

/* (y + (u >> (32 - F))) >> F */
QFW_ALWAYS_INLINE __m256i rounded(__m256i y, __m256i u, const motion *t)
{
    return _mm256_srav_epi32(_mm256_add_epi32(y, _mm256_srlv_epi32(u, t->draw)), t->frac);
}

/* Sixteen 16-bit numbers to codes within +-q: stored; `out` collects what left -q - 1 .. q. */
QFW_ALWAYS_INLINE void put_held(__m256i x, __m256i q, __m256i *out, int8_t *codes)
{
    const __m256i least = _mm256_sub_epi16(_mm256_setzero_si256(), q);
    const __m256i above = _mm256_cmpgt_epi16(x, q);
    const __m256i below = _mm256_cmpgt_epi16(_mm256_sub_epi16(least, _mm256_set1_epi16(1)), x);
    *out = _mm256_or_si256(*out, _mm256_or_si256(above, below));
    const __m256i held = _mm256_max_epi16(_mm256_min_epi16(x, q), least);
    _mm_storeu_si128((__m128i *)(void *)codes, _mm_packs_epi16(_mm256_castsi256_si128(held),
                                                               _mm256_extracti128_si256(held, 1)));
}

QFW_ALWAYS_INLINE __m256i load_codes(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

typedef struct {
    motion param, state;
    __m256i q, state_q;
    const qfw_key *key, *state_key;
} update;

/* What a run of elements carries along: who left their codes, and the draws of the block. */
typedef struct {
    __m256i param, state;
    block words, state_words;
} run;

/* Sixteen elements; `at` is the first one's index, a multiple of 16. Unpacking pairs a code with
 * itself and takes elements 0-3, 8-11 and 4-7, 12-15; packing puts them back. */
QFW_ALWAYS_INLINE void move_16(int8_t *m, int8_t *v, const int8_t *g, uint64_t at, const update *p,
                               const bool has_state, const bool clamps, run *r)
{
    const __m256i half = _mm256_set1_epi32((int32_t)(at & 31));
    const __m256i lo = _mm256_add_epi32(half, _mm256_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11));
    const __m256i hi = _mm256_add_epi32(half, _mm256_setr_epi32(4, 5, 6, 7, 12, 13, 14, 15));
    const __m256i g16 = load_codes(g);
    const __m256i g0 = _mm256_unpacklo_epi16(g16, g16), g1 = _mm256_unpackhi_epi16(g16, g16);
    __m256i y0 = term(g0, &p->param.g, clamps), y1 = term(g1, &p->param.g, clamps);
    if (has_state) {
        const __m256i v16 = load_codes(v);
        const __m256i v0 = _mm256_unpacklo_epi16(v16, v16), v1 = _mm256_unpackhi_epi16(v16, v16);
        y0 = _mm256_add_epi32(y0, term(v0, &p->param.v, clamps));
        y1 = _mm256_add_epi32(y1, term(v1, &p->param.v, clamps));
        const __m256i z0 =
            _mm256_add_epi32(term(g0, &p->state.g, clamps), term(v0, &p->state.v, clamps));
        const __m256i z1 =
            _mm256_add_epi32(term(g1, &p->state.g, clamps), term(v1, &p->state.v, clamps));
        const __m256i n = _mm256_packs_epi32(rounded(z0, words(&r->state_words, lo), &p->state),
                                             rounded(z1, words(&r->state_words, hi), &p->state));
        put_held(n, p->state_q, &r->state, v);
    }
    const __m256i n = _mm256_packs_epi32(rounded(y0, words(&r->words, lo), &p->param),
                                         rounded(y1, words(&r->words, hi), &p->param));
    put_held(_mm256_subs_epi16(load_codes(m), n), p->q, &r->param, m);
}

QFW_ALWAYS_INLINE void draw_block(const update *p, uint64_t at, const bool has_state, run *r)
{
    r->words = block_of(p->key, at);
    if (has_state) {
        r->state_words = block_of(p->state_key, at);
    }
}

/* A part of sixteen elements: those before and after it are zeros, which stay. */
static void move_part(int8_t *m, int8_t *v, const int8_t *g, size_t n, uint64_t at, const update *p,
                      bool has_state, run *r)
{
    int8_t part_m[16] = {0}, part_v[16] = {0}, part_g[16] = {0};
    const size_t from = (size_t)(at & 15u);
    draw_block(p, at, has_state, r);
    memcpy(part_m + from, m, n);
    memcpy(part_g + from, g, n);
    if (has_state) {
        memcpy(part_v + from, v, n);
        move_16(part_m, part_v, part_g, at - from, p, true, true, r);
        memcpy(v, part_v + from, n);
    } else {
        move_16(part_m, part_v, part_g, at - from, p, false, true, r);
    }
    memcpy(m, part_m + from, n);
}

/* Whether the vectors do all that is asked for; mu = 2^16 - 1 has no two halves. */
static bool is_plain(const qfw_move *m, bool has_state)
{
    return m->rounding == QFW_STOCHASTIC && m->w.mu == 0 && m->g.mu < 0xFFFF &&
           (!has_state || m->v.mu < 0xFFFF) && m->hi == -m->lo && m->hi <= 127;
}

/* |code * mu| < 2^23: lifted by up to 5 bits it needs no clamp to 2^28. */
static bool may_clamp(const qfw_move *m)
{
    return m->g.left > 5 || m->v.left > 5;
}

QFW_ALWAYS_INLINE void move_all(int8_t *m, int8_t *v, const int8_t *g, size_t n, uint64_t first,
                                const update *p, const bool has_state, const bool clamps, run *r)
{
    uint64_t drawn = UINT64_MAX;
    for (size_t i = 0; i < n; i += 16) {
        const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(g + i));
        if (!has_state && _mm_testz_si128(codes, codes)) {
            continue; /* floor(0 + u) is 0 */
        }
        if ((first + i) >> 5 != drawn) {
            drawn = (first + i) >> 5;
            draw_block(p, first + i, has_state, r);
        }
        move_16(m + i, has_state ? v + i : NULL, g + i, first + i, p, has_state, clamps, r);
    }
}

uint32_t qfw_update_s8_avx2(int8_t *m, int8_t *v, const int8_t *g, size_t n, const qfw_move *move,
                            const qfw_move *state, const qfw_key *key, const qfw_key *state_key,
                            uint64_t first)
{
    const bool has_state = v != NULL;
    if (!is_plain(move, has_state) || (has_state && !is_plain(state, true))) {
        return qfw_update_s8_scalar(m, v, g, n, move, state, key, state_key, first);
    }
    const update p = {motion_of(move),
                      motion_of(state),
                      _mm256_set1_epi16((int16_t)move->hi),
                      _mm256_set1_epi16((int16_t)state->hi),
                      key,
                      state_key};
    const bool clamps = may_clamp(move) || (has_state && may_clamp(state));
    const __m256i none = _mm256_setzero_si256();
    run r = {none, none, {none, none}, {none, none}};
    const size_t head = to_sixteen(first, n), whole = (n - head) & ~(size_t)15;
    const size_t end = head + whole;
    if (head > 0) {
        move_part(m, v, g, head, first, &p, has_state, &r);
    }
    if (!has_state) {
        move_all(m + head, NULL, g + head, whole, first + head, &p, false, true, &r);
    } else if (clamps) {
        move_all(m + head, v + head, g + head, whole, first + head, &p, true, true, &r);
    } else {
        move_all(m + head, v + head, g + head, whole, first + head, &p, true, false, &r);
    }
    if (end < n) {
        int8_t *rest_v = has_state ? v + end : NULL;
        move_part(m + end, rest_v, g + end, n - end, first + end, &p, has_state, &r);
    }
    return (_mm256_testz_si256(r.param, r.param) ? 0u : 1u) |
           (_mm256_testz_si256(r.state, r.state) ? 0u : 2u);
}
