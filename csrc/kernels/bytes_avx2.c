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
