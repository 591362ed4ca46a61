/* Codes in int8: the definitions. */
#include "base/random.h"
#include "base/round.h"
#include "kernels/kernels.h"

uint32_t qfw_absmax_s32_scalar(const int32_t *a, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = qfw_abs32(a[i]);
        most = size > most ? size : most;
    }
    return most;
}

/* Without a tile in between, by random words. */
static uint32_t rescale_few(const int32_t *a, size_t n, const qfw_ratio *ratio,
                            const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                            int8_t *codes)
{
    const qfw_ratio r = *ratio;
    const qfw_code_rule held = *rule;
    uint32_t saturated = 0;
    qfw_words w = {0, 0};
    for (size_t i = 0; i < n; i++, w.u = qfw_add32(w.u, w.step)) {
        if (i == 0 || ((first + i) & 31) == 0) {
            w = qfw_words_at(key, first + i);
        }
        const int32_t v = qfw_rescale(a[i], &r, QFW_STOCHASTIC, w.u);
        codes[i] = (int8_t)qfw_code_of(v, &held, &saturated);
    }
    return saturated;
}

uint32_t qfw_rescale_s8_scalar(const int32_t *a, size_t n, const qfw_ratio *ratio,
                               const qfw_code_rule *rule, const qfw_key *key, uint64_t first,
                               int8_t *codes)
{
    if (QFW_DIRECT && (!QFW_HAS_NEAREST_S8 || rule->rounding == QFW_STOCHASTIC)) {
        return rescale_few(a, n, ratio, rule, key, first, codes);
    }
    uint32_t u[QFW_TILE], saturated = 0;
    int32_t m[QFW_TILE];
    for (size_t i = 0; i < n; i += QFW_TILE) {
        const size_t count = n - i < QFW_TILE ? n - i : QFW_TILE;
        if (rule->rounding == QFW_STOCHASTIC) {
            qfw_uniforms(key, first + i, count, u);
        }
        saturated += qfw_rescale_s32_scalar(a + i, u, count, ratio, rule, m);
        for (size_t k = 0; k < count; k++) {
            codes[i + k] = (int8_t)m[k];
        }
    }
    return saturated;
}
