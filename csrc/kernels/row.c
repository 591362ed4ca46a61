/* One row whose columns have scales of their own, column by column, where kernels are called by name. */
#include "base/round.h"
#include "kernels/at_once.h"
#include "kernels/codes.h"
#include "kernels/gemm_v6m.h"
#include "kernels/ratio.h"
#include "kernels/row_mve.h"
#include "kernels/seeds.h"

qfw_ratio_to qfw_ratio_to_apart(float to)
{
    return qfw_ratio_to_here(to);
}

/* The code of a whatever its ratio. */
static int32_t code_far(int32_t a, uint32_t mult, uint32_t down, float from, float to, int32_t bits)
{
    const uint32_t most = (uint32_t)(29 - bits), up = qfw_sub32(most - 1, down);
    const qfw_ratio r = {mult, (uint8_t)up, (uint8_t)most, (uint32_t)INT32_MAX >> (up & 31)};
    const qfw_ratio any = up <= 30 ? r : qfw_ratio_of(from, to, bits);
    return qfw_rescale(a, &any, QFW_HALF_AWAY, 0);
}

/* The code of a at the scale `from`. Where down < 28 - bits, up is 1 or more; where it is negative, a within
 * its limit is moved up to a ratio of that length. */
QFW_ALWAYS_INLINE int32_t code_near(int32_t a, float from, const qfw_ratio_to *one, float to,
                                    int32_t bits)
{
    const uint32_t most = (uint32_t)(28 - bits);
    uint32_t down;
    const uint32_t mult = qfw_ratio_mult(qfw_bits_f32(from), one, &down);
    if (down < most) {
        return qfw_near(a, mult, down);
    }
    const uint32_t up = qfw_sub32(most, down), limit = (uint32_t)INT32_MAX >> (up & 31);
    if (up <= 30 && qfw_add32((uint32_t)a, limit) <= 2 * limit) {
        return qfw_near((int32_t)qfw_mul32((uint32_t)a, 1u << up), mult, most);
    }
    return code_far(a, mult, down, from, to, bits);
}

/* One row: columns in order, each with its own scale; of 0, which many are after a ReLU, none is asked. */
QFW_ALWAYS_INLINE uint32_t code_row(const int32_t *acc, size_t n, const qfw_finish *f,
                                    const float *from, float to, int32_t bits, const bool follows,
                                    const int32_t width, void *codes)
{
    const qfw_ratio_to one = qfw_ratio_to_of(to);
    const int32_t q = (1 << (bits - 1)) - 1, keep = f->relu ? -1 : 0;
    const int32_t *seed = f->seed;
    const uint8_t *shift = f->shift;
    uint32_t *absmax = f->absmax, saturated = 0;
    uint8_t *at = codes;
    for (const int32_t *end = acc + n; acc < end; from++) {
        int32_t a = *acc++;
        if (follows) {
            a = seed != NULL ? (a >> *shift++) + *seed++ : a;
            a &= ~(a >> 31 & keep);
            if (absmax != NULL) {
                *absmax = qfw_abs32(a) > *absmax ? qfw_abs32(a) : *absmax;
                absmax++;
            }
        }
        int32_t v = 0;
        if (a != 0) {
            v = code_near(a, *from, &one, to, bits);
            if ((uint32_t)(v + q) > 2 * (uint32_t)q) {
                v = v < 0 ? -q : q;
                saturated++;
            }
        }
        if (width == 8) {
            *(int8_t *)at = (int8_t)v;
        } else {
            *(int16_t *)(void *)at = (int16_t)v;
        }
        at += width / 8;
    }
    return saturated;
}

/* By vectors; fours of which one is out of the ordinary, and columns beyond them, by code_row. */
static uint32_t code_fours(const int32_t *acc, size_t n, const qfw_finish *f, const float *from,
                           float to, int32_t bits, int8_t *codes)
{
    const qfw_ratio_to one = qfw_ratio_to_of(to);
    qfw_finish rest = *f;
    uint32_t saturated = 0;
    for (size_t j = 0; j < n;) {
        rest.seed = f->seed + j;
        rest.shift = f->shift + j;
        const size_t done =
            qfw_codes_by_four_mve(acc + j, n - j, &rest, from + j, &one, bits, codes + j);
        const size_t left = n - j - done, few = left < 4 ? left : 4;
        j += done;
        rest.seed = f->seed + j;
        rest.shift = f->shift + j;
        saturated += code_row(acc + j, few, &rest, from + j, to, bits, true, 8, codes + j);
        j += few;
    }
    return saturated;
}

bool qfw_codes_of_row(const int32_t *acc, size_t n, const qfw_finish *f, const float *from,
                      const qfw_tensor *to, const qfw_code_rule *rule, void *codes,
                      uint64_t *saturated)
{
    const int32_t bits = to->format.bits, width = qfw_slot(&to->format);
    const bool follows = QFW_HAS_REQUANTIZE && (f->seed != NULL || f->relu || f->absmax != NULL);
    if (QFW_HAS_MANY_ROWS &&
        (f->mask != NULL || rule->rounding != QFW_HALF_AWAY || to->format.kind != QFW_SYM ||
         (width != 8 && (width != 16 || follows)))) {
        return false;
    }
    const float s = to->scale[0];
    if (QFW_HAS_MVE && follows && f->seed != NULL && f->absmax == NULL) {
        *saturated += code_fours(acc, n, f, from, s, bits, codes);
        return true;
    }
    if (QFW_HAS_V6M || QFW_IS_SMALL) { /* flash is scarce: one loop */
        *saturated +=
            code_row(acc, n, f, from, s, bits, QFW_HAS_V6M || QFW_HAS_REQUANTIZE, width, codes);
        return true;
    }
    *saturated += follows      ? code_row(acc, n, f, from, s, bits, true, 8, codes)
                  : width == 8 ? code_row(acc, n, f, from, s, bits, false, 8, codes)
                               : code_row(acc, n, f, from, s, bits, false, 16, codes);
    return true;
}

/* Of 2^23 a, down is 23 more; up is 1 or more where down is below 12. */
bool qfw_fold_row(const int8_t *m, size_t n, float own, const float *by, float to, int32_t bits,
                  int16_t *codes)
{
    const qfw_ratio_to one = qfw_ratio_to_of(to);
    const qfw_soft_factor factor = qfw_soft_factor_of(own);
    const int32_t q = (1 << (bits - 1)) - 1;
    for (const float *end = by + n; by < end; by++) {
        const uint32_t word = qfw_scale_bits(factor, own, *by);
        uint32_t down;
        const uint32_t mult = qfw_ratio_mult(word, &one, &down);
        const int32_t a = *m++;
        int32_t v;
        if (qfw_add32(down, 23) < 30) {
            v = qfw_near((int32_t)((uint32_t)a << 23), mult, down + 23);
        } else {
            v = code_far(a, mult, down, qfw_from_bits_f32(word), to, bits);
        }
        if ((uint32_t)(v + q) > 2 * (uint32_t)q) {
            v = v < 0 ? -q : q;
        }
        *codes++ = (int16_t)v;
    }
    return true;
}
