/* Codes in int8, sixteen at a time. */
#include "kernels/words_avx2.h"

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

/* Elements up to the next multiple of 32 in the tensor, as far as there are any. */
static size_t to_block(uint64_t first, size_t n)
{
    const size_t gap = (size_t)((32 - (first & 31)) & 31);
    return gap < n ? gap : n;
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

/* 32 numbers to codes, stored. `kept` counts in 16-bit lanes, downwards, those in range: the
 * numbers are below 2^18, and what the first packing saturates the clamp changes too. */
QFW_ALWAYS_INLINE void put_32(const __m256i v[4], __m256i q, __m256i *kept, int8_t *codes)
{
    const __m256i least = _mm256_sub_epi16(_mm256_setzero_si256(), q);
    const __m256i w0 = _mm256_packs_epi32(v[0], v[1]), w1 = _mm256_packs_epi32(v[2], v[3]);
    const __m256i c0 = _mm256_max_epi16(_mm256_min_epi16(w0, q), least);
    const __m256i c1 = _mm256_max_epi16(_mm256_min_epi16(w1, q), least);
    *kept = _mm256_add_epi16(
        *kept, _mm256_add_epi16(_mm256_cmpeq_epi16(c0, w0), _mm256_cmpeq_epi16(c1, w1)));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(c0, c1), order);
    _mm256_storeu_si256((__m256i *)(void *)codes, bytes);
}

static uint32_t total(__m256i lanes)
{
    int16_t x[16];
    int32_t sum = 0;
    _mm256_storeu_si256((__m256i *)(void *)x, lanes);
    for (int i = 0; i < 16; i++) {
        sum -= x[i];
    }
    return (uint32_t)sum;
}

/* Blocks of 32 whole elements, `first` a multiple of 32; n at most 2^18, so that no lane of `kept`
 * overflows. */
static uint32_t rescale_blocks(const int32_t *a, size_t n, const scaling *s, const qfw_key *key,
                               uint64_t first, int8_t *codes)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i zero = _mm256_setzero_si256();
    __m256i kept = zero;
    size_t nothing = 0;
    pairs drawn;
    draw_pairs(key, first >> 5, &drawn);
    for (size_t i = 0; i < n; i += 32) {
        const __m256i x[4] = {load(a + i), load(a + i + 8), load(a + i + 16), load(a + i + 24)};
        const __m256i any =
            _mm256_or_si256(_mm256_or_si256(x[0], x[1]), _mm256_or_si256(x[2], x[3]));
        if (_mm256_testz_si256(any, any)) { /* floor(0 + u) is 0 */
            _mm256_storeu_si256((__m256i *)(void *)(codes + i), zero);
            nothing += 32;
            continue;
        }
        const block b = block_of(key, first + i, index, &drawn);
        const __m256i eight = _mm256_slli_epi32(b.step, 3);
        const __m256i u1 = _mm256_add_epi32(b.first, eight), u2 = _mm256_add_epi32(u1, eight);
        const __m256i v[4] = {rescaled(x[0], b.first, s), rescaled(x[1], u1, s),
                              rescaled(x[2], u2, s),
                              rescaled(x[3], _mm256_add_epi32(u2, eight), s)};
        put_32(v, s->q, &kept, codes + i);
    }
    return (uint32_t)(n - nothing) - total(kept);
}

/* Less than a block: the elements before and after it are zeros, which count as kept. */
static uint32_t part_of_block(const int32_t *a, size_t n, const scaling *s, const qfw_key *key,
                              uint64_t first, int8_t *codes)
{
    int32_t x[32] = {0};
    int8_t y[32];
    const size_t from = (size_t)(first & 31u);
    memcpy(x + from, a, n * sizeof *x);
    const uint32_t saturated = rescale_blocks(x, 32, s, key, first - from, y);
    memcpy(codes, y + from, n);
    return saturated;
}

/* A tile at a time, for roundings other than stochastic. */
static uint32_t rescale_tiles(const int32_t *a, size_t n, const qfw_ratio *ratio,
                              const qfw_code_rule *rule, int8_t *codes)
{
    uint32_t saturated = 0;
    int32_t m[QFW_TILE];
    for (size_t i = 0; i < n; i += QFW_TILE) {
        const size_t count = n - i < QFW_TILE ? n - i : QFW_TILE;
        saturated += qfw_rescale_s32_avx2(a + i, NULL, count, ratio, rule, m);
        for (size_t k = 0; k < count; k++) {
            codes[i + k] = (int8_t)m[k];
        }
    }
    return saturated;
}

enum { MOST = 1 << 18 };

uint32_t qfw_rescale_s8_avx2(const int32_t *a, size_t n, const qfw_ratio *ratio,
                             const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                             int8_t *codes)
{
    if (rule->rounding != QFW_STOCHASTIC) {
        return rescale_tiles(a, n, ratio, rule, codes);
    }
    const scaling s = {_mm256_set1_epi32((int32_t)ratio->mult),
                       _mm256_set1_epi32((int32_t)ratio->limit),
                       _mm256_set1_epi32(-(int32_t)ratio->limit),
                       _mm256_set1_epi16((int16_t)rule->qmax),
                       _mm_cvtsi32_si128(ratio->up),
                       _mm_cvtsi32_si128(ratio->down),
                       _mm_cvtsi32_si128(32 - ratio->down)};
    size_t i = to_block(first, n);
    uint32_t saturated = 0;
    if (i > 0) {
        saturated = part_of_block(a, i, &s, key, first, codes);
    }
    while (n - i >= 32) {
        const size_t left = (n - i) & ~(size_t)31, count = left < MOST ? left : MOST;
        saturated += rescale_blocks(a + i, count, &s, key, first + i, codes + i);
        i += count;
    }
    return i < n ? saturated + part_of_block(a + i, n - i, &s, key, first + i, codes + i)
                 : saturated;
}

/* ---- the update ---- */

/* A term as pairs: code * mu = code * (mu - mu / 2) + code * (mu / 2), one vpmaddwd; mu < 2^16 - 1,
 * so that both halves are int16. */
typedef struct {
    __m256i mu, right, left, limit;
} factor;

typedef struct {
    factor g, v;
    __m256i draw, frac, q;
    const qfw_key *key;
} motion;

static factor factor_of(const qfw_coef *c)
{
    const int32_t half = c->mu / 2;
    const factor f = {_mm256_set1_epi32(half << 16 | (c->mu - half)), _mm256_set1_epi32(c->right),
                      _mm256_set1_epi32(c->left), _mm256_set1_epi32(c->limit)};
    return f;
}

static motion motion_of(const qfw_move *m, const qfw_key *key)
{
    const motion t = {factor_of(&m->g),
                      factor_of(&m->v),
                      _mm256_set1_epi32(32 - m->frac),
                      _mm256_set1_epi32(m->frac),
                      _mm256_set1_epi16((int16_t)m->hi),
                      key};
    return t;
}

QFW_ALWAYS_INLINE __m256i term(__m256i twins, const factor *f, const bool clamps)
{
    __m256i v = _mm256_srav_epi32(_mm256_madd_epi16(twins, f->mu), f->right);
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

/* Where a value left its codes. */
typedef struct {
    __m256i param, state;
} outside;

/* Sixteen elements with their words, lo and hi. Unpacking pairs a code with itself and takes
 * elements 0-3, 8-11 and 4-7, 12-15; packing puts them back. */
QFW_ALWAYS_INLINE void move_16(int8_t *m, int8_t *v, const int8_t *g, const __m256i u[2],
                               const __m256i u_v[2], const motion *p, const motion *s,
                               const bool has_state, const bool clamps, outside *out)
{
    const __m256i g16 = load_codes(g);
    const __m256i g0 = _mm256_unpacklo_epi16(g16, g16), g1 = _mm256_unpackhi_epi16(g16, g16);
    __m256i y0 = term(g0, &p->g, clamps), y1 = term(g1, &p->g, clamps);
    if (has_state) {
        const __m256i v16 = load_codes(v);
        const __m256i v0 = _mm256_unpacklo_epi16(v16, v16), v1 = _mm256_unpackhi_epi16(v16, v16);
        y0 = _mm256_add_epi32(y0, term(v0, &p->v, clamps));
        y1 = _mm256_add_epi32(y1, term(v1, &p->v, clamps));
        const __m256i z0 = _mm256_add_epi32(term(g0, &s->g, clamps), term(v0, &s->v, clamps));
        const __m256i z1 = _mm256_add_epi32(term(g1, &s->g, clamps), term(v1, &s->v, clamps));
        put_held(_mm256_packs_epi32(rounded(z0, u_v[0], s), rounded(z1, u_v[1], s)), s->q,
                 &out->state, v);
    }
    const __m256i n = _mm256_packs_epi32(rounded(y0, u[0], p), rounded(y1, u[1], p));
    put_held(_mm256_subs_epi16(load_codes(m), n), p->q, &out->param, m);
}

/* Words of the lower sixteen elements of a block in move_16's order; returns what leads to the
 * upper ones. */
QFW_ALWAYS_INLINE __m256i words_of(const qfw_key *key, uint64_t at, pairs *p, __m256i u[2])
{
    const block b = block_of(key, at, _mm256_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11), p);
    u[0] = b.first;
    u[1] = _mm256_add_epi32(b.first, _mm256_slli_epi32(b.step, 2));
    return _mm256_slli_epi32(b.step, 4);
}

/* A multiple of sixteen elements from a multiple of sixteen on. */
QFW_ALWAYS_INLINE void move_all(int8_t *m, int8_t *v, const int8_t *g, size_t n, uint64_t first,
                                const motion *p, const motion *s, const bool has_state,
                                const bool clamps, outside *out)
{
    __m256i u[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, u_v[2] = {u[0], u[0]};
    __m256i next = u[0], next_v = u[0];
    uint64_t drawn = UINT64_MAX;
    pairs of_param, of_state;
    if (n > 0) {
        draw_pairs(p->key, first >> 5, &of_param);
    }
    if (n > 0 && has_state) {
        draw_pairs(s->key, first >> 5, &of_state);
    }
    for (size_t i = 0; i < n; i += 16) {
        const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(g + i));
        if (!has_state && _mm_testz_si128(codes, codes)) {
            continue; /* floor(0 + u) is 0 */
        }
        if ((first + i) >> 5 != drawn) {
            drawn = (first + i) >> 5;
            next = words_of(p->key, first + i, &of_param, u);
            if (has_state) {
                next_v = words_of(s->key, first + i, &of_state, u_v);
            }
        }
        const bool upper = ((first + i) & 16) != 0;
        const __m256i zero = _mm256_setzero_si256(), on = upper ? next : zero;
        const __m256i on_v = upper ? next_v : zero;
        const __m256i w[2] = {_mm256_add_epi32(u[0], on), _mm256_add_epi32(u[1], on)};
        const __m256i w_v[2] = {_mm256_add_epi32(u_v[0], on_v), _mm256_add_epi32(u_v[1], on_v)};
        move_16(m + i, has_state ? v + i : NULL, g + i, w, w_v, p, s, has_state, clamps, out);
    }
}

/* Less than sixteen: the elements before and after them are zeros, which stay. */
static void move_part(int8_t *m, int8_t *v, const int8_t *g, size_t n, uint64_t at, const motion *p,
                      const motion *s, outside *out)
{
    int8_t part_m[16] = {0}, part_v[16] = {0}, part_g[16] = {0};
    const size_t from = (size_t)(at & 15u);
    memcpy(part_m + from, m, n);
    memcpy(part_g + from, g, n);
    if (v != NULL) {
        memcpy(part_v + from, v, n);
        move_all(part_m, part_v, part_g, 16, at - from, p, s, true, true, out);
        memcpy(v, part_v + from, n);
    } else {
        move_all(part_m, NULL, part_g, 16, at - from, p, s, false, true, out);
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

uint32_t qfw_update_s8_avx2(int8_t *m, int8_t *v, const int8_t *g, size_t n, const qfw_move *move,
                            const qfw_move *state, const qfw_key *key, const qfw_key *state_key,
                            uint64_t first)
{
    const bool has_state = v != NULL;
    if (!is_plain(move, has_state) || (has_state && !is_plain(state, true))) {
        return qfw_update_s8_scalar(m, v, g, n, move, state, key, state_key, first);
    }
    const motion p = motion_of(move, key), s = motion_of(state, state_key);
    outside out = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const size_t gap = (size_t)((16 - (first & 15)) & 15), head = gap < n ? gap : n;
    const size_t whole = (n - head) & ~(size_t)15, end = head + whole;
    const uint64_t at = first + head;
    if (head > 0) {
        move_part(m, v, g, head, first, &p, &s, &out);
    }
    if (!has_state) {
        move_all(m + head, NULL, g + head, whole, at, &p, &s, false, true, &out);
    } else if (may_clamp(move) || may_clamp(state)) {
        move_all(m + head, v + head, g + head, whole, at, &p, &s, true, true, &out);
    } else {
        move_all(m + head, v + head, g + head, whole, at, &p, &s, true, false, &out);
    }
    if (end < n) {
        move_part(m + end, has_state ? v + end : NULL, g + end, n - end, first + end, &p, &s, &out);
    }
    return (_mm256_testz_si256(out.param, out.param) ? 0u : 1u) |
           (_mm256_testz_si256(out.state, out.state) ? 0u : 2u);
}
