/* Outer products to codes in int8. outer_<isa>.c says in what vectors: BLOCKS and `look`, `copy`, and `copies`
 * for rows of n codes, e[k] < 0, 0 or above saying which: -x, 0 or x.
 *
 * With one row in a step the absmax of e * x is |e| times that of x, and where x has the largest
 * code so has the gradient: it is x itself, or -x, but for a scale that was rounded up. Then a code
 * is +-x[i] unless its word is next to 0 or 2^32, and words need only be looked at. */
#ifndef QFW_KERNELS_OUTER_SIMD_H
#define QFW_KERNELS_OUTER_SIMD_H

/* Whether codes can be x itself. */
static bool has_units(const qfw_outer *o)
{
    const qfw_code_rule *r = &o->rule;
    return r->rounding == QFW_STOCHASTIC && r->zp == 0 && r->qmin == -r->qmax &&
           o->most <= (uint32_t)r->qmax && r->qmax <= 127;
}

/* Whether e * sigma / scale is 1 or -1 within 2^-21, its steps (docs/numerics.md section 6)
 * included: then e * x * sigma / scale is within 2^-14 of x, which is a code. */
static inline bool is_unit(const qfw_outer *o, int32_t e, float scale)
{
    const uint32_t off = qfw_bits_f32(scale - o->sigma * (float)qfw_abs32(e)) & 0x7FFFFFFFu;
    return qfw_from_bits_f32(off) <= scale * 0x1p-22f;
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

/* By the definition those elements of a row that are in block `number`. */
static void encode_block(const qfw_outer *o, int32_t e, float scale, uint64_t first,
                         uint64_t number, int8_t *codes)
{
    const uint64_t at = number * 32, from = at > first ? at - first : 0;
    const uint64_t end = at + 32 - first < o->n ? at + 32 - first : o->n;
    (void)by_chunks(o, (size_t)from, (size_t)(end - from), e, scale, first, codes);
}

/* What looks found: of LOOKS * BLOCKS blocks from `from` on, a multiple of BLOCKS, which are not sure.
 * Rows share them. Some looks before any is used: one takes long, but not many together. */
enum { LOOKS = 8 };

typedef struct {
    uint64_t from, end, last; /* no block after the last is asked for */
    uint32_t unsure[LOOKS];
} looked;

static void look_from(const qfw_key *key, uint64_t number, looked *l)
{
    l->from = l->end = number / BLOCKS * BLOCKS;
    for (size_t k = 0; k < LOOKS && l->end <= l->last; k++, l->end += BLOCKS) {
        l->unsure[k] = look(key, l->end);
    }
}

/* A copy, and again what is not sure. No code saturates: |x| <= qmax, and rounding stays within. */
static inline void encode_unit(const qfw_outer *o, int32_t e, float scale, uint64_t first,
                               int8_t *codes, looked *l)
{
    const uint64_t last = (first + o->n - 1) / 32;
    copy(o->x, o->n, e < 0, codes);
    for (uint64_t number = first / 32; number <= last;) {
        if (number < l->from || number >= l->end) {
            look_from(&o->key, number, l);
        }
        const uint64_t k = (number - l->from) / BLOCKS, begin = l->from + k * BLOCKS;
        const uint32_t past = last - begin < BLOCKS ? (uint32_t)(last - begin) : BLOCKS - 1;
        uint32_t unsure =
            l->unsure[k] & ((UINT32_C(2) << past) - (UINT32_C(1) << (number - begin)));
        for (; unsure != 0; unsure &= unsure - 1) {
            encode_block(o, e, scale, first, begin + (uint64_t)__builtin_ctz(unsure), codes);
        }
        number = begin + BLOCKS;
    }
}

/* Short rows are looked at together, a block being in several. */
enum { SHORT_ROW = 256 };

/* Whether all rows are copies, or 0. */
static inline bool are_units(const qfw_outer *o, const int32_t *e, const float *scale, size_t rows)
{
    int32_t other = 0;
    for (size_t k = 0; k < rows; k++) {
        other |= e[k] * (is_unit(o, e[k], scale[k]) ? 0 : 1);
    }
    return other == 0;
}

static void encode_short(const qfw_outer *o, const int32_t *e, const float *scale, size_t rows,
                         uint64_t first, int8_t *codes)
{
    const size_t n = o->n;
    const uint64_t last = (first + rows * n - 1) / 32;
    copies(o->x, n, e, rows, codes);
    for (uint64_t number = first / 32; number <= last; number += BLOCKS) {
        for (uint32_t unsure = look(&o->key, number); unsure != 0; unsure &= unsure - 1) {
            const uint64_t in = number + (uint64_t)__builtin_ctz(unsure), at = in * 32;
            const size_t end = at + 32 > first ? (size_t)(at + 32 - first) : 0;
            for (size_t k = at > first ? (size_t)(at - first) / n : 0; k < rows && k * n < end;
                 k++) {
                if (e[k] != 0) {
                    encode_block(o, e[k], scale[k], first + k * n, in, codes + k * n);
                }
            }
        }
    }
}

static inline uint32_t encode_rows(const qfw_outer *outer, const int32_t *e, const float *scale,
                                   size_t rows, uint64_t first, int8_t *codes)
{
    uint32_t saturated = 0;
    looked l = {0, 0, rows != 0 ? (first + rows * outer->n) / 32 : 0, {0}};
    const bool units = has_units(outer);
    if (units && outer->n > 0 && outer->n <= SHORT_ROW && rows > 0 &&
        are_units(outer, e, scale, rows)) {
        encode_short(outer, e, scale, rows, first, codes);
        return 0;
    }
    for (size_t k = 0; outer->n > 0 && k < rows; k++) {
        const size_t at = k * outer->n;
        if (e[k] == 0) {
            memset(codes + at, 0, outer->n);
        } else if (units && is_unit(outer, e[k], scale[k])) {
            encode_unit(outer, e[k], scale[k], first + at, codes + at, &l);
        } else {
            saturated += by_chunks(outer, 0, outer->n, e[k], scale[k], first + at, codes + at);
        }
    }
    return saturated;
}

#endif
