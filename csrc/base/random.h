/* The generator: docs/numerics.md section 4. */
#ifndef QFW_BASE_RANDOM_H
#define QFW_BASE_RANDOM_H

#include "base/config.h"
#include "base/fixed.h"
#include "include/qfw.h"

static inline uint32_t qfw_mix(uint32_t x)
{
    x ^= x >> 16;
    x = qfw_mul32(x, 0x7feb352du);
    x ^= x >> 15;
    x = qfw_mul32(x, 0x846ca68bu);
    return x ^ (x >> 16);
}

/* What qfw_make_key makes. */
static inline qfw_key qfw_key_for(uint32_t seed, uint32_t step, uint32_t tensor)
{
    const uint32_t a = qfw_mix(qfw_add32(seed, 0x9E3779B9u));
    const uint32_t b = qfw_mix(a ^ step);
    const uint32_t c = qfw_mix(qfw_add32(b, qfw_mul32(0x85EBCA6Bu, qfw_add32(tensor, 1))));
    const qfw_key key = {c, qfw_mix(c ^ b ^ 0xC2B2AE35u)};
    return key;
}

QFW_INLINE_ALONE uint32_t qfw_draw(const qfw_key *key, uint32_t i)
{
    uint32_t x = qfw_add32(key->k0, qfw_mul32(i, 0x9E3779B9u));
    x ^= x >> 16;
    x = qfw_mul32(x, 0x7feb352du);
    x ^= x >> 15;
    x = qfw_add32(x, key->k1);
    x = qfw_mul32(x, 0x846ca68bu);
    return x ^ (x >> 16);
}

/* The seed of a step's micro-batch: 0 has the plan's own. */
static inline uint32_t qfw_micro_seed(uint32_t seed, uint32_t micro)
{
    return qfw_add32(seed, qfw_mul32(micro, 0x9E3779B9u));
}

/* The pair (A, B) that serves the 32 elements of one block. */
typedef struct {
    uint32_t a, b;
} qfw_draw_pair;

QFW_INLINE_ALONE qfw_draw_pair qfw_block_draw(const qfw_key *key, uint64_t element)
{
    const uint64_t at = QFW_ANY_PLAN ? element : element & 0xFFFFFFFFu; /* of one plan: a word */
    const uint32_t j = (uint32_t)(at >> 5);
    const uint32_t twice = qfw_add32(j, j);
    const qfw_draw_pair d = {qfw_draw(key, twice), qfw_draw(key, qfw_add32(twice, 1)) | 1u};
    return d;
}

/* The words u, u + step, ... of an element and its neighbours in a block. */
typedef struct {
    uint32_t u, step;
} qfw_words;

/* One for all who ask, where that saves flash. */
QFW_NOINLINE qfw_words qfw_words_apart(const qfw_key *key, uint32_t element);

static inline qfw_words qfw_words_at(const qfw_key *key, uint64_t element)
{
    if (QFW_IS_SMALL) {
        return qfw_words_apart(key, (uint32_t)(element & 0xFFFFFFFFu));
    }
    const qfw_draw_pair d = qfw_block_draw(key, element);
    const qfw_words w = {qfw_add32(d.a, qfw_mul32((uint32_t)(element & 31), d.b)), d.b};
    return w;
}

#endif
