/* Outer products to codes in int8. outer_<isa>.c says in what vectors: BLOCKS and `look`, and `copy`.
 *
 * With one row in a step the absmax of e * x is |e| times that of x, and where x has the largest
 * code so has the gradient: it is x itself, or -x, but for a scale that was rounded up. Then a code
 * is +-x[i] unless its word is next to 0 or 2^32, and words need only be looked at. */
#ifndef QFW_KERNELS_OUTER_SIMD_H
#define QFW_KERNELS_OUTER_SIMD_H

/* Whether e * sigma / scale is 1 or -1 within 2^-21, its steps (docs/numerics.md section 6)
 * included: then e * x * sigma / scale is within 2^-14 of x, which is a code. */
static bool is_unit(const qfw_outer *o, int32_t e, float scale)
{
    const qfw_code_rule *r = &o->rule;
    const float p = o->sigma * (float)qfw_abs32(e), off = p < scale ? scale - p : p - scale;
    return off <= scale * 0x1p-22f && r->rounding == QFW_STOCHASTIC && r->zp == 0 &&
           r->qmin == -r->qmax && o->most <= (uint32_t)r->qmax && r->qmax <= 127;
}

/* ---- rows ---- */

enum { CHUNK = 256 };

/* The product of elements from .. from + n - 1, then its codes. */
static uint32_t by_chunks(const qfw_outer *o, size_t from, size_t n, int32_t e, float scale,
                          uint64_t first, int8_t *codes)
{
    const qfw_ratio ratio = qfw_ratio_of(o->sigma, scale, o->bits);
    int32_t a[CHUNK];
    uint32_t saturated = 0;
    for (size_t i = from; i < from + n; i += CHUNK) {
        const size_t count = from + n - i < CHUNK ? from + n - i : CHUNK;
        for (size_t k = 0; k < count; k++) {
            a[k] = e * o->x[i + k];
        }
        saturated += qfw_rescale_s8_avx2(a, count, &ratio, &o->rule, &o->key, first + i, codes + i);
    }
    return saturated;
}

/* By the definition those of blocks number .. number + BLOCKS - 1 that are not sure. */
static void encode_unsure(const qfw_outer *o, int32_t e, float scale, uint64_t first,
                          uint64_t number, uint32_t unsure, int8_t *codes)
{
    for (; unsure != 0; unsure &= unsure - 1) {
        const uint64_t at = (number + (uint64_t)__builtin_ctz(unsure)) * 32;
        const uint64_t from = at > first ? at - first : 0;
        if (at < first + o->n) {
            const uint64_t end = at + 32 - first < o->n ? at + 32 - first : o->n;
            (void)by_chunks(o, (size_t)from, (size_t)(end - from), e, scale, first, codes);
        }
    }
}

/* What looks at blocks from .. end - 1 found: of BLOCKS each, which are not sure. Rows share them: a
 * look is at many short rows. */
enum { LOOKS = 8 };

typedef struct {
    uint64_t from, end;
    uint32_t unsure[LOOKS];
} looked;

/* From block `number` on, as far as `last` if there is room. Some looks before any is used: one takes
 * long, but not many together. */
static void look_from(const qfw_outer *o, uint64_t number, uint64_t last, looked *l)
{
    size_t k = 0;
    l->from = l->end = number;
    for (; k < LOOKS && l->end <= last; k++, l->end += BLOCKS) {
        l->unsure[k] = look(&o->key, l->end);
    }
}

/* A copy, and again what is not sure. No code saturates: |x| <= qmax, and rounding stays within. */
static void encode_unit(const qfw_outer *o, int32_t e, float scale, uint64_t first, int8_t *codes,
                        looked *l)
{
    const uint64_t last = (first + o->n - 1) >> 5;
    copy(o->x, o->n, e < 0, codes);
    for (uint64_t number = first >> 5; number <= last;) {
        if (number < l->from || number >= l->end) {
            look_from(o, number, last, l);
        }
        const uint64_t k = (number - l->from) / BLOCKS, begin = l->from + k * BLOCKS;
        const uint32_t unsure = l->unsure[k] >> (number - begin) << (number - begin);
        if (unsure != 0) {
            encode_unsure(o, e, scale, first, begin, unsure, codes);
        }
        number = begin + BLOCKS;
    }
}

static inline uint32_t encode_rows(const qfw_outer *outer, const int32_t *e, const float *scale,
                                   size_t rows, uint64_t first, int8_t *codes)
{
    uint32_t saturated = 0;
    looked l = {0, 0, {0}};
    for (size_t k = 0; outer->n > 0 && k < rows; k++) {
        const size_t at = k * outer->n;
        if (e[k] == 0) {
            memset(codes + at, 0, outer->n);
        } else if (is_unit(outer, e[k], scale[k])) {
            encode_unit(outer, e[k], scale[k], first + at, codes + at, &l);
        } else {
            saturated += by_chunks(outer, 0, outer->n, e[k], scale[k], first + at, codes + at);
        }
    }
    return saturated;
}

#endif
