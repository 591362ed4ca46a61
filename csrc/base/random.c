#include "base/random.h"

QFW_SMALL void qfw_make_key(uint32_t seed, uint32_t step, uint32_t tensor, qfw_key *key)
{
    *key = qfw_key_for(seed, step, tensor);
}

qfw_words qfw_words_apart(const qfw_key *key, uint32_t element)
{
    const qfw_draw_pair d = qfw_block_draw(key, element);
    const qfw_words w = {qfw_add32(d.a, qfw_mul32(element & 31, d.b)), d.b};
    return w;
}

void qfw_draws(const qfw_key *key, uint32_t first, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = qfw_draw(key, qfw_add32(first, (uint32_t)i));
    }
}

void qfw_uniforms(const qfw_key *key, uint64_t first, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n;) {
        const qfw_draw_pair d = qfw_block_draw(key, first + i);
        const uint32_t from = (uint32_t)((first + i) & 31);
        const size_t count = n - i < 32 - from ? n - i : 32 - from;
        for (uint32_t k = 0; k < count; k++) {
            out[i + k] = qfw_add32(d.a, qfw_mul32(from + k, d.b));
        }
        i += count;
    }
}
