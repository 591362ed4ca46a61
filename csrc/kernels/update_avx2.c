/* The int8 update, 32 elements at a time. */
#include "kernels/words_avx2.h"

typedef __m256i vec;
#define VEC(op) _mm256_##op
#define VEC_SI(op) _mm256_##op##_si256
enum { WIDE = 32 };

QFW_ALWAYS_INLINE bool is_zero(vec x)
{
    return _mm256_testz_si256(x, x) != 0;
}

/* Sixteen is what a row of a multiple of sixteen leaves. */
static inline vec load_part(const int8_t *p, size_t from, size_t count)
{
    if (count == 16 && from % 16 == 0) {
        const __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
        return from == 0 ? _mm256_permute2x128_si256(x, x, 0x80)
                         : _mm256_permute2x128_si256(x, x, 8);
    }
    int8_t part[WIDE] = {0};
    memcpy(part + from, p, count);
    return _mm256_loadu_si256((const __m256i *)(const void *)part);
}

static inline void store_part(int8_t *p, size_t from, size_t count, vec x)
{
    if (count == 16 && from % 16 == 0) {
        const __m128i half = from == 0 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1);
        _mm_storeu_si128((__m128i *)(void *)p, half);
        return;
    }
    int8_t part[WIDE];
    _mm256_storeu_si256((__m256i *)(void *)part, x);
    memcpy(p, part + from, count);
}

enum { BLOCKS = 8 };

static inline void draw_blocks(const qfw_key *key, uint64_t number, uint32_t *a, uint32_t *b)
{
    pairs p;
    draw_pairs(key, number, &p);
    memcpy(a, p.a, sizeof p.a);
    memcpy(b, p.b, sizeof p.b);
}

/* Words of the first quarter of a block, and the step to the next one's. */
typedef struct {
    vec u, step;
} words;

QFW_ALWAYS_INLINE words words_of(const uint32_t *a, const uint32_t *b)
{
    const vec index = _mm256_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19);
    const vec b_k = _mm256_set1_epi32((int32_t)*b);
    const words w = {
        _mm256_add_epi32(_mm256_set1_epi32((int32_t)*a), _mm256_mullo_epi32(b_k, index)),
        _mm256_slli_epi32(b_k, 2)};
    return w;
}

#include "kernels/update_rows_simd.h"

void qfw_update_s8_avx2(int8_t *m, int8_t *v, const int8_t *g, const qfw_rows_move *rows,
                        uint32_t *out)
{
    if (v != NULL) {
        update_rows(m, v, g, rows, out, true);
    } else {
        update_rows(m, NULL, g, rows, out, false);
    }
}
