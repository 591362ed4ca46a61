/* Floats and integers to codes: the definitions. */
#include "base/random.h"
#include "base/round.h"
#include "kernels/at_once.h"
#include "kernels/kernels.h"

/* Patterns of one sign are ordered as the floats are; seen as int32, those of the other sign are
 * negative. */
void qfw_extent_f32_scalar(const float *x, size_t n, int32_t *hi, int32_t *lo)
{
    int32_t h = *hi, l = *lo;
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = qfw_bits_f32(x[i]);
        const int32_t up = (int32_t)u, down = (int32_t)(u ^ 0x80000000u);
        h = up > h ? up : h;
        l = down > l ? down : l;
    }
    *hi = h;
    *lo = l;
}

qfw_status qfw_finite_f32(const qfw_kernels *kernels, const float *x, size_t n)
{
    int32_t hi = 0, lo = 0;
    QFW_K(kernels, extent_f32)(x, n, &hi, &lo);
    return hi >= QFW_F32_INF || lo >= QFW_F32_INF ? QFW_E_NONFINITE : QFW_OK;
}

/* In both loops `mode` is a constant at each call, so each call becomes a loop of its own. */

static inline uint32_t quotients(const float *x, const uint32_t *u, size_t n, const qfw_divisor *s,
                                 const qfw_code_rule *rule, const qfw_rounding mode, int32_t *codes)
{
    uint32_t saturated = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t draw = mode == QFW_STOCHASTIC ? u[i] : 0;
        codes[i] = qfw_code_of(qfw_round_quotient(x[i], s, mode, draw), rule, &saturated);
    }
    return saturated;
}

uint32_t qfw_quotient_f32_scalar(const float *x, const uint32_t *u, size_t n, float s,
                                 const qfw_code_rule *rule, int32_t *codes)
{
    const qfw_divisor d = qfw_divisor_of(s);
    if (QFW_DIRECT) { /* one loop for all of them */
        return quotients(x, u, n, &d, rule, rule->rounding, codes);
    }
    switch (rule->rounding) {
    case QFW_STOCHASTIC:
        return quotients(x, u, n, &d, rule, QFW_STOCHASTIC, codes);
    case QFW_HALF_EVEN:
        return quotients(x, u, n, &d, rule, QFW_HALF_EVEN, codes);
    default:
        return quotients(x, u, n, &d, rule, QFW_HALF_AWAY, codes);
    }
}

static inline uint32_t rescaled(const int32_t *a, const uint32_t *u, size_t n,
                                const qfw_ratio *ratio, const qfw_code_rule *rule,
                                const qfw_rounding mode, int32_t *codes)
{
    uint32_t saturated = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t draw = mode == QFW_STOCHASTIC ? u[i] : 0;
        codes[i] = qfw_code_of(qfw_rescale(a[i], ratio, mode, draw), rule, &saturated);
    }
    return saturated;
}

uint32_t qfw_rescale_s32_scalar(const int32_t *a, const uint32_t *u, size_t n,
                                const qfw_ratio *ratio, const qfw_code_rule *rule, int32_t *codes)
{
    if (QFW_DIRECT) {
        return rescaled(a, u, n, ratio, rule, rule->rounding, codes);
    }
    switch (rule->rounding) {
    case QFW_STOCHASTIC:
        return rescaled(a, u, n, ratio, rule, QFW_STOCHASTIC, codes);
    case QFW_HALF_EVEN:
        return rescaled(a, u, n, ratio, rule, QFW_HALF_EVEN, codes);
    default:
        return rescaled(a, u, n, ratio, rule, QFW_HALF_AWAY, codes);
    }
}

/* Where instructions do all but a few, those are done in few bytes. */
enum { ONLY_RESTS = QFW_HAS_FLOATS_WITHIN && !QFW_HAS_FIXED && !QFW_HAS_HINDSIGHT };

/* And in fewest as biases are: the scale was found, so that no quotient is above q. */
enum { ARE_SEEDS = ONLY_RESTS && QFW_IS_SMALL };

/* To the nearest, half away: what most rows are. most: the largest magnitude; known: that it is q s or less. */
static uint32_t encode_near(const float *x, size_t n, float s, int32_t q, float most, bool known,
                            int8_t *codes)
{
    const float *end = x + n;
    uint32_t saturated = 0;
    if (QFW_HAS_FLOATS_WITHIN && !ONLY_RESTS && !known) {
        const qfw_divisor by = qfw_divisor_of(s);
        known = qfw_nearest_quotient(most, &by) <= q;
    }
    const size_t done = known || ONLY_RESTS ? qfw_floats_within(x, n, s, codes) : 0;
    if (done == n) {
        return 0;
    }
    codes += done;
    x += done;
    for (; ARE_SEEDS && x < end; x++) {
        const qfw_num v = qfw_num_f32(*x);
        const int64_t m = qfw_bits_f32(*x) >> 31 != 0 ? -(int64_t)v.mant : (int64_t)v.mant;
        *codes++ = (int8_t)qfw_seed_of(m, v.exp, s).seed;
    }
    if (ARE_SEEDS) {
        return 0;
    }
    const qfw_divisor d = qfw_divisor_of(s);
    for (; x < end; x++) {
        const int32_t v = ONLY_RESTS ? qfw_round_quotient(*x, &d, QFW_HALF_AWAY, 0)
                                     : qfw_nearest_quotient(*x, &d);
        int32_t code = v;
        if ((uint32_t)(v + q) > 2 * (uint32_t)q) {
            code = v > q ? q : -q;
            saturated++;
        }
        *codes++ = (int8_t)code;
    }
    return saturated;
}

/* The pattern of the largest magnitude, at least QFW_F32_INF at a NaN or an infinity. On a device, where
 * few of a row are larger than all before them; patterns without their sign are ordered as magnitudes. */
static uint32_t largest_of(const float *x, size_t n)
{
    uint32_t most = 0;
    const float *end = x + n;
    x += qfw_largest_of_fours(x, n, &most);
    for (; (!QFW_HAS_FLOATS_WITHIN || QFW_HAS_RESTS) && x < end; x++) {
        const uint32_t twice = qfw_mul32(qfw_bits_f32(*x), 2);
        if (twice > most) {
            most = twice;
        }
    }
    return most >> 1;
}

static uint64_t encode_run(const float *x, size_t n, float s, const qfw_row_encoding *how,
                           uint64_t first, int8_t *codes)
{
    const int32_t q = (int32_t)how->q;
    const qfw_code_rule rule = {how->rounding, 0, -q, q};
    const qfw_divisor d = qfw_divisor_of(s);
    qfw_draw_pair pair = {0, 0};
    uint32_t saturated = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = 0;
        if (how->rounding == QFW_STOCHASTIC) {
            const uint32_t at = (uint32_t)((first + i) & 31);
            pair = i == 0 || at == 0 ? qfw_block_draw(how->key, first + i) : pair;
            u = qfw_add32(pair.a, qfw_mul32(at, pair.b));
        }
        const int32_t v = qfw_round_quotient(x[i], &d, how->rounding, u);
        codes[i] = (int8_t)qfw_code_of(v, &rule, &saturated);
    }
    return saturated;
}

/* One run. */
static inline qfw_status quantize_run(const float *x, size_t n, const qfw_row_encoding *how,
                                      uint64_t first, float *scale, int8_t *codes,
                                      uint64_t *saturated)
{
    const uint32_t most = largest_of(x, n);
    if (most >= QFW_F32_INF) {
        return QFW_E_NONFINITE;
    }
    if (how->dynamic) {
        const qfw_num top = qfw_num_f32(qfw_from_bits_f32(most));
        *scale = qfw_num_scale_f32(qfw_num_ratio_up(top, 1, how->q, 24), how->pow2);
    }
    *saturated += !QFW_HAS_ANY_QUANTIZE || how->rounding == QFW_HALF_AWAY
                      ? encode_near(x, n, *scale, (int32_t)how->q, qfw_from_bits_f32(most),
                                    how->dynamic, codes)
                      : encode_run(x, n, *scale, how, first, codes);
    return QFW_OK;
}

qfw_status qfw_quantize_s8_scalar(const float *x, size_t n, size_t run, const qfw_row_encoding *how,
                                  float *scale, int8_t *codes, uint64_t *saturated)
{
    if (!QFW_HAS_FLOAT_RUNS) {
        return quantize_run(x, n, how, how->first, scale, codes, saturated);
    }
    for (size_t i = 0; i < n; i += run, scale++) {
        const size_t count = n - i < run ? n - i : run;
        QFW_TRY(quantize_run(x + i, count, how, how->first + i, scale, codes + i, saturated));
    }
    return QFW_OK;
}
