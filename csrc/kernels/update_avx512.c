/* The int8 update, 64 elements at a time. */
#include "kernels/words_avx512.h"

typedef __m512i vec;
#define VEC(op) _mm512_##op
#define VEC_SI(op) _mm512_##op##_si512
enum { WIDE = 64 };

QFW_ALWAYS_INLINE bool is_zero(vec x)
{
    return _mm512_test_epi32_mask(x, x) == 0;
}

QFW_ALWAYS_INLINE __mmask64 places(size_t from, size_t count)
{
    return (UINT64_MAX >> (WIDE - count)) << from;
}

/* Masked out, memory before p and after its elements is not touched. */
QFW_ALWAYS_INLINE vec load_part(const int8_t *p, size_t from, size_t count)
{
    return _mm512_maskz_loadu_epi8(places(from, count), (const void *)((uintptr_t)p - from));
}

QFW_ALWAYS_INLINE void store_part(int8_t *p, size_t from, size_t count, vec x)
{
    _mm512_mask_storeu_epi8((void *)((uintptr_t)p - from), places(from, count), x);
}

enum { BLOCKS = 16 };

static inline void draw_blocks(const qfw_key *key, uint64_t number, uint32_t *a, uint32_t *b)
{
    const sixteen p = draw_sixteen(key, number);
    _mm512_storeu_si512(a, p.a);
    _mm512_storeu_si512(b, p.b);
}

/* Words of the first quarter of a vector, and the step to the next one's. */
typedef struct {
    vec u, step;
} words;

QFW_ALWAYS_INLINE vec of_two(const uint32_t *x)
{
    return _mm512_mask_set1_epi32(_mm512_set1_epi32((int32_t)x[0]), 0xFF00, (int32_t)x[1]);
}

/* Of the two blocks whose pairs of draws stand at a and b. */
QFW_ALWAYS_INLINE words words_of(const uint32_t *a, const uint32_t *b)
{
    const vec index = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 0, 1, 2, 3, 16, 17, 18, 19);
    const vec b_k = of_two(b);
    const words w = {_mm512_add_epi32(of_two(a), _mm512_mullo_epi32(b_k, index)),
                     _mm512_slli_epi32(b_k, 2)};
    return w;
}

#include "kernels/update_rows_simd.h"

void qfw_update_s8_avx512(int8_t *m, int8_t *v, const int8_t *g, const qfw_rows_move *rows,
                          uint32_t *out)
{
    if (v != NULL) {
        update_rows(m, v, g, rows, out, true);
    } else {
        update_rows(m, NULL, g, rows, out, false);
    }
}
